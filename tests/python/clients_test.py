#!/usr/bin/env python3
"""LangChain's ChatLlamaCpp and LlamaCppEmbeddings, LlamaIndex's LlamaCPP and llm's llama-cpp plugin run unchanged on minerva.llama_cpp: a chat, a stream and
embeddings of each that has them. clients_test.py FOLDER: they are installed below it once, from PyPI, pinned by hash; without a network, or with another
Python than the pinned wheels are for, the test is skipped with a line. The last line says what ran."""
import os
import platform
import subprocess
import sys
import tempfile
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "serve"))
import pypi

import minerva.llama_cpp

MODEL = os.path.join(os.path.dirname(HERE), "data", "storyteller-q4_0.gguf")
PROMPT = "Once upon a time"


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


def test_langchain():
    from langchain_community.chat_models import ChatLlamaCpp
    from langchain_community.embeddings import LlamaCppEmbeddings
    from langchain_core.messages import HumanMessage, SystemMessage
    settings = dict(model_path=MODEL, n_ctx=256, max_tokens=12, temperature=0, verbose=False)
    messages = [SystemMessage("Be kind."), HumanMessage("Tell me a story.")]
    whole = ChatLlamaCpp(streaming=False, **settings).invoke(messages)
    assert len(whole.content) > 10 and whole.response_metadata["token_usage"]["completion_tokens"] == 12, whole
    chat = ChatLlamaCpp(streaming=True, **settings)
    pieces = [piece.content for piece in chat.stream(messages)]
    assert len(pieces) > 5
    equal("".join(pieces), whole.content)
    of = LlamaCppEmbeddings(model_path=MODEL, n_ctx=256, verbose=False)
    one, two = of.embed_documents(["an owl", "a fox"])
    query = of.embed_query("an owl")
    assert len(one) == len(two) == len(query) == 256 and one != two
    assert all(abs(a - b) < 1e-2 + 1e-2 * abs(b) for a, b in zip(query, one))


def test_llama_index():
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.llama_cpp import LlamaCPP
    llm = LlamaCPP(model_path=MODEL, max_new_tokens=12, temperature=0, context_window=256, verbose=False,
                   messages_to_prompt=lambda messages: messages[-1].content, completion_to_prompt=lambda text: text)
    equal(llm.metadata.context_window, 256)
    whole = llm.complete(PROMPT).text
    pieces = [r.delta for r in llm.stream_complete(PROMPT)]
    assert len(pieces) > 5 and len(whole) > 10
    equal("".join(pieces), whole)
    equal(llm.chat([ChatMessage(role="user", content=PROMPT)]).message.content, whole)
    equal([r.message.content for r in llm.stream_chat([ChatMessage(role="user", content=PROMPT)])][-1], whole)


def test_llm(path):
    """Its command, in a process of its own."""
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "LLM_USER_PATH": home, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], path])}

        def call(*words):
            p = subprocess.run([sys.executable, "-m", "minerva.llama_cpp", "llm", *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
            assert p.returncode == 0, (words, p.stderr[-1500:])
            return p.stdout
        call("llama-cpp", "add-model", MODEL, "--alias", "owl")
        assert len(call("-m", "owl", "-o", "max_tokens", "12", "-o", "n_ctx", "256", "-o", "no_gpu", "1", PROMPT).split()) > 5
        script = ("import llm\nr = llm.get_model('owl').prompt(%r, max_tokens=12, n_ctx=256)\nassert len(list(r)) > 5\n" % PROMPT)
        folder = os.path.join(home, "modules")
        os.mkdir(folder)
        with open(os.path.join(folder, "streamed.py"), "w", encoding="utf-8") as f:
            f.write(script)
        env["PYTHONPATH"] += os.pathsep + folder
        subprocess.run([sys.executable, "-m", "minerva.llama_cpp", "streamed"], env=env, check=True)


def main():
    if sys.version_info[:2] != (3, 11) or platform.machine() != "x86_64":
        print("skipped: the pinned wheels are for Python 3.11 on x86_64, this is %s on %s" % (platform.python_version(), platform.machine()))
        sys.exit(77)
    path = pypi.install(sys.argv[1], os.path.join(HERE, "clients_requirements.txt"), "minerva.llama_cpp with LangChain, LlamaIndex and llm")
    if not path:
        sys.exit(77)
    sys.path.insert(0, path)
    minerva.llama_cpp.install()
    warnings.simplefilter("ignore")  # the clients' own
    test_langchain()
    print("ok    LangChain: ChatLlamaCpp, LlamaCppEmbeddings")
    test_llama_index()
    print("ok    LlamaIndex: LlamaCPP")
    test_llm(path)
    print("ok    llm: llm-llama-cpp")
    print("ran, not skipped: LangChain, LlamaIndex, llm")


if __name__ == "__main__":
    main()
