/* tokenizer_export.c -- see tokenizer_export.h.
 *
 * Keys of one kind of GGUF's tokenisers are put, a tokeniser is made of them, and its ids are
 * compared with the original's over `probes`; switches that cannot be read off the original are
 * tried in turn. Keys are appended behind those of the model (base); pieces point into the
 * tokeniser, all else lies in the arena. */
#include "convert/tokenizer_export.h"
#include "text/tokenizer/tokenizer_impl.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name
enum { MAX_KEYS = 24 };

typedef struct {
    const mn_tokenizer *tok;
    mn_arena *arena;
    mn_meta_entry *keys; /* [base.n + MAX_KEYS] */
    size_t n_base, n;
    bool failed; /* out of memory */
} export;

static void export_put(export *e, const char *key, mn_value v) {
    v.size = sizeof v;
    e->keys[e->n++] = (mn_meta_entry){mn_str_of(key), mn_str_of(key), v};
}
static void export_put_id(export *e, const char *key, int32_t id) {
    if (id >= 0)
        export_put(e, key, (mn_value){.type = MN_VALUE_INT, .i = id});
}
static void put_bool(export *e, const char *key, bool v) {
    export_put(e, key, (mn_value){.type = MN_VALUE_BOOL, .i = v});
}
static void export_put_str(export *e, const char *key, mn_str s) {
    export_put(e, key, (mn_value){.type = MN_VALUE_STR, .s = s});
}
static void export_put_array(export *e, const char *key, uint32_t type, const void *array,
                             uint64_t n) {
    export_put(e, key,
               (mn_value){
                   .type = MN_VALUE_ARRAY | type,
                   .array = array,
                   .n = n,
               });
}

/* n zeroed elements; NULL = out of memory, now or before. */
static void *room(export *e, size_t n, size_t size) {
    void *p = NULL;
    if (!e->failed)
        p = mn_arena_alloc(e->arena, n ? n : 1, size);
    e->failed |= !p;
    return p;
}

/* a, between, b as one string; empty where memory ran out. */
static mn_str export_joined(export *e, mn_str a, const char *between, mn_str b) {
    const size_t n = strlen(between);
    const size_t len = a.len + n + b.len;
    char *s = room(e, len + 1, 1);
    if (!s)
        return (mn_str){"", 0};
    memcpy(s, a.ptr, a.len);
    memcpy(s + a.len, between, n);
    memcpy(s + a.len + n, b.ptr, b.len);
    return (mn_str){s, len};
}

/* ---- the vocabulary -------------------------------------------------------------------------- */
static int64_t export_type_of(const mn_tokenizer *tok, uint32_t id) {
    const mn_vocab_token *t = &tok->vocab.token[id];
    if (!t->piece.len)
        return MN_TYPE_UNUSED;
    if (t->flags & MN_TOKEN_BYTE)
        return MN_TYPE_BYTE;
    if ((int32_t)id == tok->unk)
        return MN_TYPE_UNKNOWN;
    if (t->flags & MN_TOKEN_SPECIAL)
        return MN_TYPE_CONTROL;
    if (t->flags & MN_TOKEN_ADDED)
        return MN_TYPE_USER;
    return MN_TYPE_NORMAL;
}

/* Users' tokens have spaces, as converters write them and readers look for them in texts that are
 * not normalised. */
static mn_str with_spaces(export *e, mn_str piece) {
    char *s = room(e, (size_t)piece.len + 1, 1);
    uint64_t n = 0;
    for (uint64_t i = 0; s && i < piece.len; i++) {
        const bool block = piece.len - i >= 3 && !memcmp(piece.ptr + i, MN_BLOCK, 3);
        s[n++] = block ? ' ' : piece.ptr[i];
        i += block ? 2 : 0;
    }
    return (mn_str){s ? s : "", n};
}

/* The piece of an id; ids that the tokeniser does not have, or has no piece for, get a name. */
static mn_str export_piece_of(export *e, uint32_t id) {
    const mn_vocab *v = &e->tok->vocab;
    const mn_str none = {"", 0};
    char pad[24];
    if (id < v->n && v->token[id].piece.len)
        return v->token[id].piece;
    snprintf(pad, sizeof pad, "[PAD%u]", id);
    return export_joined(e, none, pad, none);
}

static void put_tokens(export *e, uint32_t n) {
    const mn_tokenizer *tok = e->tok;
    mn_str *piece = room(e, n, sizeof *piece);
    int64_t *type = room(e, n, sizeof *type);
    for (uint32_t i = 0; i < n && !e->failed; i++) {
        if (i < tok->vocab.n)
            type[i] = export_type_of(tok, i);
        else
            type[i] = MN_TYPE_UNUSED;
        piece[i] = export_piece_of(e, i);
        if (type[i] != MN_TYPE_USER || tok->model != MN_TOKENIZER_SPM_BPE)
            continue;
        if (tok->normalized.n && memchr(piece[i].ptr, ' ', (size_t)piece[i].len))
            type[i] = MN_TYPE_UNUSED; /* no text has it */
        piece[i] = with_spaces(e, piece[i]);
    }
    export_put_array(e, KEY("tokens"), MN_VALUE_STR, piece, n);
    export_put_array(e, KEY("token_type"), MN_VALUE_INT, type, n);
}

static int by_rank(const void *a, const void *b) {
    const mn_merge *x = a;
    const mn_merge *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The merges in order; *n of them. */
static mn_merge *sorted_merges(export *e, size_t *n) {
    const mn_vocab *v = &e->tok->vocab;
    *n = 0;
    for (size_t i = 0; i < v->n_merge_slot; i++)
        *n += v->merge[i].id >= 0;
    mn_merge *list = room(e, *n, sizeof *list);
    if (!list)
        return NULL;
    *n = 0;
    for (size_t i = 0; i < v->n_merge_slot; i++)
        if (v->merge[i].id >= 0)
            list[(*n)++] = v->merge[i];
    qsort(list, *n, sizeof *list, by_rank);
    return list;
}

static void put_merges(export *e, const mn_merge *list, size_t n) {
    const mn_vocab_token *t = e->tok->vocab.token;
    mn_str *text = room(e, n, sizeof *text);
    for (size_t i = 0; i < n && !e->failed; i++) {
        const mn_str left = t[list[i].pair >> 32].piece;
        const mn_str right = t[list[i].pair & UINT32_MAX].piece;
        text[i] = export_joined(e, left, " ", right);
    }
    export_put_array(e, KEY("merges"), MN_VALUE_STR, text, n);
}

/* "llama" merges what scores highest: by the scores that the pieces have, or by the order of the
 * merges that make them. */
static double score_of(const mn_tokenizer *tok, uint32_t id) {
    if (id >= tok->vocab.n)
        return -1e9;
    if (tok->model == MN_TOKENIZER_SPM_BPE)
        return (double)tok->vocab.token[id].score;
    if (tok->model == MN_TOKENIZER_UNIGRAM) {
        if (isnan(tok->unigram.log_prob[id]))
            return 0;
        return tok->unigram.log_prob[id];
    }
    return -1e9;
}

static void put_scores(export *e, const mn_merge *list, size_t n, uint32_t n_tokens) {
    double *score = room(e, n_tokens, sizeof *score);
    const bool own = e->tok->model != MN_TOKENIZER_BPE;
    for (uint32_t i = 0; i < n_tokens && score; i++)
        score[i] = score_of(e->tok, i);
    for (size_t i = n; i > 0 && score && !own; i--)
        score[list[i - 1].id] = -(double)(i - 1); /* the earliest merge of a piece counts */
    export_put_array(e, KEY("scores"), MN_VALUE_FLOAT, score, n_tokens);
}

static bool has_token(const mn_tokenizer *tok, int32_t id) {
    return id >= 0 && (uint32_t)id < tok->vocab.n;
}

/* What the tokeniser adds is BOS and EOS in GGUF's words. The end of the text, of a turn, of a
 * message: there is a key for each; more end ids than that are found by the spellings that readers
 * know. generation_config.json may name ids that are no tokens; readers refuse them. */
static void put_ends(export *e) {
    static const char *const keys[] = {KEY("eot_token_id"), KEY("eom_token_id")};
    const mn_tokenizer *tok = e->tok;
    const bool adds_bos = tok->prefix.n == 1;
    const bool adds_eos = tok->suffix.n == 1;
    int32_t eos = adds_eos ? tok->suffix.id[0] : tok->eos;
    size_t k = 0;
    for (size_t i = 0; i < tok->stop.n && eos < 0; i++)
        if (has_token(tok, tok->stop.id[i]))
            eos = tok->stop.id[i];
    export_put_id(e, KEY("bos_token_id"), adds_bos ? tok->prefix.id[0] : tok->bos);
    export_put_id(e, KEY("eos_token_id"), eos);
    export_put_id(e, KEY("unknown_token_id"), tok->unk);
    export_put_id(e, KEY("padding_token_id"), tok->pad);
    for (size_t i = 0; i < tok->stop.n && k < MN_COUNT(keys); i++) {
        const int32_t id = tok->stop.id[i];
        if (id != eos && has_token(tok, id))
            export_put_id(e, keys[k++], id);
    }
    put_bool(e, KEY("add_bos_token"), adds_bos);
    put_bool(e, KEY("add_eos_token"), adds_eos);
}

/* Which form of Unicode the text takes first; programs that do not know the key give other ids to
 * text that is not in it. */
static void export_put_form(export *e) {
    const mn_stages *s = &e->tok->normalizer;
    const char *form = NULL;
    if (s->n)
        form = mn_stage_form(&s->stage[0]);
    if (form)
        export_put_str(e, "minerva.tokenizer.form", mn_str_of(form));
}

/* ---- does it give the same ids? -------------------------------------------------------------- */
static const char *const probes[] = {
    "Hello, world! The quick brown fox jumps over the lazy dog.",
    "I'll say we're DON'T you've she'd it's WE'LL I'M 'tis",
    "1 22 333 4444 55555 3.14159 1,234,567 x2y3 2nd 10th 007",
    "  two  three   spaces \t tabs\t\t end \n\nnew\n \n  lines\r\n\r\nhere   ",
    "camelCase PascalCase snake_case kebab-case SHOUTING iPhone McDonald HTTPServer",
    "f(x) != y[0]; // ok?! {\"k\": [1, 2]} <a href='b'>c</a> $5.00 #tag @me 50% a+b=c ... --- "
    "/path/to\n/x",
    "Z\xc3\xbcrich na\xc3\xafve caf\xc3\xa9 \xc5\x93uvre stra\xc3\x9f"
    "e \xc3\xa1\xc3\xa9\xc3\xad",
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, \xd0\xbc\xd0\xb8\xd1\x80! "
    "\xce\x93\xce\xb5\xce\xb9\xce\xac "
    "\xcf\x83\xce\xbf\xcf\x85",
    "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82 "
    "\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf "
    "\xec\x95\x88\xeb\x85\x95\xed\x95\x98\xec\x84\xb8\xec\x9a\x94",
    "\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7 "
    "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87 "
    "\xe0\xb8\xaa\xe0\xb8\xa7\xe0\xb8\xb1\xe0\xb8\xaa\xe0\xb8\x94\xe0\xb8\xb5",
    "\xf0\x9f\x98\x80\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd \xe2\x80\x9cquoted\xe2\x80\x9d \xe2\x80\x94 "
    "dash \xe2\x82\xac"
    "5 \xc2\xbd \xc2\xb2",
    "e\xcc\x81 A\xcc\x8a \xef\xac\x81 \xef\xbc\xa1 \xe2\x85\xa3",
    " leading",
    "a",
    " ",
    "\n",
    "",
};

static mn_status same_ids(const mn_tokenizer *a, const mn_tokenizer *b, mn_str text, uint32_t flags,
                          bool *same, mn_error *err) {
    int32_t *x = NULL;
    int32_t *y = NULL;
    size_t n = 0;
    size_t m = 0;
    mn_status st = mn_tokenizer_encode(a, text, NULL, flags, &x, &n, err);
    if (!st)
        st = mn_tokenizer_encode(b, text, NULL, flags, &y, &m, err);
    *same = !st && n == m && (!n || !memcmp(x, y, n * sizeof *x));
    mn_free(x);
    mn_free(y);
    return st;
}

/* Reads back what was put; false: another tokeniser, or none. */
static mn_status reads_back(const export *e, bool *same, mn_error *err) {
    mn_tokenizer *other = NULL;
    mn_error why = MN_ERROR_INIT;
    const mn_meta meta = {e->keys, e->n};
    mn_status st = mn_tokenizer_create(&meta, NULL, 0, &other, &why);
    *same = false;
    if (st == MN_OUT_OF_MEMORY)
        return mn_fail(err, st, "%s", why.msg);
    *same = !st;
    for (size_t i = 0; i < MN_COUNT(probes) && *same && st != MN_OUT_OF_MEMORY; i++) {
        uint32_t flags = MN_TOKENIZE_ADD_SPECIAL;
        if (i)
            flags = 0;
        st = same_ids(e->tok, other, mn_str_of(probes[i]), flags, same, err);
    }
    mn_tokenizer_free(other);
    if (st == MN_OUT_OF_MEMORY)
        return st;
    return MN_OK;
}

/* ---- the kinds of GGUF ----------------------------------------------------------------------- */
/* names: of all pre-tokenisers, those of one row in turn; the first of a row that gives the same
 * ids is written. */
static mn_status try_pre(export *e, const char *names, bool whole_words, bool *same,
                         mn_error *err) {
    const mn_str none = {"", 0};
    const size_t at = e->n;
    const mn_pre_row *last = NULL;
    mn_status st = MN_OK;
    while (*names && !st && !*same && !e->failed) {
        const mn_str name = {names, strcspn(names, " ")};
        const mn_pre_row *row = mn_pre_find(name);
        names += name.len + (names[name.len] == ' ');
        if (!row || row == last || !!(row->flags & MN_PRE_IGNORE_MERGES) != whole_words)
            continue;
        last = row;
        e->n = at;
        export_put_str(e, KEY("pre"), export_joined(e, name, "", none));
        st = reads_back(e, same, err);
    }
    if (!*same)
        e->n = at;
    return st;
}

static mn_status try_gpt2(export *e, uint32_t n_tokens, const char *names, bool *same,
                          mn_error *err) {
    size_t n;
    const bool whole_words = e->tok->ignore_merges;
    const mn_merge *list = sorted_merges(e, &n);
    export_put_str(e, KEY("model"), mn_str_of("gpt2"));
    put_tokens(e, n_tokens);
    put_merges(e, list, n);
    export_put_form(e);
    put_ends(e);
    mn_status st = try_pre(e, names, whole_words, same, err);
    if (st || *same)
        return st;
    /* which often makes no difference */
    return try_pre(e, names, !whole_words, same, err);
}

static mn_status try_any_pre(export *e, uint32_t n_tokens, bool *same, mn_error *err) {
    mn_text names = {0};
    mn_pre_list(&names);
    mn_status st = MN_OK;
    if (names.failed)
        st = mn_fail_memory(err, 1);
    else
        st = try_gpt2(e, n_tokens, names.ptr, same, err);
    mn_text_free(&names);
    return st;
}

/* Users' symbols of SentencePiece's own: found in normalised text, where other readers cut texts at
 * them. */
static void export_put_symbols(export *e) {
    const mn_tokenizer *tok = e->tok;
    const bool unigram = tok->model == MN_TOKENIZER_UNIGRAM && tok->unigram.single;
    bool symbols = tok->model == MN_TOKENIZER_SPM_BPE && tok->normalized.n;
    for (uint32_t i = 0; i < tok->vocab.n && unigram; i++)
        symbols |= export_type_of(tok, i) == MN_TYPE_USER && !isnan(tok->unigram.log_prob[i]);
    if (symbols)
        put_bool(e, "minerva.tokenizer.symbols", true);
}

/* How a text's characters and white space change before it is cut: SentencePiece's table, and two
 * switches that are tried. */
static void put_charsmap(export *e) {
    const mn_stages *s = &e->tok->normalizer;
    mn_text blob = {0};
    bool graphemes = false;
    for (size_t i = 0; i < s->n && !blob.len; i++) {
        const mn_stage *stage = &s->stage[i];
        if (stage->kind != MN_STAGE_CHARSMAP)
            continue;
        mn_charsmap_blob(stage->charsmap, &blob);
        graphemes = mn_charsmap_graphemes(stage->charsmap);
    }
    /* a little else than SentencePiece's own reading */
    if (graphemes)
        put_bool(e, "minerva.tokenizer.graphemes", true);
    int64_t *byte = NULL;
    if (blob.len)
        byte = room(e, blob.len, sizeof *byte);
    for (size_t i = 0; i < blob.len && byte; i++)
        byte[i] = (uint8_t)blob.ptr[i];
    if (byte)
        export_put_array(e, KEY("precompiled_charsmap"), MN_VALUE_INT, byte, blob.len);
    e->failed |= blob.failed;
    mn_text_free(&blob);
}

static mn_status try_spaces(export *e, bool *same, mn_error *err) {
    const size_t at = e->n;
    mn_status st = MN_OK;
    for (int i = 0; i < 6 && !st && !*same && !e->failed; i++) {
        const bool keep_end = i >= 4;
        const bool squeeze = keep_end || i & 2;
        e->n = at;
        if (keep_end && e->tok->model != MN_TOKENIZER_UNIGRAM)
            break;
        if (keep_end)
            put_bool(e, "minerva.tokenizer.keep_end", true);
        put_bool(e, KEY("add_space_prefix"), !(i & 1));
        if (squeeze || e->tok->model == MN_TOKENIZER_UNIGRAM)
            put_bool(e, KEY("remove_extra_whitespaces"), squeeze);
        st = reads_back(e, same, err);
    }
    return st;
}

static mn_status try_scored(export *e, const char *model, uint32_t n_tokens, bool *same,
                            mn_error *err) {
    size_t n;
    const mn_merge *list = sorted_merges(e, &n);
    export_put_str(e, KEY("model"), mn_str_of(model));
    export_put_str(e, KEY("pre"), mn_str_of("default"));
    put_tokens(e, n_tokens);
    put_scores(e, list, n, n_tokens);
    put_charsmap(e);
    export_put_form(e);
    export_put_symbols(e);
    put_ends(e);
    return try_spaces(e, same, err);
}

/* Pieces of words as GGUF's "bert" spells them: those that begin one are marked, not those that go
 * on. */
static void mark_words(export *e, uint32_t n_tokens) {
    const mn_tokenizer *tok = e->tok;
    mn_value *pieces = &e->keys[e->n - 2].value; /* as put_tokens has just put them */
    const mn_str *piece = pieces->array;
    const int64_t *type = e->keys[e->n - 1].value.array;
    const mn_str none = {"", 0};
    const mn_str mark = tok->continuing;
    mn_str *marked = room(e, n_tokens, sizeof *marked);
    for (uint32_t i = 0; i < n_tokens && marked && !e->failed; i++) {
        const mn_str s = piece[i];
        const bool goes_on = s.len > mark.len && !memcmp(s.ptr, mark.ptr, (size_t)mark.len);
        if (type[i] != MN_TYPE_NORMAL)
            marked[i] = s;
        else if (goes_on)
            marked[i] = (mn_str){s.ptr + mark.len, s.len - mark.len};
        else
            marked[i] = export_joined(e, none, MN_BLOCK, s);
    }
    pieces->array = marked;
}

static mn_status try_bert(export *e, uint32_t n_tokens, bool *same, mn_error *err) {
    const mn_tokenizer *tok = e->tok;
    const bool adds_sep = tok->suffix.n == 1;
    export_put_str(e, KEY("model"), mn_str_of("bert"));
    export_put_str(e, KEY("pre"), mn_str_of("default"));
    put_tokens(e, n_tokens);
    mark_words(e, n_tokens);
    put_ends(e);
    /* spelled so */
    if (adds_sep)
        export_put_id(e, KEY("seperator_token_id"), tok->suffix.id[0]);
    put_bool(e, KEY("add_sep_token"), adds_sep);
    if (tok->max_word != MN_MAX_WORD)
        export_put(e, "minerva.tokenizer.max_word",
                   (mn_value){.type = MN_VALUE_INT, .i = tok->max_word});
    const size_t at = e->n;
    mn_status st = MN_OK;
    for (int i = 0; i < 4 && !st && !*same && !e->failed; i++) {
        const bool lowercase = !(i & 1);
        const bool other = i & 2;
        e->n = at;
        put_bool(e, KEY("normalizer.lowercase"), lowercase);
        put_bool(e, KEY("normalizer.strip_accents"), lowercase != other);
        st = reads_back(e, same, err);
    }
    return st;
}

/* What GGUF cannot say is kept as it is: exact here, and for every program that reads this key. */
static mn_status keep_json(export *e, const mn_file *files, uint32_t n_files, mn_error *err) {
    mn_str json;
    mn_status st = mn_companion(files, n_files, "tokenizer.json", MN_TOKENIZER_MAX, &json, err);
    if (st)
        return st;
    if (!json.ptr)
        return mn_fail(err, MN_UNSUPPORTED, "no tokeniser of GGUF gives the ids of this model's");
    mn_log(MN_LOG_WARN, "no tokeniser of GGUF gives the ids of this tokenizer.json: it is kept as "
                        "it is, which few programs read");
    export_put_str(e, KEY("model"), mn_str_of("none"));
    export_put_str(e, "tokenizer.huggingface.json", json);
    put_ends(e);
    return MN_OK;
}

/* The kind that fits the tokeniser; *same: whether it gives the same ids. */
static mn_status try_kind(export *e, uint32_t n_tokens, bool *same, mn_error *err) {
    const mn_tokenizer *tok = e->tok;
    if (tok->model == MN_TOKENIZER_UNIGRAM)
        return try_scored(e, "t5", n_tokens, same, err);
    if (tok->model == MN_TOKENIZER_WORDPIECE)
        return try_bert(e, n_tokens, same, err);
    if (tok->byte_level)
        return try_any_pre(e, n_tokens, same, err);
    return try_scored(e, "llama", n_tokens, same, err);
}

mn_status mn_tokenizer_export(const mn_tokenizer *tok, const mn_meta *base, const mn_file *files,
                              uint32_t n_files, uint32_t n_rows, mn_arena *arena, mn_meta *out,
                              mn_error *err) {
    const uint32_t n_tokens = MN_MAX(n_rows, tok->vocab.n);
    export e = {
        .tok = tok,
        .arena = arena,
        .n_base = base->n,
        .n = base->n,
    };
    bool same = false;
    e.keys = mn_alloc(base->n + MAX_KEYS, sizeof *e.keys);
    if (!e.keys)
        return mn_fail_memory(err, MAX_KEYS * sizeof *e.keys);
    memcpy(e.keys, base->entries, base->n * sizeof *e.keys);
    mn_status st = try_kind(&e, n_tokens, &same, err);
    if (!st && e.failed)
        st = mn_fail_memory(err, n_tokens);
    if (!st && !same) {
        e.n = e.n_base;
        st = keep_json(&e, files, n_files, err);
    }
    memmove(e.keys, e.keys + e.n_base, (e.n - e.n_base) * sizeof *e.keys);
    *out = (mn_meta){e.keys, st ? 0 : e.n - e.n_base};
    return st;
}
