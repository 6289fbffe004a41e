#!/usr/bin/env python3
"""Names of models and minerva pull, in front of a hub of loopback: hub_test.py MINERVA GROUP. Standard library alone, but for group python, which
needs huggingface_hub and is skipped without it.

Each test is a function test_GROUP_what; a failed check raises."""
import contextlib
import hashlib
import json
import os
import pty
import random
import select
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from loopback import Hub, git_sha1  # noqa: E402

ROOT = os.environ.get("MINERVA_SOURCE_ROOT", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
STORY = os.path.join(ROOT, "models", "storyteller")
WANTED = {"chat_template.jinja", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
KILLS = int(os.environ.get("MINERVA_HUB_KILLS", "50"))


class Skipped(Exception):
    pass


def story_files():
    files = {n: open(os.path.join(STORY, n), "rb").read() for n in os.listdir(STORY)}
    files.update({"modeling_story.py": b"raise SystemExit('code ran')", "run.sh": b"exit 1", "pytorch_model.bin": b"pickle", "sub/x.safetensors": b"x"})
    return files


class World:
    """A hub and an empty home."""
    def __init__(self, files=None, lfs=("model.safetensors",), certificate=None):
        self.hub = Hub(story_files() if files is None else files, lfs, certificate)
        self.folder = tempfile.TemporaryDirectory(prefix="minerva-hub-", ignore_cleanup_errors=True)
        self.home = self.folder.name
        drop = ("HF_", "HUGGING", "XDG_", "MINERVA_", "OLLAMA", "http", "HTTP", "NO_PROXY", "no_proxy", "ALL_PROXY", "LD_LIBRARY_PATH", "SSL_CERT_")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        self.env.update(HOME=self.home, HF_ENDPOINT=self.hub.url, HF_HUB_DOWNLOAD_TIMEOUT="2", OCL_ICD_VENDORS="/nonexistent")
        if "XDG_CACHE_HOME" in os.environ:  # the build's, for results of probes; models have a cache of their own
            self.env.update(XDG_CACHE_HOME=os.environ["XDG_CACHE_HOME"], HF_HOME=self.home + "/.cache/huggingface")
        self.cache = self.home + "/.cache/huggingface/hub"
        self.repo = self.cache + "/models--org--story"
        self.snapshot = self.repo + "/snapshots/" + Hub.commit

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.hub.close()
        self.folder.cleanup()

    def run(self, *args, code=0, timeout=120, **env):
        p = subprocess.run([MINERVA, *args], env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)
        self.out, self.err = p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")
        assert p.returncode == code, "exit code %d, expected %d: %s\n%s" % (p.returncode, code, args, self.err)
        return self.out + self.err

    def pull(self, name="org/story", **more):
        return self.run("pull", name, **more)

    def check_blobs(self):
        """Every blob that has its name is whole, and so is every link."""
        folder = self.repo + "/blobs"
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if not name.endswith(".incomplete"):
                data = open(os.path.join(folder, name), "rb").read()
                assert name == (hashlib.sha256(data).hexdigest() if len(name) == 64 else git_sha1(data)), name

    def check_whole(self, names=WANTED):
        found = {os.path.relpath(os.path.join(at, n), self.snapshot) for at, _, files in os.walk(self.snapshot) for n in files}
        equal(found, set(names))
        for n in names:
            equal(open(os.path.join(self.snapshot, n), "rb").read(), self.hub.files[n])
        equal(open(self.repo + "/refs/main").read(), Hub.commit)
        self.check_blobs()
        assert not [n for n in os.listdir(self.repo + "/blobs") if n.endswith(".incomplete")]

    def check_nothing(self):
        """No reader takes what is there for a model, and nothing lies beside the cache."""
        assert not os.path.exists(self.repo + "/refs/main")
        assert "no such model is on this machine" in self.run("show", "hf:org/story", code=1)
        caches = os.listdir(self.home + "/.cache") if os.path.isdir(self.home + "/.cache") else []
        equal({n for n in os.listdir(self.home) if n != ".cache"} | set(caches) - {"huggingface", "minerva", "pocl"}, set())


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


def has(text, *parts):
    for part in parts:
        assert part in text, "%r is not in %r" % (part, text)


# ---- pull -----------------------------------------------------------------------------------------------------------
def test_pull_whole():
    """What is needed and no more, in huggingface_hub's layout; then without a network at once."""
    with World() as w:
        has(w.pull(), w.snapshot + "\n", "org/story: 6 files")
        w.check_whole()
        equal(os.readlink(w.snapshot + "/model.safetensors"), "../../blobs/" + w.hub.hash("model.safetensors"))
        assert os.path.exists(w.cache + "/.locks/models--org--story/%s.lock" % w.hub.hash("config.json"))
        asked = [p for m, _, p, _ in w.hub.requests if m == "GET"]
        assert not [p for p in asked if ".py" in p or ".sh" in p or ".bin" in p], asked
        n = len(asked)
        has(w.pull(), "were here already")
        equal(len([1 for m, _, _, _ in w.hub.requests if m == "GET"]), n + 1)  # the list alone
        w.hub.close()
        has(w.run("devices", "--explain", "-m", "story", "--device", "cpu"), "name org/story\n  path: story: no such file or folder\n  alias: ", "  huggingface: " + w.snapshot)
        for name in ("org/story", "story", "hf:org/story", "https://huggingface.co/org/story"):
            assert w.run("run", "-m", name, "-n", "4", "-s", "1", "--device", "cpu", "Tell me a story.")
        has(w.run("list"), "org/story", "llama", "yes: cpu", "bf16", "10.09 MiB", "huggingface")
        item, = json.loads(w.run("list", "--json"))
        equal((item["name"], item["runs"], item["path"]), ("org/story", True, w.snapshot))
        has(w.run("show", "org/story"), "path       " + w.snapshot, "template   its own", "runs here  yes")


def test_pull_sums():
    """Lengths around the blocks of the two hashes, and files in folders."""
    files = {"m-%d-Q8_0.gguf" % n: random.Random(n).randbytes(n) for n in (0, 1, 54, 55, 56, 63, 64, 65, 119, 120, 128, 70001)}
    with World({**files, "sub/folder/s-Q8_0-00001-of-00002.gguf": b"1", "sub/folder/s-Q8_0-00002-of-00002.gguf": b"22"}, lfs=list(files)[::2]) as w:
        for name in files:
            w.pull("org/story:" + name)
        w.pull("org/story:sub/folder/s-Q8_0-00001-of-00002.gguf")
        w.check_whole(w.hub.files)
        equal(os.readlink(w.snapshot + "/sub/folder/s-Q8_0-00002-of-00002.gguf"), "../../../../blobs/" + git_sha1(b"22"))


def test_pull_quants():
    """The quantisation that is named, or the usual one, said in a line; removal leaves the other."""
    files = {"m-%s.gguf" % q: q.encode() * 100 for q in ("Q2_K", "Q4_K_M", "Q8_0")}
    with World({**files, "mmproj-m-F16.gguf": b"x", "README.md": b"x"}, lfs=files) as w:
        has(w.pull(), "m-Q4_K_M.gguf\n", "org/story: Q4_K_M of Q2_K, Q4_K_M, Q8_0")
        has(w.pull("org/story:q8_0"), "m-Q8_0.gguf\n")
        equal(set(os.listdir(w.snapshot)), {"m-Q4_K_M.gguf", "m-Q8_0.gguf"})
        has(w.pull("org/story:Q3_K", code=1), "found no Q3_K, expected one of Q2_K, Q4_K_M, Q8_0")
        has(w.run("rm", "org/story:Q8_0", code=2), "-y removes org/story:Q8_0")
        has(w.run("rm", "-y", "org/story:Q8_0"), "org/story:Q8_0 is removed")
        equal(os.listdir(w.snapshot), ["m-Q4_K_M.gguf"])
        equal(os.listdir(w.repo + "/blobs"), [w.hub.hash("m-Q4_K_M.gguf")])
        w.run("alias", "s", "org/story")
        has(w.run("alias"), "s = org/story")
        has(w.run("show", "s", "--explain"), "alias: s = org/story", "huggingface: " + w.snapshot)
        has(w.run("show", "gone", "--explain", code=1), "path: gone: no such", "alias: gone: no alias", "huggingface: ", "lmstudio: ", "ollama: ")
        has(w.run("rm", "-y", "org/story"), "the alias s is gone, too")
        assert not os.path.exists(w.repo) and not os.path.exists(w.cache + "/.locks/models--org--story")


def test_pull_sentences():
    """Each failure has its own words."""
    with World() as w:
        has(w.pull("org/none", code=1), "org/none: not found on 127.0.0.1", "private repositories need HF_TOKEN")
        has(w.pull("org/none", code=1, HF_TOKEN="hf_x"), "org/none: not found on 127.0.0.1")
        has(w.pull("org/story@v9", code=1), "revision v9 not found")
        w.hub.gated.add("org/story")
        has(w.pull(code=1), "org/story is gated: HF_TOKEN needs a token of an account that accepted the terms at %s/org/story" % w.hub.url)
        has(w.pull(code=1, HF_TOKEN="hf_other"), "org/story is gated: the account of this token has no access yet")
        w.pull(HF_TOKEN=w.hub.token)
        w.hub.refuse_tokens = True
        has(w.pull(code=1, HF_TOKEN=w.hub.token), "refuses the token of HF_TOKEN: Invalid credentials")
        has(w.pull(code=2, HF_HUB_OFFLINE="1"), "HF_HUB_OFFLINE, and nothing is downloaded")
        has(w.run("pull", "org/story", "--offline", code=2), "--offline")
        has(w.pull("llama3.2", code=2), "expected org/repo, org/repo:QUANT or a URL")
        has(w.pull(STORY, code=2), "is on this machine and of no hub")
        has(w.pull("https://elsewhere.example/a/b", code=1), "no hub is known at this host")
        has(w.pull(code=1, HF_ENDPOINT="ftp://x"), "HF_ENDPOINT: found \"ftp://x\"")
        w.hub.close()
        has(w.pull(code=1), "no network: 127.0.0.1:%d cannot be reached" % w.hub.port)
        has(w.pull(code=1, HF_ENDPOINT="http://no-such-host.invalid"), "no network: no-such-host.invalid cannot be reached")
        has(w.run("run", "-m", "org/other", "a", code=1), "minerva pull org/other downloads it")


def test_pull_room():
    """A file that the disk has no room for is not begun."""
    with World() as w:
        w.hub.lies["sibling"] = {"lfs": {"sha256": "a" * 64, "size": 10 ** 17}}
        has(w.pull(code=1), "the disk has ", " free, expected ")
        assert not os.path.exists(w.repo)


def test_pull_renamed():
    """A repository under a new name: redirects inside the hub are followed, by API and files."""
    with World() as w:
        w.hub.repos.add("old/name")
        w.pull("old/name")
        w.repo = w.cache + "/models--old--name"
        w.snapshot = w.repo + "/snapshots/" + Hub.commit
        w.check_whole()


def test_pull_own_store():
    """Redirects inside the hub that say what the file is, but not its size; the token goes along."""
    with World() as w:
        w.hub.own_store = True
        w.hub.gated.add("org/story")
        w.pull(HF_TOKEN=w.hub.token)
        w.check_whole()
        equal({host for host, _ in w.hub.authorized()}, {"hub"})


def make_certificate(folder):
    """(certificate, key) of a host 127.0.0.1 that is its own authority."""
    pair = [os.path.join(folder, name) for name in ("cert.pem", "key.pem")]
    if subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=hub",
                       "-addext", "subjectAltName=IP:127.0.0.1", "-out", pair[0], "-keyout", pair[1]], capture_output=True).returncode:
        raise Skipped("needs openssl")
    return pair


# A system that has the authorities' certificates in another place than the one that Debian's libcurl was built for.
ELSEWHERE = 'mount -t tmpfs x /etc && mkdir -p "$(dirname "$0")" && cp "$CERT" "$0" && exec "$@"'


def test_pull_authorities():
    """Certificates: SSL_CERT_FILE, and where RHEL, openSUSE and Alpine have them."""
    with tempfile.TemporaryDirectory() as folder:
        pair = make_certificate(folder)
        with World(lfs=(), certificate=pair) as w:
            has(w.pull(code=1), "ertificate")
            has(w.pull(code=1, SSL_CERT_FILE=folder + "/none"), folder + "/none")
            w.check_nothing()
            w.pull(SSL_CERT_FILE=pair[0])
            w.check_whole()
        if os.geteuid() or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
            raise Skipped("needs root, for an /etc of its own")
        for place in ("/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"):
            with World(lfs=(), certificate=pair) as w:
                p = subprocess.run(["unshare", "-m", "sh", "-c", ELSEWHERE, place, MINERVA, "pull", "org/story"], env={**w.env, "CERT": pair[0]},
                                   stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
                assert p.returncode == 0, (place, p.stderr)
                w.check_whole()


def test_pull_at_once():
    """Four files at a time, and two programs that load the same: each file once."""
    files = {"config.json": b"{}", **{"model-%05d-of-00009.safetensors" % i: bytes([i]) * 200000 for i in range(1, 10)}}
    with World(files, lfs=files) as w:
        w.hub.slow_s = 0.05
        both = [subprocess.Popen([MINERVA, "pull", "org/story"], env=w.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)]
        for p in both:
            err = p.communicate(timeout=100)[1].decode()
            equal((p.returncode, err if p.returncode else ""), (0, ""))
        w.check_whole(files)
        gets = [p for m, host, p, _ in w.hub.requests if m == "GET" and host == "files"]
        equal(len(gets), len(files))
        assert 3 <= w.hub.most_active <= 8, w.hub.most_active


# ---- what goes wrong on the way -------------------------------------------------------------------------------------
def test_broken_cut():
    """Answers that break are continued where they ended, by ranges."""
    with World() as w:
        w.hub.cuts["model.safetensors"] = [1000000, 10, 0, 3000000]
        w.hub.cuts["config.json"] = [5]
        w.pull()
        w.check_whole()
        ranges = [h.get("Range") for m, host, p, h in w.hub.requests if m == "GET" and host == "files"]
        equal(ranges, [None, "bytes=1000000-", "bytes=1000010-", "bytes=1000010-", "bytes=4000010-"])


def test_broken_full_disk():
    """A write fails in the middle (a limit on the size of files stands in for a full disk): an error that says so; the next pull goes on from there."""
    name = "m-Q4_0.gguf"
    with World({name: random.Random(5).randbytes(3 << 20)}, lfs=[name]) as w:
        limited = ["sh", "-c", 'trap "" XFSZ; ulimit -f 2048; exec "$0" "$@"', MINERVA, "pull", "org/story"]
        p = subprocess.run(limited, env=w.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        equal(p.returncode, 1)
        has(p.stderr.decode(), w.hub.hash(name) + ".incomplete: cannot write: File too large")
        w.check_nothing()
        w.pull()
        equal(w.hub.requests[-1][3].get("Range"), "bytes=%d-" % (1 << 20))
        w.check_whole([name])


def test_broken_for_good():
    """A server that always breaks at the same place is given up; the next pull goes on."""
    with World() as w:
        w.hub.cuts["model.safetensors"] = [1000] + [0] * 20
        has(w.pull(code=1, timeout=60), "model.safetensors: the connection broke after 1000 of ", "minerva pull goes on from there")
        w.check_nothing()
        w.hub.cuts.clear()
        w.hub.requests.clear()
        w.pull()
        w.check_whole()
        equal([h.get("Range") for m, host, _, h in w.hub.requests if m == "GET" and host == "files"], ["bytes=1000-"])


def test_broken_without_ranges():
    """A server that knows no ranges sends everything again."""
    with World() as w:
        w.hub.ranges = False
        w.hub.cuts["model.safetensors"] = [1000000]
        w.pull()
        w.check_whole()


def test_broken_busy():
    """429 with Retry-After, 503, and a connection that is dropped: waited for as long as asked."""
    with World() as w:
        w.hub.early = [(429, [("Retry-After", "1")]), (503, []), "drop"]
        begin = time.monotonic()
        w.pull()
        assert time.monotonic() - begin >= 1
        w.check_whole()
    with World() as w:
        w.hub.early = [(429, [("Retry-After", "0")])] * 30
        has(w.pull(code=1), "asks for fewer requests (status 429)")


def test_broken_silent():
    """A server that stops sending without a word is asked again."""
    with World() as w:
        slow, handler = [True], w.hub.servers[1].RequestHandlerClass

        def stall(self, body):
            if len(body) > 1 << 20 and slow:
                slow.pop()
                self.wfile.write(body[:500000])
                self.wfile.flush()
                time.sleep(6)
            else:
                handler.write(self, body)
        w.hub.servers[1].RequestHandlerClass = type("Stalling", (handler,), {"write": stall})
        w.pull()
        w.check_whole()
        equal([h.get("Range") for m, host, _, h in w.hub.requests if m == "GET" and host == "files"], [None, "bytes=500000-"])


def test_broken_hash():
    """Other bytes than were promised: tried once more, then refused, and nothing is kept."""
    with World() as w:
        good = w.hub.files["model.safetensors"]
        w.hub.sent["model.safetensors"] = b"\xff" + good[1:]
        has(w.pull(code=1), "model.safetensors: the hash of what was loaded is ", "expected " + w.hub.hash("model.safetensors"), "nothing of it is kept")
        w.check_nothing()
        equal(os.path.getsize(w.repo + "/blobs/%s.incomplete" % w.hub.hash("model.safetensors")), 0)
        w.hub.sent = {"config.json": b" " * len(w.hub.files["config.json"])}
        os.remove(w.repo + "/blobs/" + w.hub.hash("config.json"))
        has(w.pull(code=1), "config.json: the hash")
        w.hub.sent.clear()
        with open(w.repo + "/blobs/%s.incomplete" % w.hub.hash("config.json"), "wb") as f:
            f.write(b"garbage of an earlier load")  # its sum is wrong in the end: everything is loaded again
        w.pull()
        w.check_whole()


# ---- a hub that lies ------------------------------------------------------------------------------------------------
def lies(expected, code=1, **lie):
    with World() as w:
        w.hub.lies.update(lie)
        has(w.pull(code=code), expected)
        w.check_nothing()


def test_lies_sizes():
    lies("the hub says ", size=5)
    lies("the hub says ", sibling={"lfs": {"sha256": "a" * 64, "size": 7}})
    with World() as w:
        w.hub.sent["model.safetensors"] = w.hub.files["model.safetensors"] + b"more"
        has(w.pull(code=1), "sends other bytes than asked for, or more than")
        w.check_nothing()
    with World() as w:
        w.hub.cuts["model.safetensors"] = [1000]
        w.hub.lies["range"] = 5  # not what was asked for: from the beginning
        w.pull()
        w.check_whole()


def test_lies_names():
    """Hashes, ETags, commits and addresses that are none."""
    lies("hash ", etag="b" * 64)
    for etag in ("../../../evil", "a/b", "..", "x" * 300, ""):
        lies("no ETag that can name a file", etag=etag)
    lies("answers with commit", commit="f" * 40)
    for location in ("file:///etc/passwd", "ftp://127.0.0.1/x", "//", "http://", "http://user@127.0.0.1/x", "gopher://x/y"):
        lies("leads to an address that is not followed", location=location)


def test_lies_listing():
    """Names that would leave the snapshot are not there; what is no listing is refused; so are 10^6 files, and answers without end."""
    evil = ["../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf", "..", "a\\..\\evil.gguf", "a//evil.gguf", "a\u0000b.gguf", "x" * 300 + ".gguf",
            "\n.gguf", "./evil.gguf", "refs/../../evil.gguf"]
    with World() as w:
        listing = {"sha": Hub.commit, "siblings": [{"rfilename": n, "size": 3, "blobId": git_sha1(b"abc")} for n in evil]}
        w.hub.raw_listing = json.dumps(listing).encode()
        has(w.pull(code=1), "found no files of a model")
        w.check_nothing()
        for text, words in (("[]", "found no JSON object"), ("{", "found no JSON object"), ('{"sha":"../../x","siblings":[]}', "found no commit"),
                            ('{"sha":"%s"}' % Hub.commit, "found no list of files"), ("", "found no JSON object"), ("{" * 100000, "found no JSON object")):
            w.hub.raw_listing = text.encode()
            has(w.pull(code=1), words)
        w.hub.raw_listing = b'{"sha":"%s","siblings":[%s]}' % (Hub.commit.encode(), b",".join([b'{"rfilename":"a"}'] * 1000000))
        has(w.pull(code=1, timeout=100), "found 1000000 files, expected at most 100000")
        w.hub.raw_listing = b" " * (65 << 20)
        has(w.pull(code=1, timeout=100), "found an answer of more than 64 MiB")
        w.check_nothing()


def test_lies_links():
    """Links that lie in the cache are not written through."""
    with World() as w:
        precious = w.home + "/precious"
        open(precious, "w").write("precious")
        os.makedirs(w.repo + "/blobs")
        os.symlink(precious, w.repo + "/blobs/%s.incomplete" % w.hub.hash("model.safetensors"))
        has(w.pull(code=1), "incomplete: cannot open")
        os.remove(w.repo + "/blobs/%s.incomplete" % w.hub.hash("model.safetensors"))
        with contextlib.suppress(OSError):
            os.remove(w.repo + "/blobs/" + w.hub.hash("config.json"))
        os.symlink(precious, w.repo + "/blobs/" + w.hub.hash("config.json"))
        w.pull()
        equal(open(precious).read(), "precious")
        w.check_whole()


# ---- the token ------------------------------------------------------------------------------------------------------
def test_token_host():
    """It goes to the hub alone, not to where a redirect leads; no message and no log has it."""
    with World() as w:
        w.hub.gated.add("org/story")
        for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            w.hub.requests.clear()
            text = w.run("pull", "-v", "org/story", **{variable: w.hub.token})
            text += w.run("show", "org/story", "--explain", **{variable: w.hub.token}) + w.run("config", **{variable: w.hub.token})
            assert w.hub.token not in text, text
            assert {("hub", "Bearer " + w.hub.token)} == set(w.hub.authorized()), w.hub.authorized()
            w.run("rm", "-y", "org/story")
        w.hub.sent["model.safetensors"] = b"x" * len(w.hub.files["model.safetensors"])
        text = w.run("pull", "-v", "org/story", code=1, HF_TOKEN=w.hub.token)
        assert w.hub.token not in text and "X-Signature" not in text and "secret" not in text, text


def test_token_file():
    """That of huggingface_hub's login, unless it is turned off."""
    with World() as w:
        os.makedirs(w.home + "/.cache/huggingface")
        open(w.home + "/.cache/huggingface/token", "w").write(w.hub.token + "\n")
        w.hub.gated.add("org/story")
        w.run("pull", "org/story", code=1, HF_HUB_DISABLE_IMPLICIT_TOKEN="1")
        equal(w.hub.authorized(), [])
        w.pull()
        w.check_whole()
        w.hub.requests.clear()
        w.pull(HF_TOKEN="hf bad\ttoken")  # no word: the file's
        equal(set(w.hub.authorized()), {("hub", "Bearer " + w.hub.token)})


def children(pid):
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/%d/task" % pid):
            yield from map(int, open("/proc/%d/task/%s/children" % (pid, task)).read().split())


def test_token_children():
    """Processes that are started, and the program's own environment, do not have it."""
    with World() as w:
        token = "hf_" + "q" * 30
        p = subprocess.Popen([MINERVA, "devices", "--no-probe-cache"], env={**w.env, "HF_TOKEN": token, "HUGGING_FACE_HUB_TOKEN": token}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seen = set()
        while p.poll() is None:
            for pid in children(p.pid):
                with contextlib.suppress(OSError):
                    name = os.readlink("/proc/%d/exe" % pid)
                    environ = open("/proc/%d/environ" % pid, "rb").read()
                    if name.endswith("minerva-probe") and environ:
                        seen.add(pid)
                        assert token.encode() not in environ, name
                        assert token.encode() not in open("/proc/%d/environ" % p.pid, "rb").read()
        assert seen, "no process was seen"


def test_token_proxy():
    """http_proxy is used, and no_proxy."""
    with World() as w:
        w.env.update(http_proxy=w.hub.url, HF_ENDPOINT="http://hub.invalid")
        w.hub.cuts.clear()
        has(w.pull(code=1, NO_PROXY="hub.invalid"), "no network: hub.invalid")
        w.pull(no_proxy="127.0.0.1")
        assert w.hub.proxied > 0
        w.check_whole()


# ---- kill -9 --------------------------------------------------------------------------------------------------------
def test_kill_random():
    """Killed at random moments of a load, in the end 50 of them: nothing is half in the cache at any, and each goes on where the last ended."""
    generator = random.Random(42)
    with World() as w:
        w.hub.slow_s = 0.004
        w.run("devices")  # results of probes
        kills = longest = 0
        while kills < KILLS:
            p = subprocess.Popen([MINERVA, "pull", "org/story"], env=w.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            time.sleep(generator.uniform(0.02, 0.45))
            p.send_signal(signal.SIGKILL)
            p.communicate()
            w.check_blobs()
            if p.returncode == 0 or os.path.exists(w.repo + "/refs/main"):
                w.check_whole()
                w.run("rm", "-y", "org/story")
                kills += p.returncode != 0
                longest = 0
                continue
            equal(p.returncode, -signal.SIGKILL)
            kills += 1
            if all(os.path.exists(os.path.join(w.snapshot, n)) for n in WANTED):  # killed behind the last link: whole, without a reference
                has(w.run("show", "hf:org/story"), "path       " + w.snapshot)
            else:
                has(w.run("show", "hf:org/story", code=1), "no such model is on this machine")
            part = w.repo + "/blobs/%s.incomplete" % w.hub.hash("model.safetensors")
            now = os.path.getsize(part) if os.path.exists(part) else 0
            assert now >= longest or os.path.exists(w.repo + "/blobs/" + w.hub.hash("model.safetensors")), (now, longest)
            longest = now
        w.hub.slow_s = 0
        w.pull()
        w.check_whole()


def test_kill_interrupt():
    """Ctrl-C ends a load with 130; what is there is kept."""
    with World() as w:
        w.hub.slow_s = 0.02
        p = subprocess.Popen([MINERVA, "pull", "org/story"], env=w.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        part = w.repo + "/blobs/%s.incomplete" % w.hub.hash("model.safetensors")
        while p.poll() is None and not (os.path.exists(part) and os.path.getsize(part) > 100000):
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        err = p.communicate(timeout=60)[1].decode()
        equal(p.returncode, 130)
        has(err, "what was loaded is kept")
        assert os.path.getsize(part) > 100000
        w.hub.slow_s = 0
        w.pull()
        w.check_whole()


# ---- on a terminal --------------------------------------------------------------------------------------------------
def on_terminal(w, args, answers, timeout=100):
    """Runs the command on a terminal; answers: (what is waited for, what is typed). What it printed, and its exit code."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(MINERVA, [MINERVA, *args], w.env)
    text, end = "", time.monotonic() + timeout
    while time.monotonic() < end:
        if not select.select([fd], [], [], 0.2)[0]:
            continue
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        text += data.decode(errors="replace")
        if answers and answers[0][0] in text:
            os.write(fd, answers.pop(0)[1].encode())
    os.close(fd)
    return text, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_terminal_offer():
    """run -m NAME offers what is not here, loads it with a bar and answers; the second time at once."""
    with World() as w:
        w.hub.slow_s = 0.01
        w.env["TERM"] = "xterm"
        text, code = on_terminal(w, ["run", "-m", "org/story", "-n", "8", "--device", "cpu", "Tell me a story."], [("[Y/n] ", "\n")])
        equal(code, 0)
        has(text, "org/story is not on this machine. Download 10.09 MiB? [Y/n]", " % of 10.09 MiB", "MiB/s", " left", "org/story on cpu")
        w.check_whole()
        w.hub.close()
        text, code = on_terminal(w, ["run", "-m", "org/story", "-n", "8", "--device", "cpu", "Tell me a story."], [])
        equal(code, 0)
        assert "Download" not in text


def test_terminal_refused():
    """No; --offline; and no terminal: nothing is loaded, and the error says how."""
    with World() as w:
        text, code = on_terminal(w, ["run", "-m", "org/story", "hello"], [("[Y/n] ", "n\n")])
        equal(code, 1)
        has(text, "minerva pull org/story downloads it")
        text, code = on_terminal(w, ["run", "-m", "org/story", "--offline", "hello"], [])
        assert "[Y/n]" not in text and code == 1, text
        has(w.run("run", "-m", "org/story", "hello", code=1), "minerva pull org/story downloads it")
        assert not os.path.exists(w.repo)


def test_terminal_rm():
    """rm asks, and no is no."""
    with World() as w:
        w.pull()
        text, code = on_terminal(w, ["rm", "org/story"], [("[y/N] ", "n\n")])
        equal(code, 1)
        has(text, "remove org/story from the cache (10.09 MiB)? [y/N]", "nothing was removed")
        w.check_whole()
        text, code = on_terminal(w, ["rm", "org/story"], [("[y/N] ", "y\n")])
        equal((code, os.path.exists(w.repo)), (0, False))


# ---- names of other programs' models --------------------------------------------------------------------------------
def other_programs(w):
    """A model without a chat template in ollama's store, whose manifest has one for Go; one with a template in LM Studio's folder."""
    plain = w.home + "/plain"
    os.makedirs(plain)
    for name in WANTED - {"chat_template.jinja"}:
        text = w.hub.files[name]
        if name == "tokenizer_config.json":
            text = json.dumps({k: v for k, v in json.loads(text).items() if k != "chat_template"}).encode()
        open(os.path.join(plain, name), "wb").write(text)
    store = w.home + "/.ollama/models"
    manifest = store + "/manifests/registry.ollama.ai/library/tale/latest"
    os.makedirs(os.path.dirname(manifest))
    os.makedirs(store + "/blobs")
    w.run("convert", plain, "-o", w.home + "/plain.gguf", "-q")
    digest = hashlib.sha256(open(w.home + "/plain.gguf", "rb").read()).hexdigest()
    os.rename(w.home + "/plain.gguf", store + "/blobs/sha256-" + digest)
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + digest, "size": os.path.getsize(store + "/blobs/sha256-" + digest)},
              {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "0" * 64, "size": 9}]
    json.dump({"schemaVersion": 2, "layers": layers}, open(manifest, "w"))
    os.makedirs(w.home + "/.lmstudio/models/pub/tales")
    w.run("convert", STORY, "-o", w.home + "/.lmstudio/models/pub/tales/tales-BF16.gguf", "-q")
    return manifest, layers


def test_names_of_others():
    """ollama's and LM Studio's models by their names: with the file's own chat template, or --chat-template."""
    with World() as w:
        manifest, layers = other_programs(w)
        answer = ("-n", "4", "-s", "1", "--device", "cpu", "Tell me a story.")
        has(w.run("run", "-m", "tale", *answer, code=1), "tale:latest: its chat template is ollama's, which is not run, and its file has none: expected --chat-template")
        w.run("run", "-m", "ollama:tale", "--chat-template", "chatml", *answer)
        w.run("run", "-m", "tale:latest", "--raw", *answer)
        has(w.run("show", "tale"), "template   none that is run: --chat-template names one", "place      ollama")
        w.run("run", "-m", "pub/tales:bf16", *answer)
        w.run("run", "-m", "lmstudio:tales", *answer)
        has(w.run("list"), "tale:latest", "pub/tales:BF16", "ollama", "lmstudio")
        has(w.run("rm", "-y", "tale", code=1), "belongs to ollama, which removes it")
        has(w.run("rm", "-y", "pub/tales", code=1), "belongs to LM Studio, which removes it")
        has(w.run("run", "-m", "ollama:tale:7b", "x", code=1), "ollama has no such model on this machine (ollama pull tale:7b)")
        json.dump({"layers": layers + [{"mediaType": "application/vnd.ollama.image.adapter"}]}, open(manifest, "w"))
        has(w.run("run", "-m", "tale", "x", code=1), "a layer of kind adapter, which is not used")
        os.makedirs(w.home + "/.lmstudio/models/other")
        os.symlink("../pub/tales", w.home + "/.lmstudio/models/other/tales")
        has(w.run("run", "-m", "tales", "x", code=1), "tales may be other/tales, pub/tales: name one of them")


# ---- Python's huggingface_hub ---------------------------------------------------------------------------------------
def python(w, code):
    env = {**w.env, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    exe = os.environ.get("MINERVA_HUB_PYTHON", sys.executable)
    if subprocess.run([exe, "-c", "import huggingface_hub"], env=env, stderr=subprocess.DEVNULL).returncode:
        raise Skipped("huggingface_hub is not installed")
    p = subprocess.run([exe, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100)
    assert p.returncode == 0, p.stderr.decode()
    return p.stdout.decode().strip()


def test_python_finds():
    """What minerva loaded is found without the network, and verified as unchanged with it."""
    with World() as w:
        python(w, "")
        w.pull()
        equal(python(w, "import huggingface_hub as h; print(h.snapshot_download('org/story', local_files_only=True))"), w.snapshot)
        equal(python(w, "import huggingface_hub as h; print(h.try_to_load_from_cache('org/story', 'model.safetensors'))"), w.snapshot + "/model.safetensors")
        equal(python(w, "import huggingface_hub as h; print([(r.repo_id, r.nb_files, len(r.revisions), sorted(r.refs)) for r in h.scan_cache_dir().repos])"),
              "[('org/story', 6, 1, ['main'])]")
        w.hub.requests.clear()
        equal(python(w, "import huggingface_hub as h; print(h.hf_hub_download('org/story', 'model.safetensors'))"), w.snapshot + "/model.safetensors")
        assert not [1 for m, host, _, _ in w.hub.requests if host == "files" and m == "GET"]


def test_python_loaded():
    """What Python loaded, minerva finds, and completes what it left out."""
    with World() as w:
        python(w, "import huggingface_hub as h; h.hf_hub_download('org/story', 'model.safetensors'); h.hf_hub_download('org/story', 'config.json')")
        w.hub.requests.clear()
        w.pull()
        w.check_whole()
        assert not [1 for m, host, _, _ in w.hub.requests if host == "files" and m == "GET"]


def main():
    global MINERVA
    MINERVA = os.path.abspath(sys.argv[1])
    tests = [(n, f) for n, f in globals().items() if n.startswith("test_" + sys.argv[2])]
    assert tests, "no test of this name"
    failed = skipped = 0
    for name, test in tests:
        begin = time.monotonic()
        try:
            test()
            print("%s: ok (%.1f s)" % (name, time.monotonic() - begin), flush=True)
        except Skipped as why:
            skipped += 1
            print("%s: skipped: %s" % (name, why), flush=True)
        except Exception as e:  # the other tests run, too
            failed += 1
            import traceback
            traceback.print_exc()
            print("%s: FAIL\n  %s: %s" % (name, type(e).__name__, e), flush=True)
    if failed:
        sys.exit(1)
    sys.exit(77 if skipped == len(tests) else 0)


main()
