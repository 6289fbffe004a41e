#!/usr/bin/env python3
"""Models that are wrong in one way each, from file to message: bad_models.py MINERVA SOURCE_ROOT.

Every case must end with its exit code and a message that names what it should, and never with a signal."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

MINERVA, ROOT = sys.argv[1], sys.argv[2]
FIXTURE = os.path.join(ROOT, "tests/data/fixtures/llama")
STORY = os.path.join(ROOT, "models/storyteller")
GGUF = os.path.join(ROOT, "tests/data/storyteller-q4_0.gguf")
failed = passed = 0


def check(name, path, words, code=1, args=("-n", "2", "--temp", "0", "--prompt-ids", "1,2,3")):
    global failed, passed
    p = subprocess.run([MINERVA, "run", "-m", path, *args], capture_output=True, text=True, errors="replace", timeout=120)
    err = p.stderr
    missing = [w for w in words if w not in err]
    if p.returncode != code or missing or "Traceback" in err:
        failed += 1
        print(f"FAIL {name}: exit {p.returncode} (want {code}), missing {missing}\n  {err.strip()[:600]}")
    else:
        passed += 1


def folder(tmp, name, change=None, source=FIXTURE, drop=()):
    out = os.path.join(tmp, name)
    shutil.copytree(source, out, ignore=shutil.ignore_patterns("golden*", "*.py", *drop))
    if change:
        config = json.load(open(out + "/config.json"))
        change(config)
        json.dump(config, open(out + "/config.json", "w"))
    return out


def config_case(tmp, name, key, value, words):
    def change(c):
        if value is None:
            c.pop(key, None)
        else:
            c[key] = value
    check(name, folder(tmp, name, change), words)


# ---- GGUF: read into keys and tensors, change, write again ----
SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def read_string(b, at):
    n = struct.unpack_from("<Q", b, at)[0]
    return b[at + 8:at + 8 + n], at + 8 + n


def skip_value(b, at, kind):
    if kind == 8:
        return read_string(b, at)[1]
    if kind == 9:
        inner, n = struct.unpack_from("<IQ", b, at)
        at += 12
        for _ in range(n):
            at = skip_value(b, at, inner)
        return at
    return at + struct.calcsize(SIZES[kind])


def read_gguf(path):
    b = open(path, "rb").read()
    n_tensors, n_kv = struct.unpack_from("<QQ", b, 8)
    at, kv, tensors = 24, {}, []
    for _ in range(n_kv):
        key, at = read_string(b, at)
        kind = struct.unpack_from("<I", b, at)[0]
        end = skip_value(b, at + 4, kind)
        kv[key.decode()] = (kind, b[at + 4:end])
        at = end
    for _ in range(n_tensors):
        name, at = read_string(b, at)
        nd = struct.unpack_from("<I", b, at)[0]
        dims = struct.unpack_from(f"<{nd}Q", b, at + 4)
        typ, off = struct.unpack_from("<IQ", b, at + 4 + 8 * nd)
        at += 4 + 8 * nd + 12
        tensors.append([name.decode(), list(dims), typ, off])
    return kv, tensors, b[-(-at // 32) * 32:]


def write_gguf(path, kv, tensors, data):
    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kv))
    for key, (kind, raw) in kv.items():
        head += text(key) + struct.pack("<I", kind) + raw
    for name, dims, typ, off in tensors:
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", typ, off)
    head += b"\0" * (-len(head) % 32)
    open(path, "wb").write(head + data)
    return path


def u32(v):
    return (4, struct.pack("<I", v))


def u32s(v):
    return (9, struct.pack("<IQ%dI" % len(v), 4, len(v), *v))


def f32s(v):
    return (9, struct.pack("<IQ%df" % len(v), 6, len(v), *v))


def f32(v):
    return (6, struct.pack("<f", v))


def string(s):
    return (8, struct.pack("<Q", len(s)) + s.encode())


def gguf_case(tmp, name, words, kv=None, drop=(), tensor=None, code=1, args=("-p", "Hello", "-n", "2", "--temp", "0")):
    keys, tensors, data = read_gguf(GGUF)
    keys.update(kv or {})
    for k in drop:
        keys.pop(k)
        tensors = [t for t in tensors if t[0] != k] if k in [t[0] for t in tensors] else tensors
    if tensor:
        tensor(tensors)
    check(name, write_gguf(os.path.join(tmp, name + ".gguf"), keys, tensors, data), words, code, args)


def drop_tensor(which):
    def change(tensors):
        tensors[:] = [t for t in tensors if t[0] != which]
    return change


def swap_dims(which):
    def change(tensors):
        for t in tensors:
            if t[0] == which:
                t[1].reverse()
    return change


def cases(tmp):
    c = config_case
    c(tmp, "no-layers", "num_hidden_layers", None, ["config.json", "num_hidden_layers"])
    c(tmp, "layers-text", "num_hidden_layers", "two", ["config.json", "num_hidden_layers"])
    c(tmp, "layers-fraction", "num_hidden_layers", 2.5, ["num_hidden_layers", "2.5"])
    c(tmp, "layers-negative", "num_hidden_layers", -2, ["num_hidden_layers", "-2"])
    c(tmp, "layers-more", "num_hidden_layers", 3, ["blk.2."])
    check("layers-fewer", folder(tmp, "layers-fewer", lambda c: c.update(num_hidden_layers=1)), ["model.layers.1.", "num_hidden_layers is 1"], code=0)
    c(tmp, "layers-huge", "num_hidden_layers", 10**12, ["num_hidden_layers"])
    c(tmp, "no-hidden", "hidden_size", None, ["config.json", "hidden_size"])
    c(tmp, "hidden-other", "hidden_size", 96, ["shape"])
    c(tmp, "heads-kv", "num_key_value_heads", 3, ["num_key_value_heads", "3"])
    c(tmp, "heads-zero", "num_attention_heads", 0, ["num_attention_heads"])
    c(tmp, "ff-other", "intermediate_size", 256, ["gate_proj", "256"])
    c(tmp, "eps-text", "rms_norm_eps", "small", ["rms_norm_eps"])
    c(tmp, "unknown-arch", "model_type", "hyena", ["hyena", "llama"])
    c(tmp, "rope-unknown", "rope_parameters", {"rope_type": "spiral", "rope_theta": 1e4}, ["spiral"])
    for wrong in (1, 159, 161, 128256):
        c(tmp, "vocab-%d" % wrong, "vocab_size", wrong, ["config.json", "vocab_size", "is %d" % wrong, "160"])
    c(tmp, "head-dim", "head_dim", 7, ["7"])
    check("no-config", folder(tmp, "no-config", drop=("config.json",)), ["config.json"])
    check("no-weights", folder(tmp, "no-weights", drop=("*.safetensors",)), ["no-weights"])
    sharded = os.path.join(ROOT, "tests/data/fixtures/llama-sharded")
    check("no-shard", folder(tmp, "no-shard", source=sharded, drop=("model-00002*",)), ["model-00002-of-00002.safetensors"])
    endless = float("inf")  # as Python writes it: Infinity
    check("infinity", folder(tmp, "infinity", lambda c: c.update({"limit": [0.0, endless, -endless], "a \" Infinity": "Infinity"}), STORY), [], code=0)
    c(tmp, "eps-infinity", "rms_norm_eps", endless, ["rms_norm_eps", "inf"])
    bad = folder(tmp, "bad-json")
    open(bad + "/config.json", "w").write('{"model_type": "llama", ')
    check("bad-json", bad, ["config.json"])
    story = folder(tmp, "bad-tokenizer", source=STORY)
    open(story + "/tokenizer.json", "w").write('{"model": {"type": "BPE"')
    check("bad-tokenizer", story, ["tokenizer.json"])
    story = folder(tmp, "unknown-tokenizer", source=STORY)
    t = json.load(open(story + "/tokenizer.json"))
    t["pre_tokenizer"] = {"type": "Telepathy"}
    json.dump(t, open(story + "/tokenizer.json", "w"))
    check("unknown-tokenizer", story, ["Telepathy"])
    check("nothing", os.path.join(tmp, "nothing.gguf"), ["nothing.gguf", "no such file"])
    open(os.path.join(tmp, "zero.gguf"), "w").close()
    check("zero", os.path.join(tmp, "zero.gguf"), ["zero.gguf"])
    open(os.path.join(tmp, "text.gguf"), "w").write("once upon a time" * 100)
    check("text", os.path.join(tmp, "text.gguf"), ["text.gguf"])

    each = "per_layer_config"
    for i, (value, words) in enumerate([([], [each]), ({"2": {}}, [each, "2"]), ({"x": {}}, [each, "x"]), ({"1": 3}, [each, "1"]),
                         ({"1": {"skip": ["mlp"]}}, [each + ".1.skip", "num_attention_heads"]),
                         ({"0": {"num_key_value_heads": 3}}, ["num_key_value_heads", "3", "layer 0"]),
                         ({"1": {"intermediate_size": 0}}, [each + ".intermediate_size", "0"]),
                         ({"1": {"intermediate_size": 96}}, ["model.layers.1.mlp.gate_proj.weight", "[96, 64]"])]):
        config_case(tmp, "layers-%d" % i, each, value, words)

    g = gguf_case
    g(tmp, "g-good", [], code=0)
    g(tmp, "g-arch", ["hyena", "llama"], {"general.architecture": string("hyena")})
    g(tmp, "g-no-arch", ["general.architecture"], drop=("general.architecture",))
    g(tmp, "g-no-heads", ["llama.attention.head_count"], drop=("llama.attention.head_count",))
    g(tmp, "g-heads-kind", ["llama.attention.head_count"], {"llama.attention.head_count": string("four")})
    g(tmp, "g-heads-zero", ["llama.attention.head_count", "0"], {"llama.attention.head_count": u32(0)})
    g(tmp, "g-heads-kv", ["head_count_kv", "3"], {"llama.attention.head_count_kv": u32(3)})
    g(tmp, "g-layers", ["llama.block_count", "4294967295"], {"llama.block_count": u32(2**32 - 1)})
    g(tmp, "g-vocab", ["llama.vocab_size", "2049", "2048 rows"], {"llama.vocab_size": u32(2049)})
    g(tmp, "g-vocab-zero", ["llama.vocab_size", "0"], {"llama.vocab_size": u32(0)})
    g(tmp, "g-vocab-padded", [], {"llama.vocab_size": u32(2047)}, code=0)
    each = "llama.attention.head_count"
    g(tmp, "g-heads-array", ["blk.5.attn_q.weight", "[128, 256]"], {each: u32s([4] * 5 + [2])})
    g(tmp, "g-heads-array", [each, "array of 5 integers", "6: one per layer"], {each: u32s([4] * 5)})
    g(tmp, "g-heads-array", [each, "0 for layer 2", "1 to 65536"], {each: u32s([4, 4, 0, 4, 4, 4])})
    g(tmp, "g-heads-array", [each, "array of 6 values of another type", "one per layer"], {each: f32s([4.0] * 6)})
    g(tmp, "g-heads-kv-array", ["head_count 4", "head_count_kv 3", "layer 4"], {"llama.attention.head_count_kv": u32s([2, 2, 2, 2, 3, 2])})
    g(tmp, "g-ff-array", ["blk.3.ffn_gate.weight", "[512, 256]"], {"llama.feed_forward_length": u32s([768, 768, 768, 512, 768, 768])})
    g(tmp, "g-layers-fewer", ["blk.5.", "llama.block_count is 5"], {"llama.block_count": u32(5)}, code=0)
    g(tmp, "g-eps", ["layer_norm_rms_epsilon"], {"llama.attention.layer_norm_rms_epsilon": f32(float("nan"))})
    g(tmp, "g-theta", ["rope.freq_base"], {"llama.rope.freq_base": f32(-1)})
    g(tmp, "g-rot", ["rope.dimension_count", "63"], {"llama.rope.dimension_count": u32(63)})
    g(tmp, "g-embd", ["shape", "512"], {"llama.embedding_length": u32(512)})
    g(tmp, "g-template-empty", [], {"tokenizer.chat_template": string("")}, code=0)
    g(tmp, "g-template-kind", ["g-template-kind.gguf", "tokenizer.chat_template"], {"tokenizer.chat_template": u32(1)})
    g(tmp, "g-pre", ["smoke-signals", "llama-bpe"], {"tokenizer.ggml.pre": string("smoke-signals")})
    g(tmp, "g-model", ["abacus"], {"tokenizer.ggml.model": string("abacus")})
    g(tmp, "g-bos", ["bos_token_id"], {"tokenizer.ggml.bos_token_id": u32(99999)})
    g(tmp, "g-no-tensor", ["blk.3.ffn_up.weight", "missing"], tensor=drop_tensor("blk.3.ffn_up.weight"))
    g(tmp, "g-no-embd", ["token_embd.weight"], tensor=drop_tensor("token_embd.weight"))
    g(tmp, "g-shape", ["blk.0.ffn_up.weight", "shape"], tensor=swap_dims("blk.0.ffn_up.weight"))
    g(tmp, "g-prompt", ["5000", "1024"], args=("--prompt-ids", ",".join(["7"] * 5000), "-n", "1"))
    g(tmp, "g-id", ["2048"], args=("--prompt-ids", "0,2048", "-n", "1"))
    truncated(tmp)


def truncated(tmp):
    """A cut file ends with an error wherever it is cut."""
    raw = open(GGUF, "rb").read()
    for cut in [*range(0, 64, 7), *range(100, 90000, 11003), len(raw) // 2, len(raw) - 40]:
        path = os.path.join(tmp, "cut.gguf")
        open(path, "wb").write(raw[:cut])
        check(f"cut-{cut}", path, ["cut.gguf"])
    raw = open(FIXTURE + "/model.safetensors", "rb").read()
    out = folder(tmp, "cut")
    for cut in [0, 5, 8, 100, 2000, len(raw) // 2, len(raw) - 1]:
        open(out + "/model.safetensors", "wb").write(raw[:cut])
        check(f"cut-safetensors-{cut}", out, ["model.safetensors"])


with tempfile.TemporaryDirectory() as tmp:
    cases(tmp)
print(f"{passed} cases as expected, {failed} not")
sys.exit(failed != 0)
