/* rates.c -- measured rates of a device for this model, from the cache or now; else its claims. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "minerva rates 2\n"

/* ---- cache: one small file per device, driver, plugin build, type and class ------------------ */
/* The key is one line: what a plugin says in it is plain. */
static void rates_put_word(mn_text *t, const char *bytes, uint64_t n) {
    char plain[256];
    mn_text_put(t, plain, mn_plain(plain, sizeof plain, (mn_str){bytes, n}));
    mn_text_puts(t, "|");
}

static void make_key(const mn_offer *o, const mn_request *r, uint32_t dtype, mn_text *key) {
    const mn_device_info *info = &o->record->info;
    const char *build_id = o->record->plugin->build_id;
    rates_put_word(key, info->name, strlen(info->name));
    rates_put_word(key, info->uid, strlen(info->uid));
    rates_put_word(key, info->driver, strlen(info->driver));
    rates_put_word(key, o->record->name, strlen(o->record->name));
    if (build_id)
        rates_put_word(key, build_id, strlen(build_id));
    mn_text_printf(key, "%u|%s|class %u\n", mn_offer_is_cpu(o) ? r->threads : 0,
                   mn_dtype_name(dtype), o->precision);
}

/* The file's name stands for the key; the key itself stands in the file. */
static void rates_cache_name(const mn_text *key, char name[40]) {
    snprintf(name, 40, "rates-%016llx", (unsigned long long)mn_hash(key->ptr, key->len, 1));
}

/* What was measured, as the list of numbers that it is. */
typedef struct {
    double *at;
    int n;
} figures;
static figures figures_of(mn_measured *m) {
    return (figures){&m->decode_gbps, sizeof *m / sizeof(double)};
}
static figures figures_of_experts(mn_measured_experts *m) {
    return (figures){&m->gbps, sizeof *m / sizeof(double)};
}

/* The figures of the file whose first lines are HEAD and key. */
static bool rates_parse(const mn_text *data, const mn_text *key, figures m) {
    const size_t head = strlen(HEAD);
    const size_t before = head + key->len;
    if (data->len <= before || memcmp(data->ptr, HEAD, head) ||
        memcmp(data->ptr + head, key->ptr, key->len))
        return false;
    const char *at = data->ptr + before;
    for (int i = 0; i < m.n; i++) {
        const size_t len = strcspn(at, " \n");
        if (!mn_parse_f64((mn_str){at, len}, &m.at[i]))
            return false;
        if (m.at[i] <= 0 || m.at[i] >= 1e9)
            return false;
        at += len + (at[len] != 0);
    }
    return true;
}

static bool rates_load(const mn_text *key, figures m) {
    char name[40];
    mn_text data = {0};
    rates_cache_name(key, name);
    bool ok = !mn_cache_read(name, 1 << 16, &data, NULL);
    if (ok)
        ok = rates_parse(&data, key, m);
    mn_text_free(&data);
    return ok;
}

/* a cache that cannot be written is no error */
static void rates_store(const mn_text *key, figures m) {
    char name[40];
    mn_text out = {0};
    mn_text_puts(&out, HEAD);
    mn_text_put(&out, key->ptr, key->len);
    for (int i = 0; i < m.n; i++)
        mn_text_printf(&out, "%.6g%s", m.at[i], i + 1 < m.n ? " " : "\n");
    rates_cache_name(key, name);
    if (!out.failed)
        mn_cache_write(name, out.ptr, out.len, NULL);
    mn_text_free(&out);
}

/* ---- which types ----------------------------------------------------------------------------- */
typedef struct {
    uint32_t dtype;
    double bytes;
    double expert_bytes;     /* that a token reads of the experts of this type */
    mn_expert_shape experts; /* of the product that has most of them; n_expert 0: there is none */
} type_use;

/* The type of the weight that a product multiplies by; 0 = the node is none. */
static uint32_t product_type(const mn_graph *g, const mn_node *n) {
    const uint32_t at = n->op == MN_OP_LINEAR ? 1 : 2;
    const int32_t t = n->n_in > 1 ? g->operands[n->in_off + at] : -1;
    return t < 0 ? 0 : g->tensors[t].dtype.id;
}

/* Of a MOE_LINEAR: of all experts that its router chooses from. n_expert 0: it is none. */
static mn_expert_shape shape_of(const mn_graph *g, uint32_t node) {
    const mn_node *n = &g->nodes[node];
    const mn_expert_shape none = {0};
    if (n->op != MN_OP_MOE_LINEAR)
        return none;
    const int32_t chosen = g->operands[n->in_off + MN_MOE_LINEAR_EXPERTS];
    const int32_t weight = g->operands[n->in_off + MN_MOE_LINEAR_WEIGHT];
    if (chosen < 0 || weight < 0 || g->tensors[weight].n_dim != 3)
        return none;
    const mn_tensor *w = &g->tensors[weight];
    const mn_expert_shape shape = {
        .n_expert = MN_MAX(mn_experts_routed(g, node), w->dim[0]),
        .n_chosen = g->tensors[chosen].dim[1],
        .n = w->dim[1],
        .k = w->dim[2],
    };
    return shape.n_chosen > 0 && shape.n_chosen < shape.n_expert ? shape : none;
}

/* Adds to the type's bytes, and keeps the largest in front. false = there is no room for it. */
static bool add_use(type_use *all, uint32_t *n, const type_use *use) {
    uint32_t k = 0;
    while (k < *n && all[k].dtype != use->dtype)
        k++;
    if (k == MN_MAX_RATES)
        return false;
    if (k == *n)
        all[(*n)++] = (type_use){.dtype = use->dtype};
    all[k].bytes += use->bytes;
    if (use->expert_bytes > all[k].expert_bytes) {
        all[k].expert_bytes = use->expert_bytes;
        all[k].experts = use->experts;
    }
    for (; k && all[k].bytes > all[k - 1].bytes; k--) {
        const type_use larger = all[k];
        all[k] = all[k - 1];
        all[k - 1] = larger;
    }
    return true;
}

/* Weight types of what the device can multiply, the largest share first; small shares are served by
 * the first. */
static uint32_t rates_types_of(const mn_offer *o, const mn_graph *g, type_use out[MN_MAX_RATES]) {
    uint32_t n = 0;
    double total = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const double bytes = o->can[i] ? mn_node_bytes(g, i) : 0;
        type_use use = {product_type(g, &g->nodes[i]), bytes, 0, shape_of(g, i)};
        use.expert_bytes = use.experts.n_expert ? bytes : 0;
        if (bytes > 0 && use.dtype && add_use(out, &n, &use))
            total += bytes;
    }
    while (n > 1 && out[n - 1].bytes < total / 20)
        n--;
    return n;
}

/* ---- the three sources ----------------------------------------------------------------------- */
static void rates_claim(mn_offer *o) {
    const mn_device_info *info = &o->record->info;
    mn_rates *r = &o->rates;
    r->source = MN_RATES_CLAIMED;
    r->n_types = 0;
    r->node_us = 0;
    r->step_us = mn_sane(info->launch_us);
    r->copy_us = mn_offer_is_cpu(o) ? 1 : 20; /* a copy over a bus, with its wait */
    const double bus = mn_capped(info->h2d_gbps, MN_MOST_BUS_GBPS);
    r->copy_gbps = bus > 0 ? bus : 10;
}

/* The type that stands for one in measuring: blocks of a vendor's type cannot be made up, so that
 * it counts as a type whose bytes are read as fast as those of F32. */
static bool measured_type(uint32_t dtype, mn_dtype *out) {
    return mn_dtype_by_id(mn_is_vendor_type(dtype) ? MN_F32 : dtype, out);
}

/* Measures, and keeps what was found in the cache; false: the note says why not. */
static bool measure_now(mn_offer *o, uint32_t dtype, const mn_text *key, mn_measured *m) {
    mn_dtype t;
    const uint64_t begin = mn_now_ns();
    if (!measured_type(dtype, &t))
        return false;
    if (!mn_measure(o, t, m, o->rates.note, sizeof o->rates.note))
        return false;
    o->rates.measured_ms += (double)(mn_now_ns() - begin) * 1e-6;
    rates_store(key, figures_of(m));
    return true;
}

static bool measures_again(const mn_request *r) {
    return (r->flags & (MN_REQUEST_MEASURE | MN_REQUEST_AGAIN)) == MN_REQUEST_MEASURE;
}

/* From the cache, unless the request wants it otherwise, or measured; fresh: now. */
static bool one_type(mn_offer *o, const mn_request *r, uint32_t dtype, mn_measured *m,
                     bool *fresh) {
    mn_text key = {0};
    make_key(o, r, dtype, &key);
    const bool known = !key.failed && !measures_again(r) && rates_load(&key, figures_of(m));
    *fresh = !known && !key.failed && measure_now(o, dtype, &key, m);
    mn_text_free(&key);
    return known || *fresh;
}

/* The same of the experts of the type; zeros: there are none, or they cannot be measured, and count
 * as LINEAR. */
static mn_measured_experts experts_of_type(mn_offer *o, const mn_request *r, const type_use *use,
                                           const mn_measured *of) {
    const mn_expert_shape *shape = &use->experts;
    mn_measured_experts m = {0};
    mn_text key = {0};
    mn_dtype t;
    char note[sizeof o->rates.note];
    if (!shape->n_expert || !measured_type(use->dtype, &t))
        return m;
    make_key(o, r, use->dtype, &key);
    mn_text_printf(&key, "experts %lld %lld %lld %lld\n", (long long)shape->n_expert,
                   (long long)shape->n_chosen, (long long)shape->n, (long long)shape->k);
    const uint64_t begin = mn_now_ns();
    if (!key.failed && (measures_again(r) || !rates_load(&key, figures_of_experts(&m)))) {
        if (mn_measure_experts(o, t, *shape, of, &m, note, sizeof note))
            rates_store(&key, figures_of_experts(&m));
        else
            m = (mn_measured_experts){0};
        o->rates.measured_ms += (double)(mn_now_ns() - begin) * 1e-6;
    }
    mn_text_free(&key);
    return m;
}

void mn_rates_get(mn_offer *o, const mn_model_graph *g, const mn_request *r, bool measure) {
    type_use types[MN_MAX_RATES];
    const mn_graph *own = o->given ? o->given : &g->abi;
    uint32_t n = measure && o->can ? rates_types_of(o, own, types) : 0;
    mn_rates *rates = &o->rates;
    rates_claim(o);
    for (uint32_t i = 0; i < n; i++) {
        mn_measured m;
        bool fresh;
        if (!one_type(o, r, types[i].dtype, &m, &fresh)) {
            if (!i)
                return; /* a claim, with the note */
            continue;
        }
        if (!i) {
            rates->source = MN_RATES_CACHED;
            rates->node_us = m.node_us;
            rates->step_us = m.step_us;
            rates->copy_us = m.copy_us;
            rates->copy_gbps = m.copy_gbps;
            rates->exchange_us = o->record->n_members ? m.exchange_us : 0;
        }
        if (fresh)
            rates->source = MN_RATES_MEASURED;
        const mn_measured_experts experts = experts_of_type(o, r, &types[i], &m);
        rates->type[rates->n_types++] = (mn_type_rate){
            types[i].dtype, 0, m.decode_gbps, m.prefill_tflops, experts.gbps, experts.tflops};
    }
}
