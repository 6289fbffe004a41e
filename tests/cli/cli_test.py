#!/usr/bin/env python3
"""The command as scripts and users meet it: cli_test.py MINERVA GROUP. Standard library alone.

Each test is a function test_GROUP_what; a failed check raises. Paths come from the environment that the build sets."""
import contextlib
import itertools
import json
import math
import os
import platform
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.environ.get("MINERVA_SOURCE_ROOT", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILD = os.environ.get("MINERVA_BUILD_ROOT", "")
STUBS = os.environ.get("MINERVA_STUBS", "")
MODEL = os.path.join(ROOT, "models", "storyteller")
DATA = os.environ.get("MINERVA_TEST_DATA", os.path.join(ROOT, "tests", "data"))
FIXTURE = os.path.join(DATA, "fixtures", "llama")
IDS = "0,2,374,3,315,576,413,264,394,455,264,519,293,264,992,958,19,4,2,376,3,315"


class Skipped(Exception):
    pass


class Result:
    def __init__(self, code, out, err):
        self.code, self.raw, self.out, self.err = code, out, out.decode(errors="replace"), err.decode(errors="replace")

    def json(self):
        return json.loads(self.raw.decode("utf-8"))  # strict: what is not UTF-8 fails here

    def lines(self):
        return [json.loads(line) for line in self.raw.decode("utf-8").splitlines()]


def environment(**changes):
    env = {k: v for k, v in os.environ.items() if not k.startswith("MINERVA_") and k != "LD_LIBRARY_PATH"}  # the build adds its own
    env["XDG_DATA_HOME"] = env["XDG_CONFIG_HOME"] = "/nonexistent"
    env.update({k: v for k, v in changes.items() if v is not None})
    return env


def minerva(*args, env=None, stdin=b"", code=0, timeout=100, exe=None, **more):
    p = subprocess.run([exe or MINERVA] + [str(a) if not isinstance(a, bytes) else a for a in args], input=stdin, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, env=env or environment(), timeout=timeout, **more)
    r = Result(p.returncode, p.stdout, p.stderr)
    assert code is None or r.code == code, "exit code %s, expected %s: minerva %s\n%s" % (r.code, code, args, r.err)
    return r


def run(*args, **more):
    return minerva("run", "-m", MODEL, *args, **more)


# The environment of `--device late`, the reference whose every step takes 20 ms at least: what is done to a command comes before its end, on the
# fastest machine, too.
SLOW = {"MINERVA_PLUGIN_PATH": os.path.join(STUBS, "late.so"), "MINERVA_LATE_HOW": "slow"}


def slowly(*args):
    """Starts the command on that device."""
    return subprocess.Popen([MINERVA, *args, "--device", "late"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment(**SLOW))


def tell_slowly(*args, model=None):
    return slowly("run", "-m", model or MODEL, "-p", "Tell me a story.", "--ignore-eos", "-n", "-1", *args)


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


def has(text, *parts):
    for part in parts:
        assert part in text, "%r is not in %r" % (part, text)


def is_error(r, *parts):
    """One line that begins with the program's name, nothing on stdout."""
    equal(r.out, "")
    has(r.err, "minerva: error: ", *parts)


class scratch(tempfile.TemporaryDirectory):
    """A folder for a while. A plugin's watch may still write its verdict into a cache below while that is removed: then once more."""
    def cleanup(self):
        for wait in (0.1, 0.5, 3):
            with contextlib.suppress(OSError):
                return super().cleanup()
            time.sleep(wait)
        super().cleanup()


def put(folder, name, data):
    path = os.path.join(folder, name)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    return path


def plugin_files():
    return {p["id"]: p["path"] for p in minerva("plugins", "--json").json() if p["status"] == "ok"}


# ---- usage ----------------------------------------------------------------------------------------------------------
COMMANDS = ["run", "chat", "serve", "bench", "devices", "plugins", "inspect", "convert", "perplexity", "imatrix", "embed", "rerank", "tokenize", "detokenize", "template", "logits",
            "config", "pull", "list", "show", "rm", "alias"]


def test_usage_help():
    has(minerva("--help").out, "Usage: minerva", *COMMANDS)
    equal(minerva("-h").out, minerva("--help").out)
    for command in COMMANDS:
        has(minerva(command, "--help").out, "Usage: minerva " + command)
        equal(minerva("help", command).out, minerva(command, "--help").out)
    equal(minerva("help").out, minerva("--help").out)
    has(minerva("help", "plugins", "check").out, "FILE.so")
    has(minerva("plugins", "--help").out, "check FILE.so")
    is_error(minerva("help", "rnu", code=2), "did you mean minerva run?")
    is_error(minerva("help", "run", "check", code=2), "check")
    equal(minerva("--help", "run").out, minerva("run", "--help").out)
    is_error(minerva("--version", "x", code=2), '"x"')
    is_error_without_command = minerva(code=2)
    equal(is_error_without_command.out, "")
    has(is_error_without_command.err, "Usage: minerva")


def test_usage_other_tools():
    """Flags and commands of other tools are answered with what Minerva has for them."""
    for flags, hint in (("-ngl 99", "--device"), ("-hf a/b", "-m org/repo:QUANT"), ("-fa", "no flag"), ("-np 4", "--kv-size"), ("--jinja", "always used"),
                        ("--lora-scaled x", "--lora FILE:SCALE"), ("--max-tokens 5", "-n N"), ("--max-tokens=5", "-n N"), ("-mg 1", "--device"), ("--cpu", "--device cpu"), ("--stream", "--json"),
                        ("--gpu-memory-utilization 0.9", "--kv-size")):
        is_error(minerva("run", *flags.split(), code=2), hint)
    for command, hint in (("ps", "/metrics"), ("quantize", "minerva convert"), ("ls", "minerva list"), ("remove", "minerva rm"), ("download", "minerva pull"), ("update", "apt-get upgrade"),
                          ("create", "--system"), ("cli", "minerva chat")):
        is_error(minerva(command, "x", code=2), hint)
    for command in "chat", "serve":
        is_error(minerva(command, "llama3", code=2), "-m llama3")
    is_error(minerva("chat", "-m", os.path.join(DATA, "fixtures", "bert"), code=1), "is an encoder (bert)", "minerva embed")


def test_run_meant():
    """The demo model answers only where no other model was meant."""
    with scratch() as folder:
        put(folder, "notes", "x")
        for word in ("llama3.2", "qwen:7b", "org/model", "./model", "model.gguf", "notes"):
            is_error(minerva("run", word, code=2, cwd=folder), "-m " + word, '-p "%s"' % word)
            is_error(minerva("run", word, "Why", "so?", code=2, cwd=folder), "-m " + word)
            run("-n", "1", word, cwd=folder)
            minerva("run", "-n", "1", word, env=environment(MINERVA_MODEL=MODEL), cwd=folder)
            minerva("run", "-n", "1", "-p", word, cwd=folder)
        for words in (["Hello"], ["Summarise:"], ["What is 2 + 2?"], ["Why", "llama3?"]):
            minerva("run", "-n", "1", *words, cwd=folder)


def test_run_piped():
    """A pipe or a file on standard input stands in front of the prompt; a terminal, /dev/null and sockets are not read."""
    first, second, both = (["-p", t] for t in ("A bear and a jar.", "Who sat there?", "A bear and a jar.\n\nWho sat there?"))
    piped = (first[1] + "\n").encode()
    ids = lambda *args, **more: run("--raw", "-n", "8", "--temp", "0", "--json", *args, **more).json()["ids"]
    for given in second, ["Who", "sat", "there?"]:
        equal(ids(*given, stdin=piped), ids(*both))
        equal(ids(*given, "--no-stdin", stdin=piped), ids(*second))
    equal(ids(stdin=piped), ids(*first))
    said = "17 bytes of standard input are in front of the prompt (--no-stdin does without)"
    has(run("-n", "1", *second, stdin=piped).err, said)
    for more in ["-q", *second], ["--no-stdin", *second], []:
        assert "of standard input" not in run("-n", "1", *more, stdin=piped).err
    with scratch() as folder:
        path = put(folder, "log", piped)
        for handle, expected in ((open(path, "rb"), both), (open(os.devnull, "rb"), second)):
            with handle:
                p = subprocess.run([MINERVA, "run", "-m", MODEL, "--raw", "-n", "8", "--temp", "0", "--json", *second], stdin=handle, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=environment(), check=True, timeout=100)
            equal(json.loads(p.stdout)["ids"], ids(*expected))
    is_error(run(stdin=b"a\0b", code=1), "standard input", "NUL")
    p = subprocess.Popen([MINERVA, "run", "-m", MODEL, "-n", "2", "Hello"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    has(p.stderr.readline().decode(), "waiting for standard input", "--no-stdin")
    p.communicate(timeout=100)
    equal(p.returncode, 0)


def test_run_folder():
    """A slash behind a folder does not change its name."""
    has(run("--json", "-n", "1", code=0).err, "cpu_simd")
    equal(minerva("run", "-m", MODEL + "//", "--temp", "0", "-n", "4", "Once").out, run("--temp", "0", "-n", "4", "Once").out)


def test_usage_version():
    assert re.fullmatch(r"minerva \d+\.\d+\.\d+\n", minerva("--version").out)


def test_usage_unknown():
    is_error(minerva("rnu", code=2), "rnu", "run")
    is_error(minerva("--frobnicate-everything", code=2), "--frobnicate-everything")
    is_error(minerva("run", "--tmep", "1", code=2), "--tmep", "--temp")
    is_error(minerva("run", "--frobnicate-everything", code=2), "--frobnicate-everything")
    is_error(minerva("devices", "operand", code=2), "operand")
    is_error(minerva("devices", "-n", "1", code=2), "-n")
    for typed in ("xyz", "ls", "--port", "-x", "-y", "--no-mmap"):  # no suggestion is better than a silly one
        for r in (minerva(typed, code=2), minerva("run", typed, code=2) if typed[0] == "-" else minerva(typed, code=2)):
            assert "did you mean" not in r.err, r.err
    for typed, meant in (("--repeat", "--repeat-penalty"), ("--no-bso", "--no-bos"), ("--parse-specail", "--parse-special")):
        has(minerva("tokenize" if "bos" in meant else "run", typed, code=2).err, "did you mean %s?" % meant)


def test_usage_values():
    for flag, found in [("-n", "0"), ("-n", "x"), ("-n", "1.5"), ("-n", ""), ("-n", "99999999999999999999"), ("-n", " 1"), ("-n", "-2"),
                        ("--temp", "nan"), ("--temp", "inf"), ("--temp", "-1"), ("--temp", "0x1"), ("--temp", "1,5"), ("--temp", "warm"),
                        ("-s", "-1"), ("-s", "18446744073709551616"), ("-c", "-1"), ("-t", "-1"), ("--repeat-last-n", "-2"), ("-m", ""), ("--device", ""), ("--device", "cpu,"),
                        ("--device", ",cpu"), ("--prompts", ""), ("--history", ""), ("--top-p", "1.1"), ("--min-p", "-0.1"),
                        ("--top-k", "-1"), ("--precision", "best"), ("--precision", "EXACT"), ("-ctk", "q9"), ("--prompt-ids", "1,,2"),
                        ("--prompt-ids", ""), ("--prompt-ids", "1,x"), ("--prompt-ids", "1,-2"), ("--prompt-ids", "1,2,"),
                        ("--prompt-ids", "2147483648")]:
        r = run(flag, found, code=2)
        is_error(r, flag, '"%s"' % found, "expected")
    is_error(run("-p", code=2), "-p")
    is_error(run("--regex", "a", "--choices", "a", code=2), "--regex", "--choices")
    for choices in (",", "a,", ",a", "a,,b"):
        is_error(run("--choices", choices, code=2), "--choices", '"%s"' % choices, "expected")
    is_error(run("--regex", "(a", code=2), "--regex", '"(a"', "byte 2")
    is_error(run("--json-schema", '{"properties":{"a":{"not":{}}}}', code=2), "--json-schema", "#/properties/a/not")
    is_error(run("--grammar", os.devnull, code=2), "--grammar", os.devnull)
    is_error(run("--json=1", code=2), "--json")
    is_error(run("-p", "a", "--prompt-ids", "1", code=2), "--prompt-ids")
    is_error(run("-p", "a", "--parse-special", code=2), "--raw")
    is_error(minerva("logits", "-m", MODEL, "-p", "a", code=2), "-o")
    is_error(minerva("logits", "-m", MODEL, "-o", "/dev/null", code=2), "-p")
    is_error(minerva("tokenize", "-m", MODEL, "-p", "a", "--file", "b", code=2), "--file")
    is_error(minerva("bench", "-m", MODEL, "-p", "0", "-n", "0", code=2), "-p")
    is_error(minerva("bench", "-m", MODEL, "--json", "--csv", code=2), "--csv")
    for command in COMMANDS:
        if "--model" in minerva(command, "--help").out:
            is_error(minerva(command, "-m", "", code=2), "-m: found")
        if "--device" in minerva(command, "--help").out:
            is_error(minerva(command, "--device", "", code=2), "--device: found")


def test_usage_forms():
    a = run("--prompt-ids", IDS, "-n", "4", "--temp", "0", "--json").json()
    b = run("--prompt-ids=" + IDS, "--n-predict=4", "--temp=0", "--json").json()
    equal(a["ids"], b["ids"])
    equal(run("--prompt-ids", IDS, "-n", "9", "-n", "4", "--temp", "0", "--json").json()["ids"], a["ids"])  # the last one holds


def test_usage_automatic():
    """0 is what the configuration's 0 is, and wins over it; -1 looks back over everything."""
    settings = environment(MINERVA_THREADS="3", MINERVA_CONTEXT="30")
    items = {c["key"]: c for c in minerva("config", "-t", "0", "--json", env=settings).json()}
    equal((items["threads"]["value"], items["threads"]["origin"]), ("0", "command line"))
    flags = ("--prompt-ids", IDS, "-n", "40", "--temp", "0", "--ignore-eos", "--json")
    equal(len(run(*flags, "-c", "0", "-t", "0", env=settings).json()["ids"]), 40)
    equal(len(run(*flags, env=settings).json()["ids"]), len(run(*flags, "-c", "30").json()["ids"]))
    far = run(*flags, "--repeat-penalty", "1.5", "--repeat-last-n", "-1").json()["ids"]
    equal(far, run(*flags, "--repeat-penalty", "1.5", "--repeat-last-n", "1000").json()["ids"])
    assert far != run(*flags, "--repeat-penalty", "1.5", "--repeat-last-n", "0").json()["ids"]


def test_usage_quiet():
    equal(run("-p", "a", "-n", "2", "-q").err, "")
    has(run("-p", "a", "-n", "2").err, "cpu_simd", "seed")
    more = run("-p", "a", "-n", "2", "-v").err
    assert len(more) > len(run("-p", "a", "-n", "2", "-q").err), more
    is_error(run("-p", "a", "-q", "-v", code=2), "-q")
    is_error(run("-q", "-m", "/nonexistent", "-p", "a", code=1), "/nonexistent")


def options_of(command):
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", "\n".join(line[:28] for line in minerva(*command, "--help").out.splitlines() if line.startswith("  -"))))


def test_usage_completion():
    """Every command and flag; a file that bash reads and that answers as a shell would ask it."""
    for shell in ("bash", "zsh", "fish"):
        text = minerva("completion", shell).out
        for command in COMMANDS + ["plugins check"]:
            for option in options_of(command.split()):
                assert re.search(r"(?<![\w-])-?-?%s(?![\w-])" % option.lstrip("-"), text), (shell, command, option)
    is_error(minerva("completion", "tcsh", code=2), "tcsh", "bash")
    is_error(minerva("completion", code=2), "bash")
    for shell in ("bash", "zsh", "fish"):
        if shutil.which(shell):
            with scratch() as folder:
                subprocess.run([shell, "-n", put(folder, "c", minerva("completion", shell).out)], check=True)
    if not shutil.which("bash"):
        return
    with scratch() as folder:
        path = put(folder, "c", minerva("completion", "bash").out)
        put(folder, "model.gguf", "")

        def complete(*words):
            script = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _minerva; printf "%s\\n" "${COMPREPLY[@]}"'
            return subprocess.run(["bash", "-c", script, path] + list(words), stdout=subprocess.PIPE, check=True, cwd=folder).stdout.decode().split()

        equal(complete("minerva", "detok"), ["detokenize"])
        equal(complete("minerva", "run", "--repeat-l"), ["--repeat-last-n"])
        equal(complete("minerva", "run", "--precision", "a"), ["auto", "a16", "a8"])
        equal(complete("minerva", "run", "-m", "mod"), ["model.gguf"])
        equal(complete("minerva", "inspect", "mod"), ["model.gguf"])
        equal(complete("minerva", "run", "-p", "mod"), [])
        equal(complete("minerva", "plugins", "ch"), ["check"])
        equal(complete("minerva", "plugins", "check", "--on"), ["--only"])
        equal(complete("minerva", "help", "perp"), ["perplexity"])


def test_usage_man():
    for command in COMMANDS + ["plugins check", "help"]:
        text = minerva(*command.split(), "--help=man").out
        has(text, ".TH", ".SH NAME", ".SH EXIT STATUS")
        for option in options_of(command.split()):
            has(text, option.replace("-", r"\-"))
        if shutil.which("groff"):
            p = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-z"], input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            equal((p.returncode, p.stdout), (0, b""))
    is_error(minerva("run", "--help=html", code=2), "html")


# ---- run ------------------------------------------------------------------------------------------------------------
def check_answer(a):
    equal(list(a), ["line"] * ("line" in a) + ["text", "prompt_ids", "ids", "finish_reason", "seed", "device", "timings"])
    equal(list(a["timings"]), ["load_s", "ttft_s", "prompt_tps", "decode_tps"])
    assert all(isinstance(i, int) for i in a["prompt_ids"] + a["ids"])
    assert a["finish_reason"] in ("stop", "length", "interrupted")
    assert a["timings"]["load_s"] > 0 and a["timings"]["ttft_s"] > 0 and a["timings"]["prompt_tps"] > 0
    assert len(a["ids"]) < 2 or a["timings"]["decode_tps"] > 0


def test_run_form():
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "n": {"type": "integer", "maximum": 99, "minimum": 0}},
              "required": ["name", "n"], "additionalProperties": False}
    for seed in range(3):
        said = json.loads(run("--json-schema", json.dumps(schema), "--temp", "1.5", "-s", str(seed)).out)
        assert sorted(said) == ["n", "name"] and len(said["name"]) <= 9 and 0 <= said["n"] <= 99, said
        assert re.fullmatch(r"([ab]{3}-){2}c", run("--regex", "([ab]{3}-){2}c", "--temp", "1.5", "-s", str(seed)).out.strip())
        assert run("--choices", "yes,no", "--choices", "may be", "-s", str(seed)).out.strip() in ("yes", "no", "may be")
    with scratch() as folder:
        latin = put(folder, "latin", b'{"const": "\xe9"}')
        is_error(run("--json-schema", latin, code=2), "--json-schema", latin, "UTF-8")
    said = minerva("chat", "-m", MODEL, "--choices", "yes,no", stdin=b"Is it?\nIs it?\n").out.split()
    assert len(said) == 2 and set(said) <= {"yes", "no"}, said


def test_run_drafts():
    """Drafts change no token; what became of them is on standard error."""
    ask = ("-n", "90", "--temp", "0.8", "-s", "7", "--precision", "exact", "--json")
    plain = run("--prompt-ids", IDS, *ask).json()
    with scratch() as folder:
        small = os.path.join(folder, "small.gguf")
        minerva("convert", MODEL, "-o", small, "--type", "q4_0", "-q")
        for flags in (["--lookup"], ["--draft", small], ["--draft", small, "--draft-max", "3", "--lookup"]):
            equal(run("--prompt-ids", IDS, *ask, *flags).json()["ids"], plain["ids"])
        r = run("--prompt-ids", IDS, *ask[:-1], "--draft", small)
        assert re.search(r"\d+ of \d+ drafts held \(a draft model on \w+\), \d+ tokens in \d+ steps", r.err), r.err
    is_error(run("--prompt-ids", IDS, "--draft", os.path.join(DATA, "nothing.gguf"), code=1), "nothing.gguf")
    is_error(run("--prompt-ids", IDS, "--draft-device", "cpu_simd", code=2), "--draft-device without --draft")
    # the model's own draft head: where it is asked for
    story = os.path.join(DATA, "hybrid-story")
    own = lambda *flags: minerva("run", "-m", story, "--prompt-ids", IDS, *ask, *flags)
    without = own("--draft", "none").json()
    for flags in (["--draft", "mtp"], ["--draft", "mtp", "--draft-max", "2"]):
        equal(own(*flags).json()["ids"], without["ids"])
    assert "drafts held" not in minerva("run", "-m", story, "--prompt-ids", IDS, *ask[:-1]).err
    r = minerva("run", "-m", story, "--prompt-ids", IDS, *ask[:-1], "--draft", "mtp")
    assert re.search(r"\d+ of \d+ drafts held \(the model's draft head on \w+\)", r.err), r.err
    is_error(run("--prompt-ids", IDS, "--draft", "mtp", code=1), "has no draft head")
    assert "a draft head of its own" in minerva("inspect", story).out


def test_run_experts():
    """Experts and named weights on another device: the same ids; what cannot be followed is an error."""
    model = os.path.join(DATA, "fixtures", "gpt-oss")

    def ids(*flags):
        return minerva("run", "-m", model, "--prompt-ids", "1,5,7,9", "-n", "12", "--temp", "0", "--precision", "exact", "--ignore-eos", "--json", *flags).json()["ids"]

    def devices(*flags):
        record = minerva("devices", "--explain", "--json", "-m", model, "--device", "reference,cpu_simd", "--precision", "exact", *flags).json()
        return record["placement"]
    whole = ids("--device", "cpu_simd")
    n_layers = json.load(open(os.path.join(model, "config.json")))["num_hidden_layers"]
    for flags, n in ((("--cpu-moe",), 1 + 2 * n_layers), (("-ncmoe", "1"), 3), (("--n-cpu-moe", "0"), 1), (("-ot", "_exps=cpu"), 1 + 2 * n_layers),
                     (("-ot", r"blk\.0\..*_exps=cpu_simd", "-ot", r"blk.[1-9]{1,2}\.ffn_.*exps=reference"), 3)):
        equal(ids("--device", "reference,cpu_simd", *flags), whole)
        p = devices(*flags)
        equal((len(p["segments"]), sum(d["segments"] for d in p["devices"])), (n, n))
        equal(sum(d["need"] for d in p["devices"]), sum(s["need"] for s in p["segments"]))
    has(minerva("devices", "--explain", "-m", model, "--device", "reference,cpu_simd", "--cpu-moe").out, "without the experts of 0-%d" % (n_layers - 1), "crossing")
    for flags in (("--cpu-moe",), ("--n-cpu-moe", "3")):
        has(run("--prompt-ids", IDS, "-n", "1", *flags).err, "no routed experts")
    for flags, words in ((("-ot", "exps"), "PATTERN=DEVICE"), (("-ot", "(=cpu"), "regular expression"), (("-ot", "shexp=cpu"), "matches no matrix"),
                         (("-ot", "exps=npu:7"), "npu:7"), (("--device-memory", "lots"), "20GiB")):
        r = minerva("run", "-m", model, "--prompt-ids", "1", "-n", "1", *flags, code=None)
        assert r.code in (1, 2, 3), (flags, r.code)
        has(r.err, words)
    is_error(minerva("run", "-m", model, "--prompt-ids", "1", "--cpu-moe", "-ncmoe", "1", code=2), "--cpu-moe", "--n-cpu-moe")
    is_error(minerva("devices", "--cpu-moe", code=2), "--explain")


def test_run_json():
    a = run("--prompt-ids", IDS, "-n", "160", "--temp", "0", "--precision", "exact", "--json").json()
    check_answer(a)
    equal(a["prompt_ids"], [int(i) for i in IDS.split(",")])
    equal(a["finish_reason"], "stop")
    equal(a["ids"][-1], 4)
    assert "<|" not in a["text"] and a["text"]
    b = run("--prompt-ids", IDS, "-n", "5", "--temp", "0", "--precision", "exact", "--json").json()
    check_answer(b)
    equal((b["finish_reason"], b["ids"]), ("length", a["ids"][:5]))


def test_run_text():
    a = run("-p", "Tell me a story about a fox and a silver key.", "-n", "160", "--temp", "0", "--precision", "exact", "--json").json()
    equal(a["prompt_ids"], [int(i) for i in IDS.split(",")])  # the template makes it a user turn
    r = run("-p", "Tell me a story about a fox and a silver key.", "-n", "160", "--temp", "0", "--precision", "exact")
    equal(r.out, a["text"] + "\n")
    has(r.err, "minerva: cpu_simd: ")
    r = run("-p", "-", "-n", "160", "--temp", "0", "--precision", "exact", stdin=b"Tell me a story about a fox and a silver key.\n")
    equal(r.out, a["text"] + "\n")


def test_run_prompt_forms():
    """The prompt as words, as -p and from a file without its last line end."""
    flags = ("-n", "3", "--temp", "0", "--json")
    a = run("-p", "Tell me a story.", *flags).json()
    equal(a["ids"], run("Tell", "me", "a", "story.", *flags).json()["ids"])
    equal(a["ids"], run(*flags, "--", "Tell me a story.").json()["ids"])
    equal(a["ids"], run("-", *flags, stdin=b"Tell me a story.\n").json()["ids"])
    with scratch() as folder:
        equal(a["prompt_ids"], run("-f", put(folder, "p", "Tell me a story.\r\n"), *flags).json()["prompt_ids"])
        is_error(run("-f", folder + "/none", code=1), folder + "/none")
        utf16 = put(folder, "utf16", "Tell".encode("utf-16-le"))
        for command in (["run", "-f"], ["tokenize", "--file"], ["perplexity", "-f"]):
            is_error(minerva(command[0], "-m", MODEL, command[1], utf16, code=1), utf16 + ": byte 2 is NUL")
        is_error(run("-f", put(folder, "p", "a"), "word", code=2), "-f")
        is_error(minerva("run", put(folder, "m.gguf", ""), code=2), "m.gguf", "-m")
    is_error(run("-p", "a", "word", code=2), "-p")


def test_run_stop():
    """A string ends the answer before it, wherever tokens are cut; what began one and was none is shown."""
    flags = ("-p", "Tell me a story.", "-n", "80", "--temp", "0", "--precision", "exact")
    text = run(*flags, "--json").json()["text"]
    for at, length in ((0, 3), (1, 1), (10, 7), (21, 12), (40, 2)):
        end = text[at:at + length]
        a = run(*flags, "--stop", end, "--json").json()
        equal((a["text"], a["finish_reason"]), (text[:text.index(end)], "stop"))
        assert len(a["ids"]) < 80
        equal(run(*flags, "--stop", end, "--stop", "never there").out, text[:text.index(end)] + "\n" * (text.index(end) > 0))
    equal(run(*flags, "--stop", text[:-1] + "\x01", "--json").json()["text"], text)
    is_error(run(*flags, "--stop", "", code=2), "--stop")
    is_error(run(*flags, "--stop", "a" * 2000, code=2), "2000")
    first = run("-p", "Tell me a story.", "-n", "20", "--temp", "0").out.split()[0]
    chat = minerva("chat", "-m", MODEL, "--temp", "0", "-n", "20", "--stop", " ", stdin=b"Tell me a story.\nTell me a story.\n").out
    equal(chat.split()[0], first)
    equal(len(chat.splitlines()), 2)


def test_run_chat_template():
    """A file, a name in the model, a name that many models share."""
    with scratch() as folder:
        path = put(folder, "t.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
        a = run("-p", "Hi", "-n", "1", "--chat-template", path, "--json").json()
        equal(minerva("detokenize", "-m", MODEL, *a["prompt_ids"]).out, "<user>Hi")
        is_error(run("-p", "Hi", "--chat-template", put(folder, "bad.jinja", "{% if"), code=1), "bad.jinja", "line 1")
        is_error(run("-p", "Hi", "--chat-template", folder + "/none", code=1), folder + "/none")
        is_error(run("--raw", "-p", "Hi", "--chat-template", path, code=2), "--raw")
        bare = talker(folder)
        os.unlink(os.path.join(folder, "chat_template.jinja"))
        b = minerva("run", "-m", bare, "-p", "Hi", "-n", "1", "--chat-template", "llama3", "--json").json()
        equal(b["prompt_ids"], rendered(MODEL, folder, messages=[{"role": "user", "content": "Hi"}]))
        for name in ("chatml", "gemma", "llama2", "mistral", "phi3", "zephyr"):
            c = minerva("run", "-m", bare, "--system", "S", "-p", "Hi", "-n", "1", "--chat-template", name, "--json").json()
            has(minerva("detokenize", "-m", MODEL, "--special", *c["prompt_ids"]).out, "Hi", "S")
    is_error(run("-p", "Hi", "--chat-template", "nothing", code=2), "nothing", "chatml")


def test_run_default_prompt():
    a = minerva("run", "-n", "3", "--temp", "0", "--json").json()  # no model, no prompt
    b = run("-p", "Tell me a story.", "-n", "3", "--temp", "0", "--json").json()
    equal((a["prompt_ids"], a["ids"]), (b["prompt_ids"], b["ids"]))


def test_run_raw():
    plain = run("--raw", "-p", "Once<|eot_id|>", "-n", "1", "--json").json()["prompt_ids"]
    special = run("--raw", "--parse-special", "-p", "Once<|eot_id|>", "-n", "1", "--json").json()["prompt_ids"]
    turn = run("-p", "Once<|eot_id|>", "-n", "1", "--json").json()["prompt_ids"]
    equal((plain[0], special[0], special[-1]), (0, 0, 4))
    assert 4 not in plain and len(plain) > len(special)
    equal(turn.count(4), 1)  # the template's own


def test_run_seed():
    args = ("-p", "Tell me a story.", "-n", "40", "--temp", "1.2", "--json")
    texts = [run(*args, "-s", s).json()["text"] for s in (7, 7, 8)]
    equal(texts[0], texts[1])
    assert texts[0] != texts[2]
    r = run(*args)
    seed = re.search(r"seed (\d+)", r.err)
    assert seed, r.err
    equal(run(*args, "-s", seed.group(1)).json()["text"], r.json()["text"])


def test_run_sampling_flags():
    greedy = run("--prompt-ids", IDS, "-n", "12", "--temp", "0", "--json").json()["ids"]
    for flags in (("--top-k", "1"), ("--top-p", "0"), ("--min-p", "1")):
        equal(run("--prompt-ids", IDS, "-n", "12", "--temp", "1", "-s", "1", "--json", *flags).json()["ids"], greedy)
    assert run("--prompt-ids", IDS, "-n", "60", "--temp", "0", "--repeat-penalty", "5", "--json").json()["ids"][:60] != \
        run("--prompt-ids", IDS, "-n", "60", "--temp", "0", "--json").json()["ids"]


def test_run_samplers():
    flags = ("--prompt-ids", IDS, "-n", "40", "-s", "3", "--top-p", "1", "--precision", "exact", "--json")
    greedy, plain = run(*flags, "--temp", "0").json()["ids"], run(*flags, "--temp", "1.5").json()["ids"]
    equal(run(*flags, "--temp", "1.5", "--samplers", "top_k;temperature", "--top-k", "1").json()["ids"], greedy)
    equal(run(*flags, "--temp", "1.5", "--samplers", "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature").json()["ids"], plain)
    for more in (("--xtc-probability", "1"), ("--typical", "0.2"), ("--mirostat", "2", "--mirostat-ent", "1"), ("--top-n-sigma", "0.5"),
                 ("--dynatemp-range", "1.5"), ("--dry-multiplier", "1000", "--dry-allowed-length", "1", "--dry-sequence-breaker", "none")):
        assert run(*flags, "--temp", "1.5", *more).json()["ids"] != plain, more
    is_error(minerva("run", *flags, "--samplers", "top_k;top_q", code=2), "top_q", "penalties;dry;")
    is_error(minerva("run", *flags, "--samplers", "dry;top_k;dry", code=2), "dry", "twice")
    is_error(minerva("run", *flags, "--mirostat", "1", code=2), "mirostat")
    bias = run(*flags, "--temp", "0", "-l", "%d-inf" % greedy[0], "-l", "7+1000").json()["ids"]
    equal(set(bias), {7})
    for text in "7", "7*2", "+7", "7+nan", "7+", "99999999999+1", "7+1x":
        is_error(minerva("run", *flags, "-l", text, code=2), "--logit-bias", text)
    is_error(minerva("run", *flags, "-l", "99999+1", code=1), "99999")
    is_error(minerva("serve", "-m", MODEL, "--samplers", "top_q", code=2), "top_q", "penalties;dry;")


def test_run_ignore_eos():
    a = run("--prompt-ids", IDS, "-n", "150", "--temp", "0", "--precision", "exact", "--ignore-eos", "--json").json()
    equal((a["finish_reason"], len(a["ids"])), ("length", 150))


def test_run_context():
    a = run("--prompt-ids", IDS, "-n", "100", "-c", "40", "--temp", "0", "--json").json()
    equal(a["finish_reason"], "length")
    assert 40 - 22 <= len(a["ids"]) <= 40 - 22 + 1, len(a["ids"])
    r = run("--prompt-ids", IDS, "-c", "10", code=1)
    is_error(r, "22", "10")
    r = run("--prompt-ids", ",".join(["17"] * 1025), code=1)
    is_error(r, "1025", "1024")


def test_run_bad_prompts():
    is_error(run("--prompt-ids", "1,2048", code=1), "2048")
    is_error(run("-p", b"abc\xff\xfe", code=1), "UTF-8")
    is_error(run("--raw", "-p", "-", stdin=b"\xc3", code=1), "UTF-8")
    equal(run("--raw", "-p", "", "-n", "2", "--json").json()["prompt_ids"], [0])


def test_run_without_tokenizer():
    if not os.path.exists(FIXTURE):
        raise Skipped(FIXTURE + " is not there")
    a = minerva("run", "-m", FIXTURE, "--prompt-ids", "1,2,3", "-n", "4", "--temp", "0", "--ignore-eos", "--json").json()
    check_answer(a)
    assert a["text"] is None and len(a["ids"]) == 4
    r = minerva("run", "-m", FIXTURE, "--prompt-ids", "1,2,3", "-n", "4", "--temp", "0", "--ignore-eos")
    equal(r.out, " ".join(map(str, a["ids"])) + "\n")
    is_error(minerva("run", "-m", FIXTURE, "-p", "hello", code=1), "tokeniser", "--prompt-ids")


def test_run_small_address_space():
    """With little address space the program ends, by itself and soon: with a story or with a sentence."""
    if os.environ.get("MINERVA_TEST_SANITIZE"):
        raise Skipped("sanitizers need address space")

    def limit(mib):
        return lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))

    for mib in (25, 40, 60, 80, 100, 150, 200, 300):
        r = run("-p", "Tell me a story.", "-n", "2", code=None, timeout=60, preexec_fn=limit(mib))
        assert r.code in (0, 1, 3, 4, 127), (mib, r.code, r.err)  # 127: not even the libraries find room
        assert r.code == 0 or r.err, mib
    with scratch() as folder:  # the library whose threads asked for more without end is looked for with f32 weights and many rows alone
        model, prompt = folder + "/f32.gguf", "a fox and a silver key " * 20
        minerva("convert", MODEL, "-o", model, "--type", "f32")
        env = environment(MINERVA_LOG="debug", MINERVA_CPU_ISA="generic")
        flags = ("-m", model, "--raw", "-p", prompt, "-n", "2", "--temp", "0", "--precision", "a16", "--device", "cpu_simd", "-t", "2")
        plenty, little = (minerva("run", *flags, env=env, timeout=100, preexec_fn=limit(mib)) for mib in (4096, 250))
        if "not built in" not in plenty.err:
            has(little.err, "no OpenBLAS: not enough address space")
        equal(little.out, plenty.out)
        assert "OpenBLAS" not in run("-p", prompt, "-n", "1", env=env).err  # bf16


def test_run_model_names():
    """What is no path gets a sentence on what is expected; a folder that may not be entered is said to be one."""
    for name in ("no-such-org/Model-1B-Instruct", "hf.co/org/Model-1B:Q4_K", "https://huggingface.co/org/Model-1B", "hf:org/x"):
        is_error(minerva("run", "-m", name, "-p", "a", code=1), name + ": no such file or folder, and no such model is on this machine: minerva pull")
    is_error(minerva("run", "-m", "model:latest", "-p", "a", code=1), "model:latest: no such file or folder, and no model of this machine has that name")
    is_error(minerva("run", "-m", "https://example.org/m.gguf", "-p", "a", code=1), "no hub is known at this host; HF_ENDPOINT")
    for name in ("/no/such/folder", "./none", "none.gguf", "folder/none.gguf", "a/b/none", "a.example/b/c/none", "h.example/org/Model-1B:Q4_K"):
        r = minerva("run", "-m", name, "-p", "a", code=1)
        is_error(r, name, "no such file or folder")
        assert "hub" not in r.err, r.err

    def nobody():
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)

    with scratch() as folder:
        os.chmod(folder, 0o755)
        for name in ("closed", "blind"):
            os.mkdir(folder + "/" + name)
        put(folder + "/closed", "m.gguf", b"")
        try:
            if minerva("version", preexec_fn=nobody, code=None).code:
                raise Skipped("others may not run this build")
        except OSError:
            raise Skipped("others may not run this build")
        os.chmod(folder + "/closed", 0)
        os.chmod(folder + "/blind", 0o111)
        env = environment(XDG_CONFIG_HOME=folder, XDG_CACHE_HOME=folder, XDG_DATA_HOME=folder, HOME=folder)
        is_error(minerva("run", "-m", folder + "/closed/m.gguf", "-p", "a", env=env, preexec_fn=nobody, code=1), "closed/m.gguf: permission denied")
        is_error(minerva("run", "-m", folder + "/blind", "-p", "a", env=env, preexec_fn=nobody, code=1), "blind: cannot list the folder: Permission denied")


def test_run_closed_output():
    """A closed standard output is an error: what is printed does not go into the file that is opened next."""
    with scratch() as folder:
        for command in ("config", "devices"):
            r = minerva(command, env=environment(XDG_CACHE_HOME=folder), preexec_fn=lambda: os.close(1), code=1)
            has(r.err, "standard output")


def test_run_few_descriptors():
    """Too few file descriptors are named, not only what follows from them."""
    if os.environ.get("MINERVA_TEST_SANITIZE"):
        raise Skipped("sanitizers need descriptors")
    said = 0
    for n in (4, 8, 12, 16):
        with scratch() as folder:
            r = run("-p", "a", "-n", "1", env=environment(XDG_CACHE_HOME=folder), code=None, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
            assert r.code in (0, 1, 3), (n, r.code, r.err)
            said += "too many open files" in r.err.lower() and str(n) in r.err
            assert r.code == 0 or "too many open files" in r.err.lower(), (n, r.err)
    assert said, "no limit was too small"


def test_run_missing_model():
    is_error(minerva("run", "-m", "/nonexistent/model.gguf", "-p", "a", code=1), "/nonexistent/model.gguf")
    with scratch() as folder:
        is_error(minerva("run", "-m", folder, "-p", "a", code=1), folder)
        for name, data in [("a.gguf", b"GGUF"), ("b.gguf", b""), ("c.safetensors", struct.pack("<Q", 1 << 60)), ("d", b"\0" * 100)]:
            r = minerva("run", "-m", put(folder, name, data), "-p", "a", code=1)
            is_error(r, name)
            assert len(name) == 1 or r.err.count(name) == 1, r.err
        for name in "lfs.gguf", "model.safetensors":
            put(folder, "config.json", '{"model_type": "llama"}')
            path = put(folder, name, b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123\n")
            is_error(minerva("run", "-m", path, "-p", "a", code=1), path + ": a Git LFS pointer in place of the file")
        is_error(minerva("run", "-m", put(folder, "page.gguf", b"<!DOCTYPE html>"), "-p", "a", code=1), "page.gguf: a web page")


# ---- prompts --------------------------------------------------------------------------------------------------------
def by_line(r):
    got = {a["line"]: a for a in r.lines()}
    equal(len(got), len(r.lines()))
    return got


def test_prompts_batch():
    lines = [{"prompt": "Tell me a story about a fox and a silver key.", "n": 10}, {"prompt_ids": [0, 17, 264], "n": 3},
             {"prompt": "What color is the sky?"}, {"prompt": "\u00e9 \"quoted\"\n\U0001f98a", "max_tokens": 1}]
    with scratch() as folder:
        path = put(folder, "p.jsonl", "\n\n".join(json.dumps(x) for x in lines) + "\n\n")
        flags = ("--temp", "0", "--precision", "exact", "-n", "20")
        got = by_line(run("--prompts", path, *flags))
        for more in (("--json",), ("--parallel", "1"), ("--parallel", "3")):
            equal({n: a["ids"] for n, a in by_line(run("--prompts", path, *flags, *more)).items()}, {n: a["ids"] for n, a in got.items()})
    equal(sorted(got), [1, 3, 5, 7])
    got = [got[n] for n in sorted(got)]
    for a in got:
        check_answer(a)
    equal([len(a["ids"]) for a in got[:2]], [10, 3])
    equal(got[1]["prompt_ids"], [0, 17, 264])
    assert len(got[2]["ids"]) <= 20 and len(got[3]["ids"]) == 1
    for line, a in zip(lines[:1] + lines[2:], got[:1] + got[2:]):
        alone = run("-p", line["prompt"], *flags[:-1], line.get("n", line.get("max_tokens", 20)), "--json").json()
        equal((alone["prompt_ids"], alone["ids"], alone["text"]), (a["prompt_ids"], a["ids"], a["text"]))
    is_error(run("-p", "a", "--parallel", "2", code=2), "--prompts")


def test_prompts_as_they_finish():
    """A short answer is there before a long one; the short one's reader needs not wait."""
    with scratch() as folder:
        path = put(folder, "p.jsonl", '{"prompt":"Tell me a story.","n":400}\n{"prompt":"Tell me a story.","n":2}\n')
        p = subprocess.Popen([MINERVA, "run", "-m", MODEL, "--prompts", path, "--ignore-eos", "--device", "reference"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment())
        first = p.stdout.readline()
        assert p.poll() is None
        equal(json.loads(first)["line"], 2)
        p.send_signal(signal.SIGINT)
        rest, _ = p.communicate(timeout=60)
        equal(p.returncode, 130)
        equal([(a["line"], a["finish_reason"]) for a in map(json.loads, rest.splitlines())], [(1, "interrupted")])


def test_prompts_settings():
    """Each line's own seed, temperature, length, ends and system message; the flags hold for lines without."""
    story = {"prompt": "Tell me a story.", "n": 30}
    flags = ("--temp", "1", "--precision", "exact")
    with scratch() as folder:
        path = put(folder, "p.jsonl", "\n".join(json.dumps(dict(story, **more)) for more in
                                                ({}, {}, {"seed": 7}, {"temp": 0}, {"stop": " a", "temp": 0}, {"stop": ["zzz", " "], "temp": 0}, {"system": "Be brief.", "temp": 0})))
        got = by_line(run("--prompts", path, *flags))
        assert got[1]["seed"] != got[2]["seed"] and got[1]["ids"] != got[2]["ids"]  # a seed each

        def alone(*more):
            return run("-p", story["prompt"], "-n", "30", *flags, *more, "--json").json()
        for n, more in ((1, ("-s", got[1]["seed"])), (3, ("-s", "7")), (4, ("--temp", "0")), (5, ("--temp", "0", "--stop", " a")), (6, ("--temp", "0", "--stop", " ")),
                        (7, ("--temp", "0", "--system", "Be brief."))):
            a = alone(*more)
            equal((got[n]["text"], got[n]["ids"], got[n]["prompt_ids"]), (a["text"], a["ids"], a["prompt_ids"]))
        equal((got[3]["seed"], alone("-s", "7")["seed"]), (7, 7))
        given = by_line(run("--prompts", path, *flags, "-s", "5", "--system", "S", "--stop", "the"))
        equal([given[n]["seed"] for n in sorted(given)], [5, 5, 7, 5, 5, 5, 5])
        equal(given[1]["ids"], alone("-s", "5", "--system", "S", "--stop", "the")["ids"])
        equal(given[6]["text"], alone("--temp", "0", "-s", "5", "--system", "S", "--stop", " ")["text"])


def test_prompts_seed():
    with scratch() as folder:
        path = put(folder, "p.jsonl", '{"prompt_ids":[%s]}\n{"prompt":"Tell me a story."}\n' % IDS)
        batch = by_line(run("--prompts", path, "-s", "5", "--temp", "1", "-n", "30", "--precision", "exact"))
    equal(run("--prompt-ids", IDS, "-s", "5", "--temp", "1", "-n", "30", "--precision", "exact", "--json").json()["ids"], batch[1]["ids"])


def test_prompts_of_nan():
    """A token whose embedding is NaN: an error of the lines that have it, the others run beside them. Alone it ends the run."""
    with scratch() as folder:
        shutil.copy(os.path.join(FIXTURE, "config.json"), folder)
        with open(os.path.join(FIXTURE, "model.safetensors"), "rb") as f:
            data = bytearray(f.read())
        n, = struct.unpack("<Q", data[:8])
        at = 8 + n + json.loads(data[8:8 + n])["model.embed_tokens.weight"]["data_offsets"][0] + 8 * 64 * 4
        data[at:at + 4] = struct.pack("<f", math.nan)
        with open(os.path.join(folder, "model.safetensors"), "wb") as f:
            f.write(data)
        path = put(folder, "p.jsonl", '{"prompt_ids":[5,8]}\n{"prompt_ids":[5,9]}\n{"prompt_ids":[8]}\n')
        flags = ("-m", folder, "-n", "3", "--temp", "0", "--ignore-eos", "--precision", "exact")
        r = minerva("run", *flags, "--prompts", path, code=1)
        got = by_line(r)
        for line in (1, 3):
            equal(list(got[line]), ["line", "error"])
            has(got[line]["error"], folder, "NaN")
        alone = minerva("run", "-m", FIXTURE, *flags[2:], "--prompt-ids", "5,9", "--json").json()
        equal(got[2]["ids"], alone["ids"])
        is_error(minerva("run", *flags, "--prompt-ids", "5,8", code=1), folder, "position 2 is NaN")


def test_prompts_bad_lines():
    """A line that cannot be used is one error in the output, the others run, and the exit code says it."""
    bad = ['{"prompt":', "[]", "3", '{"prompt":1}', "{}", '{"prompt":"a","prompt_ids":[1]}', '{"prompt":"a","n":0}', '{"prompt":"a","n":1.5}',
           '{"prompt":"a","n":"1"}', '{"prompt_ids":[]}', '{"prompt_ids":[1,"a"]}', '{"prompt_ids":[-1]}', '{"prompt_ids":[1.5]}',
           '{"prompt":"a","m":1}', '{"prompt":"a"} x', '{"prompt":"a","n":01}', '{"prompt":"a","n":1.}', '{"prompt":"a","temp":1e}', '{"prompt_ids":[1,-]}', '{"prompt":"a\\u0000b"}', '{"prompt":"a","prompt":"b"}', '{"prompt_ids":{}}',
           '{"prompt":"a","n":1,"max_tokens":1}', '{"prompt":"a","seed":-1}', '{"prompt":"a","seed":1.5}', '{"prompt":"a","temp":-1}',
           '{"prompt":"a","temp":"hot"}', '{"prompt":"a","stop":""}', '{"prompt":"a","stop":[1]}', '{"prompt":"a","stop":7}', '{"prompt":"a","system":1}',
           '{"prompt_ids":[1],"system":"a"}', '{"prompt_ids":[99999]}', json.dumps({"prompt_ids": [17] * 1100}), json.dumps({"prompt": "a", "stop": "b" * 2000})]
    with scratch() as folder:
        path = put(folder, "p.jsonl", '{"prompt":"ok","n":2}\n\n' + "\n".join(bad) + '\n{"prompt":"ok","n":2}\n')
        r = run("--prompts", path, code=1)
        got = by_line(r)
        equal(sorted(got), [1] + list(range(3, 4 + len(bad))))
        for n in range(3, 3 + len(bad)):
            equal(list(got[n]), ["line", "error"])
            has(r.err, "p.jsonl:%d: %s" % (n, got[n]["error"][:40]))
        check_answer(got[1])
        check_answer(got[3 + len(bad)])
        r = run("--prompts", put(folder, "q.jsonl", b'{"prompt":"\xff"}\n'), code=1)
        has(r.err, "UTF-8", "q.jsonl:1")
        equal(list(by_line(r)), [1])
        is_error(run("--prompts", put(folder, "empty.jsonl", ""), code=1), "empty.jsonl")
        is_error(run("--prompts", folder + "/none", code=1), folder + "/none")
        has(by_line(run("--prompts", put(folder, "long.jsonl", json.dumps({"prompt_ids": [17] * 1100}) + "\n" + '{"prompt":"a","n":1}\n'), code=1))[1]["error"], "1100", "1024")


# ---- interrupt ------------------------------------------------------------------------------------------------------
def interrupted(*args, signals=1):
    """Starts a long answer, waits for its first bytes, sends SIGINT; (code, out, err, seconds from signal to end)"""
    p = tell_slowly(*args)
    first = b"" if "--json" in args else os.read(p.stdout.fileno(), 1)
    if not first:
        time.sleep(0.7)
    begin = time.monotonic()
    for _ in range(signals):
        p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    return Result(p.returncode, first + out, err), time.monotonic() - begin


def test_interrupt_text():
    r, spent = interrupted()
    equal(r.code, 130)
    assert len(r.out) > 0 and spent < 20


def test_interrupt_json():
    r, _ = interrupted("--json")
    equal(r.code, 130)
    if r.out:  # else the signal came while loading: nothing to keep
        equal(r.json()["finish_reason"], "interrupted")


def test_interrupt_twice():
    r, spent = interrupted(signals=2)
    assert r.code in (130, -signal.SIGINT) and spent < 20


def test_interrupt_logits():
    with scratch() as folder:
        p = slowly("logits", "-m", MODEL, "--prompt-ids", ",".join(["17"] * 1000), "-b", "2", "-o", folder + "/l.safetensors")
        while p.poll() is None and not os.listdir(folder):
            time.sleep(0.02)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=90)
        equal((p.returncode, os.listdir(folder)), (130, []))


# ---- output ---------------------------------------------------------------------------------------------------------
SMALL = [("run", "-m", MODEL, "-p", "Tell me a story.", "-n", "20"), ("run", "-m", MODEL, "-p", "a", "-n", "2", "--json"),
         ("tokenize", "-m", MODEL, "-p", "a"), ("tokenize", "-m", MODEL, "-p", "a", "--json"), ("devices",), ("devices", "--json"),
         ("plugins",), ("plugins", "--json"), ("config",), ("config", "--json"), ("inspect", MODEL), ("inspect", MODEL, "--json"),
         ("--help",), ("run", "--help"), ("--version",), ("bench", "-m", MODEL, "-p", "8", "-n", "2", "-r", "1"),
         ("bench", "-m", MODEL, "-p", "8", "-n", "2", "-r", "1", "--json"), ("logits", "-m", MODEL, "-p", "a", "-o", "-")]


def test_output_full_disk():
    if not os.path.exists("/dev/full"):
        raise Skipped("no /dev/full")
    for args in SMALL:
        with open("/dev/full", "wb") as full:
            p = subprocess.run([MINERVA] + list(args), stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, env=environment())
        assert p.returncode == 1, (args, p.returncode, p.stderr)
        has(p.stderr.decode(), "minerva: error: cannot write to standard output: No space left on device")
    is_error(minerva("logits", "-m", MODEL, "-p", "a", "-o", "/dev/full", code=1), "cannot write to /dev/full")


def test_output_closed_pipe():
    for args in SMALL:
        r, w = os.pipe()
        os.close(r)
        p = subprocess.run([MINERVA] + list(args), stdin=subprocess.DEVNULL, stdout=w, stderr=subprocess.PIPE, env=environment())
        os.close(w)
        assert p.returncode == 141, (args, p.returncode, p.stderr)  # as if SIGPIPE had ended it: a reader that left is no error to be told of
        assert b"error" not in p.stderr and b"t/s" not in p.stderr, (args, p.stderr)


def test_output_closed_midway():
    p = tell_slowly()
    assert os.read(p.stdout.fileno(), 1)
    p.stdout.close()
    err = p.stderr.read().decode()
    equal(p.wait(60), 141)
    assert "error" not in err and "t/s" not in err, err
    with scratch() as folder:
        fifo = os.path.join(folder, "fifo")
        os.mkfifo(fifo)
        ids = ",".join(["17"] * 100)  # more logits than a pipe takes
        p = subprocess.Popen([MINERVA, "logits", "-m", MODEL, "--prompt-ids", ids, "-o", fifo], stderr=subprocess.PIPE, env=environment())
        os.close(os.open(fifo, os.O_RDONLY))
        err = p.communicate(timeout=60)[1].decode()
        assert p.returncode == 141 and "error" not in err, (p.returncode, err)


def test_output_lines():
    """Where answer and messages meet, each message begins a line: in one pipe, and on a terminal also after an error or ^C."""
    p = subprocess.run([MINERVA, "run", "-m", MODEL, "-p", "Tell me a story.", "-n", "5", "--temp", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       env=environment(), check=True)
    for line in p.stdout.decode().splitlines():
        assert line.startswith("minerva: ") or "minerva: " not in line, p.stdout


def test_output_streams():
    p = slowly("run", "-m", MODEL, "-p", "Tell me a story.", "--ignore-eos", "-n", "100")
    first = os.read(p.stdout.fileno(), 65536)
    rest, _ = p.communicate(timeout=90)
    assert 0 < len(first) < len(rest)


# ---- tokenize -------------------------------------------------------------------------------------------------------
def tokenize(*args, **more):
    return minerva("tokenize", "-m", MODEL, *args, **more)


def test_tokenize_forms():
    ids = tokenize("-p", "Hello world", "--json").json()
    equal(list(ids), ["ids"])
    equal(ids["ids"][0], 0)
    bare = tokenize("-p", "Hello world", "--json", "--no-bos").json()["ids"]
    equal(bare, ids["ids"][1:])
    equal(tokenize("-p", "Hello world").out, " ".join(map(str, ids["ids"])) + "\n")
    with scratch() as folder:
        equal(tokenize("--file", put(folder, "t", "Hello world"), "--json").json(), ids)
        assert tokenize("--file", put(folder, "t", "Hello world\n"), "--json").json() != ids  # its bytes, all of them
    equal(tokenize("--file", "-", "--json", stdin=b"Hello world").json(), ids)
    equal(tokenize("-p", "", "--json").json()["ids"], [0])
    equal(tokenize("-p", "", "--no-bos", "--json").json()["ids"], [])
    equal(tokenize("-p", "-", "--no-bos", "--json", stdin=b"Hello world").json()["ids"], bare)


def test_tokenize_pieces():
    """Beside ids on a terminal; the pieces together are the text."""
    text = "h\u00e9llo 12 \U0001f98a\n<|eot_id|>"
    r = tokenize("-p", text, "--parse-special", "--pieces", "always", "--json").json()
    equal((len(r["pieces"]), "".join(r["pieces"])), (len(r["ids"]), "<|begin_of_text|>" + text))
    lines = tokenize("-p", text, "--parse-special", "--pieces", "always").out.splitlines()
    equal([(int(line.split()[0]), json.loads(line.split(None, 1)[1])) for line in lines], list(zip(r["ids"], r["pieces"])))
    main_end, other = os.openpty()
    p = subprocess.Popen([MINERVA, "tokenize", "-m", MODEL, "-p", "Hello"], stdin=subprocess.DEVNULL, stdout=other, env=environment())
    os.close(other)
    equal(p.wait(60), 0)
    has(os.read(main_end, 4096).decode(), '"<|begin_of_text|>"')
    os.close(main_end)


def test_tokenize_back():
    """detokenize gives the text that tokenize had."""
    def detokenize(*args, **more):
        return minerva("detokenize", "-m", MODEL, *args, **more)
    text = "h\u00e9llo  12 \U0001f98a\n"
    ids = tokenize("-p", text, "--json")
    equal(detokenize("-", stdin=ids.raw[ids.raw.index(b"["):ids.raw.index(b"]")]).out, text)
    listed = ids.json()["ids"]
    equal(detokenize(*listed).out, text)
    equal(detokenize(",".join(map(str, listed)), "--json").json(), {"text": text})
    equal(detokenize("--special", *listed).out, "<|begin_of_text|>" + text)
    with scratch() as folder:
        equal(detokenize("-f", put(folder, "ids", tokenize("-p", text).out)).out, text)
    is_error(detokenize("99999", code=1), "99999", "2048")
    is_error(detokenize("1", "x", code=2), "x")
    is_error(detokenize("1", "-f", "a", code=2), "--file")
    if os.path.exists(FIXTURE):
        is_error(minerva("detokenize", "-m", FIXTURE, "1", code=None), "tokeni")


def test_tokenize_special():
    equal(tokenize("-p", "<|eot_id|>", "--no-bos", "--parse-special", "--json").json()["ids"], [4])
    assert 4 not in tokenize("-p", "<|eot_id|>", "--no-bos", "--json").json()["ids"]


def test_tokenize_errors():
    is_error(tokenize("-p", b"\xff", code=1), "UTF-8")
    is_error(tokenize("--file", "/nonexistent/text", code=1), "/nonexistent/text")
    is_error(tokenize("--file", "/", code=1), "cannot read /")
    if os.path.exists(FIXTURE):
        is_error(minerva("tokenize", "-m", FIXTURE, "-p", "a", code=None), "tokeni")


# ---- inputs: what files and pipes may hold ---------------------------------------------------------------------------
MARK = b"\xef\xbb\xbf"
COMPANIONS = ["tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "tokenizer.json", "config.json"]


def folder_like_demo(folder, name="m"):
    path = os.path.join(folder, name)
    shutil.copytree(MODEL, path)
    return path


def test_inputs_without_end():
    """Devices and pipes that never end are errors in a moment, and so are files that are all hole."""
    with scratch() as folder:
        t = put(folder, "t", "x")
        hole = os.path.join(folder, "hole")
        with open(hole, "wb") as f:
            f.truncate(1 << 40)
        is_error(minerva("template", "--template", "/dev/zero", "--vars", "{}", code=1, timeout=30), "/dev/zero", "more than 256 MiB")
        for args in (["run", "-m", MODEL, "--prompts", hole], ["run", "-m", MODEL, "--tools", hole], ["run", "-m", MODEL, "--history", hole],
                     ["template", "--template", hole, "--vars", "{}"], ["template", "--template", t, "--vars", hole],
                     ["tokenize", "-m", MODEL, "--file", hole], ["perplexity", "-m", MODEL, "-f", hole],
                     ["perplexity", "-m", MODEL, "--ids", hole]):
            is_error(minerva(*args, code=1, timeout=30), hole, "more than 256 MiB")
        for args in ["run", "-m", MODEL, "-p", "-"], ["chat", "-m", MODEL]:
            with open("/dev/zero", "rb") as zero:
                p = subprocess.run([MINERVA] + args, stdin=zero, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), timeout=60)
            equal((p.returncode, p.stdout), (1, b""))
            has(p.stderr.decode(), "standard input", "more than 256 MiB")


def test_inputs_companions_sized():
    with scratch() as folder:
        for name in COMPANIONS + ["added_tokens.json", "chat_template.jinja"]:
            model = folder_like_demo(folder, name + ".d")
            if name == "added_tokens.json":
                continue  # of tokenizer.model alone
            with open(os.path.join(model, name), "ab") as f:
                f.truncate(1 << 40)
            begin = time.monotonic()
            r = minerva("tokenize", "-m", model, "-p", "a", code=1, timeout=30)
            is_error(r, name, "1099511627776", "100000000" if name == "tokenizer.json" else "16777216")
            assert time.monotonic() - begin < 20, name
            shutil.rmtree(model)


def test_inputs_template_nul():
    """A folder's template holds text, as one of --chat-template does."""
    with scratch() as folder:
        model = folder_like_demo(folder)
        put(model, "chat_template.jinja", b"{{ messages[0].content }}\0x")
        is_error(minerva("run", "-m", model, "-p", "a", code=1), "chat_template.jinja", "a NUL at byte 25")


def test_inputs_companions_trees():
    """JSON of small numbers costs forty times its size as a tree: none is made of what is too large, also beside a vocabulary."""
    with scratch() as folder:
        for name in "tokenizer.json", "tokenizer_config.json":
            model = folder_like_demo(folder, name + ".d")
            with open(os.path.join(model, name), encoding="utf-8") as f:
                whole = f.read()
            put(model, name, '{"x": [' + "1," * (9 << 20) + "1]," + whole.lstrip()[1:])
            r = minerva("tokenize", "-m", model, "-p", "a", code=1, timeout=30)
            is_error(r, name, "found", "16777216")


def test_inputs_companions_whole():
    """Nothing but white space may follow the JSON; a byte order mark in front is passed over; the same for all of them."""
    with scratch() as folder:
        want = minerva("tokenize", "-m", MODEL, "-p", "Once upon", "--json").json()
        for name in COMPANIONS:
            model = folder_like_demo(folder, name + ".d")
            path = os.path.join(model, name)
            whole = open(path, "rb").read() if os.path.exists(path) else b"{}"
            for tail in b"\0\0\0", b"}", b"{}", b"x":
                put(model, name, whole + tail)
                is_error(minerva("tokenize", "-m", model, "-p", "a", code=1), name)
            put(model, name, MARK + whole + b" \r\n\t\n")
            equal(minerva("tokenize", "-m", model, "-p", "Once upon", "--json").json(), want)
        model = folder_like_demo(folder)
        put(model, "chat_template.jinja", MARK + b"{{ messages[0].content }}")
        equal(minerva("template", "-m", model, "--vars", '{"messages": [{"role": "user", "content": "a"}]}').out, "a")


def test_inputs_marks():
    """A byte order mark in front of a text is none of it."""
    with scratch() as folder:
        text, vars = put(folder, "t", MARK + b"{{ x }}"), put(folder, "v", MARK + b'{"x": "a"}')
        equal(minerva("template", "--template", text, "--vars", vars).out, "a")
        equal(minerva("template", "--template", text, "--vars", "-", stdin=MARK + b'{"x": "b"}').out, "b")
        equal(tokenize("--file", put(folder, "p", MARK + b"Hello"), "--json").json(), tokenize("-p", "Hello", "--json").json())
        for tail in b"\0", b"{}", b"x":
            is_error(minerva("template", "--template", text, "--vars", put(folder, "w", b'{"x": 1}' + tail), code=1), "w" if tail == b"\0" else "byte 8")
        ids = run("-p", "Hi", "-n", "2", "--json", "-s", "1").json()["prompt_ids"]
        lines = put(folder, "l", MARK + b'{"prompt": "Hi", "n": 1}\n')
        equal(run("--prompts", lines, "-s", "1").lines()[0]["prompt_ids"], ids)


def test_inputs_model_changes():
    """A model that becomes shorter or other while it runs: which file it was, exit code 1, and no file that is half."""
    with scratch() as folder:
        for size in 0, 5000, 10498464:
            model = folder_like_demo(folder, "m%d" % size)
            weights = os.path.join(model, "model.safetensors")
            p = tell_slowly(model=model)
            first = os.read(p.stdout.fileno(), 1)
            os.truncate(weights, size)
            if size == 10498464:
                os.utime(weights, (1, 1))
            rest, err = p.communicate(timeout=60)
            equal(p.returncode, 1)
            assert first, err
            has(err.decode(), "minerva: error: ", weights, "while it")
        model = folder_like_demo(folder)
        out = os.path.join(folder, "out")
        os.mkdir(out)
        p = slowly("logits", "-m", model, "--prompt-ids", ",".join(["17"] * 900), "-b", "2", "-o", out + "/l")
        while p.poll() is None and not os.listdir(out):
            time.sleep(0.01)
        os.truncate(os.path.join(model, "model.safetensors"), 4096)
        err = p.communicate(timeout=90)[1].decode()
        equal((p.returncode, os.listdir(out)), (1, []))
        has(err, "model.safetensors", "while it")


def gguf_string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def test_tokenize_vocabulary_only():
    """A GGUF file with a vocabulary and no tensors."""
    with open(os.path.join(MODEL, "tokenizer.json"), encoding="utf-8") as f:
        t = json.load(f)
    special = {a["id"]: a["content"] for a in t["added_tokens"]}
    ids = dict([(i, s) for s, i in t["model"]["vocab"].items()] + list(special.items()))
    n = max(ids) + 1
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]

    def array(key, kind, items):
        return gguf_string(key) + struct.pack("<IIQ", 9, kind, n if kind == 5 else len(items)) + b"".join(items)

    kv = [gguf_string(k) + struct.pack("<I", 8) + gguf_string(v) for k, v in
          [("general.architecture", "llama"), ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "llama-bpe")]]
    kv += [array("tokenizer.ggml.tokens", 8, [gguf_string(ids.get(i, "[PAD%d]" % i)) for i in range(n)]),
           array("tokenizer.ggml.token_type", 5, [struct.pack("<i", 3 if i in special else 1) for i in range(n)]),
           array("tokenizer.ggml.merges", 8, [gguf_string(m) for m in merges]),
           gguf_string("tokenizer.ggml.bos_token_id") + struct.pack("<II", 4, 0)]
    with scratch() as folder:
        path = put(folder, "vocab.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, len(kv)) + b"".join(kv))
        for text in ("Tell me a story.", "", "héllo  12345 \U0001f98a"):
            equal(minerva("tokenize", "-m", path, "-p", text, "--no-bos", "--json").json(), tokenize("-p", text, "--no-bos", "--json").json())
        equal(minerva("inspect", path, "--json").json()["tensors"], [])
        is_error(minerva("run", "-m", path, "-p", "a", code=1), "vocab.gguf")


# ---- template -------------------------------------------------------------------------------------------------------
def template(folder, source, variables, code=0, *more):
    v = put(folder, "v.json", variables if isinstance(variables, bytes) else json.dumps(variables).encode())
    given = ["--template", put(folder, "t.jinja", source.encode())] if source is not None else []
    return minerva("template", *given, "--vars", v, *more, code=code)


def test_template_bytes():
    messages = [{"role": "user", "content": "hé \U0001f98a\n"}]
    with scratch() as folder:
        r = template(folder, "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{{ x }}\r\n\n", {"messages": messages, "x": 1.0})
        equal(r.out, "[user] hé \U0001f98a\n1.0\n")  # exactly what is rendered: one line end of the template's last goes, as in Jinja
        equal(template(folder, "", {}).out, "")
        equal(template(folder, "{{ tools|tojson }}{{ tools[0].f }}", {"tools": [{"f": 0.5, "g": None}]}).out, '[{"f": 0.5, "g": null}]0.5')


def test_template_model():
    messages = [{"role": "user", "content": "Hi"}]
    with scratch() as folder:
        r = template(folder, None, {"messages": messages, "add_generation_prompt": True}, 0, "-m", MODEL)
        has(r.out, "<|begin_of_text|>", "Hi<|eot_id|>", "assistant")
        r = template(folder, None, {"messages": messages, "bos_token": "<B>"}, 0, "-m", MODEL)
        equal(r.out[:3], "<B>")
        equal(template(folder, "{{ bos_token }}{{ eos_token }}", {}, 0, "-m", MODEL).out, "<|begin_of_text|><|eot_id|>")
        equal(template(folder, "{{ bos_token }}", {}).out, "")
        equal(minerva("template", "--template", put(folder, "t", "{{ x }}"), "--vars", ' {"x": 1.0}').out, "1.0")


def test_template_errors():
    with scratch() as folder:
        r = template(folder, "a{{ raise_exception('not like this') }}", {}, 1)
        equal(r.out, "")
        is_error(r, "not like this")
        is_error(template(folder, "\n{{ x.y }}", {}, 1), "line 2")
        is_error(template(folder, "{% if %}", {}, 1), "line 1")
        is_error(template(folder, "a", b'{"a": }', 1), "variables", "byte 6")
        is_error(template(folder, "a", b"[]", 1), "object")
        is_error(minerva("template", "--template", "/nonexistent.jinja", "--vars", "/nonexistent.json", code=1), "/nonexistent.jinja")
        is_error(minerva("template", "--template", put(folder, "t", b"a"), code=2), "--vars")


# ---- logits ---------------------------------------------------------------------------------------------------------
def read_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        assert n % 8 == 0
        return json.loads(f.read(n)), f.read()


def test_logits_form():
    with scratch() as folder:
        path = folder + "/l.safetensors"
        equal(minerva("logits", "-m", MODEL, "--prompt-ids", IDS, "-o", path).out, "")
        equal(os.listdir(folder), ["l.safetensors"])
        head, data = read_safetensors(path)
        equal({k: (v["dtype"], v["shape"], v["data_offsets"]) for k, v in head.items()},
              {"tokens": ("I32", [22], [0, 88]), "logits": ("F32", [22, 2048], [88, 88 + 4 * 22 * 2048])})
        equal(list(struct.unpack_from("<22i", data)), [int(i) for i in IDS.split(",")])
        last = struct.unpack_from("<2048f", data, 88 + 4 * 21 * 2048)
        assert all(map(math.isfinite, last))
        equal(len(data), 88 + 4 * 22 * 2048)
        first = run("--prompt-ids", IDS, "-n", "1", "--temp", "0", "--precision", "exact", "--json").json()["ids"]
        equal([last.index(max(last))], first)
        equal(minerva("logits", "-m", MODEL, "--prompt-ids", IDS, "-o", "-").raw, open(path, "rb").read())
        minerva("logits", "-m", MODEL, "-p", "Hello", "-o", path)
        equal(struct.unpack_from("<1i", read_safetensors(path)[1])[0], 0)


def test_logits_input():
    """- is standard input, as everywhere."""
    with scratch() as folder:
        path = folder + "/l.safetensors"
        minerva("logits", "-m", MODEL, "-p", "-", "-o", path, stdin=b"Long ago,")
        want = tokenize("-p", "Long ago,", "--json").json()["ids"]
        equal(list(struct.unpack_from("<%di" % len(want), read_safetensors(path)[1])), want)


def test_logits_failure_leaves_nothing():
    with scratch() as folder:
        path = folder + "/l.safetensors"
        for args, code in ((("--prompt-ids", "1,99999"), 1), (("--prompt-ids", "1,2,3", "-c", "2"), 1), (("--prompt-ids", "1", "--device", "nope"), 3)):
            minerva("logits", "-m", MODEL, *args, "-o", path, code=code)
            equal(os.listdir(folder), [])
        is_error(minerva("logits", "-m", MODEL, "--prompt-ids", "1", "-o", folder + "/none/l", code=1), folder + "/none/l")
        put(folder, "l.safetensors", "old")

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        minerva("logits", "-m", MODEL, "--prompt-ids", "1,2,3", "-o", path, code=1, preexec_fn=small_files)
        equal(os.listdir(folder), ["l.safetensors"])
        equal(open(path).read(), "old")


# ---- lists ----------------------------------------------------------------------------------------------------------
def test_lists_devices():
    devices = minerva("devices", "--json").json()
    for d in devices:
        equal(list(d), ["name", "plugin", "description", "uid", "mem_total", "mem_free", "usable", "reason", "retry_s"])
        assert isinstance(d["usable"], bool) and isinstance(d["mem_total"], int) and (d["mem_free"] is None or d["mem_free"] > 0)
    names = {d["name"]: d for d in devices}
    for name in ("reference", "cpu_simd"):
        assert names[name]["usable"] and names[name]["plugin"] == name and names[name]["mem_total"] > 0
    text = minerva("devices").out
    has(text, "reference", "cpu_simd")
    equal([line.split()[0] for line in minerva("--list-devices").out.splitlines()], [line.split()[0] for line in text.splitlines()])
    has(minerva("run", "--list-devices").out, "cpu_simd")


def test_lists_plugins():
    plugins = minerva("plugins", "--json").json()
    for p in plugins:
        equal(list(p), ["path", "id", "kind", "abi", "status", "reason", "version", "vendor", "probe"])
    ok = {p["id"]: p for p in plugins if p["status"] == "ok"}
    for name, kind in (("reference", "backend"), ("cpu_simd", "backend"), ("gguf", "loader"), ("safetensors", "loader")):
        equal(ok[name]["kind"], kind)
        assert os.path.isfile(ok[name]["path"]) and re.fullmatch(r"\d+\.\d+", ok[name]["abi"])
    has(minerva("plugins").out, "reference", "cpu_simd", "gguf", "safetensors")


def test_lists_plugin_path():
    """What cannot be searched is in the list, with the reason."""
    with scratch() as folder:
        put(folder, "file", b"")
        os.mkdir(folder + "/there")
        found = {p["path"]: (p["status"], p["reason"]) for p in minerva("plugins", "--json", env=environment(
            MINERVA_PLUGIN_PATH=":".join(["here", folder + "/none", folder + "/file", folder + "/there"]))).json()}
        equal(found["here"], ("refused", "expected an absolute path"))
        equal(found[folder + "/none"], ("refused", "does not exist"))
        equal(found[folder + "/file"], ("refused", "is no folder"))
        assert folder + "/there" not in found, found
        has(minerva("plugins", env=environment(MINERVA_PLUGIN_PATH_ONLY=folder + "/none")).out, folder + "/none", "does not exist")


def test_lists_variables():
    """A variable that nobody reads is a warning, with the one that was meant; those of plugins are theirs."""
    def said(**env):
        return [line for line in minerva("config", env=environment(**env)).err.splitlines() if "nothing reads" in line]

    equal(said(MINERVA_DEVCE="cpu"), ["minerva: warning: environment: nothing reads MINERVA_DEVCE; is MINERVA_DEVICE meant?"])
    equal(said(MINERVA_QUARK="1"), ["minerva: warning: environment: nothing reads MINERVA_QUARK (`minerva config` lists what is read)"])
    equal(len(said(MINERVA_PRECISON="exact", MINERVA_THREAD="1")), 2)
    equal(said(MINERVA_DEVICE="cpu", MINERVA_CPU_SIMD_ISA="generic", MINERVA_REFERENCE_DEPTH="3", MINERVA_THREADS="1", MINERVA_QUARK=""), [])


def test_lists_debug():
    """Each decision is told: settings, folders, files, devices, the model, the choice."""
    err = run("-p", "a", "-n", "1", "-t", "1", env=environment(MINERVA_LOG="debug", MINERVA_PLUGIN_PATH="/none")).err
    for words in ("setting threads = 1 (command line)", "setting plugin_path = /none (environment MINERVA_PLUGIN_PATH)",
                  "plugin folder /none (plugin_path): does not exist", "cpu_simd.so: ok", "storyteller: safetensors, architecture llama",
                  "device cpu_simd: chosen", "device reference: oracle", "device list auto: cpu_simd: "):
        has(err, words)
    assert all(line.startswith("minerva: ") for line in err.splitlines()), err


def test_lists_config():
    items = {c["key"]: c for c in minerva("config", "--json").json()}
    for c in items.values():
        equal(list(c), ["key", "value", "origin"])
    equal((items["device"]["value"], items["device"]["origin"]), ("auto", "default"))
    items = {c["key"]: c for c in minerva("config", "--json", env=environment(MINERVA_DEVICE="reference")).json()}
    equal(items["device"]["value"], "reference")
    has(items["device"]["origin"], "MINERVA_DEVICE")
    items = {c["key"]: c for c in minerva("config", "--json", "--device", "cpu", env=environment(MINERVA_DEVICE="reference")).json()}
    equal((items["device"]["value"], items["device"]["origin"]), ("cpu", "command line"))
    has(minerva("config").out, "device", "default")
    with scratch() as folder:
        os.mkdir(folder + "/minerva")
        put(folder + "/minerva", "minerva.ini", "device = reference\n")
        env = environment()
        env["XDG_CONFIG_HOME"] = folder
        has(minerva("config", env=env).out, "reference", "minerva.ini")


def test_lists_inspect():
    m = minerva("inspect", MODEL, "--json").json()
    equal(list(m), ["format", "arch", "params", "bytes", "metadata", "tensors", "types", "draft_head", "runs", "why", "state_bytes", "token_bytes"])
    equal((m["format"], m["arch"]), ("safetensors", "llama"))
    assert 5.0e6 < m["params"] < 5.5e6 and m["bytes"] >= 2 * m["params"]
    for t in m["tensors"]:
        equal(list(t), ["name", "dtype", "dim", "bytes", "native", "file"])
    dims = {t["name"]: (t["dtype"].lower(), t["dim"]) for t in m["tensors"]}
    equal(dims["token_embd.weight"], ("bf16", [2048, 256]))
    equal(dims["blk.0.attn_k.weight"][1], [128, 256])
    equal(m["metadata"]["llama.block_count"], 6)
    equal(minerva("inspect", "-m", MODEL, "--json").json(), m)
    has(minerva("inspect", MODEL).out, "token_embd.weight", "llama.block_count")
    q8 = os.path.join(DATA, "storyteller-q8_0.gguf")
    if os.path.exists(q8):
        g = minerva("inspect", q8, "--json").json()
        equal((g["format"], g["arch"], g["params"]), ("gguf", "llama", m["params"]))
        equal(len(g["metadata"]["tokenizer.ggml.tokens"]), 2048)
        assert len(minerva("inspect", q8).out) < 30000
    is_error(minerva("inspect", "/nonexistent/m", code=1), "/nonexistent/m")


def test_lists_sequence_cost():
    """What a sequence takes: keys and values for each token, and a state where layers remember one, which files do not keep."""
    equal([minerva("inspect", MODEL, "--json").json()[k] for k in ("state_bytes", "token_bytes")], [0, 6 * 2 * 2 * 64 * 2])
    hybrid = os.path.join(DATA, "fixtures", "granite4-h")
    found = minerva("inspect", hybrid, "--json").json()
    # One of four layers attends, with 2 x 12 of keys and of values in f16; the others remember 6 x 16 x 16 and 3 x 128 of f32.
    equal((found["state_bytes"], found["token_bytes"]), (3 * 4 * (6 * 16 * 16 + 3 * 128), 2 * 2 * 12 * 2))
    line = "a sequence: 22.50 KiB of state, 96 B for each token"
    has(minerva("inspect", hybrid).out, line)
    has(minerva("devices", "--explain", "-m", hybrid).out, line)
    with tempfile.TemporaryDirectory() as folder:
        has(minerva("run", "-m", hybrid, "--prompt-ids", "5,6,7", "-n", "3", "--cache-dir", folder).err, "states of recurrent layers are not kept in files")


def test_lists_cache_host():
    """Memory of the host for states: a size, or 0 for none; anything else is refused with what was found."""
    run = lambda value, code: minerva("run", "-m", os.path.join(DATA, "fixtures", "granite4-h"), "--prompt-ids", "1,2,3", "-n", "2", "--temp", "0", "--device",
                                      "reference", code=code, env=environment(MINERVA_CACHE_HOST=value))
    for value in ("0", "16KiB", "1GiB"):
        run(value, 0)
    for value in ("-1", "many", "99999999TiB"):
        is_error(run(value, 1), "cache_host", '"%s"' % value, "or 0")


def test_lists_graph():
    """The graph as JSON, for people and for Graphviz: the same nodes, tensors and shapes."""
    g = minerva("inspect", MODEL, "--graph", "--json").json()
    equal(list(g), ["arch", "layers", "kv_groups", "symbols", "tensors", "nodes", "blobs"])
    equal((g["arch"], g["layers"]), ("llama", 6))
    equal(g["kv_groups"], [{"window": 0, "n_head_kv": 2, "head_dim_k": 64, "head_dim_v": 64, "layers": list(range(6))}])
    equal([(s["name"], s["kind"]) for s in g["symbols"]][:3], [("n_tokens", "shape"), ("n_outputs", "shape"), ("n_seqs", "shape")])
    assert {"bound"} <= {s["kind"] for s in g["symbols"]}, g["symbols"]
    nodes, tensors = g["nodes"], g["tensors"]
    equal([n["op"] for n in nodes[:7]], ["EMBED", "RMS_NORM", "LINEAR", "ROPE", "ROPE", "KV_STORE", "ATTENTION"])
    equal(nodes[-1]["op"], "SAMPLE")
    equal(sorted({n["layer"] for n in nodes}), list(range(-1, 6)))
    linear = nodes[2]
    equal([o["operand"] for o in linear["in"]], ["X", "WEIGHT", "WEIGHT", "WEIGHT"])
    q = tensors[linear["in"][1]["tensor"]]
    equal(q, {"name": "blk.0.attn_q.weight", "role": "weight", "type": "bf16", "shape": [256, 256]})
    equal([tensors[o["tensor"]]["shape"] for o in linear["out"]], [["n_tokens", 4, 64], ["n_tokens", 2, 64], ["n_tokens", 2, 64]])
    equal([o["operand"] for o in nodes[6]["in"]], ["Q", "ROW_POS", "ROW_SLOT", "SEQS", "PAGES", "KV"])
    equal((nodes[1]["attributes"]["EPS"], nodes[6]["attributes"]["N_HEAD_KV"]), (1e-5, 2))
    text = minerva("inspect", MODEL, "--graph").out
    has(text, "%d nodes, %d tensors" % (len(nodes), len(tensors)), "no window, layers 0-5", "n_tokens   shape", "blk.5.ffn_down.weight", "[n_outputs, 2048]")
    equal(sum(bool(re.match(r" +\d+  [A-Z_]+", line)) for line in text.splitlines()), len(nodes))
    dot = minerva("inspect", MODEL, "--graph", "--dot").out
    assert dot.startswith("digraph ") and dot.count("{") == dot.count("}"), dot[:200]
    equal(len(re.findall(r"^ +n\d+ \[label=", dot, re.M)), len(nodes))
    equal(dot.count("subgraph"), 6)
    made = {o["tensor"]: i for i, n in enumerate(nodes) for o in n["out"]}
    edges = [(made[o["tensor"]], i) for i, n in enumerate(nodes) for o in n["in"] if o["tensor"] in made]
    equal(sorted(map(tuple, re.findall(r"n(\d+) -> n(\d+)", dot))), sorted((str(a), str(b)) for a, b in edges))
    is_error(minerva("inspect", MODEL, "--dot", code=2), "--graph")
    is_error(minerva("inspect", MODEL, "--graph", "--dot", "--json", code=2), "--json")
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=dot.encode(), stdout=subprocess.DEVNULL, check=True)


# ---- devices --------------------------------------------------------------------------------------------------------
def test_devices_unknown():
    for name in ("nope", "cuda:0", "cpu_simd:7", "nope,cuda:0"):
        is_error(run("-p", "a", "-n", "1", "--device", name, code=3), "reference", "cpu_simd")
    is_error(run("-p", "a", "-n", "1", env=environment(MINERVA_DEVICE="cuda:0"), code=3), "cuda:0", "reference", "cpu_simd")
    is_error(minerva("bench", "-m", MODEL, "--device", "nope", code=3), "cpu_simd")


def test_devices_passed_over():
    """In a list with a CPU a device that cannot be used is a warning, and an error where the user says so; else an error."""
    for names in ("nope,cpu", "cpu,nope", "nope,cpu_simd", "auto,nope", "cuda:77,reference"):
        bad = next(n for n in names.split(",") if n in ("nope", "cuda:77"))
        r = run("--prompt-ids", IDS, "-n", "1", "--device", names)
        has(r.err, "minerva: warning: device list %s: not used: %s (" % (names, bad), "--strict")
        is_error(run("--prompt-ids", IDS, "-n", "1", "--device", names, "--strict", code=3), bad)
        is_error(run("--prompt-ids", IDS, "-n", "1", env=environment(MINERVA_DEVICE=names, MINERVA_STRICT="1"), code=3), bad)
    is_error(run("--prompt-ids", IDS, "-n", "1", "--device", "nope,cuda:77", code=3), "nope")
    assert "warning" not in run("--prompt-ids", IDS, "-n", "1", "--device", "cpu_simd,reference", "--strict").err


def test_devices_unknown_memory():
    """A device that does not tell its free memory has not 0 bytes of it."""
    stub = os.path.join(BUILD, "tests", "unit", "stubs", "stub_gpu.so")
    if not os.path.exists(stub):
        raise Skipped(stub + " was not built")
    with scratch() as folder:
        os.chmod(folder, 0o755)
        shutil.copy(stub, folder + "/gpu.so")
        lines = minerva("devices", env=environment(MINERVA_PLUGIN_PATH=folder)).out.splitlines()
        gpu = next(line for line in lines if line.startswith("gpu:0"))
        has(gpu, "not asked")
        assert "0 B" not in gpu, gpu


def test_devices_named():
    for asked, got in (("reference", "reference"), ("cpu_simd", "cpu_simd"), ("cpu", "cpu_simd"), ("auto", "cpu_simd"), ("cpu_simd:0", "cpu_simd")):
        r = run("--prompt-ids", IDS, "-n", "2", "--temp", "0", "--device", asked, "--json")
        equal(r.json()["device"].split(":")[0], got)
        has(r.err, "minerva: ", got)
    r = run("--prompt-ids", IDS, "-n", "2", "--device", "cpu", "--json", env=environment(MINERVA_DEVICE="nope"))
    equal(r.json()["device"].split(":")[0], "cpu_simd")  # the command line wins


def test_devices_cache():
    """What lies at the place of a cache entry is never waited for; a home that does not exist is not made."""
    def story(env):
        return run("--prompt-ids", IDS, "-n", "2", "--temp", "0", env=env, timeout=60)

    with scratch() as folder:
        env = environment(XDG_CACHE_HOME=folder + "/cache")
        minerva("devices", "--explain", "-m", MODEL, env=env)
        kept = [os.path.join(at, name) for at, _, names in os.walk(folder + "/cache") for name in names]
        assert any("rates-" in path for path in kept) and any("/probe/" in path for path in kept), kept
        for path in kept:
            os.unlink(path)
            os.mkfifo(path)
        minerva("devices", "--explain", "-m", MODEL, env=env, timeout=60)
        assert all(os.path.isfile(path) for path in kept), kept
        env = environment(HOME=folder + "/none")
        env.pop("XDG_CACHE_HOME", None)
        story(env)
        assert not os.path.exists(folder + "/none")
        env.update(HOME=folder)
        story(env)
        assert os.path.isdir(folder + "/.cache/minerva/probe")


def test_devices_explain():
    """The record and its text say the same; nothing that can run the model is a record too."""
    record = minerva("devices", "--explain", "--json").json()
    equal(list(record), ["model", "request", "candidates", "placement", "error"])
    outcomes = {c["device"] or c["plugin"]: c["outcome"] for c in record["candidates"]}
    equal((outcomes["cpu_simd"], outcomes["reference"], outcomes["gguf"]), ("chosen", "oracle", "loader"))
    equal([s["device"] for s in record["placement"]["segments"]], ["cpu_simd"])
    text = minerva("devices", "--explain", "-m", MODEL, "--precision", "exact", "-c", "64").out
    has(text, "cpu_simd: chosen", "placement: cpu_simd: ", "class exact", "x 64", "LINEAR bf16: 25 native")
    for name, outcome in outcomes.items():
        has(text, "%s: %s" % (name, outcome))
    mixed = minerva("devices", "--explain", "--json", "-m", os.path.join(DATA, "fixtures", "gpt-oss-mxfp4"), "-c", "64").json()
    rates = next(s for c in mixed["candidates"] if c["device"] == "cpu_simd" for s in c["steps"] if s["step"] == "rates")
    equal([t["type"] for t in rates["types"]], ["bf16", "mxfp4_split"])  # each has a good share; the larger one first
    part = minerva("devices", "--explain", "--json", "-m", os.path.join(DATA, "fixtures", "gemma2"), "-c", "8192", "--precision", "exact").json()["placement"]["segments"][0]
    equal(sorted(g["window"] for g in part["kv_groups"]), [0, 12])
    equal(sum(g["bytes"] for g in part["kv_groups"]), part["kv"])
    assert min(g["pages"] for g in part["kv_groups"]) < 16 < max(g["pages"] for g in part["kv_groups"]) == 128, part["kv_groups"]
    none = minerva("devices", "--explain", "--device", "nope", "--json").json()
    equal((none["placement"], none["error"]["status"]), (None, "no device"))
    has(minerva("devices", "--explain", "--device", "nope").out, "placement: none", "nope")
    large = minerva("devices", "--explain", "-c", "16777216", "-m", os.path.join(DATA, "fixtures", "llama"), "--device", "reference", "--json")
    assert large.code == 0
    is_error(minerva("devices", "-m", MODEL, code=2), "--explain")
    is_error(minerva("devices", "--explain", "-m", "/nonexistent/m", code=1), "/nonexistent/m")


def test_devices_small_memory():
    """A model that memory cannot hold: said with both numbers before anything of it is read. Its weights are a hole in a file."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
    import gguf_file as g
    n_embd, n_ff, vocab = 16384, 65536, 32
    shapes = {"attn_norm": [n_embd], "ffn_norm": [n_embd], "attn_q": [n_embd, n_embd], "attn_k": [1024, n_embd], "attn_v": [1024, n_embd],
              "attn_output": [n_embd, n_embd], "ffn_gate": [n_ff, n_embd], "ffn_up": [n_ff, n_embd], "ffn_down": [n_embd, n_ff]}
    layer = sum(4 * math.prod(shape) for shape in shapes.values())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    n_layer = 2 * memory // layer + 1
    tensors = {"blk.%d.%s.weight" % (i, name): shape for i in range(n_layer) for name, shape in shapes.items()}
    tensors.update({"token_embd.weight": [vocab, n_embd], "output_norm.weight": [n_embd]})
    sizes = {"block_count": n_layer, "embedding_length": n_embd, "feed_forward_length": n_ff, "attention.head_count": 128,
             "attention.head_count_kv": 8, "context_length": 64}
    pairs = [g.pair("general.architecture", g.STR, "llama"), g.pair("llama.attention.layer_norm_rms_epsilon", g.F32, 1e-5)]
    pairs += [g.pair("llama." + key, g.U32, n) for key, n in sizes.items()]
    with scratch() as folder:
        path = g.write(folder + "/large.gguf", pairs, [(name, shape, g.TENSOR_F32, 4 * math.prod(shape)) for name, shape in tensors.items()])
        r = minerva("devices", "--explain", "-m", path, "--device", "cpu_simd")
    said = re.search(r"warning: cpu_simd uses ([0-9.]+) GiB of weights where they lie in their file, and ([0-9.]+) GiB of memory are free", r.err)
    assert said, r.err
    assert float(said[1]) > 1.9 * memory / 2**30 > 1.9 * float(said[2]), said[0]
    has(r.err, "the rest is read from the disk at every step")


def test_devices_threads_precision():
    for flags in (("-t", "1"), ("-b", "1"), ("--precision", "a16"), ("-ctk", "f16", "-ctv", "f16"), ("-ctk", "f32"), ("-ctk", "q8_0", "-ctv", "f16")):
        check_answer(run("--prompt-ids", IDS, "-n", "4", "--temp", "0", "--json", *flags).json())
    exact = [run("--prompt-ids", IDS, "-n", "30", "--temp", "0", "--precision", "exact", "--json", *flags).json()["ids"]
             for flags in ((), ("-t", "1"), ("-b", "1"), ("-b", "7"))]
    assert exact.count(exact[0]) == len(exact)


# ---- plugins --------------------------------------------------------------------------------------------------------
def test_plugins_unknown_file():
    with scratch() as folder:
        os.chmod(folder, 0o755)
        put(folder, "vendor.so", b"\x7fELF but not really")
        libc = next((p for p in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6", "/lib64/libm.so.6") if os.path.exists(p)), None)
        if libc:
            shutil.copy(libc, folder + "/other.so")
        env = environment(MINERVA_PLUGIN_PATH=folder)
        listed = {os.path.basename(p["path"]): p for p in minerva("plugins", "--json", env=env).json()}
        for name in ["vendor.so"] + (["other.so"] if libc else []):
            assert listed[name]["status"] != "ok" and listed[name]["reason"], listed[name]
        equal(run("--prompt-ids", IDS, "-n", "2", "--temp", "0", "--json", env=env).json()["device"].split(":")[0], "cpu_simd")


def test_plugins_without_cpu_simd():
    files = plugin_files()
    with scratch() as folder:
        os.chmod(folder, 0o755)
        for name in ("reference", "gguf", "safetensors"):
            shutil.copy(files[name], folder)
        env = environment(MINERVA_PLUGIN_PATH_ONLY=folder)
        r = run("--prompt-ids", IDS, "-n", "4", "--temp", "0", "--json", env=env)
        equal(r.json()["device"].split(":")[0], "reference")
        has(r.err, "minerva: warning: reference")
        os.remove(folder + "/" + os.path.basename(files["reference"]))
        is_error(run("-p", "a", env=env, code=3))
        minerva("inspect", MODEL, env=env)
        os.remove(folder + "/" + os.path.basename(files["safetensors"]))
        is_error(run("-p", "a", env=env, code=1), MODEL)


# ---- bench ----------------------------------------------------------------------------------------------------------
FIELDS = ["model", "params", "bytes", "device", "threads", "precision", "test", "n_prompt", "n_gen", "depth", "batch", "samples_ts", "avg_ts",
          "stddev_ts", "load_s", "ttft_s", "peak_rss", "others_cpus"]


def bench(*args, **more):
    return minerva("bench", "-m", MODEL, *args, **more)


def test_bench_json():
    tests = bench("-p", "32", "-n", "8", "-d", "0,40", "-b", "1,3", "-r", "3", "--json").lines()
    equal([(t["test"], t["batch"]) for t in tests], [(name, b) for d in ("", " @ d40") for b in (1, 3) for name in ("pp32" + d, "tg8" + d)])
    for t in tests:
        equal(list(t), FIELDS)
        equal(len(t["samples_ts"]), 3)
        mean = sum(t["samples_ts"]) / 3
        assert abs(t["avg_ts"] - mean) < 1e-4 * mean and all(s > 0 for s in t["samples_ts"])
        deviation = math.sqrt(sum((s - mean) ** 2 for s in t["samples_ts"]) / 2)
        assert abs(t["stddev_ts"] - deviation) < 1e-3 * mean
        assert t["load_s"] > 0 and t["ttft_s"] > 0 and t["peak_rss"] > 10 << 20 and t["threads"] > 0
        assert t["precision"] in ("exact", "a16", "a8") and t["device"].startswith("cpu_simd")
        equal((t["n_prompt"], t["n_gen"]), (32, 0) if t["test"].startswith("pp") else (0, 8))
    one = bench("-p", "0", "-n", "4", "-r", "1", "--json", "--precision", "exact").lines()
    equal([(t["test"], t["stddev_ts"], t["precision"]) for t in one], [("tg4", 0, "exact")])
    equal([t["test"] for t in bench("-p", "4,8", "-n", "0", "-r", "1", "--json").lines()], ["pp4", "pp8"])


def test_bench_accept():
    """Drafts that are right: more tokens than steps; the rate is that of all tokens."""
    tests = bench("-p", "0", "-n", "24", "-r", "1", "--accept", "1,0.5", "--draft-max", "8", "--json").lines()
    equal([(t["test"], t["accept"]) for t in tests], [("tg24 accept 1", 1), ("tg24 accept 0.5", 0.5)])
    assert all(t["avg_ts"] > 0 and t["n_drafted"] >= t["n_accepted"] > 0 for t in tests), tests
    dear = bench("-p", "0", "-n", "24", "-r", "1", "--accept", "1", "--draft", MODEL, "--draft-max", "4", "--json").json()
    assert dear["draft_s"] > 0 and dear["n_accepted"] == dear["n_drafted"] and dear["n_steps"] < 12, dear
    has(bench("-n", "8", "--accept", "0.5,2", code=2).err, "--accept", "0.5,2", "from 0 to 1")


def test_bench_adapters():
    """--lora-each: sequences of one step with an adapter each."""
    loras = [word for name in ("llama.all", "llama.small") for word in ("--lora", os.path.join(DATA, "adapters", name))]
    args = ("bench", "-m", FIXTURE, *loras, "-p", "4", "-n", "4", "-b", "1,3", "-r", "1", "--json", "--device", "reference")
    equal([t["adapters"] for t in minerva(*args).lines()], [1] * 4)
    equal([t["adapters"] for t in minerva(*args, "--lora-each", "--lora-type", "f16").lines()], [2] * 4)
    is_error(bench("--lora-each", code=2), "--lora-each", "expected --lora")


def test_bench_draws():
    """What sampling and a form cost; a form that ends too early is no measurement."""
    args = ("-p", "0", "-n", "8", "-r", "1", "--json")
    equal(bench(*args, "--temp", "1", "--typical", "0.9", "--xtc-probability", "0.5").lines()[0]["test"], "tg8")
    equal(bench(*args, "--json-schema", '{"type":"array","minItems":100}').lines()[0]["test"], "tg8")
    forced = bench(*args, "--regex", "the little girl and the big dog went home to the garden( a| b)+").lines()[0]
    assert list(forced) == FIELDS + ["n_forced"] and forced["n_forced"] > 2, forced
    has(bench(*args, "--choices", "a,b", code=2).err, "ended", "expected 8")


def test_bench_tables():
    r = bench("-p", "16", "-n", "4", "-r", "2")
    equal([c.strip() for c in r.out.splitlines()[0].strip("|").split("|")], ["model", "size", "params", "device", "threads", "test", "t/s ± σ"])
    has(r.out, "pp16", "tg4", "load time", "peak memory", "p50", "p99")
    rows = bench("-p", "16", "-n", "4", "-r", "2", "--csv").out.splitlines()
    equal(rows[0].split(","), FIELDS)
    equal(len(rows), 3)


def test_bench_profile():
    """Where the time goes: units that cover each step, of the prompt and of what is generated apart, on every backend that tells."""
    graph = minerva("inspect", MODEL, "--graph", "--json").json()
    for device in ("cpu_simd", "reference"):
        parts = bench("--profile", "-p", "8", "-n", "3", "-r", "2", "--json", "--device", device, "-q").lines()
        equal([(p["test"], p["phase"], p["steps"], p["rows_per_step"]) for p in parts], [("pp8", "prompt", 2, 8), ("tg3", "generated", 6, 1)])
        for p in parts:
            equal(p["device"], device)
            units = p["units"]
            equal(sum(u["n_nodes"] for u in units), len(graph["nodes"]))
            equal(sorted(u["node"] for u in units), [u["node"] for u in units])
            for u in units:
                equal((u["op"], u["layer"], u["device"]), (graph["nodes"][u["node"]]["op"], graph["nodes"][u["node"]]["layer"], device))
            assert 0 < p["us_in_units"] <= p["us_per_step"] * 1.001, p
            assert abs(sum(u["us"] for u in units) - p["us_in_units"]) < 0.01 * p["us_in_units"] + 1
            limit, = p["limits"]
            equal(limit["device"], device)
            has(limit["source"], "measured here")
            floors = [max(u["bytes"] / limit["gbps"], u["flop"] / limit["gflops"]) / 1e3 for u in units]
            for u, floor in zip(units, floors):
                assert abs((u["floor_us"] or 0) - floor) <= 0.01 * floor, (u, limit)
                assert not floor or abs(u["floor_share"] - floor / u["us"]) <= 0.01 * u["floor_share"], u
            assert abs(p["floor_us"] - sum(floors)) <= 0.01 * p["floor_us"], p
            assert abs(p["bytes"] - sum(u["bytes"] for u in units)) <= 0.01 * p["bytes"], p
            linear = [u for u in units if u["op"] == "LINEAR"]
            assert all(u["bytes"] > 0 and u["flop"] > 0 for u in linear), linear
        # the rows see 1 to 8 positions; 4 heads of 64 + 64
        equal([u["flop"] for u in parts[0]["units"] if u["op"] == "ATTENTION"][0], 2 * sum(range(1, 9)) * 4 * 128)
    pair = bench("--profile", "-pg", "8,3", "-d", "4", "-r", "1", "--json", "-q").lines()
    equal([(p["test"], p["phase"], p["steps"]) for p in pair], [("pp8+tg3 @ d4", "prompt", 1), ("pp8+tg3 @ d4", "generated", 3)])
    r = bench("--profile", "-p", "8", "-n", "2", "-r", "1")
    has(r.out, "pp8, prompt: 1 steps of 8 rows", "tg2, generated: 2 steps of 1 rows", "| unit", "LINEAR", "all units", "GFLOP/s", "MB per step", "floor, us", "floor of time",
        "floor on ", "measured here")
    is_error(bench("--profile", "--csv", code=2), "--csv")


def test_bench_peaks():
    """What memory and cores can do: one line for reading and for each instruction set, more of what is wider; no model is opened."""
    rows = bench("--peaks", "-t", "1", "--json").lines()
    assert all(r["threads"] == 1 and r["rate"] > 0 for r in rows), rows
    names = [r["peak"] for r in rows]
    equal(names[:2], ["read", "f32, 16 bytes"])
    equal(len(set(names)), len(names))
    equal({r["unit"] for r in rows} - {"GB/s", "GFLOP/s", "GOP/s"}, set())
    is_error(bench("--peaks", "--csv", code=2), "--peaks", "--csv")
    is_error(bench("--peaks", "--profile", code=2), "--profile")


def test_bench_cells():
    """Ids drawn from the logits of 20 sequences at once are those of one thread, and of each sequence by itself, whoever computes a cell."""
    model = os.path.join(DATA, "storyteller-q4_0.gguf")
    lines = [json.dumps({"prompt": "the owl " * (1 + i % 5), "seed": i}) for i in range(20)]

    def drawn(prompts, *flags):
        r = minerva("run", "-m", model, "--prompts", "-", "--raw", "--json", "-n", "24", "--temp", "1", "--device", "cpu_simd", *flags,
                    stdin="\n".join(prompts).encode())
        return [a["ids"] for a in sorted(r.lines(), key=lambda a: a["line"])]
    for precision in "exact", "a8":
        want = drawn(lines, "--precision", precision, "-t", "1")
        assert sum(map(len, want)) > 100, want
        equal(drawn(lines, "--precision", precision, "-t", "4"), want)
    for i in 0, 3, 19:
        equal(drawn(lines[i:i + 1], "--precision", "exact", "-t", "2"), drawn(lines, "--precision", "exact", "-t", "2")[i:i + 1])


def hollow_model(path, n_layers, n_expert):
    """A llama of zeros with rows that are worth sharing out; its weights are holes in the file."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
    import gguf_file as g
    d, ffn, heads, kv, vocab = 1024, 1024 if n_expert else 2816, 16, 4, 512
    sizes = {"context_length": 512, "embedding_length": d, "block_count": n_layers, "feed_forward_length": ffn, "attention.head_count": heads,
             "attention.head_count_kv": kv, "rope.dimension_count": d // heads, "vocab_size": vocab}
    if n_expert:
        sizes.update(expert_count=n_expert, expert_used_count=4)
    pairs = [g.pair("general.architecture", g.STR, "llama"), g.pair("llama.attention.layer_norm_rms_epsilon", g.F32, 1e-5)]
    pairs += [g.pair("llama." + k, g.U32, v) for k, v in sizes.items()]
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)] + ["t%d" % i for i in range(vocab - 259)]
    pairs += [g.pair("tokenizer.ggml.model", g.STR, "llama"), g.array("tokenizer.ggml.tokens", g.STR, tokens),
              g.array("tokenizer.ggml.scores", g.F32, [0.0] * vocab),
              g.array("tokenizer.ggml.token_type", g.I32, [2, 3, 3] + [6] * 256 + [1] * (vocab - 259))]
    q8_0 = 8
    shapes = {"token_embd": (vocab, d), "output": (vocab, d), "output_norm": (d,)}
    for i in range(n_layers):
        layer = {"attn_norm": (d,), "attn_q": (d, d), "attn_k": (d * kv // heads, d), "attn_v": (d * kv // heads, d), "attn_output": (d, d),
                 "ffn_norm": (d,)}
        of_expert = {"ffn_gate": (ffn, d), "ffn_up": (ffn, d), "ffn_down": (d, ffn)}
        if n_expert:
            layer.update({k + "_exps": (n_expert,) + v for k, v in of_expert.items()}, ffn_gate_inp=(n_expert, d))
        else:
            layer.update(of_expert)
        shapes.update({"blk.%d.%s" % (i, k): v for k, v in layer.items()})
    tensors = []
    for name, shape in shapes.items():
        plain = len(shape) == 1 or name.endswith("ffn_gate_inp")
        size = math.prod(shape) * 4 if plain else math.prod(shape) // 32 * 34
        tensors.append((name + ".weight", shape, g.TENSOR_F32 if plain else q8_0, size))
    return g.write(path, pairs, tensors)


def barriers(model, rows, threads, isa):
    """The largest number of barriers of a step with so many rows; isa: the most that kernels use."""
    err = minerva("bench", "-m", model, "-p", "0", "-n", "4", "-b", rows, "-r", "1", "-t", threads, "--device", "cpu_simd",
                  "--precision", "a8", env=environment(MINERVA_LOG="debug", MINERVA_CPU_ISA=isa)).err
    counts = [int(n) for n in re.findall(r"cpu_simd: (\d+) barriers in a step of (?!1 )\d+ nodes", err)]
    assert counts, err
    return max(counts)


def test_bench_barriers():
    """What is not worth sharing out makes nobody wait: of a token the products do, and attention. Stages of several rows that need of
    each other the same cell alone are one phase."""
    nodes = minerva("inspect", MODEL, "--graph", "--json").json()["nodes"]
    n_layers = 1 + max(n["layer"] for n in nodes)
    isas = ("avx2", "amx") if platform.machine() == "x86_64" else ("neon",)
    assert n_layers <= barriers(MODEL, 1, 4, isas[0]) <= 5 * n_layers + 2
    with tempfile.TemporaryDirectory() as folder:
        for n_expert, limits in (0, {1: 4, 5: 5, 20: 5}), (32, {1: 5, 5: 8, 20: 8}):
            small, large = (hollow_model(os.path.join(folder, "%d-%d.gguf" % (n_expert, n)), n, n_expert) for n in (1, 3))
            for (rows, limit), threads, isa in itertools.product(limits.items(), (2, 4), isas):
                of_layer = (barriers(large, rows, threads, isa) - barriers(small, rows, threads, isa)) / 2
                assert 2 <= of_layer <= limit, (n_expert, rows, threads, isa, of_layer)


def test_bench_compare_peer():
    """Rates of a peer beside ours: medians, ranges, the ratio to the best; a peer that fails is a dash, and its message is told."""
    tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/compare_peer")
    with tempfile.TemporaryDirectory() as folder:
        peers = {"slow": "echo '[{\"avg_ts\": 1}]'", "fast": "echo '[{\"avg_ts\": 2.5}]'", "none": "echo no such model >&2; exit 1"}
        for name, line in peers.items():
            with open(os.path.join(folder, name), "w", encoding="ascii") as f:
                f.write("#!/bin/sh\n" + line + "\n")
            os.chmod(f.name, 0o755)
        flags = [a for name in peers for a in ("--peer", name + "=" + os.path.join(folder, name))]
        r = subprocess.run([sys.executable, tool, "--minerva", MINERVA, *flags, "-m", MODEL, "-p", "4", "-n", "2", "-t", "1", "-r", "2"],
                           capture_output=True, text=True, env=environment(), timeout=60)
    equal(r.returncode, 0)
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in r.stdout.splitlines()]
    equal(rows[0], ["model", "test", "threads", "Minerva, t/s", "slow, t/s", "fast, t/s", "none, t/s", "ratio to the best peer"])
    equal([row[1:3] + row[4:7] for row in rows[2:]], [[test, "1", "1 (1-1)", "2.5 (2.5-2.5)", "-"] for test in ("pp4", "tg2")])
    for row in rows[2:]:
        ours, ratio = (float(row[i].split()[0]) for i in (3, 7))
        assert abs(ratio * 2.5 - ours) < 0.02 * ours + 0.02, row
    has(r.stderr, "no such model")


def test_bench_numbers_of_sequences():
    """One sequence in a session that has room for many."""
    tests = bench("-p", "0", "-n", "1", "-b", "1,80", "-r", "1", "-o", "json").lines()
    equal([t["batch"] for t in tests], [1, 80])


def test_bench_lists():
    """Lists and ranges, pairs, threads; every form has every test."""
    tests = bench("-p", "4-16*2,5", "-n", "2-6+2", "-pg", "8,3", "-pg", "9,2", "-t", "1,2", "-r", "1", "-o", "json").lines()
    names = ["pp4", "pp8", "pp16", "pp5", "tg2", "tg4", "tg6", "pp8+tg3", "pp9+tg2"]
    equal([(t["threads"], t["test"]) for t in tests], [(n, name) for n in (1, 2) for name in names])
    equal([(t["n_prompt"], t["n_gen"]) for t in tests[7:9]], [(8, 3), (9, 2)])
    equal([t["test"] for t in bench("-pg", "4,2", "-d", "0-4+4", "-r", "1", "-o", "json").lines()], ["pp4+tg2", "pp4+tg2 @ d4"])
    for form, flag in (("md", None), ("json", "--json"), ("csv", "--csv")):
        rows = [re.sub(r"[\d.]+ \u00b1 [\d.]+", "", r.splitlines()[0]) for r in
                [bench("-p", "4", "-n", "0", "-r", "1", *more).out for more in (["-o", form], [flag] if flag else [])]]
        equal(rows[0].split(":")[0], rows[-1].split(":")[0])
    for flag, found in (("-p", "4-2"), ("-p", "1-8+0"), ("-p", "0-8*2"), ("-p", "1-8*1"), ("-p", "1-8+"), ("-p", "1-"), ("-p", "-4"), ("-t", "x"), ("-pg", "4"),
                        ("-pg", "4,5,6"), ("-pg", "0,1"), ("-o", "xml"), ("-p", "1-9999999")):
        is_error(bench(flag, found, code=2), flag, found)
    is_error(bench("-o", "csv", "--json", code=2), "--csv")


def test_bench_as_measured():
    """The first row is there before the second test has ended; Ctrl-C keeps it, and what stands below the table."""
    for form in ("md", "json", "csv"):
        p = subprocess.Popen([MINERVA, "bench", "-m", MODEL, "-p", "1", "-n", "900", "-r", "3", "-o", form, "--device", "reference"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        heading = {"md": 2, "json": 0, "csv": 1}[form]
        got = [p.stdout.readline().decode() for _ in range(heading + 1)]
        has(got[-1], "pp1")
        assert p.poll() is None
        p.send_signal(signal.SIGINT)
        rest, _ = p.communicate(timeout=60)
        equal(p.returncode, 130)
        assert "tg900" not in rest.decode()
        equal(form == "md", "load time" in rest.decode() and "p50" in rest.decode())


def test_bench_busy():
    """Other programs at work are said: they lower the rates."""
    cpus = sorted(os.sched_getaffinity(0))
    try:
        with open("/proc/stat", encoding="ascii") as f:
            assert any(line.startswith("cpu%d " % cpus[0]) for line in f)
    except (OSError, AssertionError):
        raise Skipped("no counts of work in /proc/stat") from None
    code = "import os,sys\nos.sched_setaffinity(0,[int(sys.argv[1])])\nprint('on',flush=True)\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", code, str(cpu)], stdout=subprocess.PIPE) for cpu in cpus[:max(1, len(cpus) // 8)]]
    try:
        for p in others:
            p.stdout.readline()
        r = bench("-p", "256", "-n", "0", "-r", "3", "-t", "1", "-o", "json")
    finally:
        for p in others:
            p.kill()
            p.communicate()
    if all(t["others_cpus"] in (0, None) for t in r.lines()):
        raise Skipped("/proc/stat does not count here")
    has(r.err, "warning: other programs")


# ---- chat -----------------------------------------------------------------------------------------------------------
def test_chat_turns():
    chat = minerva("chat", "-m", MODEL, "--temp", "0", "--precision", "exact", "-n", "60", stdin="What color is the sky?\n\nTell me a story.\n".encode())
    first = run("-p", "What color is the sky?", "--temp", "0", "--precision", "exact", "-n", "60", "--json").json()
    assert chat.out.startswith(first["text"] + "\n") and len(chat.out) > len(first["text"]) + 20, chat.out
    again = minerva("chat", "-m", MODEL, "--temp", "0", "--precision", "exact", "-n", "60", stdin=b"What color is the sky?\n/clear\nWhat color is the sky?\n/exit\nnever\n")
    equal(again.out, 2 * (first["text"] + "\n"))
    minerva("chat", "-m", MODEL, "-n", "5", "--system", "You are brief.", stdin=b"a\nb\nc\n")  # answers that are cut, then go on
    equal(minerva("chat", "-m", MODEL, stdin=b"").out, "")
    is_error(minerva("chat", "-m", MODEL, stdin=b"\xff\n", code=1), "UTF-8")


# ---- talk: what the chat template gets beside the prompt --------------------------------------------------------------
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"days": {"default": 2}}}}}]
HISTORY = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Rain?"}]},
           {"role": "assistant", "content": None, "tool_calls": [{"id": "abcdefghi", "function": {"name": "weather", "arguments": {"x": 1.0}}}]},
           {"role": "tool", "content": "yes", "tool_call_id": "abcdefghi", "name": "weather"}]
TALK = """{{ bos_token }}{% if tools %}T{{ tools|tojson }}{% endif %}{% if mood is defined %}M{{ mood }}{% endif %}{% for m in messages -%}
[{{ m.role }}{{ m.name }}{{ m.tool_call_id }}]{% if m.content is string %}{{ m.content }}{% elif m.content %}{{ m.content[0].text }}{% endif %}
{%- if m.tool_calls %}{{ m.tool_calls|tojson }}{% endif %}<|eot_id|>
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""


def talker(folder, source=TALK):
    """The demo model with a template of its own."""
    for name in os.listdir(MODEL):
        if name != "chat_template.jinja":
            os.symlink(os.path.join(MODEL, name), os.path.join(folder, name))
    put(folder, "chat_template.jinja", source)
    return folder


def prompt_of(model, *args, **more):
    return minerva("run", "-m", model, *args, "-n", "1", "--ignore-eos", "--temp", "0", "--json", **more).json()["prompt_ids"]


def rendered(model, folder, **variables):
    """The ids of what `minerva template` makes of the variables."""
    text = template(folder, None, dict({"add_generation_prompt": True, "tools": None}, **variables), 0, "-m", model).raw
    return tokenize("--file", put(folder, "text", text), "--no-bos", "--parse-special", "--json").json()["ids"]


def test_talk_run():
    with scratch() as folder, scratch() as data:
        model, user = talker(folder), {"role": "user", "content": "Hi"}
        tools, history, mood = put(data, "t.json", json.dumps(TOOLS)), put(data, "h.json", json.dumps(HISTORY)), json.dumps({"mood": "good"})
        equal(prompt_of(model, "-p", "Hi"), rendered(model, data, messages=[user]))
        equal(prompt_of(model, "-p", "Hi", "--tools", tools, "--vars", mood), rendered(model, data, messages=[user], tools=TOOLS, mood="good"))
        equal(prompt_of(model, "-p", "Hi", "--tools", json.dumps(TOOLS), "--vars", put(data, "v.json", mood)), rendered(model, data, messages=[user], tools=TOOLS, mood="good"))
        equal(prompt_of(model, "-p", "Hi", "--system", "S"), rendered(model, data, messages=[{"role": "system", "content": "S"}, user]))
        equal(prompt_of(model, "--history", history), rendered(model, data, messages=HISTORY))
        equal(prompt_of(model, "--history", "-", "-p", "Hi", stdin=json.dumps(HISTORY).encode()), rendered(model, data, messages=HISTORY + [user]))
        lines = put(data, "p.jsonl", '{"prompt":"Hi","n":1}\n{"prompt_ids":[1,2],"n":1}\n')
        got = minerva("run", "-m", model, "--prompts", lines, "--tools", tools, "--system", "S").lines()
        equal(got[0]["prompt_ids"], rendered(model, data, messages=[{"role": "system", "content": "S"}, user], tools=TOOLS))
        equal(got[1]["prompt_ids"], [1, 2])


def test_talk_users_text():
    """Nothing in the JSON becomes a special token; a role that every template knows may be part of one."""
    with scratch() as folder:
        model = talker(folder, "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{{ tools|tojson }}{{ v }}<|eot_id|>")
        ids = prompt_of(model, "--history", '[{"role": "user", "content": "<|eot_id|>"}]', "--tools", '[{"a": "<|eot_id|>"}]', "--vars", '{"v": "<|eot_id|>"}')
        equal(ids.count(4), 1)


def test_talk_tool_template():
    """A model with a second template for tools, in the file or as its converted GGUF."""
    with scratch() as folder, scratch() as data:
        model = talker(folder, "")
        os.unlink(os.path.join(folder, "chat_template.jinja"))
        os.unlink(os.path.join(folder, "tokenizer_config.json"))
        with open(os.path.join(MODEL, "tokenizer_config.json"), encoding="utf-8") as f:
            config = json.load(f)
        config["chat_template"] = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
        put(folder, "tokenizer_config.json", json.dumps(config))
        gguf = os.path.join(data, "m.gguf")
        minerva("convert", model, "-o", gguf)
        ids = {w: tokenize("-p", w, "--no-bos", "--json").json()["ids"] for w in ("plain", "tools")}
        for m in (model, gguf):
            equal(prompt_of(m, "-p", "Hi"), ids["plain"])
            equal(prompt_of(m, "-p", "Hi", "--tools", "[{}]"), ids["tools"])
            equal([template(data, None, {"tools": t}, 0, "-m", m).out for t in (None, [{}])], ["plain", "tools"])


def test_talk_tools_unknown():
    """A template that has no place for tools is a warning, once."""
    with scratch() as folder:
        plain = talker(folder, "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}[assistant]")
        r = minerva("run", "-m", plain, "-p", "a", "--tools", json.dumps(TOOLS), "-n", "1")
        equal(r.err.count("the chat template has no place for tools"), 1)
        assert "no place for tools" not in minerva("run", "-m", plain, "-p", "a", "-n", "1").err
    with scratch() as folder:
        assert "no place for tools" not in minerva("run", "-m", talker(folder), "-p", "a", "--tools", json.dumps(TOOLS), "-n", "1").err


def test_talk_errors():
    with scratch() as folder, scratch() as data:
        model = talker(folder)
        for flag, text, *says in [("--tools", "{}", "found an object, expected a list of tools"), ("--tools", "[{}, 1]", "tools[1]: found a number"),
                                  ("--tools", "[", "not valid JSON at byte 1"), ("--tools", "", "found the end at byte 0"),
                                  ("--vars", "[]", "found a list, expected an object"), ("--vars", '{"tools": []}', '"tools"', "elsewhere"),
                                  ("--history", '[{"content": ""}]', "history[0]", '"role"'), ("--history", "[]]", "history", "byte 2"),
                                  ("--vars", '{"a": 01}', "byte 6"), ("--tools", '[{"a": [1.]}]', "byte 8"), ("--history", '[{"role": "user", "a": -}]', "byte 23"),
                                  ("--history", b'["\xff"]', "UTF-8")]:
            path = put(data, "bad.json", text)
            is_error(minerva("run", "-m", model, "-p", "a", flag, path, code=1), path, *says)
            is_error(minerva("chat", "-m", model, flag, path, stdin=b"", code=1), path, *says)
        is_error(minerva("run", "-m", model, "-p", "a", "--tools", "[1]", code=1), "--tools[0]: found a number")
        is_error(minerva("run", "-m", model, "-p", "a", "--vars", "/nonexistent/v.json", code=1), "/nonexistent/v.json")
        is_error(minerva("run", "-m", model, "-p", "a", "--tools", put(data, "nul.json", b"[\0]"), code=1), "NUL at byte 1")
        for flags in (["--system", "a", "--history", "[]"], ["--raw", "-p", "a", "--tools", "[]"], ["--prompt-ids", "1", "--system", "a"],
                      ["--history", "[]", "--prompts", "/dev/null"]):
            is_error(minerva("run", "-m", model, *flags, code=2), flags[0] if flags[0] != "--raw" else "--tools")
    with scratch() as folder:
        model = talker(folder)
        os.unlink(os.path.join(folder, "chat_template.jinja"))
        is_error(minerva("run", "-m", model, "-p", "a", "--system", "b", code=1), "no chat template", "--system")
        is_error(minerva("run", "-m", talker_refusing(folder), "-p", "a", code=1), "chat template: no users")


def talker_refusing(folder):
    put(folder, "chat_template.jinja", "{{ raise_exception('no users') }}")
    return folder


def test_talk_chat():
    """History, tools and what a tool answers reach the template; a new turn extends what the model has seen, white space and all."""
    with scratch() as folder:
        model = talker(folder)
        flags = ("--temp", "0", "--precision", "exact", "-n", "1000")
        first = [{"role": "user", "content": "Tell me a story about a fox and a silver key."}]
        told = minerva("run", "-m", model, "--history", json.dumps(first), "--tools", json.dumps(TOOLS), *flags, "--json").json()
        equal(told["finish_reason"], "stop")
        both = first + [{"role": "assistant", "content": told["text"]}, {"role": "tool", "content": "sunny"}]
        more = minerva("run", "-m", model, "--history", json.dumps(both), "--tools", json.dumps(TOOLS), *flags, "--json").json()
        said = first[0]["content"] + "\n/tool sunny\n"
        chat = minerva("chat", "-m", model, "--tools", json.dumps(TOOLS), *flags, stdin=said.encode())
        equal(chat.out, told["text"].rstrip("\n") + "\n" + more["text"].rstrip("\n") + "\n")
        chat = minerva("chat", "-m", model, "--history", json.dumps(both[:2]), "--tools", json.dumps(TOOLS), *flags, stdin=b"/tool sunny\n")
        equal(chat.out, more["text"].rstrip("\n") + "\n")
        chat = minerva("chat", "-m", model, "--history", json.dumps(both[:2]), *flags, stdin=("/clear\n" + first[0]["content"] + "\n").encode())
        equal(chat.out, minerva("run", "-m", model, "-p", first[0]["content"], *flags).out)


def test_talk_template_that_moves():
    """Some templates put tools before the last user message: each turn then begins anew."""
    with scratch() as folder:
        source = "{% for m in messages %}{% if loop.last %}T{% endif %}[{{ m.role }}]{{ m.content }}<|eot_id|>{% endfor %}"
        model, flags = talker(folder, source), ("--temp", "0", "--precision", "exact", "-n", "1000")
        chat = minerva("chat", "-m", model, *flags, stdin=b"Tell me a story.\nAnother.\n").out
        first = minerva("run", "-m", model, "-p", "Tell me a story.", *flags, "--json").json()
        equal(first["finish_reason"], "stop")
        history = [{"role": "user", "content": "Tell me a story."}, {"role": "assistant", "content": first["text"]}, {"role": "user", "content": "Another."}]
        equal(chat, first["text"].rstrip("\n") + "\n" + minerva("run", "-m", model, "--history", json.dumps(history), *flags).out)


HARMONY = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>"]


def caller(folder, opening):
    """The demo model with the tokens of Harmony in place of rare ones; its template ends with `opening`, so that all it says is in that channel."""
    talker(folder, TALK[:-len("[assistant]{% endif %}")] + opening + "{% endif %}")
    os.unlink(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(MODEL, "tokenizer.json"), encoding="utf-8") as f:
        tok = json.load(f)
    model, first = tok["model"], len(tok["model"]["vocab"]) - len(HARMONY)
    gone = {piece for piece, i in model["vocab"].items() if i >= first}
    pair = lambda m: m.split(" ") if isinstance(m, str) else m
    model["merges"] = [m for m in model["merges"] if "".join(pair(m)) not in gone and not gone & set(pair(m))]
    model["vocab"] = dict({piece: i for piece, i in model["vocab"].items() if i < first}, **{piece: first + i for i, piece in enumerate(HARMONY)})
    tok["added_tokens"] += [{"id": first + i, "content": piece, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
                            for i, piece in enumerate(HARMONY)]
    put(folder, "tokenizer.json", json.dumps(tok))
    return folder


def test_talk_calls():
    """A call is shown as it came, is in the JSON, and the template gets it back as one, with what was thought before it."""
    flags, ask = ("--temp", "0", "--precision", "exact", "-n", "12"), "Hi"
    with scratch() as folder:
        model = caller(folder, "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>")
        a = minerva("run", "-m", model, "-p", ask, *flags, "--json").json()
        args = a["text"][len("to=weather "):]
        equal(a["text"], "to=weather " + args)
        equal(a["tool_calls"], [{"type": "function", "function": {"name": "weather", "arguments": args}}])
        equal(minerva("run", "-m", model, "-p", ask, *flags).out, a["text"].rstrip("\n") + "\n")
        calls = [{"type": "function", "id": "call%05d" % i, "function": call["function"]} for i, call in enumerate(a["tool_calls"])]
        history = [{"role": "user", "content": ask}, {"role": "assistant", "content": "", "tool_calls": calls}, {"role": "tool", "content": "ok", "tool_call_id": "call00000"}]
        more = minerva("run", "-m", model, "--history", json.dumps(history), *flags).out
        equal(minerva("chat", "-m", model, *flags, stdin=(ask + "\n/tool ok\n").encode()).out, a["text"].rstrip("\n") + "\n" + more)
    with scratch() as folder:
        model = caller(folder, "<|start|>assistant<|channel|>analysis<|message|>")
        r = minerva("run", "-m", model, "-p", ask, *flags)
        equal(r.out, "")
        has(r.err, "--show-thinking")
        a = minerva("run", "-m", model, "-p", ask, *flags, "--json").json()
        equal((a["text"], minerva("run", "-m", model, "-p", ask, *flags, "--show-thinking").out.rstrip("\n")), ("", a["thinking"].rstrip("\n")))
    with scratch() as folder:
        model = caller(folder, "<|start|>assistant<|channel|>final<|message|>")
        a = minerva("run", "-m", model, "-p", ask, *flags, "--json").json()
        assert a["text"] and "thinking" not in a and "tool_calls" not in a, a


# ---- install --------------------------------------------------------------------------------------------------------
def readme_program():
    """The program of README.md, which is also what everybody copies."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        return re.search(r"## In your program\n+```c\n(.*?)```", f.read(), re.S).group(1)


def find_prefix(root):
    for folder, _, files in os.walk(root):
        if os.path.basename(folder) == "bin" and "minerva" in files:
            return os.path.dirname(folder)
    raise AssertionError("no bin/minerva below " + root)


def installed(folder):
    """The prefix of what `meson install` puts below folder."""
    meson = os.environ.get("MESON") or shutil.which("meson") or "/usr/bin/meson"
    if not BUILD or not os.path.exists(meson):
        raise Skipped("needs the build folder and meson")
    p = subprocess.run([meson, "install", "-C", BUILD, "--no-rebuild", "--destdir", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    equal((p.returncode, p.stdout if p.returncode else b""), (0, b""))
    return find_prefix(folder)


def test_install_moved():
    with scratch() as folder:
        os.chmod(folder, 0o755)
        first = installed(folder + "/first")
        os.mkdir(folder + "/second")
        prefix = folder + "/second/moved"
        shutil.move(first, prefix)
        exe = prefix + "/bin/minerva"
        r = minerva("run", "-p", "Tell me a story.", "-n", "30", exe=exe, cwd="/")
        assert len(r.out) > 20, r.out
        for q in minerva("plugins", "--json", exe=exe, cwd="/").json():
            equal((q["status"], os.path.commonpath([os.path.realpath(q["path"]), os.path.realpath(prefix)])), ("ok", os.path.realpath(prefix)))
        check_planted(folder, prefix)
        check_check(prefix)
        check_documents(prefix)
        check_program(folder, prefix)


def check_planted(folder, prefix):
    """What looks like a build tree above an installed prefix, where any user may have put it, is neither believed nor run."""
    for n, root in enumerate((prefix + "/lib", prefix, os.path.dirname(prefix))):
        registry = root + "/runtime/registry"
        os.makedirs(registry, exist_ok=True)
        for mark in (root + "/minerva-build-tree", root + "/runtime/minerva-build-tree", registry + "/minerva-build-tree"):
            if mark != prefix + "/lib/minerva-build-tree":  # that one is beside the library: whoever can write there can replace it
                put(*os.path.split(mark), b"..\n")
        put(registry, "minerva-probe", "#!/bin/sh\ntouch %s/ran-%d\n" % (folder, n))
        os.chmod(registry + "/minerva-probe", 0o755)
    found = minerva("plugins", "--json", exe=prefix + "/bin/minerva", cwd="/", env=environment(XDG_CACHE_HOME=folder + "/cache")).json()
    assert found and all(q["status"] == "ok" for q in found), found
    equal([name for name in os.listdir(folder) if name.startswith("ran")], [])


def check_check(prefix):
    """minerva plugins check is minerva-check in libexec of the prefix that moved, with its report and exit codes; without it, an error."""
    exe, plugins = prefix + "/bin/minerva", minerva("plugins", "--json", exe=prefix + "/bin/minerva", cwd="/").json()
    path = next(p["path"] for p in plugins if p["kind"] == "loader")
    programs = [os.path.join(at, name) for at, _, files in os.walk(prefix) for name in files if name == "minerva-check"]
    equal(len(programs), 1)
    r = minerva("plugins", "check", path, "--only", "static", "--json", exe=exe, cwd="/").json()
    assert r["file"] == path and r["passed"] and not r["failed"], r
    is_error(minerva("plugins", "check", prefix + "/absent.so", exe=exe, cwd="/", code=2), "absent.so", "No such file")
    equal(minerva("help", "plugins", "check", exe=exe, cwd="/").out, minerva("plugins", "check", "--help").out)
    os.rename(programs[0], programs[0] + "-away")
    is_error(minerva("plugins", "check", path, exe=exe, cwd="/", code=1), "cannot find minerva-check", "libexec")
    os.rename(programs[0] + "-away", programs[0])


def pkg_config(prefix, *args):
    found = [os.path.join(at, "minerva.pc") for at, _, files in os.walk(prefix) if "minerva.pc" in files]
    equal(len(found), 1)
    if not shutil.which("pkg-config"):
        raise Skipped("needs pkg-config")
    env = environment(PKG_CONFIG_PATH=os.path.dirname(found[0]))
    return subprocess.run(["pkg-config"] + list(args), env=env, stdout=subprocess.PIPE, check=True).stdout.decode().split()


def check_program(folder, prefix):
    """README's program, as C and as C++, built with the pkg-config file that moved with the prefix, tells the story."""
    real = os.path.realpath
    plugins = pkg_config(prefix, "--variable=plugindir", "minerva-plugin")[0]
    assert real(plugins).startswith(real(prefix)) and os.path.isdir(plugins), plugins
    flags = pkg_config(prefix, "--cflags", "--libs", "minerva")
    lib = next(f[2:] for f in flags if f.startswith("-L"))
    assert real(lib).startswith(real(prefix)), lib
    sanitize = ["-fsanitize=address,undefined"] if os.environ.get("MINERVA_TEST_SANITIZE") else []
    warn = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wl,-rpath," + lib]
    built = 0
    for compiler, name, standards in ((os.environ.get("CC", "cc"), "story.c", ("c11",)), (os.environ.get("CXX", "c++"), "story.cc", ("c++11", "c++20"))):
        if not shutil.which(compiler):
            continue
        for standard in standards:
            subprocess.run([compiler, "-std=" + standard] + warn + [put(folder, name, readme_program()), "-o", folder + "/story"] + sanitize + flags, check=True)
        p = subprocess.run([folder + "/story"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env=environment(), timeout=100)
        assert p.returncode == 0 and len(p.stdout) > 50, (p.returncode, p.stdout, p.stderr)
        built += 1
    if not built:
        raise Skipped("needs a compiler")


def is_source(path):
    """Whether documents for those who work on the sources may cite it, which are not installed."""
    return path.split("/")[0] in ("tests", "runtime", "plugins", "loaders", "tools") and os.path.exists(os.path.join(ROOT, path))


def check_documents(prefix):
    """What README, documents and headers cite is there, and so are pages and completion."""
    top = os.path.join(prefix, "share", "doc", "minerva")
    with open(os.path.join(top, "LICENSE"), encoding="utf-8") as f:
        has(f.read(), "Permission is hereby granted")
    texts = [os.path.join(at, name) for at, _, files in os.walk(prefix) for name in files if name.endswith((".md", ".h"))]
    assert len(texts) > 10, texts
    for path in texts:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if path.startswith(top) else []:
            there = os.path.normpath(os.path.join(os.path.dirname(path), link))
            assert link.startswith("http") or os.path.exists(there) or is_source(os.path.relpath(there, top)), (path, link)
        for cited in re.findall(r"docs/[a-z-]+\.md", text):
            assert os.path.exists(os.path.join(top, cited)), (path, cited)
    pages = [os.path.join(at, name) for at, _, files in os.walk(os.path.join(prefix, "share", "man")) for name in files]
    equal(sorted(map(os.path.basename, pages)), sorted(["minerva.1"] + ["minerva-%s.1" % c for c in COMMANDS + ["plugins-check"]]))
    for shell, name in (("bash", "bash-completion/completions/minerva"), ("zsh", "zsh/site-functions/_minerva"), ("fish", "fish/vendor_completions.d/minerva.fish")):
        with open(os.path.join(prefix, "share", name), encoding="utf-8") as f:
            equal(f.read(), minerva("completion", shell).out)


PROJECT = """project('small', 'c', default_options: ['pkgconfig.relocatable=true'])
lib = shared_library('small', 'a.c', version: '1.2.3', soversion: '1', install: true)
install_data('a.c', install_dir: get_option('datadir') / 'small' / 'first')
"""


def bootstrap(script, *args, code=0):
    """Functions of ./bootstrap, which does nothing when it is read."""
    p = subprocess.run(["bash", "-c", 'source "$0/bootstrap"; ' + script, ROOT] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    r = Result(p.returncode, p.stdout, p.stderr)
    equal((r.code, r.out), (code, ""))
    return r


def test_install_cuda():
    """The CUDA plugin takes minutes to compile: it is built where a driver is, or by --cuda; else one line tells how."""
    if not shutil.which("bash"):
        raise Skipped("needs bash")
    tells = 'choose_cuda run; [[ $cuda == "$1" ]]'
    nvcc = 'command() { [[ $2 != nvcc ]] && builtin command "$@" || echo /bin/true; }; '
    has(bootstrap("has_nvidia_driver() { false; }; " + nvcc + tells, "disabled").err, "no NVIDIA driver is here", "./bootstrap run --cuda builds it")
    equal(bootstrap("has_nvidia_driver() { true; }; " + nvcc + tells, "auto").err, "")
    equal(bootstrap("with_cuda=1; has_nvidia_driver() { false; }; " + nvcc + tells, "enabled").err, "")


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, folders, files in os.walk(folder) for name in files + folders)


def test_install_removed():
    """bootstrap's list of an installation: what it put there goes, what others put there stays, nothing else is touched."""
    meson = shutil.which("meson") or "/usr/bin/meson"
    if not shutil.which("bash") or not os.path.exists(meson):
        raise Skipped("needs bash and meson")
    with scratch() as folder:
        prefix = os.path.realpath(folder) + "/prefix"
        for name in ("source", "prefix", "prefix/bin"):
            os.mkdir(os.path.join(folder, name))
        put(folder, "prefix/bin/theirs", "x")
        put(folder, "source/a.c", "int a(void);\nint a(void) { return 0; }\n")
        put(folder, "source/meson.build", PROJECT)
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        subprocess.run([meson, "setup", folder + "/build", folder + "/source", "--prefix=" + prefix, "--libdir=lib"], **quiet)
        log = folder + "/build/meson-logs/install-log.txt"
        before = files_below(prefix)
        subprocess.run([meson, "install", "-C", folder + "/build"], **quiet)
        bootstrap('record_install "$1" "$2"', log, prefix)
        has(files_below(prefix), "share/small/first/a.c", "lib/libsmall.so", "lib/libsmall.so.1")
        with open(log, encoding="utf-8") as f:  # an upgrade that has another file
            upgrade = put(folder, "log", f.read().replace("small/first", "small/second"))
        os.mkdir(prefix + "/share/small/second")
        put(folder, "prefix/share/small/second/a.c", "")
        bootstrap('record_install "$1" "$2"', upgrade, prefix)
        has(files_below(prefix), "share/small/second/a.c", "lib/libsmall.so")
        assert "share/small/first/a.c" not in files_below(prefix)
        put(folder, "prefix/share/small/second/theirs", "x")
        r = bootstrap('cmd_uninstall "$1"', prefix)
        has(r.err, "kept, for it is not empty", "share/small/second")
        equal(files_below(prefix), sorted(before + ["share", "share/small", "share/small/second", "share/small/second/theirs"]))
        is_error_of = bootstrap('cmd_uninstall "$1"', prefix, code=1)
        has(is_error_of.err, "is not there")
        put(folder, "victim", "x")
        for line, says in (("../victim", "expected a path below"), (os.path.realpath(folder) + "/victim", "expected a path below"), ("link/victim", "elsewhere")):
            os.makedirs(prefix + "/share/minerva", exist_ok=True)
            if not os.path.lexists(prefix + "/link"):
                os.symlink("..", prefix + "/link")
            put(folder, "prefix/share/minerva/installed", line + "\n")
            has(bootstrap('cmd_uninstall "$1"', prefix, code=0 if says == "elsewhere" else 1).err, says)
            assert os.path.exists(folder + "/victim")
        has(bootstrap("cmd_uninstall", code=1).err, "takes one argument")


def test_output_of_failed_tests():
    """The end of a run of the tests names what failed and shows the end of its output."""
    results = [("good", "OK", "fine\n"), ("bad", "FAIL", "".join(f"line {i}\n" for i in range(40))), ("slow", "TIMEOUT", ""), ("absent", "SKIP", "")]
    with scratch() as folder:
        os.makedirs(folder + "/build/meson-logs")
        log = "".join(json.dumps({"name": name, "stdout": out, "result": result, "duration": 1.25, "returncode": 3}) + "\n" for name, result, out in results)
        put(folder, "build/meson-logs/testlog.json", log)
        command = [sys.executable, ROOT + "/tests/dev/failed_tests.py", folder + "/build", folder + "/not-there"]
        lines = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
        equal(lines[0], "build: bad: FAIL after 1.2 s, status 3")
        equal(lines[1:16], [f"    line {i}" for i in range(25, 40)])
        equal(lines[16:], ["build: slow: TIMEOUT after 1.2 s, status 3"])


def main(functions):
    """functions: globals() of the module whose tests these are."""
    global MINERVA
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and what they start would, too
    MINERVA, group = os.path.abspath(sys.argv[1]), sys.argv[2]
    tests = [(name, f) for name, f in sorted(functions.items()) if name.startswith("test_" + group)]
    failed = skipped = 0
    assert tests, group
    for name, test in tests:
        begin, word = time.monotonic(), "ok"
        try:
            test()
        except Skipped as why:
            word, skipped = "SKIP (%s)" % why, skipped + 1
        except Exception as e:  # a failed check or a program that hangs: the others still tell something
            word, failed = "FAIL\n  %s: %s" % (type(e).__name__, str(e)[:3000]), failed + 1
        print("%s: %s (%.1f s)" % (name, word, time.monotonic() - begin), flush=True)
    if failed:
        sys.exit(1)
    sys.exit(77 if skipped == len(tests) else 0)


if __name__ == "__main__":
    main(globals())
