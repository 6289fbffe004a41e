#!/usr/bin/env python3
"""dtype_sums.py: the sums of tests/unit/test_dtype.c for the GGUF types of few bits, by the dequantisers of the Python package gguf. No test needs it: it
makes the numbers once. Blocks are pseudo-random bytes, the same as in the test, the f16 scale finite."""
import gguf.quants
import numpy

MASK = (1 << 64) - 1
BLOCKS = 1024
HIGH = {"IQ1_S": 1, "IQ1_M": 55, "IQ2_XXS": 1, "IQ2_XS": 1, "IQ2_S": 1, "IQ3_XXS": 1, "IQ3_S": 1, "TQ1_0": 53, "TQ2_0": 65}  # the upper byte of the scale


def blocks(size, high):
    raw, state = bytearray(BLOCKS * size), 1
    for i in range(len(raw)):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        raw[i] = state >> 56
        if i % size == high:
            raw[i] &= 0xbf
    return numpy.frombuffer(bytes(raw), dtype=numpy.uint8).reshape(BLOCKS, size)


for name, high in HIGH.items():
    kind = gguf.GGMLQuantizationType[name]
    values = gguf.quants.dequantize(blocks(gguf.GGML_QUANT_SIZES[kind][1], high), kind)
    sums = 14695981039346656037
    for word in values.astype(numpy.float32).reshape(-1).view(numpy.uint32).tolist():
        sums = (sums ^ word) * 1099511628211 & MASK
    print("{MN_%s, %d, 0x%016x}," % (name, high, sums))
