/* gguf.c -- a tokeniser from GGUF's tokenizer.ggml.* keys: tokens, ids, added tokens, what begins
 * and ends texts. What differs from kind to kind is in gguf_models.c.
 *
 * Pieces are copied out of the metadata; nothing of it is kept. Every id, type and length is
 * checked here, once, against the number of tokens. */
#include "text/tokenizer/gguf.h"
#include <ctype.h>
#include <string.h>

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

/* An optional flag; *value stays where the key is absent. */
static mn_status tok_gguf_read_flag(const mn_meta *meta, const char *key, bool *value,
                                    mn_error *err) {
    mn_status st = mn_meta_bool(meta, key, value, err);
    return st == MN_END ? MN_OK : st;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

mn_status mn_gguf_same_length(const char *key, uint64_t found, uint64_t expected, mn_error *err) {
    if (found == expected)
        return MN_OK;
    return mn_fail(err, MN_BAD_FILE, "%s: found %llu entries, expected %llu as in " KEY("tokens"),
                   key, (unsigned long long)found, (unsigned long long)expected);
}

mn_status mn_gguf_types(const mn_meta *meta, uint64_t n, const int64_t **types, mn_error *err) {
    static const char key[] = KEY("token_type");
    const void *array = NULL;
    uint64_t n_types = 0;
    mn_status st = mn_meta_array(meta, key, MN_VALUE_INT, &array, &n_types, err);
    if (st)
        return st == MN_END ? MN_OK : st;
    const int64_t *type = array;
    st = mn_gguf_same_length(key, n_types, n, err);
    for (uint64_t i = 0; !st && i < n; i++) {
        if (type[i] >= MN_TYPE_UNDEFINED && type[i] <= MN_TYPE_BYTE)
            continue;
        st = mn_fail(err, MN_BAD_FILE, "%s: token %llu has %lld, expected 0 to 6", key,
                     (unsigned long long)i, (long long)type[i]);
    }
    *types = type;
    return st;
}

/* What users added and ends a turn is a special token, whatever the file says. */
static uint32_t flags_of(int64_t type, mn_str piece) {
    const bool ends = type == MN_TYPE_USER && is_end_of_turn(piece);
    return mn_type_flags(type) | (ends ? MN_TOKEN_SPECIAL : 0u);
}

static mn_status read_tokens(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    static const char key[] = KEY("tokens");
    const void *array = NULL;
    const int64_t *types = NULL;
    uint64_t n = 0;
    mn_status st = mn_meta_array(meta, key, MN_VALUE_STR, &array, &n, err);
    if (st == MN_END)
        return mn_fail(err, MN_BAD_FILE, "%s: missing, although " KEY("model") " is there", key);
    if (!st)
        st = mn_gguf_types(meta, n, &types, err);
    if (!st)
        st = mn_vocab_init(&tok->vocab, n, key, err);
    for (uint64_t i = 0; !st && i < n; i++) {
        const mn_str piece = ((const mn_str *)array)[i];
        const uint32_t flags = types ? flags_of(types[i], piece) : 0;
        if (mn_utf8_check(piece.ptr, (size_t)piece.len) != piece.len)
            return mn_fail(err, MN_BAD_FILE, "%s: token %llu is not valid UTF-8", key,
                           (unsigned long long)i);
        st = mn_vocab_set(&tok->vocab, (int32_t)i, piece, flags, key, err);
    }
    return st;
}

/* ---- ids ------------------------------------------------------------------------------------- */

mn_status mn_gguf_id(mn_tokenizer *tok, const mn_meta *meta, const char *key, int32_t *id,
                     mn_error *err) {
    int64_t value = -1;
    mn_status st = mn_meta_i64(meta, key, -1, INT64_MAX, &value, err);
    if (st)
        return st == MN_END ? MN_OK : st;
    if (value == -1 || value == UINT32_MAX)
        return MN_OK; // both are written for "none"
    if (value >= tok->vocab.n)
        return mn_fail(err, MN_BAD_FILE, "%s: found %lld, but there are %u tokens", key,
                       (long long)value, tok->vocab.n);
    *id = (int32_t)value;
    return MN_OK;
}

/* An end that is no token ends nothing: -1, as if it was not given. mn_generation_read warns of it,
 * for all formats. */
static mn_status tok_gguf_read_eos(mn_tokenizer *tok, const mn_meta *meta, int32_t *id,
                                   mn_error *err) {
    static const char key[] = KEY("eos_token_id");
    int64_t value = -1;
    const mn_status st = mn_meta_i64(meta, key, -1, INT64_MAX, &value, err);
    if (!st && value >= tok->vocab.n)
        return MN_OK;
    return mn_gguf_id(tok, meta, key, id, err);
}

/* id: -1 = no token */
static void mark_special(mn_tokenizer *tok, int32_t id) {
    if (id >= 0)
        tok->vocab.token[id].flags |= MN_TOKEN_SPECIAL | MN_TOKEN_ADDED;
}

mn_status mn_gguf_spelled_id(mn_tokenizer *tok, const mn_meta *meta, const char *key,
                             const char *spelling, int32_t *id, mn_error *err) {
    mn_status st = MN_OK;
    if (*id < 0 && id == &tok->eos)
        st = tok_gguf_read_eos(tok, meta, id, err);
    else if (*id < 0)
        st = mn_gguf_id(tok, meta, key, id, err);
    if (!st && *id < 0 && !mn_meta_find(meta, key))
        *id = mn_tokenizer_find(tok, mn_str_of(spelling));
    if (!st)
        mark_special(tok, *id);
    return st;
}

static mn_status read_named_ids(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    mn_status st = mn_gguf_id(tok, meta, KEY("bos_token_id"), &tok->bos, err);
    if (!st)
        st = tok_gguf_read_eos(tok, meta, &tok->eos, err);
    if (!st)
        st = mn_gguf_id(tok, meta, KEY("unknown_token_id"), &tok->unk, err);
    if (!st)
        st = mn_gguf_id(tok, meta, KEY("padding_token_id"), &tok->pad, err);
    return st;
}

/* In a file without types at least its own special ids are no plain text. */
static mn_status tok_gguf_read_ids(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    mn_status st = read_named_ids(tok, meta, err);
    if (st || mn_meta_find(meta, KEY("token_type")))
        return st;
    mark_special(tok, tok->bos);
    mark_special(tok, tok->eos);
    mark_special(tok, tok->unk);
    mark_special(tok, tok->pad);
    return MN_OK;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

static bool tok_gguf_contains(mn_str s, const char *lower) {
    const size_t n = strlen(lower);
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
    static const char *const not_these[] = {"<unk>", "<s>", "<|endoftext|>"};
    mn_str name = {NULL, 0};
    if (mn_meta_str(meta, "general.name", &name, NULL))
        return false;
    if (!tok_gguf_contains(name, "phi-3") && !tok_gguf_contains(name, "phi3"))
        return false;
    for (size_t i = 0; i < MN_COUNT(not_these); i++)
        if (mn_str_is(t->piece, not_these[i]))
            return false;
    return true;
}

bool mn_gguf_has_symbols(const mn_meta *meta) {
    bool v = false;
    mn_error why = MN_ERROR_INIT;
    const mn_status st = mn_meta_bool(meta, "minerva.tokenizer.symbols", &v, &why);
    if (st && st != MN_END)
        mn_log(MN_LOG_WARN, "%s: it is not used", why.msg);
    return v;
}

/* As the normalised text spells it, with U+2581 for spaces. */
static mn_status put_symbol(mn_tokenizer *tok, mn_added a, mn_error *err) {
    mn_text s = {0};
    for (uint64_t i = 0; i < a.text.len; i++) {
        const char *c = a.text.ptr + i;
        if (*c == ' ')
            mn_text_puts(&s, MN_BLOCK);
        else
            mn_text_put(&s, c, 1);
    }
    mn_status st = s.failed ? mn_fail_memory(err, a.text.len) : MN_OK;
    if (!st)
        st = mn_vocab_keep(&tok->vocab, (mn_str){s.ptr, s.len}, &a.text, err);
    mn_text_free(&s);
    return st ? st : mn_added_put(&tok->normalized, &a, err);
}

static mn_status tok_gguf_collect_added(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    const bool spm_bpe = tok->model == MN_TOKENIZER_SPM_BPE;
    const bool symbols = mn_gguf_has_symbols(meta);
    mn_status st = MN_OK;
    for (uint32_t i = 0; !st && i < tok->vocab.n; i++) {
        const mn_vocab_token *t = &tok->vocab.token[i];
        if (!(t->flags & MN_TOKEN_ADDED))
            continue;
        const mn_added a = {.text = t->piece,
                            .id = (int32_t)i,
                            .special = t->flags & MN_TOKEN_SPECIAL,
                            .rstrip = spm_bpe && takes_space_behind(meta, t)};
        if (a.special || !symbols)
            st = mn_added_put(&tok->raw, &a, err);
        else if (spm_bpe)
            st = put_symbol(tok, a, err);
    }
    if (!st)
        st = mn_added_index(&tok->raw, KEY("tokens"), err);
    return st ? st : mn_added_index(&tok->normalized, KEY("tokens"), err);
}

/* ---- BOS, EOS, stop ids ---------------------------------------------------------------------- */

/* *bos, *eos: what the kind of tokeniser does; then, what the file says. */
static mn_status tok_gguf_read_ends(mn_tokenizer *tok, const mn_meta *meta, bool *bos, bool *eos,
                                    mn_error *err) {
    mn_status st = tok_gguf_read_flag(meta, KEY("add_bos_token"), bos, err);
    if (!st)
        st = tok_gguf_read_flag(meta, KEY("add_eos_token"), eos, err);
    if (!st && *bos && tok->bos < 0)
        st = mn_fail(err, MN_BAD_FILE,
                     KEY("add_bos_token") ": true, but " KEY("bos_token_id") " is not set");
    if (!st && *eos && tok->eos < 0)
        st = mn_fail(err, MN_BAD_FILE,
                     KEY("add_eos_token") ": true, but " KEY("eos_token_id") " is no token");
    return st;
}

/* A suffix that is there already is BERT's, whose BOS no key turns off. */
static mn_status add_ends(mn_tokenizer *tok, const mn_meta *meta, bool add_bos, mn_error *err) {
    bool add_eos = tok->model == MN_TOKENIZER_UNIGRAM && tok->eos >= 0;
    mn_status st = MN_OK;
    if (!tok->suffix.n) {
        st = tok_gguf_read_ends(tok, meta, &add_bos, &add_eos, err);
        if (!st && add_eos)
            st = mn_ids_put(&tok->suffix, tok->eos, err);
    }
    if (!st && add_bos)
        st = mn_ids_put(&tok->prefix, tok->bos, err);
    return st;
}

/* said: MN_OK if a key says whether the id is added; list: what a tokenizer.json adds. */
static mn_status set_end(mn_id_list *list, mn_status said, bool add, int32_t id, mn_error *err) {
    if (said)
        return said == MN_END ? MN_OK : said;
    if (!add && list->n == 1)
        list->n = 0;
    return add && !list->n ? mn_ids_put(list, id, err) : MN_OK;
}

/* Beside a tokenizer.json: keys that name other ids than it does, or than its companion files
 * would. */
mn_status mn_tokenizer_ids_from_gguf(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    bool add = false;
    mn_status st = read_named_ids(tok, meta, err);
    if (st)
        return st;
    mn_status said = mn_meta_bool(meta, KEY("add_bos_token"), &add, err);
    st = set_end(&tok->prefix, said, add, tok->bos, err);
    if (st)
        return st;
    said = mn_meta_bool(meta, KEY("add_eos_token"), &add, err);
    return set_end(&tok->suffix, said, add, tok->eos, err);
}

/* The Harmony format ends messages, not turns, with <|end|>: there <|return|> and <|call|> stop. */
static bool ends_messages(const mn_tokenizer *tok, int32_t id) {
    return mn_tokenizer_find(tok, mn_str_of("<|return|>")) >= 0 &&
           mn_tokenizer_find(tok, mn_str_of("<|call|>")) >= 0 &&
           id == mn_tokenizer_find(tok, mn_str_of("<|end|>"));
}

static mn_status put_stop(mn_tokenizer *tok, int32_t id, mn_error *err) {
    return ends_messages(tok, id) ? MN_OK : mn_ids_put_once(&tok->stop, id, err);
}

mn_status mn_tokenizer_stop_from_gguf(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    static const char *const keys[] = {KEY("eot_token_id"), KEY("eom_token_id")};
    int32_t eos = -1;
    mn_status st = tok_gguf_read_eos(tok, meta, &eos, err);
    if (!st)
        st = put_stop(tok, eos, err);
    for (size_t i = 0; !st && i < MN_COUNT(keys); i++) {
        int32_t id = -1;
        st = mn_gguf_id(tok, meta, keys[i], &id, err);
        if (!st)
            st = put_stop(tok, id, err);
    }
    for (size_t i = 0; !st && i < MN_COUNT(end_of_turn); i++) {
        const int32_t id = mn_tokenizer_find(tok, mn_str_of(end_of_turn[i]));
        if (id >= 0 && mn_tokenizer_is_special(tok, id))
            st = put_stop(tok, id, err);
    }
    return st;
}

/* How often encoders have the end between two texts, of which GGUF has no key: RoBERTa, XLM-R and
 * MPNet twice. 0: no encoder. */
static size_t pair_seps(const mn_tokenizer *tok, const mn_meta *meta) {
    mn_str arch = {NULL, 0};
    if (mn_meta_str(meta, "general.architecture", &arch, NULL))
        return 0;
    if (mn_str_is(arch, "mpnet"))
        return 2;
    if (!mn_str_ends(arch, "bert") && !mn_str_is(arch, "deberta-v2"))
        return 0;
    const bool roberta = mn_str_is(arch, "bert") && tok->model != MN_TOKENIZER_WORDPIECE;
    return roberta ? 2 : 1;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* GGUF has no key of its own for what comes before the cuts. */
static mn_status read_form(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    mn_str form = {NULL, 0};
    mn_status st = mn_meta_str(meta, "minerva.tokenizer.form", &form, err);
    if (st)
        return st == MN_END ? MN_OK : st;
    st = mn_stages_add_form(&tok->normalizer, form, err);
    if (st != MN_END)
        return st;
    return mn_fail(err, MN_UNSUPPORTED,
                   "minerva.tokenizer.form: found \"%.*s\", expected NFC, NFD, NFKC or NFKD",
                   MN_STR_ARG(form));
}

bool mn_tokenizer_gguf_knows(mn_str model) {
    return mn_gguf_model(model) != NULL;
}

mn_status mn_tokenizer_from_gguf(mn_tokenizer *tok, const mn_meta *meta, mn_error *err) {
    mn_str model = {NULL, 0};
    bool add_bos = false;
    mn_status st = mn_meta_str(meta, KEY("model"), &model, err);
    if (st)
        return st;
    const mn_gguf_model_fn read_model = mn_gguf_model(model);
    if (!read_model)
        return mn_fail(
            err, MN_UNSUPPORTED,
            KEY("model") ": unknown tokeniser \"%.*s\"; known: gpt2 llama gemma4 t5 bert",
            MN_STR_ARG(model));
    st = read_tokens(tok, meta, err);
    if (!st)
        st = tok_gguf_read_ids(tok, meta, err);
    if (!st)
        st = read_form(tok, meta, err);
    if (!st)
        st = read_model(tok, meta, &add_bos, err);
    if (!st)
        st = tok_gguf_collect_added(tok, meta, err);
    if (!st)
        st = add_ends(tok, meta, add_bos, err);
    tok->pair.seps = pair_seps(tok, meta);
    if (!st)
        st = mn_tokenizer_stop_from_gguf(tok, meta, err);
    if (!st)
        mn_vocab_finish(&tok->vocab);
    return st;
}
