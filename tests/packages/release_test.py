#!/usr/bin/env python3
"""packaging/release.py: version, NEWS, tag and files of a release are of one version, and SHA256SUMS has every file. release_test.py"""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "packaging")]
import release  # noqa: E402
from archive import Refused, write  # noqa: E402

COMMIT = ("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qam", "x")


def refused(words, source, folder):
    try:
        release.sums(source, folder)
    except Refused as e:
        assert all(w in str(e) for w in words), (str(e), words)
    else:
        raise AssertionError("not refused: %s" % (words,))


def make_source(folder):
    os.makedirs(folder)
    write(folder + "/meson.build", "project('minerva', 'c',\n    version: '1.2.3',\n")
    write(folder + "/NEWS", "1.2.3\n  first\n")
    for words in (("init", "-q"), ("add", "-A"), COMMIT):
        release.git(folder, *words)
    return folder


def main():
    assert release.version_of(ROOT) == release.read(ROOT + "/NEWS").split("\n", 1)[0].strip()
    print("ok    NEWS begins with the version of meson.build")
    with tempfile.TemporaryDirectory() as scratch:
        source, out = make_source(scratch + "/source"), scratch + "/out"
        os.makedirs(out)
        refused((out, "no file"), source, out)
        for name in ("minerva-1.2.3-linux-x86_64.tar.gz", "minerva_1.2.3_amd64.deb"):
            write(os.path.join(out, name), name)
        path, tagged = release.sums(source, out)
        assert not tagged
        subprocess.run(["sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS"], cwd=out, check=True)
        assert len(release.read(path).splitlines()) == 2
        release.git(source, "tag", "v1.2.3")
        assert release.sums(source, out)[1] and len(release.read(path).splitlines()) == 2
        print("ok    sums of every file, and of no earlier sums")
        for other in ("minerva-1.2.30-linux.tar.gz", "minerva-1.2.3.4.tar.gz", "minerva-11.2.3.tar.gz", "notes.txt"):
            write(os.path.join(out, other), "")
            refused((other, "1.2.3"), source, out)
            os.remove(os.path.join(out, other))
        write(source + "/more", "")
        refused(("not committed", "more"), source, out)
        os.remove(source + "/more")
        write(source + "/NEWS", "1.2.2\n")
        refused(("NEWS", "1.2.2", "1.2.3"), source, out)
        write(source + "/NEWS", "1.2.4\n")
        write(source + "/meson.build", "project('minerva', 'c',\n    version: '1.2.4',\n")
        release.git(source, *COMMIT)
        release.git(source, "tag", "v1.2.9")
        refused(("v1.2.9", "expected v1.2.4"), source, out)
        print("ok    another version in NEWS, a tag or a file, and changes that are not committed, are refused")


if __name__ == "__main__":
    if not any(os.access(os.path.join(p, "git"), os.X_OK) for p in os.environ["PATH"].split(":")):
        print("skipped: needs git")
        sys.exit(77)
    main()
