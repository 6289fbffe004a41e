/* convert.c -- mn_model_convert: a model as one GGUF file. */
#include "api/api.h"
#include "convert/convert.h"
#include <string.h>

static mn_status find_type(const char *name, const mn_convert_type **out, mn_error *err) {
    *out = name && *name ? mn_convert_type_find(name) : NULL;
    if (!name || !*name || *out) return MN_OK;
    mn_text known = {0};
    mn_convert_type_list(&known);
    const mn_status st =
        mn_fail(err, MN_INVALID, "unknown type \"%.40s\"; known: %s", name, known.ptr ? known.ptr : "");
    mn_text_free(&known);
    return st;
}

mn_status mn_model_convert(const mn_model *m, const char *path, const mn_convert_params *params, mn_error *err) {
    mn_convert_params own = {.size = sizeof own};
    mn_convert_plan p = {.model = m->canonical};
    if (params) memcpy(&own, params, MN_MIN((size_t)params->size, sizeof own));
    const mn_convert_run run = {m->rt->pool, own.flags & MN_CONVERT_REPLACE, own.progress, own.arg};
    mn_status st = find_type(own.type, &p.type, err);
    if (!st) st = mn_convert_tensors(&p, err);
    if (!st) st = mn_convert_meta(&p, m->name, m->tokenizer, err);
    if (!st && p.n_left_out)
        mn_log(MN_LOG_WARN, "%s: %u tensors have no name in GGUF and are left out", m->canonical->path, p.n_left_out);
    if (!st) st = mn_convert_write(&p, path, &run, err);
    mn_convert_plan_free(&p);
    return st;
}
