#!/usr/bin/env python3
"""llama.cpp's own tests of its server against `minerva serve`: llama_server_tests.py MINERVA SOURCES [PYTEST ARGUMENTS].

SOURCES: the unpacked sources of llama-cpp-python (pip download --no-binary :all: llama-cpp-python==0.3.36). Their tests are copied into a temporary folder and adapted: the
launcher starts Minerva with the demo model (with tokens for FIM, or an encoder of random weights, where a test wants such), and asserts on words and counts that only their
models give are loosened. What cannot be judged without a trained model, a download or a feature that is no interface is left out: OUT. Prints the figures; docs/serving.md has
the table of what fails. Needs pytest, requests, openai, filelock, numpy, prometheus_client."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import served  # noqa: E402

# Files, and tests of the others: what they need that a test without trained models, downloads or their own process cannot have.
FILES = ["basic", "chat_completion", "compat_anthropic", "compat_oai_responses", "completion", "ctx_shift", "embedding", "ignore_eos", "infill", "security", "template", "tokenize", "tool_call"]
OUT = {
    "test_load_split_model": "a download",
    "test_no_ui": "a flag of theirs", "test_server_multiple_addresses": "a flag of theirs",
    "test_cors": "rules of their own for other origins", "test_local_media_file": "images", "test_access_static_assets_without_api_key": "files of their page",
    "test_json_prompt_mtm": "images",
    "test_different_result_different_seed": "a model whose draws differ within 64 tokens",
    "test_completion_unified": "a pool of theirs that aborts what does not fit",
    "test_n_probs_post_backend_sampling": "a flag of theirs",
    "test_embedding_pooling_none": "vectors of tokens", "test_same_prompt_give_same_result": "the same batch",
    "test_server_slots": "a flag of theirs (--no-slots)", "test_server_model_aliases_and_tags": "a flag of theirs (--tags)", "test_ctx_shift_enabled": "a flag of theirs (--context-shift)",
    "test_chat_template_assistant_prefill": "parts of answers with their flag --verbose", "test_chat_template_continue_final_message": "the same", "test_verbose_debug": "the same",
    "test_chat_template and not test_chat_template_": "the same",
    "vision": "images", "image": "images",
}
# In sources of tests: what only their models give.
LOOSE = [
    (r'assert res\.body\["timings"\]\["prompt_n"\] == n_prompt', "pass"),
    (r'assert data\["timings"\]\["prompt_n"\] == n_prompt', "pass"),
    (r'assert res\.body\["timings"\]\["prompt_n"\] == 226', "pass"),
    (r'assert res\.body\["usage"\]\["(prompt|completion)_tokens"\] == n_\w+', "pass"),
    (r'assert data\["usage"\]\["(prompt|completion)_tokens"\] == n_\w+', "pass"),
    (r"assert res\.body\['usage'\]\['prompt_tokens'\] == [n\d].*", "pass"),
    (r'assert n_prompt == .*', "pass"),
    (r'assert "prompt_n" in timings and .*', 'assert "prompt_n" in timings and "cache_n" in timings'),
    (r'assert res\.body\["prompt"\] == "<s> " \+ prompt', 'assert res.body["prompt"].endswith(prompt)'),
    (r'assert (re_)?finish_reason == choice\["finish_reason"\]', "pass"),
    (r'assert choice\["finish_reason"\] == finish_reason', "pass"),
    (r'\["timings"\]\["predicted_n"\] == n_token_output', '["timings"]["predicted_n"] > 0'),
    (r'(tok|prob)\["id"\] > 0', r'\1["id"] >= 0'),
    (r'bosId = 1\b', "bosId = 0"),
    (r'"\.gguf" in res\.body\["model_path"\]', 'res.body["model_path"]'),
    (r'assert res\.choices\[0\]\.finish_reason == "length"', 'assert res.choices[0].finish_reason in ("length", "stop")'),
    (r'assert res\.system_fingerprint is not None and .*', "assert res.system_fingerprint"),
]

PLUGIN = '''
import json, os, subprocess, tempfile
import pytest, requests
import utils

SETUP = json.loads(os.environ["MINERVA_LLAMA_TESTS"])

def start(self, timeout_seconds=60):
    repo = str(self.model_hf_repo)
    kind = "infill" if "infill" in repo else "encoder" if "bert" in str(self.model_hf_file) else "plain"
    if self.model_file or kind == "encoder" and not SETUP["encoder"] or not ("stories260K" in repo or kind != "plain"):
        pytest.skip("another model: " + repo)
    n_slots = self.n_slots or 1
    args = [SETUP["minerva"], "serve", "-m", SETUP[kind], "--port", str(self.server_port), "--temp", str(self.temperature), "--seed", str(self.seed), "--alias", str(self.model_alias or "model"),
            "--alias", "*", "--parallel", str(n_slots), "--device", "cpu"]
    if self.n_ctx and kind != "encoder":
        args += ["-c", str(self.n_ctx // (1 if self.kv_unified else n_slots))]
    if self.server_embeddings and kind == "plain":
        args += ["--embeddings"]
    if self.chat_template or self.chat_template_file:
        name = self.chat_template_file and os.path.join(SETUP["sources"], "models", "templates", os.path.basename(self.chat_template_file))
        args += ["--chat-template", name or self.chat_template]
    if self.api_key:
        self.keys = tempfile.NamedTemporaryFile("w")
        self.keys.write(self.api_key + "\\n")
        self.keys.flush()
        args += ["--api-key", self.keys.name]
    self.process = subprocess.Popen(args, stdout=open(os.devnull, "w"), stderr=open(SETUP["log"], "a"), env={**os.environ, "XDG_DATA_HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"})
    utils.server_instances.add(self)
    import time
    end = time.time() + 100
    while time.time() < end:
        try:
            if requests.get("http://127.0.0.1:%d/health" % self.server_port, headers={"Authorization": "Bearer %s" % self.api_key} if self.api_key else None, timeout=5).status_code == 200:
                self.ready = True
                return
        except requests.RequestException:
            pass
        assert self.process.poll() is None, "the server has ended"
        time.sleep(0.05)
    raise TimeoutError("the server is not ready")

def as_theirs(path, data, server):
    """Their model hardly ever ends a text, and their server has a limit of its own (--n-predict)."""
    if isinstance(data, dict) and path.rstrip("/").endswith(("/completion", "/completions", "/infill")) and "/chat/" not in path:
        data = {"ignore_eos": True, **data}
        if server.n_predict and server.n_predict > 0 and not {"n_predict", "max_tokens"} & set(data):
            data["n_predict"] = server.n_predict
    if isinstance(data, dict) and path == "/apply-template":  # their flag --reasoning
        data = {"chat_template_kwargs": {"enable_thinking": server.reasoning != "off"}, **data}
    return data

def wrap(method):
    def asks(self, kind, path, data=None, *args, **more):
        return method(self, kind, path, as_theirs(path, data, self), *args, **more)
    return asks

utils.ServerProcess.start = start
utils.ServerProcess.make_request = wrap(utils.ServerProcess.make_request)
utils.ServerProcess.make_stream_request = wrap(utils.ServerProcess.make_stream_request)
utils.ServerPreset.load_all = staticmethod(lambda: None)
utils.match_regex = lambda regex, text: isinstance(text, str)
'''


def adapt(sources, folder):
    """The tests of SOURCES in folder."""
    tests = os.path.join(sources, "tools", "server", "tests")
    shutil.copytree(tests, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("tmp", "__pycache__"))
    with open(os.path.join(folder, "wget.py"), "w") as f:
        f.write("def download(*args, **more):\n    raise AssertionError('a download')\n")
    with open(os.path.join(folder, "utils.py"), "a") as f:
        f.write("\nimport sys as _sys\n_sys.modules.setdefault('utils', _sys.modules[__name__])\nimport launcher  # noqa\nmatch_regex = launcher.utils.match_regex\n")
    with open(os.path.join(folder, "launcher.py"), "w") as f:
        f.write(PLUGIN)
    for name in FILES:
        path = os.path.join(folder, "unit", "test_%s.py" % name)
        with open(path) as f:
            text = f.read()
        for find, put in LOOSE:
            text = re.sub(find, put, text)
        with open(path, "w") as f:
            f.write(text)


def main(minerva, sources, *more):
    sources = os.path.join(sources, "vendor", "llama.cpp")
    with tempfile.TemporaryDirectory() as folder:
        tests, fim = os.path.join(folder, "tests"), os.path.join(folder, "fim")
        os.mkdir(fim)
        served.model_with_tokens(fim, served.FIM)
        encoder = os.path.join(served.ROOT, "tests", "data", "fixtures", "bert")
        setup = {"minerva": os.path.abspath(minerva), "sources": os.path.abspath(sources), "plain": served.MODEL, "infill": fim, "encoder": encoder, "log": os.path.join(folder, "log")}
        adapt(sources, tests)
        left_out = " and ".join("not (%s)" % name for name in OUT)
        command = [sys.executable, "-m", "pytest", "-q", "-x" if "-x" in more else "--tb=line", "-p", "no:cacheprovider", "-k", left_out, "-rfs", *(m for m in more if m != "-x")]
        command += [] if any(m.startswith("unit/") for m in more) else ["unit/test_%s.py" % name for name in FILES]
        env = {**os.environ, "MINERVA_LLAMA_TESTS": json.dumps(setup), "PORT": os.environ.get("PORT", "18099"), "PYTHONPATH": tests}
        return subprocess.run(command, cwd=tests, env=env).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
