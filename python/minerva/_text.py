"""From ids to text: the parts of an output as they come (Chunk), and the whole of it (Completion)."""
from __future__ import annotations

import collections
import ctypes
import dataclasses
from typing import TYPE_CHECKING, Any, Iterator, Optional

from . import _abi, errors
from ._events import Engine, Event
from ._library import Owned, call, ids_array, lib, text_of, to_str

if TYPE_CHECKING:
    from .model import Model


@dataclasses.dataclass
class TokenLogprob:
    """One generated token. Natural logarithms at temperature 1, behind penalties and bias.

    token: its text, with U+FFFD for bytes that are no whole character; bytes: as they are; top: (id, token, logprob), best first."""

    id: int
    token: str
    bytes: bytes
    logprob: float
    top: list[tuple[int, str, float]]


@dataclasses.dataclass
class ToolCall:
    """A call that the model made. arguments: the text of a JSON object, incomplete only if finish_reason is "length"."""

    name: str
    arguments: str = ""
    id: str = ""


@dataclasses.dataclass
class Chunk:
    """A piece of an output. str() of it is `text`.

    text: of the answer; thinking: of what the model writes before it; call: the number of a tool call, with `name` in its first piece and
    `arguments` in the next; ids: tokens since the piece before; logprobs: the same, if asked for; finish_reason: in the last piece alone:
    "stop", "length" or "tool_calls"."""

    text: str = ""
    thinking: str = ""
    call: Optional[int] = None
    name: str = ""
    arguments: str = ""
    ids: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[TokenLogprob] = dataclasses.field(default_factory=list)
    finish_reason: Optional[str] = None

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass
class Completion:
    """An answer. str() of it is `text`.

    ids: [n] generated ids, the end token included; logprobs: one for each id if they were asked for, else []; parsed: with json_schema= the
    value, an instance of the class if that is one of pydantic, and None if the answer was cut; n_prompt, n_cached: tokens of the prompt, and of
    them those that were computed before; first_s: seconds until the first token; decode_s: from the first to the last; stop: the string of
    stop= that ended it."""

    text: str = ""
    thinking: str = ""
    tool_calls: list[ToolCall] = dataclasses.field(default_factory=list)
    finish_reason: str = ""
    ids: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[TokenLogprob] = dataclasses.field(default_factory=list)
    parsed: Any = None
    n_prompt: int = 0
    n_cached: int = 0
    first_s: float = 0.0
    decode_s: float = 0.0
    stop: Optional[str] = None

    def __str__(self) -> str:
        return self.text

    @property
    def message(self) -> dict:
        """The answer as a message for the next prompt."""
        m: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.thinking:
            m["reasoning_content"] = self.thinking
        if self.tool_calls:
            m["tool_calls"] = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in self.tool_calls]
        return m

    def _add(self, c: Chunk) -> None:
        self.text += c.text
        self.thinking += c.thinking
        if c.call is not None:
            while len(self.tool_calls) <= c.call:
                self.tool_calls.append(ToolCall("", id="call%05d" % len(self.tool_calls)))
            self.tool_calls[c.call].name += c.name
            self.tool_calls[c.call].arguments += c.arguments
        self.ids += c.ids
        self.logprobs += c.logprobs


class Reader:
    """An mn_stream: ids in, (kind, call, text) out. One thread at a time."""

    def __init__(self, model: Owned, flags: int, prompt=(), stop=(), stop_from: int = 0, tools: str = ""):
        out = ctypes.c_void_p()
        with model as handle:
            call("mn_stream_create", handle, flags, ctypes.byref(out))
            self._owned = Owned(out.value, lib.mn_stream_free, model)
        self.handle = out.value
        self._events, self._n = ctypes.POINTER(_abi.mn_stream_event)(), ctypes.c_uint32()
        self._args = (ctypes.byref(self._events), ctypes.byref(self._n), None)
        if tools:
            call("mn_stream_tools", self.handle, to_str(tools.encode()))
        if stop:
            texts = [to_str(s.encode()) for s in stop]
            call("mn_stream_stop", self.handle, (_abi.mn_str * len(texts))(*texts), len(texts))
        if stop and stop_from:
            call("mn_stream_stop_from", self.handle, stop_from)
        if len(prompt):
            lib.mn_stream_prompt(self.handle, ids_array(prompt), len(prompt))

    def _taken(self, status: int) -> list[tuple[int, int, str]]:
        if status:
            raise errors.of(status, "the output cannot be read")
        return [(e.kind, e.call, text_of(e.text).decode("utf-8", "replace")) for e in self._events[:self._n.value]]

    def push(self, token: int) -> list[tuple[int, int, str]]:
        with self._owned as handle:
            return self._taken(lib.mn_stream_push(handle, token, *self._args))

    def finish(self, cut: bool = False) -> list[tuple[int, int, str]]:
        with self._owned as handle:
            if cut:
                lib.mn_stream_cut(handle)
            return self._taken(lib.mn_stream_finish(handle, *self._args))

    def stopped(self) -> int:
        with self._owned as handle:
            return lib.mn_stream_stopped(handle)

    def close(self) -> None:
        self._owned.close()


def chunk_of(kind: int, number: int, text: str) -> Chunk:
    if kind == _abi.MN_EVENT_THINKING:
        return Chunk(thinking=text)
    if kind == _abi.MN_EVENT_CALL:
        return Chunk(call=number, name=text)
    if kind == _abi.MN_EVENT_ARGUMENTS:
        return Chunk(call=number, arguments=text)
    return Chunk(text=text)


class Output:
    """An answer while it is made, without waiting: events in, chunks out. `result` grows; `done` when no event is needed any more."""

    def __init__(self, model: "Model", reader: Optional[Reader], stop=(), parse=None, want_logprobs: bool = False):
        self.model, self.reader, self.stop, self.parse, self.want_logprobs = model, reader, stop, parse, want_logprobs
        self.result, self.done = Completion(), False
        self._ids: list[int] = []  # behind the last chunk
        self._logprobs: list[TokenLogprob] = []
        self._finish = 0

    def feed(self, e: Event) -> list[Chunk]:
        """Raises what the engine reports."""
        if e.error is not None:
            raise e.error
        if e.facts is not None:
            return self._end(e.facts, e.finish) if e.kind == _abi.MN_REQUEST_FINISH else self._begin(e.facts)
        return self._token(e)

    def _begin(self, facts: dict) -> list[Chunk]:
        self.result.n_prompt, self.result.n_cached = facts["n_prompt"], facts["n_cached"]
        return []

    def _token(self, e: Event) -> list[Chunk]:
        self._ids.append(e.id)
        self._finish = e.finish
        if self.want_logprobs:
            self._logprobs.append(self.model._logprob(e.id, e.logprob, e.top))
        if self.reader is None or e.finish == _abi.MN_FINISH_STOP:
            return []
        chunks = [chunk_of(*part) for part in self.reader.push(e.id)]
        if self.reader.stopped():
            return self._last(chunks, "stop")
        return self._taken(chunks)

    def _taken(self, chunks: list[Chunk]) -> list[Chunk]:
        """The first of them has the ids since the last."""
        if chunks:
            chunks[0].ids, chunks[0].logprobs = self._ids, self._logprobs
            self._ids, self._logprobs = [], []
        for c in chunks:
            self.result._add(c)
        return chunks

    def _end(self, facts: dict, finish: int) -> list[Chunk]:
        self.result.first_s, self.result.decode_s = facts["first_s"], facts["decode_s"]
        self.result.n_prompt, self.result.n_cached = facts["n_prompt"], facts["n_cached"]
        if finish == _abi.MN_FINISH_FAILED:
            self.done = True
            raise errors.of(facts["status"], facts["message"] or "the generation failed")
        length = finish == _abi.MN_FINISH_LENGTH
        chunks = [chunk_of(*part) for part in self.reader.finish(length)] if self.reader else []
        return self._last(chunks, {_abi.MN_FINISH_LENGTH: "length", _abi.MN_FINISH_ABORTED: "aborted"}.get(finish, "stop"))

    def _last(self, chunks: list[Chunk], reason: str) -> list[Chunk]:
        chunks.append(Chunk())
        self._taken(chunks)
        if self.reader:
            n = self.reader.stopped()
            self.result.stop = self.stop[n - 1] if n > 0 else None
            self.reader.close()
        if reason == "stop" and self.result.tool_calls:
            reason = "tool_calls"
        chunks[-1].finish_reason = self.result.finish_reason = reason
        if self.parse and reason == "stop":
            self.result.parsed = self.parse(self.result.text)
        self.done = True
        return chunks


class Stream:
    """An answer as an iterator of Chunk; the request runs from the beginning, also beside others. `result` is what there is so far, and the
    whole Completion at the end. close(), leaving a `with`, or dropping it ends the request."""

    def __init__(self, engine: Engine, output: Output, start):
        """start(sink) submits the request and returns its number."""
        self._engine, self._output = engine, output
        self._events: collections.deque[Event] = collections.deque()
        self._chunks: collections.deque[Chunk] = collections.deque()
        self._number: Optional[int] = start(self._events.append)

    @property
    def result(self) -> Completion:
        return self._output.result

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        while not self._chunks:
            if self._number is None:
                raise StopIteration
            try:
                self._chunks.extend(self._output.feed(self._engine.wait(self._events)))
            except BaseException:
                self.close()
                raise
            if self._output.done:
                self.close()
        return self._chunks.popleft()

    def all(self) -> Completion:
        """Waits for the end."""
        for _ in self:
            pass
        return self.result

    def close(self) -> None:
        """Ends the request, if it has not ended."""
        number, self._number = self._number, None
        if number is not None:
            self._engine.abort(number)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_number", None) is not None:
            self.close()
