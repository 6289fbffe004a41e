"""Folders in Hugging Face layout as Python values, with the standard library alone: read, change, write, and list for the golden driver, which compares
their logits on the CPU devices (GOLDEN_DEVICES: on others) when the script calls finish()."""
import array
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import safetensors

ROOT = os.environ.get("MINERVA_SOURCE_ROOT", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FIXTURES = os.path.join(os.environ.get("MINERVA_TEST_DATA", os.path.join(ROOT, "tests", "data")), "fixtures")
FAILED = []


def check(ok, what):
    print(("ok    " if ok else "FAIL  ") + what)
    if not ok:
        FAILED.append(what)


def folder_of(name):
    return os.path.join(FIXTURES, name)


def golden(name):
    """What another implementation computed of a fixture."""
    with open(os.path.join(folder_of(name), "golden.json"), encoding="utf-8") as f:
        return json.load(f)


def copy_fixture(name, target):
    """target: a folder, which a copy that was there before gives way to; returned."""
    shutil.rmtree(target, ignore_errors=True)
    return shutil.copytree(folder_of(name), target)


def command(exe, *args, code=0, stdin=None):
    """A run of a program, whose exit code is checked."""
    p = subprocess.run([exe, *map(str, args)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    check(p.returncode == code, "minerva %s: exit code %d, expected %d %s" % (" ".join(map(str, args))[:90], p.returncode, code, p.stderr.strip()[:200]))
    return p


LISTED = []
WORK = tempfile.TemporaryDirectory()


def place():
    """A new folder, which is there until the script ends."""
    return tempfile.mkdtemp(dir=WORK.name)


def same_as_fixture(what, path, name):
    """The logits of the model at path are those of a fixture: within 1e-5 on reference, and on cpu_simd within what class exact promises."""
    LISTED.append({"what": what, "model": path, "fixture": name, "limit": 1e-5})


def same_as_model(what, path, other, ids, limit=1e-5):
    """The same for ids of another model on reference."""
    LISTED.append({"what": what, "model": path, "beside": other, "ids": ids, "limit": limit})


def compare_listed():
    if not LISTED:
        return
    path = os.path.join(WORK.name, "list.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(LISTED, f)
    driver = os.path.join(os.environ["MINERVA_BUILD_ROOT"], "tests", "golden", "golden")
    devices = os.environ.get("GOLDEN_DEVICES", "reference cpu_simd").split()
    done = subprocess.run([driver] + [word for d in devices for word in ("-d", d, "list:" + path)], stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="")
    bad = [line for line in done.stdout.splitlines() if line.startswith(("not ok", "Bail"))]
    check(done.returncode == 0, "%d models on %s%s" % (len(LISTED), ", ".join(devices), ": " + "; ".join(bad) if bad else ""))


def finish():
    compare_listed()
    sys.exit("%d failed: %s" % (len(FAILED), "; ".join(FAILED)[:2000]) if FAILED else 0)


TYPES = "U64 I64 F64 C64 F32 U32 I32 BF16 F16 U16 I16 F8_E8M0 F8_E4M3 F8_E5M2 I8 U8 F4 BOOL".split()


def as_written(tensors):
    """In the order in which the SafeTensors library writes files: by type, then by name. F8 scales come before packed weights of U8."""
    return dict(sorted(tensors.items(), key=lambda t: (TYPES.index(t[1][0]), t[0])))


def shuffled(tensors):
    items = list(tensors.items())
    random.Random(7).shuffle(items)
    return dict(items)


class Model:
    """config: of config.json. tensors: name -> (type, shape, bytes), written in the order that `order` makes of them."""

    def __init__(self, config, tensors, order=as_written):
        self.config, self.tensors, self.order = config, tensors, order

    def copy(self):
        return Model(json.loads(json.dumps(self.config)), dict(self.tensors), self.order)

    def floats(self, name):
        kind, _, raw = self.tensors[name]
        if kind == "BF16":
            return safetensors.bf16_as_f32(raw)
        return array.array("f", struct.unpack("<%d%s" % (len(raw) // {"F32": 4, "F16": 2}[kind], {"F32": "f", "F16": "e"}[kind]), raw))

    def write(self, folder, pad=8):
        """pad: the header's length is a multiple of it; the library does so, others do not (1: it is odd)."""
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump(self.config, f)
        head, at, tensors = {}, 0, self.order(self.tensors)
        for name, (kind, shape, raw) in tensors.items():
            head[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
            at += len(raw)
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % pad if pad > 1 else 1 - len(text) % 2)
        with open(os.path.join(folder, "model.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))
        return folder


def fixture(name):
    folder = folder_of(name)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    tensors = {}
    for part in sorted(os.listdir(folder)):
        if not part.startswith("model") or not part.endswith(".safetensors"):
            continue
        path = os.path.join(folder, part)
        listed, at = safetensors.header(path)
        with open(path, "rb") as f:
            data = f.read()
        for key, t in listed.items():
            begin, end = t["data_offsets"]
            tensors[key] = (t["dtype"], t["shape"], data[at + begin:at + end])
    return Model(config, tensors)


def prompt(name):
    """Of a fixture."""
    return list(safetensors.read(os.path.join(FIXTURES, name, "golden.safetensors"), "prompt")[1])
