"""A session with requests: any thread submits, and whoever waits for an event runs the steps meanwhile.

No thread of its own is needed: a thread that waits takes the lock, calls mn_session_next, and passes every event to the sink of its request; a
thread that finds the lock taken waits for it and then looks into its own queue first. For asyncio, whose thread must not wait, a pump thread runs
while there are requests of this kind.
"""
from __future__ import annotations

import collections
import contextlib
import ctypes
import itertools
import threading
from typing import Callable, NamedTuple, Optional

from . import _abi, errors
from ._library import Owned, call, check, ids_array, lib, new, new_error

WAIT_MS = 200  # between two looks at signals (Ctrl-C)


class Event(NamedTuple):
    """What a sink gets: mn_request_event, as far as it is used here. error: of the engine, instead of all else."""

    kind: int
    id: int = -1
    finish: int = 0
    logprob: float = 0.0
    top: tuple = ()  # (id, logprob), best first
    facts: Optional[dict] = None  # PROMPT and FINISH
    error: Optional[BaseException] = None


Sink = Callable[[Event], None]


def top_of(e) -> tuple:
    return tuple(zip(e.top_ids[:e.n_top], e.top_logprobs[:e.n_top])) if e.n_top else ()


def facts_of(e, n_ids: int) -> dict:
    facts = {"n_prompt": e.n_prompt, "n_cached": e.n_cached, "n_drawn": e.n_drawn}
    if e.kind == _abi.MN_REQUEST_PROMPT and e.prompt_logprobs:
        facts["prompt_logprobs"] = e.prompt_logprobs[:n_ids]
    if e.kind == _abi.MN_REQUEST_FINISH:
        facts.update(queued_s=e.queued_ns / 1e9, prefill_s=e.prefill_ns / 1e9, first_s=e.first_ns / 1e9, decode_s=e.decode_ns / 1e9,
                     status=e.status, message=(e.message or b"").decode("utf-8", "replace"), n_drafted=e.n_drafted, n_accepted=e.n_accepted)
    return facts


class Engine:
    """Owns an mn_session. Any thread; after close() every call is Invalid."""

    def __init__(self, model: Owned, params: _abi.mn_session_params, draft: Optional[Owned] = None):
        handle = ctypes.c_void_p()

        def free(value: int) -> None:
            lib.mn_session_free(value)
            if draft is not None:
                draft.leave()
        with model as m, draft or contextlib.nullcontext():
            call("mn_session_create", m, ctypes.byref(params), ctypes.byref(handle))
            self.session = Owned(handle.value, free, model)
            if draft is not None:
                draft.enter()
        self._lock = threading.Lock()  # who steps
        self._numbers = itertools.count(1)
        self._sinks: dict[int, tuple[Sink, int]] = {}  # number of a request -> sink, ids of the prompt
        self._requests: dict[int, int] = {}  # number -> the library's id
        self._pumped: set[int] = set()  # numbers of requests that the pump thread serves
        self._pump_lock = threading.Lock()
        self._pump: Optional[threading.Thread] = None
        self._events, self._err = new(_abi.mn_request_events), new_error()

    def info(self) -> _abi.mn_session_info:
        out = new(_abi.mn_session_info)
        with self.session as s:
            check(lib.mn_session_get_info(s, ctypes.byref(out)))
        return out

    def submit(self, ids, sample: _abi.mn_sample_params, sink: Sink, flags: int = 0, n_top: int = 0, pumped: bool = False) -> int:
        """Queues a request; the number by which it is aborted. pumped: nobody calls `wait` for it."""
        number, request = next(self._numbers), ctypes.c_uint64()
        array = ids_array(ids)
        params = new(_abi.mn_request_params, flags=flags, sample=ctypes.pointer(sample), ids=array, n_ids=len(ids), n_top=n_top, user=number)
        self._sinks[number] = (sink, len(ids))
        try:
            with self.session as s:
                call("mn_session_submit", s, ctypes.byref(params), ctypes.byref(request))
        except BaseException:
            self._sinks.pop(number, None)
            raise
        self._requests[number] = request.value
        if number not in self._sinks:  # it ended meanwhile
            self._requests.pop(number, None)
        elif pumped:
            self._start_pump(number)
        return number

    def abort(self, number: int) -> None:
        """Ends a request; its sink gets nothing more. An unknown number does nothing."""
        self._sinks.pop(number, None)
        self._pumped.discard(number)
        request = self._requests.pop(number, None)
        if request is not None:
            try:
                with self.session as s:
                    lib.mn_session_abort(s, request)
            except errors.Invalid:
                pass  # closed

    def wait(self, queue: collections.deque) -> Event:
        """The next event of a queue whose `append` is a sink."""
        while not queue:
            with self._lock:
                if not queue:
                    self._step(WAIT_MS)
        return queue.popleft()

    def _step(self, timeout_ms: int) -> None:
        with self.session as s:
            self._take(lib.mn_session_next(s, timeout_ms, ctypes.byref(self._events), ctypes.byref(self._err)))

    def _take(self, status: int) -> None:
        """Passes on the events, which are valid until the next call."""
        events = self._events
        if events.n:
            at = ctypes.cast(events.events, ctypes.c_void_p).value
            for i in range(events.n):
                self._pass_on(_abi.mn_request_event.from_address(at + i * events.stride))
        if status:
            check(status, self._err)

    def _pass_on(self, e) -> None:
        kind, number = e.kind, e.user
        sink, n_ids = self._sinks.get(number, (None, 0))
        if kind == _abi.MN_REQUEST_FINISH:
            self._sinks.pop(number, None)
            self._requests.pop(number, None)
            self._pumped.discard(number)
        if sink is None:
            return
        if kind == _abi.MN_REQUEST_TOKEN:
            sink(Event(kind, e.id, e.finish, e.logprob, top_of(e)))
        else:
            sink(Event(kind, e.id, e.finish, 0.0, (), facts_of(e, n_ids)))

    def _start_pump(self, number: int) -> None:
        with self._pump_lock:
            self._pumped.add(number)
            if self._pump is None:
                self._pump = threading.Thread(target=self._run_pump, name="minerva-pump", daemon=True)
                self._pump.start()

    def _run_pump(self) -> None:
        while True:
            try:
                with self._lock:
                    self._step(WAIT_MS)
            except errors.Error as e:
                for number in list(self._pumped):
                    sink, _ = self._sinks.get(number, (None, 0))
                    self.abort(number)
                    if sink:
                        sink(Event(0, error=e))
            with self._pump_lock:
                if not self._pumped:
                    self._pump = None
                    return

    def close(self) -> None:
        for number in list(self._sinks):
            self.abort(number)
        try:
            with self.session as s:
                lib.mn_session_wake(s)
        except errors.Invalid:
            return
        self.session.close()
        with self._lock:  # whoever was inside has left
            pass
