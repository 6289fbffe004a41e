#!/usr/bin/env python3
"""Seeds of a fuzz target: those of corpus/NAME, and what tests/data gives.

  seeds.py NAME --into FOLDER    writes them
  seeds.py NAME TARGET           runs the target over them (a test of the build)
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import seed_models
from seed_models import DATA, HERE, parts, read

sys.path.insert(0, os.path.join(HERE, "..", "golden"))
import gguf_file  # noqa: E402


def tokenizers(ending):
    folder = os.path.join(DATA, "tokenizers")
    for name in sorted(os.listdir(folder)):
        if name.endswith(ending) and not name.endswith("cases.json"):
            yield "ok-" + name, read(folder, name)


def tokenizer():
    """Files of every kind that is JSON, and Kimi's ranks, alone and with their companion."""
    yield from tokenizers(".json")
    ranks = read(os.path.join(DATA, "tokenizers"), "kimi.tiktoken")
    for name, config in ("", b"{}"), ("-named", b'{"tokenizer_class":"TikTokenTokenizer","added_tokens_decoder":{"701":{"content":"[BOS]","special":true},"960":{"content":"<x>"}}}'):
        yield "ok-tiktoken" + name, parts({"tiktoken.model": ranks, "tokenizer_config.json": config, "text": "[BOS]It's <x>\n".encode()})


def field(number, v):
    """One field of a protocol buffer: of bytes or a message, a number, or a float32."""
    if isinstance(v, float):
        return varint(number << 3 | 5) + struct.pack("<f", v)
    return varint(number << 3) + varint(v) if isinstance(v, int) else varint(number << 3 | 2) + varint(len(v)) + v


def varint(n):
    out, n = b"", n % (1 << 64)
    while n >= 0x80:
        out, n = out + bytes([n & 0x7f | 0x80]), n >> 7
    return out + bytes([n])


def sentencepiece():
    """All fields that are read, and the files beside the model."""
    yield from tokenizers(".model")
    pieces = [("<pad>", 0.0, 3), ("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("<0x0A>", 0.0, 6), ("\u2581", -2.0, 1), ("a", -3.0, 1),
              ("b", -4.0, 1), ("\u2581ab", -1.0, 1), ("ab", -1.5, 4), ("q", -9.0, 5)]
    charsmap = struct.pack("<IQ", 8, 1 << 32) + b"a\0"
    beside = {"added_tokens.json": b'{"<x>":11}',
              "tokenizer_config.json": b'{"added_tokens_decoder":{"12":{"content":"<y>","special":true,"lstrip":true,"rstrip":true,"single_word":true},'
                                       b'"3":{"content":"</s>"}},"eos_token":"<y>","chat_template":"{{ messages }}"}',
              "generation_config.json": b'{"eos_token_id":[12,3]}', "text": "a <y> ab <x>\n".encode()}
    for name, kind in ("unigram", 1), ("bpe", 2):
        model = b"".join(field(1, field(1, p.encode()) + field(2, score) + field(3, t)) for p, score, t in pieces)
        model += field(2, field(3, kind) + field(4, 13) + field(24, 0) + field(35, 1) + field(40, 1) + field(41, 2) + field(42, 3) + field(43, 0))
        model += field(3, field(1, b"nmt_nfkc") + field(2, charsmap if kind == 1 else b"") + field(3, 1) + field(4, 1) + field(5, 1))
        yield "ok-fields-" + name, parts({"tokenizer.model": model, **beside})
        yield "suffix-" + name, model + field(2, field(24, 1)) + field(5, b"\x0b")


def packs():
    """A file of one block of 32 bytes (mended by the target), parts of it, and blocks for the writer."""
    row = struct.pack("<QQQQQII", 1, 2, 64, 32, 0, 1, 0)
    head = struct.pack("<8sIIQQQQQQ", b"MnvPack1", 0x01020304, 1, 0x0123456789abcdef, 0xfedcba9876543210, 96, 0, 0, 0)
    whole = head + b"\x55" * 32 + row
    yield "ok-table", b"\x01" + whole
    yield "ok-written", b"\x02" + bytes(range(240))
    for i, n in enumerate((0, 8, 63, 64, 100, len(whole) - 1)):
        yield "cut-%d" % i, b"\x01" + whole[:n]
    yield "head", b"\x00" + whole


def imatrices():
    """Both forms, with two matrices, one of them of experts; parts of the older one, and wrong numbers."""
    def older(n_entries, entries, tail=b""):
        out = struct.pack("<i", n_entries)
        for name, calls, values in entries:
            out += struct.pack("<i", len(name)) + name + struct.pack("<ii", calls, len(values)) + struct.pack("<%df" % len(values), *values)
        return out + tail
    entries = [(b"blk.0.attn_q.weight", 4, [1.0, 2.0, 3.0, 0.5]), (b"blk.0.ffn_up_exps.weight", 2, [4.0] * 8)]
    tail = struct.pack("<ii", 4, 8) + b"text.raw"
    whole = older(2, entries, tail)
    yield "ok-older", whole
    for i, n in enumerate((0, 3, 8, 20, 40, len(whole) - 20)):
        yield "cut-%d" % i, whole[:n]
    yield "many", older(1 << 30, entries)
    yield "nan", older(1, [(b"a", 1, [float("nan"), -1.0, float("inf")])])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.gguf")
        tensors = []
        for name, mats, cols in ("blk.0.attn_q.weight", 1, 4), ("blk.0.ffn_up_exps.weight", 2, 4):
            tensors.append((name + ".in_sum2", [mats, cols] if mats > 1 else [cols], 0, struct.pack("<%df" % (mats * cols), *range(1, mats * cols + 1))))
            tensors.append((name + ".counts", [mats, 1] if mats > 1 else [1], 0, struct.pack("<%df" % mats, *[3.0] * mats)))
        pairs = [gguf_file.pair("general.type", gguf_file.STR, "imatrix"), gguf_file.array("imatrix.datasets", gguf_file.STR, ["text.raw"]),
                 gguf_file.pair("imatrix.chunk_count", gguf_file.U32, 4), gguf_file.pair("imatrix.chunk_size", gguf_file.U32, 512)]
        yield "ok-gguf", read(folder, os.path.basename(gguf_file.write(path, pairs, tensors)))
        yield "no-counts", read(folder, os.path.basename(gguf_file.write(path, pairs, tensors[::2])))


MADE = {"imatrix": imatrices, "pack": packs, "tokenizer": tokenizer, "sentencepiece": sentencepiece, "gguf": seed_models.gguf_files,
        "safetensors": seed_models.safetensors, "mlx": seed_models.mlx}


def write(name, folder):
    own = os.path.join(HERE, "corpus", name)
    os.makedirs(folder, exist_ok=True)
    for f in os.listdir(own) if os.path.isdir(own) else []:
        shutil.copy(os.path.join(own, f), folder)
    for seed, data in MADE.get(name, lambda: ())():
        with open(os.path.join(folder, seed), "wb") as f:
            f.write(data)


def main():
    name = sys.argv[1]
    if sys.argv[2] == "--into":
        return write(name, sys.argv[3])
    with tempfile.TemporaryDirectory(prefix="minerva-seeds-") as folder:
        write(name, folder)
        return subprocess.call([sys.argv[2], folder])


if __name__ == "__main__":
    sys.exit(main())
