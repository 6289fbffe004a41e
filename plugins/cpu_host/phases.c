/* phases.c -- the stages of a step as phases of a team. Between two phases all threads wait for one
 * another, so there are as few as there can be: consecutive stages that need of each other nothing
 * but the same cell, some units of a row, are one phase, whose parts do one stage after the other
 * for their cells. Stages that are not worth sharing out run one after the other on the thread that
 * comes to them first, between the phases.
 *
 * Which stages may go together follows from the shapes of a step (mnc_set.joins); which do, and how
 * many parts a phase has, from what the phases before it have computed. */
#include "mnc.h"

/* ---- which stages are one phase -------------------------------------------------------------- */
/* Whether the stage's node does what its maker would do. */
static bool takes(const mn_context *c, uint32_t stage) {
    const mnc_call *call = mnc_call_of(c, stage);
    const mnc_op *op = mnc_op_of(c, stage);
    return call->maker && op->takes && op->takes(call);
}

bool mnc_taken(const mn_context *c, uint32_t k) {
    return k + 1 < c->at->n_active && takes(c, 2 * (k + 1));
}

static bool exists(const mn_context *c, uint32_t stage) {
    if (mnc_taken(c, stage / 2))
        return false;
    return stage % 2 == MNC_MAIN || mnc_op_of(c, stage)->first;
}

static bool phases_begins(const mn_context *c, uint32_t stage) {
    return mnc_op_of(c, stage)->begins >> stage % 2 & 1;
}

/* Units of a row; 0: the stage is not in cells. */
static int64_t units_of(const mn_context *c, uint32_t stage) {
    const mnc_op *op = mnc_op_of(c, stage);
    if (!(op->in_cells >> stage % 2 & 1))
        return 0;
    if (op->cells)
        return op->cells(mnc_call_of(c, stage), stage % 2);
    return 1;
}

/* Rows of the stage's cells; 0: it is not in cells, or there is nothing to share. */
static int64_t phases_rows_of(const mn_context *c, uint32_t stage) {
    const int64_t rows = mnc_call_of(c, stage)->in[0].rows;
    if (rows < 2 || !units_of(c, stage))
        return 0;
    return rows;
}

/* Bytes that a stage reads or writes. */
typedef struct {
    const uint8_t *at;
    uint64_t bytes;
    int64_t rows; /* that lie in order, one behind the other; 0: not known */
} memory;

static memory phases_memory_of(const mnc_operand *o) {
    return (memory){o->ptr, (uint64_t)(o->rows * o->cols) * 4, o->rows};
}

/* Whether `read` may lie in what `written` names, in other places than the same cells of it. */
static bool meets(const memory *written, const memory *read, int64_t rows) {
    if (!written->at || !read->at)
        return false;
    if (written->at + written->bytes <= read->at || read->at + read->bytes <= written->at)
        return false;
    const bool same = written->at == read->at && written->bytes == read->bytes;
    return !same || written->rows != rows || read->rows != rows;
}

/* Operand i of a stage, inputs, then outputs, then the result of a maker that the stage fills, then
 * the node's shared scratch. */
static memory phases_operand(const mn_context *c, uint32_t stage, uint32_t i) {
    const mnc_call *call = mnc_call_of(c, stage);
    const uint32_t n_in = call->node->n_in;
    memory in = {0};
    if (i < n_in) {
        in = phases_memory_of(&call->in[i]);
        if (!i && stage % 2 == MNC_FIRST && takes(c, stage))
            in = phases_memory_of(&call->maker->in[0]);
        if (phases_begins(c, stage))
            in.rows = 0;
        return in;
    }
    if (i < n_in + call->node->n_out)
        return phases_memory_of(&call->out[i - n_in]);
    if (i == n_in + call->node->n_out) {
        const bool fills = stage % 2 == MNC_FIRST && takes(c, stage);
        return fills ? phases_memory_of(&call->in[0]) : (memory){0};
    }
    return (memory){call->shared, mnc_op_of(c, stage)->shared_bytes, 0};
}

/* Whether two stages of the same rows depend on each other by more than the same cell: what one
 * writes the other reads or writes. */
static bool depend(const mn_context *c, uint32_t a, uint32_t b, int64_t rows) {
    const mn_node *of_a = mnc_call_of(c, a)->node;
    const mn_node *of_b = mnc_call_of(c, b)->node;
    /* the shared scratch of one node is its own matter */
    const uint32_t more = 1 + (of_a != of_b);
    for (uint32_t i = 0; i < of_a->n_in + of_a->n_out + more; i++)
        for (uint32_t j = 0; j < of_b->n_in + of_b->n_out + more; j++) {
            const memory x = phases_operand(c, a, i);
            const memory y = phases_operand(c, b, j);
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
        const int64_t rows = phases_rows_of(c, i);
        bool fits = rows && begin < i && !phases_begins(c, i) && phases_rows_of(c, begin) == rows;
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

static int64_t phases_common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Whether the stage can be one of several of the phase, with these units of a row: those of whole
 * columns have to keep all threads at work. */
static bool suits(const mn_context *c, uint32_t stage, int64_t n_units) {
    const mnc_op *op = mnc_op_of(c, stage);
    const uint32_t n_threads = c->prog->n_workers;
    if (op->now && !op->now(mnc_call_of(c, stage), n_threads))
        return false;
    return !c->whole || n_units >= (int64_t)n_threads * MNC_GUIDED;
}

/* Adds the stage to the phase, if there is anything to do. False: the phase ends before it. */
static bool add_stage(mn_context *c, uint32_t stage, mnc_work *sum) {
    while (c->notes && c->n_noted <= stage / 2)
        mnc_note_begin(c, c->n_noted++);
    if (!exists(c, stage))
        return true;
    const mnc_work work = mnc_work_of(c, stage);
    int64_t n_units = units_of(c, stage);
    if (!c->n_phase) {
        c->whole = phases_begins(c, stage);
        c->closed = !suits(c, stage, n_units);
    } else {
        n_units = phases_common_divisor(c->n_units, n_units);
        c->closed |= !c->at->joins[stage];
    }
    if (!work.units)
        return true;
    if (c->n_phase && (c->closed || !suits(c, stage, n_units)))
        return false;
    c->n_units = n_units;
    c->phase[c->n_phase] = stage;
    c->n_phase++;
    sum->ns += work.ns;
    sum->units = work.units;
    return true;
}

/* The next phase that has parts; false: there is none, or the queue was aborted. What decides about
 * the parts of a stage may be what the phase before has computed. */
static bool next_phase(mn_context *c) {
    const uint32_t end = mnc_n_stages(c);
    mnc_work sum = {0, 0};
    const bool is_first = !c->next_stage;
    c->n_phase = 0;
    while (c->next_stage < end && add_stage(c, c->next_stage, &sum))
        c->next_stage++;
    if (c->n_phase > 1) {
        c->rows = mnc_call_of(c, c->phase[0])->in[0].rows;
        sum.units = c->whole ? c->n_units : c->rows * c->n_units;
    }
    c->n_parts = mnc_parts(sum, c->prog->n_workers);
    if (!is_first && atomic_load_explicit(&c->queue->aborted, memory_order_relaxed))
        c->stopped = true;
    return c->n_parts && !c->stopped;
}

/* A part may have nothing to do: only one that has counts as the thread's first. */
static void run_stage(mn_context *c, uint32_t stage, mnc_worker *w) {
    const mnc_op *op = mnc_op_of(c, stage);
    c->last[w->thread].phase = c->n_opened;
    const mnc_fn fn = stage % 2 == MNC_FIRST ? op->first : op->fn;
    fn(mnc_call_of(c, stage), w);
}

static void run_cells(mn_context *c, mnc_worker *w) {
    for (uint32_t i = 0; i < c->n_phase; i++)
        run_stage(c, c->phase[i], w);
}

/* Row after row, so that a stage finds in the cache what the one before it has made. */
static void phases_run_rows(mn_context *c, mnc_worker *w) {
    int64_t lo;
    int64_t hi;
    mnc_range(w, c->rows * c->n_units, 1, &lo, &hi);
    w->in_cells = true;
    while (lo < hi) {
        w->row_lo = lo / c->n_units;
        w->row_hi = w->row_lo + 1;
        w->unit_lo = lo % c->n_units;
        w->unit_hi = w->unit_lo + hi - lo;
        if (w->unit_hi > c->n_units)
            w->unit_hi = c->n_units;
        run_cells(c, w);
        lo += w->unit_hi - w->unit_lo;
    }
}

static void phases_run_part(mn_context *c, uint32_t part, uint32_t thread) {
    const mn_program *p = c->prog;
    mnc_worker w = {.i = part, .n = c->n_parts, .n_threads = p->n_workers, .n_units = c->n_units};
    w.n_nodes = c->n_nodes;
    w.scratch = c->scratch + mnc_worker_scratch(p, thread);
    w.thread = thread;
    w.again = c->last[thread].phase == c->n_opened;
    if (c->n_phase == 1) {
        run_stage(c, c->phase[0], &w);
    } else if (!c->whole) {
        phases_run_rows(c, &w);
    } else {
        mnc_range_guided(&w, c->n_units, 1, &w.unit_lo, &w.unit_hi);
        w.in_cells = true;
        w.row_hi = c->rows;
        if (w.unit_lo < w.unit_hi)
            run_cells(c, &w);
    }
}

static void share_by_nodes(mn_context *c) {
    const mnc_numa *numa = c->prog->dev->plugin->numa;
    const bool splits = numa && numa->mode == MNC_NUMA_SPLIT;
    c->n_nodes = 1;
    if (splits && c->n_parts >= numa->n_nodes)
        c->n_nodes = numa->n_nodes;
    for (uint32_t i = 0; i < c->n_nodes; i++)
        atomic_store(&c->n_taken[i], 0);
}

/* Phases of one part run here, where no other part does: only behind what is shared out threads
 * wait for one another. */
static uint32_t phases_open_phase(void *arg, uint32_t phase) {
    mn_context *c = arg;
    if (phase && c->notes)
        mnc_note_phase(c);
    while (next_phase(c)) {
        c->n_opened++;
        if (c->n_parts > 1) {
            c->n_barriers++;
            share_by_nodes(c);
            return c->n_parts;
        }
        c->n_nodes = 1;
        phases_run_part(c, 0, 0);
        if (c->notes)
            mnc_note_phase(c);
    }
    c->n_phase = 0;
    return 0;
}

/* A part that nobody has taken, of the thread's own node as long as there is one. As many calls
 * come here as there are parts. */
static uint32_t take_part(mn_context *c, uint32_t thread) {
    const uint32_t own = mnc_numa_node(c->prog->dev->plugin->numa, thread, c->prog->n_workers);
    uint32_t part = c->n_parts;
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        const uint64_t node = (own + i) % c->n_nodes;
        const uint32_t first = (uint32_t)(node * c->n_parts / c->n_nodes);
        const uint32_t end = (uint32_t)((node + 1) * c->n_parts / c->n_nodes);
        part = first + atomic_fetch_add(&c->n_taken[node], 1);
        if (part < end)
            break;
    }
    return part;
}

static void run_phase(void *arg, uint32_t phase, uint32_t part, uint32_t thread) {
    mn_context *c = arg;
    (void)phase;
    if (c->n_nodes > 1)
        part = take_part(c, thread);
    phases_run_part(c, part, thread);
}

mn_team mnc_phases(mn_context *c) {
    c->stopped = false;
    c->n_noted = 0;
    c->n_barriers = 0;
    c->n_phase = 0;
    c->next_stage = 0;
    return (mn_team){sizeof(mn_team), mnc_n_stages(c) + 1, c, phases_open_phase, run_phase};
}
