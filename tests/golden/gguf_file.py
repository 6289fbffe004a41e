"""Writes GGUF files with the standard library alone."""
import struct

U32, I32, F32, BOOL, STR, ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_MXFP4 = 0, 1, 30, 39


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    if kind == STR:
        return text(v)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def pair(key, kind, v):
    return text(key) + struct.pack("<I", kind) + value(kind, v)


def array(key, kind, items):
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(value(kind, v) for v in items)


def write(path, pairs, tensors, version=3, alignment=32):
    """tensors: (name, shape, type, bytes), the shape outermost first. A number instead of bytes: so many that are a hole in the file."""
    infos, data, at = b"", [], 0
    tensors = list(tensors)
    for name, shape, kind, raw in tensors:
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack("<%dQ" % len(shape), *shape[::-1]) + struct.pack("<IQ", kind, at)
        size = raw if isinstance(raw, int) else len(raw)
        data.append((at, b"" if isinstance(raw, int) else raw))
        at += size + -size % alignment
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs) + infos
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % alignment))
        begin = f.tell()
        for offset, raw in data:
            f.seek(begin + offset)
            f.write(raw)
        f.truncate(begin + at)
    return path
