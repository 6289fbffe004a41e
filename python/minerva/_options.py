"""What a caller says of a generation, as structs of the C library: sampling, constraints, tools.

SAMPLING is the one table of names; generate() and the facade of llama-cpp-python use it. A name that is not in it is an error that names it.
"""
from __future__ import annotations

import collections
import ctypes
import json
import logging
import os
import threading
from typing import Any, Iterable, Optional

from . import _abi, errors
from ._library import Owned, call, check, lib, new, to_str

# name of an option -> field of mn_sample_params, type
SAMPLING = {
    "max_tokens": ("max_new", int), "min_tokens": ("min_new", int), "seed": ("seed", int),
    "temperature": ("temp", float), "top_k": ("top_k", int), "top_p": ("top_p", float), "min_p": ("min_p", float),
    "typical_p": ("typical_p", float), "top_n_sigma": ("top_n_sigma", float),
    "repeat_penalty": ("repeat_penalty", float), "frequency_penalty": ("frequency_penalty", float), "presence_penalty": ("presence_penalty", float),
    "repeat_last_n": ("penalty_last_n", int), "ignore_eos": ("ignore_stop", int),
    "dry_multiplier": ("dry_multiplier", float), "dry_base": ("dry_base", float), "dry_allowed_length": ("dry_allowed_length", int),
    "dry_last_n": ("dry_last_n", int), "xtc_probability": ("xtc_probability", float), "xtc_threshold": ("xtc_threshold", float),
    "dynatemp_range": ("dynatemp_range", float), "dynatemp_exponent": ("dynatemp_exponent", float),
    "mirostat": ("mirostat", int), "mirostat_tau": ("mirostat_tau", float), "mirostat_eta": ("mirostat_eta", float),
}
LISTS = ("stop_ids", "logit_bias", "samplers", "dry_breakers", "adapter")  # further fields, which are more than a number
CONSTRAINTS = ("json_schema", "grammar", "regex", "choices", "json")
TOOL_CHOICES = ("auto", "none", "required")
KEPT_CONSTRAINTS = 32


def sample_params(model: Owned, options: dict[str, Any], constraint: Optional[Owned]) -> _abi.mn_sample_params:
    """The model's recommended parameters with `options` over them. The result keeps alive what it points to."""
    p = new(_abi.mn_sample_params)
    with model as m:
        check(lib.mn_model_sample_defaults(m, ctypes.byref(p)))
    p.seed = int.from_bytes(os.urandom(7), "little")
    for name, value in options.items():
        if value is not None and name in SAMPLING:
            field, kind = SAMPLING[name]
            try:
                setattr(p, field, kind(value) & (2**64 - 1) if name == "seed" else kind(value))
            except (TypeError, ValueError) as e:
                raise errors.Invalid("%s: found %r, expected a number" % (name, value)) from e
            if name in ("max_tokens", "min_tokens") and not 0 <= int(value) < 2**32:
                raise errors.Invalid("%s: found %r, expected a number from 0 on" % (name, value))
    keep: list[Any] = []
    if options.get("stop_ids"):
        keep.append((ctypes.c_int32 * len(options["stop_ids"]))(*options["stop_ids"]))
        p.stop, p.n_stop = keep[-1], len(keep[-1])
    if options.get("logit_bias"):
        pairs = [(int(i), float(b)) for i, b in options["logit_bias"].items()]
        keep.append((_abi.mn_logit_bias * len(pairs))(*pairs))
        p.bias, p.n_bias = keep[-1], len(pairs)
    if options.get("samplers"):
        names = options["samplers"]
        p.samplers = (names if isinstance(names, str) else ";".join(names)).encode()
    if options.get("dry_breakers"):
        texts = [t.encode() for t in options["dry_breakers"]]
        keep.append((ctypes.c_char_p * len(texts))(*texts))
        p.dry_breakers, p.n_dry_breakers = keep[-1], len(texts)
    if options.get("adapter") is not None:
        p.adapter = options["adapter"].encode()
    if constraint:
        p.constraint = constraint.enter()
        constraint.leave()  # keep has it
        keep.append(constraint)
    p.keep = keep
    return p


def check_names(options: dict[str, Any], more: Iterable[str]) -> None:
    known = set(SAMPLING) | set(LISTS) | set(more)
    for name in options:
        if name not in known:
            raise TypeError("unknown option %r; known are %s" % (name, ", ".join(sorted(known))))


# ---- constraints ---------------------------------------------------------------------------------------------------

def is_pydantic(value: Any) -> bool:
    """A class of pydantic 2; nothing is imported for it."""
    return isinstance(value, type) and hasattr(value, "model_json_schema") and hasattr(value, "model_validate_json")


def schema_text(schema: Any) -> str:
    if is_pydantic(schema):
        schema = schema.model_json_schema()
    return schema if isinstance(schema, str) else json.dumps(schema)


def tool_list(tools: Optional[Iterable[Any]]) -> list[dict]:
    """Tools as OpenAI writes them; classes of pydantic become functions of their names."""
    def one(t: Any) -> dict:
        if is_pydantic(t):
            return {"type": "function", "function": {"name": t.__name__, "description": (t.__doc__ or "").strip(), "parameters": t.model_json_schema()}}
        if not isinstance(t, dict):
            raise errors.Invalid("tools: found %r, expected a dict or a class of pydantic" % (t,))
        return t if "function" in t else {"type": "function", "function": t}
    return [one(t) for t in tools or ()]


def name_of(tool: dict) -> str:
    return tool["function"].get("name", "")


def call_constraint(tools: list[dict], choice: Any, parallel: bool) -> Optional[tuple[int, str, int]]:
    """(kind, source, flags) that tools and tool_choice ask for; None: nothing needs a constraint."""
    forced = choice == "required" or choice not in TOOL_CHOICES
    flags = 0 if parallel else _abi.MN_CONSTRAINT_ONE_CALL
    if choice not in TOOL_CHOICES:
        name = choice["function"]["name"] if isinstance(choice, dict) else choice
        tools = [t for t in tools if name_of(t) == name]
        flags |= _abi.MN_CONSTRAINT_ONE_CALL
        if not tools:
            raise errors.Invalid("tool_choice: found %r, expected auto, none, required or the name of a tool" % (choice,))
    if not forced and not any(t["function"].get("strict") for t in tools):
        return None
    return _abi.MN_CONSTRAINT_CALLS, json.dumps(tools), flags | (_abi.MN_CONSTRAINT_CALLS_ONLY if forced else 0)


def form_of(options: dict[str, Any]) -> Optional[tuple[int, Any, int]]:
    """(kind, source, flags) of json_schema, grammar, regex, choices or json; at most one of them."""
    given = [name for name in CONSTRAINTS if options.get(name) not in (None, False)]
    if len(given) > 1:
        raise errors.Invalid("%s and %s: expected one of them" % (given[0], given[1]))
    if not given:
        return None
    name, value = given[0], options[given[0]]
    if name == "json":
        return _abi.MN_CONSTRAINT_JSON, "", 0
    if name == "choices":
        return _abi.MN_CONSTRAINT_CHOICES, tuple(value), 0
    kind = {"json_schema": _abi.MN_CONSTRAINT_SCHEMA, "grammar": _abi.MN_CONSTRAINT_GRAMMAR, "regex": _abi.MN_CONSTRAINT_REGEX}[name]
    return kind, schema_text(value) if name == "json_schema" else value, 0


class Constraints:
    """Constraints of one model; of the latest KEPT_CONSTRAINTS equal ones are compiled once. Any thread."""

    def __init__(self, model: Owned):
        self._model, self._lock = model, threading.Lock()
        self._latest: collections.OrderedDict[tuple, Owned] = collections.OrderedDict()

    def get(self, kind: int, source: Any, flags: int) -> Owned:
        with self._lock:
            key = (kind, source, flags)
            made = self._latest.pop(key, None) or self._compile(kind, source, flags)
            self._latest[key] = made
            if len(self._latest) > KEPT_CONSTRAINTS:
                self._latest.popitem(last=False)
            return made

    def _compile(self, kind: int, source: Any, flags: int) -> Owned:
        params = new(_abi.mn_constraint_params, kind=kind, flags=flags)
        if kind == _abi.MN_CONSTRAINT_CHOICES:
            texts = [to_str(t.encode()) for t in source]
            params.choices, params.n_choices = (_abi.mn_str * len(texts))(*texts), len(texts)
        else:
            texts = to_str(source.encode())
            params.source = texts
        out = ctypes.c_void_p()
        with self._model as model:
            call("mn_constraint_create", model, ctypes.byref(params), ctypes.byref(out))
            made = Owned(out.value, lib.mn_constraint_free, self._model)
        for line in lib.mn_constraint_warnings(out.value).decode().splitlines():
            logging.getLogger("minerva").warning("%s", line)
        return made

    def close(self) -> None:
        """Each is freed with its last user."""
        self._latest.clear()
