"""The runtime: settings, plugins and devices. Models share one unless they name other settings."""
from __future__ import annotations

import atexit
import ctypes
import logging
import os
import threading
import weakref
from typing import Any, Callable, Iterator, Optional

from . import _abi
from ._library import Owned, call, lib, new

LEVELS = {_abi.MN_LOG_ERROR: logging.ERROR, _abi.MN_LOG_WARN: logging.WARNING, _abi.MN_LOG_INFO: logging.INFO, _abi.MN_LOG_DEBUG: logging.DEBUG}
LOG = dict(_abi.mn_runtime_params._fields_)["log"]


@LOG
def _log(_arg, level, message):
    """Messages of the library are records of the logger "minerva"."""
    try:
        logging.getLogger("minerva").log(LEVELS.get(level, logging.INFO), "%s", ctypes.string_at(message).decode("utf-8", "replace"))
    except Exception:  # a handler of the program's; nothing may leave a callback
        pass


def _rows(query: Callable, owner: Owned, kind: type) -> Iterator[dict]:
    """Elements of a list of the library as dicts."""
    out = kind()
    i = 0
    while True:
        with owner as handle:
            if query(handle, i, ctypes.byref(out)) != _abi.MN_OK:
                return
        yield {name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
               for name, value in ((field[0], getattr(out, field[0])) for field in kind._fields_) if not name.startswith("pad")}
        i += 1


class Runtime:
    """Plugins, devices and settings of this process. Most programs need none of their own: Model takes a shared one.

    settings: keys of minerva.ini (docs/configuration.md), such as {"threads": 4, "plugin_path": "/my/plugins"}; they override every other
    source. Any thread."""

    def __init__(self, settings: Optional[dict[str, Any]] = None):
        pairs = [(str(k).encode(), str(v).encode()) for k, v in (settings or {}).items()]
        self._settings = (_abi.mn_setting * max(len(pairs), 1))(*pairs)
        params = new(_abi.mn_runtime_params, n_settings=len(pairs), settings=self._settings, log=_log)
        out = ctypes.c_void_p()
        call("mn_runtime_create", ctypes.byref(params), ctypes.byref(out))
        self._owned, self._pid = Owned(out.value, lib.mn_runtime_free), os.getpid()
        _open.add(self)

    def devices(self) -> list[dict]:
        """Devices that plugins found: name (for device=), plugin, description, kind, usable, reason, mem_total and mem_free in bytes."""
        return list(_rows(lib.mn_runtime_device, self._owned, _abi.mn_device_item))

    def plugins(self) -> list[dict]:
        """Plugin files found: path, id, kind, status ("ok" or why it was refused), reason, version."""
        return list(_rows(lib.mn_runtime_plugin, self._owned, _abi.mn_plugin_item))

    def config(self) -> list[dict]:
        """Settings: key, value, origin."""
        return list(_rows(lib.mn_runtime_config, self._owned, _abi.mn_config_item))

    def models(self) -> list[dict]:
        """Models that have names on this machine (docs/models.md): name, path, place, bytes."""
        found = ctypes.c_void_p()
        with self._owned as runtime:
            call("mn_model_list", runtime, ctypes.byref(found))
        return _found(found.value)

    def find(self, name: str) -> Optional[dict]:
        """The model that a name means, as in models(); None: it is not on this machine."""
        found = ctypes.c_void_p()
        with self._owned as runtime:
            call("mn_model_find", runtime, name.encode(), ctypes.byref(found))
        return next(iter(_found(found.value)), None)

    def close(self) -> None:
        """Frees it, once its models are closed."""
        _open.discard(self)
        self._owned.close()

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _found(handle: int) -> list[dict]:
    """Takes a mn_found."""
    items: list[dict] = []
    out = new(_abi.mn_found_item)
    while lib.mn_found_get(handle, len(items), ctypes.byref(out)) == _abi.MN_OK:
        items.append({"name": out.name.decode(), "path": out.path.decode(), "place": out.place.decode(), "bytes": out.bytes})
        out = new(_abi.mn_found_item)
    lib.mn_found_free(handle)
    return items


_open: "weakref.WeakSet[Runtime]" = weakref.WeakSet()
_shared: dict[tuple, Runtime] = {}
_lock = threading.Lock()
at_exit: list[Callable[[], None]] = []  # before runtimes are freed


def shared(settings: Optional[dict[str, Any]] = None) -> Runtime:
    """The runtime that all models with equal settings use; it lives until the interpreter ends."""
    key = (os.getpid(), *sorted((str(k), str(v)) for k, v in (settings or {}).items()))
    with _lock:
        if key not in _shared:
            _shared[key] = Runtime(settings)
        return _shared[key]


def _close_all() -> None:
    """While callbacks can still run."""
    for function in at_exit:
        function()
    for runtime in list(_open):
        if runtime._pid == os.getpid():
            runtime.close()


atexit.register(_close_all)
