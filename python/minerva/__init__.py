"""Minerva: transformer language models on CPUs and accelerators.

    import minerva
    model = minerva.Model("model.gguf")                # None: the demo model
    print(model.generate("Tell me a story."))
    for chunk in model.generate("And another.", stream=True):
        print(chunk, end="", flush=True)

Model has the rest; docs/python.md shows it. `minerva.llama_cpp` is a facade of llama-cpp-python.
"""
from ._library import lib as _lib
from ._text import Chunk, Completion, Stream, TokenLogprob, ToolCall
from .errors import (BadFile, BadInput, Cancelled, DeviceLost, Error, FileError, Invalid, NoDevice, OutOfMemory, Timeout, Unsupported)
from .model import Model, Ranked
from .runtime import Runtime
from .server import Server, serve
from .session import Session

__version__ = _lib.mn_version().decode()
__all__ = ["Model", "Session", "Runtime", "Server", "serve", "Completion", "Chunk", "Stream", "TokenLogprob", "ToolCall", "Ranked", "Error", "BadFile",
           "BadInput", "Cancelled", "DeviceLost", "FileError", "Invalid", "NoDevice", "OutOfMemory", "Timeout", "Unsupported"]
