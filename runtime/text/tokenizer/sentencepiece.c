/* sentencepiece.c -- a tokeniser from tokenizer.model, spiece.model, spm.model or
 * sentencepiece.bpe.model: SentencePiece's ModelProto, a protocol buffer. Field numbers are those
 * of sentencepiece_model.proto. Tokens that a model's authors added later stand in
 * tokenizer_config.json (added_tokens_decoder) and added_tokens.json. Pieces are copied; the file
 * may go once the tokeniser is made.
 *
 * Also what GGUF and tokenizer.json share with it: SentencePiece's rules of white space, and the
 * cut at words that keeps merging fast. */
#include "text/tokenizer/tokenizer_impl.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_UNIGRAM = 1, MODEL_BPE };

/* ---- protocol buffers: https://protobuf.dev/programming-guides/encoding ---------------------- */
typedef struct {
    const uint8_t *at, *end;
    bool bad;
} reader;
typedef struct {
    uint32_t number;
    uint64_t value; /* VARINT, FIXED32, FIXED64 */
    mn_str bytes;   /* LEN */
} field;

/* 7 bits a byte, the lowest first; bad set, and 0, where it does not end. */
static uint64_t varint(reader *r) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        const uint8_t b = *r->at++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return v;
    }
    r->bad = true;
    return 0;
}

/* n bytes, little-endian */
static uint64_t sentencepiece_fixed(reader *r, size_t n) {
    uint64_t v = 0;
    if ((size_t)(r->end - r->at) < n) {
        r->bad = true;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)r->at[i] << 8 * i;
    r->at += n;
    return v;
}

enum { WIRE_VARINT, WIRE_FIXED64, WIRE_LEN, WIRE_FIXED32 = 5 };

/* The next field; false at the end, or with bad set where the bytes are no field. */
static bool next_field(reader *r, field *f) {
    if (r->bad || r->at == r->end)
        return false;
    const uint64_t tag = varint(r);
    const uint64_t number = tag >> 3;
    *f = (field){.number = (uint32_t)number};
    switch (tag & 7) {
    case WIRE_VARINT:
        f->value = varint(r);
        break;
    case WIRE_FIXED64:
        f->value = sentencepiece_fixed(r, 8);
        break;
    case WIRE_FIXED32:
        f->value = sentencepiece_fixed(r, 4);
        break;
    case WIRE_LEN:
        f->bytes.len = varint(r);
        r->bad |= f->bytes.len > (uint64_t)(r->end - r->at);
        break;
    default:
        r->bad = true;
    }
    r->bad |= !number || number > UINT32_MAX;
    if (r->bad)
        return false;
    f->bytes.ptr = (const char *)r->at;
    r->at += f->bytes.len;
    return true;
}

static reader reader_of(mn_str s) {
    return (reader){(const uint8_t *)s.ptr, (const uint8_t *)s.ptr + s.len, false};
}

static mn_status damaged(const reader *r, mn_str whole, const char *where, mn_error *err) {
    return mn_fail(err, MN_BAD_FILE, "%s: found no protocol buffer field at byte %zu", where,
                   (size_t)((const char *)r->at - whole.ptr));
}

/* ---- kins ------------------------------------------------------------------------------------ */
/* Tokens that the class of a model adds to those of the file, by the file's name. */
typedef enum {
    KIN_ANY,     /* tokenizer.model: as the file says */
    KIN_T5,      /* spiece.model: <extra_id_I> behind the pieces, counted backwards */
    KIN_DEBERTA, /* spm.model: [CLS] A [SEP] B [SEP]; [MASK] behind the pieces */
    KIN_XLMR     /* sentencepiece.bpe.model: <s> <pad> </s> <unk>, then pieces from the third on */
} kin;

static kin kin_of(const char *name) {
    static const char *const names[] = {[KIN_T5] = "spiece.model",
                                        [KIN_DEBERTA] = "spm.model",
                                        [KIN_XLMR] = "sentencepiece.bpe.model"};
    for (int i = KIN_T5; i <= KIN_XLMR; i++)
        if (!strcmp(name, names[i]))
            return (kin)i;
    return KIN_ANY;
}

enum { XLMR_FIRST = 3, XLMR_PAD = 1, XLMR_UNK = 3 };

/* ---- the model ------------------------------------------------------------------------------- */
typedef struct {
    const char *name; // of the file
    kin kin;
    uint64_t n_extra; /* of KIN_T5: tokens of that kind */
    mn_str whole;
    uint64_t n_pieces;
    int64_t kind;
    int32_t unk, bos, eos, pad;
    bool byte_fallback, suffix;
    mn_sentencepiece how;
} model;

/* TrainerSpec: the kind of model and its ids. */
static mn_status read_trainer(model *m, mn_str bytes, mn_error *err) {
    reader r = reader_of(bytes);
    for (field f; next_field(&r, &f);)
        switch (f.number) {
        case 3:
            m->kind = (int64_t)f.value;
            break;
        case 24:
            m->suffix = f.value != 0;
            break;
        case 35:
            m->byte_fallback = f.value != 0;
            break;
        case 40:
            m->unk = (int32_t)(uint32_t)f.value;
            break;
        case 41:
            m->bos = (int32_t)(uint32_t)f.value;
            break;
        case 42:
            m->eos = (int32_t)(uint32_t)f.value;
            break;
        case 43:
            m->pad = (int32_t)(uint32_t)f.value;
            break;
        default:
            break;
        }
    return r.bad ? damaged(&r, m->whole, m->name, err) : MN_OK;
}

/* NormalizerSpec: characters and white space. */
static mn_status read_normalizer(model *m, mn_str bytes, mn_error *err) {
    reader r = reader_of(bytes);
    for (field f; next_field(&r, &f);)
        switch (f.number) {
        case 2:
            m->how.charsmap = f.bytes;
            break;
        case 3:
            m->how.dummy_prefix = f.value != 0;
            break;
        case 4:
            m->how.squeeze = f.value != 0;
            break;
        case 5:
            m->how.escape = f.value != 0;
            break;
        default:
            break;
        }
    return r.bad ? damaged(&r, m->whole, m->name, err) : MN_OK;
}

/* All three parts are there: a file that was cut between two fields would still be read, and be
 * wrong. seen: bits of field numbers. */
static mn_status sentencepiece_check_parts(const model *m, uint32_t seen, mn_error *err) {
    static const char *const part[] = {"pieces", "trainer_spec", "normalizer_spec"};
    for (uint32_t i = 0; i < MN_COUNT(part); i++)
        if (!(seen & 2u << i))
            return mn_fail(err, MN_BAD_FILE, "%s: found no %s (field %u)", m->name, part[i], i + 1);
    return MN_OK;
}

static mn_status check_kind(const model *m, mn_error *err) {
    if (m->kind != MODEL_UNIGRAM && m->kind != MODEL_BPE)
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s: trainer_spec.model_type: found %lld, expected 1 (unigram) or 2 (bpe)",
                       m->name, (long long)m->kind);
    if (m->suffix)
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s: trainer_spec.treat_whitespace_as_suffix: not supported", m->name);
    return MN_OK;
}

static mn_status read_top(model *m, mn_error *err) {
    reader r = reader_of(m->whole);
    mn_status st = MN_OK;
    uint32_t seen = 0;
    for (field f; !st && next_field(&r, &f);) {
        seen |= f.number < 4 ? 1u << f.number : 0;
        if (f.number == 1)
            m->n_pieces++;
        if (f.number == 2)
            st = read_trainer(m, f.bytes, err);
        if (f.number == 3)
            st = read_normalizer(m, f.bytes, err);
    }
    if (!st && r.bad)
        st = damaged(&r, m->whole, m->name, err);
    if (!st)
        st = sentencepiece_check_parts(m, seen, err);
    return st ? st : check_kind(m, err);
}

/* The fields of a piece, checked. */
static mn_status parse_piece(const model *m, int32_t id, mn_str bytes, mn_str *piece, float *score,
                             uint64_t *type, mn_error *err) {
    reader r = reader_of(bytes);
    *piece = (mn_str){"", 0};
    *type = MN_TYPE_NORMAL;
    *score = 0;
    for (field f; next_field(&r, &f);) {
        const uint32_t bits = (uint32_t)f.value;
        if (f.number == 1)
            *piece = f.bytes;
        if (f.number == 2)
            memcpy(score, &bits, sizeof *score);
        if (f.number == 3)
            *type = f.value;
    }
    if (r.bad)
        return damaged(&r, m->whole, m->name, err);
    const bool utf8 = mn_utf8_check(piece->ptr, (size_t)piece->len) == piece->len;
    if (!utf8 || !piece->len || !(*score >= -3e38f && *score <= 3e38f))
        return mn_fail(
            err, MN_BAD_FILE,
            "%s: piece %d: found \"%.*s\" with score %g, expected UTF-8 and a finite score",
            m->name, id, MN_STR_ARG(*piece), (double)*score);
    return MN_OK;
}

static mn_status read_piece(mn_tokenizer *tok, const model *m, int32_t id, mn_str bytes,
                            mn_error *err) {
    mn_str piece;
    uint64_t type;
    float score;
    mn_status st = parse_piece(m, id, bytes, &piece, &score, &type, err);
    if (!st)
        st = mn_vocab_set(&tok->vocab, id, piece, mn_type_flags((int64_t)type), m->name, err);
    if (st)
        return st;
    tok->vocab.token[id].score = score;
    if (tok->model != MN_TOKENIZER_UNIGRAM)
        return MN_OK;
    if (type == MN_TYPE_USER)
        tok->unigram.log_prob[id] = mn_symbol_log_prob(piece.len);
    else if (type == MN_TYPE_NORMAL)
        tok->unigram.log_prob[id] = (double)score;
    return MN_OK;
}

/* The model's id of a piece of the file. */
static int32_t model_id(const model *m, int32_t id) {
    if (m->kin != KIN_XLMR)
        return id;
    if (id < XLMR_FIRST)
        return (const int32_t[]){XLMR_UNK, 0, 2}[id];
    return id + 1;
}

static mn_status read_pieces(mn_tokenizer *tok, const model *m, mn_error *err) {
    reader r = reader_of(m->whole);
    mn_status st = MN_OK;
    int32_t id = 0;
    for (field f; !st && next_field(&r, &f);)
        if (f.number == 1)
            st = read_piece(tok, m, model_id(m, id++), f.bytes, err);
    return st;
}

/* ---- tokens added beside the file ------------------------------------------------------------ */

/* config, map: the two files as trees. decoder: {"32000": {"content": ...}}; map: {"<x>": 32000} */
typedef struct {
    cJSON *config, *map;
    const cJSON *decoder;
} extra_tokens;

/* *n: tokens of the model; then, one more than the highest id. Checks each entry. */
static mn_status count_extra(const extra_tokens *x, uint64_t *n, mn_error *err) {
    const uint64_t most = *n + 65536;
    const cJSON *item = NULL;
    int32_t id = 0;
    cJSON_ArrayForEach(item, x->map) {
        if (!mn_json_id(item, &id))
            return mn_fail(err, MN_BAD_FILE, "added_tokens.json: \"%.80s\": expected an id",
                           item->string);
        *n = MN_MAX(*n, (uint64_t)id + 1);
    }
    cJSON_ArrayForEach(item, x->decoder) {
        int64_t key = -1;
        const bool is_id = mn_parse_i64(mn_str_of(item->string), &key) && key >= 0;
        if (!is_id || key >= MN_VOCAB_MAX || !cJSON_IsString(mn_json_item(item, "content")))
            return mn_fail(err, MN_BAD_FILE,
                           "tokenizer_config.json: added_tokens_decoder: \"%.80s\": expected an id "
                           "and its \"content\"",
                           item->string);
        *n = MN_MAX(*n, (uint64_t)key + 1);
    }
    if (*n > most)
        return mn_fail(err, MN_BAD_FILE, "added tokens: ids up to %llu",
                       (unsigned long long)*n - 1);
    return MN_OK;
}

/* One that the model has already becomes an added one. */
static mn_status enter_extra(mn_tokenizer *tok, int32_t id, mn_added a, mn_error *err) {
    const uint32_t flags = MN_TOKEN_ADDED | (a.special ? MN_TOKEN_SPECIAL : 0);
    mn_vocab_token *t = &tok->vocab.token[id];
    mn_status st = MN_OK;
    if (mn_str_eq(t->piece, a.text))
        t->flags |= flags;
    else
        st = mn_vocab_set(&tok->vocab, id, a.text, flags, "added tokens", err);
    a.id = id;
    a.text = t->piece;
    return st ? st : mn_added_put(&tok->raw, &a, err);
}

/* A special token of the class, unless the file has it. */
static mn_status enter_special(mn_tokenizer *tok, int64_t id, const char *text, mn_error *err) {
    const mn_str piece = mn_str_of(text);
    if (mn_vocab_find(&tok->vocab, piece) >= 0)
        return MN_OK;
    return enter_extra(tok, (int32_t)id, (mn_added){.text = piece, .special = true}, err);
}

/* Those of the class of the model, behind the pieces. */
static mn_status enter_kin(mn_tokenizer *tok, const model *m, mn_error *err) {
    const int64_t n = (int64_t)m->n_pieces;
    mn_status st = MN_OK;
    if (m->kin == KIN_DEBERTA)
        return enter_special(tok, n, "[MASK]", err);
    if (m->kin == KIN_XLMR) {
        st = enter_special(tok, XLMR_PAD, "<pad>", err);
        return st ? st : enter_special(tok, n + 1, "<mask>", err);
    }
    for (uint64_t i = 0; i < m->n_extra && !st; i++) {
        char name[40];
        snprintf(name, sizeof name, "<extra_id_%llu>", (unsigned long long)i);
        st = enter_special(tok, n + (int64_t)(m->n_extra - 1 - i), name, err);
    }
    return st;
}

static bool sentencepiece_is_there(const mn_added_set *s, int32_t id) {
    for (size_t i = 0; i < s->n; i++)
        if (s->item[i].id == id)
            return true;
    return false;
}

static mn_status enter_extras(mn_tokenizer *tok, const extra_tokens *x, mn_error *err) {
    const cJSON *item = NULL;
    mn_status st = MN_OK;
    cJSON_ArrayForEach(item, x->decoder) {
        mn_added a = mn_json_added(item);
        a.text = mn_str_of(mn_json_item(item, "content")->valuestring);
        st = enter_extra(tok, atoi(item->string), a, err);
        if (st)
            return st;
    }
    cJSON_ArrayForEach(item, x->map) {
        const mn_added a = {.text = mn_str_of(item->string)};
        if (!sentencepiece_is_there(&tok->raw, item->valueint))
            st = enter_extra(tok, item->valueint, a, err);
        if (st)
            return st;
    }
    return st;
}

/* Control pieces as they stand; a BPE model cuts at its user's symbols, in normalised text. */
static mn_status collect_own(mn_tokenizer *tok, mn_error *err) {
    const bool unigram = tok->model == MN_TOKENIZER_UNIGRAM;
    mn_status st = MN_OK;
    for (uint32_t i = 0; !st && i < tok->vocab.n; i++) {
        const mn_vocab_token *t = &tok->vocab.token[i];
        const bool added = t->flags & MN_TOKEN_ADDED;
        const bool special = t->flags & MN_TOKEN_SPECIAL;
        mn_added a = {.text = t->piece, .id = (int32_t)i, .special = special};
        a.normalized = !special;
        if (!added || (!special && unigram) || sentencepiece_is_there(&tok->raw, a.id))
            continue;
        st = mn_added_put(special ? &tok->raw : &tok->normalized, &a, err);
    }
    if (!st)
        st = mn_added_index(&tok->raw, "added tokens", err);
    return st ? st : mn_added_index(&tok->normalized, "user-defined symbols", err);
}

/* ---- characters and white space -------------------------------------------------------------- */

/* The charsmap leaves user's symbols alone. */
static mn_status keep_symbols(const mn_tokenizer *tok, mn_charsmap *m, mn_error *err) {
    const uint32_t kinds = MN_TOKEN_ADDED | MN_TOKEN_SPECIAL;
    size_t n = 0;
    mn_str *symbol = mn_alloc(tok->vocab.n + 1u, sizeof *symbol);
    if (!symbol)
        return mn_fail_memory(err, tok->vocab.n * sizeof *symbol);
    for (uint32_t i = 0; i < tok->vocab.n; i++)
        if ((tok->vocab.token[i].flags & kinds) == MN_TOKEN_ADDED)
            symbol[n++] = tok->vocab.token[i].piece;
    mn_status st = n ? mn_charsmap_keep(m, symbol, n, err) : MN_OK;
    mn_free(symbol);
    return st;
}

static mn_status add_charsmap(mn_tokenizer *tok, const mn_sentencepiece *how, const char *where,
                              mn_error *err) {
    mn_stage *stage = mn_stages_add(&tok->normalizer, MN_STAGE_CHARSMAP);
    if (!stage)
        return mn_fail_memory(err, sizeof *stage);
    mn_status st = mn_charsmap_create(how->charsmap, how->graphemes, where, &stage->charsmap, err);
    if (!st && how->symbols && !how->graphemes)
        st = keep_symbols(tok, stage->charsmap, err);
    return st;
}

mn_status mn_sentencepiece_stages(mn_tokenizer *tok, const mn_sentencepiece *how, const char *where,
                                  mn_error *err) {
    /* at the end also what looks like an escaped space */
    const char *ends = how->escape ? "\\A +|[ \\x{2581}]+\\z" : "\\A +| +\\z";
    const mn_str space = mn_str_of(" ");
    const uint32_t strip = how->squeeze ? UINT32_MAX : how->dummy_prefix;
    mn_stages *s = &tok->normalizer;
    mn_status st = MN_OK;
    if (how->charsmap.len)
        st = add_charsmap(tok, how, where, err);
    if (!st && how->squeeze && !how->keep_end)
        st = mn_stages_add_rewrite(s, ends, "", false, where, err);
    if (!st && how->squeeze)
        st = mn_stages_add_rewrite(s, " {2,}", " ", false, where, err);
    if (!st && how->dummy_prefix) /* a space that was kept in front is the prefix */
        st = mn_stages_add_prepend(s, space, how->keep_end, false, err);
    if (!st && how->escape)
        st = mn_stages_add_replace(s, space, mn_str_of(MN_BLOCK), err);
    return st ? st : mn_decode_sentencepiece(&tok->decoder, strip, err);
}

/* A piece has a space behind another character. */
static bool crosses_words(mn_str piece) {
    const size_t block = strlen(MN_BLOCK);
    bool other = false;
    for (size_t i = 0; i < piece.len;) {
        const bool space = i + block <= piece.len && !memcmp(piece.ptr + i, MN_BLOCK, block);
        if (space && other)
            return true;
        other |= !space;
        i += space ? block : 1;
    }
    return false;
}

/* No piece crosses words: then merging never does, and words can be merged one by one. The ids are
 * the same, the heaps are small. A space is a piece: no run of unknown characters crosses one
 * either. */
mn_status mn_split_words(mn_tokenizer *tok, const char *where, mn_error *err) {
    static const char words[] = "\\x{2581}*[^\\x{2581}]+|\\x{2581}+";
    const mn_vocab *v = &tok->vocab;
    if (mn_vocab_plain(v, mn_str_of(MN_BLOCK)) < 0)
        return MN_OK;
    for (uint32_t i = 0; i < v->n; i++) {
        const bool plain = !(v->token[i].flags & (MN_TOKEN_SPECIAL | MN_TOKEN_BYTE));
        if (plain && crosses_words(v->token[i].piece))
            return MN_OK;
    }
    return mn_stages_add_split(&tok->splitter, words, MN_SPLIT_ISOLATED, false, where, err);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* An id of the file, -1 if it is none. */
static int32_t valid_id(const mn_tokenizer *tok, int32_t id) {
    return id >= 0 && (uint32_t)id < tok->vocab.n ? id : -1;
}

/* BPE models are Llama's kin, which begin texts with BOS; Unigram ones T5's, which end them with
 * EOS. */
static mn_status set_ids(mn_tokenizer *tok, const model *m, mn_error *err) {
    tok->unk = valid_id(tok, m->unk);
    tok->bos = valid_id(tok, m->bos);
    tok->eos = valid_id(tok, m->eos);
    tok->pad = valid_id(tok, m->pad);
    tok->model_unk = tok->unk;
    if (m->kind == MODEL_BPE)
        return mn_ids_put(&tok->prefix, tok->bos, err);
    return mn_ids_put(&tok->suffix, tok->eos, err);
}

/* An encoder's, whose ids its class finds by their spellings. seps: ends between two texts. */
static mn_status set_encoder_ids(mn_tokenizer *tok, const model *m, size_t seps, mn_error *err) {
    static const char *const names[][4] = {[KIN_DEBERTA] = {"[CLS]", "[SEP]", "[UNK]", "[PAD]"},
                                           [KIN_XLMR] = {"<s>", "</s>", "<unk>", "<pad>"}};
    int32_t *const ids[] = {&tok->bos, &tok->eos, &tok->unk, &tok->pad};
    for (size_t i = 0; i < MN_COUNT(ids); i++) {
        *ids[i] = mn_vocab_find(&tok->vocab, mn_str_of(names[m->kin][i]));
        if (*ids[i] < 0)
            return mn_fail(err, MN_BAD_FILE, "%s: found no piece \"%s\"", m->name,
                           names[m->kin][i]);
    }
    tok->model_unk = tok->unk;
    tok->pair.seps = seps;
    const mn_status st = mn_ids_put(&tok->prefix, tok->bos, err);
    return st ? st : mn_ids_put(&tok->suffix, tok->eos, err);
}

static mn_status set_kin_ids(mn_tokenizer *tok, const model *m, mn_error *err) {
    if (m->kin == KIN_DEBERTA)
        return set_encoder_ids(tok, m, 1, err);
    if (m->kin == KIN_XLMR)
        return set_encoder_ids(tok, m, 2, err);
    return set_ids(tok, m, err);
}

static bool has_piece(const model *m, const char *name) {
    reader r = reader_of(m->whole);
    mn_str piece = {0};
    float score;
    uint64_t type;
    for (field f; next_field(&r, &f);)
        if (f.number == 1 && !parse_piece(m, 0, f.bytes, &piece, &score, &type, NULL) &&
            mn_str_is(piece, name))
            return true;
    return false;
}

/* Ids that the class of the model adds to those of the file. */
static mn_status count_kin(const model *m, uint64_t *n, mn_error *err) {
    *n = m->n_pieces + m->n_extra;
    if (m->kin == KIN_DEBERTA)
        *n += !has_piece(m, "[MASK]");
    if (m->kin != KIN_XLMR)
        return MN_OK;
    *n += 2;
    if (m->n_pieces >= XLMR_FIRST && m->unk == 0 && m->bos == 1 && m->eos == 2)
        return MN_OK;
    return mn_fail(err, MN_BAD_FILE,
                   "%s: trainer_spec: found unk_id %d, bos_id %d, eos_id %d, expected 0, 1, 2",
                   m->name, m->unk, m->bos, m->eos);
}

static mn_status sentencepiece_build(mn_tokenizer *tok, const model *m, const extra_tokens *x,
                                     mn_error *err) {
    uint64_t n = 0;
    tok->model = m->kind == MODEL_BPE ? MN_TOKENIZER_SPM_BPE : MN_TOKENIZER_UNIGRAM;
    tok->byte_fallback = m->byte_fallback;
    tok->fuse_unk = true;
    mn_status st = count_kin(m, &n, err);
    if (!st)
        st = count_extra(x, &n, err);
    if (!st)
        st = mn_vocab_init(&tok->vocab, n, m->name, err);
    if (!st && tok->model == MN_TOKENIZER_UNIGRAM)
        st = mn_unigram_init(tok, err);
    tok->unigram.single = true;
    if (!st)
        st = read_pieces(tok, m, err);
    if (!st)
        st = enter_extras(tok, x, err);
    if (!st)
        st = enter_kin(tok, m, err);
    if (!st)
        st = collect_own(tok, err);
    if (!st)
        st = set_kin_ids(tok, m, err);
    if (!st)
        st = mn_sentencepiece_stages(tok, &m->how, m->name, err);
    if (st)
        return st;
    mn_vocab_finish(&tok->vocab);
    if (tok->model == MN_TOKENIZER_UNIGRAM)
        return mn_unigram_finish(tok, m->name, err);
    return mn_split_words(tok, m->name, err);
}

/* extra_ids of tokenizer_config.json; where it does not say, the class has 100. */
static mn_status read_n_extra(model *m, const cJSON *config, mn_error *err) {
    const cJSON *said = mn_json_item(config, "extra_ids");
    int32_t n = 100;
    if (said && (!mn_json_id(said, &n) || n > 65536))
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer_config.json: \"extra_ids\": expected 0 to 65536");
    m->n_extra = (uint64_t)n;
    return MN_OK;
}

mn_status mn_tokenizer_from_sentencepiece(mn_tokenizer *tok, mn_str bytes, const char *name,
                                          const mn_file *files, uint32_t n_files, mn_error *err) {
    model m = {.name = name,
               .kin = kin_of(name),
               .whole = bytes,
               .kind = MODEL_UNIGRAM,
               .bos = 1,
               .eos = 2,
               .pad = -1,
               .how = {.symbols = true, .dummy_prefix = true, .squeeze = true, .escape = true}};
    extra_tokens x = {0};
    mn_status st = read_top(&m, err);
    if (!st)
        st = mn_json_file(files, n_files, "tokenizer_config.json", &x.config, err);
    if (!st)
        st = mn_json_file(files, n_files, "added_tokens.json", &x.map, err);
    x.decoder = mn_json_item(x.config, "added_tokens_decoder");
    if (!st && m.kin == KIN_T5)
        st = read_n_extra(&m, x.config, err);
    if (!st)
        st = sentencepiece_build(tok, &m, &x, err);
    cJSON_Delete(x.config);
    cJSON_Delete(x.map);
    return st ? st : mn_tokenizer_stop_from_files(tok, files, n_files, err);
}
