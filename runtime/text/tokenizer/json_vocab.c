/* json_vocab.c -- model.vocab, model.merges and added_tokens of a tokenizer.json. The
 * first two are read from the text itself; added tokens are few and come as a tree. */
#include "text/tokenizer/tokenizer_impl.h"
#include "text/json/scan.h"
#include <cjson/cJSON.h>
#include <string.h>

#define VOCAB "tokenizer.json: model.vocab"
#define MERGES "tokenizer.json: model.merges"

bool mn_json_id(const cJSON *v, int32_t *id) {
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble < MN_VOCAB_MAX))
        return false;
    *id = (int32_t)v->valuedouble;
    return (double)*id == v->valuedouble;
}

static mn_status not_json(const mn_scan *s, mn_str whole, const char *where, mn_error *err) {
    if (s->unescaped[0].failed || s->unescaped[1].failed)
        return mn_fail_memory(err, whole.len);
    return mn_fail(err, MN_BAD_FILE,
                   "%s: found something else than expected at its byte %zu: \"%.*s\"", where,
                   (size_t)(s->at - whole.ptr), (int)MN_MIN(s->end - s->at, 20), s->at);
}

/* ---- vocabulary: {"piece": id, ...}, or for Unigram [["piece", log probability], ...], where ids
 * count up ---- */
typedef struct {
    mn_str piece;
    double value;
} vocab_entry;

static bool next_entry(mn_scan *s, bool listed, vocab_entry *e) {
    if (listed)
        return mn_scan_char(s, '[') && mn_scan_string(s, 0, &e->piece) && mn_scan_char(s, ',') &&
               mn_scan_number(s, &e->value) && mn_scan_char(s, ']');
    return mn_scan_string(s, 0, &e->piece) && mn_scan_char(s, ':') && mn_scan_number(s, &e->value);
}

static mn_status bad_id(const char *part, mn_str content, mn_error *err) {
    return mn_fail(err, MN_BAD_FILE,
                   "tokenizer.json: %s: the id of \"%.*s\" is not an integer from 0 to %d", part,
                   MN_STR_ARG(content), MN_VOCAB_MAX - 1);
}

/* The pieces of entries live in arena. */
static mn_status read_entries(mn_str vocab, bool listed, vocab_entry *entry, uint64_t n,
                              mn_arena *arena, mn_error *err) {
    mn_scan s = mn_scan_of(vocab);
    mn_status st = MN_OK;
    mn_scan_char(&s, listed ? '[' : '{');
    for (uint64_t i = 0; !st && i < n; i++) {
        vocab_entry *e = &entry[i];
        if ((i && !mn_scan_char(&s, ',')) || !next_entry(&s, listed, e))
            st = not_json(&s, vocab, VOCAB, err);
        if (!st && e->piece.ptr == s.unescaped[0].ptr) {
            e->piece.ptr = mn_arena_strndup(arena, e->piece.ptr, (size_t)e->piece.len);
            if (!e->piece.ptr)
                st = mn_fail_memory(err, e->piece.len);
        }
    }
    if (!st && (!mn_scan_char(&s, listed ? ']' : '}') || s.at != s.end))
        st = not_json(&s, vocab, VOCAB, err);
    mn_scan_free(&s);
    return st;
}

static mn_status count_ids(const vocab_entry *entry, uint64_t n_entries, bool listed,
                           const cJSON *added, uint64_t *n, mn_error *err) {
    uint64_t n_items = n_entries;
    *n = listed ? n_entries : 0;
    for (uint64_t i = 0; !listed && i < n_entries; i++) {
        double id = entry[i].value;
        if (!(id >= 0 && id < MN_VOCAB_MAX) || id != (double)(int32_t)id)
            return bad_id("model.vocab", entry[i].piece, err);
        *n = MN_MAX(*n, (uint64_t)id + 1);
    }
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, added) {
        int32_t id = 0;
        const char *content = cJSON_GetStringValue(mn_json_item(item, "content"));
        if (!content)
            return mn_fail(err, MN_BAD_FILE,
                           "tokenizer.json: added_tokens: an entry has no \"content\"");
        if (!mn_json_id(mn_json_item(item, "id"), &id))
            return bad_id("added_tokens", mn_str_of(content), err);
        *n = MN_MAX(*n, (uint64_t)id + 1);
        n_items++;
    }
    /* Real vocabularies leave gaps, but a small file must not ask for a large table. */
    if (*n > 64 * n_items + 4096)
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: ids up to %llu, but only %llu tokens",
                       (unsigned long long)*n - 1, (unsigned long long)n_items);
    return MN_OK;
}

static mn_status enter_added(mn_tokenizer *tok, const cJSON *item, mn_error *err) {
    mn_str content = mn_str_of(cJSON_GetStringValue(mn_json_item(item, "content")));
    int32_t id = -1;
    mn_json_id(mn_json_item(item, "id"), &id);
    uint32_t flags =
        MN_TOKEN_ADDED | (cJSON_IsTrue(mn_json_item(item, "special")) ? MN_TOKEN_SPECIAL : 0);
    int32_t there = mn_vocab_find(&tok->vocab, content.ptr, (size_t)content.len);
    if (there >= 0 && there != id)
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: added_tokens: \"%.*s\" has id %d, but %d in model.vocab",
                       MN_STR_ARG(content), id, there);
    if (there < 0)
        return mn_vocab_set(&tok->vocab, id, content, flags | MN_TOKEN_OUTSIDE,
                            "tokenizer.json: added_tokens", err);
    tok->vocab.token[id].flags |= flags;
    return MN_OK;
}

static mn_status enter_all(mn_tokenizer *tok, const vocab_entry *entry, uint64_t n_entries,
                           bool listed, const cJSON *added, mn_error *err) {
    uint64_t n = 0;
    mn_status st = count_ids(entry, n_entries, listed, added, &n, err);
    if (!st)
        st = mn_vocab_init(&tok->vocab, n, VOCAB, err);
    if (!st && listed)
        st = mn_unigram_init(tok, err);
    for (uint64_t i = 0; !st && i < n_entries; i++) {
        int32_t id = (int32_t)(listed ? (double)i : entry[i].value);
        if (i + 8 < n_entries) /* its slot is on the way from memory when its turn comes */
            mn_vocab_ask(&tok->vocab, entry[i + 8].piece.ptr, (size_t)entry[i + 8].piece.len);
        if (listed)
            tok->unigram.log_prob[id] = entry[i].value;
        st = listed ? mn_vocab_set_last(&tok->vocab, id, entry[i].piece, VOCAB, err)
                    : mn_vocab_set(&tok->vocab, id, entry[i].piece, 0, VOCAB, err);
    }
    const cJSON *item = NULL;
    if (!st)
        cJSON_ArrayForEach(item, added) if ((st = enter_added(tok, item, err))) break;
    for (uint64_t i = 0; !st && listed && i < n; i++) { /* spelled as a special token is */
        mn_vocab_token *t = &tok->vocab.token[i];
        int32_t same = t->flags & MN_TOKEN_OUTSIDE
                           ? mn_vocab_find(&tok->vocab, t->piece.ptr, (size_t)t->piece.len)
                           : -1;
        if (same >= 0)
            t->flags |= tok->vocab.token[same].flags & MN_TOKEN_SPECIAL;
    }
    return st;
}

mn_status mn_json_vocab(mn_tokenizer *tok, mn_str vocab, bool listed, const cJSON *added,
                        mn_error *err) {
    if (!vocab.len || vocab.ptr[0] != (listed ? '[' : '{'))
        return mn_fail(err, MN_BAD_FILE, VOCAB ": expected %s", listed ? "a list" : "an object");
    if (added && !cJSON_IsArray(added) && !cJSON_IsNull(added))
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: added_tokens: expected a list");
    uint64_t n = mn_scan_count(vocab);
    vocab_entry *entry = mn_alloc((size_t)n, sizeof *entry);
    if (!entry)
        return mn_fail_memory(err, n * sizeof *entry);
    mn_arena arena = {0};
    mn_status st = read_entries(vocab, listed, entry, n, &arena, err);
    if (!st)
        st = enter_all(tok, entry, n, listed, added, err);
    mn_arena_free(&arena);
    mn_free(entry);
    return st;
}

/* ---- merges: ["left right", ...] or [["left", "right"], ...] --------------------------------- */
static bool next_merge(mn_scan *s, mn_str *left, mn_str *right) {
    if (mn_scan_char(s, '['))
        return mn_scan_string(s, 0, left) && mn_scan_char(s, ',') && mn_scan_string(s, 1, right) &&
               mn_scan_char(s, ']');
    if (!mn_scan_string(s, 0, left))
        return false;
    const char *blank = memchr(left->ptr, ' ', (size_t)left->len);
    if (!blank)
        return false;
    uint64_t n = (uint64_t)(blank - left->ptr);
    *right = (mn_str){blank + 1, left->len - n - 1};
    left->len = n;
    return !memchr(right->ptr, ' ', (size_t)right->len);
}

mn_status mn_json_merges(mn_tokenizer *tok, mn_str merges, mn_error *err) {
    if (!merges.len || merges.ptr[0] != '[')
        return mn_fail(err, MN_BAD_FILE, MERGES ": expected a list");
    uint64_t n = mn_scan_count(merges);
    mn_scan s = mn_scan_of(merges);
    mn_merges m = {.vocab = &tok->vocab,
                   .where = MERGES,
                   .skip = (size_t)tok->continuing.len,
                   .last_wins = true};
    mn_status st = mn_merges_begin(&m, n, err);
    mn_scan_char(&s, '[');
    for (uint64_t i = 0; !st && i < n; i++) {
        mn_str left = {NULL, 0}, right = {NULL, 0};
        if (i && !mn_scan_char(&s, ','))
            st = not_json(&s, merges, MERGES, err);
        else if (next_merge(&s, &left, &right))
            st = mn_merges_add(&m, left, right, err);
        else if (s.unescaped[0].failed || s.unescaped[1].failed)
            st = mn_fail_memory(err, merges.len);
        else
            st = mn_fail(err, MN_BAD_FILE, MERGES ": merge %llu is not a pair of pieces",
                         (unsigned long long)i);
    }
    if (!st && (!mn_scan_char(&s, ']') || s.at != s.end))
        st = not_json(&s, merges, MERGES, err);
    mn_scan_free(&s);
    return st ? st : mn_merges_end(&m, err);
}
