/* bad_numbers.c -- the reference plugin with one rule of `minerva plugins check` broken that is
 * about what operations compute: an operand that is not looked at, a state or a page that is
 * another's. BAD_NUMERIC_NAME says which; most wrap a function of the reference plugin
 * (meson.build). */
#include "stub.h"
#include "moves.h"
#include <stdlib.h>
#include <string.h>

#if defined(BAD_NUMERIC_ACT) || defined(BAD_NUMERIC_GLU) || defined(BAD_NUMERIC_LORA) ||           \
    defined(BAD_NUMERIC_SAMPLE) || defined(BAD_NUMERIC_MOE_LINEAR_RESIDENT) ||                     \
    defined(BAD_NUMERIC_PARTS)
#include "reference/reference.h"
#endif
#if defined(BAD_NUMERIC_MOE_LINEAR_RESIDENT) || defined(BAD_NUMERIC_PARTS)
#include "cpu_host/optional.h"
#endif
#if defined(BAD_NUMERIC_SAMPLE_CHAIN)
#include "cpu_host/chain.h"
#endif
#if defined(BAD_NUMERIC_ATTENTION_LENGTHS)
#define BAD_OPERAND MN_ATTENTION_LENGTHS
#elif defined(BAD_NUMERIC_ATTENTION_BIASES)
#define BAD_OPERAND MN_ATTENTION_DISTANCE_BIAS
#elif defined(BAD_NUMERIC_ATTENTION_ANCESTORS)
#define BAD_OPERAND MN_ATTENTION_ANCESTORS
#elif defined(BAD_NUMERIC_ATTENTION_RELATIVE)
#define BAD_OPERAND MN_ATTENTION_RELATIVE_Q
#elif defined(BAD_NUMERIC_EMBED_ROWS)
#define BAD_OPERAND MN_EMBED_ROWS
#elif defined(BAD_NUMERIC_ROPE_AXES)
#define BAD_OPERAND MN_ROPE_AXES
#elif defined(BAD_NUMERIC_ROPE_POS)
#define BAD_OPERAND MN_ROPE_POS
#elif defined(BAD_NUMERIC_MOE_LINEAR_FACTORS)
#define BAD_OPERAND (MN_MOE_LINEAR_WEIGHT + 2 * c->node->n_out)
#elif defined(BAD_NUMERIC_MOE_COMBINE)
#define BAD_OPERAND MN_MOE_COMBINE_RESIDENT
#elif defined(BAD_NUMERIC_MOE_COMBINE_BASE)
#define BAD_OPERAND MN_MOE_COMBINE_BASE
#endif
#if defined(BAD_OPERAND)
#include "reference/reference.h"
#endif
#if defined(BAD_NUMERIC_CONV_STATE) || defined(BAD_NUMERIC_SSM_SCAN) ||                            \
    defined(BAD_NUMERIC_GATED_DELTA)
#define BAD_SEQUENCE
#include "cpu_host/states.h"
#endif

MN_PLUGIN_NOTE("bad", MN_KIND_BACKEND, "");

#if defined(BAD_NUMERIC_SOFTCAP)
double __real_tanh(double x);
double __wrap_tanh(double x);
double __wrap_tanh(double x) {
    return x != x ? 0 : __real_tanh(x); // NaN becomes a number
}
#elif defined(BAD_NUMERIC_ACT)
/* Where xielu's exponential ends is left out. */
extern const ref_op __real_ref_op_act;
static void act(const mnc_call *c, mnc_worker *w) {
    uint64_t attr[MN_ACT_ATTR_EPS + 1] = {0};
    mnc_call own = *c;
    memcpy(attr, c->attr, c->n_attr * sizeof *attr);
    attr[MN_ACT_ATTR_EPS] = 0;
    own.attr = attr;
    __real_ref_op_act.fn(&own, w);
}
extern const ref_op __wrap_ref_op_act;
const ref_op __wrap_ref_op_act = {.fn = act};
#elif defined(BAD_NUMERIC_GLU)
/* LIMIT as fmin(gate, limit) has it: a gate of NaN becomes the limit. A NaN of the other operand
 * hides it. */
extern const ref_op __real_ref_op_glu;
static void glu(const mnc_call *c, mnc_worker *w) {
    const float *gate = c->in[MN_GLU_GATE].ptr, *up = c->in[MN_GLU_UP].ptr;
    float *y = c->out[0].ptr;
    int64_t lo, hi;
    __real_ref_op_glu.fn(c, w);
    mnc_range(w, c->in[0].rows * c->in[0].cols, 16, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        if (mnc_attr_f64(c, MN_GLU_ATTR_LIMIT) > 0 && gate[i] != gate[i])
            y[i] = up[i];
}
static bool glu_fits(const mnc_query *q) {
    return __real_ref_op_glu.fits(q);
}
extern const ref_op __wrap_ref_op_glu;
const ref_op __wrap_ref_op_glu = {.fn = glu, .fits = glu_fits};
#elif defined(BAD_OPERAND)
/* An operand that it claims is not looked at. */
#if defined(BAD_NUMERIC_EMBED_ROWS)
#define REAL_OP __real_ref_op_embed
#define WRAP_OP __wrap_ref_op_embed
#elif defined(BAD_NUMERIC_ROPE_AXES) || defined(BAD_NUMERIC_ROPE_POS)
#define REAL_OP __real_ref_op_rope
#define WRAP_OP __wrap_ref_op_rope
#elif defined(BAD_NUMERIC_MOE_LINEAR_FACTORS)
#define REAL_OP __real_ref_op_moe_linear
#define WRAP_OP __wrap_ref_op_moe_linear
#elif defined(BAD_NUMERIC_MOE_COMBINE) || defined(BAD_NUMERIC_MOE_COMBINE_BASE)
#define REAL_OP __real_ref_op_moe_combine
#define WRAP_OP __wrap_ref_op_moe_combine
#else
#define REAL_OP __real_ref_op_attention
#define WRAP_OP __wrap_ref_op_attention
#endif
extern const ref_op REAL_OP;
extern const ref_op WRAP_OP;
static void less_first(const mnc_call *c, mnc_worker *w) {
    mnc_call own = *c;
    own.in[BAD_OPERAND] = (mnc_operand){.ptr = NULL};
    if (REAL_OP.first)
        REAL_OP.first(&own, w);
}
static void less(const mnc_call *c, mnc_worker *w) {
    mnc_call own = *c;
    own.in[BAD_OPERAND] = (mnc_operand){.ptr = NULL};
    REAL_OP.fn(&own, w);
}
static void less_size(const mnc_query *q, mnc_op *op) {
    if (REAL_OP.size)
        REAL_OP.size(q, op);
}
static uint32_t less_weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    return REAL_OP.weight(q, i, t);
}
static bool less_fits(const mnc_query *q) {
    return REAL_OP.fits(q);
}
const ref_op WRAP_OP = {
    .first = less_first, .fn = less, .size = less_size, .weight = less_weight, .fits = less_fits};
#elif defined(BAD_NUMERIC_MOE_LINEAR_RESIDENT)
/* The list is taken for one of the experts that are not there. */
extern const ref_op __real_ref_op_moe_linear;
static void moe_linear(const mnc_call *c, mnc_worker *w) {
    const uint32_t at = mnp_resident_operand(c->node);
    const int32_t *resident = mnc_optional_ptr(c, at);
    int32_t absent[64];
    mnc_call own = *c;
    for (int64_t e = 0; resident && e < c->in[at].rows; e++)
        absent[e] = !resident[e];
    if (resident)
        own.in[at].ptr = absent;
    __real_ref_op_moe_linear.fn(&own, w);
}
static void moe_linear_size(const mnc_query *q, mnc_op *op) {
    __real_ref_op_moe_linear.size(q, op);
}
static uint32_t moe_linear_weight(const mnc_query *q, uint32_t i, const mn_tensor *t) {
    return __real_ref_op_moe_linear.weight(q, i, t);
}
static bool moe_linear_fits(const mnc_query *q) {
    return __real_ref_op_moe_linear.fits(q);
}
extern const ref_op __wrap_ref_op_moe_linear;
const ref_op __wrap_ref_op_moe_linear = {.fn = moe_linear,
                                         .size = moe_linear_size,
                                         .weight = moe_linear_weight,
                                         .fits = moe_linear_fits};
#elif defined(BAD_NUMERIC_PARTS)
/* BASE is what the sum ends with. */
extern const ref_op __real_ref_op_moe_combine;
static void moe_combine(const mnc_call *c, mnc_worker *w) {
    const float *base = mnc_optional_ptr(c, MN_MOE_COMBINE_BASE);
    float *y = c->out[0].ptr;
    int64_t lo, hi;
    mnc_call own = *c;
    own.in[MN_MOE_COMBINE_BASE].ptr = NULL;
    __real_ref_op_moe_combine.fn(&own, w);
    mnc_range(w, c->in[0].rows * c->in[0].dim[2], 16, &lo, &hi);
    for (int64_t i = lo; base && i < hi; i++)
        y[i] += base[i];
}
static bool moe_combine_fits(const mnc_query *q) {
    return __real_ref_op_moe_combine.fits(q);
}
extern const ref_op __wrap_ref_op_moe_combine;
const ref_op __wrap_ref_op_moe_combine = {.fn = moe_combine, .fits = moe_combine_fits};
#elif defined(BAD_NUMERIC_LORA)
/* A row without an adapter has what the row before it has. */
extern const ref_op __real_ref_op_lora;
static void lora_first(const mnc_call *c, mnc_worker *w) {
    __real_ref_op_lora.first(c, w);
}
static void lora(const mnc_call *c, mnc_worker *w) {
    const int32_t *adapter = c->in[MN_LORA_ADAPTER].ptr;
    const int64_t cols = c->in[MN_LORA_Y].cols;
    float *z = c->out[MN_LORA_OUT_Z].ptr;
    int64_t lo, hi;
    __real_ref_op_lora.fn(c, w);
    mnc_range(w, cols, 1, &lo, &hi);
    for (int64_t r = 1; r < c->in[MN_LORA_Y].rows; r++)
        for (int64_t i = lo; i < hi && adapter[r] == -1; i++)
            z[r * cols + i] = z[(r - 1) * cols + i];
}
static void lora_size(const mnc_query *q, mnc_op *op) {
    __real_ref_op_lora.size(q, op);
}
static bool lora_fits(const mnc_query *q) {
    return __real_ref_op_lora.fits(q);
}
extern const ref_op __wrap_ref_op_lora;
const ref_op __wrap_ref_op_lora = {
    .first = lora_first, .fn = lora, .size = lora_size, .fits = lora_fits};
#elif defined(BAD_SEQUENCE)
/* A state is not carried where all rows are padding; each step begins with the page that it leaves;
 * a page that a sequence begins in is not cleared. */
bool __real_mnc_sequence_at(const mnc_call *c, int64_t i, mnc_sequence *out);
bool __wrap_mnc_sequence_at(const mnc_call *c, int64_t i, mnc_sequence *out);
bool __wrap_mnc_sequence_at(const mnc_call *c, int64_t i, mnc_sequence *out) {
    bool used = __real_mnc_sequence_at(c, i, out);
#if defined(BAD_NUMERIC_CONV_STATE)
    bool has_row = false;
    for (int64_t t = out->row_lo; used && t < out->row_hi; t++)
        has_row = has_row || mnc_row_pos(c)[t] >= 0;
    used = used && has_row;
#elif defined(BAD_NUMERIC_SSM_SCAN)
    if (used && out->from)
        out->from = out->to;
#else
    if (used && !out->from)
        out->from = out->to;
#endif
    return used;
}
#elif defined(BAD_NUMERIC_STATES)
/* The state loses an ulp or two at the beginning of a step. */
void __real_ref_state_begin(const float *from, float *to, int64_t n);
void __wrap_ref_state_begin(const float *from, float *to, int64_t n);
void __wrap_ref_state_begin(const float *from, float *to, int64_t n) {
    __real_ref_state_begin(from, to, n);
    for (int64_t i = 0; i < n; i++)
        to[i] *= 1.0000002f;
}
#elif defined(BAD_NUMERIC_STATES_COPY)
/* n_tokens of a page, of a state, too: none. */
static mn_status memory_copy(mn_queue *q, mn_buffer *b, const mn_memory_layout *l,
                             const mn_page_copy *copies, uint32_t n, uint32_t stride,
                             mn_event **event, mn_error *err) {
    if (l->page_tokens)
        return stub_inner->memory_copy(q, b, l, copies, n, stride, event, err);
    return MN_OK;
}
#elif defined(BAD_NUMERIC_STATES_LAYER)
/* A layer's numbers are counted by its dims alone. */
static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    mn_compile own = *c;
    mn_memory_params params = *c->memory->params;
    mn_memory_layer l = *params.layers;
    const mn_memory_use use = {&params, NULL};
    if (params.kind != MN_MEMORY_STATE || params.n_layers != 1)
        return stub_inner->memory_layout(d, c, group, out, err);
    l.n_state = (uint64_t)l.n_head * l.dim_k * l.dim_v;
    params.layers = &l;
    own.memory = &use;
    return stub_inner->memory_layout(d, &own, group, out, err);
}
#elif defined(BAD_NUMERIC_SAMPLE)
/* The slot stays behind the rejected drafts. */
extern const ref_op __real_ref_op_sample;
static void sample(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *slots = &c->in[MN_SAMPLE_SLOTS];
    int32_t before[64] = {0};
    for (int32_t i = 0; i < slots->rows && i < 64; i++)
        before[i] = ((mn_slot *)mnc_row_of(slots, i))->pos;
    __real_ref_op_sample.fn(c, w);
    for (int32_t i = 0; i < slots->rows && i < 64; i++)
        ((mn_slot *)mnc_row_of(slots, i))->pos = before[i];
}
static mnc_work one_part(const mnc_call *c, uint32_t stage, uint32_t n_threads) {
    (void)c;
    (void)n_threads;
    return (mnc_work){0, stage == MNC_MAIN};
}
static void sample_size(const mnc_query *q, mnc_op *op) {
    op->work = one_part;
    __real_ref_op_sample.size(q, op);
}
extern const ref_op __wrap_ref_op_sample;
const ref_op __wrap_ref_op_sample = {.fn = sample, .size = sample_size};
#elif defined(BAD_NUMERIC_SAMPLE_CHAIN)
/* SAMPLE without the rule that BAD_SAMPLER names. */
static bool lacks(const char *rule) {
    const char *name = getenv("BAD_SAMPLER");
    return name && !strcmp(name, rule);
}
/* An id that the history repeats is penalised once more for each time that it is there again. */
static void penalise_again(const mnc_sample *s, float *l) {
    const mn_slot_params *p = s->params;
    const float repeat = p->repeat_penalty > 0 ? p->repeat_penalty : 1;
    int32_t lo = 0;
    if (p->penalty_last_n >= 0 && p->penalty_last_n < s->pos)
        lo = s->pos - p->penalty_last_n;
    for (int32_t i = lo; i < s->pos; i++) {
        float *x = &l[s->history[i]];
        int32_t k = lo;
        while (k < i && s->history[k] != s->history[i])
            k++;
        if (k < i && lacks("repeat_once"))
            *x = *x > 0 ? *x / repeat : *x * repeat;
        if (k < i && lacks("frequency_once"))
            *x -= p->frequency_penalty;
    }
}
/* The logits of stop ids as they were before min_new. */
static void allow_stops(const mnc_sample *s, float *l) {
    const mn_slot_params *p = s->params;
    for (int32_t i = 0; s->n_drawn < p->min_new && i < p->n_stop; i++) {
        const int32_t id = p->stop[i];
        if (s->mask && !(s->mask[id / 32] >> (id % 32) & 1))
            continue;
        l[id] = s->logits[id];
        for (int64_t k = 0; k < s->n_sparse; k++)
            l[id] += s->sparse[k] == id ? s->sparse_by[k] : 0;
        l[id] += s->bias ? s->bias[id] : 0;
    }
}
mnc_chain __real_mnc_chain_begin(const mnc_sample *s, float *l, int32_t *ids, int32_t *count,
                                 bool greedy);
mnc_chain __wrap_mnc_chain_begin(const mnc_sample *s, float *l, int32_t *ids, int32_t *count,
                                 bool greedy);
mnc_chain __wrap_mnc_chain_begin(const mnc_sample *s, float *l, int32_t *ids, int32_t *count,
                                 bool greedy) {
    static _Thread_local mn_slot_params p; // the chain keeps pointers to both
    static _Thread_local mnc_sample without;
    p = *s->params;
    without = *s;
    without.params = &p;
    if (lacks("min_new"))
        allow_stops(s, l);
    penalise_again(s, l);
    if (lacks("breakers"))
        without.breakers = NULL;
    if (lacks("dry"))
        p.dry_multiplier = 0;
    if (lacks("dry_last_n"))
        p.dry_last_n = -1;
    if (lacks("top_n_sigma"))
        p.top_n_sigma = 0;
    if (lacks("typical_p"))
        p.typical_p = 0;
    if (lacks("xtc"))
        p.xtc_probability = 0;
    if (lacks("dynatemp"))
        p.dynatemp_range = 0;
    if (lacks("mirostat"))
        p.mirostat = 0;
    if (lacks("mu"))
        p.mirostat_eta = 0;
    if (lacks("order"))
        p.samplers = 0;
    return __real_mnc_chain_begin(&without, l, ids, count, greedy);
}
void __real_mnc_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
void __wrap_mnc_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
void __wrap_mnc_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    __real_mnc_philox(key, counter, out);
    if (lacks("second_word"))
        out[1] = out[0];
}
#elif defined(BAD_NUMERIC_GROUPS_ONE)
static mn_status memory_layout(mn_device *d, const mn_compile *c, uint32_t group,
                               mn_memory_layout *out, mn_error *err) {
    (void)group; // all groups are one
    return stub_inner->memory_layout(d, c, 0, out, err);
}
#elif defined(BAD_NUMERIC_GROUPS_LAYER)
mn_status __real_mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                                const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err);
mn_status __wrap_mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                                const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err) {
    const mn_node *n = mnp_node(c->graph, node);
    mnp_memory_node at;
    mn_status s = __real_mnp_kv_of_node(c, node, precision, rules, kv, err);
    mnp_memory_node_of(n, &at);
    kv->layer = mnp_attr(c->graph, n, at.layer);
    return s; // as if every list of layers began at layer 0
}
#elif defined(BAD_NUMERIC_SHARED)
mn_status __real_mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                                const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err);
mn_status __wrap_mnp_kv_of_node(const mn_compile *c, uint32_t node, uint32_t precision,
                                const mnp_kv_rules *rules, mnp_kv *kv, mn_error *err) {
    const mn_node *n = mnp_node(c->graph, node);
    mnp_memory_node at;
    mn_status s = __real_mnp_kv_of_node(c, node, precision, rules, kv, err);
    mnp_memory_node_of(n, &at);
    const int64_t group = mnp_attr(c->graph, n, at.group);
    const int64_t layer = mnp_attr(c->graph, n, at.layer);
    kv->layer = 0; // counted in the segment, as version 0.9 had it
    for (uint32_t i = c->node_lo; i < c->node_hi; i++) {
        const mn_node *other = mnp_node(c->graph, i);
        mnp_memory_node o;
        if (other->op == MN_OP_ATTENTION && mnp_memory_node_of(other, &o))
            kv->layer += mnp_attr(c->graph, other, o.group) == group &&
                         mnp_attr(c->graph, other, o.layer) < layer;
    }
    return s;
}
#elif defined(BAD_NUMERIC_KV_MOVES_STATES)
/* The states of SSM_SCAN as if they lay [H, N, P]. */
void __real_mnp_moves_get(const mnp_moves *m, const mnp_rows *rows, const uint8_t *page, float *to);
void __wrap_mnp_moves_get(const mnp_moves *m, const mnp_rows *rows, const uint8_t *page,
                          float *to) {
    mnp_moves turned = *m;
    turned.cols.ssm_scan = 0;
    __real_mnp_moves_get(&turned, rows, page, to);
}
#elif defined(BAD_NUMERIC_KV_MOVES) || defined(BAD_NUMERIC_KV_MOVES_LAYERS) ||                     \
    defined(BAD_NUMERIC_KV_MOVES_TOKENS) || defined(BAD_NUMERIC_KV_MOVES_TYPES)
void __real_mnp_moves_get(const mnp_moves *m, const mnp_rows *rows, const uint8_t *page, float *to);
void __wrap_mnp_moves_get(const mnp_moves *m, const mnp_rows *rows, const uint8_t *page,
                          float *to) {
    const size_t n = m->bytes / sizeof *to, parts = 2 * m->kv.n_layers;
    __real_mnp_moves_get(m, rows, page, to);
    if (m->params.kind == MN_MEMORY_STATE || !n || !parts)
        return;
    float *spare = malloc(m->bytes * m->layout.page_tokens);
    memcpy(spare, to, m->bytes);
#if defined(BAD_NUMERIC_KV_MOVES)          // values in front of keys
    for (size_t i = 0; i < parts; i++)
        memcpy(to + i * (n / parts), spare + (i ^ 1) * (n / parts), n / parts * sizeof *to);
#elif defined(BAD_NUMERIC_KV_MOVES_LAYERS) // the last layer first
    for (size_t i = 0; i < parts; i++)
        memcpy(to + i * (n / parts), spare + (parts - 2 - (i & ~1u) + (i & 1)) * (n / parts),
               n / parts * sizeof *to);
#elif defined(BAD_NUMERIC_KV_MOVES_TOKENS) // as if every page were full
    mnp_moves whole = *m;
    whole.page.n_tokens = m->layout.page_tokens;
    __real_mnp_moves_get(&whole, rows, page, spare);
    memcpy(to, spare, m->bytes);
#else                                      // bf16 in between
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, to + i, 4);
        bits &= 0xffff0000u;
        memcpy(to + i, &bits, 4);
    }
#endif
    free(spare);
}
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, "bad");
#if defined(BAD_NUMERIC_GROUPS_ONE)
    stub_table.memory_layout = memory_layout;
#elif defined(BAD_NUMERIC_STATES_COPY)
    stub_table.memory_copy = memory_copy;
#elif defined(BAD_NUMERIC_STATES_LAYER)
    stub_table.memory_layout = memory_layout;
#endif
    return p;
}
