"""Writes and takes apart GGUF files with the standard library alone."""
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


SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def value_end(raw, at, kind):
    if kind == STR:
        return at + 8 + struct.unpack_from("<Q", raw, at)[0]
    if kind != ARRAY:
        return at + SIZES[kind]
    item, n = struct.unpack_from("<IQ", raw, at)
    at += 12
    for _ in range(n):
        at = value_end(raw, at, item)
    return at


def parts(path, alignment=32):
    """({key: its pair}, [tensors]) as write() accepts them."""
    with open(path, "rb") as f:
        raw = f.read()
    n_tensors, n_pairs = struct.unpack_from("<QQ", raw, 8)
    at, pairs, infos, tensors = 24, {}, [], []
    for _ in range(n_pairs):
        end = value_end(raw, at, STR)
        key = raw[at + 8:end].decode()
        begin, at = at, value_end(raw, end + 4, struct.unpack_from("<I", raw, end)[0])
        pairs[key] = raw[begin:at]
    for _ in range(n_tensors):
        end = value_end(raw, at, STR)
        name, n_dim = raw[at + 8:end].decode(), struct.unpack_from("<I", raw, end)[0]
        shape = struct.unpack_from("<%dQ" % n_dim, raw, end + 4)[::-1]
        kind, offset = struct.unpack_from("<IQ", raw, end + 4 + 8 * n_dim)
        infos.append((name, list(shape), kind, offset))
        at = end + 16 + 8 * n_dim
    data = raw[at + -at % alignment:]
    ends = sorted([offset for _, _, _, offset in infos] + [len(data)])
    for name, shape, kind, offset in infos:
        tensors.append((name, shape, kind, data[offset:ends[ends.index(offset) + 1]]))
    return pairs, tensors
