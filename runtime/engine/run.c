/* run.c -- an engine at work: steps, slots, pages, logits.
 *
 * All is enqueued, in order, on the queues of the devices; the host waits only where something
 * crosses from one device to another (boundary.c) and in mn_engine_wait. */
#include "engine/engine_impl.h"
#include <string.h>

/* ---- steps ----------------------------------------------------------------------------------- */
static int64_t power_of_two(int64_t n) {
    int64_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

/* plugin.h, mn_estimate.row_grain: powers of two below the grain, its multiples from it on. */
int64_t mn_engine_round(int64_t n, uint32_t grain, int64_t max) {
    int64_t p = power_of_two(n);
    if (grain && p > grain)
        p = (n + grain - 1) / grain * grain;
    return MN_MIN(p, max);
}

/* Rows and sequences of a step with rows of prompts, where devices round at all: of the many sizes
 * that come, few are different to a device that records each one. Rows grow by a sixteenth of a
 * power of two, so that padding costs little; sequences, which cost little, by powers of two. */
static int64_t coarse(const mn_engine *e, int64_t n, uint32_t symbol) {
    const int64_t p = power_of_two(n);
    const int64_t grain = MN_MAX(p / 16, 1);
    for (uint32_t k = 0; k < e->n_segments; k++)
        if (e->segments[k].row_grain == 1)
            return n;
    return symbol == MN_SYM_SEQS ? p : (n + grain - 1) / grain * grain;
}

/* n rows of a SHAPE symbol as the most demanding device wants them; 0 stays 0. */
static int64_t bucket(const mn_engine *e, int64_t n, uint32_t symbol) {
    int64_t most = MN_MIN(n, e->symbol_max[symbol]);
    for (uint32_t k = 0; k < e->n_segments && n; k++) {
        const int64_t rows = mn_engine_round(n, e->segments[k].row_grain, e->symbol_max[symbol]);
        most = MN_MAX(most, rows);
    }
    return most;
}

bool mn_engine_rounds(const mn_engine *e) {
    for (uint32_t k = 0; k < e->n_segments; k++)
        if (e->segments[k].row_grain == 1)
            return false;
    return true;
}

/* Sequences of a step of few rows, as drafts of one are: as many as rows, so that devices take it
 * for a step that draws, not for a prompt. Only devices that round have room for that. */
static int64_t few(const mn_engine *e, const mn_step_size *size, int64_t rows, int64_t seqs) {
    if (size->n_rows > MN_FEW_ROWS || !mn_engine_rounds(e))
        return seqs;
    return MN_MAX(seqs, MN_MIN(rows, e->symbol_max[MN_SYM_SEQS]));
}

void mn_engine_symbols(const mn_engine *e, const mn_step_size *size, int64_t *symbols) {
    enum { MIN_BOUND = 256 };
    const int64_t *max = e->symbol_max;
    const bool single = size->max_rows <= 1;
    memcpy(symbols, max, sizeof e->symbol_max);
    int64_t rows = size->n_rows;
    int64_t seqs = size->n_seqs;
    if (!single) {
        rows = coarse(e, rows, MN_SYM_TOKENS);
        seqs = coarse(e, seqs, MN_SYM_SEQS);
    }
    rows = bucket(e, rows, MN_SYM_TOKENS);
    seqs = bucket(e, seqs, MN_SYM_SEQS);
    if (single)
        seqs = MN_MIN(rows, max[MN_SYM_SEQS]);
    else
        seqs = few(e, size, rows, seqs);
    int64_t outputs = rows;
    if (size->n_out <= seqs)
        outputs = seqs;
    if (!size->n_out)
        outputs = 0;
    const int64_t longest = MN_MAX((int64_t)size->longest, MIN_BOUND);
    symbols[MN_SYM_TEXT] = bucket(e, size->n_text, MN_SYM_TEXT);
    symbols[MN_SYM_TOKENS] = rows;
    symbols[MN_SYM_SEQS] = seqs;
    symbols[MN_SYM_OUTPUTS] = MN_MIN(outputs, max[MN_SYM_OUTPUTS]);
    if (single)
        symbols[MN_SYM_SEQ_ROWS] = 1;
    symbols[MN_SYM_CTX] = mn_engine_round(longest, 0, max[MN_SYM_CTX]);
}

void mn_engine_describe(const mn_engine *e, const mn_step_size *size, int32_t *packed) {
    int32_t *facts = packed + e->in.step;
    memset(facts, 0, MN_STEP_WORDS * sizeof *facts);
    facts[MN_STEP_ROWS] = (int32_t)size->n_rows;
    facts[MN_STEP_OUTPUTS] = (int32_t)size->n_out;
    facts[MN_STEP_SEQS] = (int32_t)size->n_seqs;
}

/* One call, with a copy of its own. */
static mn_status write_copy(const mn_engine_device *d, mn_buffer *b, uint64_t at, const void *src,
                            uint64_t bytes, mn_error *err) {
    memcpy(d->given, src, bytes);
    return d->backend->write(d->queue, b, at, d->given, bytes, err);
}

mn_status mn_engine_write(mn_engine_device *d, mn_buffer *b, uint64_t at, const void *src,
                          uint64_t bytes, mn_error *err) {
    mn_status st;
    if (!mn_grow(&d->given, &d->given_cap, bytes, 1))
        return mn_fail_memory(err, bytes);
    MN_WATCHED_FOR(mn_callee_of(d), "write", MN_MOVES_NS(bytes),
                   MN_RETRY(st, write_copy(d, b, at, src, bytes, err)));
    return st;
}

/* Enqueued: the bytes are in `to`, at `at`, when *done is over. */
static mn_status read_from(const mn_engine_device *d, mn_buffer *from, mn_buffer *to, uint64_t at,
                           uint64_t bytes, mn_event **done, mn_error *err) {
    mn_status st;
    MN_WATCHED_FOR(mn_callee_of(d), "read", MN_MOVES_NS(bytes),
                   MN_RETRY(st, d->backend->read(d->queue, from, 0, to, at, bytes, done, err)));
    return st;
}

mn_status mn_engine_read_output(mn_engine *e, mn_buffer *from, mn_buffer *to, uint64_t at,
                                uint64_t bytes, mn_event **done, mn_error *err) {
    const mn_status st = read_from(mn_engine_output_device(e), from, to, at, bytes, done, err);
    return mn_engine_note(e, mn_engine_output_index(e), st);
}

/* Part of the block. Place `at` of the pinned blocks is free again: the step that used it is
 * complete. */
static mn_status write_range(mn_engine_device *d, const int32_t *inputs, mn_input_range r,
                             uint32_t at, mn_error *err) {
    const uint64_t bytes = r.n * 4ull;
    const uint64_t from = (uint64_t)at * d->in.total + r.at;
    mn_status st;
    if (!d->pinned)
        return mn_engine_write(d, d->inputs, r.at * 4ull, inputs + r.at, bytes, err);
    memcpy(d->pinned_map + from, inputs + r.at, bytes);
    MN_WATCHED_FOR(mn_callee_of(d), "copy", MN_MOVES_NS(bytes),
                   MN_RETRY(st, d->backend->copy(d->queue, d->inputs, r.at * 4ull, d->pinned,
                                                 from * 4, bytes, NULL, err)));
    return st;
}

mn_status mn_engine_write_inputs(mn_engine *e, const mn_engine_step *x, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_devices && !st; i++) {
        mn_engine_device *d = &e->devices[i];
        const mn_input_range whole = {0, d->in.total};
        const bool all = d->packed || !x->n_ranges;
        const mn_input_range *ranges = all ? &whole : x->ranges;
        const uint32_t n = all ? 1 : x->n_ranges;
        if (d->packed)
            mn_inputs_expand(e, d, x->inputs);
        for (uint32_t k = 0; k < n && !st; k++) {
            st = write_range(d, d->packed ? d->packed : x->inputs, ranges[k], x->at, err);
            e->input_bytes += i ? 0 : ranges[k].n * 4ull;
        }
        mn_engine_note(e, i, st);
    }
    return st;
}

/* All segments but the last one. */
static mn_status run_before_last(mn_engine *e, const mn_engine_step *x, mn_error *err) {
    mn_status st = MN_OK;
    mn_stream_begin(e, x);
    for (uint32_t k = 0; k + 1 < e->n_segments && !st; k++) {
        mn_engine_segment *s = &e->segments[k];
        if (mn_stream_has(e, k)) {
            st = mn_stream_run(e, k, x, err);
            continue;
        }
        st = mn_boundary_move(e, k, x->symbols, err);
        if (!st)
            st = mn_engine_segment_execute(e, s, x, s->is_mapped ? &s->done : NULL, err);
        if (!st)
            st = mn_boundary_fetch(e, k, x->symbols, err);
    }
    if (!st)
        st = mn_boundary_move(e, e->n_segments - 1, x->symbols, err);
    mn_stream_end(e);
    if (st)
        mn_boundary_drop(e);
    return st;
}

/* The rest of the step that has begun: SAMPLE, or the whole last segment. */
static mn_status run_last(mn_engine *e, const mn_engine_step *x, mn_event **done, mn_error *err) {
    mn_engine_segment *last = &e->segments[e->n_segments - 1];
    if (!mn_engine_in_parts(x))
        return mn_engine_segment_execute(e, last, x, done, err);
    return mn_engine_context_execute(e, &e->parts->sample, e->programs[x->run].context,
                                     MN_SET_PLAIN, x, done, err);
}

mn_status mn_engine_begin(mn_engine *e, const mn_engine_step *x, mn_error *err) {
    mn_status st = MN_OK;
    e->n_units = 0;
    if (x->inputs)
        e->step_rows = (uint32_t)x->inputs[e->in.step + MN_STEP_ROWS];
    if (x->inputs)
        st = mn_engine_write_inputs(e, x, err);
    if (!st)
        st = mn_engine_write_hidden(e, x, err);
    if (!st && e->n_segments > 1)
        st = run_before_last(e, x, err);
    if (st || !mn_engine_in_parts(x) || !e->parts->front.context)
        return st;
    const mn_engine_segment *front = &e->parts->front;
    return mn_engine_context_execute(e, front, front->context, MN_SET_PLAIN, x, NULL, err);
}

mn_status mn_engine_finish(mn_engine *e, const mn_engine_step *x, mn_event **event, mn_error *err) {
    const uint64_t n = (uint64_t)x->symbols[MN_SYM_OUTPUTS] * 4;
    const uint64_t row = (uint64_t)e->symbol_max[MN_SYM_OUTPUTS] * 4;
    const mn_engine_device *d = mn_engine_output_device(e);
    const bool draws = n && !e->graph->embeds;
    mn_event *done = NULL;
    const bool more = draws || mn_engine_tells(e, x);
    mn_status st = run_last(e, x, more ? NULL : &done, err);
    if (!st)
        st = mn_engine_read_hidden(e, x, draws ? NULL : &done, err);
    const bool scores = draws && (x->run >= MN_RUN_SCORES || x->n_sampler_rows);
    if (!st)
        st = mn_sampler_draw(e, x, err);
    if (!st && draws)
        st = mn_engine_read_output(e, d->at[e->graph->io.ids], e->ids_host, x->at * row, n,
                                   scores ? NULL : &done, err);
    if (!st && scores)
        st = mn_engine_read_scores(e, x, &done, err);
    if (!st)
        *event = done;
    return st;
}

mn_status mn_engine_submit(mn_engine *e, const mn_engine_step *x, mn_event **event, mn_error *err) {
    const mn_status st = mn_engine_begin(e, x, err);
    return st ? st : mn_engine_finish(e, x, event, err);
}

uint64_t mn_engine_step_ns(const mn_engine *e, const int64_t symbols[MN_SYM_COUNT]) {
    uint64_t sum = 0;
    for (uint32_t k = 0; k < e->n_segments; k++)
        sum += mn_engine_segment_ns(&e->segments[k], symbols);
    return sum;
}

mn_call *mn_engine_await(const mn_engine *e, uint64_t expected_ns) {
    return mn_call_begin(mn_callee_of(mn_engine_output_device(e)), "wait", expected_ns);
}

mn_status mn_engine_wait(mn_engine *e, mn_event **event, uint64_t timeout_ns, mn_error *err) {
    if (!*event)
        return MN_OK;
    mn_status st = mn_engine_output_device(e)->backend->wait(*event, timeout_ns, err);
    if (MN_STATUS_CLASS(st) == MN_CLASS_TRANSIENT)
        return MN_TIMEOUT;
    mn_engine_drop(e, event);
    return mn_engine_note(e, mn_engine_output_index(e), st);
}

void mn_engine_drop(mn_engine *e, mn_event **event) {
    if (*event)
        mn_engine_output_device(e)->backend->event_free(*event);
    *event = NULL;
}

const int32_t *mn_engine_ids(const mn_engine *e, uint32_t at) {
    return e->ids_map + (uint64_t)at * (uint64_t)e->symbol_max[MN_SYM_OUTPUTS];
}

const char *mn_engine_logits_name(const mn_engine *e) {
    return e->devices[e->logits_device].record->name;
}

bool mn_id_exists(const mn_engine *e, int32_t id) {
    return id >= 0 && id < e->graph->hp.n_vocab;
}

static mn_status fail_id(mn_engine *e, int32_t id, const char *what, mn_error *err) {
    const mn_status st =
        mn_fail(err, MN_DEVICE_LOST, "%s %s %d of %lld", mn_engine_output_device(e)->record->name,
                what, id, (long long)e->graph->hp.n_vocab);
    return mn_engine_note(e, mn_engine_output_index(e), st);
}

mn_status mn_engine_check_output(mn_engine *e, uint32_t at, uint32_t i, bool scores,
                                 mn_error *err) {
    const int32_t id = mn_engine_ids(e, at)[i];
    if (!mn_id_exists(e, id) && id != MN_ID_NONE && id != MN_ID_NAN)
        return fail_id(e, id, "drew id", err);
    if (!scores)
        return MN_OK;
    const mn_score score = mn_engine_score(e, at, i);
    for (uint32_t k = 0; k < MN_MAX_TOP_LOGPROBS; k++)
        if (!mn_id_exists(e, score.top_ids[k]) && score.top_ids[k] != MN_ID_NONE)
            return fail_id(e, score.top_ids[k], "names as likely id", err);
    return MN_OK;
}

/* ---- state ----------------------------------------------------------------------------------- */
/* Into state of the slots, which the device of the last segment has. */
mn_status mn_engine_write_output(mn_engine *e, mn_buffer *b, uint64_t at, const void *src,
                                 uint64_t n, mn_error *err) {
    mn_engine_device *d = mn_engine_output_device(e);
    const mn_status st = mn_engine_write(d, b, at, src, n, err);
    return mn_engine_note(e, mn_engine_output_index(e), st);
}

mn_status mn_engine_reset_slot(mn_engine *e, uint32_t slot, const mn_slot *state,
                               const mn_slot_params *params, mn_error *err) {
    const mn_engine_device *d = mn_engine_output_device(e);
    const uint64_t at = slot * sizeof *state;
    const uint64_t params_at = slot * sizeof *params;
    mn_status st = mn_engine_write_output(e, d->slots, at, state, sizeof *state, err);
    if (st)
        return st;
    return mn_engine_write_output(e, d->params, params_at, params, sizeof *params, err);
}

mn_status mn_engine_write_history(mn_engine *e, uint32_t slot, const int32_t *ids, uint32_t n,
                                  mn_error *err) {
    const uint64_t row = (uint64_t)e->symbol_max[MN_SYM_CTX] * 4;
    if (!n)
        return MN_OK;
    const mn_engine_device *d = mn_engine_output_device(e);
    return mn_engine_write_output(e, d->history, slot * row, ids, n * 4ull, err);
}

/* One call: the layout and the page are copies of its own. */
static mn_status copy_own_page(const mn_engine_device *d, uint32_t group, mn_page_copy page,
                               mn_error *err) {
    const mn_memory_layout layout = d->kv[group];
    return d->backend->memory_copy(d->queue, d->pages_kv[group], &layout, &page, 1, sizeof page,
                                   NULL, err);
}

/* On one device: one of the caller's pages is `ratio` of the device's. */
static mn_status copy_page_of(mn_engine *e, uint32_t device, uint32_t group, mn_page_copy c,
                              mn_error *err) {
    const mn_engine_device *d = &e->devices[device];
    const uint32_t ratio = mn_page_ratio(e, d, group);
    const uint32_t per = d->kv[group].page_tokens;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < ratio && i * per < c.n_tokens && !st; i++) {
        const mn_page_copy own = {
            .src_page = c.src_page * ratio + i,
            .dst_page = c.dst_page * ratio + i,
            .n_tokens = MN_MIN(per, c.n_tokens - i * per),
        };
        MN_WATCHED_FOR(mn_callee_of(d), "memory_copy", MN_MOVES_NS(0),
                       MN_RETRY(st, copy_own_page(d, group, own, err)));
    }
    return mn_engine_note(e, device, st);
}

mn_status mn_engine_copy_page(mn_engine *e, uint32_t group, mn_page_copy copy, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_devices && !st; i++)
        if (e->devices[i].pages_kv[group])
            st = copy_page_of(e, i, group, copy, err);
    return st;
}

/* ---- logits ---------------------------------------------------------------------------------- */
/* The second set of bindings, of the segments on the device that makes the logits. */
static mn_status bind_logits(mn_engine *e, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->n_segments && !st; i++)
        if (e->segments[i].device == e->logits_device)
            st = mn_engine_segment_bind(e, &e->segments[i], MN_SET_LOGITS, MN_SET_LOGITS, err);
    return st;
}

/* Memory for the logits, here and on the device, and the bindings with it; once per engine. */
static mn_status allocate_logits(mn_engine *e, mn_error *err) {
    const uint32_t at = e->logits_device;
    mn_engine_device *d = &e->devices[at];
    const uint64_t n_rows = (uint64_t)e->symbol_max[MN_SYM_OUTPUTS];
    const uint64_t bytes = n_rows * (uint64_t)mn_graph_row_width(e->graph) * 4;
    mn_buffer **here = &e->logits_host;
    mn_buffer **there = &d->at[mn_graph_rows(e->graph)];
    mn_status st = MN_OK;
    if (!*here)
        st = mn_engine_alloc(e, at, bytes, MN_MEM_HOST_PINNED | MN_UNZEROED, here, err);
    if (!st && !e->logits_map) {
        st = d->backend->map(*here, (void **)&e->logits_map, err);
        mn_engine_note(e, at, st);
    }
    if (st || e->logits_crosses)
        return st;
    if (!*there)
        st = mn_engine_alloc(e, at, bytes, MN_MEM_DEVICE | MN_UNZEROED, there, err);
    if (st)
        return st;
    return bind_logits(e, err);
}

mn_status mn_engine_make_logits(mn_engine *e, mn_error *err) {
    const mn_status st = e->logits_made ? MN_OK : allocate_logits(e, err);
    e->logits_made = !st;
    return st;
}

mn_status mn_engine_logits(mn_engine *e, uint32_t n_rows, const float **rows, mn_error *err) {
    mn_engine_device *d = &e->devices[e->logits_device];
    mn_event *done = NULL;
    mn_buffer *logits = d->at[mn_graph_rows(e->graph)];
    const uint64_t bytes = (uint64_t)n_rows * (uint64_t)mn_graph_row_width(e->graph) * 4;
    mn_status st = read_from(d, logits, e->logits_host, 0, bytes, &done, err);
    if (!st)
        st = mn_event_settle(d->backend, mn_callee_of(d), MN_MOVES_NS(bytes), &done, err);
    *rows = e->logits_map;
    return mn_engine_note(e, e->logits_device, st);
}
