"""Session: a conversation with its messages, which can be forked."""
from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Iterator, Literal, Sequence, Union, overload

from ._text import Chunk, Completion, Stream

if TYPE_CHECKING:
    from .model import Message, Model


class Session:
    """A conversation. Turns that were computed before stay in the KV cache of the model and are shared: a fork costs a list of messages, and forks
    that answer at the same time run in one batch. When the cache needs room, they are computed again.

    messages: the conversation so far; change it freely. options: of every answer, as for Model.generate. With raw=True it is one text, in `text`,
    that send() appends to. One thread at a time."""

    def __init__(self, model: "Model", messages: Union[str, Sequence["Message"], None] = None, options: Union[dict[str, Any], None] = None):
        self.model, self.options = model, dict(options or {})
        self.raw = bool(self.options.get("raw")) or not (model.has_chat_template or self.options.get("chat_template"))
        self.messages: list["Message"] = []
        self.text = ""
        if isinstance(messages, str):
            self.add(messages, role="system")
        else:
            self.messages = list(messages or ())

    def add(self, content: Union[str, "Message"], *, role: str = "user") -> "Session":
        """Adds a message, a result of a tool (a dict with role "tool"), or with raw text, without an answer."""
        if self.raw:
            self.text += content if isinstance(content, str) else content["content"]
        else:
            self.messages.append({"role": role, "content": content} if isinstance(content, str) else content)
        return self

    @overload
    def send(self, content: Union[str, "Message", None] = None, *, stream: Literal[False] = False, **options: Any) -> Completion: ...

    @overload
    def send(self, content: Union[str, "Message", None] = None, *, stream: Literal[True], **options: Any) -> Iterator[Chunk]: ...

    def send(self, content: Union[str, "Message", None] = None, *, stream: bool = False, **options: Any) -> Union[Completion, Iterator[Chunk]]:
        """Adds a user turn (None: nothing) and answers; the answer is added when it has ended. With stream=True an iterator of Chunk."""
        if content is not None:
            self.add(content)
        given = {**self.options, **options, "raw": self.raw}
        running = self.model.generate(self.text if self.raw else self.messages, stream=True, **given)
        return self._stream(running) if stream else self._keep(running.all())

    def _stream(self, running: Stream) -> Iterator[Chunk]:
        with running:
            yield from running
            self._keep(running.result)

    def _keep(self, result: Completion) -> Completion:
        if self.raw:
            self.text += result.text
        else:
            self.messages.append(result.message)
        return result

    def fork(self) -> "Session":
        """A copy that continues by itself."""
        other = Session(self.model, copy.deepcopy(self.messages), self.options)
        other.text = self.text
        return other
