"""`minerva serve` for tests: Server(MINERVA, flags...) starts it on a free port with the demo model; use it with `with`."""
import fcntl
import json
import os
import re
import signal
import ssl
import subprocess
import tempfile
import termios
import time
import urllib.request

ROOT = os.environ.get("MINERVA_SOURCE_ROOT", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
MODEL = os.path.join(ROOT, "models", "storyteller")
LIMIT = 100.0  # a hang, not a time that is measured

# What the page is served with: tools/serve/page.h has it.
with open(os.path.join(ROOT, "tools", "serve", "page.h")) as f:
    POLICY = "".join(re.findall(r'^ +"(.*)"', f.read().split("#define SERVE_PAGE_POLICY")[1].split("\nextern")[0], re.M))


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("MINERVA_") and k not in ("LD_LIBRARY_PATH", "OPENAI_API_KEY")}
    env.update(XDG_DATA_HOME="/nonexistent", XDG_CONFIG_HOME="/nonexistent", no_proxy="127.0.0.1", NO_PROXY="127.0.0.1")
    return env


def available(minerva):
    r = subprocess.run([minerva, "serve", "--port", "0", "-m", "/nonexistent"], capture_output=True, text=True, env=environment())
    return not ("unknown command" in r.stderr or "built without" in r.stderr)


def model_with_calls(folder, marks, special=None, tail=""):
    """The demo model in folder, as one of a family whose chat template has these marks; special: one of them is a control token; tail: a prompt ends
    with it."""
    for name in os.listdir(MODEL):
        if name not in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
            os.symlink(os.path.join(MODEL, name), os.path.join(folder, name))
    texts = {name: open(os.path.join(MODEL, name)).read() for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json")}
    texts["chat_template.jinja"] = "{#- %s #}{%%- if tools %%}{%%- endif %%}" % marks + texts["chat_template.jinja"] + tail
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w") as f:
            text = text.replace("<|end_of_text|>", "<think>") if special == "</think>" else text
            f.write(text.replace("<|pad|>", special) if special else text)
    return folder


HARMONY = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>"]


def model_with_tokens(folder, names, tail=""):
    """The demo model in folder, with special tokens of these names in place of rare ones; a prompt ends with tail. The id of the first one."""
    model_with_calls(folder, "", tail=tail)
    path = os.path.join(folder, "tokenizer.json")
    with open(path) as f:
        tok = json.load(f)
    model, first = tok["model"], len(tok["model"]["vocab"]) - len(names)
    gone = {piece for piece, i in model["vocab"].items() if i >= first}
    pair = lambda m: m.split(" ") if isinstance(m, str) else m
    model["merges"] = [m for m in model["merges"] if "".join(pair(m)) not in gone and not gone & set(pair(m))]
    model["vocab"] = {piece: i for piece, i in model["vocab"].items() if i < first} | {piece: first + i for i, piece in enumerate(names)}
    tok["added_tokens"] += [{"id": first + i, "content": piece, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
                            for i, piece in enumerate(names)]
    with open(path, "w") as f:
        json.dump(tok, f)
    return first


FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"]


def model_with_harmony(folder, tail="<|start|>assistant"):
    """The demo model in folder with the tokens of Harmony; a prompt ends with tail. <|call|> ends an answer. The id of <|end|>."""
    first = model_with_tokens(folder, HARMONY, tail)
    path = os.path.join(folder, "generation_config.json")
    with open(path) as f:
        config = json.load(f)
    ends = config.get("eos_token_id", [])
    config["eos_token_id"] = (ends if isinstance(ends, list) else [ends]) + [first + HARMONY.index("<|call|>")]
    os.unlink(path)
    with open(path, "w") as f:
        json.dump(config, f)
    return first + HARMONY.index("<|end|>")


# The C library's caches of freed pieces per thread (7 of each size) hold pages back until they are full, after some ten rounds.
NO_THREAD_CACHES = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}


class Server:
    """`key`: one of its --api-key; `terminal`: True: it has a controlling terminal, False: it has none, None: as this process."""

    def __init__(self, minerva, *flags, model=MODEL, env=None, key=None, terminal=None):
        self.key, self.terminal = key, terminal
        self.env = {**environment(), **(env or {})}
        self.command = [minerva, "serve", "-m", model, "--port", "0", *map(str, flags)]

    def __enter__(self):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.ends = os.openpty() if self.terminal else ()
        take = (lambda: fcntl.ioctl(self.ends[1], termios.TIOCSCTTY, 0)) if self.terminal else None
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=self.env,
                                        start_new_session=self.terminal is not None, preexec_fn=take)
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def text(self):
        with open(self.log.name, errors="replace") as f:
            return f.read()

    def wait(self, ready=True):
        """Until the URL is printed and (ready) the server has an engine."""
        end = time.monotonic() + LIMIT
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                             urllib.request.HTTPSHandler(context=ssl._create_unverified_context()))
        while True:
            assert self.process.poll() is None, "minerva serve has ended: " + self.text()
            assert time.monotonic() < end, "minerva serve is not ready: " + self.text()
            found = re.search(r"https?://[\d.:\[\]]+\d", self.text())
            try:
                if found:
                    self.url = found.group(0)
                    if not ready:
                        return
                    headers = {"Authorization": "Bearer " + self.key} if self.key else {}
                    opener.open(urllib.request.Request(self.url + "/health/ready", headers=headers), timeout=10).close()
                    return
            except OSError:
                pass
            time.sleep(0.02)

    def __exit__(self, *args):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for end in self.ends:
            os.close(end)
        self.log.close()


class SlowServer(Server):
    """One whose steps take at least so many milliseconds each: what began is not over when it is looked at, on the fastest machine. Its devices
    have cpu_simd's kernels; `devices` of them."""

    def __init__(self, minerva, step_ms, *flags, devices=1, env=None, **more):
        slow = {"MINERVA_PLUGIN_PATH": os.path.join(os.environ["MINERVA_STUBS"], "lost.so"), "MINERVA_LOST_LOST_AFTER": "-",
                "MINERVA_LOST_SLOW": str(step_ms), "MINERVA_LOST_DEVICES": str(devices)}
        names = ["flaky:%d" % i for i in range(devices)]
        flags += ("--replicas", *names) if devices > 1 else ("--device", "flaky")
        super().__init__(minerva, *flags, env={**slow, **(env or {})}, **more)


class LoadingServer(Server):
    """One whose engine may not be ready yet."""

    def wait(self):
        super().wait(ready=False)
