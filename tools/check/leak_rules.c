/* leak_rules.c -- rule honesty.leaks: what the plugin takes from the C library by itself, beside
 * host->alloc, it gives back. Counted over the second of two lives: what a process keeps for good
 * (tables, a pool) is made in the first. */
#include "allocs.h"
#include "life.h"
#include <string.h>

/* The first weight is put twice, which is refused. */
static void put_twice(check *c, stage *s) {
    const mn_backend *be = s->p.be;
    mn_weights *w = NULL;
    mn_compile ask = s->plan->ask;
    uint32_t t = 0;
    ask.weights = NULL;
    while (t < s->o->g.n_tensors && s->o->t[t].role != MN_ROLE_WEIGHT)
        t++;
    if (t == s->o->g.n_tensors)
        return;
    check_doing(c, "a weight was put twice");
    CHECK_OK(c, be->weights_open(s->p.dev, &ask, &w, &s->p.err), &s->p.err, "weights_open");
    for (int i = 0; i < 2; i++) {
        mn_event *ev = NULL;
        const mn_status st = case_put_weight(s->plan, w, s->p.queue, t, &ev, &s->p.err);
        case_wait(be, st, &ev, NULL);
    }
    be->weights_free(w);
}

static void bind_twice(check *c, stage *s) {
    const mn_backend *be = s->p.be;
    const case_plan *p = s->plan;
    mn_context *x = NULL;
    check_doing(c, "context_create, context_bind and context_free ran");
    mn_status st = mn_usual_context(be, p->program, s->p.queue, &x, &s->p.err);
    for (int i = 0; i < 2 && !st; i++)
        st = be->context_bind(x, 0, p->binding, p->n_bindings, sizeof *p->binding, &s->p.err);
    CHECK_OK(c, st, &s->p.err, "a second context");
    be->context_free(x);
}

/* *code: an address in the plugin's file. */
static void leak_life(check *c, const void **code) {
    stage s;
    if (!stage_plan(c, &s))
        return;
    memcpy(code, &s.p.api->query, sizeof *code); /* ISO C has no cast */
    for (int i = 0; i < 2 && !check_over(c); i++)
        check_status(c, case_step(s.plan, s.o, &s.p.err), &s.p.err, "execute");
    if (!check_over(c))
        bind_twice(c, &s);
    if (!check_over(c))
        put_twice(c, &s);
    if (!check_over(c))
        stage_close(c, &s);
}

void check_honesty_leaks(check *c) {
    const void *code = NULL;
    leak_life(c, &code);
    if (check_over(c))
        return;
    if (!allocs_track(code, &c->result->call)) {
        check_skip(c, "the allocator of this process is not the C library's");
        return;
    }
    leak_life(c, &code);
    const allocs_left left = allocs_stop();
    CHECK(c, !left.n,
          "found %llu blocks of malloc, calloc, realloc or aligned_alloc (%llu bytes) not freed "
          "after shutdown, one of them allocated during %s, expected none",
          (unsigned long long)left.n, (unsigned long long)left.bytes,
          left.call ? left.call : "no call");
}
