/* phases.c -- the stages of a step as phases of a team. Between two phases all threads wait for one
 * another, so there are as few as there can be: consecutive stages that are shared out by the same
 * rows, and need of each other nothing but the same row, are one phase, whose parts do one stage
 * after the other for their rows. Stages that are not worth sharing out run one after the other on
 * the thread that comes to them first, between the phases.
 *
 * Which stages go together follows from the shapes of a step (mnc_set.joins), how many parts a
 * phase has from what the phases before it have computed. */
#include "mnc.h"

/* ---- which stages are one phase -------------------------------------------------------------- */
static bool exists(const mn_context *c, uint32_t stage) {
    return stage % 2 == MNC_MAIN || mnc_op_of(c, stage)->first;
}

/* By how many rows the stage is shared out; 0: not by rows, or there is nothing to share. */
static int64_t rows_of(const mn_context *c, uint32_t stage) {
    const mnc_op *op = mnc_op_of(c, stage);
    const mnc_call *call = mnc_call_of(c, stage);
    if (!(op->by_rows >> stage % 2 & 1) || call->in[0].rows < 2)
        return 0;
    if (op->rows && !op->rows(call, stage % 2))
        return 0;
    return call->in[0].rows;
}

/* Bytes that a stage reads or writes. */
typedef struct {
    const uint8_t *at;
    uint64_t bytes;
    int64_t rows; /* that lie in order, one behind the other; 0: not known */
} memory;

static memory memory_of(const mnc_operand *o) {
    return (memory){o->ptr, (uint64_t)(o->rows * o->cols) * 4, o->rows};
}

/* Whether `read` may lie in what `written` names, in other places than the same rows of it. */
static bool meets(const memory *written, const memory *read, int64_t rows) {
    if (!written->at || !read->at)
        return false;
    if (written->at + written->bytes <= read->at || read->at + read->bytes <= written->at)
        return false;
    const bool same = written->at == read->at && written->bytes == read->bytes;
    return !same || written->rows != rows || read->rows != rows;
}

/* Operand i of a stage, inputs, then outputs, then the node's shared scratch. */
static memory operand(const mn_context *c, uint32_t stage, uint32_t i) {
    const mnc_call *call = mnc_call_of(c, stage);
    const uint32_t n_in = call->node->n_in;
    if (i < n_in)
        return memory_of(&call->in[i]);
    if (i < n_in + call->node->n_out)
        return memory_of(&call->out[i - n_in]);
    return (memory){call->shared, mnc_op_of(c, stage)->shared_bytes, 0};
}

/* Whether two stages by the same rows depend on each other by more than the same row: what one
 * writes the other reads or writes. */
static bool depend(const mn_context *c, uint32_t a, uint32_t b, int64_t rows) {
    const mn_node *of_a = mnc_call_of(c, a)->node;
    const mn_node *of_b = mnc_call_of(c, b)->node;
    for (uint32_t i = 0; i <= (uint32_t)of_a->n_in + of_a->n_out; i++)
        for (uint32_t j = 0; j <= (uint32_t)of_b->n_in + of_b->n_out; j++) {
            const memory x = operand(c, a, i);
            const memory y = operand(c, b, j);
            if ((i >= of_a->n_in || j >= of_b->n_in) && meets(&x, &y, rows))
                return true;
        }
    return false;
}

void mnc_join_stages(mn_context *c) {
    bool *joins = c->at->joins;
    uint32_t begin = 0; /* of the phase so far */
    for (uint32_t i = 0; i < mnc_n_stages(c); i++) {
        joins[i] = false;
        if (!exists(c, i))
            continue;
        const int64_t rows = rows_of(c, i);
        bool fits = rows && begin < i && rows_of(c, begin) == rows;
        for (uint32_t j = begin; j < i && fits; j++)
            fits = !exists(c, j) || !depend(c, j, i, rows);
        joins[i] = fits;
        if (!fits)
            begin = i;
    }
}

/* ---- the phases of a step -------------------------------------------------------------------- */
mnc_work mnc_work_of(const mn_context *c, uint32_t stage) {
    const mnc_op *op = mnc_op_of(c, stage);
    if (op->work)
        return op->work(mnc_call_of(c, stage), stage % 2, c->prog->n_workers);
    return (mnc_work){INT64_MAX / 4096, c->prog->n_workers};
}

/* Adds the stage to the phase, if there is anything to do. */
static void add_stage(mn_context *c, uint32_t stage, mnc_work *sum) {
    while (c->notes && c->n_noted <= stage / 2)
        mnc_note_begin(c, c->n_noted++);
    if (!exists(c, stage))
        return;
    const mnc_work work = mnc_work_of(c, stage);
    if (!work.units)
        return;
    c->phase[c->n_phase] = stage;
    c->n_phase++;
    sum->ns += work.ns;
    sum->units = work.units;
}

/* The next phase that has parts; false: there is none, or the queue was aborted. What decides about
 * the parts of a stage may be what the phase before has computed. */
static bool next_phase(mn_context *c) {
    const uint32_t end = mnc_n_stages(c);
    mnc_work sum = {0, 0};
    uint32_t stage = c->next_stage;
    const bool is_first = !stage;
    c->n_phase = 0;
    for (; stage < end; stage++) {
        const bool goes_on = c->at->joins[stage] || !exists(c, stage);
        if (c->n_phase && !goes_on)
            break;
        add_stage(c, stage, &sum);
    }
    c->next_stage = stage;
    c->rows = 0;
    if (c->n_phase > 1) {
        c->rows = rows_of(c, c->phase[0]);
        sum.units = c->rows;
    }
    c->n_parts = mnc_parts(sum, c->prog->n_workers);
    if (!is_first && atomic_load_explicit(&c->queue->aborted, memory_order_relaxed))
        c->stopped = true;
    return c->n_parts && !c->stopped;
}

static void run_stage(mn_context *c, uint32_t stage, mnc_worker *w) {
    const mnc_op *op = mnc_op_of(c, stage);
    const mnc_fn fn = stage % 2 == MNC_FIRST ? op->first : op->fn;
    fn(mnc_call_of(c, stage), w);
}

/* Row after row, so that a stage finds in the cache what the one before it has made. */
static void run_part(mn_context *c, uint32_t part, uint32_t thread) {
    const mn_program *p = c->prog;
    mnc_worker w = {.i = part, .n = c->n_parts, .n_threads = p->n_workers};
    w.scratch = c->scratch + mnc_worker_scratch(p, thread);
    if (!c->rows) {
        run_stage(c, c->phase[0], &w);
        return;
    }
    int64_t lo;
    int64_t hi;
    mnc_range(&w, c->rows, 1, &lo, &hi);
    w.by_rows = true;
    for (int64_t r = lo; r < hi; r++) {
        w.row_lo = r;
        w.row_hi = r + 1;
        for (uint32_t i = 0; i < c->n_phase; i++)
            run_stage(c, c->phase[i], &w);
    }
}

/* Phases of one part run here, where no other part does: only behind what is shared out threads
 * wait for one another. */
static uint32_t open_phase(void *arg, uint32_t phase) {
    mn_context *c = arg;
    if (phase && c->notes)
        mnc_note_phase(c);
    while (next_phase(c)) {
        if (c->n_parts > 1) {
            c->n_barriers++;
            return c->n_parts;
        }
        run_part(c, 0, 0);
        if (c->notes)
            mnc_note_phase(c);
    }
    c->n_phase = 0;
    return 0;
}

static void run_phase(void *arg, uint32_t phase, uint32_t part, uint32_t thread) {
    (void)phase;
    run_part(arg, part, thread);
}

mn_team mnc_phases(mn_context *c) {
    c->stopped = false;
    c->n_noted = 0;
    c->n_barriers = 0;
    c->n_phase = 0;
    c->next_stage = 0;
    return (mn_team){sizeof(mn_team), mnc_n_stages(c) + 1, c, open_phase, run_phase};
}
