"""Roots of Debian in folders, and what runs in them: for tests of packages. Needs root, for mounts."""
import os
import subprocess

BIND = 'for f in proc sys dev; do mount --rbind /$f "$0/$f" || exit 77; done; exec chroot --userspec="$USERSPEC" "$0" "$@"'


def make(root):
    """A root of Debian 12 with nothing but its minimum, whose apt reaches what this machine's does: a copy of $MINERVA_DEBIAN_ROOT, which somebody made
    with debootstrap before, else a new one. False: there is no network."""
    clean = os.environ.get("MINERVA_DEBIAN_ROOT")
    if clean:
        subprocess.run(["cp", "-a", clean, root], check=True)
        return True
    p = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root, "http://deb.debian.org/debian"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if p.returncode:
        print("debootstrap failed: " + p.stdout[-2000:])
        return False
    for name in ("hosts", "resolv.conf"):
        with open("/etc/" + name, "rb") as f, open("%s/etc/%s" % (root, name), "wb") as g:
            g.write(f.read())
    return True


def run(root, *command, user="0:0", timeout=600):
    """(status, output and errors) of a command in the root, with an empty environment, in mounts of its own, which end with it."""
    p = subprocess.run(["unshare", "-m", "/bin/sh", "-c", BIND, root, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True, timeout=timeout, env={"HOME": "/tmp", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "USERSPEC": user, "LC_ALL": "C.UTF-8",
                                                        "DEBIAN_FRONTEND": "noninteractive"})
    return p.returncode, p.stdout


def good(root, *command, **how):
    status, said = run(root, *command, **how)
    assert status == 0, (command, status, said[-3000:])
    return said
