#!/usr/bin/env python3
"""encoders.py MINERVA [DEVICE...]: embeddings of the fixtures that make_encoders.py made, against what Transformers computed.

Each as a checkpoint in several spellings, as the converters of the field write it to GGUF, and as minerva convert does: ids, every pooling, the defaults that the
files state, texts alone and together, in class exact on reference and cpu_simd; and what is refused. With devices: the fixtures on these
alone."""
import functools
import json
import math
import os
import sys
import tempfile

import gguf_file as gguf
import models
from gguf_file import BOOL, F32, I32, STR, TENSOR_F32, U32, array, pair
from models import check, copy_fixture, folder_of, golden

MINERVA = sys.argv[1]
DEVICES = sys.argv[2:] or ["reference", "cpu_simd"]
ENCODERS = ("bert", "distilbert", "roberta", "xlm-roberta", "nomic-bert", "modernbert", "electra")
OWN = ("mpnet", "mpnet-plain", "electra-small", "electra-small-wide", "deberta-v2", "deberta-v3", "deberta-v2-conv",
       "deberta-v2-conv5")  # that llama.cpp has no name for
UNIGRAMS = ("xlm-roberta", "deberta-v2", "deberta-v3", "deberta-v2-conv", "deberta-v2-conv5")
ALL = ENCODERS + OWN + ("qwen3-headless",)
GEMMAS = ("embedding-gemma", "embedding-gemma-plain")  # with layers behind the pooling


run = functools.partial(models.command, MINERVA)


def embed(path, *flags, stdin=None, device=DEVICES[0]):
    """[{"tokens", "embedding"}] of class exact."""
    out = run("embed", "-m", path, "--json", "-q", "--precision", "exact", "--device", device, *flags, stdin=stdin).stdout
    return [json.loads(line) for line in out.splitlines()]


def error(a, b):
    return math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b)) / math.fsum(y * y for y in b)) if len(a) == len(b) else math.inf


def unit(v):
    length = math.sqrt(math.fsum(x * x for x in v))
    return [x / length for x in v]


def same(what, found, want, limit=1e-4):
    worst = max([error(f["embedding"], w) for f, w in zip(found, want)] + [0 if len(found) == len(want) else math.inf])
    check(worst <= limit, "%s: relative L2 error of %d vectors %.3g, at most %g" % (what, len(want), worst, limit))


def all_poolings(what, path, cases, devices=DEVICES):
    lines = "".join(c["text"] + "\n" for c in cases)
    for device in devices:
        for how in ("mean", "cls", "last"):
            found = embed(path, "-f", "-", "--pooling", how, "--norm", "none", stdin=lines, device=device)
            check([f["tokens"] for f in found] == [len(c["ids"]) for c in cases], "%s: numbers of tokens" % what)
            same("%s, %s, %s" % (what, how, device), found, [c[how] for c in cases])


# ---- fixtures as they are ----
def fixtures():
    for name in ALL:
        cases, path = golden(name), folder_of(name)
        for c in cases:
            ids = json.loads(run("tokenize", "-m", path, "-p", c["text"], "--json").stdout)["ids"]
            check(ids == c["ids"], "%s: ids of %r" % (name, c["text"][:30]))
        all_poolings(name, path, cases)
        for c in cases[:2]:
            alone = embed(path, c["text"], "--pooling", "mean", "--norm", "none")
            same("%s: a text alone" % name, alone, [c["mean"]])
        ids = ",".join(map(str, cases[1]["ids"]))
        same("%s: ids" % name, embed(path, "--prompt-ids", ids, "--pooling", "cls", "--norm", "l2"), [unit(cases[1]["cls"])])
        cut = embed(path, cases[0]["text"], "--pooling", "mean", "--norm", "l2", "--dim", 7)
        same("%s: 7 numbers" % name, cut, [unit(cases[0]["mean"][:7])])


# ---- Dense ----
def vectors(what, path, name, limit=1e-5):
    """What the folder's modules make of the texts, the norm included."""
    cases = golden(name)
    for device in DEVICES:
        same("%s on %s" % (what, device), embed(path, *[c["text"] for c in cases], device=device), [unit(c["vector"]) for c in cases], limit)
    cut = embed(path, cases[0]["text"], "--dim", 7)
    same("%s: 7 numbers" % what, cut, [unit(cases[0]["vector"][:7])])


def gemmas(out):
    for name in GEMMAS:
        cases, bare = golden(name), copy(name, out)
        os.remove(os.path.join(bare, "modules.json"))
        all_poolings(name + " without modules", bare, cases)
        vectors(name, folder_of(name), name)
        named = embed(folder_of(name), cases[0]["text"], "--pooling", "mean")
        same(name + ": a pooling that is named has the layers, too", named, [unit(cases[0]["vector"])])
        path = os.path.join(out, name + ".gguf")
        run("convert", folder_of(name), "-o", path)
        vectors(name + " as GGUF", path, name)
        back = os.path.join(out, name + "-again.gguf")
        run("convert", path, "-o", back)
        vectors(name + " as GGUF, converted again", back, name)
        shown = run("inspect", path).stdout
        for want in ("gemma-embedding.dense_2_feat_in = 32", "gemma-embedding.pooling_type = 1", "dense_2.weight"):
            check(want in shown, "%s converted: %s" % (name, want))
        check("is an encoder" in run("run", "-m", path, "-p", "a", code=1).stderr, name + " generates nothing")
    name = "embedding-gemma"
    plain = lambda pairs, tensors: gguf.write(os.path.join(out, "changed.gguf"), pairs.values(), tensors)
    source = os.path.join(out, name + ".gguf")
    pairs, tensors = gguf.parts(source)
    for what, changed, words in (("a width", [(t[0], [80, 31], t[2], t[3][:80 * 31 * 4]) if t[0] == "dense_2.weight" else t for t in tensors], ["dense_2.weight", "32"]),
                                 ("five layers", tensors + [("dense_%d.weight" % i, [32, 32], TENSOR_F32, bytes(4096)) for i in (4, 5, 6)], ["more than 4"])):
        check(all(w in run("embed", "-m", plain(pairs, changed), "a", code=1).stderr for w in words), "%s of layers behind the pooling: %s" % (what, words))
    dense_folders(out)


def dense_folders(out):
    """What is refused of 2_Dense."""
    name, target = "embedding-gemma", os.path.join(out, "embedding-gemma")
    for change, words in ((dict(activation_function="torch.nn.modules.activation.Softmax"), ["activation_function", "Softmax", "Tanh"]),
                          (dict(activation_function="os.system.Tanh"), ["activation_function", "os.system"]),
                          (dict(use_residual=True), ["use_residual"]), (dict(module_input_name="token_embeddings"), ["module_input_name", "token_embeddings"]),
                          (dict(in_features=31), ["linear.weight", "31"]), (dict(in_features="many"), ["in_features", "many"])):
        copy(name, out)
        with open(os.path.join(target, "2_Dense", "config.json"), encoding="utf-8") as f:
            put(target, dict(json.load(f), **change), "2_Dense", "config.json")
        said = run("embed", "-m", target, "a", code=1).stderr
        check(all(w in said for w in words + ["2_Dense"]), "2_Dense with %s: %s" % (change, said.strip()[-200:]))
        run("embed", "-m", target, "a", "--pooling", "mean")
    modules = json.load(open(os.path.join(folder_of(name), "modules.json"), encoding="utf-8"))
    for order, words in ((modules[:2] + [dict(modules[2], path="../2_Dense")], ["path", "Dense"]), (modules[:2] + modules[4:] + modules[2:3], ["Normalize", "before"])):
        copy(name, out)
        put(target, order, "modules.json")
        check(all(w in run("embed", "-m", target, "a", code=1).stderr for w in words), "modules.json: %s" % words)
    copy(name, out)
    os.remove(os.path.join(target, "3_Dense", "model.safetensors"))
    check("3_Dense" in run("embed", "-m", target, "a", code=1).stderr, "a folder without weights is named")


def want_default(name, cases):
    """By modules.json: mean, cls, mean without a norm; a decoder without one: last."""
    how = {"xlm-roberta": "cls", "qwen3-headless": "last"}.get(name, "mean")
    return [c[how] if name == "roberta" else unit(c[how]) for c in cases]


def defaults(path, name, cases):
    same("%s: defaults" % os.path.basename(path), embed(path, *[c["text"] for c in cases]), want_default(name, cases))


# ---- other spellings of a checkpoint ----
def copy(name, out):
    return copy_fixture(name, os.path.join(out, name))


def respelled(out):
    for name, prefix in (("bert", "bert."), ("roberta", "roberta.")):
        cases, target = golden(name), copy(name, out)
        m = models.fixture(name)
        m.tensors = {(k[len(prefix):] if k.startswith(prefix) else k): v for k, v in m.tensors.items() if not k.startswith(("cls.", "lm_head."))}
        m.tensors = {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in m.tensors.items()}
        m.tensors["embeddings.position_ids"] = ("I64", [1, 4], bytes(32))
        m.tensors["pooler.dense.weight"] = ("F32", [2, 2], bytes(16))
        m.config["architectures"] = [{"bert": "BertModel", "roberta": "RobertaModel"}[name]]
        for key in ("layer_norm_eps", "pad_token_id", "position_embedding_type", "is_decoder", "add_cross_attention"):
            m.config.pop(key, None)
        m.write(target)
        all_poolings(name + " without prefix", target, cases, ["reference"])
    target, m = copy("modernbert", out), models.fixture("modernbert")
    for key in ("rope_parameters", "layer_types", "norm_eps", "tie_word_embeddings"):
        m.config.pop(key)
    m.config.update(global_rope_theta=160000.0, local_rope_theta=10000.0, global_attn_every_n_layers=3, position_embedding_type="absolute")
    m.write(target)
    all_poolings("modernbert with its first keys", target, golden("modernbert"), ["reference"])
    target = copy("bert", out)
    for change, word in ((dict(position_embedding_type="relative_key"), "position_embedding_type"), (dict(is_decoder=True), "is_decoder"),
                         (dict(architectures=["BertForTokenClassification"]), "BertForTokenClassification"), (dict(max_position_embeddings=32), "32")):
        m = models.fixture("bert")
        m.config.update(change)
        m.write(target)
        check(word in run("embed", "-m", target, "a", code=1).stderr, "the message names %s" % word)
    target, m = copy("electra", out), models.fixture("electra")
    m.config["embedding_size"] = 16
    m.write(target)
    check("'embedding_size' is 16" in run("embed", "-m", target, "a", code=1).stderr, "ELECTRA with narrow embeddings")


# ---- pooling ----
def put(target, value, *path):
    with open(os.path.join(target, *path), "w", encoding="utf-8") as f:
        json.dump(value, f)


def poolings(out):
    cases, target = golden("bert"), copy("bert", out)
    texts = [c["text"] for c in cases]
    put(target, {"pooling_mode": "lasttoken"}, "1_Pooling", "config.json")
    same("pooling_mode as a word", embed(target, *texts), [unit(c["last"]) for c in cases])
    os.remove(os.path.join(target, "modules.json"))
    same("an encoder's default", embed(target, *texts), [unit(c["mean"]) for c in cases])
    module = {"idx": 0, "name": "0", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    for modules, word in (([dict(module, path="../1_Pooling")], "path"), ([dict(module, path="2_Pooling")], "2_Pooling"), ([module, {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}], "Dense")):
        put(target, modules, "modules.json")
        check(word in run("embed", "-m", target, "a", code=1).stderr, "modules.json %s: the message has %s" % (modules, word))
        same("a pooling that is named", embed(target, *texts, "--pooling", "cls", "--norm", "none"), [c["cls"] for c in cases])
    put(target, [module], "modules.json")
    put(target, {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "1_Pooling", "config.json")
    check("none of" in run("embed", "-m", target, "a", code=1).stderr, "two modes at once are refused")
    put(target, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "1_Pooling", "config.json")
    same("cls, and no norm", embed(target, *texts), [c["cls"] for c in cases])
    with open(os.path.join(target, "modules.json"), "w", encoding="utf-8") as f:
        f.write("[{")
    check("modules.json" in run("embed", "-m", target, "a", code=1).stderr, "a damaged modules.json is named")


# ---- GGUF ----
IN_LAYER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
            "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
            "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down",
            "norm1": "attn_output_norm", "norm2": "layer_output_norm", "attention.q_lin": "attn_q", "attention.k_lin": "attn_k", "attention.v_lin": "attn_v",
            "attention.out_lin": "attn_output", "sa_layer_norm": "attn_output_norm", "ffn.lin1": "ffn_up", "ffn.lin2": "ffn_down",
            "output_layer_norm": "layer_output_norm", "attn_norm": "attn_norm", "mlp_norm": "ffn_norm", "attn.Wo": "attn_output", "mlp.Wi": "ffn_up",
            "mlp.Wo": "ffn_down"}
TOP = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd", "embeddings.token_type_embeddings": "token_types",
       "embeddings.LayerNorm": "token_embd_norm", "emb_ln": "token_embd_norm", "embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm",
       "final_norm": "output_norm"}


def shown_piece(word, is_special):
    """A piece as GGUF has it: the beginning of a word is marked, not its continuation."""
    if is_special:
        return word
    return word[2:] if word.startswith("##") else "\u2581" + word


def wordpiece(vocab):
    words = sorted(vocab, key=vocab.get)
    special = [w[0] == "[" and w[-1] == "]" and len(w) > 1 for w in words]
    shown = [shown_piece(w, s) for w, s in zip(words, special)]
    return [pair("tokenizer.ggml.model", STR, "bert"), pair("tokenizer.ggml.pre", STR, "default"), array("tokenizer.ggml.tokens", STR, shown),
            array("tokenizer.ggml.token_type", I32, [3 if s else 1 for s in special]), pair("tokenizer.ggml.token_type_count", U32, 2),
            pair("tokenizer.ggml.unknown_token_id", U32, 1), pair("tokenizer.ggml.seperator_token_id", U32, 3), pair("tokenizer.ggml.padding_token_id", U32, 0),
            pair("tokenizer.ggml.cls_token_id", U32, 2), pair("tokenizer.ggml.mask_token_id", U32, 4)]


def unigram(vocab):
    kinds = [3, 3, 3, 2, 3] + [1] * (len(vocab) - 5)
    keys = [pair("tokenizer.ggml.model", STR, "t5"), pair("tokenizer.ggml.pre", STR, "default"), array("tokenizer.ggml.tokens", STR, [w for w, _ in vocab]),
            array("tokenizer.ggml.scores", F32, [s for _, s in vocab]), array("tokenizer.ggml.token_type", I32, kinds)]
    for key, v in (("add_space_prefix", True), ("remove_extra_whitespaces", True), ("add_bos_token", True), ("add_eos_token", True)):
        keys.append(pair("tokenizer.ggml." + key, BOOL, v))
    for key, v in (("bos", 0), ("eos", 2), ("unknown", 3), ("seperator", 2), ("padding", 1), ("cls", 0), ("mask", 4)):
        keys.append(pair("tokenizer.ggml.%s_token_id" % key, U32, v))
    return keys + [pair("tokenizer.ggml.token_type_count", U32, 1)]


def llama_cpp(name, path, pooling, change=None):
    """As convert_hf_to_gguf.py writes them, vocabularies (but RoBERTa's) included. change: of keys {name: (kind, value)} and tensors, damage."""
    m, c = models.fixture(name), models.fixture(name).config
    if name == "distilbert":
        c.update(num_hidden_layers=c["n_layers"], hidden_size=c["dim"], intermediate_size=c["hidden_dim"], num_attention_heads=c["n_heads"], layer_norm_eps=1e-12)
    if name == "modernbert":
        c["layer_norm_eps"] = c["norm_eps"]
    arch = {"nomic-bert": "nomic-bert", "modernbert": "modern-bert"}.get(name, "bert")
    skipped = c["pad_token_id"] + 1 if "roberta" in name else 0
    own = {"block_count": (U32, c["num_hidden_layers"]), "context_length": (U32, c["max_position_embeddings"] - skipped),
           "embedding_length": (U32, c["hidden_size"]), "feed_forward_length": (U32, c["intermediate_size"]),
           "attention.head_count": (U32, c["num_attention_heads"]), "attention.layer_norm_epsilon": (F32, c["layer_norm_eps"]),
           "attention.causal": (BOOL, False), "pooling_type": (U32, pooling)}
    if arch == "nomic-bert":
        own["rope.freq_base"] = (F32, c["rope_parameters"]["rope_theta"])
    if arch == "modern-bert":
        own.update({"rope.freq_base": (F32, 160000.0), "rope.freq_base_swa": (F32, 10000.0), "attention.sliding_window": (U32, c["local_attention"]),
                    "attention.sliding_window_pattern": (U32, 3)})
    with open(os.path.join(folder_of(name), "tokenizer.json"), encoding="utf-8") as f:
        vocab = json.load(f)["model"]["vocab"]
    keys = []
    if name not in ("roberta", "modernbert"):
        keys += (unigram if name == "xlm-roberta" else wordpiece)(vocab)
    tensors = []
    for native, (_, shape, _) in m.tensors.items():
        stem, _, kind = native.rpartition(".")
        if name == "modernbert" and "layers." in stem:
            stem = "encoder." + stem[stem.index("layers."):]
        layer, _, rest = stem.replace("layers.", "layer.").replace("transformer.layer.", "encoder.layer.").partition("encoder.layer.")[2].partition(".")
        top = [to for end, to in TOP.items() if stem.endswith(end) and not rest]
        if not rest and not top:
            continue
        to = "blk.%s.%s.%s" % (layer, IN_LAYER[rest], kind) if rest else "%s.%s" % (top[0], kind)
        values = m.floats(native)
        if to == "position_embd.weight":
            values, shape = values[skipped * shape[1]:], [shape[0] - skipped, shape[1]]
        tensors.append((to, shape, TENSOR_F32, values.tobytes()))
    tensors = {t[0]: t for t in tensors}
    if change:
        change(own, tensors)
    keys = [pair("general.architecture", STR, arch)] + [pair("%s.%s" % (arch, key), *v) for key, v in own.items()] + keys
    return gguf.write(path, keys, tensors.values())


def as_gguf(out):
    for name in ENCODERS:
        cases = golden(name)
        for pooling, how in ((1, "mean"), (2, "cls"), (3, "last"), (0, "mean")):
            path = llama_cpp(name, os.path.join(out, name + ".gguf"), pooling)
            ids = [embed(path, "--prompt-ids", ",".join(map(str, c["ids"])))[0] for c in cases[:3]]
            same("%s as GGUF, pooling_type %d" % (name, pooling), ids, [unit(c[how]) for c in cases[:3]])
        if name not in ("roberta", "modernbert"):
            plain = [c for c in cases if c["text"].isascii() and c["text"]]
            all_poolings(name + " as GGUF", path, plain if name == "xlm-roberta" else cases, ["cpu_simd"])
        path = llama_cpp(name, os.path.join(out, name + ".gguf"), 4)
        check("rank" in run("embed", "-m", path, "--prompt-ids", "2,3", code=1).stderr, "rank is refused")
    for name in ENCODERS + OWN:
        cases, path = golden(name), os.path.join(out, name + "-converted.gguf")
        run("convert", folder_of(name), "-o", path)
        shown = run("inspect", path).stdout
        for want in ('tokenizer.ggml.model = "%s"' % {"roberta": "gpt2", "modernbert": "gpt2", "deberta-v2": "none", "deberta-v2-conv5": "none"}.get(name, "t5" if name in UNIGRAMS else "bert"),
                     "tokenizer.ggml.token_type_count = %d" % (2 if name in ("bert", "nomic-bert", "electra", "electra-small", "deberta-v2", "deberta-v2-conv5") else 1)):
            check(want in shown, "%s converted: %s" % (name, want))
        all_poolings(name + " converted", path, cases, ["reference"])
        defaults(path, name, cases)
        path = os.path.join(out, name + "-q8_0.gguf")
        run("convert", folder_of(name), "-o", path, "--type", "q8_0")
        same(name + " converted to q8_0", embed(path, *[c["text"] for c in cases]), want_default(name, cases), 0.05)


# ---- damage ----
def key(name, *v):
    return lambda keys, tensors: keys.update({name: v}) if v else keys.pop(name)


def tensor(name, *v):
    return lambda keys, tensors: tensors.update({name: (name, *v)}) if v else tensors.pop(name)


def damaged(out):
    zeros = bytes(4 * 64 * 64)
    for name, what, change, words in (
            ("bert", "no positions", tensor("position_embd.weight"), ["position_embd.weight", "missing"]),
            ("bert", "positions of another number", key("context_length", U32, 63), ["position_embd.weight", "63"]),
            ("bert", "no context", key("context_length"), ["position_embd.weight"]),
            ("bert", "positions in one row", tensor("position_embd.weight", [2048], TENSOR_F32, zeros[:8192]), ["position_embd.weight", "2048"]),
            ("bert", "wide token types", tensor("token_types.weight", [2, 33], TENSOR_F32, zeros[:264]), ["token_types.weight", "33"]),
            ("bert", "deep token types", tensor("token_types.weight", [1, 2, 32], TENSOR_F32, zeros[:256]), ["token_types.weight"]),
            ("bert", "quantised token types", tensor("token_types.weight", [2, 32], 8, zeros[:68]), ["token_types.weight", "q8_0"]),
            ("bert", "causal", key("attention.causal", BOOL, True), ["attention.causal", "true"]),
            ("bert", "causal as a word", key("attention.causal", STR, "no"), ["attention.causal", "no"]),
            ("bert", "no norm", tensor("blk.1.layer_output_norm.weight"), ["blk.1.layer_output_norm.weight"]),
            ("bert", "an unknown pooling", key("pooling_type", U32, 9), ["pooling_type", "9"]),
            ("bert", "pooling as a word", key("pooling_type", STR, "mean"), ["pooling_type", "mean"]),
            ("bert", "layers behind the pooling", tensor("dense_2.weight", [32, 31], TENSOR_F32, zeros[:3968]), ["dense_2.weight", "32"]),
            ("nomic-bert", "no context", key("context_length"), ["context_length"]),
            ("nomic-bert", "too many positions", key("context_length", U32, 1 << 30), ["context_length"])):
        path = llama_cpp(name, os.path.join(out, "damaged.gguf"), 1, change)
        p = run("embed", "-m", path, "--prompt-ids", "2,3", code=1)
        check(all(w in p.stderr for w in words), "%s, %s: %s" % (name, what, p.stderr.strip()[-200:]))


# ---- refusals ----
def refused():
    path = folder_of("bert")
    for command in (("run", "-p", "a"), ("bench", "-p", "8", "-n", "2", "-r", "1"), ("perplexity", "-f", __file__), ("logits", "-p", "a", "-o", "/dev/null")):
        p = run(command[0], "-m", path, *command[1:], code=1)
        check("is an encoder" in p.stderr and "minerva embed" in p.stderr, "%s is refused: %s" % (command[0], p.stderr.strip()[:160]))
    long = ",".join(["7"] * 65)
    p = run("embed", "-m", path, "--prompt-ids", long, code=1)
    check("65" in p.stderr and "64" in p.stderr, "a text that is too long: both numbers")
    p = run("embed", "-m", path, "--prompt-ids", ",".join(["7"] * 20), "-b", 8, "-c", 32, code=1)
    check("20" in p.stderr and "8" in p.stderr, "more tokens than rows: both numbers")
    p = run("embed", "-m", path, "-f", "-", code=1, stdin="a\n" * 299 + "a" * 80 + " b" * 80 + "\na\n")
    check("text 300" in p.stderr and not p.stdout, "a long line behind many: its number, and no output")
    check("105" in run("embed", "-m", path, "--prompt-ids", "2,105", code=1).stderr, "an id outside the vocabulary")
    p = run("run", "-m", folder_of("qwen3-headless"), "-p", "a", code=1)
    check("output.weight" in p.stderr, "a model without an output matrix does not generate")
    with tempfile.TemporaryDirectory() as out:
        target, m = copy("qwen3-headless", out), models.fixture("qwen3-headless")
        m.config["is_causal"] = False
        m.write(target)
        check("is an encoder" in run("run", "-m", target, "-p", "a", code=1).stderr, "a decoder that is not causal is an encoder")
        cls = embed(target, golden("bert")[0]["text"], "--pooling", "cls", "--norm", "none")[0]["embedding"]
        check(error(cls, golden("qwen3-headless")[0]["cls"]) > 0.01, "its first token sees the others")
    check("embeds" in run("inspect", "-m", path).stdout, "inspect says that it is an encoder")
    m = models.fixture("bert")
    weight = "bert.encoder.layer.1.output.dense.bias"
    kind, shape, raw = m.tensors[weight]
    m.tensors[weight] = (kind, shape, b"\xc0\x7f" + raw[2:])
    with tempfile.TemporaryDirectory() as out:
        target = copy("bert", out)
        m.write(target)
        for device in ("reference", "cpu_simd"):
            p = run("embed", "-m", target, "a", "--device", device, code=1)
            check("NaN" in p.stderr and "text 1" in p.stderr, "a NaN among the weights is found")
    run("embed", "-m", path, "a", "--dim", 33, code=2)
    run("embed", "-m", path, "a", "-f", "-", code=2)


def main():
    fixtures()
    for name in ALL:
        defaults(folder_of(name), name, golden(name))
    if sys.argv[2:]:
        models.finish()
    with tempfile.TemporaryDirectory() as out:
        respelled(out)
        poolings(out)
        gemmas(out)
        as_gguf(out)
        damaged(out)
    refused()
    models.finish()


main()
