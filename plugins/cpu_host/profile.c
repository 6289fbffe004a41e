/* profile.c -- mn.profile/1 of the CPU plugins: a step as execute runs it, with the time of every
 * call. phases.c notes how long each phase took, and before a call that works on the cache how
 * many positions that will be: row positions lie in the arena and may be gone when the
 * step is over. Bytes and operations are arithmetic over the operands' sizes in this step.
 *
 * The notes belong to the context while mn_profile.execute runs; c->notes is NULL otherwise. */
#include "mnc.h"

/* Which positions the rows of one sequence of SEQS see. pos: [rows] of these rows, ascending. */
static void note_sequence(const mnc_call *c, const int32_t *pos, int32_t rows, mnc_note *to) {
    const int64_t window = mnc_attr_int(c, MN_ATTENTION_ATTR_WINDOW);
    const bool both_ways = mnc_attr_int(c, MN_ATTENTION_ATTR_BIDIRECTIONAL);
    int64_t lowest = INT64_MAX;
    int64_t end = 0;
    for (int32_t r = 0; r < rows; r++)
        end = pos[r] + 1 > end ? pos[r] + 1 : end;
    for (int32_t r = 0; r < rows; r++) {
        const int64_t at = pos[r];
        int64_t lo = 0;
        if (window > 0 && at >= window)
            lo = at - window + 1;
        int64_t hi = end;
        if (!both_ways)
            hi = at + 1;
        if (at < 0)
            continue;
        if (both_ways && window > 0 && at + window < hi)
            hi = at + window;
        lowest = lo < lowest ? lo : lowest;
        to->pairs += (uint64_t)(hi - lo);
    }
    if (lowest < end)
        to->positions += (uint64_t)(end - lowest);
}

static void note_attention(const mnc_call *c, mnc_note *to) {
    const int32_t *pos = c->in[MN_ATTENTION_ROW_POS].ptr;
    const mnc_operand *seqs = &c->in[MN_ATTENTION_SEQS];
    const int32_t *seq = seqs->ptr;
    const int64_t rows = c->in[MN_ATTENTION_ROW_POS].rows;
    for (int64_t i = 0; i < seqs->rows; i++, seq += 4) {
        const int32_t first = seq[0];
        const int32_t n = seq[1];
        if (first >= 0 && n > 0 && first < rows && n <= rows - first)
            note_sequence(c, pos + first, n, to);
    }
}

static void note_store(const mnc_call *c, mnc_note *to) {
    const int32_t *pos = c->in[MN_KV_STORE_ROW_POS].ptr;
    for (int64_t r = 0; r < c->in[MN_KV_STORE_ROW_POS].rows; r++)
        to->positions += pos[r] >= 0;
}

static uint64_t cpu_profile_now_ns(const mn_context *c) {
    const mn_host *h = c->prog->dev->plugin->host;
    return h->now_ns(h->self);
}

/* Before active call k: what it will see of the cache. */
void mnc_note_begin(mn_context *c, uint32_t k) {
    const mnc_call *call = &c->at->calls[c->at->active[k]];
    mnc_note *to = &c->notes[k];
    *to = (mnc_note){0};
    if (!k)
        c->noted_ns = cpu_profile_now_ns(c);
    if (call->node->op == MN_OP_ATTENTION)
        note_attention(call, to);
    if (call->node->op == MN_OP_KV_STORE)
        note_store(call, to);
}

/* The time of a phase belongs to the calls of its stages in proportion to their work. */
void mnc_note_phase(mn_context *c) {
    const uint64_t now = cpu_profile_now_ns(c);
    const double passed = (double)(now - c->noted_ns);
    double sum = 0;
    for (uint32_t i = 0; i < c->n_phase; i++)
        sum += (double)mnc_work_of(c, c->phase[i]).ns + 1;
    for (uint32_t i = 0; i < c->n_phase; i++) {
        const double share = ((double)mnc_work_of(c, c->phase[i]).ns + 1) / sum;
        c->notes[c->phase[i] / 2].time_ns += (uint64_t)(passed * share);
    }
    c->noted_ns = now;
}

/* ---- bytes and operations -------------------------------------------------------------------- */
/* Rows that one execution multiplies with a weight: each row of X, or of MOE_LINEAR each expert of
 * each row. */
static uint64_t rows_of_weight(const mnc_call *c) {
    const mnc_operand *x = &c->in[0];
    if (c->node->op != MN_OP_MOE_LINEAR)
        return (uint64_t)x->rows;
    return (uint64_t)x->rows * (uint64_t)c->in[MN_MOE_LINEAR_EXPERTS].cols;
}

/* Bytes of a weight that are read: all of it; of a table or of experts what the rows ask for. */
static uint64_t cpu_profile_weight_bytes(const mnc_call *c, const mnc_weight *w) {
    const uint64_t all = (uint64_t)w->rows * w->row_bytes;
    uint64_t asked = all;
    if (mnp_reads_rows(c->node->op))
        asked = (uint64_t)c->in[0].rows * w->row_bytes;
    if (c->node->op == MN_OP_MOE_LINEAR && w->groups)
        asked = rows_of_weight(c) * (uint64_t)w->group_rows * w->row_bytes;
    if (asked < all)
        return asked;
    return all;
}

/* Two operations per element of a matrix and row of X; vectors, tables and norms count nothing. */
static uint64_t weight_flop(const mnc_call *c, const mnc_weight *w) {
    const bool experts = c->node->op == MN_OP_MOE_LINEAR;
    if (!experts && c->node->op != MN_OP_LINEAR)
        return 0;
    if (w->rows <= 1)
        return 0;
    int64_t n;
    if (experts && w->groups)
        n = w->group_rows;
    else
        n = w->rows;
    return 2 * rows_of_weight(c) * (uint64_t)n * (uint64_t)w->cols;
}

/* Activations and ids have 4 bytes. */
static uint64_t operand_bytes(const mnc_operand *o) {
    if (o->ptr)
        return (uint64_t)o->rows * (uint64_t)o->cols * 4;
    return 0;
}

/* Of an input that is no weight. Of the slots' state, the cache and the page tables few rows are
 * read: they do not count here. */
static uint64_t input_bytes(const mn_graph *g, const mnc_call *c, uint32_t i) {
    const mn_tensor *t = mnp_in_tensor(g, c->node, i);
    if (!t || t->role == MN_ROLE_STATE)
        return 0;
    if (c->node->op == MN_OP_ATTENTION && i == MN_ATTENTION_PAGES)
        return 0;
    if (c->node->op == MN_OP_KV_STORE && i == MN_KV_STORE_PAGES)
        return 0;
    if (c->node->op == MN_OP_GATHER_ROWS && i == MN_GATHER_ROWS_X)
        return operand_bytes(&c->out[MN_GATHER_ROWS_OUT_Y]);
    return operand_bytes(&c->in[i]);
}

/* The cache's part of ATTENTION and KV_STORE: a sequence's positions are read once for all of its
 * rows. */
static void count_cache(const mnc_call *c, const mnc_note *seen, mn_profile_unit *u) {
    const mnp_kv *kv = &c->kv.geo;
    const int64_t of_head = kv->k_row + (kv->v_offset ? kv->v_row : 0);
    u->bytes += seen->positions * (uint64_t)(kv->n_head_kv * of_head);
    if (c->node->op != MN_OP_ATTENTION)
        return;
    const int64_t n_head = c->in[MN_ATTENTION_Q].dim[1];
    const int64_t of_pair = n_head * (kv->dim_k + kv->dim_v);
    u->flop += 2 * seen->pairs * (uint64_t)of_pair;
}

static void count_work(const mn_graph *g, const mnc_call *c, const mnc_note *seen,
                       mn_profile_unit *u) {
    const uint32_t op = c->node->op;
    for (uint32_t i = 0; i < c->node->n_in; i++) {
        const mnc_weight *w = c->in[i].weight;
        u->bytes += w ? cpu_profile_weight_bytes(c, w) : input_bytes(g, c, i);
        u->flop += w ? weight_flop(c, w) : 0;
    }
    for (uint32_t i = 0; i < c->node->n_out; i++)
        u->bytes += operand_bytes(&c->out[i]);
    if (op == MN_OP_ATTENTION || op == MN_OP_KV_STORE)
        count_cache(c, seen, u);
}

/* ---- the table ------------------------------------------------------------------------------- */
/* The i-th active call, as a unit; what it does of the one before is its own. */
static mn_profile_unit cpu_profile_unit_of(const mn_context *c, const mnc_set *s, uint32_t i) {
    const mn_program *p = c->prog;
    const uint32_t step = s->active[i];
    const mnc_call *call = &s->calls[step];
    const mnc_note *own = &c->notes[i];
    mn_profile_unit u = {.node = p->steps[step].node, .n_nodes = 1};
    u.time_ns = own->time_ns;
    if (!mnc_taken(c, i))
        count_work(p->graph, call, own, &u);
    if (i && mnc_taken(c, i - 1))
        count_work(p->graph, call->maker, own, &u);
    strncpy(u.name, mnp_op_name(call->node->op), sizeof u.name - 1);
    return u;
}

static mn_status profile(mn_context *c, const mn_step *in, mn_profile_unit *units, uint32_t stride,
                         uint32_t *n, mn_error *err) {
    mn_device *d = c->prog->dev;
    const uint32_t room = *n;
    mn_step step;
    mn_status st = mnp_read_step(in, &step, err);
    if (st)
        return st;
    if (step.set >= c->prog->n_sets || !c->sets[step.set].bound)
        return mnp_fail(err, MN_INVALID, ~0u, "profile before context_bind");
    const mnc_set *s = &c->sets[step.set];
    *n = s->n_active;
    if (!units)
        return MN_OK;
    const uint64_t bytes = s->n_active * sizeof *c->notes;
    c->notes = mnc_new(d, bytes);
    if (!c->notes)
        return mnp_fail_memory(err, bytes, "a profile");
    st = mnc_run(c, step.set, step.values, err);
    uint32_t count = room;
    if (s->n_active < room)
        count = s->n_active;
    for (uint32_t i = 0; i < count && !st; i++) {
        const mn_profile_unit u = cpu_profile_unit_of(c, s, i);
        char *to = (char *)units + (uint64_t)i * stride;
        memcpy(to, &u, stride < sizeof u ? stride : sizeof u);
    }
    mnc_delete(d, c->notes);
    c->notes = NULL;
    return st;
}

const mn_profile mnc_profile = {.size = sizeof(mn_profile), .execute = profile};
