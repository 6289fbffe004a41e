#!/usr/bin/env python3
"""deploy/Containerfile without a registry: its steps make a root of Debian's packages and of an archive, of at most 150 MB, and its server runs there on a
root that cannot be written to, as a user without rights, until its health check is content. image_root.py ARCHIVE"""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE]
import roots  # noqa: E402

MOST_BYTES = 150_000_000
KEY = "a-key-of-this-test"
# What debian:bookworm-slim leaves out of its packages.
SLIM = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/groff", "usr/share/linda", "usr/share/lintian")


def steps_of(text):
    """(instruction, its words) of each line of a Containerfile."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def put_in(text, values):
    return re.sub(r"\$(\w+)", lambda m: values[m.group(1)], text)


class Image:
    """The last stage of a Containerfile: its root, and what its server gets."""

    def __init__(self, base, scratch, archive):
        self.base, self.scratch, self.archive = base, scratch, archive
        self.args, self.stages, self.root = {}, {}, None
        self.env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.user = self.health = self.entry = None

    def step(self, name, words):
        getattr(self, "do_" + name.lower())(words)  # a step that is not known here is an error

    def do_from(self, words):
        name = words.partition(" AS ")[2] or "last"
        self.root = self.stages[name] = os.path.join(self.scratch, name)
        subprocess.run(["cp", "-a", self.base, self.root], check=True)

    def do_arg(self, words):
        key, _, value = words.partition("=")
        self.args[key] = self.archive if key == "ARCHIVE" else value

    def do_copy(self, words):
        flags = dict(w[2:].split("=", 1) for w in words.split() if w.startswith("--"))
        source, to = (put_in(w, self.args) for w in words.split() if not w.startswith("--"))
        found = glob.glob(os.path.join(self.stages[flags["from"]] if "from" in flags else ROOT, source.lstrip("/") if "from" in flags else source))
        assert len(found) == 1, (words, found)
        os.makedirs(os.path.dirname(self.root + to), exist_ok=True)
        subprocess.run(["cp", "-a", "--no-preserve=ownership", found[0], self.root + to], check=True)
        if "chmod" in flags:
            os.chmod(self.root + to, int(flags["chmod"], 8))

    def do_run(self, words):
        roots.good(self.root, "/bin/sh", "-c", words)

    def do_env(self, words):
        key, _, value = words.partition("=")
        self.env[key] = put_in(value, self.env)

    def do_user(self, words):
        self.user = words

    def do_expose(self, words):
        assert words == "8080"

    def do_stopsignal(self, words):
        assert words == "SIGTERM"

    def do_healthcheck(self, words):
        self.health = json.loads(words.partition("CMD ")[2])

    def do_entrypoint(self, words):
        self.entry = json.loads(words)


def slim(root):
    """As much of a root as the image that BASE names has of it."""
    os.makedirs(root + "/etc/dpkg/dpkg.cfg.d", exist_ok=True)
    with open(root + "/etc/dpkg/dpkg.cfg.d/docker", "w", encoding="ascii") as f:
        f.writelines("path-exclude /%s/*\n" % path for path in SLIM)
    for path in (*SLIM, "var/cache/apt", "var/lib/apt/lists", "var/log"):
        for name in os.listdir(os.path.join(root, path)) if os.path.isdir(os.path.join(root, path)) else ():
            full = os.path.join(root, path, name)
            if os.path.isdir(full) and not os.path.islink(full):
                shutil.rmtree(full)
            else:
                os.remove(full)


def bytes_of(root):
    """Of all files, as the size of an image is counted."""
    sizes = {}
    for at, _, names in os.walk(root):
        for name in names:
            st = os.lstat(os.path.join(at, name))
            sizes[st.st_ino] = st.st_size
    return sum(sizes.values())


# Mounts and a network of its own, which end with it; nothing can be written but /tmp.
ENTER = """mount --rbind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --bind "$KEYS" "$0/keys" || exit 77
mount -o remount,bind,ro "$0" && mount -t tmpfs tmpfs "$0/tmp" && ip link set lo up || exit 77
exec chroot --userspec="$USERSPEC" "$0" "$@" """


def serve(image, keys):
    env = {**image.env, "HOME": "/home/minerva", "KEYS": keys, "USERSPEC": image.user + ":" + image.user, "PATH": image.env["PATH"]}
    return subprocess.Popen(["unshare", "-mn", "/bin/sh", "-c", ENTER, image.root, *image.entry], env=env, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def beside(image, p, *command):
    """A command in the container of a server."""
    return subprocess.run(["nsenter", "-t", str(p.pid), "-m", "-n", "chroot", "--userspec=%s:%s" % (image.user, image.user), image.root, *command],
                          env=image.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


ASK = """exec 3<>/dev/tcp/127.0.0.1/8080
printf 'POST /v1/completions HTTP/1.0\\r\\nContent-Type: application/json\\r\\nContent-Length: 62\\r\\n%s\\r\\n' "$1" >&3
printf '%-62s' '{"prompt": "Once upon a time", "max_tokens": 12, "seed": 1}' >&3
cat <&3"""


def try_server(image, scratch):
    keys = scratch + "/keys"
    with open(keys, "w", encoding="ascii") as f:
        f.write(KEY + "\n")
    os.chmod(keys, 0o644)
    p = serve(image, keys)
    try:
        for _ in range(300):
            if beside(image, p, *image.health).returncode == 0 or p.poll() is not None:
                break
            time.sleep(0.2)
        assert p.poll() is None and beside(image, p, *image.health).returncode == 0, p.stdout.read() if p.poll() is not None else "not healthy"
        print("ok    its health check is content")
        with open("/proc/%d/status" % p.pid, encoding="ascii") as f:
            assert "Uid:\t%s" % image.user in f.read()
        for place in ("/x", "/opt/minerva/x", "/home/minerva/x"):
            assert "Read-only" in beside(image, p, "touch", place).stdout
        assert " 401 " in beside(image, p, "bash", "-c", ASK, "ask", "").stdout
        answer = beside(image, p, "bash", "-c", ASK, "ask", "Authorization: Bearer %s\r\n" % KEY).stdout
        assert " 200 " in answer and '"text"' in answer, answer
        print("ok    it answers with a key, as user %s, on a root that cannot be written to" % image.user)
        story = beside(image, p, "minerva", "run", "-n", "40", "--no-stdin")
        assert story.returncode == 0 and len(story.stdout.split()) > 20, story
        print("ok    a story")
        p.send_signal(signal.SIGTERM)
        assert p.wait(60) == 0, p.returncode
        print("ok    SIGTERM ends it")
    finally:
        p.kill()
        p.wait()


def try_image(archive):
    if os.geteuid() or not all(shutil.which(tool) for tool in ("debootstrap", "unshare", "nsenter", "ip")):
        print("skipped: the image needs root, for mounts and roots in folders, debootstrap, util-linux and iproute2")
        return
    with tempfile.TemporaryDirectory() as scratch:
        base = scratch + "/base"
        if not roots.make(base):
            print("skipped: the image needs Debian's packages")
            return
        slim(base)
        with open(ROOT + "/deploy/Containerfile", encoding="utf-8") as f:
            steps = steps_of(f.read())
        image = Image(base, scratch, os.path.abspath(archive))
        for name, words in steps:
            image.step(name, words)
        size = bytes_of(image.root)
        print("      %.1f MB, of which the base has %.1f" % (size / 1e6, bytes_of(base) / 1e6))
        assert "cuda" in os.path.basename(archive) or size <= MOST_BYTES, "%d bytes, expected %d at most" % (size, MOST_BYTES)
        print("ok    every step of deploy/Containerfile")
        open(image.root + "/keys", "w", encoding="ascii").close()
        try_server(image, scratch)


if __name__ == "__main__":
    try_image(sys.argv[1])
