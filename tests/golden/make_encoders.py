#!/usr/bin/env python3
"""Makes the tiny encoders of tests/data/fixtures with Transformers, on the CPU: python3 -P make_encoders.py OUT [NAME...] (-P: safetensors.py of this folder
is another one)

Each is a folder as it comes from the model hub: config.json, model.safetensors (weights in bf16), tokenizer.json, and for some modules.json and
1_Pooling/config.json of sentence-transformers. golden.json has texts, their ids as the library tokenizers makes them, and what Transformers computes
of them in f32, each text alone: mean of the hidden states, the first and the last. "qwen3-headless" is a Qwen3 without an output matrix. Where
Dense layers follow the pooling, "vector" is what sentence-transformers makes of the folder. A development tool: the tests only
read what it made. Needs torch, transformers, sentence-transformers, safetensors, sentencepiece, protobuf."""
import io
import json
import os
import shutil
import sys
import tempfile
import types

import sentencepiece as spm
import torch
import transformers as tf
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = ["the cat sat on the mat", "The dog ran home, and slept!", "A", "", "graphs of operations run on devices; models are files " * 2, "naïve Grüße"]
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, initializer_range=0.2)
MODELS = {
    "bert": (tf.BertConfig, tf.BertForMaskedLM, dict(SMALL, max_position_embeddings=64, type_vocab_size=2, pad_token_id=0)),
    "distilbert": (tf.DistilBertConfig, tf.DistilBertModel, dict(dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64, pad_token_id=0)),
    "roberta": (tf.RobertaConfig, tf.RobertaForMaskedLM, dict(SMALL, max_position_embeddings=130, type_vocab_size=1, pad_token_id=1)),
    "xlm-roberta": (tf.XLMRobertaConfig, tf.XLMRobertaModel, dict(SMALL, max_position_embeddings=162, type_vocab_size=1, pad_token_id=1)),
    "nomic-bert": (tf.NomicBertConfig, tf.NomicBertModel, dict(SMALL, max_position_embeddings=128, type_vocab_size=2, pad_token_id=0)),
    "modernbert": (tf.ModernBertConfig, tf.ModernBertForMaskedLM, dict(SMALL, num_hidden_layers=4, intermediate_size=32, max_position_embeddings=128, local_attention=8, pad_token_id=1,
                                                                      cls_token_id=0, sep_token_id=2)),
    "qwen3-headless": (tf.Qwen3Config, tf.Qwen3Model, dict(SMALL, num_key_value_heads=2, head_dim=12, max_position_embeddings=128, tie_word_embeddings=False)),
    "embedding-gemma": (tf.Gemma3TextConfig, tf.Gemma3TextModel, dict(SMALL, num_hidden_layers=4, num_key_value_heads=1, head_dim=12, query_pre_attn_scalar=12, sliding_window=8,
                                                                     max_position_embeddings=128, use_bidirectional_attention=True, pad_token_id=1,
                                                                     layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"])),
    "embedding-gemma-plain": (tf.Gemma3TextConfig, tf.Gemma3TextModel, dict(SMALL, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8, sliding_window=5, pad_token_id=1,
                                                                           max_position_embeddings=96, use_bidirectional_attention=True,
                                                                           layer_types=["full_attention", "sliding_attention"])),
    "mpnet": (tf.MPNetConfig, tf.MPNetModel, dict(SMALL, max_position_embeddings=66, pad_token_id=1)),
    "electra-small": (tf.ElectraConfig, tf.ElectraForPreTraining, dict(SMALL, embedding_size=16, max_position_embeddings=64, type_vocab_size=2, pad_token_id=0)),
    "mpnet-plain": (tf.MPNetConfig, tf.MPNetForMaskedLM, dict(SMALL, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, hidden_act="relu",
                                                               max_position_embeddings=98, pad_token_id=1)),
    "electra-small-wide": (tf.ElectraConfig, tf.ElectraModel, dict(SMALL, num_hidden_layers=3, embedding_size=48, hidden_size=24, num_attention_heads=2, hidden_act="gelu_new",
                                                                   max_position_embeddings=80, type_vocab_size=1, pad_token_id=0)),
    "deberta-v2": (tf.DebertaV2Config, tf.DebertaV2Model, dict(SMALL, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, relative_attention=True, max_relative_positions=12,
                                                               pos_att_type=["c2p", "p2c"], position_biased_input=True, max_position_embeddings=96, type_vocab_size=2, pad_token_id=0)),
    "deberta-v3": (tf.DebertaV2Config, tf.DebertaV2ForMaskedLM, dict(SMALL, relative_attention=True, position_buckets=8, max_relative_positions=-1, pos_att_type=["p2c", "c2p"],
                                                                     share_att_key=True, norm_rel_ebd="layer_norm", position_biased_input=False, max_position_embeddings=96,
                                                                     type_vocab_size=0, pad_token_id=0)),
    "deberta-v2-conv": (tf.DebertaV2Config, tf.DebertaV2Model, dict(SMALL, relative_attention=True, position_buckets=8, max_relative_positions=-1, pos_att_type=["p2c", "c2p"],
                                                                    share_att_key=True, norm_rel_ebd="layer_norm", position_biased_input=False, max_position_embeddings=96,
                                                                    type_vocab_size=0, pad_token_id=0, conv_kernel_size=3, conv_act="gelu")),
    "deberta-v2-conv5": (tf.DebertaV2Config, tf.DebertaV2ForMaskedLM, dict(SMALL, hidden_size=24, num_attention_heads=3, num_hidden_layers=3, relative_attention=True,
                                                                           max_relative_positions=12, pos_att_type=["c2p"], position_biased_input=True, max_position_embeddings=96,
                                                                           type_vocab_size=2, pad_token_id=0, conv_kernel_size=5, conv_groups=4)),
    "electra": (tf.ElectraConfig, tf.ElectraForPreTraining, dict(SMALL, embedding_size=32, max_position_embeddings=64, type_vocab_size=2, pad_token_id=0)),
}
SEEDS = {"mpnet": 320, "electra-small": 321, "electra": 309, "mpnet-plain": 322, "electra-small-wide": 323, "deberta-v2": 324, "deberta-v3": 325, "deberta-v2-conv": 326, "deberta-v2-conv5": 327}
# sentence-transformers' modules behind the Transformer
MODULES = {"bert": ("mean_tokens", True), "xlm-roberta": ("cls_token", True), "roberta": ("mean_tokens", False), "embedding-gemma": ("mean_tokens", True),
           "embedding-gemma-plain": ("mean_tokens", True)}
# Dense between Pooling and Normalize: (outputs, bias, activation)
DENSE = {"embedding-gemma": [(80, False, "linear.Identity"), (32, False, "linear.Identity")], "embedding-gemma-plain": [(20, True, "activation.Tanh")]}


def bert_tokenizer():
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer, tok.pre_tokenizer, tok.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(TEXTS * 3, trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False))
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tok


def mpnet_tokenizer():
    """Words as BERT's, between RoBERTa's marks: positions count from the id of <pad> on."""
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer, tok.pre_tokenizer, tok.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    tok.train_from_iterator(TEXTS * 3, trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False))
    tok.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    return tok


def roberta_tokenizer():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tok.train_from_iterator(TEXTS * 3, trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False,
                                                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    return tok


def train(**how):
    """A unigram model with a normaliser of few characters."""
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "rules.tsv")
        with open(rules, "w", encoding="utf-8") as f:
            for a, b in (("\u00ef", "i"), ("\ufb01", "fi"), ("\t", " "), ("\n", " "), ("\r", " "), ("\u3000", " ")):
                f.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n")
        out = io.BytesIO()
        spm.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS * 3), model_writer=out, normalization_rule_tsv=rules, model_type="unigram",
                                       hard_vocab_limit=False, minloglevel=2, **how)
        return out.getvalue()


def charsmap():
    """A normaliser as sentencepiece compiles them."""
    proto = model_pb2.ModelProto()
    proto.ParseFromString(train(vocab_size=40))
    return proto.normalizer_spec.precompiled_charsmap


def xlmr_tokenizer():
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Precompiled(charsmap())
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tok.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tok.train_from_iterator(TEXTS * 3, trainers.UnigramTrainer(vocab_size=110, special_tokens=special, unk_token="<unk>", show_progress=False))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tok


def deberta_tokenizer(normaliser):
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Sequence(normaliser)
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    tok.decoder = decoders.Metaspace()
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    tok.train_from_iterator(TEXTS * 3, trainers.UnigramTrainer(vocab_size=110, special_tokens=special, unk_token="[UNK]", show_progress=False))
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return tok


def deberta3_tokenizer():
    """As Transformers 4 converted spm.model."""
    return deberta_tokenizer([normalizers.Strip(), normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), " ")])


def deberta2_tokenizer():
    """As the class of Transformers 5 has it."""
    return deberta_tokenizer([normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC(), normalizers.Strip(left=False, right=True)])


class SpmFile:
    """spm.model, as DeBERTa has it, in place of a tokenizer.json: [CLS], the pieces of SentencePiece, [SEP]; [MASK] behind the pieces."""

    def __init__(self):
        self.bytes = train(vocab_size=100, pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]")
        self.spm = spm.SentencePieceProcessor(model_proto=self.bytes)

    def get_vocab_size(self):
        return self.spm.get_piece_size() + 1

    def encode(self, text):
        return types.SimpleNamespace(ids=[1] + self.spm.encode(text) + [2])

    def save(self, path, pretty):
        with open(os.path.join(os.path.dirname(path), "spm.model"), "wb") as f:
            f.write(self.bytes)


TOKENIZERS = {"bert": bert_tokenizer, "deberta-v2-conv": SpmFile, "deberta-v2-conv5": deberta2_tokenizer, "deberta-v3": deberta3_tokenizer, "deberta-v2": deberta2_tokenizer, "mpnet-plain": mpnet_tokenizer, "electra-small-wide": bert_tokenizer, "roberta": roberta_tokenizer, "xlm-roberta": xlmr_tokenizer, "nomic-bert": bert_tokenizer, "distilbert": bert_tokenizer, "modernbert": roberta_tokenizer, "electra": bert_tokenizer, "electra-small": bert_tokenizer, "mpnet": mpnet_tokenizer, "qwen3-headless": roberta_tokenizer,
              "embedding-gemma": roberta_tokenizer, "embedding-gemma-plain": roberta_tokenizer}


def write(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)


def write_dense(folder, layers, width, gen):
    """Folders of sentence-transformers' module Dense."""
    for i, (rows, bias, act) in enumerate(layers):
        path = os.path.join(folder, "%d_Dense" % (i + 2))
        write(os.path.join(path, "config.json"), {"in_features": width, "out_features": rows, "bias": bias, "activation_function": "torch.nn.modules." + act})
        tensors = {"linear.weight": torch.randn((rows, width), generator=gen) / width ** 0.5}
        if bias:
            tensors["linear.bias"] = torch.randn((rows,), generator=gen)
        save_file(tensors, os.path.join(path, "model.safetensors"))
        width = rows


def write_modules(folder, how, normalise, width, n_dense=0):
    kinds = ["Transformer", "Pooling"] + ["Dense"] * n_dense + (["Normalize"] if normalise else [])
    paths = ["", "1_Pooling"] + ["%d_Dense" % (i + 2) for i in range(n_dense)] + ["%d_Normalize" % (n_dense + 2)]
    write(os.path.join(folder, "modules.json"), [{"idx": i, "name": str(i), "path": paths[i], "type": "sentence_transformers.models." + kind}
                                                 for i, kind in enumerate(kinds)])
    modes = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"]
    write(os.path.join(folder, "1_Pooling", "config.json"), dict({"word_embedding_dimension": width, "include_prompt": True},
                                                                 **{"pooling_mode_" + m: m == how for m in modes}))


def randomise(model, seed):
    gen = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        mean = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
        std = 0.2 if p.dim() == 1 else 1.2 / (p.shape[-1] ** 0.5)
        p.data = (torch.randn(p.shape, generator=gen) * std + mean).bfloat16().float()
    return model


def make(out, name, seed):
    kind, cls, values = MODELS[name]
    tok = TOKENIZERS[name]()
    folder = os.path.join(out, name)
    torch.manual_seed(seed)
    config = kind(vocab_size=tok.get_vocab_size(), bos_token_id=0, eos_token_id=2, **values)
    config._attn_implementation = "eager"
    model = randomise(cls(config), seed).eval()
    base = getattr(model, model.base_model_prefix, model)
    golden, hidden = [], []
    for text in TEXTS:
        ids = tok.encode(text).ids
        with torch.no_grad():
            states = base(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long)).last_hidden_state[0]
        hidden.append(states)
        golden.append({"text": text, "ids": ids, "mean": states.mean(0).tolist(), "cls": states[0].tolist(), "last": states[-1].tolist()})
    shutil.rmtree(folder, ignore_errors=True)
    model.bfloat16().save_pretrained(folder)
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(folder, extra)):
            os.remove(os.path.join(folder, extra))
    tok.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    if name in MODULES:
        write_modules(folder, *MODULES[name], config.hidden_size, len(DENSE.get(name, [])))
    if name in DENSE:
        write_dense(folder, DENSE[name], config.hidden_size, torch.Generator().manual_seed(seed))
        behind = list(SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32}))[1:]
        for g, states in zip(golden, hidden):  # its tokeniser is Gemma's, which is not in the folder
            features = {"token_embeddings": states[None], "attention_mask": torch.ones(1, len(states), dtype=torch.long)}
            for module in behind:
                features = module(features)
            g["vector"] = features["sentence_embedding"][0].tolist()
    write(os.path.join(folder, "golden.json"), [dict(g, **{k: [float("%.9g" % v) for v in g[k]] for k in ("mean", "cls", "last", "vector") if k in g}) for g in golden])
    size = sum(os.path.getsize(os.path.join(root, f)) for root, _, files in os.walk(folder) for f in files)
    print("%-15s %7d bytes, %d ids, texts of %s tokens" % (name, size, config.vocab_size, [len(g["ids"]) for g in golden]))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    tf.logging.set_verbosity_error()
    for wanted in sys.argv[2:] or MODELS:
        make(sys.argv[1], wanted, SEEDS.get(wanted, 300 + list(MODELS).index(wanted)))
