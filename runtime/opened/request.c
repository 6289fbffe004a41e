/* request.c -- sizes, class and devices of a session: its parameters, the configuration, the model,
 * then defaults, in this order. One place for sessions and for explanations, so that the second
 * says what the first would do. */
#include "opened/opened.h"
#include <string.h>

enum {
    DEFAULT_CTX = 4096,
    DEFAULT_BATCH = 512,
    WIDE_BATCH = 2048,
    LOGITS_BATCH = 64,
    SUMS_BATCH = 128,
    MAX_SEQ = 4096
};
enum { ENCODER_TEXTS = 64, DECODER_TEXTS = 4 };
enum { SCORED_ROWS = 15 };
#define DRAFTING 4u /* sequences of one step that can have all their drafts */
enum { MAX_AHEAD = 256, AHEAD_ASYNC = 8 };

/* The first that says something; 0 = none does. */
static uint32_t size_of(uint32_t given, const mn_config *cfg, const char *name) {
    return given ? given : (uint32_t)mn_config_get_int(cfg, name);
}

static void set_sizes(const mn_config *cfg, const mn_hparams *hp, const mn_session_params *p,
                      mn_request *r) {
    const int64_t trained = hp->n_ctx_train;
    const bool embeds = p->flags & MN_SESSION_EMBED;
    const bool sums = p->flags & MN_SESSION_INPUT_SUMS;
    const bool logits = !embeds && (sums || p->flags & MN_SESSION_NO_SAMPLING);
    r->n_ctx = size_of(p->n_ctx, cfg, "context");
    if (!r->n_ctx)
        r->n_ctx = trained ? (uint32_t)MN_MIN(trained, DEFAULT_CTX) : DEFAULT_CTX;
    r->n_batch = size_of(p->n_batch, cfg, "batch");
    if (!r->n_batch && !logits && !embeds)
        r->n_batch_wide = WIDE_BATCH;
    if (!r->n_batch && sums)
        r->n_batch = SUMS_BATCH;
    if (!r->n_batch)
        r->n_batch = logits ? LOGITS_BATCH : DEFAULT_BATCH;
    const bool whole = hp->n_encoder || (embeds && hp->bidirectional);
    if (whole && !p->n_batch) /* a text is not split */
        r->n_batch = MN_MAX(r->n_batch, r->n_ctx);
    r->n_seq = MN_MAX(p->n_seq, 1u);
    if (embeds && !p->n_seq)
        r->n_seq = MN_MIN(hp->bidirectional ? ENCODER_TEXTS : DECODER_TEXTS, r->n_batch);
    r->n_batch = MN_MAX(r->n_batch, r->n_seq);
    r->n_outputs = r->n_seq;
    if (logits || embeds)
        r->n_outputs = r->n_batch;
    else /* for logprobs of prompts, and text that constraints force, beside those that draw */
        r->n_outputs = MN_MIN(r->n_seq + SCORED_ROWS, r->n_batch);
    if (p->draft || p->guess || p->speculate)
        r->n_outputs = MN_MIN(r->n_seq + MN_MIN(r->n_seq, DRAFTING) * MN_MAX_DRAFT, r->n_batch);
}

/* Errors name the number and the most that is possible; a context beyond what the model was trained
 * for is a warning. */
static mn_status check_sizes(const mn_hparams *hp, const mn_request *r, mn_error *err) {
    const int64_t trained = hp->n_ctx_train;
    if (r->n_seq > MAX_SEQ)
        return mn_fail(err, MN_BAD_INPUT, "%u sequences at once; at most %d", r->n_seq, MAX_SEQ);
    if (r->n_ctx > 1u << 24 || r->n_batch > 1u << 16)
        return mn_fail(err, MN_BAD_INPUT, "a context of %u and a batch of %u are out of range",
                       r->n_ctx, r->n_batch);
    if (hp->n_pos && r->n_ctx > hp->n_pos)
        return mn_fail(err, MN_BAD_INPUT,
                       "a context of %u; the model has learned %lld positions and can have no more",
                       r->n_ctx, (long long)hp->n_pos);
    if (trained && r->n_ctx > trained && hp->rope_scaling == MN_ROPE_SCALING_DYNAMIC)
        return mn_fail(err, MN_UNSUPPORTED,
                       "a context of %u: with rope scaling \"dynamic\" the angles of all positions "
                       "change beyond the "
                       "model's %lld; expected at most %lld",
                       r->n_ctx, (long long)trained, (long long)trained);
    if (trained && r->n_ctx > trained)
        mn_log(MN_LOG_WARN,
               "the context of %u is longer than the %lld positions the model was trained for",
               r->n_ctx, (long long)trained);
    return MN_OK;
}

/* The class by the name that minerva.ini has. */
static uint32_t configured_precision(const mn_config *cfg) {
    static const char *const names[] = {"auto", "exact", "a16", "a8"};
    const char *set = mn_config_get_str(cfg, "precision");
    for (uint32_t i = 0; i < MN_COUNT(names); i++)
        if (!strcmp(names[i], set))
            return i;
    return MN_PRECISION_AUTO;
}

/* Numbers that nothing has; what no device offers is negotiated. */
static mn_status check_kinds(const mn_session_params *p, mn_error *err) {
    mn_dtype type;
    if (p->precision > MN_PRECISION_A8)
        return mn_fail(err, MN_INVALID,
                       "mn_session_params.precision: found %u, expected MN_PRECISION_AUTO (0) to "
                       "MN_PRECISION_A8 (%u)",
                       p->precision, MN_PRECISION_A8);
    if (p->k_dtype && !mn_dtype_by_id(p->k_dtype, &type))
        return mn_fail(err, MN_INVALID, "mn_session_params.k_dtype: found %u, no data type",
                       p->k_dtype);
    if (p->v_dtype && !mn_dtype_by_id(p->v_dtype, &type))
        return mn_fail(err, MN_INVALID, "mn_session_params.v_dtype: found %u, no data type",
                       p->v_dtype);
    return MN_OK;
}

/* Where weights are to be. */
static mn_status set_places(const mn_config *cfg, const mn_session_params *p, mn_request *r,
                            mn_error *err) {
    const int64_t n = mn_config_get_int(cfg, "n_cpu_moe");
    const char *memory = mn_config_get_str(cfg, "device_memory");
    r->n_cpu_moe = p->n_cpu_moe;
    if (!p->n_cpu_moe && n >= 0)
        r->n_cpu_moe = n ? (uint32_t)n : MN_CPU_MOE_NONE;
    const int64_t n_first = mn_config_get_int(cfg, "n_gpu_experts");
    r->n_gpu_experts = p->n_gpu_experts;
    if (!p->n_gpu_experts && n_first >= 0)
        r->n_gpu_experts = n_first ? (uint32_t)n_first : MN_GPU_EXPERTS_NONE;
    if (r->n_cpu_moe && r->n_gpu_experts && r->n_gpu_experts != MN_GPU_EXPERTS_NONE)
        return mn_fail(err, MN_BAD_INPUT,
                       "n_cpu_moe is %u and n_gpu_experts %u: expected one of them", r->n_cpu_moe,
                       r->n_gpu_experts);
    const int64_t n_rows = mn_config_get_int(cfg, "stream_experts");
    if (n_rows >= 0)
        r->stream_rows = n_rows ? (uint32_t)n_rows : MN_EXPERTS_NONE;
    r->tensor_devices =
        p->tensor_devices ? p->tensor_devices : mn_config_get_str(cfg, "tensor_devices");
    r->device_memory = p->device_memory;
    if (r->device_memory || !*memory)
        return MN_OK;
    if (!mn_parse_bytes(mn_str_of(memory), &r->device_memory) || !r->device_memory)
        return mn_fail(err, MN_BAD_INPUT,
                       "device_memory: found \"%s\", expected a number of bytes, as in 20GiB",
                       memory);
    return MN_OK;
}

mn_status mn_request_make(const mn_model *m, const mn_model_graph *g,
                          const mn_session_params *params, mn_request *r, mn_error *err) {
    const mn_config *cfg = m->rt->config;
    mn_session_params p = {.size = sizeof p};
    mn_status st = mn_args_take(MN_SIZED_SESSION_PARAMS, &p, params, err);
    if (!st)
        st = mn_args_flags(err, "mn_session_params.flags", p.flags,
                           MN_SESSION_NO_SAMPLING | MN_SESSION_EMBED | MN_SESSION_NO_CACHE |
                               MN_SESSION_INPUT_SUMS | (g->head ? MN_SESSION_HEAD : 0));
    if (!st)
        st = check_kinds(&p, err);
    if (!st && p.flags & MN_SESSION_INPUT_SUMS && m->canonical->orders)
        st = mn_fail(err, MN_INVALID,
                     "%s: its experts stand in the order of their use; expected a model that was "
                     "opened without the setting expert_counts to sum up inputs of",
                     m->canonical->path);
    if (st)
        return st;
    *r = (mn_request){.devices = p.device ? p.device : mn_config_get_str(cfg, "device"),
                      .precision = p.precision ? p.precision : configured_precision(cfg),
                      .k_dtype = p.k_dtype,
                      .v_dtype = p.v_dtype,
                      .kv_bytes = p.kv_bytes,
                      .run_ahead = p.run_ahead ? MN_MIN(p.run_ahead, MAX_AHEAD) : AHEAD_ASYNC,
                      .held = m->held,
                      .threads = mn_pool_workers(m->rt->pool)};
    if (!mn_config_get_bool(cfg, "probe_cache"))
        r->flags |= MN_REQUEST_MEASURE;
    if (mn_config_get_bool(cfg, "strict"))
        r->flags |= MN_REQUEST_STRICT;
    if (p.run_ahead)
        r->flags |= MN_REQUEST_AHEAD;
    if (!r->devices || !*r->devices)
        r->devices = "auto";
    if (m->rt->ranked)
        r->devices = m->rt->ranked->name;
    set_sizes(cfg, &g->hp, &p, r);
    st = set_places(cfg, &p, r, err);
    if (st)
        return st;
    if (m->rt->ranks)
        r->n_batch_wide = 0; /* one size for all ranks */
    return check_sizes(&g->hp, r, err);
}
