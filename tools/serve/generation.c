/* generation.c -- the generations of the front and their way through the engines.
 *
 * A generation keeps all its ids, so that an engine that dies costs it nothing but time: it is sent
 * again with what was drawn, and draws on as if nothing had happened. Events of an engine come with
 * the generation's id; an id that is unknown belongs to one that was ended meanwhile. A generation
 * is owned by its answer; the table of ids points to those that have begun and are not finished. */
#include "serve/generation.h"
#include "serve/answer.h"
#include "serve/embeddings.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_TOKENS = 64 };

/* ---- the table ------------------------------------------------------------------------------- */

static generation **gen_slot_of(serve *s, uint64_t id) {
    return &s->table[id % SERVE_TABLE];
}

generation *generation_find(serve *s, uint64_t id) {
    generation *g = *gen_slot_of(s, id);
    while (g && g->id != id)
        g = g->next;
    return g;
}

/* From now on events of its id find it. */
static void insert(serve *s, generation *g) {
    generation **slot = gen_slot_of(s, g->id);
    g->next = *slot;
    *slot = g;
    s->n_generations++;
    g->answer->m->n_generations++;
}

/* Not found: it is finished. */
static void gen_leave(serve *s, generation *g) {
    generation **at = gen_slot_of(s, g->id);
    while (*at && *at != g)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = g->next;
    s->n_generations--;
    g->answer->m->n_generations--;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Space for one more id. 0: out of memory. */
static int gen_reserve(generation *g, uint32_t n) {
    if (n <= g->cap)
        return 1;
    const uint32_t cap = n + n / 2 + 64;
    int32_t *grown = realloc(g->ids, cap * sizeof *grown);
    if (!grown)
        return 0;
    g->ids = grown;
    g->cap = cap;
    return 1;
}

/* Of the first ids: prompts with the same hash are taken to share their beginning. */
static uint64_t hash_ids(const int32_t *ids, uint32_t n) {
    uint64_t h = MN_FNV_BASIS;
    for (uint32_t i = 0; i < n && i < PREFIX_TOKENS; i++)
        h = mn_fnv_word(h, (uint32_t)ids[i]);
    return h;
}

int generation_open(served *m, generation *g, const int32_t *ids, uint32_t n, uint32_t stream_flags,
                    const ask *a, json_error *e) {
    mn_error err = MN_ERROR;
    mn_status st = mn_stream_create(m->a.model, stream_flags, &g->stream, &err);
    if (st == MN_OK && a->n_stop)
        st = mn_stream_stop(g->stream, a->stop, a->n_stop, &err);
    if (st == MN_OK)
        st = mn_stream_stop_from(g->stream, (uint32_t)a->min_tokens, &err);
    if (st)
        return serve_library_error(&err, st, "stop", e);
    mn_stream_prompt(g->stream, ids, n);
    if (!gen_reserve(g, n))
        return json_no_memory(e);
    memcpy(g->ids, ids, n * sizeof *ids);
    g->n_ids = n;
    g->n_prompt = n;
    g->prefix = hash_ids(ids, n);
    g->begin = seconds();
    return 1;
}

void generation_free(serve *s, generation *g) {
    generation_abort(s, g);
    mn_stream_free(g->stream);
    free(g->ids);
    mn_text_free(&g->content);
    mn_text_free(&g->thinking);
    mn_text_free(&g->calls);
    mn_text_free(&g->logprobs);
    mn_text_free(&g->offsets);
}

/* ---- to an engine ---------------------------------------------------------------------------- */

/* The engine has g from now on (NULL: none), and the beginning of its prompt in its cache. */
static void set_link(generation *g, engine_link *l) {
    if (g->link)
        g->link->n_generations--;
    g->link = l;
    if (!l)
        return;
    l->n_generations++;
    l->prefixes[g->prefix % LINK_PREFIXES] = g->prefix;
}

/* 1 if the engine had a prompt with the same beginning lately. */
static int has_prefix(const engine_link *l, const generation *g) {
    return l->prefixes[g->prefix % LINK_PREFIXES] == g->prefix;
}

/* The engine for g: of those that are ready the least loaded one, or one that has the beginning of
 * the prompt if it is not much busier. NULL: none is ready. */
static engine_link *gen_choose(const generation *g) {
    const served *m = g->answer->m;
    engine_link *best = NULL;
    double least = INFINITY;
    for (unsigned i = 0; i < m->n_links; i++) {
        engine_link *l = &m->links[i];
        if (l->state != LINK_READY)
            continue;
        if (m->n_links == 1)
            return l;
        const double shared = has_prefix(l, g) ? 0.25 * (double)m->n_seq : 0;
        const double load = (double)l->n_generations - shared;
        if (load < least) {
            least = load;
            best = l;
        }
    }
    return best;
}

static void gen_finish(serve *s, generation *g, int why);

/* Its last id came, and its end was lost with an engine. */
static int gen_is_complete(const generation *g) {
    return g->finish != MN_FINISH_NONE || (g->max_new && g->n_ids - g->n_prompt >= g->max_new);
}

/* Users cannot time each other's prompts, nor prompts of another cache_salt. */
static uint64_t salt_of(const answer *a) {
    const char *salt = a->ask.cache_salt;
    const uint64_t key = (uint64_t)(a->http->key + 1);
    return salt ? mn_fnv_z(MN_FNV_BASIS ^ key, salt) : key;
}

/* To an engine, with what was drawn so far; g->link stays NULL if none is ready. */
static void gen_send(generation *g) {
    const answer *a = g->answer;
    engine_link *l = gen_choose(g);
    set_link(g, l);
    if (!l)
        return;
    wire_submit m = {.id = g->id,
                     .n_ids = g->n_ids,
                     .n_drawn = g->n_ids - g->n_prompt,
                     .n_top = (uint32_t)a->ask.n_top,
                     .sample = a->sample,
                     .ids = g->ids,
                     .n_bias = a->ask.n_bias,
                     .bias_ids = a->ask.bias_ids,
                     .bias = a->ask.bias,
                     .form = a->ask.form.kind,
                     .form_flags = a->ask.form.flags,
                     .form_source = a->ask.form.source};
    m.flags = MN_SUBMIT_PROGRESS | (a->ask.logprobs ? MN_SUBMIT_LOGPROBS : 0);
    m.priority = a->ask.priority > 0 ? MN_PRIORITY_LOW : MN_PRIORITY_NORMAL;
    m.cache_salt = salt_of(a);
    m.sample.min_new = (uint32_t)a->ask.min_tokens;
    m.sample.adapter = adapters_of(a->m, a->ask.model);
    if (a->echo && a->ask.logprobs && g->index % (uint32_t)a->ask.n == 0)
        m.flags |= MN_SUBMIT_PROMPT_LOGPROBS;
    if (!g->max_new)
        m.sample.flags |= MN_SAMPLE_PREFILL_ONLY;
    m.sample.max_new = g->max_new;
    m.sample.seed = g->seed;
    wire_put_submit(&l->out, &m);
    if (!link_flush(l))
        answer_no_memory(g->answer);
}

void generation_start(serve *s, generation *g) {
    g->id = s->next_id++;
    insert(s, g);
    gen_send(g);
}

void generations_resume(serve *s) {
    for (size_t i = 0; i < SERVE_TABLE; i++)
        for (generation *g = s->table[i]; g;) {
            generation *next = g->next;
            if (g->done) {
                /* the end of another one of its answer was its end */
            } else if (!g->link && gen_is_complete(g)) {
                gen_finish(s, g, g->finish ? g->finish : MN_FINISH_LENGTH);
            } else if (!g->link) {
                g->answer->m->metrics.resubmitted += g->admitted;
                gen_send(g);
            }
            g = next;
        }
}

/* No more events come, and the engine is told to stop. */
static void gen_end(serve *s, generation *g) {
    engine_link *l = g->link;
    if (g->id)
        gen_leave(s, g);
    if (l && l->state == LINK_READY && !g->done) {
        wire_put_id(&l->out, WIRE_ABORT, g->id);
        link_flush(l);
    }
    set_link(g, NULL);
}

void generation_abort(serve *s, generation *g) {
    if (g->done)
        return;
    if (g->id)
        g->answer->m->metrics.finished[FINISHED_ABORT]++;
    gen_end(s, g);
    g->done = 1;
}

/* ---- from an engine -------------------------------------------------------------------------- */

/* For /metrics. */
static void count_finish(const generation *g) {
    metrics *m = &g->answer->m->metrics;
    size_t reason = g->finish == MN_FINISH_LENGTH ? FINISHED_LENGTH : FINISHED_STOP;
    if (g->n_calls && reason == FINISHED_STOP)
        reason = FINISHED_TOOL_CALLS;
    m->finished[reason]++;
    m->prompt_tokens += g->n_prompt;
    histogram_add(&m->e2e, seconds() - g->begin);
}

/* The output has ended: the text that was kept back, then the end. */
static void gen_finish(serve *s, generation *g, int why) {
    const mn_stream_event *events = NULL;
    uint32_t n = 0;
    g->finish = why;
    if (why == MN_FINISH_LENGTH)
        mn_stream_cut(g->stream);
    if (!g->stop_string) {
        if (mn_stream_finish(g->stream, &events, &n, NULL)) {
            answer_no_memory(g->answer);
            return;
        }
        answer_token(g->answer, g, NULL, events, n);
    }
    if (!g->stop_string && mn_stream_stopped(g->stream) > 0)
        g->stop_string = mn_stream_stopped(g->stream);
    if (g->stop_string)
        g->finish = MN_FINISH_STOP;
    gen_end(s, g);
    g->done = 1;
    count_finish(g);
    answer_finished(g->answer, g);
}

/* For /metrics: times as the client sees them. */
static void count_token(generation *g) {
    metrics *m = &g->answer->m->metrics;
    const double now = seconds();
    if (g->first > 0)
        histogram_add(&m->inter_token, now - g->last);
    else
        histogram_add(&m->first_token, now - g->begin);
    if (g->first <= 0)
        g->first = now;
    g->last = now;
    m->generation_tokens++;
}

/* One more id. A stop id is kept, and has text with keep_stop alone. */
static void on_token(serve *s, generation *g, const wire_event *m) {
    const mn_stream_event *events = NULL;
    uint32_t n = 0;
    if (m->token < 0 || m->n_drawn != g->n_ids - g->n_prompt + 1) {
        answer_fail(g->answer, 500, "server_error", "the engine sent a token out of order");
        return;
    }
    if (!gen_reserve(g, g->n_ids + 1)) {
        answer_no_memory(g->answer);
        return;
    }
    g->ids[g->n_ids++] = m->token;
    g->finish = m->finish;
    count_token(g);
    if (m->finish == MN_FINISH_STOP && !g->answer->ask.keep_stop)
        return;
    if (mn_stream_push(g->stream, m->token, &events, &n, NULL)) {
        answer_no_memory(g->answer);
        return;
    }
    answer_token(g->answer, g, m, events, n);
    const int stopped = mn_stream_stopped(g->stream);
    if (g->done || !stopped)
        return;
    g->stop_string = stopped > 0 ? stopped : 0; /* else a second call began, and there may be one */
    gen_finish(s, g, MN_FINISH_STOP);
}

/* The engine's last event: the end of the text, or an error of this generation alone. */
static void on_finish(serve *s, generation *g, const wire_event *m) {
    metrics *all = &g->answer->m->metrics;
    g->n_cached = m->n_cached > g->n_cached ? m->n_cached : g->n_cached;
    g->n_drafted = m->n_drafted;
    g->n_accepted = m->n_accepted;
    if (g->first > 0) {
        histogram_add(&all->queue, (double)m->queued_ns * 1e-9);
        histogram_add(&all->prefill, (double)m->prefill_ns * 1e-9);
        histogram_add(&all->decode, (double)m->decode_ns * 1e-9);
    }
    const int prompt_only = m->finish == MN_FINISH_PROMPT;
    if (m->finish == MN_FINISH_STOP || m->finish == MN_FINISH_LENGTH || prompt_only) {
        gen_finish(s, g, prompt_only ? MN_FINISH_LENGTH : m->finish);
        return;
    }
    char message[512];
    const int of_request = m->status == MN_UNSUPPORTED;
    snprintf(message, sizeof message, "%.*s", (int)(m->message.len < 500 ? m->message.len : 500),
             m->message.ptr ? m->message.ptr : "");
    all->finished[FINISHED_ERROR]++;
    const unsigned own = m->status == MN_OUT_OF_MEMORY ? 503 : 500;
    answer_fail(g->answer, of_request ? 400 : own,
                of_request ? "invalid_request_error" : "server_error",
                message[0] ? message : "the engine ended the generation");
}

/* The generation that an engine speaks of; NULL: it does not have it, or not any more. */
static generation *find_on(serve *s, const engine_link *l, uint64_t id) {
    generation *g = generation_find(s, id);
    return g && g->link == l ? g : NULL;
}

/* A long prompt is told to its client, and to the log after a second, then every few. */
static void on_progress(generation *g, const wire_event *m) {
    enum { LOG_S = 5 };
    const double now = seconds();
    answer_progress(g->answer, g, m);
    if (now - g->begin < 1 || now - g->logged < LOG_S)
        return;
    g->logged = now;
    note("%s: %u of %u tokens of the prompt (%u %%) after %.1f s", g->answer->id, m->n_computed,
         g->n_prompt, (unsigned)(100ull * m->n_computed / g->n_prompt), now - g->begin);
}

static void on_admitted(void *arg, const engine_link *l, uint64_t id) {
    const served *model = arg;
    generation *g = find_on(model->s, l, id);
    if (!g)
        adapters_changed(model->s, l, id, NULL);
    if (!g || g->admitted)
        return;
    g->admitted = 1;
    answer_admitted(g->answer, g);
}

static void on_event(void *arg, const engine_link *l, const wire_event *m) {
    const served *model = arg;
    serve *s = model->s;
    generation *g = find_on(s, l, m->id);
    if (!g)
        return;
    if (!g->admitted)
        on_admitted(arg, l, m->id); /* its answer comes behind */
    if (m->kind == MN_REQUEST_PROGRESS) {
        on_progress(g, m);
        return;
    }
    answer_computed(g->answer, g, m);
    if (m->kind == MN_REQUEST_PROMPT)
        g->n_cached = m->n_cached;
    else if (m->kind == MN_REQUEST_TOKEN)
        on_token(s, g, m);
    else if (m->kind == MN_REQUEST_FINISH)
        on_finish(s, g, m);
}

/* Ids of generations and of embeddings come from one counter. */
static void on_refused(void *arg, const engine_link *l, const wire_refused *m) {
    const served *model = arg;
    serve *s = model->s;
    generation *g = find_on(s, l, m->id);
    if (g)
        answer_refused(g->answer, g, m);
    else if (!adapters_changed(s, l, m->id, &m->message))
        embeddings_refused(s, l, m);
}

static void on_vector(void *arg, const engine_link *l, const wire_vector *m) {
    const served *model = arg;
    embeddings_vector(model->s, l, m);
}

/* What an answer depends on beside its request: version, model, device, precision. */
static void set_fingerprint(served *m, const wire_ready *info) {
    char facts[64];
    snprintf(facts, sizeof facts, "%llx.%u", (unsigned long long)info->stamp, info->precision);
    uint64_t h = mn_fnv_z(MN_FNV_BASIS, mn_version());
    h = mn_fnv_z(h, facts);
    if (info->device.ptr)
        h = mn_fnv_z(h, info->device.ptr);
    snprintf(m->fingerprint, sizeof m->fingerprint, "b%016llx", (unsigned long long)h);
}

/* The limits of the server are those of the engine with the smallest context. */
static void on_ready(void *arg, engine_link *l) {
    served *m = arg;
    serve *s = m->s;
    if (!m->n_ctx || l->info.n_ctx < m->n_ctx)
        m->n_ctx = l->info.n_ctx;
    m->n_seq = l->info.n_seq;
    if (!m->fingerprint[0])
        set_fingerprint(m, &l->info);
    app_remark(&s->a,
               "%s is ready: %s, weights %.1f MiB, KV cache %.1f MiB, %u tokens of context, "
               "%u sequences at once",
               l->title, l->info.device.ptr, (double)l->info.weight_bytes / 1048576,
               (double)l->info.kv_bytes / 1048576, l->info.n_ctx, l->info.n_seq);
    generations_resume(s);
    embeddings_resume(s);
    models_ready(m);
}

/* The generations of an engine that died wait for the next one, unless they may be the reason. */
static void on_down(void *arg, engine_link *l, int crashed) {
    const served *m = arg;
    serve *s = m->s;
    unsigned n = 0;
    for (size_t i = 0; i < SERVE_TABLE; i++)
        for (generation *g = s->table[i]; g;) {
            generation *next = g->next;
            if (g->link == l) {
                set_link(g, NULL);
                g->n_crashes += (unsigned)crashed;
                n++;
            }
            g = next;
        }
    if (n)
        note("%s: generations that continue in the next one: %u", l->title, n);
    for (answer *a = s->answers; a;) {
        answer *next = a->next;
        for (uint32_t i = 0; !a->in.running && i < a->n; i++)
            if (!a->g[i].done && a->g[i].n_crashes >= SERVE_MAX_CRASHES) {
                answer_fail(a, 500, "server_error",
                            "the engine crashed several times while it computed this answer");
                break;
            }
        a = next;
    }
    embeddings_down(s, l, crashed);
    adapters_down(s, l);
    generations_resume(s);
    embeddings_resume(s);
}

const engine_calls serve_engine_calls = {.ready = on_ready,
                                         .down = on_down,
                                         .admitted = on_admitted,
                                         .refused = on_refused,
                                         .event = on_event,
                                         .vector = on_vector};
