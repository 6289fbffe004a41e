/* hparams_heads.c -- the heads of attention in each layer: counts and sizes of queries, keys and
 * values, and the sizes of latent attention. hparams.c reads the rest of a layer. */
#include "model/hparams_read.h"
#include <stdio.h>
#include <string.h>

/* A count of 0 is that of a layer without attention. */
static mn_status check_mixer(const mn_hp_reader *r, int64_t i, bool attends, int64_t n_head_kv,
                             bool told) {
    const bool is_zero = n_head_kv == 0;
    if (attends != is_zero || (!attends && !told))
        return MN_OK;
    return mn_fail(r->err, MN_BAD_FILE,
                   "%s: %s.attention.head_count_kv is %lld in layer %lld, which has %s attention",
                   r->m->path, r->arch, (long long)n_head_kv, (long long)i, attends ? "" : "no");
}

/* Query heads are shared out evenly among those of keys and values. */
static mn_status check_heads(const mn_hp_reader *r, const mn_hparams *h, int64_t i, int64_t n_head,
                             int64_t n_head_kv) {
    char layer[32] = "";
    if (n_head % n_head_kv == 0)
        return MN_OK;
    if (h->n_layer > 1)
        snprintf(layer, sizeof layer, " (layer %lld)", (long long)i);
    return mn_fail(r->err, MN_BAD_FILE,
                   "%s: %s.attention.head_count %lld is not a multiple of "
                   "%s.attention.head_count_kv %lld%s",
                   r->m->path, r->arch, (long long)n_head, r->arch, (long long)n_head_kv, layer);
}

/* The head size of a file that does not say it. */
static mn_status share_width(const mn_hp_reader *r, const mn_hparams *h, int64_t n_head,
                             int64_t *head_dim) {
    if (h->n_embd % n_head)
        return mn_fail(r->err, MN_BAD_FILE,
                       "%s: %s.embedding_length %lld is not a multiple of "
                       "%s.attention.head_count %lld, and there is no %s.attention.key_length",
                       r->m->path, r->arch, (long long)h->n_embd, r->arch, (long long)n_head,
                       r->arch);
    *head_dim = h->n_embd / n_head;
    return MN_OK;
}

bool mn_hp_all_attend(const mn_hparams *h) {
    return h->state_group < 0 && !h->first_layer;
}

/* Heads of q and of k by layer; 0 where a layer has no attention. */
static mn_status read_head_counts(const mn_hp_reader *r, const mn_hparams *h,
                                  mn_layer_shape *layers) {
    int64_t head[MN_MAX_LAYER] = {0};
    int64_t kv[MN_MAX_LAYER] = {0};
    const int64_t lo = mn_hp_all_attend(h);
    bool told = false; /* which layers attend, by zeros */
    mn_status st = mn_hp_each_int(r, "attention.head_count", h->n_layer, lo, 65536, head);
    memcpy(kv, head, sizeof kv);
    if (!st)
        st = mn_hp_each_int(r, "attention.head_count_kv", h->n_layer, lo, 65536, kv);
    for (int64_t i = 0; i < h->n_layer; i++)
        told = told || !kv[i];
    for (int64_t i = h->first_layer; i < h->n_layer && !st; i++) {
        mn_layer_shape *l = &layers[i];
        if (l->attends)
            st = mn_hp_need(r, "attention.head_count", head[i]);
        if (!st)
            st = check_mixer(r, i, l->attends, kv[i], told);
        if (st || !l->attends)
            continue;
        l->n_head = head[i];
        l->n_head_kv = kv[i];
        st = check_heads(r, h, i, head[i], kv[i]);
    }
    return st;
}

/* Heads of a layer with latent attention: that of keys is the latent row. */
static mn_status check_latent(const mn_hp_reader *r, const mn_hparams *h, const mn_layer_shape *l) {
    const int64_t row = h->latent.n_kv + h->latent.n_rot;
    if (!h->latent.n_kv || (l->n_head_kv == 1 && l->head_dim_k == row))
        return MN_OK;
    return mn_fail(r->err, MN_BAD_FILE,
                   "%s: %s.attention.head_count_kv is %lld, key_length %lld; expected 1, %lld: a "
                   "latent row of kv_lora_rank and rope.dimension_count. Files that were made "
                   "otherwise have to be made anew",
                   r->m->path, r->arch, (long long)l->n_head_kv, (long long)l->head_dim_k,
                   (long long)row);
}

mn_status mn_hp_read_heads(const mn_hp_reader *r, const mn_hparams *h, mn_layer_shape *layers) {
    int64_t k[2] = {0};
    int64_t v[2] = {0};
    mn_status st = read_head_counts(r, h, layers);
    if (!st)
        st = mn_hp_int(r, "attention.key_length", 1, 65536, &k[0]);
    if (!st)
        st = mn_hp_int(r, "attention.value_length", 1, 65536, &v[0]);
    k[1] = k[0];
    v[1] = v[0];
    if (!st)
        st = mn_hp_int(r, "attention.key_length_swa", 1, 65536, &k[1]);
    if (!st)
        st = mn_hp_int(r, "attention.value_length_swa", 1, 65536, &v[1]);
    for (int64_t i = 0; i < h->n_layer && !st; i++) {
        mn_layer_shape *l = &layers[i];
        const int swa = l->window > 0;
        if (!l->attends)
            continue;
        l->head_dim_k = k[swa];
        if (!l->head_dim_k)
            st = share_width(r, h, l->n_head, &l->head_dim_k);
        if (h->latent.n_kv) /* whatever files say, who may mean the heads that come of it */
            l->head_dim_v = h->latent.n_kv;
        else if (v[swa])
            l->head_dim_v = v[swa];
        else
            l->head_dim_v = l->head_dim_k;
        if (!st)
            st = check_latent(r, h, l);
    }
    return st;
}

mn_status mn_hp_read_latent(const mn_hp_reader *r, mn_hparams *h) {
    enum { BIG = 65536 };
    mn_latent *l = &h->latent;
    mn_status st = mn_hp_int(r, "attention.kv_lora_rank", 1, BIG, &l->n_kv);
    if (st || !l->n_kv)
        return st;
    st = mn_hp_int(r, "attention.q_lora_rank", 0, BIG, &l->n_q);
    if (!st)
        st = mn_hp_need_int(r, "attention.key_length_mla", 1, BIG, &l->dim_k);
    if (!st)
        st = mn_hp_need_int(r, "attention.value_length_mla", 1, BIG, &l->dim_v);
    if (!st)
        st = mn_hp_need_int(r, "rope.dimension_count", 2, BIG, &l->n_rot);
    if (!st)
        st = mn_hp_real(r, "rope.scaling.yarn_log_multiplier", 0, 1e3, &l->yarn_log);
    if (!st && (l->n_rot >= l->dim_k || l->dim_k % 2 || l->n_kv % 2))
        st = mn_fail(r->err, MN_BAD_FILE,
                     "%s: %s.rope.dimension_count is %lld, attention.key_length_mla %lld, "
                     "kv_lora_rank %lld; expected even numbers, the second above the first",
                     r->m->path, r->arch, (long long)l->n_rot, (long long)l->dim_k,
                     (long long)l->n_kv);
    return st;
}
