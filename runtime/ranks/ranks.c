/* ranks.c -- life of the whole, and what tells one model from another. */
#include "ranks/ranks_impl.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the digest of a model ------------------------------------------------------------------- */
typedef struct {
    uint64_t h[2];
} digest;

static void ranks_add(digest *d, const void *bytes, uint64_t n) {
    static const uint64_t key[2] = {0x4d696e6572766120, 0x6d6f64656c206469};
    d->h[0] ^= n;
    mn_hash_keyed(key, d->h, n ? bytes : "", (size_t)n, d->h);
}

static void add_value(digest *d, const mn_value *v) {
    const uint64_t element =
        (v->type & 15) == MN_VALUE_BOOL ? 1 : sizeof(int64_t); /* of arrays but of texts */
    const mn_str *texts = v->array;
    ranks_add(d, &v->type, sizeof v->type);
    if (!(v->type & MN_VALUE_ARRAY)) {
        ranks_add(d, &v->i, v->type == MN_VALUE_INT || v->type == MN_VALUE_BOOL ? sizeof v->i : 0);
        ranks_add(d, &v->f, v->type == MN_VALUE_FLOAT ? sizeof v->f : 0);
        ranks_add(d, v->s.ptr, v->type == MN_VALUE_STR ? v->s.len : 0);
        return;
    }
    ranks_add(d, &v->n, sizeof v->n);
    if ((v->type & 15) != MN_VALUE_STR)
        ranks_add(d, v->array, v->n * element);
    else
        for (uint64_t i = 0; i < v->n; i++)
            ranks_add(d, texts[i].ptr, texts[i].len);
}

void mn_rank_model_digest(const mn_canonical *m, char out[33]) {
    digest d = {{0, 0}};
    for (uint32_t i = 0; i < m->files.n; i++)
        if (m->files.has_weights[i])
            ranks_add(&d, &m->files.files[i].bytes, sizeof m->files.files[i].bytes);
    for (size_t i = 0; i < m->meta.n; i++) {
        ranks_add(&d, m->meta.entries[i].key.ptr, m->meta.entries[i].key.len);
        add_value(&d, &m->meta.entries[i].value);
    }
    for (size_t i = 0; i < m->n_tensors; i++) {
        const mn_tensor_info *t = &m->tensors[i].info;
        ranks_add(&d, t->name.ptr, t->name.len);
        ranks_add(&d, &t->dtype, sizeof t->dtype);
        ranks_add(&d, t->dim, t->n_dim * sizeof t->dim[0]);
        ranks_add(&d, &m->tensors[i].bytes, sizeof m->tensors[i].bytes);
    }
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)d.h[0], (unsigned long long)d.h[1]);
}

/* ---- life ------------------------------------------------------------------------------------ */
uint32_t mn_ranks_rank(const mn_ranks *r) {
    return r->params.place.rank;
}

const mn_plugin_record *mn_ranks_plugin(const mn_ranks *r) {
    return &r->record;
}

mn_status mn_ranks_follow(mn_ranks *r, mn_error *err) {
    return mn_follow(r, err);
}

static void free_links(mn_ranks *r) {
    for (uint32_t i = 0; i < r->n_links; i++) {
        mn_link *l = &r->links[i];
        if (l->fd >= 0)
            close(l->fd);
        for (mn_frame *f = l->first, *next; f; f = next) {
            next = f->next;
            mn_free(f);
        }
        mn_free(l->frame);
        pthread_mutex_destroy(&l->send_lock);
    }
    mn_free(r->links);
}

/* A second caller returns when the others are told, too: it may end the process. */
void mn_ranks_leave(mn_ranks *r) {
    pthread_mutex_lock(&r->leave_lock);
    const bool was_over = atomic_exchange(&r->over, true); /* what ends now ends in order */
    const bool tells = !was_over && !r->params.place.rank && r->has_thread && !r->broken;
    for (uint32_t i = 0; i < r->n_links && tells; i++)
        mn_link_say(r, &r->links[i], MN_SAY_BYE, NULL, 0);
    pthread_mutex_unlock(&r->leave_lock);
}

void mn_ranks_free(mn_ranks *r) {
    if (!r)
        return;
    mn_ranks_leave(r);
    mn_links_stop(r);
    free_links(r);
    pthread_mutex_destroy(&r->leave_lock);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->wait_lock);
    pthread_cond_destroy(&r->came);
    mn_text_free(&r->out);
    mn_free(r->free_ids);
    mn_free(r);
}

mn_status mn_ranks_open(const mn_ranks_params *p, mn_ranks **out, mn_error *err) {
    mn_ranks *r = mn_calloc(1, sizeof *r);
    const uint32_t n_links = p->place.rank ? 1 : p->place.n_ranks - 1;
    if (!r)
        return mn_fail_memory(err, sizeof *r);
    r->params = *p;
    pthread_mutex_init(&r->leave_lock, NULL);
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->wait_lock, NULL);
    pthread_cond_init(&r->came, NULL);
    r->links = mn_calloc(n_links, sizeof *r->links);
    r->n_links = r->links ? n_links : 0;
    for (uint32_t i = 0; i < r->n_links; i++) {
        r->links[i].fd = -1;
        pthread_mutex_init(&r->links[i].send_lock, NULL);
    }
    mn_status st = r->links ? mn_ranks_meet(r, err) : mn_fail_memory(err, n_links);
    if (!st && p->device)
        mn_mirror_init(r);
    if (!st)
        st = mn_links_start(r, err);
    if (st)
        mn_ranks_free(r);
    else
        *out = r;
    return st;
}
