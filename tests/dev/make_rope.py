#!/usr/bin/env python3
"""Makes tests/unit/test_rope_data.h: angles of rotary embeddings, by the formulas of Transformers' modeling_rope_utils in f64.

usage: make_rope.py | clang-format-14 --assume-filename=tests/a.h > tests/unit/test_rope_data.h

Needs nothing but Python. The rows are the published settings of models whose heads have 64 dimensions or more: there the ramps of YaRN and
Llama 3 have several pairs inside, and a limit that is one pair off shows."""
import math


def plain(dim, theta):
    return [theta ** (-2 * i / dim) for i in range(dim // 2)]


def linear(dim, theta, factor):
    return [f / factor for f in plain(dim, theta)], 1.0


def llama3(dim, theta, factor, orig, low, high):
    out = []
    for freq in plain(dim, theta):
        wavelength = 2 * math.pi / freq
        smooth = (orig / wavelength - low) / (high - low)
        if wavelength < orig / high:
            out.append(freq)
        elif wavelength > orig / low:
            out.append(freq / factor)
        else:
            out.append((1 - smooth) * freq / factor + smooth * freq)
    return out, 1.0


def yarn(dim, theta, factor, orig, beta_fast=32, beta_slow=1, truncate=True):
    def correction_dim(turns):
        return dim * math.log(orig / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = correction_dim(beta_fast), correction_dim(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    out = []
    for i, freq in enumerate(plain(dim, theta)):
        extrapolated = 1 - min(max((i - low) / (high - low), 0), 1)
        out.append(freq / factor * (1 - extrapolated) + freq * extrapolated)
    return out, 0.1 * math.log(factor) + 1 if factor > 1 else 1.0


def longrope(dim, theta, orig, length, factors):
    ratio = length / orig
    magnitude = math.sqrt(1 + math.log(ratio) / math.log(orig)) if ratio > 1 else 1.0
    return [f / by for f, by in zip(plain(dim, theta), factors)], magnitude


def row(name, kind, dim, theta, result, **fields):
    freqs, magnitude = result
    print("static const double %s[] = {" % name)
    for at in range(0, len(freqs), 6):
        print("    " + " ".join("%.9g," % f for f in freqs[at:at + 6]))
    print("};")
    values = ["MN_ROPE_SCALING_" + kind, str(dim), repr(float(theta)), "%.15g" % magnitude, name]
    values += [".%s = %s" % (key, str(value).lower()) for key, value in fields.items()]
    return "    {%s}," % ", ".join(['"%s"' % name] + values)


def main():
    print("/* test_rope_data.h -- made by tests/dev/make_rope.py, which says where the numbers come from. */")
    print("#ifndef TEST_ROPE_DATA_H\n#define TEST_ROPE_DATA_H\n#include \"model/model.h\"\n")
    print("enum { MAX_FACTORS = 48 };")
    print("typedef struct {\n    const char *name;\n    uint32_t scaling;\n    int64_t n_rot;\n    double theta, mscale;\n"
          "    const double *freqs; /* [n_rot / 2] */\n    double factor, low, high, beta_fast, beta_slow;\n    bool truncate;\n"
          "    int64_t orig, length;\n    float by[MAX_FACTORS]; /* 0 = none */\n} rope_row;\n")
    by = [1 + 0.25 * i for i in range(48)]
    fast = dict(beta_fast=32, beta_slow=1)
    print("// clang-format off")
    rows = [
        row("plain_128", "NONE", 128, 1e6, (plain(128, 1e6), 1.0), factor=8),
        row("linear_80", "LINEAR", 80, 1e4, linear(80, 1e4, 2.5), factor=2.5),
        row("llama3_128", "LLAMA3", 128, 5e5, llama3(128, 5e5, 8, 8192, 1, 4), factor=8, low=1, high=4, orig=8192),
        row("llama3_64", "LLAMA3", 64, 5e5, llama3(64, 5e5, 32, 8192, 1, 4), factor=32, low=1, high=4, orig=8192),
        row("yarn_64", "YARN", 64, 1e4, yarn(64, 1e4, 16, 4096), factor=16, orig=4096, truncate=True, **fast),
        row("yarn_128", "YARN", 128, 1e6, yarn(128, 1e6, 4, 32768), factor=4, orig=32768, truncate=True, **fast),
        row("yarn_exact_64", "YARN", 64, 150000, yarn(64, 150000, 32, 4096, truncate=False), factor=32, orig=4096, truncate=False, **fast),
        row("yarn_steep_96", "YARN", 96, 1e4, yarn(96, 1e4, 4, 2048, 2, 1.9), factor=4, orig=2048, truncate=True, beta_fast=2, beta_slow=1.9),
        row("yarn_wide_64", "YARN", 64, 100, yarn(64, 100, 4, 65536, 65536, 0.25), factor=4, orig=65536, truncate=True, beta_fast=65536, beta_slow=0.25),
        row("longrope_96", "LONGROPE", 96, 1e4, longrope(96, 1e4, 4096, 131072, by), orig=4096, length=131072, factor=1,
            by="{%s}" % ", ".join("%g" % f for f in by)),
    ]
    print("// clang-format on\n\nstatic const rope_row rope_rows[] = {")
    print("\n".join(rows))
    print("};\n#endif")


main()
