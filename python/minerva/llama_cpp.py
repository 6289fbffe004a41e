"""A facade of llama-cpp-python: its class Llama for the calls that programs use, on Minerva.

    import minerva.llama_cpp
    minerva.llama_cpp.install()      # from now on `import llama_cpp` is this module
    from langchain_community.chat_models import ChatLlamaCpp

Without install() use `from minerva.llama_cpp import Llama`. `python -m minerva.llama_cpp MODULE [ARGUMENT...]` runs a module with the facade
installed: `python -m minerva.llama_cpp llm -m NAME "Hello"`.

What a parameter asks for and Minerva does not have is minerva.Unsupported, unless it has the value that changes nothing. The device is "auto", with
n_gpu_layers=0 the CPU; device= names another. Prompts keep llama-cpp-python's defaults of sampling.
"""
from __future__ import annotations

import json
import logging
import os
import runpy
import subprocess
import sys
import time
import types
import uuid
from typing import Any, Iterator, Optional, Sequence, Union

from . import _abi, errors
from ._library import command
from ._text import Completion, TokenLogprob
from .model import Model
from .runtime import shared

__version__ = "0.3.16"  # of llama-cpp-python, whose calls these are
LLAMA_DEFAULT_SEED = 0xFFFFFFFF
# parameters of llama.cpp that change no result here, and those that may only have the values that change nothing
WITHOUT_EFFECT = {"n_parts", "f16_kv", "use_mmap", "use_mlock", "last_n_tokens_size", "logits_all", "vocab_only", "n_ubatch", "n_threads_batch", "numa",
                  "offload_kqv", "flash_attn", "main_gpu", "embedding", "op_offload", "swa_full", "no_perf"}
NEUTRAL = {"lora_path": (None,), "lora_base": (None,), "lora_scale": (1.0,), "rope_freq_base": (0.0, 10000.0), "rope_freq_scale": (0.0, 1.0),
           "rope_scaling_type": (None, -1), "yarn_ext_factor": (-1.0,), "yarn_attn_factor": (1.0,), "yarn_beta_fast": (32.0,), "yarn_beta_slow": (1.0,),
           "yarn_orig_ctx": (0,), "pooling_type": (-1,), "split_mode": (1,), "tensor_split": (None,), "kv_overrides": (None,), "draft_model": (None,),
           "chat_handler": (None,), "tokenizer": (None,), "spm_infill": (False,), "type_k": (None, 1), "type_v": (None, 1)}
NEUTRAL_ASKED = {"tfs_z": (1.0,), "logits_processor": (None,), "stopping_criteria": (None,), "suffix": (None, ""), "functions": (None,),
                 "function_call": (None,), "penalize_nl": (True, False, None), "model": None, "user": None}


def _check_neutral(given: dict[str, Any], table: dict[str, Any]) -> None:
    """Takes the parameters of a table out of `given`."""
    for name, values in table.items():
        if name not in given:
            continue
        value = given.pop(name)
        if values is not None and value not in values and not (isinstance(value, list) and not value):
            raise errors.Unsupported("%s: found %r, which the facade of llama-cpp-python does not have" % (name, value))


class LlamaGrammar:
    """A grammar in GBNF, or of a JSON schema."""

    def __init__(self, option: str, source: str):
        self.option, self.source = option, source

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> "LlamaGrammar":
        return cls("grammar", grammar)

    @classmethod
    def from_file(cls, file: Union[str, os.PathLike], verbose: bool = True) -> "LlamaGrammar":
        with open(file, encoding="utf-8") as f:
            return cls("grammar", f.read())

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> "LlamaGrammar":
        return cls("json_schema", json_schema)


class LlamaRAMCache:
    """Accepted by set_cache; prompts that begin alike share their computed beginnings anyway."""

    def __init__(self, capacity_bytes: int = 0):
        self.capacity_bytes = capacity_bytes


LlamaCache = LlamaRAMCache


class Llama:
    """llama-cpp-python's Llama. model_path: as minerva.Model's path, so a name is good, too. `model` is the minerva.Model."""

    def __init__(self, model_path: Union[str, os.PathLike, None], *, n_ctx: int = 0, n_batch: int = 512, n_threads: Optional[int] = None,
                 n_gpu_layers: Optional[int] = None, seed: int = LLAMA_DEFAULT_SEED, chat_format: Optional[str] = None, device: Optional[str] = None,
                 parallel: int = 1, verbose: bool = True, **more: Any):
        _check_neutral(more, NEUTRAL)
        unknown = sorted(set(more) - WITHOUT_EFFECT)
        if unknown:
            logging.getLogger("minerva").warning("llama_cpp.Llama: nothing here reads %s", ", ".join(unknown))
        self.model = Model(model_path, device=device or ("cpu" if n_gpu_layers == 0 else "auto"), context=n_ctx or 0, parallel=parallel,
                           threads=n_threads or 0)
        self.model_path, self.chat_format, self.verbose = self.model.path, chat_format, verbose
        self._seed = None if seed in (LLAMA_DEFAULT_SEED, -1, None) else seed
        self._n_ctx = n_ctx or min(self.model.n_context_trained or 4096, 4096)
        self.context_params = types.SimpleNamespace(n_ctx=self._n_ctx, n_batch=n_batch)

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: Optional[str] = None, **more: Any) -> "Llama":
        """By a name of Minerva: repo_id "org/repo" or "org/repo:q4_k_m"; filename: a file, or the type of quantisation in a pattern such as
        "*q4_k_m.gguf". What is not on this machine is loaded by `minerva pull`."""
        for name in ("additional_files", "local_dir", "local_dir_use_symlinks", "cache_dir"):
            if more.pop(name, None):
                raise errors.Unsupported("%s: models are in the cache of Hugging Face (docs/models.md)" % name)
        name = repo_id
        if filename:
            what = filename.strip("*").rpartition(".gguf")[0].strip("*-._") if "*" in filename else filename
            name += ":" + what if what else ""
        if not shared().find(name):
            pulled = subprocess.run([command(), "pull", name], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            if pulled.returncode:
                raise errors.FileError("%s is not on this machine, and cannot be loaded: %s" % (name, pulled.stderr.strip()[-500:]))
        return cls(name, **more)

    # ---- text ------------------------------------------------------------------------------------------------------

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        return self.model.tokenize(text.decode("utf-8"), add_special=add_bos, special=special)

    def detokenize(self, tokens: Sequence[int], prev_tokens: Optional[Sequence[int]] = None, special: bool = False) -> bytes:
        return self.model.detokenize(tokens, special=special).encode()

    def n_ctx(self) -> int:
        return self._n_ctx

    def n_embd(self) -> int:
        return self.model.n_embd

    def n_vocab(self) -> int:
        return self.model.n_vocab

    def token_bos(self) -> int:
        """-1: the tokeniser puts none before a text."""
        ids = self.model.tokenize("")
        return ids[0] if ids else -1

    def token_eos(self) -> int:
        """The first token that ends a generation; -1: none does."""
        return next((i for i in range(self.n_vocab()) if self.model.is_end(i)), -1)

    @property
    def metadata(self) -> dict[str, str]:
        return {key: str(value) for key, value in self.model.metadata.items()}

    # ---- generation ------------------------------------------------------------------------------------------------

    def _options(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Options of Model.generate of parameters of llama-cpp-python."""
        _check_neutral(asked, NEUTRAL_ASKED)
        if asked.pop("mirostat_mode", 0) == 1:
            raise errors.Unsupported("mirostat_mode: found 1, expected 0 or 2")
        o: dict[str, Any] = {}
        grammar, bias = asked.pop("grammar", None), asked.pop("logit_bias", None)
        if isinstance(grammar, LlamaGrammar):
            o[grammar.option] = grammar.source
        elif grammar is not None:
            o["grammar"] = grammar
        if bias:
            o["logit_bias"] = {int(i): b for i, b in bias.items()}
        seed = asked.pop("seed", None)
        o["seed"] = self._seed if seed is None else seed
        o["stop"] = asked.pop("stop", None)
        limit = asked.pop("max_tokens", None)
        o["max_tokens"] = limit if limit is not None and limit > 0 else None
        for name in ("temperature", "top_p", "top_k", "min_p", "typical_p", "frequency_penalty", "presence_penalty", "repeat_penalty", "mirostat_tau",
                     "mirostat_eta"):
            value = asked.pop(name, None)
            if value is not None and not name.startswith("mirostat"):
                o[name] = max(value, 0) if name == "top_k" else value
        if asked:
            raise TypeError("llama_cpp.Llama: unexpected parameters %s" % ", ".join(sorted(asked)))
        return o

    def __call__(self, prompt: Union[str, Sequence[int]], **asked: Any) -> Any:
        """create_completion."""
        return self.create_completion(prompt, **asked)

    def create_completion(self, prompt: Union[str, Sequence[int]], *, max_tokens: Optional[int] = 16, temperature: float = 0.8, top_p: float = 0.95,
                          top_k: int = 40, min_p: float = 0.05, logprobs: Optional[int] = None, echo: bool = False, stream: bool = False,
                          mirostat_mode: int = 0, **asked: Any) -> Any:
        """Continues a text or ids: a dict like OpenAI's text completion, or with stream=True an iterator of them."""
        o = self._options(dict(asked, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, mirostat_mode=mirostat_mode))
        if mirostat_mode == 2:
            o.update(mirostat=2, mirostat_tau=asked.get("mirostat_tau", 5.0), mirostat_eta=asked.get("mirostat_eta", 0.1))
        head = self._head("cmpl", "text_completion")
        before = (prompt if isinstance(prompt, str) else self.model.detokenize(prompt)) if echo else ""
        running = self.model.generate(prompt, stream=True, raw=True, special=True, logprobs=logprobs, **o)
        if stream:
            return self._text_stream(running, head, before, logprobs is not None)
        r = running.all()
        return {**head, "choices": [{"text": before + r.text, "index": 0, "finish_reason": r.finish_reason,
                                     "logprobs": _old_logprobs(r.logprobs, len(before)) if logprobs is not None else None}], "usage": _usage(r)}

    def _text_stream(self, running: Any, head: dict, before: str, want: bool) -> Iterator[dict]:
        with running:
            at = len(before)
            if before:
                yield {**head, "choices": [{"text": before, "index": 0, "logprobs": None, "finish_reason": None}]}
            for c in running:
                yield {**head, "choices": [{"text": c.text, "index": 0, "finish_reason": c.finish_reason,
                                            "logprobs": _old_logprobs(c.logprobs, at) if want else None}]}
                at += len(c.text)

    def create_chat_completion(self, messages: Sequence[dict], *, tools: Optional[Sequence[dict]] = None, tool_choice: Any = None,
                               temperature: float = 0.2, top_p: float = 0.95, top_k: int = 40, min_p: float = 0.05, stream: bool = False,
                               response_format: Optional[dict] = None, logprobs: Optional[bool] = None, top_logprobs: Optional[int] = None,
                               mirostat_mode: int = 0, **asked: Any) -> Any:
        """Answers messages: a dict like OpenAI's chat completion, or with stream=True an iterator of its chunks."""
        o = self._options(dict(asked, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, mirostat_mode=mirostat_mode))
        if mirostat_mode == 2:
            o.update(mirostat=2, mirostat_tau=asked.get("mirostat_tau", 5.0), mirostat_eta=asked.get("mirostat_eta", 0.1))
        o.update(tools=tools, tool_choice=tool_choice, chat_template=self.chat_format, **_form(response_format))
        o["logprobs"] = (top_logprobs or 0) if logprobs else None
        running = self.model.generate(list(messages), stream=True, **o)
        if stream:
            return self._chat_stream(running, self._head("chatcmpl", "chat.completion.chunk"), bool(logprobs))
        r = running.all()
        message = {k: v for k, v in r.message.items() if k != "reasoning_content" or v}
        if r.tool_calls and not r.text:
            message["content"] = None
        return {**self._head("chatcmpl", "chat.completion"), "usage": _usage(r),
                "choices": [{"index": 0, "message": message, "logprobs": _logprobs(r.logprobs) if logprobs else None, "finish_reason": r.finish_reason}]}

    def _chat_stream(self, running: Any, head: dict, want: bool) -> Iterator[dict]:
        def piece(delta: dict, c: Any = None) -> dict:
            return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": _logprobs(c.logprobs) if want and c else None,
                                         "finish_reason": c.finish_reason if c else None}]}
        with running:
            yield piece({"role": "assistant"})
            for c in running:
                if c.call is not None:
                    call = {"index": c.call, "function": {"arguments": c.arguments}}
                    if c.name:
                        call.update(id="call%05d" % c.call, type="function", function={"name": c.name, "arguments": ""})
                    yield piece({"tool_calls": [call]}, c)
                elif c.thinking:
                    yield piece({"reasoning_content": c.thinking}, c)
                else:
                    yield piece({"content": c.text} if c.text else {}, c)

    def generate(self, tokens: Sequence[int], **asked: Any) -> Iterator[int]:
        """Ids that follow ids, until the model ends."""
        with self.model.generate(list(tokens), stream=True, raw=True, **self._options(asked)) as running:
            for c in running:
                yield from c.ids

    def _head(self, kind: str, what: str) -> dict:
        return {"id": "%s-%s" % (kind, uuid.uuid4()), "object": what, "created": int(time.time()), "model": self.model_path}

    # ---- embeddings ------------------------------------------------------------------------------------------------

    def embed(self, input: Union[str, Sequence[str]], normalize: bool = False, truncate: bool = True, return_count: bool = False) -> Any:
        """A list of floats of a str, else a list of lists; with return_count beside the number of tokens. truncate: to the context."""
        texts = [input] if isinstance(input, str) else list(input)
        ids = [self.model.tokenize(t) for t in texts]
        values, n, count = self.model._embed([i[:self._n_ctx] for i in ids] if truncate else ids, None, normalize, 0)
        rows = [values[k * n:(k + 1) * n] for k in range(len(texts))]
        found = rows[0] if isinstance(input, str) else rows
        return (found, count) if return_count else found

    def create_embedding(self, input: Union[str, Sequence[str]], model: Optional[str] = None) -> dict:
        """A dict like OpenAI's of embeddings."""
        rows, count = self.embed([input] if isinstance(input, str) else input, return_count=True)
        return {"object": "list", "data": [{"object": "embedding", "embedding": row, "index": i} for i, row in enumerate(rows)],
                "model": model or self.model_path, "usage": {"prompt_tokens": count, "total_tokens": count}}

    # ---- the rest --------------------------------------------------------------------------------------------------

    def set_cache(self, cache: Any) -> None:
        """Nothing to do: see LlamaRAMCache."""

    def set_seed(self, seed: int) -> None:
        self._seed = seed

    def reset(self) -> None:
        """Nothing to do: a call begins with its own prompt."""

    def close(self) -> None:
        self.model.close()

    def __enter__(self) -> "Llama":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _usage(r: Completion) -> dict:
    return {"prompt_tokens": r.n_prompt, "completion_tokens": len(r.ids), "total_tokens": r.n_prompt + len(r.ids)}


def _form(response_format: Optional[dict]) -> dict[str, Any]:
    kind = (response_format or {"type": "text"}).get("type")
    if kind == "text":
        return {}
    schema = response_format.get("schema") or response_format.get("json_schema", {}).get("schema")  # type: ignore[union-attr]
    if kind not in ("json_object", "json_schema"):
        raise errors.Invalid("response_format.type: found %r, expected text, json_object or json_schema" % (kind,))
    return {"json_schema": json.dumps(schema)} if schema else {"json": True}


def _logprobs(tokens: Sequence[TokenLogprob]) -> dict:
    return {"content": [{"token": t.token, "logprob": t.logprob, "bytes": list(t.bytes),
                         "top_logprobs": [{"token": text, "logprob": p, "bytes": list(text.encode())} for _, text, p in t.top]} for t in tokens],
            "refusal": None}


def _old_logprobs(tokens: Sequence[TokenLogprob], at: int) -> dict:
    """Of text completions. at: characters before the first token."""
    offsets = []
    for t in tokens:
        offsets.append(at)
        at += len(t.token)
    return {"tokens": [t.token for t in tokens], "text_offset": offsets, "token_logprobs": [t.logprob for t in tokens],
            "top_logprobs": [{text: p for _, text, p in t.top} for t in tokens]}


def install() -> None:
    """From now on `import llama_cpp` in this process is this module. ImportError: llama-cpp-python itself is imported already."""
    there = sys.modules.get("llama_cpp")
    if there is not None and there is not sys.modules[__name__]:
        raise ImportError("llama_cpp is imported already, from %s" % getattr(there, "__file__", "?"))
    sys.modules["llama_cpp"] = sys.modules[__name__]


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m minerva.llama_cpp MODULE [ARGUMENT...]: runs a module with this facade as llama_cpp")
    import minerva.llama_cpp as facade  # this file, by its name
    facade.install()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
