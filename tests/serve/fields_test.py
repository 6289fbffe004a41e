#!/usr/bin/env python3
"""Every field of the table (tools/serve/fields.def) in a request: fields_test.py MINERVA.

Each is sent with a value that asks for something: the answer is another one, or an error names the field; of those without effect it is the
same. The table has every field of the chat and completion requests of OpenAI, vLLM, llama-server and SGLang (names below, from their sources);
docs/serving.md prints it."""
import http.client
import json
import os
import re
import sys
import tempfile

import fields_table
import served

MINERVA = sys.argv[1]
PATHS = {"chat": "/v1/chat/completions", "text": "/v1/completions"}

# ---- the fields of four servers ------------------------------------------------------------------
NAMES = {
    ("O", "chat"): """audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages metadata modalities model
        moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort
        response_format safety_identifier seed service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity
        web_search_options""",
    ("O", "text"): """best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty prompt seed stop stream stream_options suffix
        temperature top_p user""",
    ("V", "chat"): """messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n presence_penalty response_format seed
        stop stream stream_options temperature top_p tools tool_choice reasoning_effort thinking_token_budget include_reasoning parallel_tool_calls user
        use_beam_search top_k min_p repetition_penalty watermarking length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens
        skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs logprob_token_ids allowed_token_ids bad_words
        echo add_generation_prompt continue_final_message add_special_tokens documents chat_template chat_template_kwargs media_io_kwargs mm_processor_kwargs
        structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids routed_experts_prompt_start return_token_offsets
        return_prompt_text return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params vllm_xargs repetition_detection stream_interval guided_json
        guided_regex guided_choice guided_grammar structural_tag guided_decoding_backend guided_whitespace_pattern logits_processors early_stopping""",
    ("V", "text"): """model prompt echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream stream_options suffix temperature
        top_p user use_beam_search top_k min_p repetition_penalty watermarking length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens
        skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side allowed_token_ids prompt_logprobs logprob_token_ids bad_words
        prompt_embeds add_special_tokens response_format structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids
        routed_experts_prompt_start return_token_offsets return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params vllm_xargs repetition_detection
        thinking_token_budget stream_interval guided_json guided_regex guided_choice guided_grammar""",
    ("L", "chat"): """messages tools tool_choice parallel_tool_calls add_generation_prompt continue_final_message chat_template_kwargs reasoning_effort
        parse_tool_calls thinking_budget_tokens top_logprobs response_format""",
    ("L", "text"): "prompt echo",
    ("L", "both"): """verbose timings_per_token stream stream_options cache_prompt return_tokens return_progress sse_ping_interval n_predict max_tokens
        max_completion_tokens n_indent n_keep n_discard n_cmpl n n_cache_reuse t_max_predict_ms response_fields top_k top_p min_p top_n_sigma
        xtc_probability xtc_threshold typical_p temperature dynatemp_range dynatemp_exponent repeat_last_n repeat_penalty frequency_penalty
        presence_penalty dry_multiplier dry_base dry_allowed_length dry_penalty_last_n mirostat mirostat_tau mirostat_eta adaptive_target
        adaptive_decay seed n_probs logprobs min_keep backend_sampling post_sampling_probs lora dry_sequence_breakers json_schema grammar grammar_type
        grammar_lazy chat_format reasoning_format generation_prompt chat_parser preserved_tokens grammar_triggers reasoning_control
        reasoning_budget_tokens reasoning_budget_start_tag reasoning_budget_end_tags reasoning_budget_end_tag reasoning_budget_message logit_bias
        ignore_eos stop samplers id_slot message_delimiters speculative.n_max speculative.n_min speculative.p_min speculative.type
        speculative.ngram_size_n speculative.ngram_size_m speculative.ngram_min_hits model""",
    ("S", "chat"): """messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n presence_penalty response_format seed
        stop stream stream_options temperature top_p user tools tool_choice parallel_tool_calls return_hidden_states return_routed_experts
        routed_experts_start_len return_cached_tokens_details return_prompt_token_ids return_token_ids return_meta_info reasoning_effort reasoning task top_k
        min_p min_tokens regex ebnf repetition_penalty stop_token_ids stop_regex no_stop_trim ignore_eos continue_final_message skip_special_tokens lora_path
        session_id session_params separate_reasoning stream_reasoning chat_template_kwargs max_dynamic_patch min_dynamic_patch use_audio_in_video
        images_config custom_logit_processor custom_params input_ids rid extra_key cache_salt ngram_corpus_id priority bootstrap_host bootstrap_port
        bootstrap_room routed_dp_rank disagg_prefill_dp_rank data_parallel_rank""",
    ("S", "text"): """model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream stream_options suffix
        temperature top_p user return_hidden_states return_routed_experts routed_experts_start_len return_cached_tokens_details return_token_ids top_k min_p
        min_tokens json_schema regex ebnf repetition_penalty stop_token_ids stop_regex no_stop_trim ignore_eos skip_special_tokens lora_path session_id
        session_params response_format custom_params custom_logit_processor images_config bootstrap_host bootstrap_port bootstrap_room routed_dp_rank
        disagg_prefill_dp_rank data_parallel_rank rid extra_key cache_salt ngram_corpus_id priority custom_labels""",
}


def check_names(rows):
    known = {(letter, at, r.name) for r in rows for letter in r.of for at in r.at}
    for (letter, where), names in NAMES.items():
        for name in names.split():
            for at in ("chat", "text") if where == "both" else (where,):
                assert (letter, at, name) in known, "%s of %s is not in the table for %s" % (name, fields_table.SERVERS[letter], at)
    twice = [(r.name, at) for r in rows for at in r.at]
    assert len(twice) == len(set(twice)), twice


# ---- requests ------------------------------------------------------------------------------------
class Client:
    def __init__(self, server):
        self.connection = http.client.HTTPConnection(*re.match(r"http://([\d.]+):(\d+)", server.url).groups(), timeout=served.LIMIT)

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body))
        r = self.connection.getresponse()
        text = r.read().decode()
        return r.status, json.loads(text) if text.startswith("{") else text


def said(found):
    """What of an answer is not another one each time."""
    status, answer = found
    if not isinstance(answer, dict):
        return re.sub(r'"(id|created)":("[^"]*"|\d+)', "", answer)
    usage = {k: v for k, v in answer.get("usage", {}).items() if k != "prompt_tokens_details"}
    return {k: v for k, v in answer.items() if k not in ("id", "created", "usage")}, usage


WORD = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": WORD}}
MESSAGES = [{"role": "user", "content": "Tell me a story about a frog."}]
ASSISTANT = [*MESSAGES, {"role": "assistant", "content": "The old owl"}]
BODY = {"chat": {"messages": MESSAGES, "temperature": 0, "max_tokens": 12}, "text": {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 12}}
DRAW = {"temperature": 1.4, "seed": 3, "max_tokens": 40}
TWICE = {"messages": [{"role": "user", "content": "a cat and a dog. " * 8}], "prompt": "a cat and a dog. a cat and a dog. a cat and a dog. a cat", "max_tokens": 200, "ignore_eos": True}
LONG = {"messages": [{"role": "user", "content": "A bear had a jar. " * 110}], "prompt": "A bear had a jar. " * 110, "max_tokens": 1}
DRY = {**TWICE, "dry_multiplier": 3.0}

# field: its value, and what both requests have beside it
CHANGES = {
    "messages": (ASSISTANT, {}), "prompt": ("The sun", {}), "tools": ([TOOL], {}), "tool_choice": ("required", {"tools": [TOOL], "max_tokens": 60}),
    "chat_template_kwargs": ({"verbosity": "x"}, {}), "reasoning_effort": ("none", {}), "reasoning": ({"effort": "high"}, {}), "verbosity": ("low", {}),
    "documents": ([{"title": "a", "text": "b"}], {}), "continue_final_message": (True, {"messages": ASSISTANT}), "add_generation_prompt": (False, {}),
    "echo": (True, {}),
    "add_special_tokens": (False, {}), "max_tokens": (3, {}), "n_predict": (3, {"max_tokens": None}), "max_completion_tokens": (3, {"max_tokens": None}),
    "min_tokens": (10, {"stop": ["a", "e", "o"]}), "stop": (["a", "e", "o"], {}), "include_stop_str_in_output": (True, {"stop": ["a", "e", "o"]}),
    "no_stop_trim": (True, {"stop": ["a", "e", "o"]}), "ignore_eos": (True, {"max_tokens": 400}), "n": (2, {}), "n_cmpl": (2, {}),
    "seed": (2 ** 53 + 1, {**DRAW, "seed": 2 ** 53}), "temperature": (1.9, DRAW), "top_p": (0.05, DRAW), "min_p": (0.9, DRAW), "top_k": (1, DRAW),
    "repeat_penalty": (3, TWICE), "repetition_penalty": (3, TWICE), "frequency_penalty": (2, TWICE), "presence_penalty": (2, TWICE),
    "repeat_last_n": (1, {**TWICE, "repeat_penalty": 3}), "dry_multiplier": (3, TWICE), "dry_base": (60, {**TWICE, "dry_multiplier": 0.01}),
    "dry_allowed_length": (50, DRY), "dry_penalty_last_n": (1, DRY), "dry_sequence_breakers": ([" cat", " a", " and", " dog", "."], DRY),
    "top_n_sigma": (0.1, DRAW), "typical_p": (0.05, DRAW), "xtc_probability": (1, {**DRAW, "xtc_threshold": 0.05}),
    "xtc_threshold": (0.01, {**DRAW, "xtc_probability": 1, "xtc_threshold": 0.4}), "dynatemp_range": (1.3, DRAW),
    "dynatemp_exponent": (9, {**DRAW, "dynatemp_range": 1.3}), "mirostat": (2, DRAW), "mirostat_tau": (0.1, {**DRAW, "mirostat": 2}),
    "mirostat_eta": (60, {**DRAW, "mirostat": 2, "mirostat_tau": 1}), "samplers": (["top_k"], {**DRAW, "top_k": 400}),
    "response_format": ({"type": "json_object", "schema": WORD}, {}), "structured_outputs": ({"regex": "[0-9]{4}"}, {}), "guided_json": (WORD, {}),
    "guided_regex": ("[0-9]{4}", {}), "guided_choice": (["yes", "no"], {}), "guided_grammar": ('root ::= "yes"', {}), "json_schema": (WORD, {}),
    "grammar": ('root ::= "yes"', {}), "regex": ("[0-9]{4}", {}), "ebnf": ('root ::= "yes"', {}), "stream": (True, {}),
    "stream_options": ({"include_usage": True}, {"stream": True}), "logprobs": ({"chat": True, "text": 0}, {}), "top_logprobs": (2, {"logprobs": True}),
    "n_probs": (2, {}), "return_token_ids": (True, {}), "return_prompt_token_ids": (True, {}), "return_tokens": (True, {}),
    "return_tokens_as_token_ids": (True, {"logprobs": True}),
}
# Those that need more than two requests have a function below. Values that are refused, where another value is not.
REFUSED_VALUES = {"model": "gpt-4", "best_of": 2}
# A value that asks for something, where a word is none.
ASKS = {"true": False, "false": True}


def test_changes(c, row, at):
    value, beside = CHANGES[row.name]
    value = value[at] if isinstance(value, dict) and set(value) == {"chat", "text"} else value
    other = {"messages", "tools", "tool_choice"} if at == "text" else {"prompt"}
    beside = {k: v for k, v in beside.items() if k not in other}
    base = {**BODY[at], **beside}
    without, given = c.post(PATHS[at], base), c.post(PATHS[at], {**base, row.name: value})
    assert without[0] == 200, (row.name, at, without)
    assert given[0] == 200, (row.name, at, given)
    assert said(given) != said(without), (row.name, at, given)
    null = c.post(PATHS[at], {**base, row.name: None}) if row.name not in base else (200, None)
    assert null[0] == 200, (row.name, at, null)


def test_refused(c, row, at):
    """Named; the values that ask for nothing, and null, are accepted."""
    allowed = [json.loads(v) for v in row.value.split("|") if v]
    value = REFUSED_VALUES.get(row.name) if row.name in REFUSED_VALUES else ASKS.get(row.value, ["word"])
    status, answer = c.post(PATHS[at], {**BODY[at], row.name: value})
    assert status in (400, 404) and answer["error"]["param"] == row.name and row.name in answer["error"]["message"], (row.name, at, answer)
    for v in [None, *allowed] if row.kind == "REFUSED" else [None]:
        status, answer = c.post(PATHS[at], {**BODY[at], "max_tokens": 1, row.name: v})
        assert status == 200, (row.name, at, v, answer)


def test_harmless(c, row, at):
    base = c.post(PATHS[at], BODY[at])
    for value in ("word", 3, True, {"a": 1}, ["a"]):
        assert said(c.post(PATHS[at], {**BODY[at], row.name: value})) == said(base), (row.name, at, value)


# ---- fields with a test of their own -------------------------------------------------------------
def text_of(answer, at):
    choice = answer["choices"][0]
    return choice["text"] if at == "text" else choice["message"]["content"]


def special_id(c):
    """A token that has no text in answers."""
    ids = c.post("/tokenize", {"prompt": "<|start_header_id|>", "add_special_tokens": False})[1]["tokens"]
    assert len(ids) == 1, ids
    return ids[0]


def test_logit_bias(c, at):
    word = c.post("/tokenize", {"prompt": " owl", "add_special_tokens": False})[1]["tokens"][0]
    plain = text_of(c.post(PATHS[at], BODY[at])[1], at)
    forms = [{str(word): 100}, [[word, 100]], [[word, -100], [word, 100]]]
    assert {text_of(c.post(PATHS[at], {**BODY[at], "logit_bias": b})[1], at) for b in forms} == {" owl" * 12}
    first = c.post(PATHS[at], {**BODY[at], "return_token_ids": True})[1]["choices"][0]["token_ids"][0]
    for never in [{str(first): False}, [[first, False]]]:
        assert text_of(c.post(PATHS[at], {**BODY[at], "logit_bias": never})[1], at) != plain
    for wrong in [{"owl": 1}, [["owl", 1]], [[word]], [word], {str(word): True}, 3]:
        status, answer = c.post(PATHS[at], {**BODY[at], "logit_bias": wrong})
        assert status == 400 and answer["error"]["param"] == "logit_bias", (wrong, answer)


def test_stop_token_ids(c, at):
    ids = c.post(PATHS[at], {**BODY[at], "return_token_ids": True})[1]["choices"][0]["token_ids"]
    found = c.post(PATHS[at], {**BODY[at], "stop_token_ids": [ids[4]]})[1]["choices"][0]
    assert found["finish_reason"] == "stop" and found["stop_reason"] == ids[4], found
    kept = c.post(PATHS[at], {**BODY[at], "stop_token_ids": [ids[4]], "include_stop_str_in_output": True})[1]
    text = text_of({"choices": [found]}, at)
    assert text_of(kept, at).startswith(text) and len(text_of(kept, at)) > len(text), (kept, text)


def test_priority(c, at):
    """The order of requests alone."""
    assert said(c.post(PATHS[at], {**BODY[at], "priority": 5})) == said(c.post(PATHS[at], BODY[at]))
    assert c.post(PATHS[at], {**BODY[at], "priority": "x"})[1]["error"]["param"] == "priority"


def test_cache_salt(c, at):
    long = {"prompt": "once more a cat " * 40, "messages": [{"role": "user", "content": "once more a cat " * 40}]}
    cached = lambda salt: c.post(PATHS[at], {**BODY[at], **long, "cache_salt": salt})[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert [cached(salt) > 0 for salt in ("a" + at, "a" + at, "b" + at, "a" + at)] == [False, True, False, True]


def test_skip_special_tokens(c, at):
    base = {**BODY[at], "logit_bias": {str(special_id(c)): 100}, "max_tokens": 2}
    assert text_of(c.post(PATHS[at], base)[1], at) == ""
    assert text_of(c.post(PATHS[at], {**base, "skip_special_tokens": False})[1], at) == "<|start_header_id|>" * 2


def test_parallel_tool_calls(c, at):
    base = {"messages": MESSAGES, "tools": [TOOL], "tool_choice": "required", "temperature": 1.5, "max_tokens": 300}
    calls = lambda **more: c.post(PATHS[at], {**base, **more})[1]["choices"][0]["message"]["tool_calls"]
    seed = next(seed for seed in range(40) if len(calls(seed=seed)) > 1)
    assert len(calls(seed=seed, parallel_tool_calls=False)) == 1


def test_include_reasoning(c, at):
    """Of a model that thinks."""
    with tempfile.TemporaryDirectory() as folder, served.Server(MINERVA, model=served.model_with_calls(folder, "", "</think>", "<think>\n")) as s:
        thinks = Client(s)
        with_it, without = (thinks.post(PATHS[at], {**BODY[at], **more})[1] for more in ({}, {"include_reasoning": False}))
    assert with_it["choices"][0]["message"]["reasoning_content"] and "reasoning_content" not in without["choices"][0]["message"], without
    assert with_it["usage"]["completion_tokens"] == without["usage"]["completion_tokens"]


def test_model(c, at):
    for name in ("storyteller", "storyteller:latest"):
        status, answer = c.post(PATHS[at], {**BODY[at], "model": name})
        assert status == 200 and answer["model"] == "storyteller", answer
    test_refused(c, next(r for r in fields_table.rows() if r.name == "model"), at)


def test_return_progress(c, at):
    """Chunks beside those of the answer; each prompt once, for a cached one takes no steps."""
    told = [[x for x in events(c, PATHS[at], {**BODY[at], **LONG, "cache_salt": at + str(given), "return_progress": given}) if "prompt_progress" in x]
            for given in (False, True)]
    assert not told[0] and told[1], told


def test_suffix(c, at):
    """The tokens of a model that has some: prefix, suffix, middle, in this order; files before them."""
    with tempfile.TemporaryDirectory() as folder:
        first = served.model_with_tokens(folder, served.FIM)
        with served.Server(MINERVA, model=folder) as s:
            fills = Client(s)
            ids = lambda text: fills.post("/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"]
            ask = lambda **more: fills.post(PATHS[at], {**BODY[at], "return_token_ids": True, **more})[1]["choices"][0]
            bos = fills.post("/tokenize", {"prompt": ""})[1]["tokens"]
            found = ask(suffix=" a cat.")
            assert found["prompt_token_ids"] == bos + [first, *ids(BODY[at]["prompt"]), first + 1, *ids(" a cat."), first + 2], found
            assert (first + 2 in ask(suffix=" <|fim_middle|>")["prompt_token_ids"][:-1]) is False
            files = ask(suffix=" a cat.", input_extra=[{"filename": "a.txt", "text": "A dog."}])["prompt_token_ids"]
            assert files[len(bos)] == first + 3 and files.count(first + 4) == 2 and [x for x in ids("A dog.") if x in files], files
            for wrong in ({"suffix": 3}, {"suffix": "x", "input_extra": [{}]}, {"suffix": "x", "prompt": [1, 2]}, {"input_extra": {}}):
                assert fills.post(PATHS[at], {**BODY[at], **wrong})[0] == 400, wrong
    status, answer = c.post(PATHS[at], {**BODY[at], "suffix": "x"})
    assert status == 400 and answer["error"]["param"] == "suffix", answer


OWN = {"return_progress": test_return_progress, "suffix": test_suffix, "input_extra": test_suffix, "logit_bias": test_logit_bias, "stop_token_ids": test_stop_token_ids, "priority": test_priority, "cache_salt": test_cache_salt,
       "skip_special_tokens": test_skip_special_tokens, "parallel_tool_calls": test_parallel_tool_calls, "include_reasoning": test_include_reasoning,
       "model": test_model}


def test_fields(c, rows):
    for row in rows:
        for at in row.at:
            if row.kind == "HARMLESS":
                test_harmless(c, row, at)
            elif row.kind == "REFUSED" or (row.name in REFUSED_VALUES and row.name not in OWN):
                test_refused(c, row, at)
            elif row.name in OWN:
                OWN[row.name](c, at)
            else:
                test_changes(c, row, at)


# ---- what the fields mean ------------------------------------------------------------------------
def test_seeds(c):
    """64 bits whole, with a sign or without; beyond them an error."""
    text = lambda seed: text_of(c.post(PATHS["text"], {**BODY["text"], **DRAW, "seed": seed})[1], "text")
    whole = [2 ** 53, 2 ** 53 + 1, 2 ** 63 - 1, -2 ** 63, 2 ** 64 - 1, -2, 0]
    texts = [text(seed) for seed in whole]
    assert len(set(texts)) >= len(whole) - 1 and texts == [text(seed) for seed in whole], texts
    assert len({text(-1) for _ in range(6)}) > 1
    for seed in (2 ** 64, -2 ** 63 - 1, 1.5, "3", 10 ** 30, 1e300):
        status, answer = c.post(PATHS["text"], {**BODY["text"], "seed": seed})
        assert status == 400 and answer["error"]["param"] == "seed", (seed, answer)


def test_forms(c):
    """A form is enforced or refused, whatever it is called."""
    for form in ({"response_format": {"type": "json_object", "schema": WORD}}, {"response_format": {"type": "json_schema", "schema": WORD}},
                 {"response_format": {"type": "json_schema", "json_schema": {"schema": WORD}}}, {"json_schema": WORD}, {"json_schema": json.dumps(WORD)},
                 {"structured_outputs": {"json": WORD, "json_object": False, "regex": None, "_backend": "x"}}):
        for at in PATHS:
            status, answer = c.post(PATHS[at], {**BODY[at], **form, "max_tokens": 60})
            assert status == 200 and json.loads(text_of(answer, at)) == {"a": "b"}, (form, answer)
    never = {"structured_outputs": {"json": False}}, {"guided_json": False}, {"json_schema": False}
    wrong = {"response_format": {"type": "json_object", "schema": 123}}, {"response_format": {"type": "json_object", "schema": {"type": 123}}}, \
        {"response_format": {"type": "json_schema", "schema": "{"}}, {"grammar": "root ::= this is (not valid"}, {"ebnf": "root ::= x"}, {"regex": "("}, \
        {"structured_outputs": {"regex": 3}}, {"structured_outputs": {"structural_tag": "x"}}, {"structured_outputs": {"whitespace_pattern": " "}}, \
        {"structured_outputs": {"disable_any_whitespace": True}}, {"response_format": {"type": "structural_tag", "structures": [], "triggers": []}}, \
        {"grammar": 'root ::= "a"', "json_schema": WORD}
    for form in never + wrong:
        status, answer = c.post(PATHS["chat"], {**BODY["chat"], **form})
        assert status == 400 and answer["error"]["param"] in form, (form, answer)
    for reasoning in ({"max_tokens": 5}, {"effort": 3}, {"enabled": "x"}, "low"):
        status, answer = c.post(PATHS["chat"], {**BODY["chat"], "reasoning": reasoning})
        assert status == 400 and answer["error"]["param"] in ("reasoning", "enabled"), (reasoning, answer)
    for tool in ({"type": "custom", "custom": {"name": "x"}}, {"type": "function"}, {"type": 3, "function": {"name": "x"}}, "x"):
        status, answer = c.post(PATHS["chat"], {**BODY["chat"], "tools": [TOOL, tool]})
        assert status == 400 and answer["error"]["param"] == "tools" and "tools[1]" in answer["error"]["message"], answer


def test_end(c):
    """continue_final_message; min_tokens, stop strings and what ended an answer."""
    chat = lambda **more: c.post(PATHS["chat"], {**BODY["chat"], **more})
    ids = lambda messages, **more: c.post("/tokenize", {"messages": messages, **more})[1]["tokens"]
    more = {"continue_final_message": True, "add_generation_prompt": False}
    open_ids, owl = ids(ASSISTANT, **more), c.post("/tokenize", {"prompt": "The old owl", "add_special_tokens": False})[1]["tokens"]
    assert open_ids == ids(MESSAGES) + owl, (open_ids, owl)
    parts = [*MESSAGES, {"role": "assistant", "content": [{"type": "text", "text": "The"}, {"type": "text", "text": "old owl "}]}]
    assert ids(parts, **more) != ids(parts) and ids(parts, **more)[:len(ids(MESSAGES))] == ids(MESSAGES)
    assert text_of(chat(messages=ASSISTANT, **more)[1], "chat")[:1] in " ,.'"
    header = c.post("/tokenize", {"prompt": "<|start_header_id|>assistant<|end_header_id|>\n\n", "add_special_tokens": False})[1]["tokens"]
    assert ids(MESSAGES) == ids(MESSAGES, add_generation_prompt=False) + header
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    for messages, wrong in ((MESSAGES, more), (ASSISTANT, {**more, "add_generation_prompt": True}), ([*MESSAGES, {"role": "assistant", "content": ""}], more),
                            ([*MESSAGES, {"role": "assistant", "content": "x", "tool_calls": [call]}], more)):
        status, answer = chat(messages=messages, **wrong)
        assert status == 400 and answer["error"]["param"] == "continue_final_message", answer
    for at in PATHS:
        text = text_of(c.post(PATHS[at], {**BODY[at], "max_tokens": 40})[1], at)
        stop = text[12:15]
        found = c.post(PATHS[at], {**BODY[at], "max_tokens": 40, "stop": ["zzz", stop]})[1]["choices"][0]
        assert found["stop_reason"] == stop and found["finish_reason"] == "stop", found
        kept = c.post(PATHS[at], {**BODY[at], "max_tokens": 40, "stop": [stop], "include_stop_str_in_output": True})[1]
        assert text_of(kept, at) == text[:text.index(stop) + 3], (kept, text)
        late = c.post(PATHS[at], {**BODY[at], "max_tokens": 40, "stop": [stop], "min_tokens": 40})[1]["choices"][0]
        assert text_of({"choices": [late]}, at) == text and late["stop_reason"] is None, late
        status, answer = c.post(PATHS[at], {**BODY[at], "max_tokens": 32000})
        assert status == 200 and answer["choices"][0]["finish_reason"] in ("stop", "length"), answer


def events(c, path, body):
    text = c.post(path, {**body, "stream": True})[1]
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", text[-200:]
    return [json.loads(line) for line in lines[:-1]]


def test_streams(c):
    """Ids and usage in the pieces; the text of kept stop strings; the end."""
    for at in PATHS:
        base = {**BODY[at], "return_token_ids": True}
        whole = c.post(PATHS[at], base)[1]
        chunks = events(c, PATHS[at], {**base, "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
        choices = [x["choices"][0] for x in chunks if x["choices"]]
        assert [i for x in choices for i in x["token_ids"]] == whole["choices"][0]["token_ids"], chunks
        assert len(whole["choices"][0]["token_ids"]) == whole["usage"]["completion_tokens"]
        prompt = choices[0]["prompt_token_ids"]
        assert prompt == whole["choices"][0]["prompt_token_ids"] and not any("prompt_token_ids" in x for x in choices[1:])
        assert len(prompt) == whole["usage"]["prompt_tokens"]
        assert at == "text" or chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"] == prompt
        counts = [x["usage"]["completion_tokens"] for x in chunks]
        assert counts == sorted(counts) and counts[-1] == 12, counts
        assert len({x["system_fingerprint"] for x in [*chunks, whole]}) == 1 and whole["system_fingerprint"]
        stop = {**BODY[at], "stop": ["a", "e"], "include_stop_str_in_output": True}
        piece = lambda x: x["choices"][0].get("text") or x["choices"][0].get("delta", {}).get("content") or ""
        assert "".join(map(piece, events(c, PATHS[at], stop))) == text_of(c.post(PATHS[at], stop)[1], at)
        last = events(c, PATHS[at], stop)[-1]["choices"][0]
        assert last["finish_reason"] == "stop" and last["stop_reason"] in ("a", "e"), last
        for more in ({}, {"stop": ["a", "e"]}, {"logprobs": True if at == "chat" else 1}):  # no piece is empty, but for the one that says the reason alone
            pieces = events(c, PATHS[at], {**BODY[at], **more})
            assert all(map(piece, pieces[1:-1])) and (at == "chat" or piece(pieces[-1]) or more), pieces
            assert at == "text" or (not piece(pieces[-1]) and pieces[0]["choices"][0]["delta"]["content"] is None), pieces
    for n, tops in ((0, 1), (1, 1), (3, 3)):
        entries = c.post(PATHS["text"], {**BODY["text"], "logprobs": n})[1]["choices"][0]["logprobs"]
        assert [len(x) for x in entries["top_logprobs"]] == [tops] * 12, entries
        assert all(token in top for token, top in zip(entries["tokens"], entries["top_logprobs"])), entries


def main():
    if not served.available(MINERVA):
        print("this minerva was built without its server")
        sys.exit(77)
    rows = list(fields_table.rows())
    check_names(rows)
    fields_table.main()
    show = "".join("{%%- if %s is defined and %s %%}{{ %s }}{%%- endif %%}" % (v, v, v) for v in ("documents", "tools", "verbosity", "reasoning_effort"))
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "storyteller")
        os.mkdir(model)
        served.model_with_calls(model, "<tool_call>", tail="{%- if add_generation_prompt %}" + show + "{%- endif %}")
        with served.Server(MINERVA, "--precision", "exact", "--alias", "*", "--alias", "any", model=model) as s:
            c = Client(s)
            assert c.post(PATHS["chat"], {**BODY["chat"], "model": "gpt-4"})[0] == 200
            c.connection.request("GET", "/v1/models")
            assert [m["id"] for m in json.loads(c.connection.getresponse().read())["data"]] == ["any"]
        with served.Server(MINERVA, "--precision", "exact", model=model) as s:
            c = Client(s)
            test_fields(c, rows)
            test_seeds(c)
            test_forms(c)
            test_end(c)
            test_streams(c)


if __name__ == "__main__":
    main()
