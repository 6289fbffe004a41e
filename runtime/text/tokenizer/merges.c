/* merges.c -- merges by pair of ids: open addressing, at most half full. They are looked
 * up one by one and entered by the dozen. */
#include "text/tokenizer/tokenizer_impl.h"
#include <string.h>

static size_t first_slot(const mn_vocab *v, uint64_t pair) {
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 32) & (v->n_merge_slot - 1);
}

static mn_merge *merge_slot(const mn_vocab *v, uint64_t pair) {
    size_t i = first_slot(v, pair);
    while (v->merge[i].id >= 0 && v->merge[i].pair != pair)
        i = (i + 1) & (v->n_merge_slot - 1);
    return &v->merge[i];
}

static uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

const mn_merge *mn_vocab_merge(const mn_vocab *v, int32_t left, int32_t right) {
    if (!v->n_merge_slot || left < 0 || right < 0)
        return NULL;
    const mn_merge *m = merge_slot(v, pair_of(left, right));
    return m->id < 0 ? NULL : m;
}

mn_status mn_merges_begin(mn_merges *m, uint64_t n, mn_error *err) {
    mn_vocab *v = m->vocab;
    if (n > (1u << 28))
        return mn_fail(err, MN_BAD_FILE, "merges: %llu of them, expected at most %u",
                       (unsigned long long)n, 1u << 28);
    m->n_entry = 0, m->rank = 0, m->n_idle = 0;
    m->first_idle = (mn_error)MN_ERROR_INIT;
    v->n_merge_slot = mn_vocab_slots(n);
    v->merge = mn_alloc(v->n_merge_slot, sizeof *v->merge);
    if (!v->merge)
        return mn_fail_memory(err, v->n_merge_slot * sizeof *v->merge);
    for (size_t i = 0; i < v->n_merge_slot; i++)
        v->merge[i] = (mn_merge){0, 0, -1};
    return MN_OK;
}

/* text has room for left, right and, with a skip, their union. */
static void set_entry(const mn_merges *m, mn_merge_entry *e, char *text, mn_str left,
                      mn_str right) {
    const size_t skip = MN_MIN(m->skip, (size_t)right.len), n = (size_t)(left.len + right.len);
    memcpy(text, left.ptr, (size_t)left.len);
    memcpy(text + left.len, right.ptr, (size_t)right.len);
    e->piece[0] = (mn_str){text, left.len};
    e->piece[1] = (mn_str){text + left.len, right.len};
    e->piece[2] = (mn_str){text, n};
    if (skip) {
        memcpy(text + n, left.ptr, (size_t)left.len);
        memcpy(text + n + left.len, right.ptr + skip, (size_t)right.len - skip);
        e->piece[2] = (mn_str){text + n, n - skip};
    }
    for (int i = 0; i < 3; i++)
        e->hash[i] = mn_vocab_ask(m->vocab, e->piece[i].ptr, (size_t)e->piece[i].len);
}

static mn_status unknown(mn_merges *m, const mn_merge_entry *e, int32_t rank, mn_str what,
                         mn_error *err) {
    if (m->pass_over && m->n_idle++)
        return MN_OK;
    mn_error *to = m->pass_over ? &m->first_idle : err;
    mn_status st = mn_fail(
        to, MN_BAD_FILE, "%s: merge %d, \"%.*s\" with \"%.*s\": \"%.*s\" is not in the vocabulary",
        m->where, rank, MN_STR_ARG(e->piece[0]), MN_STR_ARG(e->piece[1]), MN_STR_ARG(what));
    return m->pass_over ? MN_OK : st;
}

/* The ids of one merge; id -1 = it cannot apply and is passed over. */
static mn_status resolve(mn_merges *m, const mn_merge_entry *e, int32_t rank, mn_merge *out,
                         mn_error *err) {
    int32_t id[3];
    *out = (mn_merge){0, rank, -1};
    for (int k = 0; k < 3; k++) {
        id[k] =
            mn_vocab_find_hashed(m->vocab, e->piece[k].ptr, (size_t)e->piece[k].len, e->hash[k]);
        if (id[k] < 0)
            return unknown(m, e, rank, e->piece[k], err);
    }
    *out = (mn_merge){pair_of(id[0], id[1]), rank, id[2]};
    __builtin_prefetch(&m->vocab->merge[first_slot(m->vocab, out->pair)]);
    return MN_OK;
}

/* What waits goes in. */
static mn_status enter(mn_merges *m, const mn_merge_entry *entry, uint32_t n, mn_error *err) {
    mn_merge found[MN_COUNT(m->entry)];
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++)
            mn_vocab_ask_piece(m->vocab, entry[i].hash[k]);
    for (uint32_t i = 0; !st && i < n; i++)
        st = resolve(m, &entry[i], m->rank + (int32_t)i, &found[i], err);
    for (uint32_t i = 0; !st && i < n; i++) {
        mn_merge *slot = found[i].id < 0 ? NULL : merge_slot(m->vocab, found[i].pair);
        if (slot && (slot->id < 0 || m->last_wins))
            *slot = found[i];
    }
    m->rank += (int32_t)n;
    m->n_entry = 0;
    return st;
}

mn_status mn_merges_end(mn_merges *m, mn_error *err) {
    return enter(m, m->entry, m->n_entry, err);
}

mn_status mn_merges_add(mn_merges *m, mn_str left, mn_str right, mn_error *err) {
    const size_t room = (size_t)(left.len + right.len) * (m->skip ? 2 : 1);
    const bool is_long = room > sizeof m->entry->text;
    if (is_long || m->n_entry == MN_COUNT(m->entry)) {
        mn_status st = enter(m, m->entry, m->n_entry, err);
        if (st)
            return st;
    }
    if (!is_long) {
        mn_merge_entry *e = &m->entry[m->n_entry++];
        set_entry(m, e, e->text, left, right);
        return MN_OK;
    }
    char *text = mn_alloc(room, 1);
    if (!text)
        return mn_fail_memory(err, room);
    mn_merge_entry alone;
    set_entry(m, &alone, text, left, right);
    mn_status st = enter(m, &alone, 1, err);
    mn_free(text);
    return st;
}
