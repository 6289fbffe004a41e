#!/usr/bin/env python3
"""rerankers.py MINERVA: scores of the fixtures that make_rerankers.py made, against what Transformers computed.

Each as a checkpoint, and as minerva convert writes it to GGUF, with and without the keys that only Minerva reads, and of Qwen3-Reranker with the heads that the field's
converters make: logits of pairs alone and together, in class exact on reference and cpu_simd, their sigmoids, the order, the best; and what is refused."""
import functools
import json
import math
import os
import struct
import sys
import tempfile

import gguf_file as gguf
import models
from gguf_file import STR, TENSOR_F32, U32, array, pair
from models import check, copy_fixture, folder_of, golden

MINERVA = sys.argv[1]
DEVICES = {"reference": 1e-5, "cpu_simd": 1e-4}
ALL = ("bert-rank", "distilbert-rank", "xlm-roberta-rank", "modernbert-rank", "electra-rank", "electra-small-rank", "mpnet-rank", "deberta-rank", "qwen3-reranker")


run = functools.partial(models.command, MINERVA)


def rerank(path, query, *flags, device="reference", stdin=None):
    out = run("rerank", "-m", path, "--json", "-q", "--precision", "exact", "--device", device, query, *flags, stdin=stdin).stdout
    return [json.loads(line) for line in out.splitlines()]


def same(what, found, cases, limit, sigmoid=False):
    """Scores of all cases, the best first."""
    want = [1 / (1 + math.exp(-c["logit"])) if sigmoid else c["logit"] for c in cases]
    worst = max([abs(f["score"] - want[f["index"]]) for f in found] + [0 if sorted(f["index"] for f in found) == list(range(len(cases))) else math.inf])
    order = [f["score"] for f in found]
    check(worst <= limit and order == sorted(order, reverse=True), "%s: error of %d scores %.3g, at most %g, in order" % (what, len(cases), worst, limit))
    check(all(f["tokens"] == len(cases[f["index"]]["ids"]) and f["text"] == cases[f["index"]]["text"] for f in found), "%s: tokens and texts" % what)


def scores(what, path, name, limits=DEVICES):
    g = golden(name)
    texts = [c["text"] for c in g["cases"]]
    for device, limit in limits.items():
        same("%s on %s" % (what, device), rerank(path, g["query"], *texts, "--logits", device=device), g["cases"], limit)


def fixtures():
    for name in ALL:
        g, path = golden(name), folder_of(name)
        texts = [c["text"] for c in g["cases"]]
        scores(name, path, name)
        same(name + ", sigmoids", rerank(path, g["query"], *texts), g["cases"], 1e-5, True)
        for c in g["cases"][:2]:
            same(name + ": alone", rerank(path, g["query"], c["text"], "--logits"), [c], 1e-5)
        lines = "".join(c["text"] + "\n" for c in g["cases"][1:])
        found = rerank(path, g["query"], texts[0], "-f", "-", "--logits", stdin=lines)
        same(name + ": texts of a file behind the first", found, g["cases"], 1e-5)
        best = rerank(path, g["query"], *texts, "--logits", "--top", 2)
        check([f["index"] for f in best] == [f["index"] for f in found][:2], "%s: the best two" % name)
        shown = run("rerank", "-m", path, "-q", g["query"], *texts).stdout.splitlines()
        check(len(shown) == 6 and shown[0].split() == ["score", "index", "tokens", "text"], "%s: the table" % name)


def converted(out):
    for name in ALL:
        path = os.path.join(out, "reranker-" + name + ".gguf")
        run("convert", folder_of(name), "-o", path)
        scores(name + " as GGUF", path, name)
        if name == "qwen3-reranker":
            words_kept(path, out)
            continue
        shown = run("inspect", path).stdout
        arch = {"modernbert-rank": "modern-bert", "deberta-rank": "deberta-v2", "mpnet-rank": "mpnet"}.get(name, "bert")
        check("%s.pooling_type = 4" % arch in shown and "cls.output.weight" in shown, "%s as GGUF: pooling_type and the head" % name)
        if name not in ("bert-rank", "xlm-roberta-rank"):
            continue
        with open(path, "rb") as f:
            data = f.read()
        with open(path, "wb") as f:
            f.write(data.replace(b"minerva.classifier.activation", b"another.classifier.activation"))
        scores(name + " as GGUF of another program", path, name)
        small = os.path.join(out, name + "-q8.gguf")
        run("convert", folder_of(name), "-o", small, "--type", "q8_0")
        scores(name + " in q8_0", small, name, {"reference": 0.1, "cpu_simd": 0.1})


def words_kept(path, out):
    """Qwen3-Reranker has a head that other programs use; its name need not say what it is, and the instruction is still the caller's."""
    name = "qwen3-reranker"
    g, shown = golden(name), run("inspect", path).stdout
    check(all(want in shown for want in ("qwen3.pooling_type = 4", "classifier.output_labels", "cls.output.weight", "tokenizer.chat_template.rerank")), "its head as GGUF")
    pairs, tensors = gguf.parts(path)
    pairs["general.name"] = pair("general.name", STR, "a model of another name")
    other, again = os.path.join(out, "other-name.gguf"), os.path.join(out, "again.gguf")
    gguf.write(other, pairs.values(), tensors)
    scores("its head alone", other, name)
    run("convert", other, "-o", again, "--type", "f32")
    scores("its head, converted again", again, name)
    asked = [rerank(p, g["query"], "A", "--instruction", "home")[0]["score"] for p in (folder_of(name), other, again)]
    check(max(asked) - min(asked) < 1e-6, "an instruction has the same effect: %s" % asked)


def of_words(out):
    """Qwen3-Reranker as the field's converter writes it: a head of the rows for yes and no, and the prompt as a template."""
    name = "qwen3-reranker"
    source, path = os.path.join(out, "reranker-qwen3-reranker.gguf"), os.path.join(out, "words.gguf")
    g, m = golden(name), models.fixture(name)
    with open(os.path.join(folder_of(name), "tokenizer.json"), encoding="utf-8") as f:
        vocab = json.load(f)["model"]["vocab"]
    width = m.config["hidden_size"]
    table = m.floats("model.embed_tokens.weight")
    rows = {w: table[vocab[w] * width:(vocab[w] + 1) * width].tobytes() for w in ("yes", "no")}
    for labels in (["yes", "no"], ["no", "yes"]):
        pairs, tensors = gguf.parts(source)
        tensors = [t for t in tensors if t[0] != "cls.output.weight"]
        for key in ("qwen3.pooling_type", "qwen3.classifier.output_labels", "tokenizer.chat_template.rerank"):
            pairs.pop(key)
        pairs.pop("minerva.hidden_act", None)
        pairs["general.name"] = pair("general.name", STR, "a model of another name")
        pairs["pooling"] = pair("qwen3.pooling_type", U32, 4)
        pairs["labels"] = array("qwen3.classifier.output_labels", STR, labels)
        prompt = make_prompt("Given a web search query, retrieve relevant passages that answer the query", "{query}", "{document}")
        pairs["template"] = pair("tokenizer.chat_template.rerank", STR, prompt)
        gguf.write(path, pairs.values(), tensors + [("cls.output.weight", [2, width], TENSOR_F32, rows[labels[0]] + rows[labels[1]])])
        scores("a head of %s" % labels, path, name)
    gguf.write(path, [v for k, v in pairs.items() if k != "labels"], tensors + [("cls.output.weight", [2, width], TENSOR_F32, rows["yes"] + rows["no"])])
    check("2 labels" in run("rerank", "-m", path, g["query"], "A", code=1).stderr, "two labels without names")
    target = copy_fixture(name, os.path.join(out, "sequence-classes"))
    yes, no = (struct.unpack("<%df" % width, rows[w]) for w in ("yes", "no"))
    m.config["architectures"] = ["Qwen3ForSequenceClassification"]
    m.tensors["score.weight"] = ("F32", [1, width], struct.pack("<%df" % width, *(a - b for a, b in zip(yes, no))))
    m.write(target)
    scores("Qwen3ForSequenceClassification", target, name)


def with_pooler(out):
    """RoBERTa's head reads the hidden states: a pooler beside it is not used."""
    target, m = copy_fixture("xlm-roberta-rank", os.path.join(out, "pooler")), models.fixture("xlm-roberta-rank")
    m.tensors.update({"roberta.pooler.dense.weight": ("F32", [32, 32], bytes(4096)), "roberta.pooler.dense.bias": ("F32", [32], bytes(128))})
    m.write(target)
    scores("a pooler beside the head", target, "xlm-roberta-rank")


def labels(out):
    """A head that classifies scores by one of its labels, as a checkpoint and as GGUF."""
    folder, path, g = folder_of("bert-labels"), os.path.join(out, "labels.gguf"), golden("bert-labels")
    texts = [c["text"] for c in g["cases"]]
    run("convert", folder, "-o", path)
    for model in (folder, path):
        for i, name in enumerate(("contradiction", "entailment", "neutral")):
            cases = [dict(c, logit=c["logits"][i]) for c in g["cases"]]
            for device, limit in DEVICES.items():
                same("label %s on %s" % (name, device), rerank(model, g["query"], *texts, "--logits", "--label", name, device=device), cases, limit)
            shares = [c["logits"][i] - math.log(sum(math.exp(x) for x in c["logits"])) for c in g["cases"]]
            cases = [dict(c, logit=s - math.log(-math.expm1(s))) for c, s in zip(g["cases"], shares)]  # whose sigmoid is the share
            same("the share of label %d" % i, rerank(model, g["query"], *texts, "--label", str(i)), cases, 1e-5, True)
    said = run("rerank", "-m", folder, "a", "b", code=1).stderr
    check("3 labels: contradiction, entailment, neutral" in said and "--label" in said, "labels, and none named: %s" % said.strip()[-200:])
    check("happy" in run("rerank", "-m", folder, "a", "b", "--label", "happy", code=2).stderr, "a label that is none")
    check("no labels" in run("rerank", "-m", folder_of("bert-rank"), "a", "b", "--label", "yes", code=2).stderr, "a reranker has no labels")
    m, target = models.fixture("bert-labels"), copy_fixture("bert-labels", os.path.join(out, "unnamed"))
    m.config["id2label"] = {"0": "a", "2": "b", "3": "c"}
    m.write(target)
    check("id2label.1" in run("rerank", "-m", target, "a", "b", "--label", "0", code=1).stderr, "a label without a name")
    m.config.pop("id2label")
    m.write(target)
    run("rerank", "-m", target, "a", "b", "--label", "2")


def make_prompt(instruction, query, document):
    return ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "
            "\"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: %s\n<Query>: %s\n<Document>: %s<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
            % (instruction, query, document))


def refused(out):
    bert = folder_of("bert-rank")
    for path, word in ((folder_of("bert"), "no head"), (folder_of("llama"), "no head")):
        check(word in run("rerank", "-m", path, "a", "b", code=1).stderr, "%s scores nothing" % os.path.basename(path))
    check("96" in run("rerank", "-m", bert, "a", "the cat " * 60, code=1).stderr, "a pair that is too long")
    check("no text" in run("rerank", "-m", bert, "a", code=2).stderr, "a query alone")
    check("no query" in run("rerank", "-m", bert, code=2).stderr, "nothing")
    check("instruction" in run("rerank", "-m", bert, "a", "b", "--instruction", "find it", code=1).stderr, "an instruction for a model without a prompt")
    g = golden("qwen3-reranker")
    plain, asked = (rerank(folder_of("qwen3-reranker"), g["query"], "A", *more)[0]["score"] for more in ((), ("--instruction", "home")))
    check(plain != asked, "an instruction changes the score")
    check("rank" in run("embed", "-m", bert, "a", code=1).stderr, "a reranker embeds by a named pooling alone")
    run("embed", "-m", bert, "a", "--pooling", "cls")
    for what, change, word in (("labels", lambda m: m.tensors.update({"classifier.weight": ("F32", [2, 32], bytes(256)), "classifier.bias": ("F32", [2], bytes(8))}), "2 labels"),
                               ("a head of another width", lambda m: m.tensors.update({"classifier.weight": ("F32", [1, 31], bytes(124))}), "classifier.weight"),
                               ("a bias of another width", lambda m: m.tensors.update({"bert.pooler.dense.bias": ("F32", [31], bytes(124))}), "pooler.dense.bias"),
                               ("an activation", lambda m: m.config.update(classifier_activation="sine"), "sine"),
                               ("a pooling", lambda m: m.config.update(classifier_pooling="max"), "max")):
        target, m = copy_fixture("bert-rank", os.path.join(out, "several")), models.fixture("bert-rank")
        change(m)
        m.write(target)
        p = run("rerank", "-m", target, "a", "b", code=1)
        check(word in p.stderr, "%s: %s" % (what, p.stderr.strip()[-160:]))


def main():
    fixtures()
    with tempfile.TemporaryDirectory() as out:
        converted(out)
        of_words(out)
        labels(out)
        with_pooler(out)
        refused(out)
    models.finish()


main()
