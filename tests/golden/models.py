"""Folders in Hugging Face layout as Python values, with the standard library alone: read, change, write, ask for logits."""
import array
import json
import math
import os
import random
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


def finish():
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
    folder = os.path.join(FIXTURES, name)
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


def golden(name):
    """(prompt, logits) as Transformers computed them."""
    path = os.path.join(FIXTURES, name, "golden.safetensors")
    return list(safetensors.read(path, "prompt")[1]), safetensors.read(path, "logits")[1]


def logits(minerva, path, ids, device="reference"):
    """The logits of a model on a device in class exact; None, and the reason is printed, where there are none."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits.safetensors")
        p = subprocess.run([minerva, "logits", "-m", path, "--prompt-ids", ",".join(map(str, ids)), "--device", device, "-o", out],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if p.returncode:
            print("exit code %d: %s" % (p.returncode, p.stderr.decode(errors="replace").strip()[:400]))
            return None
        return safetensors.read(out, "logits")[1]


def same_on_cpus(what, minerva, path, ids, want, limit=1e-5):
    """On the reference within limit, and on cpu_simd within what class exact promises."""
    same(what, logits(minerva, path, ids), want, limit)
    same(what + ", cpu_simd", logits(minerva, path, ids, "cpu_simd"), want, 1e-4)


def same(what, found, want, limit=1e-5):
    if found is None or len(found) != len(want):
        check(False, what + ": no logits")
        return
    error = math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(found, want)) / math.fsum(b * b for b in want))
    check(error <= limit, "%s: relative L2 error of the logits %.3g, at most %g" % (what, error, limit))
