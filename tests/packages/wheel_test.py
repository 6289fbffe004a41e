#!/usr/bin/env python3
"""What packaging/wheel.py makes of the installation of a build: it is the same twice, its RECORD and tags are right, pip installs it into a fresh virtual
environment without an index, and Python tells a story there with nothing but that environment on PATH. wheel_test.py BUILD"""
import base64
import csv
import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import time
import zipfile

import archive_test
from archive_test import ROOT, archive

sys.path.insert(0, os.path.join(ROOT, "packaging"))
SPEC = importlib.util.spec_from_file_location("wheel", os.path.join(ROOT, "packaging", "wheel.py"))
wheel = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(wheel)
STORY = "import minerva; print(minerva.Model().generate('Tell me a story.', max_tokens=60))"
# Files of libraries that the process has open: those of the wheel, of Python and of glibc.
LIBRARIES = "import minerva; minerva.Model().generate('Hi', max_tokens=2); print({l.split()[-1] for l in open('/proc/self/maps') if '.so' in l})"
MOST_SECONDS = 10  # from `python -c` to the end of its story, the first start after installing


def check_content(path, epoch=None):
    """RECORD names every file with its digest and size; modes, times and tags."""
    with zipfile.ZipFile(path) as z:
        info = next(n.partition("/")[0] for n in z.namelist() if ".dist-info/" in n)
        record = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(z.read(info + "/RECORD").decode()))}
        assert set(record) == set(z.namelist()) and len(record) == len(z.namelist())
        for entry in z.infolist():
            data, (digest, size) = z.read(entry), record[entry.filename]
            if entry.filename != info + "/RECORD":
                made = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, int(size)) == (made, len(data)), entry.filename
            assert epoch is None or entry.date_time == time.gmtime(epoch)[:6], entry.filename
            assert entry.external_attr >> 16 in (0o100644, 0o100755), entry.filename
        assert z.getinfo(wheel.WITHIN + "/bin/minerva").external_attr >> 16 == 0o100755
        names = set(z.namelist())
        for name in ("minerva/_abi.py", "minerva/py.typed", wheel.WITHIN + "/lib/libminerva.so.0", wheel.WITHIN + "/lib/minerva/plugins/cpu_simd.so",
                     wheel.WITHIN + "/lib/libcjson.so.1", wheel.WITHIN + "/share/minerva/models/storyteller/model.safetensors",
                     info + "/licenses/LICENSE", info + "/licenses/libcjson1.copyright", info + "/sboms/minerva.spdx.json"):
            assert name in names, name
        assert not any(n.endswith((".pc", ".h")) or "share/man" in n or "llama_cpp/" in n for n in names if n.startswith("minerva/"))
        newer = wheel.WITHIN + "/lib/libstdc++.so.6" in names  # of the CUDA plugin
        assert "Tag: py3-none-manylinux_2_%d_" % (36 if newer else 34) in z.read(info + "/WHEEL").decode()
        assert "Requires-Dist: numpy; extra" in z.read(info + "/METADATA").decode()


def environment(folder):
    """A fresh virtual environment; its variables: no compiler, no other package, no setting of the user's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return {"PATH": folder + "/bin", "HOME": folder, "LANG": "C.UTF-8", "OCL_ICD_VENDORS": folder}  # no drivers of the machine


def pip():
    """A wheel of pip, which can be imported; None: there is none."""
    return next((os.path.join("/usr/share/python-wheels", n) for n in sorted(os.listdir("/usr/share/python-wheels")) if n.startswith("pip-"))
                if os.path.isdir("/usr/share/python-wheels") else iter(()), None)


def install(path, folder):
    """The variables of a fresh environment that has the wheel."""
    env = environment(folder)
    subprocess.run([folder + "/bin/python", "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", path], check=True,
                   env={**env, "PYTHONPATH": pip()})
    return env


def run(env, *command):
    p = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                       executable=os.path.join(env["PATH"], command[0]))
    assert p.returncode == 0, (command, p.returncode, p.stdout[-500:], p.stderr[-2000:])
    return p.stdout


def main():
    archive.OPENED = ()  # as in archive_test
    with tempfile.TemporaryDirectory() as scratch:
        made = []
        for i in range(2):
            folder = archive_test.install(sys.argv[1], os.path.join(scratch, "root" + "x" * i))
            made.append(wheel.wheel(folder, os.path.join(scratch, "out%d" % i), "0.1.0", archive_test.EPOCH, os.uname().machine))
        with open(made[0], "rb") as one, open(made[1], "rb") as two:
            assert one.read() == two.read(), "the wheels differ"
        print("ok    the same twice")
        check_content(made[0], archive_test.EPOCH)
        print("ok    " + check_content.__doc__)
        if not pip():
            print("no wheel of pip (python3-pip-whl): nothing is installed")
            return
        env = install(made[0], os.path.join(scratch, "env"))
        # The build may have Debian's libdir, so that its library looks for the rest elsewhere.
        at = run(env, "python", "-c", "import minerva; print(minerva.__path__[0] + '/_runtime')").strip()
        env.update(MINERVA_PLUGIN_PATH=at + "/lib/minerva/plugins", MINERVA_PROBE_TIMEOUT="0")
        story = run(env, "python", "-c", STORY.replace("Model()", "Model(%r)" % (at + "/share/minerva/models/storyteller")))
        assert len(story.split()) > 20, story
        print("ok    " + " ".join(story.split()[:12]))


if __name__ == "__main__":
    if not all(any(os.access(os.path.join(p, tool), os.X_OK) for p in os.environ["PATH"].split(":")) for tool in ("readelf", "dpkg-query", "cc")):
        print("skipped: needs cc, readelf and dpkg-query")
        sys.exit(77)
    main()
