/* json_vocab.c -- model.vocab, model.merges and added_tokens of a tokenizer.json. The first two are
 * read from the text itself, where a tree of a million nodes would cost more than everything else;
 * added tokens are few and come as a tree. Entries are counted first: their table is allocated
 * once, and ids are checked against the number of tokens before the vocabulary is. */
#include "text/tokenizer/tokenizer_impl.h"
#include "text/json/scan.h"
#include <cjson/cJSON.h>
#include <string.h>

#define VOCAB "tokenizer.json: model.vocab"
#define MERGES "tokenizer.json: model.merges"

static mn_status not_json(const mn_scan *s, mn_str whole, const char *where, mn_error *err) {
    const size_t at = (size_t)(s->at - whole.ptr);
    const int shown = (int)MN_MIN(s->end - s->at, 20);
    if (s->unescaped[0].failed || s->unescaped[1].failed)
        return mn_fail_memory(err, whole.len);
    return mn_fail(err, MN_BAD_FILE,
                   "%s: found something else than expected at its byte %zu: \"%.*s\"", where, at,
                   shown, s->at);
}

/* ---- vocabulary ------------------------------------------------------------------------------
 * {"piece": id, ...}, or for Unigram (listed) [["piece", log probability], ...], where ids count
 * up. */

typedef struct {
    mn_str piece;
    double value;
} vocab_entry;

/* false: something else stands there */
static bool next_entry(mn_scan *s, bool listed, vocab_entry *e) {
    if (listed && !mn_scan_char(s, '['))
        return false;
    if (!mn_scan_string(s, 0, &e->piece))
        return false;
    if (!mn_scan_char(s, listed ? ',' : ':'))
        return false;
    if (!mn_scan_number(s, &e->value))
        return false;
    return !listed || mn_scan_char(s, ']');
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
        const bool comma = !i || mn_scan_char(&s, ',');
        if (!comma || !next_entry(&s, listed, e)) {
            st = not_json(&s, vocab, VOCAB, err);
            break;
        }
        if (e->piece.ptr != s.unescaped[0].ptr)
            continue;
        e->piece.ptr = mn_arena_strndup(arena, e->piece.ptr, (size_t)e->piece.len);
        if (!e->piece.ptr)
            st = mn_fail_memory(err, e->piece.len);
    }
    const bool closed = !st && mn_scan_char(&s, listed ? ']' : '}');
    if (!st && (!closed || s.at != s.end))
        st = not_json(&s, vocab, VOCAB, err);
    mn_scan_free(&s);
    return st;
}

/* *n: one more than the highest id. Checks each id and each added token. */
static mn_status count_ids(const vocab_entry *entry, uint64_t n_entries, bool listed,
                           const cJSON *added, uint64_t *n, mn_error *err) {
    uint64_t n_items = n_entries;
    const cJSON *item = NULL;
    *n = listed ? n_entries : 0;
    for (uint64_t i = 0; !listed && i < n_entries; i++) {
        const double id = entry[i].value;
        if (!(id >= 0 && id < MN_VOCAB_MAX) || id != (double)(int32_t)id)
            return bad_id("model.vocab", entry[i].piece, err);
        *n = MN_MAX(*n, (uint64_t)id + 1);
    }
    cJSON_ArrayForEach(item, added) {
        const char *content = cJSON_GetStringValue(mn_json_item(item, "content"));
        int32_t id = 0;
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

/* An added token that the model has already keeps its id and gets its flags. */
static mn_status enter_added(mn_tokenizer *tok, const cJSON *item, mn_error *err) {
    const mn_str content = mn_str_of(cJSON_GetStringValue(mn_json_item(item, "content")));
    const bool special = cJSON_IsTrue(mn_json_item(item, "special"));
    const uint32_t flags = MN_TOKEN_ADDED | (special ? MN_TOKEN_SPECIAL : 0);
    const int32_t there = mn_vocab_find(&tok->vocab, content);
    int32_t id = -1;
    mn_json_id(mn_json_item(item, "id"), &id);
    if (there < 0)
        return mn_vocab_set(&tok->vocab, id, content, flags | MN_TOKEN_OUTSIDE,
                            "tokenizer.json: added_tokens", err);
    if (there != id)
        return mn_fail(err, MN_BAD_FILE,
                       "tokenizer.json: added_tokens: \"%.*s\" has id %d, but %d in model.vocab",
                       MN_STR_ARG(content), id, there);
    tok->vocab.token[id].flags |= flags;
    return MN_OK;
}

/* The model's own pieces. The slot of one is on the way from memory when its turn comes. */
static mn_status enter_entries(mn_tokenizer *tok, const vocab_entry *entry, uint64_t n, bool listed,
                               mn_error *err) {
    enum { AHEAD = 8 };
    mn_vocab *v = &tok->vocab;
    mn_status st = MN_OK;
    for (uint64_t i = 0; !st && i < n; i++) {
        const mn_str piece = entry[i].piece;
        if (i + AHEAD < n)
            mn_vocab_ask(v, entry[i + AHEAD].piece);
        if (listed) {
            tok->unigram.log_prob[i] = entry[i].value;
            st = mn_vocab_set_last(v, (int32_t)i, piece, VOCAB, err);
        } else
            st = mn_vocab_set(v, (int32_t)entry[i].value, piece, 0, VOCAB, err);
    }
    return st;
}

/* Unigram: a piece that another id has taken over is special if that one is. */
static void share_special(mn_vocab *v) {
    for (uint32_t i = 0; i < v->n; i++) {
        mn_vocab_token *t = &v->token[i];
        if (!(t->flags & MN_TOKEN_OUTSIDE))
            continue;
        const int32_t same = mn_vocab_find(v, t->piece);
        if (same >= 0)
            t->flags |= v->token[same].flags & MN_TOKEN_SPECIAL;
    }
}

static mn_status enter_all(mn_tokenizer *tok, const vocab_entry *entry, uint64_t n_entries,
                           bool listed, const cJSON *added, mn_error *err) {
    uint64_t n = 0;
    mn_status st = count_ids(entry, n_entries, listed, added, &n, err);
    if (!st)
        st = mn_vocab_init(&tok->vocab, n, VOCAB, err);
    if (!st && listed)
        st = mn_unigram_init(tok, err);
    if (!st)
        st = enter_entries(tok, entry, n_entries, listed, err);
    for (const cJSON *item = added ? added->child : NULL; item && !st; item = item->next)
        st = enter_added(tok, item, err);
    if (!st && listed)
        share_special(&tok->vocab);
    return st;
}

mn_status mn_json_vocab(mn_tokenizer *tok, mn_str vocab, bool listed, const cJSON *added,
                        mn_error *err) {
    if (!vocab.len || vocab.ptr[0] != (listed ? '[' : '{'))
        return mn_fail(err, MN_BAD_FILE, VOCAB ": expected %s", listed ? "a list" : "an object");
    if (added && !cJSON_IsArray(added) && !cJSON_IsNull(added))
        return mn_fail(err, MN_BAD_FILE, "tokenizer.json: added_tokens: expected a list");
    const uint64_t n = mn_scan_count(vocab);
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

/* false: no pair. left and right are used before the next call. */
static bool next_merge(mn_scan *s, mn_str *left, mn_str *right) {
    const bool listed = mn_scan_char(s, '[');
    mn_str pair;
    if (!mn_scan_string(s, 0, &pair))
        return false;
    if (!listed) {
        const bool halves = mn_merge_halves(pair, 0, left, right);
        return halves && !memchr(right->ptr, ' ', (size_t)right->len);
    }
    *left = pair;
    if (!mn_scan_char(s, ',') || !mn_scan_string(s, 1, right))
        return false;
    return mn_scan_char(s, ']');
}

/* What stands at a merge is none. */
static mn_status bad_merge(const mn_scan *s, mn_str merges, uint64_t i, mn_error *err) {
    if (s->unescaped[0].failed || s->unescaped[1].failed)
        return mn_fail_memory(err, merges.len);
    return mn_fail(err, MN_BAD_FILE, MERGES ": merge %llu is not a pair of pieces",
                   (unsigned long long)i);
}

mn_status mn_json_merges(mn_tokenizer *tok, mn_str merges, mn_error *err) {
    if (!merges.len || merges.ptr[0] != '[')
        return mn_fail(err, MN_BAD_FILE, MERGES ": expected a list");
    const uint64_t n = mn_scan_count(merges);
    mn_scan s = mn_scan_of(merges);
    mn_merges m = {.vocab = &tok->vocab, .where = MERGES, .last_wins = true};
    mn_status st = mn_merges_begin(&m, n, err);
    mn_scan_char(&s, '[');
    for (uint64_t i = 0; !st && i < n; i++) {
        mn_str left = {NULL, 0};
        mn_str right = {NULL, 0};
        if (i && !mn_scan_char(&s, ','))
            st = not_json(&s, merges, MERGES, err);
        else if (next_merge(&s, &left, &right))
            st = mn_merges_add(&m, left, right, err);
        else
            st = bad_merge(&s, merges, i, err);
    }
    const bool closed = !st && mn_scan_char(&s, ']');
    if (!st && (!closed || s.at != s.end))
        st = not_json(&s, merges, MERGES, err);
    mn_scan_free(&s);
    return st ? st : mn_merges_end(&m, err);
}
