"""Compares tokenisers of random make-up with the library that models are made with (PyPI: tokenizers, sentencepiece).

usage: random_tokenizers.py TOKENIZE_FILE FIRST LAST TEXTS     (TOKENIZE_FILE: tests/unit/tokenize_file)

Each number from FIRST to LAST is the seed of one tokenizer.json: a model of any kind with random normalisers, pre-tokenisers,
decoders, added tokens and a post-processor, trained on a few words. Ids and decoded texts of TEXTS random texts must be the
library's. Left out: what the library itself numbers twice (added tokens of WordLevel), added tokens that their normaliser
leaves empty, which it finds between all characters, special single words, which its models spell out of plain text, and special
tokens shown, which are shown here as they are written.
"""
import json, os, random, subprocess, sys, tempfile
from tokenizers import AddedToken, Regex, Tokenizer, decoders as D, models, normalizers as N, pre_tokenizers as P, processors, trainers
from make_tokenizers import ALL, TEXT, charsmap_of_sentencepiece

BITS = ["a", "b", "ab", "the", "The", " ", "  ", "   ", "\n", "\r\n", "\t", "é", "e\u0301", "▁", "▁a", "1", "12345", "²", "漢字", "カタ", "Привет", "!", "?!", ".", ",",
        "'s", "n't", " do not", "-", "_", "X", "X1", "two words", "WORD", "sword", "<mask>", "<s>", "</s>", "[X]", " [X] ", "\u200b", "\u200d", "\x01", "\x7f", "\u00a0",
        "\u3000", "\u0085", "\u2028", "ﬁ", "½", "👍🏽", "\U000e0001", "İ", "ß", "Σ", "Ġ", "</w>", "##a", "\u180e", "\ufffd", "\0", "ÿ", "\u0378", "नमस्ते", "นี้"]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
REGEXES = [r"\s+", r"\d{1,3}", r"[^\s]+", r"\w+|[^\w\s]+", r"\b", r"\p{Han}+", r"[\p{L}&&[^\p{Han}]]+",
           r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
CHARSMAP = charsmap_of_sentencepiece()


def random_text(r):
    return "".join(r.choice(BITS) if r.random() < .8 else r.choice(TEXT.split(" ")) for _ in range(r.randrange(10)))


def several(r, counts, kinds, sequence):
    made = [r.choice(kinds)() for _ in range(r.choice(counts))]
    if len(made) < 2:
        return made[0] if made else None
    return sequence(made)


def half(r):
    return r.random() < .5


def normalizer(r):
    return several(r, [0, 0, 1, 1, 2, 3], [
        N.NFC, N.NFD, N.NFKC, N.NFKD, N.Lowercase, N.StripAccents, N.ByteLevel, lambda: N.Strip(half(r), half(r)), lambda: N.Precompiled(CHARSMAP),
        lambda: N.Replace(Regex(r.choice([r" {2,}", r"\s+", r"[aeiou]", r"x*$", r"\d"])), r.choice(["", "▁", " ", "yy"])),
        lambda: N.Replace(r.choice([" ", "a", "ab"]), r.choice(["▁", "", "bb"])), lambda: N.Prepend(r.choice(["▁", " ", "xy"])),
        lambda: N.BertNormalizer(half(r), half(r), r.choice([None, True, False]), half(r))], N.Sequence)


def pre_tokenizer(r):
    return several(r, [0, 1, 1, 2, 2, 3], [
        P.BertPreTokenizer, P.Whitespace, P.WhitespaceSplit, lambda: P.ByteLevel(half(r), use_regex=half(r)),
        lambda: P.Metaspace(r.choice("▁_"), r.choice(["always", "never", "first"]), half(r)), lambda: P.Split(r.choice([" ", "a", "the"]), r.choice(BEHAVIORS), half(r)),
        lambda: P.Split(Regex(r.choice(REGEXES)), r.choice(BEHAVIORS), half(r)), lambda: P.Punctuation(r.choice(BEHAVIORS)), lambda: P.Digits(half(r))], P.Sequence)


def decoder(r):
    """Whole tokens first, then one that fuses them, then what works on parts."""
    first = [lambda: D.WordPiece(r.choice(["##", "▁"]), half(r)), lambda: D.Metaspace(r.choice("▁_"), r.choice(["always", "never", "first"])),
             D.ByteFallback, lambda: D.Replace("▁", " "), lambda: D.Replace(Regex("[aeiou]+"), "-"), lambda: D.Strip(r.choice(" a▁"), r.randrange(2), 0)]
    after = [lambda: D.Strip(r.choice(" a▁"), r.randrange(3), 0), lambda: D.Replace(r.choice(["▁", "ab", "aba"]), " "), lambda: D.Metaspace("▁", r.choice(["always", "never"]))]
    made = [r.choice(first)() for _ in range(r.choice([0, 0, 1, 1, 2]))]
    if not made or r.random() < .7:
        made += [r.choice([D.Fuse, D.ByteLevel])()] + [r.choice(after)() for _ in range(r.choice([0, 0, 1, 2]))]
    return made[0] if len(made) == 1 else D.Sequence(made)


def model(r):
    kind, unk = r.choice(["BPE", "BPE", "BPE", "Unigram", "WordPiece"]), r.choice([None, "<unk>", "[UNK]"])
    unk = unk or (None if kind == "BPE" else "<unk>")
    special = ["<s>", "</s>"] + ([unk] if unk else [])
    alphabet = {"initial_alphabet": P.ByteLevel.alphabet()} if r.random() < .3 else {}
    if kind == "BPE":
        fallback = r.random() < .4
        special += [f"<0x{b:02X}>" for b in range(256)] if fallback and r.random() < .8 else []
        tok = models.BPE(fuse_unk=half(r), byte_fallback=fallback, ignore_merges=r.random() < .3, **({"unk_token": unk} if unk else {}))
        return tok, trainers.BpeTrainer(vocab_size=r.choice([200, 500, 800]) + len(special), special_tokens=special, show_progress=False, limit_alphabet=r.choice([20, 60, 1000]), **alphabet)
    if kind == "Unigram":
        return models.Unigram(), trainers.UnigramTrainer(vocab_size=r.choice([100, 300]), special_tokens=special, unk_token=unk, show_progress=False, **alphabet)
    return models.WordPiece(unk_token=unk, max_input_chars_per_word=r.choice([5, 20, 100])), trainers.WordPieceTrainer(vocab_size=r.choice([200, 600]), special_tokens=special, show_progress=False, limit_alphabet=r.choice([20, 100]))


def add_tokens(r, tok):
    for content in ["<mask>", "[X]", "WORD", "two words", "X1", "ab"]:
        if r.random() < .6:
            special = r.random() < .4
            token = AddedToken(content, lstrip=r.random() < .4, rstrip=r.random() < .4, single_word=r.random() < .4, normalized=not special and half(r), special=special)
            (tok.add_special_tokens if special else tok.add_tokens)([token])


def tokenizer(r):
    pre, norm = pre_tokenizer(r), normalizer(r)
    made, trainer = model(r)
    tok = Tokenizer(made)
    tok.pre_tokenizer = pre or P.Sequence([])
    if norm:
        tok.normalizer = norm
    tok.train_from_iterator([l + "\n" for l in ALL.split("\n")] + [random_text(r) for _ in range(50)], trainer)
    add_tokens(r, tok)
    around = [lambda: processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]), processors.ByteLevel,
              lambda: processors.BertProcessing(("</s>", 1), ("<s>", 0)), lambda: processors.RobertaProcessing(("</s>", 1), ("<s>", 0))]
    post = [None, r.choice(around)(), processors.Sequence([processors.ByteLevel(), r.choice(around)()])][r.randrange(3)]
    if post:
        tok.post_processor = post
    tok.decoder = decoder(r)
    return tok


class Ours:
    def __init__(self, program, path):
        self.p = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ask(self, flags, data):
        """Ids and text; for a failure its message and None."""
        try:
            self.p.stdin.write(b"%d %d\n" % (flags, len(data)) + data)
            self.p.stdin.flush()
            line = self.p.stdout.readline().decode().strip("\n")
            if line == "error":
                return self.p.stdout.readline().decode().strip(), None
            n = int(self.p.stdout.readline())
            return [int(x) for x in line.split()], self.p.stdout.read(n).decode()
        except (BrokenPipeError, ValueError):
            return self.p.stderr.read().decode(), None


def original(f):
    try:
        return f()
    except BaseException:  # its panics are no Exceptions
        return None


def compare(r, tok, ours, n):
    """The first difference, or None."""
    for _ in range(n):
        text, special = random_text(r), half(r)
        want = original(lambda: tok.encode(text, add_special_tokens=special).ids)
        got, _ = ours.ask(2 | special, text.encode())
        if want is not None and got != want:
            return f"ids of {text!r}\n  original {want}\n  ours     {got}"
        ids = [r.randrange(tok.get_vocab_size()) for _ in range(r.randrange(1, 8))] if want is None or half(r) else want
        want = original(lambda: tok.decode(ids, skip_special_tokens=True))
        got = ours.ask(256, " ".join(map(str, ids)).encode())[1]
        if ids and want is not None and got != want:
            return f"text of {[tok.id_to_token(i) for i in ids]}\n  original {want!r}\n  ours     {got!r}"
    return None


def comparable(config):
    ids = {}
    vocab = config["model"]["vocab"]
    for piece, i in vocab.items() if isinstance(vocab, dict) else []:
        ids.setdefault(i, piece)
    if any(ids.get(a["id"], a["content"]) != a["content"] for a in config["added_tokens"]):
        return False
    if any(a["special"] and a["single_word"] for a in config["added_tokens"]):
        return False
    removes_ab = '"pattern": {"String": "ab"}, "content": ""' in json.dumps(config["normalizer"])
    return not (removes_ab and any(a["content"] == "ab" and a["normalized"] for a in config["added_tokens"]))


def main(program, first, last, n):
    different = 0
    for seed in range(first, last + 1):
        r = random.Random(seed)
        tok = original(lambda: tokenizer(r))
        if tok is None:  # too small a vocabulary for its alphabet
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            tok.save(path)
            with open(path, encoding="utf-8") as f:
                config = json.load(f)
            if not comparable(config):
                continue
            difference = compare(r, tok, Ours(program, path), n)
        if difference:
            different += 1
            print(f"seed {seed}: {difference}")
    print(f"{different} tokenisers differ")
    return different


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *(int(a) for a in sys.argv[2:])) > 0)
