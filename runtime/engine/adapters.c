/* adapters.c -- the matrices of adapters on the devices: state that LORA reads and that is written
 * between steps, in queue order, so that steps in flight see what was there before. The buffers
 * are allocated with the engine, for as many adapters as the graph has room for, and zeroed: an
 * adapter of zeros adds nothing. They are freed with the device's other tensors (d->at). */
#include "engine/engine_impl.h"

/* Whether a segment of the device reads the tensor. */
static bool adapter_is_read(const mn_engine *e, uint32_t device, int32_t tensor) {
    for (uint32_t k = 0; k < e->n_segments; k++) {
        const mn_engine_segment *s = &e->segments[k];
        if (s->device != device)
            continue;
        for (uint32_t i = 0; i < s->n_tensors; i++)
            if ((int32_t)s->tensors[i] == tensor)
                return true;
    }
    return false;
}

static mn_status adapter_allocate(mn_engine *e, uint32_t device, int32_t tensor, mn_error *err) {
    mn_engine_device *d = &e->devices[device];
    uint64_t bytes = 0;
    if (tensor < 0 || !adapter_is_read(e, device, tensor))
        return MN_OK;
    if (!mn_tensor_bytes(&e->graph->abi, (uint32_t)tensor, d->symbol_max, &bytes))
        return mn_fail(err, MN_OUT_OF_MEMORY, "adapters of more bytes than can be counted");
    return mn_engine_alloc(e, device, bytes, MN_MEM_DEVICE, &d->at[tensor], err);
}

mn_status mn_engine_adapters_create(mn_engine *e, uint32_t device, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < e->graph->n_sites && !st; i++) {
        st = adapter_allocate(e, device, e->graph->sites[i].a, err);
        if (!st)
            st = adapter_allocate(e, device, e->graph->sites[i].b, err);
    }
    return st;
}

/* One adapter's matrix, n numbers of the type that the tensor has. */
static mn_status adapter_write(mn_engine *e, uint32_t at, int32_t tensor, const float *x, size_t n,
                               uint16_t *halves, mn_error *err) {
    const bool is_half = e->graph->abi.tensors[tensor].dtype.id == MN_F16;
    const uint64_t bytes = n * (is_half ? 2 : 4);
    const void *from = is_half ? (const void *)halves : (const void *)x;
    mn_status st = MN_OK;
    for (size_t i = 0; i < n && is_half; i++)
        halves[i] = mn_f32_to_f16(x[i]);
    for (uint32_t i = 0; i < e->n_devices && !st; i++) {
        mn_engine_device *d = &e->devices[i];
        if (d->at[tensor])
            st = mn_engine_note(e, i,
                                mn_engine_write(d, d->at[tensor], at * bytes, from, bytes, err));
    }
    return st;
}

mn_status mn_engine_write_adapter(mn_engine *e, uint32_t at, mn_adapter_fill_fn fill,
                                  const void *arg, mn_error *err) {
    const mn_model_graph *g = e->graph;
    size_t most = 0;
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < g->n_sites; i++)
        if (g->sites[i].a >= 0) {
            const size_t rank = (size_t)g->abi.tensors[g->sites[i].a].dim[1];
            most = MN_MAX(most, rank * (size_t)(g->sites[i].rows + g->sites[i].cols));
        }
    float *x = mn_alloc(most + 1, sizeof *x + sizeof(uint16_t));
    if (!x)
        return mn_fail_memory(err, most * sizeof *x);
    uint16_t *halves = (uint16_t *)(void *)(x + most + 1);
    for (uint32_t i = 0; i < g->n_sites && !st; i++) {
        const mn_graph_site *site = &g->sites[i];
        if (site->a < 0)
            continue;
        const size_t rank = (size_t)g->abi.tensors[site->a].dim[1];
        const size_t n_a = rank * (size_t)site->cols;
        const size_t n_b = rank * (size_t)site->rows;
        memset(x, 0, (n_a + n_b) * sizeof *x);
        fill(arg, site, x, x + n_a);
        st = adapter_write(e, at, site->a, x, n_a, halves, err);
        if (!st)
            st = adapter_write(e, at, site->b, x + n_a, n_b, halves, err);
    }
    mn_free(x);
    return st;
}
