"""`minerva serve` as a context manager."""
from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
from typing import Any, Optional, Union

from . import errors
from ._library import command

START_S = 600  # a large model on a slow disk


class Server:
    """A server with OpenAI's interface (docs/serving.md) in a process of its own, from the beginning of the object to close() or the end of its
    `with`. url: "http://127.0.0.1:PORT"; openai_url: the same with /v1."""

    def __init__(self, model: Union[str, os.PathLike, None], flags: dict[str, Any], start_s: float = START_S):
        words = [command(), "serve"] + (["-m", os.fspath(model)] if model is not None else [])
        for name, value in {"port": 0, **flags}.items():
            flag = "--" + name.replace("_", "-")
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if one is not None and one is not False:
                    words += [flag] if one is True else [flag, str(one)]
        try:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        except OSError as e:
            raise errors.FileError("%s cannot be started: %s. LIBMINERVA_COMMAND names the command" % (words[0], e)) from e
        self.messages: list[str] = []  # of its standard error
        self._lines: "queue.Queue[Optional[str]]" = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self._errors = threading.Thread(target=self._read_errors, daemon=True)
        self._errors.start()
        try:
            self.url = self._wait(start_s)
        except BaseException:
            self.close()
            raise
        self.openai_url = self.url + "/v1"

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        for line in self.process.stderr or ():
            self.messages = self.messages[-99:] + [line.rstrip("\n")]

    def _wait(self, start_s: float) -> str:
        """The URL, which is printed once the model is ready."""
        try:
            line = self._lines.get(timeout=start_s)
        except queue.Empty:
            raise errors.Timeout("the server did not start within %g s" % start_s) from None
        found = re.search(r"https?://\S+", line or "")
        if not found:
            self.process.wait()
            self._errors.join(10)  # what it said is read by then, unless a child of it holds the pipe
            raise errors.Error("the server did not start: " + "\n".join(self.messages[-10:]))
        return found.group()

    def close(self) -> None:
        """Ends it; answers that run get 30 s (flag drain)."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(model: Union[str, os.PathLike, None] = None, **flags: Any) -> Server:
    """`minerva serve -m MODEL` with its flags as arguments: port (default: any that is free), parallel, api_key, ...; True for a flag without a
    value, a list for several values.

    with minerva.serve("model.gguf", parallel=4) as server:
        client = openai.OpenAI(base_url=server.openai_url, api_key="none")
    """
    return Server(model, flags)
