/* crossing.c -- see crossing.h.
 *
 * A step runs its segments in order, and what a device enqueues runs in order, too. So memory whose
 * tensor was read last by segment k may have another tensor from segment k + 1 on: a model whose
 * every layer crosses twice needs memory for a few rows, not for those of all layers. Tensors are
 * counted by their roots; views lie in them. */
#include "negotiate/crossing.h"
#include "base/arithmetic.h"

enum { NOBODY = -1 };

typedef struct {
    const mn_graph *g;
    const mn_crossing_segment *segments;
    const int64_t *symbols;
    uint32_t n_devices;
    int32_t *maker; /* [n_tensors] segment */
    int32_t *entry; /* [n_tensors * n_devices] of out->at */
    mn_crossings *out;
    size_t cap, cap_places;
} finder;

bool mn_tensor_bytes(const mn_graph *g, uint32_t tensor, const int64_t *symbols, uint64_t *bytes) {
    const mn_tensor *t = &g->tensors[tensor];
    const uint32_t id = t->dtype.id;
    const bool is_float = id == MN_F16 || id == MN_BF16 || id == MN_F32;
    uint64_t n = 4;
    if (!is_float || t->role == MN_ROLE_STATE)
        n = t->dtype.block_bytes;
    for (uint32_t i = 0; i < t->n_dim; i++) {
        int64_t d = t->dim[i];
        if (d < 0)
            d = symbols[~d];
        if (d < 0 || !mn_mul_u64(n, (uint64_t)d, &n))
            return false;
    }
    *bytes = n;
    return true;
}

/* ---- who has which tensor, and when ---------------------------------------------------------- */

/* The tensor on a device, from segment `first` on, if it is not there yet. NULL: out of memory. */
static mn_crossing *crossing_on(finder *f, uint32_t tensor, uint32_t device, uint32_t first,
                                uint32_t from) {
    mn_crossings *out = f->out;
    int32_t *at = &f->entry[(size_t)tensor * f->n_devices + device];
    if (*at == NOBODY) {
        void *list = out->at;
        if (!mn_grow(&list, &f->cap, out->n + 1u, sizeof *out->at))
            return NULL;
        out->at = list;
        *at = (int32_t)out->n;
        out->at[out->n++] = (mn_crossing){
            .tensor = tensor,
            .device = device,
            .first = first,
            .last = first,
            .from = from,
            .made = (uint32_t)f->maker[tensor],
        };
    }
    return &out->at[*at];
}

/* Segment k reads the tensor. false: out of memory. */
static bool crossing_read(finder *f, uint32_t k, uint32_t tensor) {
    const int32_t made = f->maker[tensor];
    if (made == NOBODY || made == (int32_t)k || f->g->tensors[tensor].role == MN_ROLE_STATE)
        return true;
    const uint32_t from = f->segments[made].device;
    const uint32_t to = f->segments[k].device;
    const bool is_there = f->entry[(size_t)tensor * f->n_devices + to] != NOBODY;
    mn_crossing *source = crossing_on(f, tensor, from, (uint32_t)made, MN_NOT_MOVED);
    if (!source)
        return false;
    if (from == to || !is_there)
        source->last = k;
    if (from == to)
        return true;
    mn_crossing *here = crossing_on(f, tensor, to, k, from);
    if (here)
        here->last = k;
    return here != NULL;
}

static bool crossing_node(finder *f, uint32_t k, const mn_node *n) {
    const int32_t *in = &f->g->operands[n->in_off];
    const int32_t *out = &f->g->operands[n->out_off];
    for (uint32_t j = 0; j < n->n_in; j++)
        if (in[j] >= 0 && !crossing_read(f, k, mn_tensor_root(f->g, (uint32_t)in[j])))
            return false;
    for (uint32_t j = 0; j < n->n_out; j++)
        if (out[j] >= 0)
            f->maker[mn_tensor_root(f->g, (uint32_t)out[j])] = (int32_t)k;
    return true;
}

/* By `first`; those of one segment in the order in which they were found. */
static void sort_crossings(mn_crossings *x) {
    for (uint32_t i = 1; i < x->n; i++) {
        const mn_crossing c = x->at[i];
        uint32_t k = i;
        for (; k && x->at[k - 1].first > c.first; k--)
            x->at[k] = x->at[k - 1];
        x->at[k] = c;
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The place that fits best of those that are free on the device; NULL: none is. */
static mn_crossing_place *free_place(const mn_crossings *x, const mn_crossing *c, uint64_t bytes) {
    mn_crossing_place *best = NULL;
    for (uint32_t i = 0; i < x->n_places; i++) {
        mn_crossing_place *p = &x->places[i];
        if (p->device != c->device || p->kept || p->last >= c->first)
            continue;
        const bool fits = p->bytes >= bytes;
        const bool best_fits = best && best->bytes >= bytes;
        if (!best || (fits && (!best_fits || p->bytes < best->bytes)) ||
            (!fits && !best_fits && p->bytes > best->bytes))
            best = p;
    }
    return best;
}

static mn_status place_crossing(finder *f, mn_crossing *c, mn_error *err) {
    mn_crossings *x = f->out;
    void *list = x->places;
    uint64_t bytes = 0;
    if (!mn_tensor_bytes(f->g, c->tensor, f->symbols, &bytes))
        return mn_fail(err, MN_INVALID, "%.*s: its size overflows",
                       MN_STR_ARG(f->g->tensors[c->tensor].name));
    const bool kept = f->g->tensors[c->tensor].role == MN_ROLE_OUTPUT;
    mn_crossing_place *p = kept ? NULL : free_place(x, c, bytes);
    if (!p) {
        if (!mn_grow(&list, &f->cap_places, x->n_places + 1u, sizeof *x->places))
            return mn_fail_memory(err, (x->n_places + 1u) * sizeof *x->places);
        x->places = list;
        p = &x->places[x->n_places++];
        *p = (mn_crossing_place){.device = c->device, .kept = kept};
    }
    if (bytes > p->bytes) {
        x->new_bytes[c->first] += bytes - p->bytes;
        p->bytes = bytes;
    }
    p->last = c->last;
    c->place = (uint32_t)(p - x->places);
    return MN_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static mn_status crossings_make(finder *f, uint32_t n_segments, mn_error *err) {
    const size_t n = (size_t)f->g->n_tensors * f->n_devices;
    f->maker = mn_alloc(f->g->n_tensors, sizeof *f->maker);
    f->entry = mn_alloc(n, sizeof *f->entry);
    f->out->new_bytes = mn_calloc(n_segments, sizeof *f->out->new_bytes);
    if (!f->maker || !f->entry || !f->out->new_bytes)
        return mn_fail_memory(err, n * sizeof *f->entry);
    for (uint32_t i = 0; i < f->g->n_tensors; i++)
        f->maker[i] = NOBODY;
    for (size_t i = 0; i < n; i++)
        f->entry[i] = NOBODY;
    for (uint32_t k = 0; k < n_segments; k++)
        for (uint32_t i = f->segments[k].lo; i < f->segments[k].hi; i++)
            if (!crossing_node(f, k, &f->g->nodes[i]))
                return mn_fail_memory(err, (f->out->n + 1u) * sizeof *f->out->at);
    sort_crossings(f->out);
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < f->out->n && !st; i++)
        st = place_crossing(f, &f->out->at[i], err);
    return st;
}

mn_status mn_crossings_find(const mn_graph *g, const mn_crossing_segment *s, uint32_t n_segments,
                            uint32_t n_devices, const int64_t *symbols, mn_crossings *out,
                            mn_error *err) {
    finder f = {
        .g = g,
        .segments = s,
        .symbols = symbols,
        .n_devices = n_devices,
        .out = out,
    };
    *out = (mn_crossings){0};
    const mn_status st = crossings_make(&f, n_segments, err);
    mn_free(f.maker);
    mn_free(f.entry);
    return st;
}

void mn_crossings_free(mn_crossings *x) {
    mn_free(x->at);
    mn_free(x->places);
    mn_free(x->new_bytes);
    *x = (mn_crossings){0};
}
