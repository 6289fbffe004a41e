#!/usr/bin/env python3
"""The last step before files are given to others: `./bootstrap package sums FOLDER` calls it.

  release.py SOURCE FOLDER

The version has one place, meson.build. Refused are a NEWS that does not begin with it, a tag of the commit that names another one, changes that are not
committed, and a file in FOLDER of another version. FOLDER/SHA256SUMS is then written anew, with every file that is there.
"""
import os
import re
import subprocess
import sys
from archive import Refused, digest, replacing

SUMS = "SHA256SUMS"


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def version_of(source):
    found = re.search(r"^    version: '(\d+\.\d+\.\d+)',$", read(os.path.join(source, "meson.build")), re.M)
    if not found:
        raise Refused("meson.build: found no version, expected a line    version: 'X.Y.Z',")
    return found.group(1)


def git(source, *args):
    return subprocess.run(["git", "-C", source, *args], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout


def check_source(source, version):
    """Whether the commit has its tag."""
    news = read(os.path.join(source, "NEWS")).split("\n", 1)[0].strip()
    if news != version:
        raise Refused("NEWS: its first line is \"%s\", expected %s, the version of meson.build" % (news, version))
    changed = git(source, "status", "--porcelain").split("\n")[0]
    if changed:
        raise Refused("not committed: %s" % changed.strip())
    tags = [tag for tag in git(source, "tag", "--points-at", "HEAD").split() if re.fullmatch(r"v\d.*", tag)]
    if tags and "v" + version not in tags:
        raise Refused("the commit has tag %s, expected v%s, the version of meson.build" % (tags[0], version))
    return bool(tags)


def files_of(folder, version):
    names = sorted(name for name in os.listdir(folder) if name != SUMS and os.path.isfile(os.path.join(folder, name)))
    if not names:
        raise Refused("%s: no file is there" % folder)
    for name in names:
        if not re.search(r"(?<![0-9.])%s(?![0-9]|\.[0-9])" % re.escape(version), name):
            raise Refused("%s: expected files of version %s alone" % (os.path.join(folder, name), version))
    return names


def sums(source, folder):
    """(path of the sums, whether the commit has its tag)."""
    version = version_of(source)
    tagged = check_source(source, version)
    names = files_of(folder, version)
    path = os.path.join(folder, SUMS)
    with replacing(path) as f:
        f.write("".join("%s  %s\n" % (digest(os.path.join(folder, name), "sha256"), name) for name in names).encode())
    return path, tagged


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        path, tagged = sums(*sys.argv[1:])
    except (Refused, OSError) as e:
        sys.exit("minerva: no sums: %s" % e)
    except subprocess.CalledProcessError as e:
        sys.exit("minerva: no sums: %s failed: %s" % (" ".join(e.cmd), e.stderr.strip()))
    if not tagged:
        print("minerva: the commit has no tag yet: git tag -a v%s" % version_of(sys.argv[1]), file=sys.stderr)
    print(path)


if __name__ == "__main__":
    main()
