/* restore.c -- what of the prefix cache goes to files and comes back, a little in each turn of the
 * loop (kv/files.c), so that sequences that have rows are not held up: bytes are moved for a share
 * of the time since the turn before, at the rate of memory. */
#include "session/steps/steps.h"

#define SAVE_SHARE 0.02
#define LOAD_SHARE 0.1
#define MEMORY_RATE 4.0                  /* bytes per ns */
#define ALONE_BYTES (UINT64_C(64) << 20) /* of a turn in which nobody has rows */
enum { WAIT_NS = 20000000, SURE_TOKENS = 256 };

/* About how long one token of a prompt takes: as steps took so far, else as the device was measured
 * or says. */
static double token_ns(const mn_steps *s) {
    const mn_session_stats *seen = &s->stats;
    int64_t symbols[MN_SYM_COUNT];
    const mn_step_size size = {s->n_batch, 1, 1, s->n_batch, s->n_ctx, 0, 0};
    if (s->pace.row_ns > 0)
        return s->pace.row_ns;
    if (seen->n_prompt >= SURE_TOKENS && seen->prompt_s > 0)
        return seen->prompt_s * 1e9 / (double)seen->n_prompt;
    mn_engine_symbols(s->engine, &size, symbols);
    return (double)mn_engine_step_ns(s->engine, symbols) / s->n_batch;
}

void mn_step_restore(mn_steps *s, uint32_t seq) {
    if (s->kv.files.disk)
        mn_files_load(&s->kv, seq, mn_seq_text(&s->seqs[seq]), token_ns(s));
}

/* The sequence's rows come next: what it did not compute is in the history, too, which penalties
 * read. */
static mn_status end_load(mn_steps *s, uint32_t seq, bool anew, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    if (anew)
        q->n_enqueued = mn_prefix_take(&s->kv, seq, mn_seq_text(q));
    if (q->job && !q->job->n_preempted)
        q->job->n_cached = q->n_enqueued;
    return mn_engine_write_history(s->engine, seq, q->tokens, q->n_enqueued, err);
}

static mn_status load_some(mn_steps *s, uint32_t seq, uint64_t *most, mn_error *err) {
    mn_sequence *q = &s->seqs[seq];
    uint32_t n = 0;
    bool anew = false;
    mn_status st = mn_files_take(&s->kv, seq, mn_seq_text(q), most, &n, &anew, err);
    q->n_enqueued += n;
    if (st || mn_files_loading(&s->kv, seq))
        return st;
    return end_load(s, seq, anew, err);
}

/* Whether a sequence has rows, which are not to be held up. */
static bool any_has_rows(const mn_steps *s) {
    for (uint32_t i = 0; i < s->n_turns; i++)
        if (s->seqs[s->turns[i]].running && !mn_files_loading(&s->kv, s->turns[i]))
            return true;
    return false;
}

static uint64_t share_of(uint64_t ns, double share) {
    return (uint64_t)((double)ns * share * MEMORY_RATE) + 1;
}

mn_status mn_step_move_files(mn_steps *s, mn_error *err) {
    mn_status st = MN_OK;
    if (!s->kv.files.disk)
        return MN_OK;
    const uint64_t ns = mn_files_turn(&s->kv);
    const bool busy = any_has_rows(s);
    uint64_t most = busy ? share_of(ns, LOAD_SHARE) : ALONE_BYTES;
    mn_files_save(&s->kv, busy ? share_of(ns, SAVE_SHARE) : ALONE_BYTES);
    for (uint32_t i = 0; i < s->n_turns && !st; i++)
        if (mn_files_loading(&s->kv, s->turns[i]))
            st = load_some(s, s->turns[i], &most, err);
    return st;
}

bool mn_step_await_files(mn_steps *s) {
    if (!s->kv.files.n_loading)
        return false;
    mn_disk_wait(s->kv.files.disk, WAIT_NS);
    return true;
}
