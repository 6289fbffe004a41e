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

/* mn_measured as the list of numbers that it is. */
static double *figures(mn_measured *m) {
    return &m->decode_gbps;
}
enum { N_FIGURES = sizeof(mn_measured) / sizeof(double) };

/* The figures of the file whose first lines are HEAD and key. */
static bool rates_parse(const mn_text *data, const mn_text *key, mn_measured *m) {
    const size_t head = strlen(HEAD);
    const size_t before = head + key->len;
    if (data->len <= before || memcmp(data->ptr, HEAD, head) ||
        memcmp(data->ptr + head, key->ptr, key->len))
        return false;
    const char *at = data->ptr + before;
    for (int i = 0; i < N_FIGURES; i++) {
        double *figure = &figures(m)[i];
        const size_t len = strcspn(at, " \n");
        if (!mn_parse_f64((mn_str){at, len}, figure))
            return false;
        if (*figure <= 0 || *figure >= 1e9)
            return false;
        at += len + (at[len] != 0);
    }
    return true;
}

static bool rates_load(const mn_text *key, mn_measured *m) {
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
static void rates_store(const mn_text *key, mn_measured *m) {
    char name[40];
    mn_text out = {0};
    mn_text_puts(&out, HEAD);
    mn_text_put(&out, key->ptr, key->len);
    for (int i = 0; i < N_FIGURES; i++)
        mn_text_printf(&out, "%.6g%s", figures(m)[i], i + 1 < N_FIGURES ? " " : "\n");
    rates_cache_name(key, name);
    if (!out.failed)
        mn_cache_write(name, out.ptr, out.len, NULL);
    mn_text_free(&out);
}

/* ---- which types ----------------------------------------------------------------------------- */
typedef struct {
    uint32_t dtype;
    double bytes;
} type_use;

/* The type of the weight that a product multiplies by; 0 = the node is none. */
static uint32_t product_type(const mn_graph *g, const mn_node *n) {
    const uint32_t at = n->op == MN_OP_LINEAR ? 1 : 2;
    const int32_t t = n->n_in > 1 ? g->operands[n->in_off + at] : -1;
    return t < 0 ? 0 : g->tensors[t].dtype.id;
}

/* Adds to the type's bytes, and keeps the largest in front. false = there is no room for it. */
static bool add_use(type_use *all, uint32_t *n, uint32_t dtype, double bytes) {
    uint32_t k = 0;
    while (k < *n && all[k].dtype != dtype)
        k++;
    if (k == MN_MAX_RATES)
        return false;
    if (k == *n)
        all[(*n)++] = (type_use){dtype, 0};
    all[k].bytes += bytes;
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
        const uint32_t dtype = product_type(g, &g->nodes[i]);
        if (bytes > 0 && dtype && add_use(out, &n, dtype, bytes))
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

/* Measures, and keeps what was found in the cache; false: the note says why not. Blocks of a
 * vendor's type cannot be made up: it counts as a type whose bytes are read as fast as those of
 * F32. */
static bool measure_now(mn_offer *o, uint32_t dtype, const mn_text *key, mn_measured *m) {
    mn_dtype t;
    const uint64_t begin = mn_now_ns();
    if (!mn_dtype_by_id(mn_is_vendor_type(dtype) ? MN_F32 : dtype, &t))
        return false;
    if (!mn_measure(o, t, m, o->rates.note, sizeof o->rates.note))
        return false;
    o->rates.measured_ms += (double)(mn_now_ns() - begin) * 1e-6;
    rates_store(key, m);
    return true;
}

/* From the cache, unless the request wants it otherwise, or measured; fresh: now. */
static bool one_type(mn_offer *o, const mn_request *r, uint32_t dtype, mn_measured *m,
                     bool *fresh) {
    const bool again = (r->flags & (MN_REQUEST_MEASURE | MN_REQUEST_AGAIN)) == MN_REQUEST_MEASURE;
    mn_text key = {0};
    make_key(o, r, dtype, &key);
    const bool known = !key.failed && !again && rates_load(&key, m);
    *fresh = !known && !key.failed && measure_now(o, dtype, &key, m);
    mn_text_free(&key);
    return known || *fresh;
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
        rates->type[rates->n_types++] =
            (mn_type_rate){types[i].dtype, 0, m.decode_gbps, m.prefill_tflops};
    }
}
