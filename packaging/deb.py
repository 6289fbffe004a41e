#!/usr/bin/env python3
"""Makes Debian packages of an installation: `./bootstrap package deb` calls it.

  deb.py FOLDER OUT VERSION EPOCH

FOLDER/usr holds the installation, built with --prefix=/usr and -Drpath=false. TABLE says of each file which package has it; a file that no row names
is an error, and so is a row that names none. OUT gets a .deb of each package that has files (minerva-cuda: where CUDA was built). Packages of one version
hold together: `minerva` wants libminerva0 of its version, and provides minerva-abi-N.M for each version of the plugin ABI that it works with, by the
plugin.h that is installed; packages of plugins depend on that of theirs. What is written follows from FOLDER, the installed packages and EPOCH
(seconds; the time of every file): the same twice.

Texts of packages are in packaging/debian: PACKAGE.postinst and the like, PACKAGE.default (/etc/default). lintian finds nothing to override.
"""
import email.utils
import fnmatch
import glob
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from archive import CUDART, Refused, files_below, is_elf, replacing, seconds, write

HERE = os.path.dirname(os.path.abspath(__file__))
UNIT = "usr/lib/systemd/system/minerva.service"
ZSH = "usr/share/zsh/vendor-completions/_minerva"
# Pattern of paths (* matches /, too), package, and where it lies there if that is another place. The first row that matches counts.
TABLE = (
    ("usr/lib/*/libminerva.so.*", "libminerva0", None),
    ("usr/lib/*/libminerva.so", "libminerva-dev", None),
    ("usr/lib/*/pkgconfig/*.pc", "libminerva-dev", None),
    ("usr/include/minerva/*", "libminerva-dev", None),
    ("usr/share/minerva/template/*", "libminerva-dev", None),
    ("usr/lib/*/minerva/plugins/cuda.so", "minerva-cuda", None),
    ("usr/lib/*/minerva/plugins/opencl.so", "minerva-opencl", None),
    ("usr/lib/*/minerva/plugins/*.so", "minerva", None),
    ("usr/libexec/minerva/*", "minerva", None),
    ("usr/bin/minerva", "minerva", None),
    ("usr/share/minerva/models/*", "minerva", None),
    ("usr/share/man/man1/*", "minerva", None),
    ("usr/share/bash-completion/completions/minerva", "minerva", None),
    ("usr/share/fish/vendor_completions.d/minerva.fish", "minerva", None),
    ("usr/share/zsh/site-functions/_minerva", "minerva", ZSH),
    ("usr/share/doc/minerva/packaging/minerva.service", "minerva", UNIT),
    ("usr/share/doc/minerva/LICENSE", None, None),  # is in every package's copyright
    ("usr/share/doc/minerva/*", "minerva", None),
)
OPTIONAL = ("minerva-cuda", "minerva-opencl")  # packages of what a build may lack
# VERSION and ABI stand for those of this build, SHLIBS for the libraries that dpkg-shlibdeps finds.
FIELDS = {
    "libminerva0": {
        "Section": "libs", "Multi-Arch": "same", "Depends": "SHLIBS", "Recommends": "minerva (= VERSION)",
        "Description": "runs transformer language models: shared library\n"
                       "Minerva runs language models on plugins for CPUs and GPUs.\n"
                       "This is the library of programs that use it. Its plugins and\n"
                       "model-format loaders are in the package minerva."},
    "libminerva-dev": {
        "Section": "libdevel", "Multi-Arch": "same", "Depends": "libminerva0 (= VERSION)", "Suggests": "python3, minerva",
        "Description": "runs transformer language models: headers, templates of plugins\n"
                       "Minerva runs language models on plugins for CPUs and GPUs.\n"
                       "These are the headers of programs (minerva.h) and of plugins\n"
                       "(plugin.h), and templates of a backend and a loader."},
    "minerva": {
        "Section": "science", "Depends": "libminerva0 (= VERSION), SHLIBS", "Provides": "ABIS",
        "Recommends": "libopenblas0-pthread | libopenblas0, libcurl4, ca-certificates", "Suggests": "minerva-opencl, minerva-cuda, openssl",
        "Description": "runs transformer language models: command and server\n"
                       "Minerva runs language models (GGUF, SafeTensors, MLX) on plugins\n"
                       "for CPUs and GPUs: one answer, conversations, a server with the\n"
                       "OpenAI interface and a web page, benchmarks, conversions. It has\n"
                       "the plugins for CPUs, the loaders, and a small model that tells\n"
                       "stories."},
    "minerva-cuda": {
        "Section": "non-free/science", "Depends": "ABI, SHLIBS", "Suggests": "libcuda1",
        "Description": "runs transformer language models: NVIDIA GPUs\n"
                       "The plugin of Minerva for NVIDIA GPUs from compute capability 8.0\n"
                       "on. It opens the machine's driver (libcuda.so.1) and needs no other\n"
                       "part of CUDA."},
    "minerva-opencl": {
        "Section": "science", "Depends": "ABI, SHLIBS", "Recommends": "ocl-icd-libopencl1 | libopencl1",
        "Description": "runs transformer language models: GPUs through OpenCL\n"
                       "The plugin of Minerva for every device with a driver of OpenCL 1.2.\n"
                       "It opens the machine's libOpenCL.so.1."},
}
CUDA_COPYRIGHT = """
Files: usr/lib/*/minerva/plugins/cuda.so
Copyright: 2026 The Minerva authors
           NVIDIA Corporation and affiliates
License: Expat and NVIDIA-CUDA

License: NVIDIA-CUDA
%s
""" % "\n".join(" " + line for line in CUDART.splitlines())


def maintainer():
    """As Debian's own tools are told it."""
    return "%s <%s>" % (os.environ.get("DEBFULLNAME", "Minerva maintainers"), os.environ.get("DEBEMAIL", "maintainers@minerva.invalid"))


def architecture():
    return run("dpkg", "--print-architecture").strip()


def run(*command, cwd=None, epoch=None):
    env = {**os.environ, "LC_ALL": "C", **({"SOURCE_DATE_EPOCH": str(epoch)} if epoch is not None else {})}
    return subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True, text=True).stdout


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def abis(header):
    """Versions of the plugin ABI by the text of plugin.h: (that of plugins built with it, all that the host works with), as "0.9"."""
    found = [re.search(r"^#define MN_ABI_%s (0x[0-9a-f]{8})$" % name, header, re.M) for name in ("OLDEST", "VERSION")]
    if not all(found):
        raise Refused("plugin.h: MN_ABI_VERSION and MN_ABI_OLDEST, expected as 0x and eight digits")
    oldest, newest = (int(m.group(1), 16) for m in found)
    if oldest > newest or oldest >> 16 != newest >> 16:
        raise Refused("plugin.h: MN_ABI_OLDEST %#x, expected one of the major version of MN_ABI_VERSION %#x" % (oldest, newest))
    names = ["%d.%d" % (n >> 16, n & 0xffff) for n in range(oldest, newest + 1)]
    return names[-1], names


def sort_files(folder):
    """package -> {path in the installation: path in the package}."""
    packages, used = {}, set()
    for path in files_below(folder):
        row = next((row for row in TABLE if fnmatch.fnmatchcase(path, row[0])), None)
        if not row:
            raise Refused("%s: no row of TABLE says which package has it" % path)
        used.add(row[0])
        if row[1]:
            packages.setdefault(row[1], {})[path] = row[2] or path
    for pattern, package, _ in TABLE:
        if pattern not in used and package not in OPTIONAL:
            raise Refused("%s: no file of the installation is there" % pattern)
    return packages


def packed(text):
    return gzip.compress(text, 9, mtime=0)


def put(path, data, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    os.chmod(path, mode)


def copy_in(source, to):
    """A file as packages have it: pages of the manual packed, the unit with the place of the command."""
    os.makedirs(os.path.dirname(to), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), to)
        return
    with open(source, "rb") as f:
        data = f.read()
    if "/usr/share/man/" in to:
        put(to + ".gz", packed(data))
        return
    if to.endswith(UNIT):
        text = data.decode()
        if text.count("/usr/local/bin/") != 1:
            raise Refused("%s: found %d times /usr/local/bin/, expected once" % (source, text.count("/usr/local/bin/")))
        data = text.replace("/usr/local/bin/", "/usr/bin/")
    put(to, data, 0o755 if os.access(source, os.X_OK) and not to.endswith(".so") and ".so." not in os.path.basename(to) else 0o644)


def copyright_of(name, licence):
    holder = re.search(r"^Copyright \(c\) (.*)$", licence, re.M).group(1)
    terms = licence.partition(holder)[2].strip()
    text = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nCopyright: %s\nLicense: Expat\n\nLicense: Expat\n" % holder
    text += "".join(" %s\n" % (line or ".") for line in terms.split("\n"))
    return text + (CUDA_COPYRIGHT if name == "minerva-cuda" else "")


def write_texts(root, name, version, licence, epoch):
    """copyright, changelog, what packaging/debian has."""
    doc = os.path.join(root, "usr/share/doc", name)
    put(os.path.join(doc, "copyright"), copyright_of(name, licence))
    change = "minerva (%s) unstable; urgency=medium\n\n  * Version %s: the file NEWS of the package minerva.\n\n -- %s  %s\n" % (
        version, version, maintainer(), email.utils.formatdate(epoch))
    put(os.path.join(doc, "changelog.gz"), packed(change.encode()))
    for script in ("postinst", "prerm", "postrm"):
        text = os.path.join(HERE, "debian", "%s.%s" % (name, script))
        if os.path.exists(text):
            put(os.path.join(root, "DEBIAN", script), read(text), 0o755)
    default = os.path.join(HERE, "debian", name + ".default")
    if os.path.exists(default):
        put(os.path.join(root, "etc/default", name), read(default))
        put(os.path.join(root, "DEBIAN/conffiles"), "/etc/default/%s\n" % name)


def write_library(work, version):
    """What dpkg-shlibdeps, here and at others, reads of libminerva0: programs built with this version want it or a newer one."""
    root = os.path.join(work, "debian/libminerva0")
    library = next(iter(glob.glob(root + "/usr/lib/*/libminerva.so.*.*")))
    soname = re.search(r"SONAME.*\[libminerva\.so\.(\d+)\]", run("readelf", "-Wd", library)).group(1)
    if soname != "0":
        raise Refused("%s: its soname ends with %s, expected 0, as the package's name does" % (library, soname))
    put(os.path.join(root, "DEBIAN/shlibs"), "libminerva %s libminerva%s (>= %s)\n" % (soname, soname, version))
    run("dpkg-gensymbols", "-plibminerva0", "-v" + version, "-P" + root, "-O" + os.path.join(root, "DEBIAN/symbols"), "-e" + library, "-q", cwd=work)
    os.chmod(os.path.join(root, "DEBIAN/symbols"), 0o644)
    put(os.path.join(root, "DEBIAN/triggers"), "activate-noawait ldconfig\n")


def libraries_of(work, name):
    """The Depends of a package's programs and plugins, as a list; those of libminerva0 come with its exact version."""
    root = os.path.join(work, "debian", name)
    elves = [os.path.join(root, path) for path in files_below(root) if not path.startswith("DEBIAN/") and is_elf(os.path.join(root, path))]
    if not elves:
        return []
    found = run("dpkg-shlibdeps", "-O", "--warnings=0", *("-e" + path for path in elves), cwd=work)
    return [d for d in re.sub(r"^shlibs:Depends=", "", found.strip()).split(", ") if d and not d.startswith("libminerva0 ")]


def write_control(work, name, version, header):
    root = os.path.join(work, "debian", name)
    abi, provided = abis(header)
    stands = {"VERSION": version, "SHLIBS": ", ".join(libraries_of(work, name)), "ABI": "minerva-abi-" + abi,
              "ABIS": ", ".join("minerva-abi-" + a for a in provided)}
    size = sum(-(-os.lstat(os.path.join(root, path)).st_size // 1024) for path in files_below(root) if not path.startswith("DEBIAN/"))
    lines = ["Package: " + name, "Source: minerva", "Version: " + version, "Architecture: " + architecture(), "Maintainer: " + maintainer(),
             "Installed-Size: %d" % size, "Priority: optional"]
    if name == "minerva":
        lines[1:2] = []  # the source has its name
    for field, value in FIELDS[name].items():
        if field != "Description":
            value = re.sub(r"[A-Z]+\b", lambda m: stands.get(m.group(), m.group()), value).strip(", ")
        lines.append("%s: %s" % (field, value.replace("\n", "\n ")))
    put(os.path.join(root, "DEBIAN/control"), "\n".join(lines) + "\n")
    conffiles = read(os.path.join(root, "DEBIAN/conffiles")).split() if os.path.exists(os.path.join(root, "DEBIAN/conffiles")) else []
    sums = ""
    for path in files_below(root):
        full = os.path.join(root, path)
        if not path.startswith("DEBIAN/") and "/" + path not in conffiles and not os.path.islink(full):
            with open(full, "rb") as f:
                sums += "%s  %s\n" % (hashlib.md5(f.read()).hexdigest(), path)
    put(os.path.join(root, "DEBIAN/md5sums"), sums)


def close(root, out, name, version, epoch):
    """The .deb of what is below root; its path."""
    for at, folders, names in os.walk(root):
        for path in [at] + [os.path.join(at, n) for n in folders + names]:
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, 0o755)
            os.utime(path, (epoch, epoch), follow_symlinks=False)
    path = os.path.join(out, "%s_%s_%s.deb" % (name, version, architecture()))
    built = root + ".deb"
    run("dpkg-deb", "--root-owner-group", "-Zxz", "--threads-max=1", "--build", root, built, epoch=epoch)
    with replacing(path) as f, open(built, "rb") as g:
        shutil.copyfileobj(g, f)
    return path


def debs(folder, out, version, epoch):
    """Paths of the packages that were made of folder/usr."""
    packages = sort_files(folder)
    header = read(os.path.join(folder, "usr/include/minerva/plugin.h"))
    licence = read(os.path.join(folder, "usr/share/doc/minerva/LICENSE"))
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        # What dpkg's tools want to find above packages.
        put(os.path.join(work, "debian/control"), "Source: minerva\nMaintainer: %s\n" % maintainer() + "".join(
            "\nPackage: %s\nArchitecture: any\nDescription: x\n" % name for name in packages))
        for name, files in packages.items():
            root = os.path.join(work, "debian", name)
            os.makedirs(os.path.join(root, "DEBIAN"))
            for source, to in files.items():
                copy_in(os.path.join(folder, source), os.path.join(root, to))
            write_texts(root, name, version, licence, epoch)
        write_library(work, version)
        for name in packages:
            write_control(work, name, version, header)
        return [close(os.path.join(work, "debian", name), out, name, version, epoch) for name in sorted(packages)]


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    folder, out, version, epoch = sys.argv[1:]
    try:
        print("\n".join(debs(folder, out, version, seconds(epoch))))
    except (Refused, OSError) as e:
        sys.exit("minerva: no packages: %s" % e)
    except subprocess.CalledProcessError as e:
        sys.exit("minerva: no packages: %s failed: %s" % (" ".join(e.cmd), e.stderr.strip()))


if __name__ == "__main__":
    main()
