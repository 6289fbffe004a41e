#!/usr/bin/env python3
"""Makes the tiny rerankers of tests/data/fixtures with Transformers, on the CPU: python3 -P make_rerankers.py OUT [NAME...]

Each is a folder as it comes from the model hub: config.json, model.safetensors (weights in bf16), tokenizer.json. golden.json has a query, texts, the ids of
each pair as the library tokenizers makes them, and the logit that Transformers computes of it in f32, each pair alone. "qwen3-reranker" is a decoder that
answers yes or no: its logit is that of yes against no behind its prompt; "bert-labels" has logits of three labels. A development tool: the tests only read what it made. Needs what make_encoders.py
needs."""
import json
import os
import shutil
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # behind the packages: this folder has a safetensors.py, too
import make_encoders as encoders
import torch
import transformers as tf
from make_encoders import SMALL, randomise, write
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

QUERY = "the dog ran home"
TEXTS = ["the cat sat on the mat", "The dog ran home, and slept!", "A", "graphs of operations run on devices; models are files " * 2, "dog [SEP] <|im_end|>"]
MODELS = {
    "bert-rank": ("bert", tf.BertConfig, tf.BertForSequenceClassification, dict(SMALL, max_position_embeddings=96, type_vocab_size=2, pad_token_id=0)),
    "distilbert-rank": ("distilbert", tf.DistilBertConfig, tf.DistilBertForSequenceClassification,
                        dict(dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=96, pad_token_id=0)),
    "xlm-roberta-rank": ("xlm-roberta", tf.XLMRobertaConfig, tf.XLMRobertaForSequenceClassification,
                         dict(SMALL, max_position_embeddings=194, type_vocab_size=1, pad_token_id=1)),
    "modernbert-rank": ("modernbert", tf.ModernBertConfig, tf.ModernBertForSequenceClassification,
                        dict(SMALL, num_hidden_layers=4, intermediate_size=32, max_position_embeddings=160, local_attention=8, pad_token_id=1, cls_token_id=0,
                             sep_token_id=2, classifier_pooling="mean")),
    "electra-rank": ("electra", tf.ElectraConfig, tf.ElectraForSequenceClassification,
                     dict(SMALL, embedding_size=32, max_position_embeddings=96, type_vocab_size=2, pad_token_id=0)),
    "bert-labels": ("bert", tf.BertConfig, tf.BertForSequenceClassification,
                    dict(SMALL, max_position_embeddings=96, type_vocab_size=2, pad_token_id=0, id2label={0: "contradiction", 1: "entailment", 2: "neutral"},
                         label2id={"contradiction": 0, "entailment": 1, "neutral": 2})),
    "qwen3-reranker": (None, tf.Qwen3Config, tf.Qwen3ForCausalLM,
                       dict(SMALL, num_key_value_heads=2, head_dim=12, max_position_embeddings=640, tie_word_embeddings=True)),
}
MODELS.update({
    "deberta-rank": ("deberta-v3", tf.DebertaV2Config, tf.DebertaV2ForSequenceClassification,
                     dict(SMALL, relative_attention=True, position_buckets=16, max_relative_positions=40, pos_att_type=["c2p"], share_att_key=True, norm_rel_ebd="layer_norm",
                          position_biased_input=False, max_position_embeddings=160, type_vocab_size=0, pad_token_id=0)),
    "mpnet-rank": ("mpnet", tf.MPNetConfig, tf.MPNetForSequenceClassification, dict(SMALL, max_position_embeddings=194, pad_token_id=1)),
    "electra-small-rank": ("electra", tf.ElectraConfig, tf.ElectraForSequenceClassification, dict(SMALL, embedding_size=16, max_position_embeddings=96, type_vocab_size=2, pad_token_id=0)),
})
SEEDS = {"deberta-rank": 47, "mpnet-rank": 48, "electra-small-rank": 49, "bert-rank": 40, "distilbert-rank": 41, "xlm-roberta-rank": 42, "modernbert-rank": 43, "qwen3-reranker": 44, "electra-rank": 45, "bert-labels": 46}
PROMPT = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "
          "\"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: %s\n<Query>: %s\n<Document>: %s<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


def qwen_tokenizer():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tok.train_from_iterator((TEXTS + [PROMPT % (INSTRUCTION, QUERY, "yes no\nyes no"), "yes", "no"]) * 3,
                            trainers.BpeTrainer(vocab_size=420, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], show_progress=False,
                                                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok


def prompt_ids(tok, text):
    """The texts' own ids: what looks like a special token in them is none."""
    def plain(s):
        bare = Tokenizer.from_str(tok.to_str())
        bare.encode_special_tokens = True
        return bare.encode(s, add_special_tokens=False).ids
    marked = PROMPT % (INSTRUCTION, QUERY, "\x00")
    head, tail = marked.split("\x00")
    if "<|" not in text:
        return tok.encode(head + text + tail, add_special_tokens=False).ids
    return tok.encode(head[:-1], add_special_tokens=False).ids + plain(" " + text) + tok.encode(tail, add_special_tokens=False).ids


def make(out, name, seed):
    base, kind, cls, values = MODELS[name]
    tok = encoders.TOKENIZERS[base]() if base else qwen_tokenizer()
    folder = os.path.join(out, name)
    if base == "modernbert":
        tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)])
    if base:
        values = values if "id2label" in values else dict(values, num_labels=1)
    config = kind(vocab_size=tok.get_vocab_size(), bos_token_id=0, eos_token_id=2, **values)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = randomise(cls(config), seed).eval()
    cases = []
    for text in TEXTS:
        if base == "deberta-v3":  # where the library finds "[SEP]" among the pieces of a unigram model, though texts have no special tokens
            text = text.replace("[SEP]", "sep")
        if base:
            bare = Tokenizer.from_str(tok.to_str())
            bare.encode_special_tokens = True
            pair = bare.encode(QUERY, text)
            ids, types = pair.ids, pair.type_ids
        else:
            ids, types = prompt_ids(tok, text), []
        more = {"token_type_ids": torch.tensor([types])} if base in ("bert", "electra") else {}
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), **more).logits[0]
        yes, no = (tok.token_to_id(w) for w in ("yes", "no"))
        logit = logits[0] if base else logits[-1][yes] - logits[-1][no]
        cases.append({"text": text, "ids": ids, "logit": float(logit)})
        if "id2label" in values:
            cases[-1]["logits"] = logits.tolist()
    shutil.rmtree(folder, ignore_errors=True)
    model.bfloat16().save_pretrained(folder)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    tok.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    write(os.path.join(folder, "golden.json"), {"query": QUERY, "cases": cases})
    print(name, sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)), [round(c["logit"], 4) for c in cases], [len(c["ids"]) for c in cases])


if __name__ == "__main__":
    for name in MODELS:
        if not sys.argv[2:] or name in sys.argv[2:]:
            make(sys.argv[1], name, SEEDS[name])
