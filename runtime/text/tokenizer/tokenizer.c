/* tokenizer.c -- creation, encoding, and what can be asked of a tokeniser.
 *
 * A text is cut at special tokens (raw added tokens), each gap is normalised and cut at other added
 * tokens, what lies between is cut into pieces by the splitter, and each piece becomes ids by the
 * model. A tokeniser is immutable once it is made: what an encoding writes to is in mn_encoder, on
 * the stack of the caller. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

#define CACHE_SLOTS 8192u
#define CACHE_FROM 4096u /* bytes of text from which a cache pays */

mn_status mn_ids_put(mn_id_list *l, int32_t id, mn_error *err) {
    if (id < 0)
        return MN_OK;
    if (l->n == l->cap) {
        void *grown = l->id;
        const bool ok = mn_grow(&grown, &l->cap, l->n + 1, sizeof *l->id);
        l->id = grown;
        if (!ok)
            return mn_fail_memory(err, l->n * sizeof *l->id);
    }
    l->id[l->n++] = id;
    return MN_OK;
}

mn_status mn_ids_put_once(mn_id_list *l, int32_t id, mn_error *err) {
    for (size_t i = 0; i < l->n; i++)
        if (l->id[i] == id)
            return MN_OK;
    return mn_ids_put(l, id, err);
}

mn_status mn_ids_put_all(mn_id_list *l, const mn_id_list *from, mn_error *err) {
    mn_status st = MN_OK;
    for (size_t i = 0; !st && i < from->n; i++)
        st = mn_ids_put(l, from->id[i], err);
    return st;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* From the text of a tokenizer.json in the metadata; keys of GGUF win over what it says. */
static mn_status from_embedded_json(mn_tokenizer *tok, mn_str json, const mn_meta *meta,
                                    const mn_file *files, uint32_t n_files, mn_error *err) {
    mn_status st =
        mn_tokenizer_from_json(tok, json, "tokenizer.huggingface.json", files, n_files, err);
    if (!st)
        st = mn_tokenizer_ids_from_gguf(tok, meta, err);
    return st ? st : mn_tokenizer_stop_from_gguf(tok, meta, err);
}

/* From tiktoken.model; MN_END: it is not there. */
static mn_status from_tiktoken(mn_tokenizer *tok, const mn_file *files, uint32_t n_files,
                               mn_error *err) {
    mn_str file;
    const mn_status st =
        mn_companion(files, n_files, "tiktoken.model", MN_TOKENIZER_MAX, &file, err);
    if (st)
        return st;
    return file.ptr ? mn_tokenizer_from_tiktoken(tok, file, files, n_files, err) : MN_END;
}

/* From the first file of SentencePiece that is there, else from tiktoken's; MN_END: there is
 * none. */
static mn_status from_sentencepiece(mn_tokenizer *tok, const mn_file *files, uint32_t n_files,
                                    mn_error *err) {
    static const char *const names[] = {"tokenizer.model", "spiece.model", "spm.model",
                                        "sentencepiece.bpe.model"};
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        mn_str file;
        const mn_status st = mn_companion(files, n_files, names[i], MN_TOKENIZER_MAX, &file, err);
        if (st)
            return st;
        if (file.ptr)
            return mn_tokenizer_from_sentencepiece(tok, file, names[i], files, n_files, err);
    }
    return from_tiktoken(tok, files, n_files, err);
}

/* MN_END: none of the files is there. */
static mn_status from_files(mn_tokenizer *tok, const mn_file *files, uint32_t n_files,
                            mn_error *err) {
    mn_str file;
    mn_status st = mn_companion(files, n_files, "tokenizer.json", MN_TOKENIZER_MAX, &file, err);
    if (st)
        return st;
    if (file.ptr)
        return mn_tokenizer_from_json(tok, file, "tokenizer.json", files, n_files, err);
    return from_sentencepiece(tok, files, n_files, err);
}

/* GGUF's keys if they name a kind that is known, else the JSON in them, else the files. A kind that
 * is not known is an error where nothing else is there. */
static mn_status from_any(mn_tokenizer *tok, const mn_meta *meta, const mn_file *files,
                          uint32_t n_files, mn_error *err) {
    mn_str model = {NULL, 0};
    mn_str json = {NULL, 0};
    const mn_status named = mn_meta_str(meta, "tokenizer.ggml.model", &model, err);
    if (named && named != MN_END)
        return named;
    const mn_status embedded = mn_meta_str(meta, "tokenizer.huggingface.json", &json, err);
    if (embedded && embedded != MN_END)
        return embedded;
    const bool none = named || mn_str_is(model, "no_vocab") || mn_str_is(model, "none");
    if (mn_tokenizer_gguf_knows(model) || (!none && !json.len))
        return mn_tokenizer_from_gguf(tok, meta, err);
    if (!embedded)
        return from_embedded_json(tok, json, meta, files, n_files, err);
    return from_files(tok, files, n_files, err);
}

mn_status mn_tokenizer_create(const mn_meta *meta, const mn_file *files, uint32_t n_files,
                              mn_tokenizer **out, mn_error *err) {
    static const mn_meta none = {NULL, 0};
    *out = NULL;
    mn_tokenizer *tok = mn_calloc(1, sizeof *tok);
    if (!tok)
        return mn_fail_memory(err, sizeof *tok);
    tok->bos = -1;
    tok->eos = -1;
    tok->unk = -1;
    tok->pad = -1;
    tok->model_unk = -1;
    mn_status st = from_any(tok, meta ? meta : &none, files, n_files, err);
    if (st) {
        mn_tokenizer_free(tok);
        return st;
    }
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
    mn_stages_free(&tok->normalizer);
    mn_stages_free(&tok->splitter);
    mn_free(tok->prefix.id);
    mn_free(tok->suffix.id);
    mn_free(tok->stop.id);
    mn_free(tok->pair.before.id);
    mn_free(tok->pair.between.id);
    mn_free(tok->pair.behind.id);
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

mn_status mn_put_unknown(const mn_tokenizer *tok, mn_encoder *e, mn_str s, bool as_bytes,
                         mn_error *err) {
    const int32_t *byte_id = tok->vocab.byte_id;
    mn_status st = MN_OK;
    if (!as_bytes && tok->model_unk < 0)
        return mn_fail(err, MN_BAD_INPUT,
                       "the vocabulary has no token for \"%.*s\" and none for unknown text",
                       (int)MN_MIN(s.len, (uint64_t)40), s.ptr);
    if (!as_bytes)
        return mn_ids_put(&e->ids, tok->model_unk, err);
    for (uint64_t i = 0; !st && i < s.len; i++)
        st = mn_ids_put(&e->ids, byte_id[(uint8_t)s.ptr[i]], err);
    return st;
}

static mn_status encode_piece(const mn_tokenizer *tok, mn_encoder *e, mn_str s, mn_error *err) {
    switch (tok->model) {
    case MN_TOKENIZER_UNIGRAM:
        return mn_unigram_encode(tok, e, s, err);
    case MN_TOKENIZER_WORDPIECE:
        return mn_wordpiece_encode(tok, e, s, err);
    default:
        return mn_bpe_encode(tok, e, s, err);
    }
}

/* Long texts repeat their words: their ids are kept, the last word of each hash. */
static mn_status encode_cached(const mn_tokenizer *tok, mn_encoder *e, mn_str s, mn_error *err) {
    const size_t n = (size_t)s.len;
    if (!e->cache || n > MN_CACHED_BYTES)
        return encode_piece(tok, e, s, err);
    const uint64_t slot = mn_hash(s.ptr, n, 0) & (CACHE_SLOTS - 1);
    mn_cached *c = &e->cache[slot];
    if (c->len == n && !memcmp(c->key, s.ptr, n)) {
        const mn_id_list known = {.id = c->id, .n = c->n};
        return mn_ids_put_all(&e->ids, &known, err);
    }
    const size_t mark = e->ids.n;
    mn_status st = encode_piece(tok, e, s, err);
    const size_t made = e->ids.n - mark;
    if (st || made == 0 || made > MN_CACHED_IDS)
        return st;
    c->len = (uint8_t)n;
    c->n = (uint8_t)made;
    memcpy(c->key, s.ptr, n);
    memcpy(c->id, e->ids.id + mark, made * sizeof *c->id);
    return MN_OK;
}

/* What the normaliser left of a gap, cut into pieces. */
static mn_status encode_pieces(const mn_tokenizer *tok, mn_encoder *e, mn_error *err) {
    const mn_pieces *p = &e->pieces;
    mn_status st = mn_stages_run(&tok->splitter, &e->pieces, err);
    for (size_t i = 0; !st && i < p->n; i++) {
        const mn_span span = p->span[i];
        const mn_str piece = {p->text.ptr + span.off, span.len};
        st = encode_cached(tok, e, piece, err);
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
            const size_t gap_lead = lead > from ? MN_MIN(lead - from, gap) : 0;
            st = mn_pieces_set(&e->pieces, text.ptr + from, gap, gap_lead, err);
            if (!st)
                st = encode_pieces(tok, e, err);
        }
        if (!st && found)
            st = mn_ids_put(&e->ids, m.item->id, err);
    }
    return st;
}

/* What stands between two raw added tokens. at_start: of the text. */
static mn_status encode_gap(const mn_tokenizer *tok, mn_encoder *e, const char *s, size_t n,
                            bool at_start, mn_error *err) {
    if (!n)
        return MN_OK;
    mn_status st = mn_pieces_set(&e->pieces, s, n, at_start ? mn_char_length(s, n) : 0, err);
    if (!st)
        st = mn_stages_run(&tok->normalizer, &e->pieces, err);
    if (st || !e->pieces.n)
        return st;
    if (!tok->normalized.n)
        return encode_pieces(tok, e, err);
    const mn_span span = e->pieces.span[0];
    char *copy = mn_strndup(e->pieces.text.ptr + span.off, span.len);
    if (!copy)
        return mn_fail_memory(err, span.len);
    st = encode_normalized(tok, e, (mn_str){copy, span.len}, e->pieces.lead, err);
    mn_free(copy);
    return st;
}

/* The text cut at raw added tokens. */
static mn_status encode_text(const mn_tokenizer *tok, mn_encoder *e, mn_str text,
                             const uint8_t *plain, bool parse_special, mn_error *err) {
    mn_status st = MN_OK;
    mn_added_match m = {0};
    bool found = true;
    for (size_t from = 0; !st && found; from = m.hi) {
        found = mn_added_next(&tok->raw, text, from, m.end, plain, parse_special, &m);
        const size_t end = found ? m.lo : (size_t)text.len;
        const size_t gap = end > from ? end - from : 0;
        st = encode_gap(tok, e, text.ptr + from, gap, from == 0, err);
        if (!st && found)
            st = mn_ids_put(&e->ids, m.item->id, err);
    }
    return st;
}

static mn_status tok_check_text(mn_str text, mn_error *err) {
    if (text.len > INT32_MAX / 4)
        return mn_fail(err, MN_BAD_INPUT, "text: %llu bytes, expected at most %d",
                       (unsigned long long)text.len, INT32_MAX / 4);
    const size_t valid = mn_utf8_check(text.ptr, (size_t)text.len);
    if (valid < text.len)
        return mn_fail(err, MN_BAD_INPUT, "text: the byte 0x%02x at offset %zu is not valid UTF-8",
                       (unsigned)(uint8_t)text.ptr[valid], valid);
    return MN_OK;
}

/* The cache of a long text, and what is put in front of it. */
static mn_status tok_begin(const mn_tokenizer *tok, mn_encoder *e, mn_str text, bool ends,
                           mn_error *err) {
    const size_t cache_size = CACHE_SLOTS * sizeof *e->cache;
    if (text.len >= CACHE_FROM) {
        e->cache = mn_calloc(CACHE_SLOTS, sizeof *e->cache);
        if (!e->cache)
            return mn_fail_memory(err, cache_size);
    }
    return ends ? mn_ids_put_all(&e->ids, &tok->prefix, err) : MN_OK;
}

/* The ids of a text, in e. */
static mn_status encode_all(const mn_tokenizer *tok, mn_encoder *e, mn_str text,
                            const uint8_t *plain, uint32_t flags, mn_error *err) {
    const bool ends = flags & MN_TOKENIZE_ADD_SPECIAL;
    const bool special = flags & MN_TOKENIZE_PARSE_SPECIAL;
    mn_status st = tok_begin(tok, e, text, ends, err);
    if (!st)
        st = encode_text(tok, e, text, plain, special, err);
    if (!st && ends)
        st = mn_ids_put_all(&e->ids, &tok->suffix, err);
    if (st)
        return st;
    if (!e->ids.id)
        e->ids.id = mn_alloc(1, sizeof(int32_t)); // no ids are a list, too
    return e->ids.id ? MN_OK : mn_fail_memory(err, sizeof(int32_t));
}

mn_status mn_tokenizer_encode(const mn_tokenizer *tok, mn_str text, const uint8_t *plain,
                              uint32_t flags, int32_t **ids, size_t *n, mn_error *err) {
    mn_encoder e = {0};
    mn_status st = tok_check_text(text, err);
    if (!st)
        st = encode_all(tok, &e, text, plain, flags, err);
    if (!st) {
        *ids = e.ids.id;
        *n = e.ids.n;
        e.ids.id = NULL;
    }
    encoder_free(&e);
    return st;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* The ids between two texts without a template of their own. */
static mn_status put_between(const mn_tokenizer *tok, mn_encoder *e, mn_error *err) {
    mn_status st = MN_OK;
    for (size_t i = 0; i < tok->pair.seps && !st; i++)
        st = mn_ids_put_all(&e->ids, &tok->suffix, err);
    return st;
}

mn_status mn_tokenizer_encode_pair(const mn_tokenizer *tok, mn_str first, mn_str second,
                                   int32_t **ids, size_t *n, size_t *n_first, mn_error *err) {
    const bool is_set = tok->pair.is_set;
    const bool derived = tok->pair.seps && tok->prefix.n && tok->suffix.n;
    mn_encoder e = {0};
    size_t split = 0;
    if (!is_set && !derived)
        return mn_fail(err, MN_UNSUPPORTED,
                       "the tokeniser has no template for a pair of texts (post_processor of "
                       "tokenizer.json)");
    mn_status st = tok_check_text(first, err);
    if (!st)
        st = tok_check_text(second, err);
    if (!st)
        st = mn_ids_put_all(&e.ids, is_set ? &tok->pair.before : &tok->prefix, err);
    if (!st)
        st = encode_text(tok, &e, first, NULL, false, err);
    split = e.ids.n;
    if (!st)
        st = is_set ? mn_ids_put_all(&e.ids, &tok->pair.between, err) : put_between(tok, &e, err);
    split = is_set ? split + tok->pair.n_between : e.ids.n;
    if (!st)
        st = encode_text(tok, &e, second, NULL, false, err);
    if (!st)
        st = mn_ids_put_all(&e.ids, is_set ? &tok->pair.behind : &tok->suffix, err);
    if (!st) {
        *ids = e.ids.id;
        *n = e.ids.n;
        *n_first = split;
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
    return mn_vocab_find(&tok->vocab, piece);
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
