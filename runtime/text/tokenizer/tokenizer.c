/* tokenizer.c -- creation, encoding, and what can be asked of a tokeniser. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

#define CACHE_SLOTS 8192u
#define CACHE_FROM 4096u /* bytes of text from which a cache pays */

bool mn_ids_put(mn_id_list *l, int32_t id) {
    if (l->n == l->cap) {
        void *grown = l->id;
        bool ok = mn_grow(&grown, &l->cap, l->n + 1, sizeof *l->id);
        l->id = grown;
        if (!ok)
            return false;
    }
    l->id[l->n++] = id;
    return true;
}

bool mn_ids_put_once(mn_id_list *l, int32_t id) {
    for (size_t i = 0; i < l->n; i++)
        if (l->id[i] == id)
            return true;
    return mn_ids_put(l, id);
}

/* ---- life ------------------------------------------------------------------------------------ */
static mn_status from_any(mn_tokenizer *tok, const mn_meta *meta, const mn_file *files,
                          uint32_t n_files, mn_error *err) {
    mn_str model = {NULL, 0}, json = {NULL, 0};
    mn_status st = mn_meta_str(meta, "tokenizer.ggml.model", &model, err);
    if (st && st != MN_END)
        return st;
    mn_status found = mn_meta_str(meta, "tokenizer.huggingface.json", &json, err);
    if (found && found != MN_END)
        return found;
    if (mn_tokenizer_gguf_knows(model) ||
        (!st && !json.len && !mn_str_is(model, "no_vocab") && !mn_str_is(model, "none")))
        return mn_tokenizer_from_gguf(tok, meta, err);
    if (!found) {
        st = mn_tokenizer_from_json(tok, json, "tokenizer.huggingface.json", files, n_files, err);
        if (!st)
            st = mn_tokenizer_ids_from_gguf(tok, meta, err);
        return st ? st : mn_tokenizer_stop_from_gguf(tok, meta, err);
    }
    mn_str file;
    st = mn_companion(files, n_files, "tokenizer.json", MN_TOKENIZER_MAX, &file, err);
    if (st || file.ptr)
        return st ? st : mn_tokenizer_from_json(tok, file, "tokenizer.json", files, n_files, err);
    st = mn_companion(files, n_files, "tokenizer.model", MN_TOKENIZER_MAX, &file, err);
    if (st || !file.ptr)
        return st ? st : MN_END;
    return mn_tokenizer_from_sentencepiece(tok, file, "tokenizer.model", files, n_files, err);
}

mn_status mn_tokenizer_create(const mn_meta *meta, const mn_file *files, uint32_t n_files,
                              mn_tokenizer **out, mn_error *err) {
    static const mn_meta none = {NULL, 0};
    *out = NULL;
    mn_tokenizer *tok = mn_calloc(1, sizeof *tok);
    if (!tok)
        return mn_fail_memory(err, sizeof *tok);
    tok->bos = tok->eos = tok->unk = tok->pad = tok->model_unk = -1;
    mn_status st = from_any(tok, meta ? meta : &none, files, n_files, err);
    if (st)
        return mn_tokenizer_free(tok), st;
    *out = tok;
    return MN_OK;
}

void mn_tokenizer_free(mn_tokenizer *tok) {
    if (!tok)
        return;
    mn_vocab_free(&tok->vocab);
    mn_unigram_free(&tok->unigram);
    mn_added_free(&tok->raw);
    mn_added_free(&tok->normalized);
    mn_steps_free(&tok->normalizer);
    mn_steps_free(&tok->splitter);
    mn_free(tok->prefix.id);
    mn_free(tok->suffix.id);
    mn_free(tok->stop.id);
    mn_decode_free(&tok->decoder);
    mn_free(tok);
}

/* ---- encoding -------------------------------------------------------------------------------- */
static void encoder_free(mn_encoder *e) {
    mn_free(e->sym);
    mn_free(e->heap);
    mn_free(e->best);
    mn_free(e->cache);
    mn_pieces_free(&e->pieces);
    mn_free(e->ids.id);
}

static mn_status encode_piece(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n,
                              mn_error *err) {
    if (tok->model == MN_MODEL_UNIGRAM)
        return mn_unigram_encode(tok, e, s, n, err);
    if (tok->model == MN_MODEL_WORDS)
        return mn_words_encode(tok, e, s, n, err);
    return mn_bpe_encode(tok, e, s, n, err);
}

/* Long texts repeat their words: their ids are kept, the last word of each hash. */
static mn_status encode_cached(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n,
                               mn_error *err) {
    if (!e->cache || n > MN_CACHED_BYTES)
        return encode_piece(tok, e, s, n, err);
    mn_cached *c = &e->cache[mn_hash(s, n, 0) & (CACHE_SLOTS - 1)];
    if (c->len == n && !memcmp(c->key, s, n)) {
        bool ok = true;
        for (uint8_t i = 0; ok && i < c->n; i++)
            ok = mn_ids_put(&e->ids, c->id[i]);
        return ok ? MN_OK : mn_fail_memory(err, e->ids.n * sizeof *e->ids.id);
    }
    size_t mark = e->ids.n;
    mn_status st = encode_piece(tok, e, s, n, err);
    size_t made = e->ids.n - mark;
    if (st || made == 0 || made > MN_CACHED_IDS)
        return st;
    c->len = (uint8_t)n;
    c->n = (uint8_t)made;
    memcpy(c->key, s, n);
    memcpy(c->id, e->ids.id + mark, made * sizeof *c->id);
    return MN_OK;
}

static mn_status encode_pieces(const mn_tokenizer *tok, mn_encoder *e, mn_error *err) {
    mn_status st = mn_steps_run(&tok->splitter, &e->pieces, err);
    for (size_t i = 0; !st && i < e->pieces.n; i++) {
        mn_span s = e->pieces.span[i];
        st = encode_cached(tok, e, e->pieces.text.ptr + s.off, s.len, err);
    }
    return st;
}

/* Tokens that are matched in normalised text: text is a copy, since pieces are cut from each gap
 * anew. */
static mn_status encode_normalized(const mn_tokenizer *tok, mn_encoder *e, mn_str text, size_t lead,
                                   mn_error *err) {
    mn_status st = MN_OK;
    mn_added_match m = {0};
    bool found = true;
    for (size_t from = 0; !st && found; from = m.hi) {
        found = mn_added_next(&tok->normalized, text, from, m.end, NULL, false, &m);
        const size_t end = found ? m.lo : (size_t)text.len;
        if (end > from) {
            const size_t gap = end - from;
            st = mn_pieces_set(&e->pieces, text.ptr + from, gap,
                               lead > from ? MN_MIN(lead - from, gap) : 0, err);
            if (!st)
                st = encode_pieces(tok, e, err);
        }
        if (!st && found && !mn_ids_put(&e->ids, m.item->id))
            st = mn_fail_memory(err, e->ids.n * sizeof(int32_t));
    }
    return st;
}

static mn_status encode_gap(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n,
                            bool at_start, mn_error *err) {
    if (!n)
        return MN_OK;
    mn_status st = mn_pieces_set(&e->pieces, s, n, at_start ? mn_char_length(s, n) : 0, err);
    if (!st)
        st = mn_steps_run(&tok->normalizer, &e->pieces, err);
    if (st || !e->pieces.n)
        return st;
    if (!tok->normalized.n)
        return encode_pieces(tok, e, err);
    mn_span span = e->pieces.span[0];
    char *copy = mn_strndup(e->pieces.text.ptr + span.off, span.len);
    if (!copy)
        return mn_fail_memory(err, span.len);
    st = encode_normalized(tok, e, (mn_str){copy, span.len}, e->pieces.lead, err);
    mn_free(copy);
    return st;
}

static bool put_all(mn_id_list *to, const mn_id_list *from) {
    bool ok = true;
    for (size_t i = 0; ok && i < from->n; i++)
        ok = mn_ids_put(to, from->id[i]);
    return ok;
}

static mn_status encode_text(const mn_tokenizer *tok, mn_encoder *e, mn_str text,
                             const uint8_t *plain, bool parse_special, mn_error *err) {
    mn_status st = MN_OK;
    mn_added_match m = {0};
    bool found = true;
    for (size_t from = 0; !st && found; from = m.hi) {
        found = mn_added_next(&tok->raw, text, from, m.end, plain, parse_special, &m);
        const size_t end = found ? m.lo : (size_t)text.len;
        if (end > from)
            st = encode_gap(tok, e, text.ptr + from, end - from, from == 0, err);
        if (!st && found && !mn_ids_put(&e->ids, m.item->id))
            st = mn_fail_memory(err, e->ids.n * sizeof(int32_t));
    }
    return st;
}

mn_status mn_tokenizer_encode(const mn_tokenizer *tok, mn_str text, const uint8_t *plain,
                              uint32_t flags, int32_t **ids, size_t *n, mn_error *err) {
    if (text.len > INT32_MAX / 4)
        return mn_fail(err, MN_BAD_INPUT, "text: %llu bytes, expected at most %d",
                       (unsigned long long)text.len, INT32_MAX / 4);
    size_t valid = mn_utf8_check(text.ptr, (size_t)text.len);
    if (valid < text.len)
        return mn_fail(err, MN_BAD_INPUT, "text: the byte 0x%02x at offset %zu is not valid UTF-8",
                       (unsigned)(uint8_t)text.ptr[valid], valid);
    mn_encoder e = {0};
    bool special = flags & MN_TOKENIZE_ADD_SPECIAL;
    mn_status st = MN_OK;
    if (text.len >= CACHE_FROM && !(e.cache = mn_calloc(CACHE_SLOTS, sizeof *e.cache)))
        return mn_fail_memory(err, CACHE_SLOTS * sizeof *e.cache);
    if (special && !put_all(&e.ids, &tok->prefix))
        st = mn_fail_memory(err, tok->prefix.n * sizeof **ids);
    if (!st)
        st = encode_text(tok, &e, text, plain, flags & MN_TOKENIZE_PARSE_SPECIAL, err);
    if (!st && special && !put_all(&e.ids, &tok->suffix))
        st = mn_fail_memory(err, tok->suffix.n * sizeof **ids);
    if (!st && !e.ids.id && !(e.ids.id = mn_alloc(1, sizeof **ids)))
        st = mn_fail_memory(err, sizeof **ids);
    if (!st) {
        *ids = e.ids.id;
        *n = e.ids.n;
        e.ids.id = NULL;
    }
    encoder_free(&e);
    return st;
}

/* ---- questions ------------------------------------------------------------------------------- */
static bool known(const mn_tokenizer *tok, int32_t id) {
    return id >= 0 && (uint32_t)id < tok->vocab.n;
}

uint32_t mn_tokenizer_n_vocab(const mn_tokenizer *tok) {
    return tok->vocab.n;
}
mn_str mn_tokenizer_piece(const mn_tokenizer *tok, int32_t id) {
    return known(tok, id) ? tok->vocab.token[id].piece : (mn_str){"", 0};
}
bool mn_tokenizer_is_special(const mn_tokenizer *tok, int32_t id) {
    return known(tok, id) && tok->vocab.token[id].flags & MN_TOKEN_SPECIAL;
}
int32_t mn_tokenizer_find(const mn_tokenizer *tok, mn_str piece) {
    return mn_vocab_find(&tok->vocab, piece.ptr, (size_t)piece.len);
}
bool mn_tokenizer_adds_bos(const mn_tokenizer *tok) {
    return tok->bos >= 0 && tok->prefix.n && tok->prefix.id[0] == tok->bos;
}
int32_t mn_tokenizer_bos(const mn_tokenizer *tok) {
    return tok->bos;
}
int32_t mn_tokenizer_eos(const mn_tokenizer *tok) {
    return tok->eos;
}
int32_t mn_tokenizer_pad(const mn_tokenizer *tok) {
    return tok->pad;
}

const int32_t *mn_tokenizer_stop_ids(const mn_tokenizer *tok, uint32_t *n) {
    *n = (uint32_t)tok->stop.n;
    return tok->stop.id;
}
