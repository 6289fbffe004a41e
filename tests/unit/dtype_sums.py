#!/usr/bin/env python3
"""dtype_sums.py: the sums of tests/unit/test_dtype.c for the GGUF types of few bits, by the dequantisers of the Python package gguf. No test needs it: it
makes the numbers once. Blocks are pseudo-random bytes, the same as in the test, the f16 scale finite."""
import gguf.quants
import numpy

MASK = (1 << 64) - 1
BLOCKS = 1024
HIGH = {"IQ1_S": 1, "IQ1_M": 55, "IQ2_XXS": 1, "IQ2_XS": 1, "IQ2_S": 1, "IQ3_XXS": 1, "IQ3_S": 1, "TQ1_0": 53, "TQ2_0": 65, "NVFP4": None, "Q1_0": 1, "Q2_0": 1}  # the upper byte of the scale


def blocks(size, high):
    raw, state = bytearray(BLOCKS * size), 1
    for i in range(len(raw)):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        raw[i] = state >> 56
        if i % size == high:
            raw[i] &= 0xbf
    return numpy.frombuffer(bytes(raw), dtype=numpy.uint8).reshape(BLOCKS, size)


def by_formula(name, raw):
    """Q1_0 and Q2_0, which gguf 0.19 does not read: dequantize_row_* of llama.cpp's ggml-quants.c."""
    d = raw[:, :2].copy().view(numpy.float16).astype(numpy.float32)
    bits = 1 if name == "Q1_0" else 2
    codes = (raw[:, 2:, None] >> numpy.arange(0, 8, bits, dtype=numpy.uint8) & (1 << bits) - 1).reshape(len(raw), -1)
    return d * (2 * codes.astype(numpy.float32) - 1 if bits == 1 else codes.astype(numpy.float32) - 1)


for name, high in HIGH.items():
    if name in ("Q1_0", "Q2_0"):
        values = by_formula(name, blocks(18, high))
    else:
        kind = gguf.GGMLQuantizationType[name]
        values = gguf.quants.dequantize(blocks(gguf.GGML_QUANT_SIZES[kind][1], high), kind)
    sums = 14695981039346656037
    for word in values.astype(numpy.float32).reshape(-1).view(numpy.uint32).tolist():
        sums = (sums ^ word) * 1099511628211 & MASK
    print("{MN_%s, %s, 0x%016x}," % (name, high, sums))
