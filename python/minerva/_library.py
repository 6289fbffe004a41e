"""The C library: where it lies, its functions with their types, and how a status becomes an exception.

ctypes.CDLL releases the GIL in every call, so other Python threads run while the library computes.
"""
from __future__ import annotations

import ctypes
import os
import threading

from . import _abi, errors

HERE = os.path.dirname(os.path.abspath(__file__))
BUNDLED = os.path.join(HERE, "_runtime")  # a wheel has an installation there: bin, lib, share
NAME = "libminerva.so.0"


def path() -> str:
    """The library's file: LIBMINERVA, else the wheel's own, else what the loader finds by name."""
    named = os.environ.get("LIBMINERVA")
    if named:
        return named
    own = os.path.join(BUNDLED, "lib", NAME)
    return own if os.path.exists(own) else NAME


def command() -> str:
    """The command `minerva`: LIBMINERVA_COMMAND, else the wheel's own, else that of PATH."""
    own = os.path.join(BUNDLED, "bin", "minerva")
    return os.environ.get("LIBMINERVA_COMMAND") or (own if os.path.exists(own) else "minerva")


def load() -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL(path())
    except OSError as e:
        raise ImportError("%s cannot be loaded: %s. Install the wheel of minerva-runtime, or name the library in LIBMINERVA" % (path(), e)) from e
    for name, (result, parameters) in _abi.FUNCTIONS.items():
        function = getattr(lib, name, None)
        if function is None:
            raise ImportError("%s has no %s: it is of another version than this package" % (path(), name))
        function.restype, function.argtypes = result, parameters
    return lib


lib = load()


def new_error() -> _abi.mn_error:
    err = _abi.mn_error()
    err.size = ctypes.sizeof(err)
    return err


def new(struct, **fields):
    """A struct whose first field is its size."""
    made = struct(**fields)
    made.size = ctypes.sizeof(struct)
    return made


def check(status: int, err: _abi.mn_error | None = None) -> None:
    """Raises the exception of a status that is not MN_OK."""
    if status:
        message = err.msg.decode("utf-8", "replace") if err is not None else ""
        raise errors.of(status, message, err.part if err is not None else 0)


def call(name: str, *args):
    """lib.NAME(*args, &err), checked."""
    err = new_error()
    check(getattr(lib, name)(*args, ctypes.byref(err)), err)


def to_str(data: bytes) -> _abi.mn_str:
    """Keeps a reference to data as long as the result lives."""
    made = _abi.mn_str(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data))
    made.keep = data
    return made


def text_of(s: _abi.mn_str) -> bytes:
    return ctypes.string_at(s.ptr, s.len) if s.len else b""


def ids_array(ids):
    """int32 [n] of ids."""
    return (ctypes.c_int32 * len(ids))(*ids)


def take_ids(pointer, n) -> list[int]:
    """The n ids that a function returned, as a list; frees them."""
    try:
        return pointer[:n.value] if n.value else []
    finally:
        lib.mn_ids_free(pointer)


class Owned:
    """An object of the library and when it is freed: once it is closed, and everything that was made from it is freed, and no call is in it.

    parent: what it was made from. Python finalises objects of a cycle in any order, and a thread may close a model that another one uses: so the
    order is counted here. Any thread."""

    def __init__(self, value: int, free, parent: Owned | None = None):
        self._value, self._free, self._parent = value, free, parent
        self._users, self._closed, self._lock = 0, False, threading.Lock()
        if parent is not None:
            parent.enter()

    def enter(self) -> int:
        """The handle, which is not freed until leave(). Invalid: it is closed."""
        with self._lock:
            if self._closed:
                raise errors.Invalid("the model is closed")
            self._users += 1
            return self._value

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            done = self._closed and not self._users
        if done:
            self._end()

    def close(self) -> None:
        with self._lock:
            done = not self._closed and not self._users
            self._closed = True
        if done:
            self._end()

    def _end(self) -> None:
        self._free(self._value)
        if self._parent is not None:
            self._parent.leave()

    __enter__ = enter

    def __exit__(self, *_: object) -> None:
        self.leave()

    __del__ = close
