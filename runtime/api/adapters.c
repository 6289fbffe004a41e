/* adapters.c -- mn_model_load_adapter and its kin: files of adapters, read by the loaders, beside
 * the matrices of a model. The table of what is loaded is runtime/opened's. */
#include "opened/opened.h"
#include <math.h>
#include <string.h>

/* Ranks that follow have no graph with adapters. */
static mn_status adapter_check_ranks(const mn_model *m, mn_error *err) {
    if (!m->rt->ranks)
        return MN_OK;
    return mn_fail(
        err, MN_UNSUPPORTED,
        "adapters do not run on several processes as one machine; expected one process, or "
        "a model that the adapter is merged into (minerva convert --merge)");
}

mn_status mn_model_set_adapter_room(mn_model *m, const mn_adapter_room *room, mn_error *err) {
    mn_adapter_room own = {.size = sizeof own};
    const mn_arg args[] = {{"m", m}, {"room", room}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_same_process(err, __func__, m->rt);
    if (!st)
        st = mn_args_take(MN_SIZED_ADAPTER_ROOM, &own, room, err);
    if (!st && own.dtype && own.dtype != MN_F32 && own.dtype != MN_F16)
        st = mn_fail(err, MN_INVALID, "mn_adapter_room.dtype: found %u, expected f32 or f16",
                     own.dtype);
    if (!st && own.n_adapters)
        st = adapter_check_ranks(m, err);
    if (st)
        return st;
    const mn_lora_room want = {.n = own.n_adapters, .rank = own.rank, .dtype = own.dtype};
    return mn_adapters_want(m->adapters, &want, err);
}

/* The name is part of a model's name, and of paths of URLs. */
static mn_status adapter_check_name(const char *name, mn_error *err) {
    const size_t n = strlen(name);
    if (n && n < MN_MAX_ADAPTER_NAME)
        return MN_OK;
    return mn_fail(err, MN_INVALID, "the name of an adapter has %zu bytes, expected 1 to %d", n,
                   MN_MAX_ADAPTER_NAME - 1);
}

static mn_status adapter_open_files(mn_model *m, const mn_model_graph *all,
                                    const mn_adapter_source *from, uint32_t n,
                                    mn_adapter_file *files, mn_error *err) {
    mn_loader_ref *refs = NULL;
    uint32_t n_refs = 0;
    mn_status st = mn_loader_refs(m->rt, &refs, &n_refs, err);
    for (uint32_t i = 0; i < n && !st; i++) {
        files[i].factor = (double)from[i].scale;
        if (!from[i].path || !from[i].path[0])
            st = mn_fail(err, MN_INVALID, "mn_adapter_source.path is empty, expected a file");
        else if (!isfinite(from[i].scale))
            st = mn_fail(err, MN_INVALID, "%s: the scale %g, expected a number", from[i].path,
                         files[i].factor);
        else
            st = mn_lora_open(from[i].path, refs, n_refs, &files[i].lora, err);
        if (!st)
            st = mn_lora_bind(&files[i].lora, m->canonical, &all->hp, err);
    }
    mn_free(refs);
    return st;
}

mn_status mn_model_load_adapter(mn_model *m, const char *name, const mn_adapter_source *files,
                                uint32_t n, mn_error *err) {
    const mn_model_graph *all = NULL;
    const mn_arg args[] = {{"m", m}, {"name", name}, {"files", files}, {0}};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_same_process(err, __func__, m->rt);
    if (!st && (!n || n > MN_MAX_ADAPTER_FILES))
        st = mn_fail(err, MN_INVALID, "mn_model_load_adapter: found %u files, expected 1 to %d", n,
                     MN_MAX_ADAPTER_FILES);
    if (!st)
        st = adapter_check_ranks(m, err);
    if (!st)
        st = adapter_check_name(name, err);
    if (!st)
        st = mn_model_graph_adapted(m, &all, err);
    if (st)
        return st;
    mn_adapter_file *own = mn_calloc(n, sizeof *own);
    if (!own)
        return mn_fail_memory(err, n * sizeof *own);
    st = adapter_open_files(m, all, files, n, own, err);
    if (!st)
        return mn_adapters_load(m->adapters, all, name, own, n, err);
    for (uint32_t i = 0; i < n; i++)
        mn_lora_close(&own[i].lora);
    mn_free(own);
    return st;
}

mn_status mn_model_unload_adapter(mn_model *m, const char *name, mn_error *err) {
    const mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"m", m}, {"name", name}, {0}});
    return st ? st : mn_adapters_unload(m->adapters, name, err);
}

mn_status mn_model_adapter(const mn_model *m, uint32_t i, mn_adapter_item *out) {
    mn_adapter_item own = {.size = sizeof own};
    if (!m || !out || mn_args_take(MN_SIZED_ADAPTER_ITEM, &own, out, NULL))
        return MN_INVALID;
    return mn_adapters_get(m->adapters, i, out);
}
