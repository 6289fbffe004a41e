/* pages.c -- the page table of the KV cache: reserve, share, give back. */
#include "session/session.h"

static int32_t *row(const mn_session *s, uint32_t seq) {
    return s->packed + s->engine->in.pages + (size_t)seq * s->engine->n_pages;
}

bool mn_pages_reserve(mn_session *s, uint32_t seq, uint32_t n_positions) {
    mn_sequence *q = &s->seqs[seq];
    uint32_t per = s->engine->page_tokens, want = (n_positions + per - 1) / per;
    while (q->n_pages < want) {
        if (!s->n_free)
            return false;
        int32_t page = s->free_pages[--s->n_free];
        s->page_refs[page] = 1;
        row(s, seq)[q->n_pages++] = page;
    }
    return true;
}

void mn_pages_drop(mn_session *s, uint32_t seq) {
    mn_sequence *q = &s->seqs[seq];
    for (uint32_t i = 0; i < q->n_pages; i++) {
        int32_t page = row(s, seq)[i];
        if (!--s->page_refs[page])
            s->limbo[s->n_limbo++] = (mn_limbo_page){page, s->enqueued};
        row(s, seq)[i] = 0;
    }
    q->n_pages = 0;
    mn_pages_settle(s);
}

void mn_pages_settle(mn_session *s) {
    uint32_t keep = 0;
    for (uint32_t i = 0; i < s->n_limbo; i++) {
        if (s->limbo[i].after <= s->completed)
            s->free_pages[s->n_free++] = s->limbo[i].page;
        else
            s->limbo[keep++] = s->limbo[i];
    }
    s->n_limbo = keep;
}

mn_status mn_pages_share(mn_session *s, uint32_t from, uint32_t to, uint32_t n_positions,
                         mn_error *err) {
    uint32_t per = s->engine->page_tokens, full = n_positions / per, rest = n_positions % per;
    for (uint32_t i = 0; i < full; i++) {
        int32_t page = row(s, from)[i];
        s->page_refs[page]++;
        row(s, to)[i] = page;
        s->seqs[to].n_pages = i + 1;
    }
    if (!rest)
        return MN_OK;
    if (!mn_pages_reserve(s, to, n_positions))
        return mn_fail(err, MN_OUT_OF_MEMORY, "the KV cache has no free page");
    mn_page_copy copy = {(uint32_t)row(s, from)[full], (uint32_t)row(s, to)[full], rest, 0};
    return mn_engine_copy_page(s->engine, copy, err);
}
