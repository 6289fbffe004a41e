/* error.cu -- messages, host memory, and the graph read with suspicion. */
#include "cu.h"
#include <stdarg.h>

mn_status cu_fail(mn_error *err, mn_status status, uint32_t node, const char *fmt, ...) {
    if (!err)
        return status;
    mn_error e = {sizeof e, status, 0, node, 0, {0}};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e.msg, sizeof e.msg, fmt, ap);
    va_end(ap);
    uint32_t n = err->size && err->size < sizeof e ? err->size : (uint32_t)sizeof e;
    e.size = n;
    memcpy(err, &e, n);
    if (n > offsetof(mn_error, msg) && n < CU_UP_TO(mn_error, msg))
        ((char *)err)[n - 1] = 0;
    return status;
}

/* The class of a CUDA error: what the host should do. What is not listed leaves the context broken
 * until the process ends ("sticky"), or must be taken for that: every later call fails, and the
 * frees still give back what is the host's. */
static mn_status class_of(cudaError_t e) {
    switch (e) {
    case cudaErrorMemoryAllocation:
        return MN_OUT_OF_MEMORY;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInitializationError:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorDevicesUnavailable:
        return MN_NO_DEVICE;
    case cudaErrorNotSupported:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
        return MN_UNSUPPORTED;
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidValue:
        return MN_INVALID;
    default:
        return MN_DEVICE_LOST;
    }
}

mn_status cu_check(cudaError_t e, mn_error *err, const char *what) {
    if (e == cudaSuccess)
        return MN_OK;
    mn_status st = cu_fail(err, class_of(e), ~0u, "%s: %s (CUDA error %d)", what,
                           cudaGetErrorString(e), (int)e);
    if (err && err->size >= offsetof(mn_error, node))
        err->vendor_code = e;
    cudaGetLastError(); /* one that is not sticky is told once */
    return st;
}

void *cu_new(mn_device *d, uint64_t bytes) {
    void *p = bytes < (uint64_t)1 << 62
                  ? d->plugin->host->alloc(d->plugin->host->self, bytes ? bytes : 1, 64)
                  : NULL;
    if (p)
        memset(p, 0, bytes);
    return p;
}

void cu_delete(mn_device *d, void *p) {
    d->plugin->host->release(d->plugin->host->self, p);
}

uint32_t cu_root(const mn_graph *g, uint32_t t) {
    for (int hops = 0; hops < 8; hops++) {
        int32_t up = cu_tensor(g, t)->alias_of;
        if (up < 0 || (uint32_t)up >= g->n_tensors)
            break;
        t = (uint32_t)up;
    }
    return t;
}

/* BOUND symbols fix the layout of tensors: kernels always see their maximum. */
bool cu_symbols(const mn_graph *g, const int64_t *given, const int64_t *max, int64_t *out,
                uint32_t *bad) {
    for (uint32_t i = 0; i < g->n_symbols; i++) {
        const mn_symbol *s = cu_symbol(g, i);
        *bad = i;
        if (s->base >= 0) {
            if ((uint32_t)s->base >= g->n_symbols)
                return false;
            int64_t from = (uint32_t)s->base < i ? out[s->base] : given[s->base], v;
            if (__builtin_mul_overflow(from, s->mul, &v) || __builtin_add_overflow(v, s->add, &v) ||
                v < 0)
                return false;
            out[i] = v;
            continue;
        }
        if (given[i] < 0 || given[i] > INT32_MAX || (max && given[i] > max[i]))
            return false;
        if (s->kind == MN_SYMBOL_SHAPE && given[i] < s->min)
            return false;
        out[i] = s->kind == MN_SYMBOL_BOUND && max ? max[i] : given[i];
    }
    return true;
}

static mn_status check_node(const mn_graph *g, uint32_t i, mn_error *err) {
    const mn_node *n = cu_node(g, i);
    if ((uint64_t)n->in_off + n->n_in > g->n_operands ||
        (uint64_t)n->out_off + n->n_out > g->n_operands ||
        (uint64_t)n->attr_off + n->n_attr > g->n_attrs)
        return cu_fail(err, MN_INVALID, i,
                       "node %u: operands or attributes lie outside the graph's arrays", i);
    for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
        int32_t t = j < n->n_in ? cu_in(g, n, j) : cu_out(g, n, j - n->n_in);
        if (t >= 0 && (uint32_t)t >= g->n_tensors)
            return cu_fail(err, MN_INVALID, i, "node %u: operand %u is tensor %d of %u", i, j, t,
                           g->n_tensors);
        if (t >= 0 && cu_tensor(g, t)->n_dim > MN_MAX_DIM)
            return cu_fail(err, MN_INVALID, i, "node %u: tensor %d has %u dimensions", i, t,
                           cu_tensor(g, t)->n_dim);
    }
    return MN_OK;
}

mn_status cu_read_compile(const mn_compile *in, mn_compile *out, mn_error *err) {
    memset(out, 0, sizeof *out);
    memcpy(out, in, in->size < sizeof *out ? in->size : sizeof *out);
    const mn_graph *g = out->graph;
    if (!g || !out->symbol_max)
        return cu_fail(err, MN_INVALID, ~0u, "mn_compile without graph or symbol_max");
    if (g->size < CU_UP_TO(mn_graph, n_attrs) || g->node_stride < CU_UP_TO(mn_node, n_attr) ||
        g->tensor_stride < CU_UP_TO(mn_tensor, name) ||
        (g->n_symbols && g->symbol_stride < CU_UP_TO(mn_symbol, add)))
        return cu_fail(err, MN_INVALID, ~0u,
                       "mn_graph of %u bytes lacks fields of the first release", g->size);
    if (out->node_lo > out->node_hi || out->node_hi > g->n_nodes)
        return cu_fail(err, MN_INVALID, ~0u, "segment [%u, %u) of a graph with %u nodes",
                       out->node_lo, out->node_hi, g->n_nodes);
    if (out->precision > MN_PRECISION_A8)
        return cu_fail(err, MN_UNSUPPORTED, ~0u, "precision class %u is unknown", out->precision);
    /* also those outside: who reads a tensor decides what may be fused */
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        mn_status s = check_node(g, i, err);
        if (s)
            return s;
    }
    return MN_OK;
}
