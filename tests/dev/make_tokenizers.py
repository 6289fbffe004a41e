"""Makes the tokeniser test data of tests/data/tokenizers with the original libraries (PyPI: tokenizers, sentencepiece, tiktoken).

usage: make_tokenizers.py OUT_DIR                         writes NAME.json or NAME.model and cases.json
       make_tokenizers.py OUT_DIR --tiktoken             writes kimi.tiktoken and kimi-cases.json alone
       make_tokenizers.py OUT_DIR --fuzz TOKENIZE_FILE N  compares N random texts per tokeniser with ours (tests/unit/tokenize_file)

cases.json: [{"file", "texts": [{"text", "special": 0|1, "ids", "decoded"}]}]; special: what the tokeniser adds is asked for.
"""
import io, json, os, random, subprocess, sys, tempfile
import sentencepiece as spm
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers as N, pre_tokenizers as P, processors, trainers

# Our own words: a little of everything that tokenisers treat apart.
TEXT = """The runtime reads a model file, builds its graph once, and lets the devices bid for it.
It's what they've said: don't copy, I'll explain; we're done. She'd go, he's gone, I'm here. IT'S WHAT THEY'VE SAID.
In 2024 about 1234567 tokens cost 3.50 or 12,000.75; call 0049-30-901820 at 10:45.
def add(a, b):\n    return a + b  # sum\n\n\tif x >= 10 and y != 7: print("x = %d" % x)
Grüße aus Köln, où l'été est très doux; señor Núñez; naïve café; ÅNGSTRÖM, Straße, ŒUVRE.
Привет, мир! Как дела? Ελληνικά γράμματα. שלום עולם. مرحبا بالعالم. नमस्ते दुनिया। สวัสดีชาวโลก
日本語のテキストと漢字かな交じり文。中文句子也要分词。한국어 문장도 있습니다.
Smile 🙂🎉👍🏽 and family 👨‍👩‍👧; ½ ² ﬁ ﬂ Ⅳ ① ㎏ ＡＢＣ１２３ ｶﾞ \u00a0 nbsp \u3000 wide.
"""
ALL = (TEXT + " ".join(TEXT.split()[::-1]) + "\n") * 3
TEXTS = ["", " ", "  ", "\n", " \n ", "Hello world", " Hello  world ", "It's 1234567 tokens, DON'T!", "a\n\n\nb\t\tc \n d", "x = y+10;  // no",
         "Grüße, naïve café ÅNGSTRÖM", "e\u0301 ﬁ ½ ＡＢＣ１２ ｶﾞ Ⅳ ㎏ \u00a0x\u3000y", "日本語の漢字 中文 한국어", "Привет שלום नमस्ते สวัสดี", "🙂👍🏽👨‍👩‍👧!",
         "<s>a</s> <mask> x<mask>y  <mask>  z", "[X] [X]a a[X]b WORD word sword WORDS", "ǅ İ ß Σς K ſ", "\x01\x7f\u200b\ufeffz\u0085q\u2028r", "▁a ▁▁b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "...!!!???", "1 12 123 1234 12345 ١٢٣ ²³", TEXT]
# Symbols that the characters' rules would change, that overlap, and ties between them; white space written out at the end.
SYMBOL_TEXTS = ["a\tb\t\tc \t d", "①②① x①", "ﬁx ﬁ ﬁxﬁ xﬁx", "<ＡＢ> <AB> Ｃ<ＡＢ>Ｄ", "aabab abaab aaab aabaabab babab", "It's ▁ what▁", "▁", "tokens ▁▁ ▁", "\t", "①", "ﬁ", "...............\t...............",
                "IT'S① IT'S IT'SIT'SIT'SIT'S\tIT'SIT'SIT'S", "\x01①\x01aab\x01 ......................... aaaaaaaaaaaaaaaaaaaaaaaaa"]
# Tokens that take the white space that others need, and special ones that are bytes of the vocabulary.
GREEDY = [AddedToken(" sp ", rstrip=True, normalized=False), AddedToken("\n\n", lstrip=True, rstrip=True, normalized=False), AddedToken("<a>", rstrip=True, special=True),
          AddedToken("é", special=True), AddedToken("!", special=True), AddedToken("<b> ", lstrip=True, normalized=True)]
GREEDY_TEXTS = [" sp  sp  sp x", "<a>\n\n\n\n\nb", "a\n\n\n\n <a> <a>  sp \n\n\n", "Wait! What?! 龥 é !", "<b>  <b>  sp <b> <a>  <b> c", "\n\n\n\n"]
MORE = {"spm-symbols.model": SYMBOL_TEXTS, "bytes-greedy.json": GREEDY_TEXTS}
ADDED = [AddedToken("<mask>", lstrip=True, special=True), AddedToken("[X]", rstrip=True, special=True), AddedToken("WORD", single_word=True, normalized=True), AddedToken("two words", normalized=False)]


def bpe(vocab=500, **kw):
    unk = kw.get("unk_token")
    return Tokenizer(models.BPE(**kw)), trainers.BpeTrainer(vocab_size=vocab, show_progress=False, special_tokens=["<s>", "</s>"] + ([unk] if unk else []), initial_alphabet=kw.pop("alphabet", []))


def made():
    """name -> tokenizers.Tokenizer"""
    out = {}

    def add(name, tok, trainer, added=ADDED, post=None):
        tok.train_from_iterator([ALL], trainer)
        tok.add_tokens([a for a in added if not a.special])
        tok.add_special_tokens([a for a in added if a.special])
        if post:
            tok.post_processor = post
        out[name] = tok

    tok, tr = bpe()
    tok.pre_tokenizer, tok.decoder = P.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tr.initial_alphabet = P.ByteLevel.alphabet()
    add("bytes-gpt2", tok, tr, post=processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]))

    tok, tr = bpe(300)
    tok.pre_tokenizer, tok.decoder = P.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tr.initial_alphabet = P.ByteLevel.alphabet()
    add("bytes-greedy", tok, tr, added=GREEDY)

    llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tok, tr = bpe(ignore_merges=True)
    tok.normalizer = N.NFC()
    tok.pre_tokenizer, tok.decoder = P.Sequence([P.Split(Regex(llama3), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]), decoders.ByteLevel()
    tr.initial_alphabet = P.ByteLevel.alphabet()
    add("bytes-llama3", tok, tr, post=processors.ByteLevel(trim_offsets=False))

    tok, tr = bpe()
    tok.pre_tokenizer = P.Sequence([P.Split(" ", "merged_with_previous"), P.Digits(individual_digits=True), P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=True)])
    tok.decoder = decoders.ByteLevel()
    tr.initial_alphabet = P.ByteLevel.alphabet()
    add("bytes-digits", tok, tr)

    tok, tr = bpe(byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    tok.normalizer = N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tr = trainers.BpeTrainer(vocab_size=700, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=90)
    add("llama2", tok, tr, added=[a for a in ADDED if not a.normalized], post=processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)]))

    tok, tr = bpe(unk_token="[UNK]")
    tok.normalizer = N.Sequence([N.Replace(Regex(r"\s+"), " "), N.NFKD(), N.Lowercase(), N.StripAccents()])
    tok.pre_tokenizer, tok.decoder = P.Metaspace(prepend_scheme="first"), decoders.Metaspace(prepend_scheme="first")
    tr.limit_alphabet = 60
    add("metaspace-first", tok, tr, added=[a for a in ADDED if not a.normalized])

    for i, (name, behavior, pattern) in enumerate([("next", "merged_with_next", Regex(r"[.,;]")), ("removed", "removed", "e"), ("contiguous", "contiguous", Regex(r"[0-9]"))]):
        tok, tr = bpe(unk_token="<unk>", fuse_unk=bool(i % 2))
        tok.normalizer = [N.Sequence([N.Strip(), N.NFD()]), N.NFKC(), N.Sequence([])][i]
        tok.pre_tokenizer = P.Sequence([P.Split(pattern, behavior, invert=i == 2), [P.Whitespace(), P.WhitespaceSplit(), P.Split(",", "removed")][i]])
        tr.limit_alphabet = 80
        add("split-" + name, tok, tr)

    tok = Tokenizer(models.Unigram())
    charsmap = charsmap_of_sentencepiece()
    tok.normalizer = N.Sequence([N.Precompiled(charsmap), N.Replace(Regex(" {2,}"), " ")])
    tok.pre_tokenizer, tok.decoder = P.Metaspace(), decoders.Metaspace()
    add("unigram", tok, trainers.UnigramTrainer(vocab_size=500, show_progress=False, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"),
        post=processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)]))

    tok = Tokenizer(models.Unigram(json_unigram(out["unigram"]), 2, True))
    tok.normalizer = N.Sequence([N.Replace(" ", "▁"), N.Prepend("▁")])
    tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    tok.add_special_tokens(["<pad>", "</s>", "<unk>"])
    out["unigram-bytes"] = tok

    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tok.normalizer, tok.pre_tokenizer = N.BertNormalizer(), P.BertPreTokenizer()
    add("wordpiece", tok, trainers.WordPieceTrainer(vocab_size=600, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[SEP]"], limit_alphabet=200),
        post=processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)))
    return out


def json_unigram(tok):
    vocab = [tuple(x) for x in json.loads(tok.to_str())["model"]["vocab"]]
    return vocab + [(f"<0x{b:02X}>", 0.0) for b in range(256)]


def rules(name):
    """A few rules of our own, since the real ones take 300 KB; with REAL=1 the real ones, to compare without keeping."""
    if os.environ.get("REAL"):
        return {"normalization_rule_name": name}
    pairs = {"ﬁ": "fi", "ﬂ": "fl", "½": "1/2", "①": "1", "㎏": "kg", "e\u0301": "é", "\u00a0": " ", "\u3000": " ", "\t": " ", "\u200b": "", "ｶﾞ": "ガ", "ｶ": "カ", "Ⅳ": "IV", "\u0085": " ", "\x7f": ""}
    pairs.update({chr(0xff01 + i): chr(0x21 + i) for i in range(94)})
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", delete=False) as f:
        f.writelines(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in pairs.items())
    return {"normalization_rule_tsv": f.name}


def train_spm(**kw):
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter([l for l in ALL.split("\n") if l]), model_writer=model, minloglevel=2, hard_vocab_limit=False, **kw)
    return model.getvalue()


def charsmap_of_sentencepiece():
    from sentencepiece import sentencepiece_model_pb2 as pb
    m = pb.ModelProto()
    m.ParseFromString(train_spm(model_type="unigram", vocab_size=300, **rules("nmt_nfkc")))
    return m.normalizer_spec.precompiled_charsmap


def sentencepieces():
    return {
        "spm-unigram": train_spm(model_type="unigram", vocab_size=400, **rules("nmt_nfkc"), user_defined_symbols=["<sep>", "▁two▁words"]),
        "spm-bpe": train_spm(model_type="bpe", vocab_size=800, byte_fallback=True, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98, user_defined_symbols=["<sep>", "    "]),
        "spm-plain": train_spm(model_type="bpe", vocab_size=300, add_dummy_prefix=False, character_coverage=0.98, **rules("nfkc_cf")),
        "spm-symbols": train_spm(model_type="unigram", vocab_size=600, byte_fallback=True, **rules("nmt_nfkc"), user_defined_symbols=["\t", "①", "ﬁx", "<ＡＢ>", "aab", "aa", "abab"]),
    }


# What the class of Kimi's tokenisers cuts texts at, and names of some special tokens; a token that no merge makes is taken whole.
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = "|".join([r"[\p{Han}]+", *(r"[^\r\n\p{L}\p{N}]?%s%s%s%s(?i:'s|'t|'re|'ve|'m|'ll|'d)?" % (UPPER, a, LOWER, b) for a, b in ("*+", "+*")),
                 r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
KIMI_NAMES = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>"]
KIMI_TEXTS = ["[BOS]<|im_user|>a<|im_end|>", "<|reserved_token_705|> [EOS]", "zq9wx xzq9wx", "中文abc中文Ab's", "ABCdef GHIjkl's it'S", "Ⅳ中\u0301é ª", "aaa aaaa aaaaa aaaaaaa", "㎏漢字カナ漢字"]


def kimi_encoding(ranks):
    import tiktoken
    n = len(ranks)
    names = {n + i: name for i, name in enumerate(KIMI_NAMES)}
    return tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens={names.get(i, "<|reserved_token_%d|>" % i): i for i in range(n, n + 256)})


def write_tiktoken(out):
    """Ranks of our own, by the library's own teaching code."""
    import base64
    from tiktoken._educational import bpe_train
    ranks = bpe_train(ALL, 700, "(?V1)" + KIMI, visualise=None)
    ranks[b"zq9wx"] = len(ranks)
    with open(os.path.join(out, "kimi.tiktoken"), "wb") as f:
        f.writelines(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())
    cases = []
    for text in TEXTS + KIMI_TEXTS:
        ids = kimi_encoding(ranks).encode(text, allowed_special="all")
        cases.append(dict(text=text, special=0, ids=ids, decoded=kimi_encoding(ranks).decode([i for i in ids if i < len(ranks)])))
    with open(os.path.join(out, "kimi-cases.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + json.dumps({"file": "kimi.tiktoken", "texts": cases}, ensure_ascii=False, separators=(",", ":")) + "\n]\n")


class Original:
    def __init__(self, path):
        self.spm = path.endswith(".model")
        self.tok = spm.SentencePieceProcessor(model_file=path) if self.spm else Tokenizer.from_file(path)

    def encode(self, text, special):
        if self.spm:
            return self.tok.encode(text)
        return self.tok.encode(text, add_special_tokens=bool(special)).ids

    def decode(self, ids):
        """None where the file has no decoder: then the library puts spaces between all pieces, which helps nobody; and where
        SentencePiece shows unknown text as " ⁇ "."""
        if self.tok.unk_id() in ids if self.spm else self.tok.decoder is None:
            return None
        return self.tok.decode(ids) if self.spm else self.tok.decode(ids, skip_special_tokens=True)


def main(out):
    os.makedirs(out, exist_ok=True)
    names = []
    for name, tok in made().items():
        names.append(name + ".json")
        with open(os.path.join(out, names[-1]), "w", encoding="utf-8") as f:
            f.write(json.dumps(json.loads(tok.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
    for name, data in sentencepieces().items():
        names.append(name + ".model")
        with open(os.path.join(out, names[-1]), "wb") as f:
            f.write(data)
    cases = []
    for name in names:
        tok = Original(os.path.join(out, name))
        texts = [dict(text=t, special=s, ids=(ids := tok.encode(t, s)), decoded=tok.decode(ids)) for t in TEXTS + MORE.get(name, []) for s in ((0,) if tok.spm else (0, 1)) if s == 0 or len(t) < 20]
        cases.append({"file": name, "texts": texts})
    with open(os.path.join(out, "cases.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases) + "\n]\n")


def random_text(r):
    parts = TEXT.split(" ") + list(TEXT) + ["\0", "<mask>", "[X]", "WORD", "two words", "  ", "\n", "<sep>", "    ", "▁", "①", "ﬁx", "<ＡＢ>", "aab", "abab"]
    pieces = []
    for _ in range(r.randrange(12)):
        k = r.randrange(8)
        if k == 0:
            code = r.choice([r.randrange(0x80), r.randrange(0x800), r.randrange(0x10000), r.randrange(0x20000)])
            pieces.append(chr(code) if not 0xd800 <= code < 0xe000 else "?")
        else:
            pieces.append(r.choice(parts) + (" " if k > 3 else ""))
    return "".join(pieces)


def fuzz(out, program, n):
    r, bad_total = random.Random(1), 0
    for name in sorted(os.listdir(out)):
        if not name.endswith((".json", ".model")) or name.endswith("cases.json"):
            continue
        path, bad = os.path.join(out, name), 0
        tok = Original(path)
        ours = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for text in TEXTS + MORE.get(name, []) + [random_text(r) for _ in range(n)]:
            data = text.encode()
            want = tok.encode(text, 0)
            ours.stdin.write(b"%d %d\n" % (0 if tok.spm else 2, len(data)) + data)
            ours.stdin.flush()
            line = ours.stdout.readline().decode().strip()
            if line == "error":
                got, back = ours.stdout.readline().decode(), ""
            else:
                got = [int(x) for x in line.split()]
                back = ours.stdout.read(int(ours.stdout.readline())).decode()
            text_back = tok.decode(want)
            wrong = None
            if got != want:
                wrong = "ids"
            elif text_back is not None and back != text_back:
                wrong = "text"
            if wrong:
                bad += 1
                if bad <= int(os.environ.get("SHOW", "3")):
                    print(f"{name}: {wrong} of {text!r}\n  original {want if wrong == 'ids' else text_back!r}\n  ours     {got if wrong == 'ids' else back!r}")
        ours.stdin.close()
        print(f"{name}: {bad} of {n + len(TEXTS) + len(MORE.get(name, []))} differ")
        bad_total += bad
    return bad_total


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[2] == "--fuzz":
        sys.exit(fuzz(sys.argv[1], sys.argv[3], int(sys.argv[4])) > 0)
    if sys.argv[2:] == ["--tiktoken"]:
        sys.exit(write_tiktoken(sys.argv[1]))
    main(sys.argv[1])
