"""Exceptions: one class for each status of the C library that a program treats differently."""
from __future__ import annotations

from . import _abi


class Error(Exception):
    """Any failure of Minerva. `status` is the number of the C library (minerva.h), `name` its name ("BAD_FILE"), `part` the number of the text
    that is wrong, where the call documents it, else 0."""

    status = -1
    name = "ERROR"

    def __init__(self, message: str, status: int | None = None, part: int = 0):
        super().__init__(message)
        self.status = type(self).status if status is None else status
        self.part = part


class Unsupported(Error, NotImplementedError):
    """This model, device or build cannot do what was asked for."""

    status, name = _abi.MN_UNSUPPORTED, "UNSUPPORTED"


class NoDevice(Error):
    """No device can run the model; the message says why, device by device."""

    status, name = _abi.MN_NO_DEVICE, "NO_DEVICE"


class OutOfMemory(Error, MemoryError):
    """Memory of the machine, the device or the KV cache does not suffice."""

    status, name = _abi.MN_OUT_OF_MEMORY, "OUT_OF_MEMORY"


class Timeout(Error, TimeoutError):
    """Something did not happen in time: a rank that did not join, a server that did not start."""

    status, name = _abi.MN_TIMEOUT, "TIMEOUT"


class DeviceLost(Error):
    """The device is gone, and no other one can continue."""

    status, name = _abi.MN_DEVICE_LOST, "DEVICE_LOST"


class Invalid(Error, ValueError):
    """An argument that the library does not accept."""

    status, name = _abi.MN_INVALID, "INVALID"


class Cancelled(Error):
    """The work was cancelled by another thread."""

    status, name = _abi.MN_CANCELLED, "CANCELLED"


class BadFile(Error, ValueError):
    """A file of the model is truncated, corrupt or contradictory."""

    status, name = _abi.MN_BAD_FILE, "BAD_FILE"


class BadInput(Error, ValueError):
    """A text, ids or a setting is wrong: too long for the context, no UTF-8, a grammar that does not parse."""

    status, name = _abi.MN_BAD_INPUT, "BAD_INPUT"


class FileError(Error, OSError):
    """A file is not there or cannot be read or written."""

    status, name = _abi.MN_IO_ERROR, "IO_ERROR"


CLASSES = {c.status: c for c in (Unsupported, NoDevice, OutOfMemory, Timeout, DeviceLost, Invalid, Cancelled, BadFile, BadInput, FileError)}


def of(status: int, message: str, part: int = 0) -> Error:
    """The exception of a status. Codes that a plugin has of its own are Error."""
    return CLASSES.get(status, Error)(message or "status 0x%08x" % (status & 0xffffffff), status, part)
