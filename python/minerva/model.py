"""Model: a model that is open, with everything that it can be asked for."""
from __future__ import annotations

import asyncio
import collections
import ctypes
import dataclasses
import json
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Iterable, Iterator, Literal, Optional, Sequence, Union, overload

from . import _abi, _aio, errors
from ._events import Engine
from ._library import Owned, call, check, ids_array, lib, new, take_ids, text_of, to_str
from ._options import CONSTRAINTS, Constraints, call_constraint, check_names, form_of, is_pydantic, sample_params, tool_list
from ._text import Chunk, Completion, Output, Reader, Stream, TokenLogprob
from .runtime import Runtime, at_exit, shared

if TYPE_CHECKING:
    import numpy

    from .server import Server
    from .session import Session

Message = dict[str, Any]
Prompt = Union[str, Sequence[Message], Sequence[int]]
PRECISIONS = {"auto": _abi.MN_PRECISION_AUTO, "exact": _abi.MN_PRECISION_EXACT, "a16": _abi.MN_PRECISION_A16, "a8": _abi.MN_PRECISION_A8}
KV_TYPES = {"auto": 0, "f32": _abi.MN_F32, "f16": _abi.MN_F16, "q8_0": _abi.MN_Q8_0}
POOLING = {None: _abi.MN_POOLING_DEFAULT, "mean": _abi.MN_POOLING_MEAN, "cls": _abi.MN_POOLING_CLS, "last": _abi.MN_POOLING_LAST}
NORM = {None: _abi.MN_NORM_DEFAULT, True: _abi.MN_NORM_L2, False: _abi.MN_NORM_NONE}
REQUEST = ("stop", "logprobs", "tools", "tool_choice", "parallel_tool_calls", "system", "raw", "special", "chat_template", "template_vars",
           "continue_last") + CONSTRAINTS


def _choice(name: str, table: dict, value: Any) -> int:
    if value not in table:
        raise errors.Invalid("%s: found %r, expected one of %s" % (name, value, ", ".join(map(repr, table))))
    return table[value]


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as e:
        raise ImportError("this returns a numpy array, and numpy is not installed: pip install numpy") from e
    return numpy


@dataclasses.dataclass
class Ranked:
    """A text that rerank() scored. index: of the text among those that were given, from 0 on; score: how well it answers the query."""

    index: int
    score: float
    text: str


class Model:
    """A model: a GGUF file, a folder in Hugging Face layout, an MLX folder, or a name (docs/models.md); None is the demo model.

    device: "auto", "cpu", "cuda:0", a list such as "cuda:0,cpu" (docs/devices.md). context: tokens per sequence, 0 = what the model was trained
    for, at most 4096. parallel: generations at once; more wait. threads: 0 = one for each processor. precision: "auto", "exact", "a16", "a8".
    kv_type: "auto", "f32", "f16", "q8_0". kv_bytes: memory of the KV cache, 0 = room for all sequences. batch: tokens per step, 0 = chosen.
    draft: a smaller Model of the same vocabulary and runtime for speculative decoding, or "mtp": the model's own draft head (draft_head says whether
    it has one); lookup: drafts from the text itself. adapters: LoRA adapters by name, each a path, (path, scale) or a list of these, whose sum it is;
    adapter_room: how many may be loaded at once, and the largest rank (0: as `adapters` need). settings: further keys of minerva.ini, such as
    {"plugin_path": "/my/plugins"}.

    path: the file or folder; arch: "llama", "qwen3", ...; n_vocab: the length of a row of logits; n_embd: that of an embedding; n_context_trained:
    positions that it was trained for, 0 = unknown; has_chat_template; is_encoder: it embeds and generates nothing (BERT, XLM-R); is_reranker: it has
    rerank().

    Opening checks the files; weights are read by the first call that computes, or by load(). Any thread may call any method; calls of several
    threads run in one batch, and the GIL is released while the library computes. close(), a `with`, or the last reference frees everything."""

    path: str
    arch: str
    n_vocab: int
    n_embd: int
    n_context_trained: int
    has_chat_template: bool
    is_encoder: bool
    is_reranker: bool
    draft_head: bool
    runtime: Runtime

    def __init__(self, path: Union[str, os.PathLike, None] = None, *, device: str = "auto", context: int = 0, parallel: int = 8, threads: int = 0,
                 precision: str = "auto", kv_type: str = "auto", kv_bytes: int = 0, batch: int = 0, draft: Union["Model", str, None] = None,
                 lookup: bool = False, adapters: Optional[dict[str, Any]] = None, adapter_room: tuple[int, int] = (0, 0),
                 settings: Optional[dict[str, Any]] = None, runtime: Optional[Runtime] = None):
        settings = dict(settings or {}, **({"threads": threads} if threads else {}))
        if runtime and settings:
            raise errors.Invalid("runtime beside threads or settings: found both, expected one")
        if isinstance(draft, str) and draft != "mtp":
            raise errors.Invalid("draft: found %r, expected a Model or \"mtp\"" % draft)
        speculate = (_abi.MN_SPECULATE_LOOKUP if lookup else 0) | (_abi.MN_SPECULATE_HEAD if isinstance(draft, str) else 0)
        draft = None if isinstance(draft, str) else draft
        self.runtime = runtime or (draft.runtime if draft and not settings else shared(settings))
        self._params = new(_abi.mn_session_params, n_ctx=context, n_seq=parallel, n_batch=batch, precision=_choice("precision", PRECISIONS, precision),
                           device=device.encode(), k_dtype=_choice("kv_type", KV_TYPES, kv_type), v_dtype=_choice("kv_type", KV_TYPES, kv_type),
                           kv_bytes=kv_bytes, speculate=speculate, draft=draft._owned._value if draft else None)
        self._draft, self._lock = draft, threading.RLock()
        self._engine: Optional[Engine] = None
        self._others: dict[int, Owned] = {}  # flags of a session -> the session, for embeddings and logits
        self._computes = threading.Lock()  # one thread at a time uses one of them
        out = ctypes.c_void_p()
        with self.runtime._owned as owner:
            call("mn_model_open", owner, None if path is None else os.fspath(path).encode(), ctypes.byref(out))
            self._owned, self._pid = Owned(out.value, lib.mn_model_free, self.runtime._owned), os.getpid()
        self._constraints = Constraints(self._owned)
        info = new(_abi.mn_model_info)
        check(lib.mn_model_get_info(out.value, ctypes.byref(info)))
        self.path, self.arch = info.path.decode(), info.arch.decode()
        self.n_vocab, self.n_embd, self.n_context_trained = info.n_vocab, info.n_embd, info.n_ctx_train
        self.has_chat_template, self._has_tokenizer = bool(info.has_chat_template), bool(info.has_tokenizer)
        self.is_encoder, self.is_reranker = bool(info.is_encoder), bool(info.is_reranker)
        self.draft_head = bool(info.draft_head)
        if any(adapter_room):
            room = new(_abi.mn_adapter_room, n_adapters=adapter_room[0], rank=adapter_room[1])
            call("mn_model_set_adapter_room", out.value, ctypes.byref(room))
        for name, files in (adapters or {}).items():
            self.load_adapter(name, files)
        _open.add(self)

    # ---- adapters --------------------------------------------------------------------------------------------------

    def load_adapter(self, name: str, files: Any) -> None:
        """A LoRA adapter under a name, which the option `adapter` of a generation takes: a path, (path, scale), or a list of these, whose sum it is. A model
        that has computed without an adapter has no room for one but that of adapter_room."""
        sources = [(f, 1.0) if isinstance(f, (str, os.PathLike)) else f for f in (files if isinstance(files, list) else [files])]
        made = (_abi.mn_adapter_source * len(sources))(*((os.fspath(path).encode(), scale, 0) for path, scale in sources))
        with self._owned as model:
            call("mn_model_load_adapter", model, name.encode(), made, len(made))

    def unload_adapter(self, name: str) -> None:
        """Nobody finds it any more; generations that use it go on."""
        with self._owned as model:
            call("mn_model_unload_adapter", model, name.encode())

    @property
    def adapters(self) -> dict[str, str]:
        """The adapters that are loaded: name -> the path of its first file."""
        found: dict[str, str] = {}
        item = new(_abi.mn_adapter_item)
        with self._owned as model:
            while lib.mn_model_adapter(model, len(found), ctypes.byref(item)) == _abi.MN_OK:
                found[item.name.decode()] = item.path.decode()
        return found

    # ---- what it is ------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> dict[str, Any]:
        """Numbers, truth values and texts of the model's files by their keys, without lists."""
        found: dict[str, Any] = {}
        key, value, i = _abi.mn_str(), new(_abi.mn_value), 0
        with self._owned as model:
            while lib.mn_model_meta(model, i, ctypes.byref(key), ctypes.byref(value)) == _abi.MN_OK:
                i += 1
                if value.type < _abi.MN_VALUE_ARRAY:
                    found[text_of(key).decode("utf-8", "replace")] = {
                        _abi.MN_VALUE_FLOAT: value.f, _abi.MN_VALUE_BOOL: bool(value.i),
                        _abi.MN_VALUE_STR: text_of(value.s).decode("utf-8", "replace")}.get(value.type, value.i)
        return found

    @property
    def labels(self) -> list[str]:
        """Names of the labels of a head that classifies ("" where the files have none), for rerank(label=...); [] of a reranker and of other models."""
        found, name = [], _abi.mn_str()
        with self._owned as model:
            while lib.mn_model_label(model, len(found), ctypes.byref(name)) == _abi.MN_OK:
                found.append(text_of(name).decode("utf-8", "replace"))
        return found

    def load(self) -> dict[str, Any]:
        """Chooses the device and reads the weights, if no call did yet. device, why (a sentence), context, parallel, threads, and bytes of weights
        and KV cache."""
        info = self._requests().info()
        return {"device": info.device.decode(), "why": info.why.decode(), "context": info.n_ctx, "parallel": info.n_seq, "threads": info.threads,
                "weight_bytes": info.weight_bytes, "kv_bytes": info.kv_bytes, "speculation": info.speculation.decode()}

    def _requests(self) -> Engine:
        engine = self._engine
        if engine is None:
            with self._lock:
                if self._engine is None:
                    self._engine = Engine(self._owned, self._params, self._draft._owned if self._draft else None)
                engine = self._engine
        return engine

    # ---- text and ids ----------------------------------------------------------------------------------------------

    def tokenize(self, text: str, *, add_special: bool = True, special: bool = False) -> list[int]:
        """Ids of a text. add_special: with the special tokens that the tokeniser puts around a text (BOS); special: special tokens written in the
        text become ids."""
        flags = (_abi.MN_TEXT_ADD_SPECIAL if add_special else 0) | (_abi.MN_TEXT_PARSE_SPECIAL if special else 0)
        ids, n = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_uint32()
        with self._owned as model:
            call("mn_model_tokenize", model, to_str(text.encode()), flags, ctypes.byref(ids), ctypes.byref(n))
        return take_ids(ids, n)

    def detokenize(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of ids: the inverse of tokenize. special: special tokens are their names instead of nothing."""
        reader = Reader(self._owned, _abi.MN_STREAM_PLAIN | (_abi.MN_STREAM_SPECIAL if special else 0))
        try:
            return "".join(text for parts in ([reader.push(i) for i in ids], [reader.finish()]) for part in parts for _, _, text in part)
        finally:
            reader.close()

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token stands for; b"" = there is no such id."""
        with self._owned as model:
            return text_of(lib.mn_model_token_text(model, token))

    def is_end(self, token: int) -> bool:
        """Whether a token ends a generation."""
        with self._owned as model:
            return bool(lib.mn_model_is_stop(model, token))

    def apply_chat_template(self, messages: Sequence[Message], *, tools: Optional[Sequence[Any]] = None, chat_template: Optional[str] = None,
                            template_vars: Optional[dict] = None, continue_last: bool = False) -> list[int]:
        """Ids of messages and the header of the answer, by the model's chat template or another one: its source, or the name of a common one
        ("chatml"). template_vars: further variables ({"enable_thinking": False}). continue_last: the output continues the last message."""
        params = new(_abi.mn_chat_params)
        history, listed, variables = (to_str(text.encode()) for text in (
            json.dumps(list(messages)), json.dumps(tool_list(tools)) if tools else "", json.dumps(template_vars) if template_vars else ""))
        params.history, params.tools, params.vars = history, listed, variables
        if chat_template is not None:
            params.chat_template = chat_template.encode()
            params.flags |= 0 if "{" in chat_template else _abi.MN_CHAT_NAMED
        params.flags |= _abi.MN_CHAT_CONTINUE if continue_last else 0
        ids, n = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_uint32()
        with self._owned as model:
            call("mn_model_chat_with", model, ctypes.byref(params), ctypes.byref(ids), ctypes.byref(n))
        return take_ids(ids, n)

    def _prompt(self, prompt: Prompt, o: dict[str, Any]) -> list[int]:
        """Ids of a prompt in any of its forms."""
        if isinstance(prompt, str) and (o.get("raw") or not (self.has_chat_template or o.get("chat_template"))):
            return self.tokenize(prompt, special=bool(o.get("special")))
        if not isinstance(prompt, str) and len(prompt) and isinstance(prompt[0], int):
            return list(prompt)  # type: ignore[arg-type]
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)  # type: ignore[arg-type]
        if o.get("system"):
            messages.insert(0, {"role": "system", "content": o["system"]})
        tools = o.get("tools") if o.get("tool_choice", "auto") != "none" else None
        return self.apply_chat_template(messages, tools=tools, chat_template=o.get("chat_template"), template_vars=o.get("template_vars"),
                                        continue_last=bool(o.get("continue_last")))

    def _logprob(self, token: int, logprob: float, top: Iterable[tuple[int, float]]) -> TokenLogprob:
        data = self.token_bytes(token)
        return TokenLogprob(token, data.decode("utf-8", "replace"), data, logprob,
                            [(i, self.token_bytes(i).decode("utf-8", "replace"), p) for i, p in top])

    # ---- generation ------------------------------------------------------------------------------------------------

    def _prepare(self, prompt: Prompt, o: dict[str, Any]):
        """(Output, start(sink, pumped)) of a generation; start submits it."""
        check_names(o, REQUEST)
        stop = [o["stop"]] if isinstance(o.get("stop"), str) else list(o.get("stop") or ())
        choice = o.get("tool_choice") or "auto"
        tools = tool_list(o.get("tools")) if choice != "none" else []
        asked = form_of(o) or (call_constraint(tools, choice, o.get("parallel_tool_calls", True)) if tools else None)
        constraint = self._constraints.get(*asked) if asked else None
        sample = sample_params(self._owned, o, constraint)
        ids = self._prompt(prompt, o)
        flags = _abi.MN_STREAM_CONTINUE | (_abi.MN_STREAM_PLAIN if o.get("raw") else 0)
        if tools:
            flags |= _abi.MN_STREAM_TOOLS | (0 if o.get("parallel_tool_calls", True) else _abi.MN_STREAM_ONE_CALL)
            flags |= _abi.MN_STREAM_CALLS_ONLY if asked and asked[2] & _abi.MN_CONSTRAINT_CALLS_ONLY else 0
        reader = None
        if self._has_tokenizer:
            reader = Reader(self._owned, flags, ids, stop, int(o.get("min_tokens") or 0), json.dumps(tools) if tools else "")
        n_top = o.get("logprobs")
        wanted = n_top is not None and n_top is not False
        output = Output(self, reader, stop, _parser(o), wanted)
        engine = self._requests()

        def start(sink: Any, pumped: bool = False) -> int:
            return engine.submit(ids, sample, sink, _abi.MN_SUBMIT_LOGPROBS if wanted else 0, int(n_top or 0), pumped)
        return engine, output, start

    @overload
    def generate(self, prompt: Prompt, *, stream: Literal[False] = False, **options: Any) -> Completion: ...

    @overload
    def generate(self, prompt: Prompt, *, stream: Literal[True], **options: Any) -> Stream: ...

    def generate(self, prompt: Prompt, *, stream: bool = False, **options: Any) -> Union[Completion, Stream]:
        """Answers a prompt: a str (a user turn if the model has a chat template, else plain text), a list of messages
        ({"role": ..., "content": ...}), or a list of ids. A Completion, or with stream=True an iterator of Chunk.

        Prompt: system (a text), raw (no chat template, and all output is text), special (with raw: special tokens in the text become ids),
        chat_template, template_vars, continue_last. Sampling, by default the model's own recommendation: temperature, top_k, top_p, min_p,
        typical_p, top_n_sigma, repeat_penalty, repeat_last_n, frequency_penalty, presence_penalty, dry_*, xtc_*, dynatemp_*, mirostat*,
        samplers (their order), logit_bias ({id: bias}), seed. End: max_tokens (None: until the model ends or the context is full), min_tokens,
        stop (a text or several), stop_ids, ignore_eos. Form, one of: json_schema (a dict, its text, or a class of pydantic: `parsed` is then an
        instance), grammar (GBNF), regex, choices (texts), json=True. Tools: tools (dicts as OpenAI writes them, or classes of pydantic),
        tool_choice ("auto", "none", "required", a name), parallel_tool_calls. logprobs: how many of the most likely tokens, 0 to 20; True = 0.

        Raises BadInput if the prompt does not fit into the context, and the other classes of minerva.errors."""
        engine, output, start = self._prepare(prompt, options)
        running = Stream(engine, output, start)
        return running if stream else running.all()

    @overload
    def chat(self, messages: Union[str, Sequence[Message]], *, stream: Literal[False] = False, **options: Any) -> Completion: ...

    @overload
    def chat(self, messages: Union[str, Sequence[Message]], *, stream: Literal[True], **options: Any) -> Stream: ...

    def chat(self, messages: Union[str, Sequence[Message]], *, stream: bool = False, **options: Any) -> Union[Completion, Stream]:
        """generate() for messages; `message` of the answer is what to append for the next turn. Session keeps messages itself."""
        given: Sequence[Message] = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return self.generate(given, stream=stream, **options)  # type: ignore[call-overload]

    def batch(self, prompts: Iterable[Union[Prompt, dict]], **options: Any) -> list[Completion]:
        """Answers many prompts at once, `parallel` in each step. A prompt is as in generate(), or a dict with "prompt" and options of its own.
        Completions in the order of the prompts."""
        running = [Stream(*self._prepare(*_own(p, options))) for p in prompts]
        try:
            return [s.all() for s in running]
        finally:
            for s in running:
                s.close()

    def batch_stream(self, prompts: Iterable[Union[Prompt, dict]], **options: Any) -> Iterator[tuple[int, Any]]:
        """The same as an iterator of (index of the prompt, Chunk) in the order in which they are made."""
        events: collections.deque = collections.deque()
        outputs, numbers, engine = [], [], self._requests()
        try:
            for i, p in enumerate(prompts):
                engine, output, start = self._prepare(*_own(p, options))
                outputs.append(output)
                numbers.append(start(lambda e, i=i: events.append((i, e))))
            while not all(output.done for output in outputs):
                i, e = engine.wait(events)
                if not outputs[i].done:
                    for chunk in outputs[i].feed(e):
                        yield i, chunk
                    if outputs[i].done:
                        engine.abort(numbers[i])
        finally:
            for number in numbers:
                engine.abort(number)

    @overload
    def agenerate(self, prompt: Prompt, *, stream: Literal[False] = False, **options: Any) -> Awaitable[Completion]: ...

    @overload
    def agenerate(self, prompt: Prompt, *, stream: Literal[True], **options: Any) -> AsyncIterator[Chunk]: ...

    def agenerate(self, prompt: Prompt, *, stream: bool = False, **options: Any) -> Union[Awaitable[Completion], AsyncIterator[Chunk]]:
        """generate() for asyncio: `await` it, or with stream=True `async for chunk in` it."""
        return _aio.stream(self, prompt, options) if stream else _aio.whole(self, prompt, options)

    @overload
    def achat(self, messages: Union[str, Sequence[Message]], *, stream: Literal[False] = False, **options: Any) -> Awaitable[Completion]: ...

    @overload
    def achat(self, messages: Union[str, Sequence[Message]], *, stream: Literal[True], **options: Any) -> AsyncIterator[Chunk]: ...

    def achat(self, messages: Union[str, Sequence[Message]], *, stream: bool = False,
              **options: Any) -> Union[Awaitable[Completion], AsyncIterator[Chunk]]:
        """chat() for asyncio, as agenerate."""
        given: Sequence[Message] = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return self.agenerate(given, stream=stream, **options)  # type: ignore[call-overload]

    async def abatch(self, prompts: Iterable[Union[Prompt, dict]], **options: Any) -> list[Completion]:
        """batch() for asyncio."""
        owned = [_own(p, options) for p in prompts]
        return list(await asyncio.gather(*(_aio.whole(self, p, o) for p, o in owned)))

    def session(self, messages: Union[str, Sequence[Message], None] = None, **options: Any) -> "Session":
        """A conversation that keeps its messages and can be forked; see Session. messages: what it begins with, a str is the system's."""
        from .session import Session
        return Session(self, messages, options)

    # ---- numbers ---------------------------------------------------------------------------------------------------

    def _other(self, flags: int) -> Owned:
        """A session for embeddings or logits, made at its first use. Called under _computes."""
        if flags not in self._others:
            p = self._params
            params = new(_abi.mn_session_params, flags=flags, device=p.device, precision=p.precision, n_ctx=p.n_ctx, n_batch=p.n_batch)
            out = ctypes.c_void_p()
            with self._owned as model:
                call("mn_session_create", model, ctypes.byref(params), ctypes.byref(out))
                self._others[flags] = Owned(out.value, lib.mn_session_free, self._owned)
        return self._others[flags]

    def _embed(self, texts: Sequence[Union[str, Sequence[int]]], pooling: Optional[str], normalize: Optional[bool], dims: int):
        """(f32 [len(texts) * n], n, number of tokens)"""
        params = new(_abi.mn_embed_params, pooling=_choice("pooling", POOLING, pooling), norm=_choice("normalize", NORM, normalize), n_dim=dims)
        all_ids = [self.tokenize(t) if isinstance(t, str) else list(t) for t in texts]
        rows, n = _texts([(ids, 0) for ids in all_ids]), dims or self.n_embd
        values = (ctypes.c_float * (len(all_ids) * n))()
        if all_ids:
            with self._computes, self._other(_abi.MN_SESSION_EMBED) as session:
                call("mn_session_embed", session, rows, len(all_ids), ctypes.byref(params), values, len(values))
        return values, n, sum(map(len, all_ids))

    def embed(self, texts: Union[str, Sequence[str], Sequence[Sequence[int]]], *, pooling: Optional[str] = None, normalize: Optional[bool] = None,
              dims: int = 0) -> "numpy.ndarray":
        """Embeddings: numpy f32 [n_embd] of a str, [len(texts), n_embd] of a list of texts or of lists of ids; with dims [..., dims].

        pooling: "mean", "cls", "last", None = as the model's files say. normalize: to length 1; None = as the model's files say. Texts that are
        longer than the context are BadInput, with `part` 1 + the index."""
        numpy = _numpy()
        one = isinstance(texts, str)
        values, n, _ = self._embed([texts] if one else texts, pooling, normalize, dims)  # type: ignore[list-item]
        rows = numpy.frombuffer(values, dtype=numpy.float32).reshape(-1, n) if len(values) else numpy.zeros((0, n), numpy.float32)
        return rows[0] if one else rows

    def aembed(self, texts: Union[str, Sequence[str], Sequence[Sequence[int]]], **options: Any) -> "Awaitable[numpy.ndarray]":
        """embed() for asyncio: `await` it."""
        return _aio.in_thread(self.embed, texts, **options)

    def _pair(self, query: str, text: str, instruction: str) -> tuple[list[int], int]:
        """Ids of a query and a text as the model reads them together, and how many of them are the query's part."""
        ids, n, n_first = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_uint32(), ctypes.c_uint32()
        texts = (to_str(t.encode()) for t in (query, text, instruction))
        with self._owned as model:
            call("mn_model_pair", model, *texts, ctypes.byref(ids), ctypes.byref(n), ctypes.byref(n_first))
        return take_ids(ids, n), n_first.value

    def _label(self, label: Union[str, int]) -> int:
        """The number of a label."""
        names = self.labels
        number = label if isinstance(label, int) else names.index(label) if label in names else -1
        if not 0 <= number < len(names):
            raise errors.Invalid("label: found %r, expected one of %s" % (label, ", ".join(map(repr, names)) or "a head that has labels"))
        return number

    def rerank(self, query: str, texts: Sequence[str], *, top: Optional[int] = None, instruction: str = "", logits: bool = False,
               label: Union[str, int, None] = None) -> list[Ranked]:
        """Scores texts by how well they answer a query: Ranked of each, the best first, of equal ones in the order of `texts`.

        top: the best so many alone. instruction: what the query is for, of models that are asked with a prompt (Qwen3-Reranker); "" = the model's
        own. A score is from 0 to 1, the sigmoid of what the model's head says; logits: that number itself. label: of a head that classifies
        (`labels`), by its name or number: the score is its probability among them. Unsupported: the model has no head (is_reranker: one without
        labels). A query and a text that are longer than the context together are BadInput, with `part` 1 + the index: none is cut."""
        if top is not None and top < 1:
            raise errors.Invalid("top: found %d, expected 1 at least, or None" % top)
        flags = (_abi.MN_SCORE_LOGIT if logits else 0) | (0 if label is None else (self._label(label) + 1) << 8)  # MN_SCORE_LABEL
        pairs = [(*self._pair(query, text, instruction), text) for text in texts]
        rows = _texts([(ids, n_first) for ids, n_first, _ in pairs])
        values = (ctypes.c_float * len(pairs))()
        if pairs:
            with self._computes, self._other(_abi.MN_SESSION_EMBED) as session:
                call("mn_session_score", session, rows, len(pairs), flags, values, len(values))
        ranked = [Ranked(i, score, text) for i, (score, (_, _, text)) in enumerate(zip(values, pairs))]
        return sorted(ranked, key=lambda r: r.score, reverse=True)[:top]

    def arerank(self, query: str, texts: Sequence[str], **options: Any) -> Awaitable[list[Ranked]]:
        """rerank() for asyncio: `await` it."""
        return _aio.in_thread(self.rerank, query, texts, **options)

    def logits(self, text: Union[str, Sequence[int]]) -> "numpy.ndarray":
        """Logits at every position of a text or of ids: numpy f32 [n, n_vocab]; row i predicts token i + 1."""
        numpy = _numpy()
        ids = self.tokenize(text) if isinstance(text, str) else list(text)
        out = numpy.empty((len(ids), self.n_vocab), numpy.float32)

        def rows(_arg, first, n_rows, n_vocab, values):
            ctypes.memmove(out[first:].ctypes.data, values, 4 * n_rows * n_vocab)
            return _abi.MN_OK
        with self._computes, self._other(_abi.MN_SESSION_NO_SAMPLING) as session:
            call("mn_session_logits", session, ids_array(ids), len(ids), _abi.FUNCTIONS["mn_session_logits"][1][3](rows), None)
        return out

    def logprobs(self, text: Union[str, Sequence[int]]) -> list[float]:
        """[n] log P(token i | tokens before i) of a text or of ids; the first is NaN."""
        ids = self.tokenize(text) if isinstance(text, str) else list(text)
        sample = sample_params(self._owned, {}, None)
        sample.flags |= _abi.MN_SAMPLE_PREFILL_ONLY
        events: collections.deque = collections.deque()
        engine = self._requests()
        number = engine.submit(ids, sample, events.append, _abi.MN_SUBMIT_PROMPT_LOGPROBS)
        found: list[float] = []
        try:
            while True:
                e = engine.wait(events)
                found = (e.facts or {}).get("prompt_logprobs", found)
                if e.kind == _abi.MN_REQUEST_FINISH:
                    if e.finish == _abi.MN_FINISH_FAILED:
                        raise errors.of(e.facts["status"], e.facts["message"])
                    return found
        finally:
            engine.abort(number)

    def perplexity(self, text: Union[str, Sequence[int]], *, context: int = 512, stride: int = 0) -> float:
        """exp of the mean of -log P over a text, as `minerva perplexity` measures it: windows of `context` tokens, of which the second half
        counts; with stride they begin so many tokens apart, and the last `stride` of each count. BadInput: shorter than one window."""
        import math
        ids = self.tokenize(text) if isinstance(text, str) else list(text)
        if context < 4 or not 0 <= stride < context:
            raise errors.Invalid("context %d, stride %d: expected a context from 4 on, and a stride below it" % (context, stride))
        if len(ids) < context:
            raise errors.BadInput("the text has %d tokens, expected %d at least: the context" % (len(ids), context))
        begin = self.tokenize("")[:1]  # BOS
        first = (context - stride - 1 if stride else context // 2) + 1
        scores: list[float] = []
        for at in range(0, len(ids) - context + 1, stride or context):
            window = begin + ids[at + len(begin):at + context]
            scores += self.logprobs(window)[first:]
        return math.exp(-math.fsum(scores) / len(scores))

    # ---- a server, the end -----------------------------------------------------------------------------------------

    def serve(self, **flags: Any) -> "Server":
        """`minerva serve` with this model in a process of its own; see minerva.serve. Weights are read again there."""
        from .server import Server
        return Server(self.path, flags)

    def close(self) -> None:
        """Frees sessions, weights and the model; running generations end, and further calls raise Invalid."""
        if self._pid != os.getpid():  # a fork's child; there is nothing that it could free
            return
        _open.discard(self)
        with self._lock:
            self._owned.close()
            if self._engine is not None:
                self._engine.close()
            for other in self._others.values():
                other.close()
            self._constraints.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_constraints"):
            self.close()

    def __repr__(self) -> str:
        return "<minerva.Model %s>" % self.path


def _texts(texts: Sequence[tuple[Sequence[int], int]]) -> Any:
    """mn_embed_text [len(texts), at least 1] of (ids, n_first)."""
    arrays = [ids_array(ids) for ids, _ in texts]
    rows = (_abi.mn_embed_text * max(len(arrays), 1))(
        *((ctypes.cast(a, ctypes.POINTER(ctypes.c_int32)), len(a), n_first) for a, (_, n_first) in zip(arrays, texts)))
    rows.keep = arrays  # type: ignore[attr-defined]
    return rows


def _own(p: Union[Prompt, dict], options: dict[str, Any]) -> tuple[Prompt, dict[str, Any]]:
    """Prompt and options of an element of a batch."""
    if isinstance(p, dict):
        p = dict(p)
        return p.pop("prompt"), {**options, **p}
    return p, options


def _parser(o: dict[str, Any]) -> Any:
    schema = o.get("json_schema")
    if schema is None:
        return json.loads if o.get("json") else None
    return schema.model_validate_json if is_pydantic(schema) else json.loads


_open: "weakref.WeakSet[Model]" = weakref.WeakSet()


def _close_all() -> None:
    for model in list(_open):
        model.close()


at_exit.append(_close_all)
