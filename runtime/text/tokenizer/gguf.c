/* gguf.c -- a tokeniser from GGUF's tokenizer.ggml.* keys: "gpt2" (byte-level BPE by
 * merges), "gemma4" (the same on plain UTF-8), "llama" (BPE by scores, spaces written as U+2581),
 * "t5" (Unigram) and "bert" (WordPiece). */
#include "text/tokenizer/tokenizer_impl.h"
#include <ctype.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

/* What ends a turn or a text in the models that forgot to say so in their keys. */
static const char *const end_of_turn[] = {"<|eot_id|>",
                                          "<|eom_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "<|end_of_text|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<end_of_utterance>",
                                          "<\xef\xbd\x9c"
                                          "end" MN_BLOCK "of" MN_BLOCK "sentence\xef\xbd\x9c>"};

static bool is_end_of_turn(mn_str piece) {
    for (size_t i = 0; i < MN_COUNT(end_of_turn); i++)
        if (mn_str_is(piece, end_of_turn[i]))
            return true;
    return false;
}

/* ---- tokens ---------------------------------------------------------------------------------- */
static mn_status same_length(const char *key, uint64_t found, uint64_t expected, mn_error *err) {
    if (found == expected)
        return MN_OK;
    return mn_fail(err, MN_BAD_FILE, "%s: found %llu entries, expected %llu as in " KEY("tokens"),
                   key, (unsigned long long)found, (unsigned long long)expected);
}

/* Optional; *types stays NULL without. */
static mn_status get_types(const mn_meta *meta, uint64_t n, const int64_t **types, mn_error *err) {
    const void *array = NULL;
    uint64_t n_types = 0;
    mn_status st = mn_meta_array(meta, KEY("token_type"), MN_VALUE_INT, &array, &n_types, err);
    if (st)
        return st == MN_END ? MN_OK : st;
    *types = array;
    if ((st = same_length(KEY("token_type"), n_types, n, err)))
        return st;
    for (uint64_t i = 0; i < n; i++)
        if ((*types)[i] < MN_TYPE_UNDEFINED || (*types)[i] > MN_TYPE_BYTE)
            return mn_fail(err, MN_BAD_FILE,
                           KEY("token_type") ": token %llu has %lld, expected 0 to 6",
                           (unsigned long long)i, (long long)(*types)[i]);
    return MN_OK;
}

static uint32_t flags_of(int64_t type, mn_str piece) {
    if (type == MN_TYPE_CONTROL || type == MN_TYPE_UNKNOWN)
        return MN_TOKEN_SPECIAL | MN_TOKEN_ADDED;
    if (type == MN_TYPE_USER)
        return MN_TOKEN_ADDED | (is_end_of_turn(piece) ? MN_TOKEN_SPECIAL : 0u);
    return type == MN_TYPE_BYTE ? MN_TOKEN_BYTE : 0u;
}

static mn_status read_tokens(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    const void *array = NULL;
    const int64_t *types = NULL;
    uint64_t n = 0;
    mn_status st = mn_meta_array(meta, KEY("tokens"), MN_VALUE_STR, &array, &n, err);
    if (st == MN_END)
        return mn_fail(err, MN_BAD_FILE,
                       KEY("tokens") ": missing, although " KEY("model") " is there");
    if (st || (st = get_types(meta, n, &types, err)))
        return st;
    if ((st = mn_vocab_init(&tok->vocab, n, KEY("tokens"), err)))
        return st;
    const mn_str *piece = array;
    for (uint64_t i = 0; !st && i < n; i++) {
        if (mn_utf8_check(piece[i].ptr, (size_t)piece[i].len) != piece[i].len)
            return mn_fail(err, MN_BAD_FILE, KEY("tokens") ": token %llu is not valid UTF-8",
                           (unsigned long long)i);
        st = mn_vocab_set(&tok->vocab, (int32_t)i, piece[i],
                          types ? flags_of(types[i], piece[i]) : 0, KEY("tokens"), err);
    }
    return st;
}

/* A file without types: at least its own special ids are no plain text. */
static mn_status read_id(mn_tokenizer *tok, const mn_meta *meta, const char *key, int32_t *id,
                         mn_error *err) {
    int64_t value = -1;
    mn_status st = mn_meta_i64(meta, key, -1, INT64_MAX, &value, err);
    if (st)
        return st == MN_END ? MN_OK : st;
    if (value == -1 || value == UINT32_MAX)
        return MN_OK; /* both are written for "none" */
    if (value >= tok->vocab.n)
        return mn_fail(err, MN_BAD_FILE, "%s: found %lld, but there are %u tokens", key,
                       (long long)value, tok->vocab.n);
    *id = (int32_t)value;
    return MN_OK;
}

/* An end that is no token ends nothing: -1, as if it was not given. mn_generation_read warns of it,
 * for all formats. */
static mn_status read_eos(mn_tokenizer *tok, const mn_meta *meta, int32_t *id, mn_error *err) {
    static const char key[] = KEY("eos_token_id");
    int64_t value = -1;
    const mn_status st = mn_meta_i64(meta, key, -1, INT64_MAX, &value, err);
    return !st && value >= tok->vocab.n ? MN_OK : read_id(tok, meta, key, id, err);
}

static mn_status read_named_ids(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    mn_status st = read_id(tok, meta, KEY("bos_token_id"), &tok->bos, err);
    if (!st)
        st = read_eos(tok, meta, &tok->eos, err);
    if (!st)
        st = read_id(tok, meta, KEY("unknown_token_id"), &tok->unk, err);
    return st ? st : read_id(tok, meta, KEY("padding_token_id"), &tok->pad, err);
}

static mn_status read_ids(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    mn_status st = read_named_ids(tok, meta, err);
    if (st || mn_meta_find(meta, KEY("token_type")))
        return st;
    const int32_t id[] = {tok->bos, tok->eos, tok->unk, tok->pad};
    for (size_t i = 0; i < MN_COUNT(id); i++)
        if (id[i] >= 0)
            tok->vocab.token[id[i]].flags |= MN_TOKEN_SPECIAL | MN_TOKEN_ADDED;
    return MN_OK;
}

static bool contains(mn_str s, const char *lower) {
    size_t n = strlen(lower);
    for (size_t i = 0; i + n <= s.len; i++) {
        size_t k = 0;
        while (k < n && tolower((unsigned char)s.ptr[i + k]) == lower[k])
            k++;
        if (k == n)
            return true;
    }
    return false;
}

/* Phi-3's special tokens take the white space behind them; GGUF has no field for that, so the
 * model's name decides. */
static bool takes_space_behind(const mn_meta *meta, const mn_vocab_token *t) {
    mn_str name = {NULL, 0};
    static const char *const not_these[] = {"<unk>", "<s>", "<|endoftext|>"};
    if (mn_meta_str(meta, "general.name", &name, NULL) ||
        !(contains(name, "phi-3") || contains(name, "phi3")))
        return false;
    for (size_t i = 0; i < MN_COUNT(not_these); i++)
        if (mn_str_is(t->piece, not_these[i]))
            return false;
    return true;
}

/* The tokens of users are SentencePiece's symbols: parts of the normalised text, not what stands
 * between texts. */
static bool has_symbols(const mn_meta *meta) {
    bool v = false;
    mn_error why = MN_ERROR_INIT;
    const mn_status st = mn_meta_bool(meta, "minerva.tokenizer.symbols", &v, &why);
    if (st && st != MN_END)
        mn_log(MN_LOG_WARN, "%s: it is not used", why.msg);
    return v;
}

/* As the normalised text spells it. */
static mn_status put_symbol(mn_tokenizer *tok, mn_added a, mn_error *err) {
    mn_text s = {0};
    mn_str copy;
    for (uint64_t i = 0; i < a.text.len; i++)
        if (a.text.ptr[i] == ' ')
            mn_text_puts(&s, MN_BLOCK);
        else
            mn_text_put(&s, a.text.ptr + i, 1);
    mn_status st = s.failed ? mn_fail_memory(err, a.text.len)
                            : mn_vocab_keep(&tok->vocab, (mn_str){s.ptr, s.len}, &copy, err);
    mn_text_free(&s);
    if (st)
        return st;
    a.text = copy;
    return mn_added_put(&tok->normalized, &a, err);
}

static mn_status collect_added(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    const bool symbols = has_symbols(meta);
    mn_status st = MN_OK;
    for (uint32_t i = 0; !st && i < tok->vocab.n; i++) {
        const mn_vocab_token *t = &tok->vocab.token[i];
        if (!(t->flags & MN_TOKEN_ADDED))
            continue;
        mn_added a = {.text = t->piece, .id = (int32_t)i, .special = t->flags & MN_TOKEN_SPECIAL};
        a.rstrip = tok->model == MN_MODEL_SCORES && takes_space_behind(meta, t);
        if (a.special || !symbols)
            st = mn_added_put(&tok->raw, &a, err);
        else if (tok->model == MN_MODEL_SCORES)
            st = put_symbol(tok, a, err);
    }
    if (!st)
        st = mn_added_index(&tok->raw, KEY("tokens"), err);
    return st ? st : mn_added_index(&tok->normalized, KEY("tokens"), err);
}

/* ---- gpt2 ------------------------------------------------------------------------------------ */
static mn_status unknown_pre(mn_str name, mn_error *err) {
    mn_text list = {0};
    mn_pre_list(&list);
    mn_status st =
        mn_fail(err, MN_UNSUPPORTED, KEY("pre") ": unknown pre-tokeniser \"%.*s\"; known: %s",
                MN_STR_ARG(name), list.ptr ? list.ptr : "");
    mn_text_free(&list);
    return st;
}

/* A merge of pieces that are no tokens can never apply: files have them, and other readers pass
 * over them. */
static mn_status read_merges(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    const void *array = NULL;
    uint64_t n = 0;
    mn_merges m = {.vocab = &tok->vocab, .where = KEY("merges"), .pass_over = true};
    mn_status st = mn_meta_array(meta, KEY("merges"), MN_VALUE_STR, &array, &n, err);
    if (st == MN_END)
        return mn_fail(err, MN_BAD_FILE,
                       KEY("merges") ": missing, although " KEY("model") " is \"gpt2\"");
    if (!st)
        st = mn_merges_begin(&m, n, err);
    const mn_str *merge = array;
    for (uint64_t i = 0; !st && i < n; i++) {
        mn_str pair = merge[i];
        const char *blank = pair.len > 1 ? memchr(pair.ptr + 1, ' ', (size_t)pair.len - 1) : NULL;
        if (!blank)
            return mn_fail(
                err, MN_BAD_FILE,
                KEY("merges") ": merge %llu is \"%.*s\", expected two pieces and a space",
                (unsigned long long)i, MN_STR_ARG(pair));
        const uint64_t left = (uint64_t)(blank - pair.ptr);
        st = mn_merges_add(&m, (mn_str){pair.ptr, left}, (mn_str){blank + 1, pair.len - left - 1},
                           err);
    }
    if (!st)
        st = mn_merges_end(&m, err);
    if (!st && m.n_idle)
        mn_log(MN_LOG_WARN, "%llu of %llu merges cannot apply and are passed over; the first: %s",
               (unsigned long long)m.n_idle, (unsigned long long)n, m.first_idle.msg);
    return st;
}

/* Words alone, in lower case if the file says so. */
static mn_status read_words(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    bool lower = false;
    mn_status st = mn_meta_bool(meta, KEY("normalizer.lowercase"), &lower, err);
    if (st && st != MN_END)
        return st;
    if (lower && !mn_steps_add(&tok->splitter, MN_STEP_LOWER))
        return mn_fail_memory(err, sizeof(mn_step));
    return mn_steps_add_split(&tok->splitter, "\\s", MN_SPLIT_REMOVED, false, KEY("pre"), err);
}

static mn_status read_gpt2(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos, mn_error *err) {
    mn_str model = {NULL, 0}, pre = mn_str_of("default");
    mn_meta_str(meta, KEY("model"), &model, NULL);
    bool gemma4 = mn_str_is(model, "gemma4"); /* names no other */
    mn_status st = gemma4 ? MN_OK : mn_meta_str(meta, KEY("pre"), &pre, err);
    if (gemma4)
        pre = model;
    if (st == MN_END)
        mn_log(MN_LOG_WARN,
               "the model does not name its pre-tokeniser (" KEY(
                   "pre") "): \"default\" is used, which may differ from the original");
    else if (st)
        return st;
    const mn_pre_row *row = mn_pre_find(pre);
    if (!row)
        return unknown_pre(pre, err);
    const bool raw = row->flags & MN_PRE_RAW, words = row->flags & MN_PRE_WORDS;
    tok->model = MN_MODEL_MERGES;
    tok->ignore_merges = row->flags & MN_PRE_IGNORE_MERGES;
    tok->byte_level = !raw && !words;
    tok->byte_fallback = raw || words;
    *add_bos = row->flags & MN_PRE_ADD_BOS && tok->bos >= 0;
    st = read_merges(tok, meta, err);
    if (!st && words)
        st = read_words(tok, meta, err);
    if (!st && raw)
        st = mn_steps_add_replace(&tok->splitter, mn_str_of(" "), mn_str_of(MN_BLOCK), err);
    for (size_t i = 0; !st && i < MN_COUNT(row->split) && row->split[i]; i++)
        st = mn_steps_add_split(&tok->splitter, row->split[i], MN_SPLIT_ISOLATED, false, KEY("pre"),
                                err);
    if (!st && tok->byte_level && !mn_steps_add(&tok->splitter, MN_STEP_BYTES))
        st = mn_fail_memory(err, sizeof(mn_step));
    if (st)
        return st;
    return tok->byte_level ? mn_decode_add(&tok->decoder, MN_DECODE_BYTES, mn_str_of(""), NULL, err)
                           : mn_decode_sentencepiece(&tok->decoder, 0, err);
}

/* ---- llama ----------------------------------------------------------------------------------- */
static mn_status read_scores(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    const void *array = NULL;
    uint64_t n = 0;
    mn_status st = mn_meta_array(meta, KEY("scores"), MN_VALUE_FLOAT, &array, &n, err);
    if (st == MN_END)
        return mn_fail(err, MN_BAD_FILE,
                       KEY("scores") ": missing, although " KEY("model") " is \"llama\"");
    if (st || (st = same_length(KEY("scores"), n, tok->vocab.n, err)))
        return st;
    const double *score = array;
    for (uint64_t i = 0; i < n; i++) {
        if (!(score[i] >= -3e38 && score[i] <= 3e38))
            return mn_fail(err, MN_BAD_FILE,
                           KEY("scores") ": token %llu has %g, expected a finite number",
                           (unsigned long long)i, score[i]);
        tok->vocab.token[i].score = (float)score[i];
    }
    return MN_OK;
}

/* No piece has a space behind other characters: then merging never crosses a word's start, and
 * words can be merged one by one. The ids are the same, the heaps are small. A space is a piece: no
 * run of unknown characters crosses one either. */
static bool words_stand_alone(const mn_vocab *v) {
    if (mn_vocab_plain(v, MN_BLOCK, strlen(MN_BLOCK)) < 0)
        return false;
    for (uint32_t i = 0; i < v->n; i++) {
        mn_str s = v->token[i].piece;
        bool other = false;
        if (v->token[i].flags & (MN_TOKEN_SPECIAL | MN_TOKEN_BYTE))
            continue;
        for (uint64_t k = 0; k < s.len; k++) {
            bool block = k + 3 <= s.len && !memcmp(s.ptr + k, MN_BLOCK, 3);
            if (block && other)
                return false;
            other |= !block;
            if (block)
                k += 2;
        }
    }
    return true;
}

mn_status mn_split_words(mn_tokenizer *tok, const char *where, mn_error *err) {
    if (tok->continuing.len || tok->ending.len || !words_stand_alone(&tok->vocab))
        return MN_OK;
    return mn_steps_add_split(&tok->splitter, "\\x{2581}*[^\\x{2581}]+|\\x{2581}+",
                              MN_SPLIT_ISOLATED, false, where, err);
}

static mn_status read_charsmap(const mn_meta *meta, mn_text *blob, mn_error *err) {
    const void *array = NULL;
    uint64_t n = 0;
    mn_status st = mn_meta_array(meta, KEY("precompiled_charsmap"), MN_VALUE_INT, &array, &n, err);
    if (st)
        return st == MN_END ? MN_OK : st;
    const int64_t *byte = array;
    for (uint64_t i = 0; i < n; i++)
        mn_text_put(blob, &(char){(char)(byte[i] & 0xff)}, 1);
    return blob->failed ? mn_fail_memory(err, n) : MN_OK;
}

/* how: what is there when no key says otherwise; its charsmap is in blob. */
static mn_status read_spaces(const mn_meta *meta, mn_sentencepiece *how, mn_text *blob,
                             mn_error *err) {
    const struct {
        const char *key;
        bool *value;
    } flags[] = {{KEY("add_space_prefix"), &how->dummy_prefix},
                 {KEY("remove_extra_whitespaces"), &how->squeeze},
                 {"minerva.tokenizer.graphemes", &how->graphemes}};
    for (size_t i = 0; i < MN_COUNT(flags); i++) {
        mn_status st = mn_meta_bool(meta, flags[i].key, flags[i].value, err);
        if (st && st != MN_END)
            return st;
    }
    mn_status st = read_charsmap(meta, blob, err);
    how->symbols = has_symbols(meta);
    how->charsmap = (mn_str){blob->ptr, blob->len};
    return st;
}

/* Files give some of the ids, others leave them to their spellings, which never differ. */
static mn_status spelled_id(mn_tokenizer *tok, const mn_meta *meta, const char *key,
                            const char *spelling, int32_t *id, mn_error *err) {
    const bool is_eos = id == &tok->eos;
    mn_status st = MN_OK;
    if (*id < 0)
        st = is_eos ? read_eos(tok, meta, id, err) : read_id(tok, meta, key, id, err);
    if (!st && *id < 0 && !mn_meta_find(meta, key))
        *id = mn_tokenizer_find(tok, mn_str_of(spelling));
    if (!st && *id >= 0)
        tok->vocab.token[*id].flags |= MN_TOKEN_SPECIAL | MN_TOKEN_ADDED;
    return st;
}

/* As the model's own SentencePiece treats white space and characters, where the file says more than
 * a prefix. */
static mn_status read_llama(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos, mn_error *err) {
    mn_sentencepiece how = {.dummy_prefix = true, .escape = true};
    mn_text blob = {0};
    mn_status st = read_spaces(meta, &how, &blob, err);
    if (!st)
        st = read_scores(tok, meta, err);
    if (!st)
        st = spelled_id(tok, meta, KEY("bos_token_id"), "<s>", &tok->bos, err);
    if (!st)
        st = spelled_id(tok, meta, KEY("eos_token_id"), "</s>", &tok->eos, err);
    if (!st)
        st = spelled_id(tok, meta, KEY("unknown_token_id"), "<unk>", &tok->unk, err);
    if (!st && tok->eos >= 0 && !mn_ids_put_once(&tok->stop, tok->eos))
        st = mn_fail_memory(err, sizeof tok->eos);
    tok->model = MN_MODEL_SCORES;
    tok->fuse_unk = true;
    tok->model_unk = tok->unk;
    *add_bos = tok->bos >= 0;
    if (!st && (how.squeeze || how.charsmap.len || has_symbols(meta))) {
        st = mn_sentencepiece_steps(tok, &how, KEY("precompiled_charsmap"), err);
    } else if (!st) {
        if (how.dummy_prefix)
            st = mn_steps_add_prepend(&tok->splitter, mn_str_of(" "), false, false, err);
        if (!st)
            st = mn_steps_add_replace(&tok->splitter, mn_str_of(" "), mn_str_of(MN_BLOCK), err);
        if (!st)
            st = mn_decode_sentencepiece(&tok->decoder, how.dummy_prefix, err);
    }
    mn_text_free(&blob);
    return st ? st : mn_split_words(tok, KEY("model"), err);
}

/* ---- t5 -------------------------------------------------------------------------------------- */
/* Pieces that text may become: neither special ones, nor bytes, nor those that a file lists and
 * does not use. */
static mn_status read_log_probs(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    const int64_t *types = NULL;
    const bool symbols = has_symbols(meta);
    mn_status st = read_scores(tok, meta, err);
    if (!st)
        st = mn_unigram_init(tok, err);
    if (!st)
        st = get_types(meta, tok->vocab.n, &types, err);
    for (uint32_t i = 0; !st && i < tok->vocab.n; i++) {
        const bool used = !types || (types[i] != MN_TYPE_UNUSED && types[i] != MN_TYPE_UNDEFINED);
        if (used && !(tok->vocab.token[i].flags & (MN_TOKEN_SPECIAL | MN_TOKEN_BYTE)))
            tok->unigram.log_prob[i] = symbols && types && types[i] == MN_TYPE_USER
                                           ? mn_symbol_log_prob(tok->vocab.token[i].piece.len)
                                           : (double)tok->vocab.token[i].score;
    }
    return st;
}

static mn_status read_t5(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos, mn_error *err) {
    mn_sentencepiece how = {.dummy_prefix = true, .squeeze = true, .escape = true};
    mn_text blob = {0};
    tok->model = MN_MODEL_UNIGRAM;
    tok->unigram.single = tok->fuse_unk = true;
    tok->byte_fallback = true; /* if there are bytes */
    tok->model_unk = tok->unk;
    *add_bos = false;
    mn_status st = read_spaces(meta, &how, &blob, err);
    if (!st)
        st = read_log_probs(tok, meta, err);
    if (!st)
        st = mn_sentencepiece_steps(tok, &how, KEY("precompiled_charsmap"), err);
    mn_text_free(&blob);
    return st ? st : mn_unigram_finish(tok, KEY("scores"), err);
}

/* ---- bert: pieces that begin a word have U+2581 in front, where BERT's own list marks those that
 * go on one ---- */
/* U+FFFF, a character that no text has: U+2581 in a text begins no word */
#define NONE "\xef\xbf\xbf"

static mn_status read_bert_ids(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos,
                               mn_error *err) {
    int32_t sep = -1, mask = -1;
    bool add_sep = true;
    mn_status st = spelled_id(tok, meta, KEY("cls_token_id"), "[CLS]", &tok->bos, err);
    /* spelled so */
    if (!st)
        st = spelled_id(tok, meta, KEY("seperator_token_id"), "[SEP]", &sep, err);
    if (!st)
        st = spelled_id(tok, meta, KEY("unknown_token_id"), "[UNK]", &tok->unk, err);
    if (!st)
        st = spelled_id(tok, meta, KEY("mask_token_id"), "[MASK]", &mask, err);
    if (!st)
        st = mn_meta_bool(meta, KEY("add_sep_token"), &add_sep, err);
    if (st && st != MN_END)
        return st;
    if (tok->eos < 0)
        tok->eos = sep;
    tok->model_unk = tok->unk;
    *add_bos = tok->bos >= 0;
    return !add_sep || sep < 0 || mn_ids_put(&tok->suffix, sep) ? MN_OK
                                                                : mn_fail_memory(err, sizeof sep);
}

static mn_status read_bert(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos, mn_error *err) {
    bool lower = true;
    mn_status st = mn_meta_bool(meta, KEY("normalizer.lowercase"), &lower, err);
    if (st && st != MN_END)
        return st;
    bool strip = lower;
    st = mn_meta_bool(meta, KEY("normalizer.strip_accents"), &strip, err);
    if (st && st != MN_END)
        return st;
    int64_t max_word = MN_MAX_WORD;
    st = mn_meta_i64(meta, "minerva.tokenizer.max_word", 0, UINT32_MAX, &max_word, err);
    if (st && st != MN_END)
        return st;
    tok->model = MN_MODEL_WORDS;
    st = mn_words_init(tok, mn_str_of(""), (uint32_t)max_word, err);
    if (!st)
        st = read_bert_ids(tok, meta, add_bos, err);
    if (!st)
        st = mn_steps_add_bert_normalizer(&tok->normalizer, true, true, strip, lower, err);
    if (!st)
        st = mn_steps_add_bert_split(&tok->splitter, err);
    if (!st)
        st = mn_steps_add_replace(&tok->splitter, mn_str_of(MN_BLOCK), mn_str_of(NONE), err);
    if (!st)
        st = mn_steps_add_prepend(&tok->splitter, mn_str_of(MN_BLOCK), false, false, err);
    return st ? st
              : mn_decode_add(&tok->decoder, MN_DECODE_METASPACE, mn_str_of(MN_BLOCK), NULL, err);
}

/* ---- BOS, EOS, stop ids ---------------------------------------------------------------------- */
static mn_status read_added_ends(mn_tokenizer *tok, const mn_meta *meta, bool add_bos,
                                 mn_error *err) {
    bool add_eos = tok->model == MN_MODEL_UNIGRAM && tok->eos >= 0;
    /* BERT's */
    if (tok->suffix.n)
        return add_bos && !mn_ids_put(&tok->prefix, tok->bos) ? mn_fail_memory(err, 1) : MN_OK;
    mn_status st = mn_meta_bool(meta, KEY("add_bos_token"), &add_bos, err);
    if (st && st != MN_END)
        return st;
    st = mn_meta_bool(meta, KEY("add_eos_token"), &add_eos, err);
    if (st && st != MN_END)
        return st;
    if (add_bos && tok->bos < 0)
        return mn_fail(err, MN_BAD_FILE,
                       KEY("add_bos_token") ": true, but " KEY("bos_token_id") " is not set");
    if (add_eos && tok->eos < 0)
        return mn_fail(err, MN_BAD_FILE,
                       KEY("add_eos_token") ": true, but " KEY("eos_token_id") " is no token");
    bool ok = (!add_bos || mn_ids_put(&tok->prefix, tok->bos)) &&
              (!add_eos || mn_ids_put(&tok->suffix, tok->eos));
    return ok ? MN_OK : mn_fail_memory(err, sizeof(int32_t));
}

/* Beside a tokenizer.json: keys that name other ids than it does, or than its side-cars would. */
mn_status mn_tokenizer_ids_from_gguf(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    bool adds_bos = false, adds_eos = false;
    mn_status st = read_named_ids(tok, meta, err);
    if (st)
        return st;
    mn_status bos = mn_meta_bool(meta, KEY("add_bos_token"), &adds_bos, err);
    mn_status eos =
        !bos || bos == MN_END ? mn_meta_bool(meta, KEY("add_eos_token"), &adds_eos, err) : bos;
    if (eos && eos != MN_END)
        return eos;
    bool ok = true;
    if (!bos && adds_bos && !tok->prefix.n && tok->bos >= 0)
        ok = mn_ids_put(&tok->prefix, tok->bos);
    if (!eos && adds_eos && !tok->suffix.n && tok->eos >= 0)
        ok &= mn_ids_put(&tok->suffix, tok->eos);
    if (!bos && !adds_bos && tok->prefix.n == 1)
        tok->prefix.n = 0;
    if (!eos && !adds_eos && tok->suffix.n == 1)
        tok->suffix.n = 0;
    return ok ? MN_OK : mn_fail_memory(err, sizeof(int32_t));
}

/* The Harmony format ends messages, not turns, with <|end|>: there <|return|> and <|call|> stop. */
static bool ends_messages(const mn_tokenizer *tok, int32_t id) {
    return mn_tokenizer_find(tok, mn_str_of("<|return|>")) >= 0 &&
           mn_tokenizer_find(tok, mn_str_of("<|call|>")) >= 0 &&
           id == mn_tokenizer_find(tok, mn_str_of("<|end|>"));
}

mn_status mn_tokenizer_stop_from_gguf(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    static const char *const key[] = {NULL, KEY("eot_token_id"), KEY("eom_token_id")};
    bool ok = true;
    for (size_t i = 0; ok && i < MN_COUNT(key); i++) {
        int32_t id = -1;
        mn_status st =
            key[i] ? read_id(tok, meta, key[i], &id, err) : read_eos(tok, meta, &id, err);
        if (st)
            return st;
        if (id >= 0 && !ends_messages(tok, id))
            ok = mn_ids_put_once(&tok->stop, id);
    }
    for (size_t i = 0; ok && i < MN_COUNT(end_of_turn); i++) {
        int32_t id = mn_tokenizer_find(tok, mn_str_of(end_of_turn[i]));
        bool stops = id >= 0 && mn_tokenizer_is_special(tok, id) && !ends_messages(tok, id);
        if (stops)
            ok = mn_ids_put_once(&tok->stop, id);
    }
    return ok ? MN_OK : mn_fail_memory(err, sizeof(int32_t));
}

/* GGUF has no key of its own for what comes before the cuts. */
static mn_status read_form(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    mn_str form = {NULL, 0};
    mn_status st = mn_meta_str(meta, "minerva.tokenizer.form", &form, err);
    if (st)
        return st == MN_END ? MN_OK : st;
    st = mn_steps_add_form(&tok->normalizer, form, err);
    return st != MN_END
               ? st
               : mn_fail(err, MN_UNSUPPORTED,
                         "minerva.tokenizer.form: found \"%.*s\", expected NFC, NFD, NFKC or NFKD",
                         MN_STR_ARG(form));
}

typedef mn_status (*read_fn)(mn_tokenizer *tok, const mn_meta *meta, bool *add_bos, mn_error *err);
static const struct {
    const char *model;
    read_fn read;
} readers[] = {{"gpt2", read_gpt2},       {"llama", read_llama}, {"gemma4", read_gpt2},
               {"whitespace", read_gpt2}, {"t5", read_t5},       {"bert", read_bert}};

static read_fn find_reader(mn_str model) {
    for (size_t i = 0; i < MN_COUNT(readers); i++)
        if (mn_str_is(model, readers[i].model))
            return readers[i].read;
    return NULL;
}

bool mn_tokenizer_gguf_knows(mn_str model) {
    return find_reader(model) != NULL;
}

mn_status mn_tokenizer_from_gguf(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    mn_str model = {NULL, 0};
    bool add_bos = false;
    mn_status st = mn_meta_str(meta, KEY("model"), &model, err);
    if (st)
        return st;
    read_fn read = find_reader(model);
    if (!read)
        return mn_fail(err, MN_UNSUPPORTED,
                       KEY("model") ": unknown tokeniser \"%.*s\"; known: gpt2 llama gemma4 "
                                    "whitespace t5 bert",
                       MN_STR_ARG(model));
    if ((st = read_tokens(tok, meta, err)) || (st = read_ids(tok, meta, err)))
        return st;
    if (!(st = read_form(tok, meta, err)))
        st = read(tok, meta, &add_bos, err);
    if (!st)
        st = collect_added(tok, meta, err);
    if (!st)
        st = read_added_ends(tok, meta, add_bos, err);
    if (!st)
        st = mn_tokenizer_stop_from_gguf(tok, meta, err);
    if (!st)
        mn_vocab_finish(&tok->vocab);
    return st;
}
