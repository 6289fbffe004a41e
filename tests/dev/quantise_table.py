#!/usr/bin/env python3
"""What types cost a model's weights: `minerva convert` beside llama.cpp's quantisation, with the same importance matrix.

  quantise_table.py MINERVA MODEL.gguf --ggml libggml-base.so [--imatrix FILE.gguf] [--types T,...] [--layers N,...] [--noise]
  quantise_table.py MINERVA MODEL.gguf --text FILE [--imatrix FILE.gguf] [--types T,...]

The first prints, for each type, sums of squared errors over sums of squares: without a matrix and with one, where both count with its weights, of the
matrices of a few layers; "ratio" is ours over theirs. libggml-base.so is llama.cpp's: llama-quantize calls the same function. Types of blocks of 256 have
those matrices alone whose rows are multiples. --noise: MODEL's own matrices are q4_1, and a step of noise spreads them over the reals again.
The second prints perplexities. Needs numpy and the package gguf."""
import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile

import gguf
import numpy as np

MATRICES = ("attn_q", "attn_output", "ffn_up", "ffn_down")
TYPES = ("q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0 iq4_nl iq4_xs mxfp4 nvfp4 q3_k iq3_s iq3_xxs q2_k iq2_s iq2_xs iq2_xxs iq1_m iq1_s tq2_0 tq1_0").split()
MIXES = "q5_k_m q5_k_s q4_k_m q4_k_s q3_k_l q3_k_m q3_k_s".split()
NEEDS_MATRIX = {"iq2_xxs", "iq2_xs", "iq1_s", "iq1_m"}  # llama-quantize refuses them without


def floats(array):
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


class Ggml:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.ggml_quantize_chunk.restype = ctypes.c_size_t

    def quantised(self, kind, x, weights):
        """The bytes of matrix x."""
        number = gguf.GGMLQuantizationType[kind.upper()]
        elements, size = gguf.GGML_QUANT_SIZES[number]
        out = np.zeros(x.size // elements * size, np.uint8)
        self.lib.ggml_quantize_chunk(int(number), floats(x), ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(0), ctypes.c_int64(x.shape[0]),
                                     ctypes.c_int64(x.shape[1]), floats(weights) if weights is not None else None)
        return out

    def values(self, kind, raw, shape):
        out = np.zeros(shape, np.float32)
        name = re.sub(r"^(q\d)_k$", r"\1_K", kind)
        getattr(self.lib, "dequantize_row_" + name)(ctypes.c_void_p(raw.ctypes.data), floats(out), ctypes.c_int64(out.size))
        return out


def run(minerva, *args):
    done = subprocess.run([minerva, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def tensors(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def importance(path):
    """name of a matrix -> the weight of each column"""
    found = tensors(path) if path else {}
    return {name[:-len(".in_sum2")]: (t.data.reshape(-1) / max(float(found[name.replace("in_sum2", "counts")].data.reshape(-1)[0]), 1)).astype(np.float32)
            for name, t in found.items() if name.endswith(".in_sum2")}


def spread(path, names):
    """A step of noise for each 32 elements."""
    rng = np.random.default_rng(1)
    for name, t in tensors(path).items():
        if name not in names:
            continue
        place = np.memmap(path, np.float32, "r+", t.data_offset, (t.n_elements // 32, 32))
        step = (place.max(1) - place.min(1)) / 15
        place += rng.uniform(-0.5, 0.5, place.shape).astype(np.float32) * step[:, None]
        place.flush()


def errors(x, y, weights):
    w = 1 if weights is None else weights[None, :].astype(np.float64)
    return float((w * (x - y).astype(np.float64) ** 2).sum()), float((w * x.astype(np.float64) ** 2).sum())


def compare(a, ggml, base, kind, names, matrix, scratch):
    """(ours, theirs): with the matrix or without."""
    plain = tensors(base)
    chosen = [n for n in names if plain[n].shape[0] % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind.upper()]][0] == 0]
    made = os.path.join(scratch, "made.gguf")
    pattern = "^(%s)$=%s" % ("|".join(re.escape(n) for n in chosen), kind)
    run(a.minerva, "convert", base, "-o", made, "--force", "-q", "--type", "f16", "--type", pattern, *(["--imatrix", a.imatrix] if matrix else []))
    ours, sums, theirs, packed = 0, 0, 0, tensors(made)
    for n in chosen:
        x = np.array(plain[n].data, np.float32)
        w = matrix and matrix[n]
        error, size = errors(x, ggml.values(kind, np.array(packed[n].data).reshape(-1), x.shape), w)
        ours, sums = ours + error, sums + size
        if matrix or kind not in NEEDS_MATRIX:
            theirs += errors(x, ggml.values(kind, ggml.quantised(kind, x, w), x.shape), w)[0]
    return ours / sums, theirs / sums


def table(a, scratch):
    ggml, matrix = Ggml(a.ggml), importance(a.imatrix)
    base = os.path.join(scratch, "base.gguf")
    run(a.minerva, "convert", a.model, "-o", base, "--type", "f32", "-q")
    names = ["blk.%s.%s.weight" % (i, m) for i in a.layers.split(",") for m in MATRICES]
    if a.noise:
        spread(base, names)
    print("| type | ours | llama.cpp | ratio | with a matrix: ours | llama.cpp | ratio |\n|---|---|---|---|---|---|---|")
    for kind in a.types or TYPES:
        cells = []
        for m in (None, matrix) if matrix else (None,):
            ours, theirs = compare(a, ggml, base, kind, names, m, scratch)
            cells.append("%.3g | %s | %s" % (ours, "%.3g" % theirs if theirs else "-", "%.3f" % (ours / theirs) if theirs else "-"))
        print("| %s | %s |" % (kind, " | ".join(cells)), flush=True)


def perplexities(a, scratch):
    made = os.path.join(scratch, "made.gguf")
    print("| type | MB | perplexity |\n|---|---|---|")
    for kind in a.types or ["f32", *MIXES, *TYPES]:
        run(a.minerva, "convert", a.model, "-o", made, "--force", "-q", "--type", kind, *(["--type", "blk=" + kind] if kind in TYPES else []),
            *(["--imatrix", a.imatrix] if a.imatrix else []))
        said = run(a.minerva, "perplexity", "-m", made, "-f", a.text, "-q", "--device", "cpu")
        print("| %s | %.0f | %s |" % (kind, os.path.getsize(made) / 1e6, said.split()[1]), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("minerva")
    p.add_argument("model")
    p.add_argument("--ggml")
    p.add_argument("--text")
    p.add_argument("--imatrix")
    p.add_argument("--types", type=lambda s: s.split(","))
    p.add_argument("--layers", default="3,12,21")
    p.add_argument("--noise", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if a.ggml:
            table(a, scratch)
        if a.text:
            perplexities(a, scratch)


main()
