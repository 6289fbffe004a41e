"""Random bytes of weights for synth.py and synth_folder.py, and the file that several processes write them into.

What makes a tensor's bytes is a function of (rng, size), which returns as many bytes as an array; size is a multiple of the tensor's unit, a block or an
element."""
import multiprocessing

import numpy as np

PART = 64 << 20  # bytes of a tensor that are drawn; the rest repeats them

# blocks of GGUF: number, elements, bytes, then where halves are, each with its factor of the standard deviation that the values shall have
GGUF = {"f32": (0, 1, 4), "f16": (1, 1, 2), "bf16": (30, 1, 2),
        "q4_0": (2, 32, 18, (0, 1 / 4.6)), "q4_1": (3, 32, 20, (0, 1 / 4.6), (2, -7.5 / 4.6)),
        "q5_0": (6, 32, 22, (0, 1 / 9.2)), "q5_1": (7, 32, 24, (0, 1 / 9.2), (2, -15.5 / 9.2)), "q8_0": (8, 32, 34, (0, 1 / 73)),
        "q2_k": (10, 256, 84, (80, 1 / 9), (82, 1.5 / 9)), "q3_k": (11, 256, 110, (108, 1 / 42)),
        "q4_k": (12, 256, 144, (0, 1 / 147), (2, 7.5 / 147)), "q5_k": (13, 256, 176, (0, 1 / 294), (2, 15.5 / 294)),
        "q6_k": (14, 256, 210, (208, 1 / 1370)), "iq4_nl": (20, 32, 18, (0, 1 / 70)), "iq4_xs": (23, 256, 136, (0, 1 / 1300)),
        "iq1_s": (19, 256, 50, (0, 1 / 6)), "iq1_m": (29, 256, 56), "iq2_xxs": (16, 256, 66, (0, 1 / 50)), "iq2_xs": (17, 256, 74, (0, 1 / 50)),
        "iq2_s": (22, 256, 82, (0, 1 / 50)), "iq3_xxs": (18, 256, 98, (0, 1 / 140)), "iq3_s": (21, 256, 110, (0, 1 / 140)),
        "tq1_0": (34, 256, 54, (52, 1 / 0.8)), "tq2_0": (35, 256, 66, (64, 1 / 1.2)), "q1_0": (41, 128, 18, (0, 1)), "q2_0": (42, 64, 18, (0, 1 / 1.2)),
        "mxfp4": (39, 32, 17), "nvfp4": (40, 64, 36)}

F8_DEVIATION = 100.0  # of what is stored in F8, as checkpoints have it: the largest value of a row is 448


def half(x):
    return np.frombuffer(np.float16(x).tobytes(), np.uint8)


def ue4m3(x):
    """The code nearest to x from below 448, whatever x is."""
    exponent = int(np.clip(np.floor(np.log2(x)), -6, 8))
    code = (exponent + 7) * 8 + int(np.round((x / 2.0 ** exponent - 1) * 8))
    return int(np.clip(code, 1, 126))


def blocks(kind, columns, rng, size):
    """Blocks of GGUF with random codes."""
    if kind in ("f32", "f16", "bf16"):
        return values(kind, columns, rng, size)
    deviation = 1 / np.sqrt(columns)
    _, _, width, *halves = GGUF[kind]
    b = rng.integers(0, 256, (size // width, width), dtype=np.uint8)
    for at, factor in halves:
        b[:, at:at + 2] = half(deviation * factor)
    if kind == "mxfp4":  # a power of two for 32 of E2M1, whose deviation is 2.9
        b[:, 0] = int(np.round(np.log2(deviation / 2.9))) + 127
    elif kind == "nvfp4":
        b[:, :4] = ue4m3(deviation / 2.9)
    elif kind == "iq1_m":  # in the upper nibbles of four u16
        raw = half(deviation / 6)
        for i in range(4):
            b[:, 49 + 2 * i] = b[:, 49 + 2 * i] & 15 | (raw[i // 2] >> 4 * (i % 2) & 15) << 4
    return b.reshape(-1)


def values(kind, columns, rng, size):
    """Numbers of the standard deviation 1 / sqrt(columns)."""
    x = rng.standard_normal(size // GGUF[kind][2], dtype=np.float32) * np.float32(1 / np.sqrt(columns))
    if kind == "bf16":
        return (x.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return x.astype(np.float32 if kind == "f32" else np.float16).view(np.uint8)


def ones(rng, size):
    return np.ones(size // 4, np.float32).view(np.uint8)


def minus(rng, size):
    return (-np.exp(rng.uniform(-3, 1, size // 4))).astype(np.float32).view(np.uint8)


def noise(rng, size):
    return rng.integers(0, 256, size, dtype=np.uint8)


def between(low, high, rng, size):
    return rng.integers(low, high, size, dtype=np.uint8)


def f8(rng, size):
    """E4M3 of normal numbers: the upper bits of f16 of 256 times less."""
    bits = np.clip(rng.standard_normal(size, dtype=np.float32) * np.float32(F8_DEVIATION / 256), -1.75, 1.75).astype(np.float16).view(np.uint16)
    return ((((bits & 0x7fff) + 64) >> 7) | (bits >> 8 & 128)).astype(np.uint8)


def constant(kind, value, rng, size):
    """All elements are one value."""
    if kind == "BF16":
        raw = (np.float32([value]).view(np.uint32) >> 16).astype(np.uint16)
    else:
        raw = np.array([value], np.float32 if kind == "F32" else np.uint8)
    return np.tile(raw.view(np.uint8), size // raw.nbytes)


def literal(raw, rng, size):
    return np.frombuffer(raw, np.uint8)


# ---- a file ---------------------------------------------------------------------------------------
def write_tensor(job):
    path, at, size, unit, fill, seed = job
    drawn = min(size, PART // unit * unit)
    data = fill(np.random.default_rng(seed), drawn).tobytes()
    assert len(data) == drawn, (seed, len(data), drawn)
    with open(path, "r+b") as f:
        f.seek(at)
        for done in range(0, size, drawn):
            f.write(data[:min(drawn, size - done)])


def write(path, head, size, work, jobs):
    """head, then size bytes. work: (where behind the head, bytes, bytes of a unit, what makes them, seed) of each tensor."""
    with open(path, "wb") as f:
        f.write(head)
        f.truncate(len(head) + size)
    with multiprocessing.Pool(jobs) as pool:
        for _ in pool.imap_unordered(write_tensor, [(path, len(head) + at, *rest) for at, *rest in work]):
            pass
    print("%s: %.2f GB, %d tensors" % (path, (len(head) + size) / 1e9, len(work)))
