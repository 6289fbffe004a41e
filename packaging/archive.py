#!/usr/bin/env python3
"""Makes of an installation the archive that runs from any folder: `./bootstrap package tar` calls it.

  archive.py FOLDER OUT NAME VERSION EPOCH [COMPILER]

FOLDER holds the installation (bin, lib, libexec, include, share), built with -Dbundle=true, and is changed: libraries that it needs and
glibc does not bring are copied to FOLDER/lib, their licences to share/doc/minerva/licences. OUT/NAME.tar.gz has all below a folder NAME;
beside it are NAME.spdx.json (SPDX 2.3, inside too) and NAME.tar.gz.sha256. What is written follows from FOLDER, the installed packages and
EPOCH (seconds; the time of every file): the same twice. COMPILER, by default cc, says where libraries lie: that of a cross build finds its own.

Copied are the files of Debian's packages as they are: dpkg knows package, version and licence of each. They are found by the DT_RPATH of our
files, so whoever wants another version of one puts it into lib.
"""
import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

# What Debian 12's libraries need of it, though its own is 2.36: manylinux_2_34, RHEL 9's and older than Ubuntu 22.04's.
GLIBC = (2, 34)
NEWER = {"lib/libstdc++.so.6": (2, 36)}  # comes with the CUDA plugin alone, which an older glibc does without
# Not in the archive: glibc itself, and GCC's own library, which every Linux with glibc has, and drivers of GPUs may need newer.
SYSTEM = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|gcc_s))\.so(\.[0-9]+)*$")
OPENED = ("libopenblas.so.0",)  # opened by name (plugins/cpu_simd/blas.c), needed by no file
DOCUMENTS = "share/doc/minerva"
CUDA = "lib/minerva/plugins/cuda.so"
# What is inside of the CUDA plugin and not Minerva's. The whole toolkit has one licence.
CUDART = """libcudart_static, Copyright NVIDIA Corporation and affiliates, is linked into the plugin for NVIDIA GPUs. It is a
distributable part of the CUDA Toolkit by Attachment A of its End User License Agreement, which is at
https://docs.nvidia.com/cuda/eula/"""
LAST_SECOND = 253402300799  # of the year 9999, the last that SPDX can write
COMMON = "/usr/share/common-licenses"


class Refused(Exception):
    """The archive would not run elsewhere, or something is missing that it must have."""


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def files_below(folder):
    """Relative paths of files and links, sorted."""
    found = []
    for at, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(at, name), folder) for name in names]
    return sorted(found)


def is_elf(path):
    if os.path.islink(path):
        return False
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def needs(path):
    """(names of needed libraries, versions of glibc that symbols need) of an ELF file."""
    text = output("readelf", "-W", "-d", "-V", path)
    needed = text.partition("Version needs section")[2]  # behind what the file defines
    return (re.findall(r"\(NEEDED\).*\[(.*)\]", text),
            {tuple(int(n) for n in version.split(".")) for version in re.findall(r"Name: GLIBC_([0-9.]+)", needed)})


def find_library(name, compiler):
    path = output(compiler, "-print-file-name=" + name).strip()
    return os.path.realpath(path) if os.path.isabs(path) else None


def bundle(folder, compiler="cc"):
    """Copies the libraries that files below folder need and do not have. soname -> the file that it is a copy of."""
    have = {os.path.basename(path) for path in files_below(folder) if ".so" in path}
    todo = [(name, path) for path in files_below(folder) if is_elf(os.path.join(folder, path)) for name in needs(os.path.join(folder, path))[0]]
    if os.path.exists(os.path.join(folder, "lib/minerva/plugins/cpu_simd.so")):
        todo += [(name, None) for name in OPENED if find_library(name, compiler)]
    copied = {}
    while todo:
        name, who = todo.pop()
        if name in have or SYSTEM.match(name):
            continue
        source = find_library(name, compiler)
        if not source:
            raise Refused("%s needs %s, which %s does not find" % (who, name, compiler))
        target = os.path.join(folder, "lib", name)
        shutil.copyfile(source, target)
        os.chmod(target, 0o644)
        have.add(name)
        copied[name] = source
        todo += [(other, name) for other in needs(target)[0]]
    return copied


def glibc(folder):
    """What everything in the folder needs."""
    return max([GLIBC] + [version for path, version in NEWER.items() if os.path.exists(os.path.join(folder, path))])


def check_symbols(folder):
    """Refuses files that need a newer glibc, or a library that is neither in lib nor the system's."""
    for path in files_below(folder):
        if not is_elf(os.path.join(folder, path)):
            continue
        libraries, versions = needs(os.path.join(folder, path))
        newest, most = max(versions, default=GLIBC), NEWER.get(path, GLIBC)
        if newest > most:
            raise Refused("%s needs symbols of glibc %d.%d, expected %d.%d at most: build on Debian 12" % ((path,) + newest[:2] + most))
        for name in libraries:
            if not SYSTEM.match(name) and not os.path.exists(os.path.join(folder, "lib", name)):
                raise Refused("%s needs %s, which is not in lib" % (path, name))


def root_of(path):
    """The root that a file is installed in, or unpacked to: the nearest folder above it that has a database of dpkg; its name ends with /."""
    at = os.path.dirname(path)
    while at != "/" and not os.path.exists(os.path.join(at, "var/lib/dpkg/status")):
        at = os.path.dirname(at)
    return os.path.join(at, "")


def package_of(path):
    """What dpkg knows of the package that a library is of: a dict, or None."""
    root = root_of(path)
    query = ("dpkg-query", "--admindir=%svar/lib/dpkg" % root)
    path = path[len(root) - 1:]
    for spelling in (path, path[len("/usr"):] if path.startswith("/usr/") else "/usr" + path):
        try:
            name = output(*query, "-S", spelling).rpartition(": ")[0]
            fields = output(*query, "-W", "-f", "${Package}\t${Version}\t${source:Package}\t${source:Version}\t${Architecture}\t${Homepage}", name)
        except (subprocess.CalledProcessError, OSError):
            continue
        return {**dict(zip(("name", "version", "source", "source_version", "arch", "home"), fields.split("\t"))), "root": root}
    return None


def packages_of(copied):
    """name of package -> its dict, with `files`: the sonames of it that the archive has."""
    packages = {}
    for soname, source in sorted(copied.items()):
        found = package_of(source) or {"name": soname, "version": "", "source": "", "source_version": "", "arch": "", "home": "", "root": "/"}
        packages.setdefault(found["name"], {**found, "files": []})["files"].append(soname)
    return packages


def write_licences(folder, packages):
    """The packages' own texts, those that they refer to, and which sources the libraries are built from."""
    to = os.path.join(folder, DOCUMENTS, "licences")
    os.makedirs(to, exist_ok=True)
    common = set()
    lines = ["Libraries in lib that are not Minerva's: files of Debian's packages, unchanged. Each may be replaced by another build of the same",
             "name. NAME.copyright is its licence. The sources are at https://snapshot.debian.org/package/SOURCE/VERSION/", "",
             "| library | package | source | version of the source |", "|---|---|---|---|"]
    for name, p in sorted(packages.items()):
        lines += ["| %s | %s | %s | %s |" % (soname, name, p["source"], p["source_version"]) for soname in p["files"]]
        text = "%susr/share/doc/%s/copyright" % (p["root"], name)
        if not os.path.exists(text):
            raise Refused("%s: its licence is not there, and the archive has %s of it" % (text, ", ".join(p["files"])))
        with open(text, encoding="utf-8", errors="replace") as f:
            text = f.read()
        write(os.path.join(to, name + ".copyright"), text)
        common |= {found.rstrip(".") for found in re.findall(COMMON + r"/([A-Za-z0-9.-]+)", text)}
    if os.path.exists(os.path.join(folder, CUDA)):
        lines += ["", CUDART]
    for name in sorted(common):
        if os.path.exists(os.path.join(COMMON, name)):
            shutil.copyfile(os.path.join(COMMON, name), os.path.join(to, name))
    write(os.path.join(to, "README.md"), "\n".join(lines) + "\n")


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


@contextlib.contextmanager
def replacing(path):
    """A new file beside path that takes its name once it is whole. What is there until then stays if writing fails, and a link is replaced, not
    followed."""
    temporary = None
    try:
        with tempfile.NamedTemporaryFile("wb", dir=os.path.dirname(path), prefix=".minerva-", delete=False) as f:
            temporary = f.name
            yield f
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as e:
        raise Refused("%s cannot be written: %s" % (path, e)) from e
    finally:
        if temporary and os.path.exists(temporary):
            os.remove(temporary)


def digest(path, algorithm):
    with open(path, "rb") as f:
        return hashlib.new(algorithm, f.read()).hexdigest()


def spdx_id(kind, name):
    return "SPDXRef-%s-%s" % (kind, re.sub(r"[^A-Za-z0-9.-]", "-", name))


def spdx_package(name, version, **more):
    return {"SPDXID": spdx_id("Package", name), "name": name, **({"versionInfo": version} if version else {}), "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION", **more}


def add_verification(package, files):
    """SPDX wants of a package whose files are listed a code of them, and of none else."""
    if files:
        sums = sorted(f["checksums"][0]["checksumValue"] for f in files)
        package["filesAnalyzed"] = True
        package["packageVerificationCode"] = {"packageVerificationCodeValue": hashlib.sha1("".join(sums).encode()).hexdigest()}


def spdx_of(folder, name, version, epoch, packages, libraries="lib/"):
    """The SPDX document of what is below folder: a package per Debian package, whose libraries lie below `libraries`, Minerva's, and every file with its
    digests."""
    files, relations, contents = [], [], {}
    owner = {libraries + soname: p for p in packages for soname in packages[p]["files"]}
    for i, path in enumerate(f for f in files_below(folder) if not os.path.islink(os.path.join(folder, f))):
        full = os.path.join(folder, path)
        files.append({"SPDXID": "SPDXRef-File-%d" % i, "fileName": "./" + path,
                      "checksums": [{"algorithm": "SHA1", "checksumValue": digest(full, "sha1")}, {"algorithm": "SHA256", "checksumValue": digest(full, "sha256")}],
                      "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"})
        contents.setdefault(owner.get(path, "minerva"), []).append(files[-1])
        relations.append({"spdxElementId": spdx_id("Package", owner.get(path, "minerva")), "relationshipType": "CONTAINS", "relatedSpdxElement": files[-1]["SPDXID"]})
    listed = [spdx_package("minerva", version, licenseDeclared="MIT", primaryPackagePurpose="APPLICATION")]
    for p in sorted(packages):
        a = packages[p]
        more = {"downloadLocation": "https://snapshot.debian.org/package/%s/%s/" % (a["source"], a["source_version"]), "supplier": "Organization: Debian",
                "sourceInfo": "built from %s %s" % (a["source"], a["source_version"]),
                "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                  "referenceLocator": "pkg:deb/debian/%s@%s?arch=%s" % (p, a["version"].replace("+", "%2B"), a["arch"])}]} if a["version"] else {}
        listed.append(spdx_package(p, a["version"], **({"homepage": a["home"]} if a["home"] else {}), **more))
        relations.append({"spdxElementId": spdx_id("Package", "minerva"), "relationshipType": "DEPENDS_ON", "relatedSpdxElement": spdx_id("Package", p)})
    if os.path.exists(os.path.join(folder, CUDA)):
        listed.append(spdx_package("cudart_static", "", supplier="Organization: NVIDIA", comment=CUDART))
        relations.append({"spdxElementId": spdx_id("Package", "minerva"), "relationshipType": "STATIC_LINK", "relatedSpdxElement": spdx_id("Package", "cudart_static")})
    for package in listed:
        add_verification(package, contents.get(package["name"]))
    relations.append({"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": spdx_id("Package", "minerva")})
    content = hashlib.sha256(json.dumps([files, listed], sort_keys=True).encode()).hexdigest()
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
            "documentNamespace": "https://spdx.org/spdxdocs/%s-%s" % (name, content[:32]),
            "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)), "creators": ["Tool: minerva-package-%s" % version]},
            "packages": listed, "files": files, "relationships": relations}


def mode_of(member):
    """Whoever runs this may have any umask."""
    if member.issym():
        return 0o777
    return 0o755 if member.isdir() or member.mode & 0o100 else 0o644


def write_tar(folder, path, name, epoch):
    """folder as path, a .tar.gz in which nothing is the machine's: order, times, owners and modes follow from what is inside."""
    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = epoch
        member.mode = mode_of(member)
        return member
    with replacing(path) as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        def add(at, inside):
            tar.add(at, inside, recursive=False, filter=plain)
            if os.path.isdir(at) and not os.path.islink(at):
                for child in sorted(os.listdir(at)):
                    add(os.path.join(at, child), inside + "/" + child)
        add(folder, name)


def archive(folder, out, name, version, epoch, compiler="cc"):
    """Path of the archive."""
    packages = packages_of(bundle(folder, compiler))
    check_symbols(folder)
    write_licences(folder, packages)
    text = json.dumps(spdx_of(folder, name, version, epoch, packages), indent=1, sort_keys=True) + "\n"
    write(os.path.join(folder, DOCUMENTS, "minerva.spdx.json"), text)
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, name + ".tar.gz")
    write_tar(folder, path, name, epoch)
    for beside, content in ((os.path.join(out, name + ".spdx.json"), text), (path + ".sha256", "%s  %s\n" % (digest(path, "sha256"), os.path.basename(path)))):
        with replacing(beside) as f:
            f.write(content.encode())
    return path


def seconds(word):
    """EPOCH as a number."""
    if not re.fullmatch("[0-9]{1,12}", word) or int(word) > LAST_SECOND:
        raise Refused("SOURCE_DATE_EPOCH: found \"%s\", expected seconds since 1970, at most %d" % (word, LAST_SECOND))
    return int(word)


def main():
    if len(sys.argv) not in (6, 7):
        sys.exit(__doc__)
    folder, out, name, version, epoch = sys.argv[1:6]
    try:
        print(archive(folder, out, name, version, seconds(epoch), *sys.argv[6:]))
    except (Refused, OSError) as e:
        sys.exit("minerva: no archive: %s" % e)
    except subprocess.CalledProcessError as e:
        sys.exit("minerva: no archive: %s failed: %s" % (" ".join(e.cmd), e.stderr.strip()))


if __name__ == "__main__":
    main()
