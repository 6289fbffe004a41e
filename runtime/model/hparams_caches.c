/* hparams_caches.c -- which layers remember in the same pages: layers that read the keys and values
 * of an earlier one, and the groups of the cache. */
#include "model/hparams_read.h"
#include <stdio.h>
#include <string.h>

mn_str mn_hp_shown_key(const mn_hp_reader *r, const char *key) {
    char full[64];
    snprintf(full, sizeof full, "%s.%s", r->arch, key);
    const mn_meta_entry *e = mn_meta_find(&r->m->meta, full);
    if (e)
        return mn_meta_shown_key(e);
    return mn_str_of(key);
}

mn_status mn_hp_read_shared_caches(const mn_hp_reader *r, const mn_hparams *h,
                                   mn_layer_shape *layers) {
    int64_t n = 0;
    mn_status st = mn_hp_int(r, "attention.shared_kv_layers", 0, h->n_layer, &n);
    for (int64_t i = h->n_layer - n; i < h->n_layer && !st; i++) {
        layers[i].shares = 1;
        int64_t from = h->n_layer - n - 1;
        while (from >= 0 && layers[from].window != layers[i].window)
            from--;
        if (from < 0)
            st = mn_fail(r->err, MN_BAD_FILE,
                         "%s: key %.*s is %lld: layer %lld has no layer of its window in front of "
                         "these to share with",
                         r->m->path, MN_STR_ARG(mn_hp_shown_key(r, "attention.shared_kv_layers")),
                         (long long)n, (long long)i);
    }
    return st;
}

static void share_caches(const mn_hparams *h, mn_layer_shape *layers) {
    for (int64_t i = 0; i < h->n_layer; i++) {
        if (!layers[i].shares)
            continue;
        int64_t from = i - 1;
        while (layers[from].shares || layers[from].window != layers[i].window)
            from--;
        layers[i].kv_group = layers[from].kv_group;
        layers[i].kv_layer = layers[from].kv_layer;
    }
}

mn_status mn_hp_group_layers(const mn_hp_reader *r, mn_hparams *h, mn_layer_shape *layers) {
    uint32_t n_layers[MN_MAX_KV_GROUP] = {0};
    const uint32_t most = MN_MAX_KV_GROUP - (h->state_group >= 0);
    for (int64_t i = h->first_layer; i < h->n_layer; i++) {
        mn_layer_shape *l = &layers[i];
        if (!l->attends || l->shares)
            continue;
        const mn_kv_group want = {
            .window = l->window,
            .n_head_kv = l->n_head_kv,
            .head_dim_k = l->head_dim_k,
            .head_dim_v = l->head_dim_v,
            .one_step = h->bidirectional,
            .v_of_k = h->latent.n_kv > 0,
            .text = i < h->n_encoder,
        };
        uint32_t at = 0;
        while (at < h->n_kv && memcmp(&h->kv[at], &want, sizeof want))
            at++;
        if (at == most)
            return mn_fail(r->err, MN_UNSUPPORTED,
                           "%s: its layers keep keys and values in more than %u ways (window, "
                           "%s.attention.head_count_kv, key_length)",
                           r->m->path, most, r->arch);
        h->kv[at] = want;
        h->n_kv = MN_MAX(h->n_kv, at + 1);
        l->kv_group = at;
        l->kv_layer = n_layers[at]++;
    }
    share_caches(h, layers);
    if (h->n_taps) { /* one head as wide as the rows, of another shape than any layer's */
        if (h->n_kv == most)
            return mn_fail(r->err, MN_UNSUPPORTED,
                           "%s: %u kinds of layers and a convolution are more than %u", r->m->path,
                           h->n_kv, most);
        h->taps_group = h->n_kv;
        h->kv[h->n_kv++] = (mn_kv_group){
            .n_head_kv = 1, .head_dim_k = h->n_embd, .head_dim_v = h->n_embd, .one_step = 1};
    }
    for (int64_t i = h->n_encoder; h->n_encoder && i < h->n_layer; i++)
        layers[i].cross_layer = (uint32_t)i; /* behind what the encoder's layers keep */
    if (h->state_group < 0)
        return MN_OK;
    h->state_group = (int32_t)h->n_kv;
    h->kv[h->n_kv++] = (mn_kv_group){.state = 1};
    return MN_OK;
}
