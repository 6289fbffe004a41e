"""Generations for asyncio: the engine's pump thread puts events into a queue of the loop; nothing here waits in the loop's thread."""
from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, AsyncIterator

from ._text import Chunk, Completion

if TYPE_CHECKING:
    from .model import Model


async def in_thread(function: Any, *args: Any, **options: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, functools.partial(function, *args, **options))


async def _run(model: "Model", prompt: Any, options: dict) -> AsyncIterator[tuple[Any, list[Chunk]]]:
    """(Output, chunks) after each event."""
    loop = asyncio.get_running_loop()
    events: asyncio.Queue = asyncio.Queue()
    engine, output, start = await in_thread(model._prepare, prompt, options)

    def sink(e: Any) -> None:
        try:
            loop.call_soon_threadsafe(events.put_nowait, e)
        except RuntimeError:  # the loop is closed
            pass
    number = start(sink, True)
    try:
        while not output.done:
            yield output, output.feed(await events.get())
    finally:
        engine.abort(number)


async def stream(model: "Model", prompt: Any, options: dict) -> AsyncIterator[Chunk]:
    running = _run(model, prompt, options)
    try:
        async for _, chunks in running:
            for chunk in chunks:
                yield chunk
    finally:
        await running.aclose()


async def whole(model: "Model", prompt: Any, options: dict) -> Completion:
    running = _run(model, prompt, options)
    output = None
    try:
        async for output, _ in running:
            pass
    finally:
        await running.aclose()
    assert output is not None
    return output.result
