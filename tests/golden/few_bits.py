#!/usr/bin/env python3
"""few_bits.py MINERVA: tiny GGUF models of the IQ types, the ternary ones and those of one and two bits, and of NVFP4, against the same values stored in F32, which `convert` writes.

Random blocks stand for weights, so that every entry of the codebooks occurs. The device reference must give the same logits for both, and cpu_simd in class
exact those of the second. Blocks are held against the Python package gguf by the test `dtype`."""
import os
import random
import struct
import subprocess
import sys

import gguf_file as gguf
import models
from gguf_file import F32, STR, TENSOR_F32, U32, pair

PROMPT = [1, 17, 140, 3, 99, 42, 7, 7, 155, 64, 31, 8, 120, 77, 2, 5]
VOCAB, EMBD, FF, LAYERS, HEADS, KV = 160, 256, 512, 2, 8, 4
# number in GGUF, bytes of a block, where its scale is, about what the values of scale 1 are in size, and elements of a block if not 256
TYPES = {"iq1_s": (19, 50, 0, 6), "iq1_m": (29, 56, None, 6), "iq2_xxs": (16, 66, 0, 50), "iq2_xs": (17, 74, 0, 50), "iq2_s": (22, 82, 0, 50),
         "iq3_xxs": (18, 98, 0, 140), "iq3_s": (21, 110, 0, 140), "tq1_0": (34, 54, 52, 0.8), "tq2_0": (35, 66, 64, 1.2),
         "q1_0": (41, 18, 0, 1, 128), "q2_0": (42, 18, 0, 1.2, 64), "nvfp4_64": (40, 36, None, 1, 64)}


def blocks(kind, rows, cols, rng):
    _, size, at, spread, *elems = TYPES[kind]
    out = bytearray()
    for _ in range(rows * cols // (elems or [256])[0]):
        block = bytearray(rng.randbytes(size))
        half = struct.pack("<e", rng.uniform(0.5, 1.5) * rng.choice((-1, 1)) / spread / cols ** 0.5)
        if kind == "nvfp4_64":  # F8 without a sign: 1/16 to 2, 0 and the two codes that F8 has no numbers for
            block[:4] = bytes(rng.choice((0, 127)) if rng.random() < 0.02 else rng.randrange(0x18, 0x40) | rng.getrandbits(1) << 7 for _ in range(4))
        elif at is None:  # iq1_m: in the upper nibbles of four u16
            for i in range(4):
                block[49 + 2 * i] = block[49 + 2 * i] & 15 | (half[i // 2] >> 4 * (i % 2) & 15) << 4
        else:
            block[at:at + 2] = half
        out += block
    return bytes(out)


def scales(tensors, rng):
    """One F32 for a matrix of NVFP4, which its values are multiplied by; another one that belongs to kernels which round activations."""
    for name, shape, *_ in tensors:
        if name.startswith("blk.") and len(shape) == 2:
            at = name[:-len("weight")]
            yield at + "scale", [1], TENSOR_F32, struct.pack("<f", rng.uniform(0.5, 1.5) / 3 / shape[1] ** 0.5)
            yield at + "input_scale", [1], TENSOR_F32, struct.pack("<f", 0.25)


def write(kind, path):
    rng = random.Random(kind)
    number = TYPES[kind][0]

    def norm(name):
        return name, [EMBD], TENSOR_F32, struct.pack("<%df" % EMBD, *(rng.uniform(0.6, 1.4) for _ in range(EMBD)))

    def matrix(name, rows, cols):
        return name, [rows, cols], number, blocks(kind, rows, cols, rng)

    tensors = [matrix("token_embd.weight", VOCAB, EMBD), matrix("output.weight", VOCAB, EMBD), norm("output_norm.weight")]
    kv = EMBD // HEADS * KV
    for i in range(LAYERS):
        at = "blk.%d." % i
        tensors += [norm(at + "attn_norm.weight"), norm(at + "ffn_norm.weight"), matrix(at + "attn_q.weight", EMBD, EMBD), matrix(at + "attn_k.weight", kv, EMBD),
                    matrix(at + "attn_v.weight", kv, EMBD), matrix(at + "attn_output.weight", EMBD, EMBD), matrix(at + "ffn_gate.weight", FF, EMBD),
                    matrix(at + "ffn_up.weight", FF, EMBD), matrix(at + "ffn_down.weight", EMBD, FF)]
    if kind == "nvfp4_64":
        tensors += list(scales(tensors, rng))
    keys = {"context_length": (U32, 256), "embedding_length": (U32, EMBD), "block_count": (U32, LAYERS), "feed_forward_length": (U32, FF),
            "attention.head_count": (U32, HEADS), "attention.head_count_kv": (U32, KV), "attention.layer_norm_rms_epsilon": (F32, 1e-6),
            "rope.freq_base": (F32, 10000.0), "rope.dimension_count": (U32, EMBD // HEADS)}
    pairs = [pair("general.architecture", STR, "llama")] + [pair("llama." + k, *v) for k, v in keys.items()]
    return gguf.write(path, pairs, tensors)


def main():
    for kind in TYPES:
        folder = models.place()
        packed, plain = write(kind, os.path.join(folder, kind + ".gguf")), os.path.join(folder, "f32.gguf")
        done = subprocess.run([sys.argv[1], "convert", packed, "-o", plain, "--type", "f32", "-q"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        models.check(done.returncode == 0, "%s to f32 %s" % (kind, done.stdout.strip()))
        shown = subprocess.run([sys.argv[1], "inspect", packed], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        models.check(kind in shown.lower(), "inspect names %s" % kind)
        models.same_as_model(kind, packed, plain, PROMPT, 2e-6)
    models.finish()


main()
