/* planes.c -- tensors that are made of several runs of bytes: planes (data, scales, biases) and
 * parts. Checkpoints that keep experts or heads one by one have a tensor for each; the graph
 * wants one. Nothing is copied: the members' bytes become the parts of one tensor. */
#include "common.h"
#include <string.h>

mn_plane *mn_tensor_planes(mn_parsed *p, mn_parsed_tensor *t, uint32_t n_parts, uint32_t n_planes) {
    mn_plane *planes = mn_parsed_alloc(p, (uint64_t)n_parts * n_planes, sizeof *planes);
    if (!planes)
        return NULL;
    t->planes = planes;
    t->n_parts = n_parts;
    t->n_planes = n_planes;
    return planes;
}

/* Plane i of a tensor of one part. */
static const mn_plane *planes_plane_of(const mn_parsed_tensor *t, uint32_t i) {
    if (t->planes)
        return &t->planes[i];
    return &t->plane;
}

/* ---- one by one -> one ----------------------------------------------------------------------- */

enum { NO_LAYER = UINT32_MAX };
static const struct {
    const char *stem;
    const char *joined;
    bool top; /* of the model, not of a layer */
} stems[] = {
    {"ffn_gate", "ffn_gate_exps", false},
    {"ffn_up", "ffn_up_exps", false},
    {"ffn_down", "ffn_down_exps", false},
    {"attn_q_norm", "attn_q_norm", false},
    {"attn_k_norm", "attn_k_norm", false},
    {"altup_proj", "altup_proj", true},
    {"altup_unembd_proj", "altup_unembd_proj", true},
};

/* "blk.LAYER.STEM.NUMBER.ENDING", or without a layer */
typedef struct {
    uint32_t layer; /* or NO_LAYER */
    uint32_t stem;
    uint32_t number;
    mn_str ending; /* "weight" */
} member;

/* A decimal number of up to six digits and the dot behind it, taken off the front of s. */
static bool planes_take_number(mn_str *s, uint32_t *out) {
    uint64_t n = 0;
    for (*out = 0; n < s->len && n < 6 && s->ptr[n] >= '0' && s->ptr[n] <= '9'; n++)
        *out = *out * 10 + (uint32_t)(s->ptr[n] - '0');
    if (!n || n >= s->len || s->ptr[n] != '.')
        return false;
    *s = (mn_str){s->ptr + n + 1, s->len - n - 1};
    return true;
}

/* Reads a canonical name as a member's; false if it is none. */
static bool take_member(mn_str name, member *m) {
    const bool top = !mn_str_begins(name, "blk.");
    mn_str rest = name;
    m->layer = NO_LAYER;
    if (!top) {
        rest = (mn_str){name.ptr + 4, name.len - 4};
        if (!planes_take_number(&rest, &m->layer))
            return false;
    }
    for (m->stem = 0; m->stem < MN_COUNT(stems); m->stem++) {
        const uint64_t n = strlen(stems[m->stem].stem);
        if (stems[m->stem].top != top || !mn_str_begins(rest, stems[m->stem].stem))
            continue;
        if (rest.len <= n)
            continue;
        if (rest.ptr[n] != '.')
            continue;
        m->ending = (mn_str){rest.ptr + n + 1, rest.len - n - 1};
        return planes_take_number(&m->ending, &m->number);
    }
    return false;
}

/* Members of one tensor side by side, by number; what is no member comes last. */
static int by_member(const void *a, const void *b) {
    member x;
    member y;
    const bool is_x = take_member(((const mn_parsed_tensor *)a)->name, &x);
    const bool is_y = take_member(((const mn_parsed_tensor *)b)->name, &y);
    if (!is_x || !is_y)
        return (int)is_y - (int)is_x;
    if (x.layer != y.layer)
        return x.layer < y.layer ? -1 : 1;
    if (x.stem != y.stem)
        return x.stem < y.stem ? -1 : 1;
    const int c = mn_str_cmp(x.ending, y.ending);
    if (c)
        return c;
    return (x.number > y.number) - (x.number < y.number);
}

/* May b be a part of the tensor that a begins? Types, shapes and the layout of scales agree. */
static bool planes_same_kind(const mn_parsed_tensor *a, const mn_parsed_tensor *b) {
    for (uint32_t k = 1; a->planes && b->planes && a->n_planes == b->n_planes && k < a->n_planes;
         k++)
        if (a->planes[k].dtype != b->planes[k].dtype ||
            memcmp(a->planes[k].stride, b->planes[k].stride, sizeof a->planes[k].stride))
            return false;
    bool same = a->dtype.id == b->dtype.id && a->n_dim == b->n_dim &&
                (a->planes ? a->n_planes : 1) == (b->planes ? b->n_planes : 1) &&
                (!b->planes || b->n_parts == 1);
    for (uint32_t i = 0; same && i < a->n_dim; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

/* A plane with one more dim in front. */
static mn_plane lifted(const mn_plane *p, uint32_t n_dim) {
    mn_plane out = *p;
    for (uint32_t i = n_dim; i-- > 0;) {
        out.dim[i + 1] = p->dim[i];
        out.stride[i + 1] = p->stride[i];
    }
    out.dim[0] = 1;
    if (p->bytes > INT64_MAX)
        out.stride[0] = 0;
    else
        out.stride[0] = (int64_t)p->bytes;
    if (p->kind == MN_PLANE_TENSOR_SCALE)
        out.stride[0] = 0;
    return out;
}

/* sorted[0, n): members of one tensor. */
static mn_status planes_join(mn_parsed *p, const void **sorted, uint32_t n, mn_error *err) {
    const mn_parsed_tensor *first = sorted[0];
    member m;
    mn_parsed_tensor t = *first;
    uint32_t n_planes = 1;
    if (first->planes)
        n_planes = first->n_planes;
    take_member(first->name, &m);
    if (first->n_dim >= MN_MAX_DIM || (first->planes && first->n_parts != 1))
        return mnl_fail(err, MN_BAD_FILE, "tensor '%.*s' has too many dimensions",
                        MN_STR_ARG(first->native));
    if (m.layer == NO_LAYER)
        t.name = mn_parsed_printf(p, "%s.%.*s", stems[m.stem].joined, MN_STR_ARG(m.ending));
    else
        t.name = mn_parsed_printf(p, "blk.%u.%s.%.*s", m.layer, stems[m.stem].joined,
                                  MN_STR_ARG(m.ending));
    mn_plane *planes = mn_tensor_planes(p, &t, n, n_planes);
    if (!t.name.ptr || !planes)
        return mnl_fail_memory(err);
    for (uint32_t i = 0; i < n; i++) {
        const mn_parsed_tensor *one = sorted[i];
        take_member(one->name, &m);
        if (m.number != i || !planes_same_kind(first, one))
            return mnl_fail(err, MN_BAD_FILE,
                            "tensor '%.*s': expected number %u, of the type and shape of '%.*s'",
                            MN_STR_ARG(one->native), i, MN_STR_ARG(first->native));
        for (uint32_t k = 0; k < n_planes; k++)
            planes[i * n_planes + k] = lifted(planes_plane_of(one, k), first->n_dim);
    }
    for (uint32_t i = t.n_dim++; i-- > 0;)
        t.dim[i + 1] = t.dim[i];
    t.dim[0] = n;
    mn_parsed_tensor *out = mn_parsed_add_tensor(p);
    if (!out)
        return mnl_fail_memory(err);
    *out = t;
    return MN_OK;
}

/* Are both members of one tensor? */
static bool one_tensor(const mn_parsed_tensor *a, const mn_parsed_tensor *b) {
    member x;
    member y;
    if (!take_member(a->name, &x))
        return false;
    if (!take_member(b->name, &y))
        return false;
    if (x.layer != y.layer)
        return false;
    if (x.stem != y.stem)
        return false;
    return mn_str_eq(x.ending, y.ending);
}

/* old: the tensors before, copied, since new ones are appended while they are read. */
static mn_status planes_join_all(mn_parsed *p, const mn_parsed_tensor *old, const void **sorted,
                                 uint64_t n, mn_error *err) {
    member m;
    for (uint64_t i = 0; i < n; i++)
        sorted[i] = &old[i];
    mnl_sort(sorted, n, by_member);
    p->n_tensors = 0;
    for (uint64_t i = 0; i < n; i++) /* what is no member stays, in its order */
        if (!take_member(old[i].name, &m))
            p->tensors[p->n_tensors++] = old[i];
    for (uint64_t i = 0, end; i < n && take_member(((const mn_parsed_tensor *)sorted[i])->name, &m);
         i = end) {
        for (end = i + 1; end < n && one_tensor(sorted[i], sorted[end]);)
            end++;
        mn_status status = planes_join(p, sorted + i, (uint32_t)(end - i), err);
        if (status)
            return status;
    }
    return MN_OK;
}

/* Most models have no members: then nothing is allocated and nothing moves. */
mn_status mn_parsed_join(mn_parsed *p, mn_error *err) {
    const uint64_t n = p->n_tensors;
    member m;
    uint64_t first = 0;
    while (first < n && !take_member(p->tensors[first].name, &m))
        first++;
    if (first == n)
        return MN_OK;
    const mn_host *host = p->host;
    const void **sorted = host->alloc(host->self, n * sizeof *sorted, 16);
    mn_parsed_tensor *old = host->alloc(host->self, n * sizeof *old, 16);
    mn_status status = MN_OK;
    if (!sorted || !old)
        status = mnl_fail_memory(err);
    if (!status) {
        memcpy(old, p->tensors, n * sizeof *old);
        status = planes_join_all(p, old, sorted, n, err);
    }
    host->release(host->self, (void *)sorted);
    host->release(host->self, old);
    return status;
}
