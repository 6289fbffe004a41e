"""Models that say what a test wants, byte by byte: Replay(folder, template, specials).save(texts) writes a GPT-2 of one layer whose blocks add nothing. Its embedding of
position i is one-hot at the token that comes behind position i, and its output matrix is the identity: so an output depends on the length of the prompt alone. A prompt of
`at(n)` tokens makes the model say text n, and then its end token. The vocabulary has the 256 bytes and the special tokens."""
import json
import os
import struct

END, GO = "<|end_of_answer|>", "<|go|>"
WIDTH, INNER = 320, 64  # of a hidden state: at least the size of the vocabulary; of the feed-forward


def byte_pieces():
    """The characters that byte-level BPE has for the 256 bytes."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printed]
    return {**{b: chr(b) for b in printed}, **{b: chr(256 + i) for i, b in enumerate(others)}}


class Replay:
    """specials: marks that are tokens; those that the text of answers may show are no control tokens. A prompt is GO, what the template adds, and the content of its
    last message, one token for each byte."""

    def __init__(self, folder, template, specials=(), control=()):
        self.folder, self.template = folder, template
        self.tokens = [END, GO, *specials]
        self.control = {END, GO, *control}
        self.starts = []

    def ids(self, text):
        """Special tokens where they are spelled, else bytes."""
        ids, at = [], 0
        while at < len(text):
            for i, token in enumerate(self.tokens):
                if text.startswith(token, at):
                    ids.append(256 + i)
                    at += len(token)
                    break
            else:
                ids += text[at].encode()
                at += 1
        return ids

    def save(self, texts, first=64, spare=64):
        """first: tokens of the shortest prompt; spare: of the context behind the last text."""
        said, self.starts = [0] * (first - 1), []
        for text in texts:
            self.starts.append(len(said) + 1)
            said += self.ids(text) + [256]
        said += [256] * spare
        self.write_model(said)
        self.write_tokenizer()
        self.write("chat_template.jinja", self.template)
        self.write("generation_config.json", json.dumps({"eos_token_id": [256]}))

    def at(self, n):
        return self.starts[n]

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as f:
            f.write(text)

    def write_tokenizer(self):
        pieces = byte_pieces()
        added = [{"id": 256 + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": t in self.control}
                 for i, t in enumerate(self.tokens)]
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        self.write("tokenizer.json", json.dumps({"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
                                                 "model": {"type": "BPE", "vocab": {pieces[b]: b for b in range(256)}, "merges": []}}))
        self.write("tokenizer_config.json", json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))

    def write_model(self, said):
        vocab, context = 256 + len(self.tokens), len(said)
        one = struct.pack("<f", 1.0)
        rows = {"transformer.wpe.weight": (context, WIDTH), "transformer.wte.weight": (vocab, WIDTH), "lm_head.weight": (vocab, WIDTH)}
        block = {"ln_1.weight": (WIDTH,), "ln_1.bias": (WIDTH,), "ln_2.weight": (WIDTH,), "ln_2.bias": (WIDTH,), "attn.c_attn.weight": (WIDTH, 3 * WIDTH),
                 "attn.c_attn.bias": (3 * WIDTH,), "attn.c_proj.weight": (WIDTH, WIDTH), "attn.c_proj.bias": (WIDTH,), "mlp.c_fc.weight": (WIDTH, INNER),
                 "mlp.c_fc.bias": (INNER,), "mlp.c_proj.weight": (INNER, WIDTH), "mlp.c_proj.bias": (WIDTH,)}
        shapes = {**rows, "transformer.ln_f.weight": (WIDTH,), "transformer.ln_f.bias": (WIDTH,), **{"transformer.h.0." + k: v for k, v in block.items()}}
        header, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
        for name, shape in shapes.items():
            n = 4
            for size in shape:
                n *= size
            data = bytearray(one * (n // 4) if name.endswith(("ln_f.weight", "ln_1.weight", "ln_2.weight")) else n)
            if name == "transformer.wpe.weight":
                for i, token in enumerate(said):
                    struct.pack_into("<f", data, 4 * (i * WIDTH + token), 1.0)
            if name == "lm_head.weight":
                for token in range(vocab):
                    struct.pack_into("<f", data, 4 * (token * WIDTH + token), 4.0)
            header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + n]}
            parts.append(data)
            at += n
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(self.folder, "model.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for data in parts:
                f.write(data)
        self.write("config.json", json.dumps({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": WIDTH, "n_head": WIDTH // 64, "n_layer": 1,
                                              "n_positions": context, "n_ctx": context, "n_inner": INNER, "vocab_size": vocab, "layer_norm_epsilon": 1e-5,
                                              "activation_function": "gelu_new", "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 256}))
