"""Reads SafeTensors files with the standard library alone."""
import array
import json
import struct
import sys

KIND = {"F32": "f", "I32": "i"}
SIZE = {"F32": 4, "I32": 4, "BF16": 2, "F16": 2}


def header(path):
    """(tensors, offset of the data); tensors: name -> {"dtype", "shape", "data_offsets"}"""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        tensors = json.loads(f.read(n))
    tensors.pop("__metadata__", None)
    return tensors, 8 + n


def read(path, name):
    """(shape, values) of an F32 or I32 tensor; checks that its bytes are those of its shape."""
    tensors, at = header(path)
    t = tensors[name]
    begin, end = t["data_offsets"]
    n = 1
    for d in t["shape"]:
        n *= d
    assert end - begin == n * SIZE[t["dtype"]], (path, name, t)
    values = array.array(KIND[t["dtype"]])
    with open(path, "rb") as f:
        f.seek(at + begin)
        values.frombytes(f.read(end - begin))
    if sys.byteorder == "big":
        values.byteswap()
    assert len(values) == n, (path, name)
    return t["shape"], values


def bf16_as_f32(raw):
    """Bytes of bf16 values as an array of floats."""
    wide = bytearray(2 * len(raw))
    wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
    values = array.array("f")
    values.frombytes(bytes(wide))
    if sys.byteorder == "big":
        values.byteswap()
    return values
