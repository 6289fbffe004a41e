/* merge.c -- adapters whose products become part of the matrices that a file has: W + scale B A,
 * row by row when rows are written. The plan owns the adapters; which products belong to a tensor
 * is in its arena. */
#include "convert/convert.h"

mn_status mn_convert_bind_adapters(mn_convert_plan *p, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t i = 0; i < p->n_adapters && !st; i++) {
        mn_lora *l = &p->adapters[i].lora;
        st = mn_lora_bind(l, p->model, &p->hp, err);
        for (size_t k = 0; k < l->n && !st; k++)
            if (l->at[k].head && mn_str_is(l->at[k].base->info.name, "token_embd.weight"))
                st = mn_fail(err, MN_UNSUPPORTED,
                             "%s adapts the output matrix, which in %s is the embedding, too: it "
                             "cannot be merged",
                             l->path, p->model->path);
    }
    return st;
}

mn_status mn_convert_merge_into(mn_convert_plan *p, const mn_tensor_info *t, mn_out_tensor *out,
                                mn_error *err) {
    if (!p->n_adapters)
        return MN_OK;
    mn_convert_merge *all = mn_arena_alloc(&p->arena, p->n_adapters, sizeof *all);
    if (!all)
        return mn_fail_memory(err, p->n_adapters * sizeof *all);
    for (uint32_t i = 0; i < p->n_adapters; i++) {
        const mn_lora *l = &p->adapters[i].lora;
        for (size_t k = 0; k < l->n; k++)
            if (&l->at[k].base->info == t)
                all[out->n_merges++] = (mn_convert_merge){&l->at[k], p->adapters[i].factor};
    }
    out->merges = all;
    return MN_OK;
}

/* How many tensors of the file have the product. */
static size_t merges_of(const mn_convert_plan *p, const mn_lora_product *product) {
    size_t n = 0;
    for (size_t i = 0; i < p->n_tensors; i++)
        for (uint32_t k = 0; k < p->tensors[i].n_merges; k++)
            n += p->tensors[i].merges[k].product == product;
    return n;
}

mn_status mn_convert_check_merged(const mn_convert_plan *p, mn_error *err) {
    for (uint32_t i = 0; i < p->n_adapters; i++)
        for (size_t k = 0; k < p->adapters[i].lora.n; k++)
            if (!merges_of(p, &p->adapters[i].lora.at[k]))
                return mn_fail(err, MN_UNSUPPORTED, "%s adapts %s, which is not merged here",
                               p->adapters[i].lora.path, p->adapters[i].lora.at[k].target);
    return MN_OK;
}
