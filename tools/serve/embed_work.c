/* embed_work.c -- embeds texts for an engine process (embed_work.h).
 *
 * Embedding needs a session of its own kind, which shares the model but not its state with the one
 * that generates; the two run at the same time. Everything lives as long as the process. */
#include "serve/embed_work.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    struct job *next;
    wire_embed request; /* its arrays are the job's */
    uint32_t *lengths, *firsts;
    int32_t *ids;
} job;

struct embed_work {
    mn_session *session;
    uint32_t n_embd;
    embed_done_fn done;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    job *first, **last;
};

int embed_work_is_encoder(const app *a) {
    return a->info.is_encoder;
}

int embed_work_is_wanted(const app *a, uint32_t asked) {
    return asked || a->info.is_encoder || a->info.is_reranker;
}

/* *values: [n_texts, n_dim], malloc'ed, freed by the caller; NULL: no memory. */
static mn_status embed_work_embed(embed_work *w, const wire_embed *m, float **values,
                                  uint32_t n_dim, mn_error *err) {
    mn_embed_params params = {.size = sizeof params, .n_dim = m->n_dim};
    const uint64_t n = (uint64_t)m->n_texts * n_dim;
    mn_embed_text *texts = calloc(m->n_texts ? m->n_texts : 1, sizeof *texts);
    const int32_t *at = m->ids;
    mn_status st = MN_OUT_OF_MEMORY;
    *values = malloc((n ? n : 1) * sizeof **values);
    for (uint32_t i = 0; texts && i < m->n_texts; i++) {
        texts[i] = (mn_embed_text){.ids = at, .n = m->lengths[i]};
        if (m->how)
            texts[i].n_first = m->firsts[i];
        at += m->lengths[i];
    }
    if (texts && *values && m->how)
        st = mn_session_score(w->session, texts, m->n_texts,
                              m->how == WIRE_EMBED_LOGITS ? MN_SCORE_LOGIT : 0, *values, n, err);
    else if (texts && *values)
        st = mn_session_embed(w->session, texts, m->n_texts, &params, *values, n, err);
    free(texts);
    return st;
}

static void free_job(job *j) {
    free(j->lengths);
    free(j->firsts);
    free(j->ids);
    free(j);
}

/* Computes a job, passes the answer on and frees the job. */
static void embed_work_run(embed_work *w, job *j) {
    mn_error err = MN_ERROR;
    float *values = NULL;
    const uint32_t n_dim = j->request.n_dim ? j->request.n_dim : w->n_embd;
    const mn_status st = embed_work_embed(w, &j->request, &values, n_dim, &err);
    const wire_vector v = {
        .id = j->request.id, .n_texts = j->request.n_texts, .n_dim = n_dim, .values = values};
    w->done(w->arg, &v, st, err.msg[0] ? err.msg : "out of memory");
    free(values);
    free_job(j);
}

/* The thread: one job after the other, for ever. */
static void *embed_work_run_all(void *arg) {
    embed_work *w = arg;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (!w->first)
            pthread_cond_wait(&w->wake, &w->lock);
        job *j = w->first;
        w->first = j->next;
        if (!w->first)
            w->last = &w->first;
        pthread_mutex_unlock(&w->lock);
        embed_work_run(w, j);
    }
    return NULL;
}

mn_status embed_work_create(app *a, embed_done_fn done, void *arg, embed_work **out) {
    embed_work *w = calloc(1, sizeof *w);
    pthread_t thread;
    if (!w) {
        snprintf(a->err.msg, sizeof a->err.msg, "out of memory");
        return MN_OUT_OF_MEMORY;
    }
    mn_session_params params = {
        .size = sizeof params, .device = a->flags->device, .flags = MN_SESSION_EMBED};
    params.precision = (uint32_t)a->flags->precision;
    params.n_ctx = (uint32_t)a->flags->ctx.v;
    const mn_status st = mn_session_create(a->model, &params, &w->session, &a->err);
    if (st) {
        free(w);
        return st;
    }
    if (a->info.is_encoder) {
        a->session_info.size = sizeof a->session_info;
        mn_session_get_info(w->session, &a->session_info);
    }
    w->n_embd = (uint32_t)a->info.n_embd;
    w->done = done;
    w->arg = arg;
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    if (pthread_create(&thread, NULL, embed_work_run_all, w) != 0) {
        snprintf(a->err.msg, sizeof a->err.msg, "engine: cannot start a thread for embeddings");
        mn_session_free(w->session);
        pthread_cond_destroy(&w->wake);
        pthread_mutex_destroy(&w->lock);
        free(w);
        return MN_IO_ERROR;
    }
    pthread_detach(thread);
    *out = w;
    return MN_OK;
}

static void *embed_work_copy(const void *from, size_t n) {
    void *to = malloc(n ? n : 1);
    if (to && n)
        memcpy(to, from, n);
    return to;
}

int embed_work_submit(embed_work *w, const wire_embed *m) {
    job *j = calloc(1, sizeof *j);
    if (!j)
        return 0;
    j->request = *m;
    j->lengths = embed_work_copy(m->lengths, m->n_texts * sizeof *m->lengths);
    j->ids = embed_work_copy(m->ids, m->n_ids * sizeof *m->ids);
    j->firsts = embed_work_copy(m->firsts, m->how ? m->n_texts * sizeof *m->firsts : 0);
    j->request.lengths = j->lengths;
    j->request.firsts = j->firsts;
    j->request.ids = j->ids;
    if (!j->lengths || !j->firsts || !j->ids) {
        free_job(j);
        return 0;
    }
    pthread_mutex_lock(&w->lock);
    *w->last = j;
    w->last = &j->next;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    return 1;
}
