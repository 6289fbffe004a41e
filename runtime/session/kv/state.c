/* state.c -- states of sequences: pages of the STATE group, each of which is what the layers of
 * that group remember of a sequence behind one position.
 *
 * A step names two pages of each slot in it, the one that it begins with and the one that it
 * leaves. As long as nobody else wants a state, both are one page; a state that the prefix cache
 * names, that another sequence begins with, or that is to be gone back to stays, and the step
 * leaves another. So snapshots, forks and drafts that are undone need no copies, but pages. */
#include "session/kv/pool.h"
#include <string.h>

/* ---- which states are kept -------------------------------------------------------------------
 * */
uint32_t mn_state_every(const mn_kv *kv) {
    const uint32_t block = kv->prefix.block;
    if (!block)
        return MN_STATE_EVERY;
    return MN_MAX(MN_STATE_EVERY / block, 1u) * block;
}

static bool is_marked(const mn_kv *kv, const mn_kv_slot *q, uint32_t position) {
    if (!position)
        return false;
    return position == q->mark || position == q->parts || position % mn_state_every(kv) == 0;
}

/* Whether a step may change the slot's last state in place. */
static bool is_free_to_change(const mn_kv *kv, const mn_kv_slot *q) {
    if (!q->n_states || q->keep_state)
        return false;
    const mn_kv_state *last = &q->states[q->n_states - 1];
    const mn_page_pool *p = &kv->pools[kv->state_group];
    if (p->refs[last->page] > 1 || p->info[last->page].node >= 0)
        return false;
    return !is_marked(kv, q, last->position);
}

/* Rows that a state saves where those are left that all texts keep; of these every second one saves
 * as many again, every fourth four times as many, so that those that are left lie apart evenly. */
static uint32_t rows_saved(const mn_kv *kv, uint32_t position) {
    const uint32_t beyond = position % mn_state_every(kv);
    const uint32_t n = position / mn_state_every(kv);
    return beyond ? beyond : (n & (~n + 1)) * mn_state_every(kv);
}

/* A state is worth the rows that it saves above the worth of the last one that went. So states go
 * as in GreedyDual (Young 1994): one that is not used again sinks, and the sooner the less it
 * saves. */
void mn_state_used(mn_kv *kv, int32_t page, uint32_t position) {
    mn_page_pool *p = &kv->pools[kv->state_group];
    p->info[page].worth = p->aged + rows_saved(kv, position);
}

void mn_state_keep(mn_kv *kv, uint32_t slot, bool keep) {
    kv->slots[slot].keep_state = keep;
}

uint32_t mn_state_chunk(mn_kv *kv, uint32_t slot, uint32_t position, uint32_t n,
                        uint32_t n_literal) {
    mn_kv_slot *q = &kv->slots[slot];
    const uint32_t block = kv->prefix.block;
    if (kv->state_group < 0)
        return n;
    q->mark = n_literal;
    if (q->shares && block) /* others begin behind a block, and compute one token at least */
        q->mark = n_literal ? (n_literal - 1) / block * block : 0;
    uint32_t end = (position / mn_state_every(kv) + 1) * mn_state_every(kv);
    if (q->mark > position)
        end = MN_MIN(end, q->mark);
    if (q->parts > position)
        end = MN_MIN(end, q->parts);
    return MN_MIN(n, end - position);
}

/* ---- the list of a slot ----------------------------------------------------------------------
 * */
static void drop_state(mn_kv *kv, mn_kv_slot *q, uint32_t i) {
    mn_page_give(kv, (uint32_t)kv->state_group, q->states[i].page);
    q->n_states--;
    memmove(q->states + i, q->states + i + 1, (q->n_states - i) * sizeof *q->states);
}

/* The one, but the last, without which the others lie apart most evenly. */
static uint32_t least_missed(const mn_kv_slot *q) {
    uint32_t best = 0;
    uint32_t gap = UINT32_MAX;
    for (uint32_t i = 0; i + 1 < q->n_states; i++) {
        const uint32_t before = i ? q->states[i - 1].position : 0;
        if (q->states[i + 1].position - before < gap) {
            gap = q->states[i + 1].position - before;
            best = i;
        }
    }
    return best;
}

/* Gives back what the slot could only go back to; false: there is nothing. */
static bool shed(mn_kv *kv, uint32_t slot) {
    mn_kv_slot *q = &kv->slots[slot];
    if (q->n_states < 2)
        return false;
    drop_state(kv, q, least_missed(q));
    return true;
}

/* A state that was kept for a round of drafts is of no use behind it, nor is one that the prefix
 * cache names. */
static void prune(mn_kv *kv, mn_kv_slot *q) {
    const mn_page_info *info = kv->pools[kv->state_group].info;
    for (uint32_t i = q->n_states; i-- > 0;) {
        const mn_kv_state *s = &q->states[i];
        if (i + 1 < q->n_states && (!is_marked(kv, q, s->position) || info[s->page].node >= 0))
            drop_state(kv, q, i);
    }
    while (q->n_states >= MN_KV_STATES)
        drop_state(kv, q, least_missed(q));
}

/* ---- pages -----------------------------------------------------------------------------------
 * */
/* As there are two pages for each slot, and a slot that has lost what it could go back to holds two
 * at most, there is room in the end. */
bool mn_state_room(mn_kv *kv, uint32_t slot) {
    const uint32_t group = (uint32_t)kv->state_group;
    bool room = mn_page_make_room(kv, group, 1);
    while (!room && shed(kv, slot))
        room = mn_page_make_room(kv, group, 1);
    for (uint32_t i = 0; i < kv->n_seq && !room; i++)
        while (!room && shed(kv, i))
            room = mn_page_make_room(kv, group, 1);
    return room;
}

bool mn_state_reserve(mn_kv *kv, uint32_t slot) {
    mn_kv_slot *q = &kv->slots[slot];
    if (kv->state_group < 0 || q->next_state >= 0 || is_free_to_change(kv, q))
        return true;
    if (!mn_state_room(kv, slot))
        return false;
    return mn_page_take(kv, (uint32_t)kv->state_group, &q->next_state);
}

/* ---- steps -----------------------------------------------------------------------------------
 * */
void mn_state_step(mn_kv *kv, uint32_t slot, uint32_t position, uint32_t n, bool literal) {
    mn_kv_slot *q = &kv->slots[slot];
    const uint32_t group = (uint32_t)kv->state_group;
    if (kv->state_group < 0)
        return;
    int32_t *row = mn_tables_row(kv, group, slot);
    const bool changes = is_free_to_change(kv, q);
    prune(kv, q);
    const int32_t from = q->n_states ? q->states[q->n_states - 1].page : -1;
    const uint32_t known = q->n_states ? q->states[q->n_states - 1].literal : 0;
    if (!changes) {
        q->states[q->n_states++] = (mn_kv_state){.page = q->next_state};
        q->next_state = -1;
    }
    mn_kv_state *last = &q->states[q->n_states - 1];
    last->position = position + n;
    last->literal = literal ? position + n : known;
    q->keep_state = false;
    if (row[0] == from && row[1] == last->page)
        return;
    row[0] = from;
    row[1] = last->page;
    mn_tables_changed(kv, group, slot, 0, 2);
}

/* ---- going back ------------------------------------------------------------------------------
 * */
const mn_kv_state *mn_state_at(const mn_kv *kv, uint32_t slot, uint32_t position) {
    const mn_kv_slot *q = &kv->slots[slot];
    for (uint32_t i = q->n_states; i-- > 0;)
        if (q->states[i].position == position)
            return &q->states[i];
    return NULL;
}

uint32_t mn_state_reach(const mn_kv *kv, uint32_t slot, uint32_t n_positions) {
    const mn_kv_slot *q = &kv->slots[slot];
    uint32_t reach = 0;
    if (kv->state_group < 0)
        return n_positions;
    for (uint32_t i = 0; i < q->n_states; i++)
        if (q->states[i].position <= n_positions)
            reach = q->states[i].position;
    return reach;
}

void mn_state_cut(mn_kv *kv, uint32_t slot, uint32_t n_positions) {
    mn_kv_slot *q = &kv->slots[slot];
    if (kv->state_group < 0)
        return;
    while (q->n_states && (!n_positions || q->states[q->n_states - 1].position > n_positions))
        drop_state(kv, q, q->n_states - 1);
    if (q->next_state >= 0)
        mn_page_give(kv, (uint32_t)kv->state_group, q->next_state);
    q->next_state = -1;
    q->keep_state = false;
}

uint32_t mn_state_settle(mn_kv *kv, uint32_t slot, uint32_t n_positions) {
    mn_kv_slot *q = &kv->slots[slot];
    if (kv->state_group < 0 || !kv->engine)
        return n_positions;
    mn_kv_state *last = q->n_states ? &q->states[q->n_states - 1] : NULL;
    if (last && last->position > n_positions && last->literal <= n_positions) {
        /* the slot was done: rows behind n_positions changed nothing, in whatever page they are */
        while (q->n_states > 1 && q->states[q->n_states - 2].position > n_positions)
            drop_state(kv, q, q->n_states - 2);
        q->states[q->n_states - 1].position = n_positions;
    }
    const uint32_t reach = mn_state_reach(kv, slot, n_positions);
    mn_state_cut(kv, slot, reach);
    return reach;
}

void mn_state_begin(mn_kv *kv, uint32_t slot, uint32_t position, int32_t page) {
    mn_kv_slot *q = &kv->slots[slot];
    mn_page_hold(kv, (uint32_t)kv->state_group, page);
    q->states[0] = (mn_kv_state){position, position, page};
    q->n_states = 1;
}

void mn_state_forget(mn_kv *kv, uint32_t slot) {
    mn_kv_slot *q = &kv->slots[slot];
    q->n_states = 0;
    q->next_state = -1;
    q->keep_state = false;
    q->mark = 0;
    q->parts = 0;
}
