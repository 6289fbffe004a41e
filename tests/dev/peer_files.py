#!/usr/bin/env python3
"""peer_files.py MINERVA LLAMA_CPP LIBRARIES [FIXTURE...]: whether llama.cpp and Minerva read each other's files. LLAMA_CPP: its sources, LIBRARIES: the folder
of its libllama.so. For each fixture the files of both converters (f32) are read by both; a row has the relative L2 errors of
  theirs     Minerva, the file of llama.cpp's converter, against the folder
  ours       llama.cpp, the file of minerva convert, against the folder
  control    llama.cpp, both files, against each other
Where `ours` is large and `control` is 0, llama.cpp computes something else than the folder says (it has no window there, or no key for a number). A development
tool; wants the packages that the converter wants (torch, transformers, safetensors, numpy). Fixtures have no tokeniser: the files say that there is none."""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIXTURES = os.path.join(ROOT, "tests", "data", "fixtures")
HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of GGUF's types of values
STRING, ARRAY = 8, 9

CONVERTER = """
import logging, sys, torch
from pathlib import Path
import gguf
from conversion import ModelBase, ModelType, get_model_architecture, get_model_class, logger
logger.setLevel(logging.ERROR)
folder, out = map(Path, sys.argv[1:])
model = get_model_class(get_model_architecture(ModelBase.load_hparams(folder, False), ModelType.TEXT))
model.set_vocab = lambda self: self._set_vocab_none()
with torch.inference_mode():
    model(folder, gguf.LlamaFileType.ALL_F32, out, eager=True).write()
"""


class Refused(Exception):
    pass


def run(*args, **env):
    done = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, **env))
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()] or ["status %d" % done.returncode]
        said = [line for line in lines if "error" in line.lower() or "assert" in line.lower()] or lines[-1:]
        raise Refused(said[0][-160:])


def skip_value(data, at, kind):
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind != ARRAY:
        return at + SIZES[kind]
    inner, n = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(n):
        at = skip_value(data, at, inner)
    return at


def text(data, at):
    n = struct.unpack_from("<Q", data, at)[0]
    return data[at + 8:at + 8 + n].decode()


def without_tokeniser(path):
    """Adds to a GGUF file that it has no tokeniser, and how many ids its table has, where it says neither. The number of ids."""
    with open(path, "rb") as f:
        data = f.read()
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    at, keys, arch, rows = 24, set(), "", 0
    for _ in range(n_keys):
        key = text(data, at)
        at += 8 + len(key.encode())
        kind = struct.unpack_from("<I", data, at)[0]
        if key == "general.architecture":
            arch = text(data, at + 4)
        at = skip_value(data, at + 4, kind)
        keys.add(key)
    infos = at
    for _ in range(n_tensors):
        name = text(data, at)
        at += 8 + len(name.encode())
        n_dim = struct.unpack_from("<I", data, at)[0]
        if name == "token_embd.weight":
            rows = struct.unpack_from("<Q", data, at + 12)[0]
        at += 4 + 8 * n_dim + 12
    string = lambda s: struct.pack("<Q", len(s)) + s.encode()
    more = {"tokenizer.ggml.model": struct.pack("<I", STRING) + string("none"), arch + ".vocab_size": struct.pack("<II", 4, rows)}
    added = [string(key) + value for key, value in more.items() if key not in keys]
    head = data[:16] + struct.pack("<Q", n_keys + len(added)) + data[24:infos] + b"".join(added) + data[infos:at]
    align = lambda n: (n + 31) // 32 * 32
    with open(path, "wb") as f:
        f.write(head.ljust(align(len(head)), b"\0") + data[align(at):])
    return rows


def folder_of(name, scratch):
    """The fixture; with a table of names where the converter counts them."""
    folder = os.path.join(FIXTURES, name)
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    if "gemma" not in name:
        return folder
    copy = os.path.join(scratch, name)
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    n = config.get("vocab_size") or config["text_config"]["vocab_size"]
    with open(os.path.join(copy, "tokenizer.json"), "w") as f:
        json.dump({"model": {"vocab": {"t%d" % i: i for i in range(n)}}, "added_tokens": []}, f)
    return copy


class Both:
    def __init__(self, minerva, source, libraries, scratch):
        self.minerva, self.source, self.scratch = minerva, source, scratch
        self.program = os.path.join(scratch, "peer_logits")
        run("cc", "-O1", os.path.join(HERE, "peer_logits.c"), "-I", source + "/include", "-I", source + "/ggml/include", "-L", libraries, "-lllama", "-lggml",
            "-lggml-base", "-Wl,-rpath," + libraries, "-o", self.program)

    def path(self, name):
        return os.path.join(self.scratch, name)

    def by_minerva(self, model, ids):
        run(self.minerva, "logits", "-m", model, "--prompt-ids", ids, "--device", "reference", "-q", "-o", self.path("logits"))
        with open(self.path("logits"), "rb") as f:
            head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            begin, end = head["logits"]["data_offsets"]
            return struct.unpack("<%df" % ((end - begin) // 4), f.read()[begin:end])

    def by_peer(self, model, ids):
        run(self.program, model, ids, self.path("peer"))
        with open(self.path("peer"), "rb") as f:
            data = f.read()
        return struct.unpack("<%df" % (len(data) // 4), data)

    def row(self, name):
        ours, theirs = self.path("ours.gguf"), self.path("theirs.gguf")
        run(self.minerva, "convert", os.path.join(FIXTURES, name), "-o", ours, "--type", "f32", "--force", "-q")
        rows = without_tokeniser(ours)
        ids = ",".join(str((7 * i * i + 3 * i + 1) % min(rows, 90)) for i in range(40))
        want = self.by_minerva(os.path.join(FIXTURES, name), ids)
        found = {}
        try:
            run(sys.executable, "-c", CONVERTER, folder_of(name, self.scratch), theirs, PYTHONPATH=self.source + ":" + self.source + "/gguf-py")
            without_tokeniser(theirs)
            found["theirs"] = self.tried(self.by_minerva, theirs, ids)
            found["control"] = self.tried(self.by_peer, theirs, ids)
        except Refused as e:
            found["theirs"] = "converter: %s" % e
        found["ours"] = self.tried(self.by_peer, ours, ids)
        if isinstance(found.get("control"), tuple):
            found["control"] = error(found["control"], found["ours"])
        return [error(found["theirs"], want), error(found["ours"], want), found.get("control", "-")]

    @staticmethod
    def tried(by, model, ids):
        try:
            return by(model, ids)
        except Refused as e:
            return str(e)


def error(x, y):
    if not isinstance(x, tuple) or not isinstance(y, tuple):
        return x if isinstance(x, str) else "-"
    if len(x) != len(y):
        return "%d values of %d" % (len(x), len(y))
    return "%.1e" % math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(x, y)) / math.fsum(b * b for b in y))


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as scratch:
        both = Both(*sys.argv[1:4], scratch)
        print("| fixture | theirs | ours | control |\n|---|---|---|---|")
        for name in sys.argv[4:] or sorted(os.listdir(FIXTURES)):
            try:
                cells = both.row(name)
            except Refused as e:
                cells = [str(e), "-", "-"]
            print("| %s | %s |" % (name, " | ".join(cells)), flush=True)


main()
