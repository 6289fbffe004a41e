/* answer.c -- answers made of generations: admission, chunks of a stream, the whole object, usage,
 * errors.
 *
 * 200 is sent when all generations are admitted, so that what can be refused is refused by status.
 * A stream then has one chunk per token that completed some text. The answer belongs to its HTTP
 * request: it is freed when that is gone, never before. */
#include "serve/dialect.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_UNSENT = 8 << 20 };

/* ---- life ------------------------------------------------------------------------------------ */

/* An id that no other answer of this or another server has: the clients see it. */
static void answer_set_id(answer *a) {
    const uint64_t low = sampling_seed();
    const uint64_t high = sampling_seed();
    snprintf(a->id, sizeof a->id, "%s%016llx%08llx", a->form->id_prefix,
             (unsigned long long)(high << 32 | low), (unsigned long long)a->s->next_id);
}

/* What every chunk begins with: {"id": ..., "choices": [{"index": */
static void set_head(answer *a) {
    mn_text *b = &a->head;
    mn_text_printf(b, "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", a->id,
                   a->form->chunk_object, (long long)a->created);
    json_stringz(b, a->m->name);
    mn_text_printf(b, ",\"system_fingerprint\":\"%s\",\"choices\":[", a->m->fingerprint);
}

/* An answer for r. NULL: out of memory, r is answered. */
static answer *create(serve *s, http_request *r, const answer_form *form) {
    answer *a = calloc(1, sizeof *a);
    if (!a) {
        http_error(r, 503, "server_error", NULL, NULL, "out of memory");
        return NULL;
    }
    a->s = s;
    a->http = r;
    a->form = form;
    a->created = (int64_t)time(NULL);
    a->next = s->answers;
    if (a->next)
        a->next->prev = a;
    s->answers = a;
    answer_set_id(a);
    return a;
}

/* Ends the generations and frees everything; the client's request is not touched. */
static void answer_free(reading *x) {
    answer *a = (answer *)(void *)x;
    serve *s = a->s;
    for (uint32_t i = 0; i < a->n; i++)
        generation_free(s, &a->g[i]);
    for (uint32_t i = 0; a->echo && i < a->n_prompts; i++)
        free(a->echo[i]);
    if (a->prev)
        a->prev->next = a->next;
    else
        s->answers = a->next;
    if (a->next)
        a->next->prev = a->prev;
    if (a->form->dialect && a->form->dialect->free)
        a->form->dialect->free(a->own);
    free(a->echo);
    free(a->g);
    mn_text_free(&a->head);
    ask_free(&a->ask);
    free(a);
}

int answer_reserve(answer *a, uint32_t n_prompts, json_error *e) {
    if (!serve_check_number(a->s, (uint64_t)n_prompts * (uint64_t)a->ask.n, e))
        return 0;
    a->n_prompts = n_prompts;
    a->n = n_prompts * (uint32_t)a->ask.n;
    a->g = calloc(a->n, sizeof *a->g);
    if (a->g)
        return 1;
    a->n = 0;
    return json_no_memory(e);
}

void answer_defaults(answer *a) {
    const served *m = a->m;
    const uint64_t seed = m->has_seed ? m->sample.seed : sampling_seed();
    ask_default_stops(&a->ask, m->stops.v, m->stops.n);
    ask_sample(&a->ask, &m->sample, seed, &a->sample);
}

/* The limit of tokens of a generation after n_prompt tokens of prompt, at most what the context has
 * room for: agents always ask for more. -1: the error is set. */
static int64_t answer_limit_of(const answer *a, uint32_t n_prompt, uint32_t limit,
                               const char *param, json_error *e) {
    const uint32_t n_ctx = a->m->n_ctx;
    const int64_t asked = a->ask.max_tokens >= 0 || !limit ? a->ask.max_tokens : limit;
    const int64_t room = (int64_t)n_ctx - n_prompt;
    if (room < (asked ? 1 : 0)) {
        serve_too_long(a->m, n_prompt, param, e);
        return -1;
    }
    return asked < 0 || asked > room ? room : asked;
}

int answer_prompt(answer *a, uint32_t i, const int32_t *ids, uint32_t n, uint32_t stream_flags,
                  uint32_t limit, const char *param, json_error *e) {
    const int64_t max_new = answer_limit_of(a, n, limit, param, e);
    if (max_new < 0)
        return 0;
    for (uint32_t k = 0; k < (uint32_t)a->ask.n; k++) {
        const uint32_t index = i * (uint32_t)a->ask.n + k;
        generation *g = &a->g[index];
        g->answer = a;
        g->index = index;
        g->max_new = (uint32_t)max_new;
        g->seed = a->sample.seed + k;
        if (!generation_open(a->m, g, ids, n, stream_flags, &a->ask, e))
            return 0;
    }
    return 1;
}

/* The answer to a request without a prompt. */
static void send_empty(answer *a) {
    mn_text out = {0};
    if (a->form->dialect->empty(a, &out))
        serve_json(a->s, a->http, &out);
    mn_text_free(&out);
}

/* Starts the first choice of each prompt; the others follow when its prompt is computed, whose
 * pages they share then. */
static void start(reading *x) {
    answer *a = (answer *)(void *)x;
    if (a->failed || !serve_admit(a->s, a->http, a->n))
        return;
    if (!a->n) {
        send_empty(a);
        return;
    }
    for (uint32_t i = 0; i < a->n; i += (uint32_t)a->ask.n)
        a->http->n_prompt += a->g[i].n_prompt;
    for (uint32_t i = 0; i < a->n && !a->failed; i += (uint32_t)a->ask.n)
        generation_start(a->s, &a->g[i]);
}

static int read_request(reading *x) {
    answer *a = (answer *)(void *)x;
    a->body = x->body;
    a->m = x->m;
    set_head(a);
    return a->form->read(a, &x->e);
}

void answer_serve(serve *s, http_request *r, const answer_form *form) {
    if (!serve_has_room(s, r, 1))
        return;
    answer *a = create(s, r, form);
    if (!a)
        return;
    a->in.counts = 1;
    a->in.streams = 1;
    a->in.read = read_request;
    a->in.begin = start;
    a->in.release = answer_free;
    reading_start(&a->in, s, r);
}

void answer_computed(answer *a, generation *g, const wire_event *e) {
    const uint32_t n = (uint32_t)a->ask.n;
    const int has_logprobs = e->kind == MN_REQUEST_PROMPT && e->n_prompt == g->n_prompt;
    if (g->index % n || a->failed)
        return;
    for (uint32_t i = g->index; i < g->index + n; i++) {
        if (has_logprobs && a->form->prompt && !a->g[i].has_prompt) {
            a->form->prompt(a, &a->g[i], e);
            a->g[i].has_prompt = 1;
        }
        if (!a->g[i].id)
            generation_start(a->s, &a->g[i]);
    }
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Sends a piece of a stream; out of memory ends the connection, since a gap could not be seen. */
static void answer_put(answer *a, const mn_text *b) {
    if (b->failed) {
        http_drop(a->http);
        return;
    }
    http_put(a->http, b->ptr, b->len);
    a->last_sent = seconds();
}

/* 1: memory ran out while the text of g was gathered. */
static int has_gap(const generation *g) {
    return g->content.failed || g->thinking.failed || g->calls.failed || g->logprobs.failed ||
           g->offsets.failed;
}

/* "usage": prompts count once, not for each choice. */
static void put_usage(const answer *a, mn_text *b) {
    uint64_t n_prompt = 0;
    uint64_t n_cached = 0;
    uint64_t n_new = 0;
    uint64_t n_thinking = 0;
    uint64_t n_drafted = 0;
    uint64_t n_accepted = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const generation *g = &a->g[i];
        if (i % (uint32_t)a->ask.n == 0) {
            n_prompt += g->n_prompt;
            n_cached += g->n_cached < g->n_prompt ? g->n_cached : g->n_prompt;
        }
        n_new += g->n_ids - g->n_prompt;
        n_thinking += g->n_thinking;
        n_drafted += g->n_drafted;
        n_accepted += g->n_accepted;
    }
    mn_text_printf(
        b,
        "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%llu},"
        "\"completion_tokens_details\":{\"reasoning_tokens\":%llu",
        (unsigned long long)n_prompt, (unsigned long long)n_new,
        (unsigned long long)(n_prompt + n_new), (unsigned long long)n_cached,
        (unsigned long long)n_thinking);
    if (n_drafted)
        mn_text_printf(
            b, ",\"accepted_prediction_tokens\":%llu,\"rejected_prediction_tokens\":%llu",
            (unsigned long long)n_accepted, (unsigned long long)(n_drafted - n_accepted));
    mn_text_puts(b, "}}");
}

/* vLLM's "stop_reason": the stop string or the id of stop_token_ids that ended g; null: neither. */
static void put_stop_reason(const answer *a, const generation *g, mn_text *b) {
    const int32_t last = g->ids[g->n_ids - 1];
    int by_id = 0;
    for (uint32_t i = 0; g->finish == MN_FINISH_STOP && i < a->ask.n_stop_ids; i++)
        by_id |= a->ask.stop_ids[i] == last;
    mn_text_puts(b, ",\"stop_reason\":");
    if (g->stop_string) {
        const mn_str stop = a->ask.stop[g->stop_string - 1];
        mn_text_json(b, stop);
    } else if (by_id) {
        mn_text_printf(b, "%d", last);
    } else {
        mn_text_puts(b, "null");
    }
}

static void answer_put_ids(mn_text *b, const char *name, const int32_t *ids, uint32_t n) {
    mn_text_printf(b, ",\"%s\":[", name);
    for (uint32_t i = 0; i < n; i++)
        mn_text_printf(b, "%s%d", i ? "," : "", ids[i]);
    mn_text_puts(b, "]");
}

/* With return_token_ids: those of the choice that its client has not; first those of the prompt. */
static void put_new_ids(const answer *a, generation *g, mn_text *b) {
    if (!a->ask.token_ids)
        return;
    if (!g->n_given) {
        answer_put_ids(b, "prompt_token_ids", g->ids, g->n_prompt);
        g->n_given = g->n_prompt;
    }
    answer_put_ids(b, "token_ids", g->ids + g->n_given, g->n_ids - g->n_given);
    g->n_given = g->n_ids;
}

/* Chat has the prompt's ids beside the choices, too, as with vLLM. */
static void put_prompt_ids(const answer *a, const generation *g, mn_text *b) {
    if (a->ask.token_ids && a->form->begins)
        answer_put_ids(b, "prompt_token_ids", g->ids, g->n_prompt);
}

/* The pieces of a dialect's stream that g has. ends: and the stream's end. */
static void answer_put_pieces(answer *a, generation *g, int ends) {
    const dialect *d = a->form->dialect;
    mn_text b = {.failed = has_gap(g)};
    if (d->pieces) {
        d->pieces(a, g, &b);
    } else {
        mn_text_add(&b, &g->content);
        mn_text_clear(&g->content);
    }
    if (ends)
        d->end(a, g, &b);
    if (b.len || b.failed)
        answer_put(a, &b);
    mn_text_free(&b);
}

/* One chunk with what g has. finish: NULL or the reason. */
static void put_chunk(answer *a, generation *g, const char *finish) {
    if (a->form->dialect) {
        answer_put_pieces(a, g, finish != NULL);
        return;
    }
    mn_text b = {.failed = has_gap(g)};
    const int is_first = !g->n_given;
    mn_text_add(&b, &a->head);
    mn_text_printf(&b, "{\"index\":%u,", g->index);
    a->form->chunk(a, g, finish, &b);
    if (finish)
        put_stop_reason(a, g, &b);
    put_new_ids(a, g, &b);
    mn_text_puts(&b, "}]");
    if (is_first)
        put_prompt_ids(a, g, &b);
    if (a->ask.include_usage) {
        mn_text_puts(&b, ",");
        if (a->ask.continuous_usage)
            put_usage(a, &b);
        else
            mn_text_puts(&b, "\"usage\":null");
    }
    mn_text_puts(&b, "}\n\n");
    answer_put(a, &b);
    mn_text_free(&b);
}

void answer_progress(answer *a, generation *g, const wire_event *e) {
    mn_text b = {0};
    if (!a->ask.progress || !a->started || a->failed)
        return;
    mn_text_add(&b, &a->head);
    mn_text_printf(&b, "],\"prompt_progress\":{\"index\":%u,\"total\":%u,\"cache\":%u,", g->index,
                   g->n_prompt, e->n_cached);
    mn_text_printf(&b, "\"processed\":%u,\"time_ms\":%.0f}", e->n_computed,
                   1e3 * (seconds() - g->begin));
    if (a->ask.include_usage)
        mn_text_puts(&b, ",\"usage\":null");
    mn_text_puts(&b, "}\n\n");
    answer_put(a, &b);
    mn_text_free(&b);
}

/* The chunk with the usage, if it was asked for, and the mark of the end. */
static void end_stream(answer *a) {
    mn_text b = {0};
    if (a->form->dialect) {
        http_end(a->http);
        return;
    }
    if (a->ask.include_usage && !a->failed) {
        mn_text_add(&b, &a->head);
        mn_text_puts(&b, "],");
        put_usage(a, &b);
        mn_text_puts(&b, "}\n\n");
    }
    mn_text_puts(&b, "data: [DONE]\n\n");
    answer_put(a, &b);
    mn_text_free(&b);
    http_end(a->http);
}

/* 200, and what a dialect's stream begins with. */
static void begin_dialect(answer *a) {
    const dialect *d = a->form->dialect;
    mn_text b = {0};
    dialect_name_request(d, a->http);
    http_begin(a->http, d->stream_type);
    d->begin(a, &b);
    answer_put(a, &b);
    mn_text_free(&b);
}

/* 200, and one chunk per choice with the role where the form has one. */
static void begin_stream(answer *a) {
    a->started = 1;
    a->last_sent = seconds();
    if (a->form->dialect) {
        begin_dialect(a);
        return;
    }
    http_begin(a->http, "text/event-stream");
    for (uint32_t i = 0; i < a->n && a->form->begins; i++)
        put_chunk(a, &a->g[i], NULL);
}

/* ---- whole answers --------------------------------------------------------------------------- */

/* The word for how g ended. */
static const char *reason_of(const generation *g) {
    if (g->finish == MN_FINISH_LENGTH)
        return "length";
    return g->n_calls && !g->stop_string ? "tool_calls" : "stop";
}

/* The answer of a request without "stream". */
static void send_whole(answer *a) {
    const dialect *d = a->form->dialect;
    mn_text b = {.failed = d && has_gap(&a->g[0])};
    if (d) {
        d->whole(a, &a->g[0], &b);
        serve_json(a->s, a->http, &b);
        return;
    }
    mn_text_printf(&b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", a->id,
                   a->form->object, (long long)a->created);
    json_stringz(&b, a->m->name);
    mn_text_printf(&b, ",\"system_fingerprint\":\"%s\",\"choices\":[", a->m->fingerprint);
    for (uint32_t i = 0; i < a->n; i++) {
        generation *g = &a->g[i];
        mn_text_printf(&b, "%s{\"index\":%u,", i ? "," : "", i);
        b.failed |= has_gap(g);
        a->form->whole(a, g, reason_of(g), &b);
        put_stop_reason(a, g, &b);
        put_new_ids(a, g, &b);
        mn_text_puts(&b, "}");
    }
    mn_text_puts(&b, "]");
    put_prompt_ids(a, &a->g[0], &b);
    mn_text_puts(&b, ",");
    put_usage(a, &b);
    mn_text_puts(&b, "}\n");
    serve_json(a->s, a->http, &b);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* param: the field of the request that is at fault, or NULL. */
static void serve_answer_fail(answer *a, unsigned status, const char *type, const char *param,
                              const char *message) {
    if (a->failed)
        return;
    a->failed = 1;
    if (a->in.running && !a->in.http)
        return;
    for (uint32_t i = 0; !a->in.running && i < a->n; i++)
        generation_abort(a->s, &a->g[i]);
    if (!a->started) {
        const dialect *d = a->form->dialect;
        json_error e = {.status = status};
        json_fail(&e, param, "%s", message);
        if (d && d->refused && a->m)
            d->refused(a->m, &e);
        http_error(a->http, status, type, e.param[0] ? e.param : NULL, NULL, e.message);
        return;
    }
    mn_text b = {0};
    serve_stream_error(a->http, status, type, message, &b);
    answer_put(a, &b);
    mn_text_free(&b);
    end_stream(a);
}

void answer_fail(answer *a, unsigned status, const char *type, const char *message) {
    serve_answer_fail(a, status, type, NULL, message);
}

void answers_fail(const served *m, unsigned status, const char *message) {
    for (answer *a = m->s->answers; a; a = a->next)
        if (a->in.m == m && a->in.holds)
            answer_fail(a, status, "server_error", message);
}

void answer_no_memory(answer *a) {
    answer_fail(a, 503, "server_error", "out of memory");
}

/* ---- what generations call ------------------------------------------------------------------- */

void answer_admitted(answer *a, generation *g) {
    if (g->index % (uint32_t)a->ask.n)
        return;
    a->n_admitted += (uint32_t)a->ask.n;
    if (a->ask.stream && a->n_admitted == a->n && !a->started && !a->failed)
        begin_stream(a);
}

void answer_refused(answer *a, generation *g, const wire_refused *m) {
    char message[512];
    char name[48];
    const int is_memory = m->status == MN_OUT_OF_MEMORY;
    const int n = (int)(m->message.len < 500 ? m->message.len : 500);
    const int usage = m->status == MN_INVALID || m->status == MN_BAD_INPUT;
    snprintf(message, sizeof message, "%.*s", n, m->message.ptr);
    const char *plain = plain_message(message);
    const char *param = NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(plain, ":"), plain);
    if (m->of_form)
        param = a->ask.form.param;
    else if (plain != message)
        param = name;
    if (is_memory && !n)
        snprintf(message, sizeof message, "out of memory");
    g->done = 0;
    if (is_memory)
        http_header(a->http, "Retry-After", "2");
    if (usage || m->status == MN_UNSUPPORTED)
        serve_answer_fail(a, 400, "invalid_request_error", param, plain);
    else
        answer_fail(a, is_memory ? 503 : 500, "server_error", message);
}

/* With keep_stop: the stop string that was met, behind the text before it. 1: it was. */
static int keep_stop(answer *a, generation *g) {
    const int met = a->ask.keep_stop ? mn_stream_stopped(g->stream) : 0;
    if (met <= 0)
        return 0;
    const mn_stream_event stop = {.kind = MN_EVENT_TEXT, .text = a->ask.stop[met - 1]};
    a->form->text(a, g, &stop);
    return 1;
}

/* For the access log: whole, as ids that a form forced have no event each. */
static void count_tokens(const answer *a) {
    a->http->n_new = 0;
    for (uint32_t i = 0; i < a->n; i++)
        a->http->n_new += a->g[i].n_ids - a->g[i].n_prompt;
}

/* The last piece of a text completion has the reason, too: none comes behind it that is empty. In a
 * chat the reason has a piece of its own, as with OpenAI. */
static int waits_for_end(const answer *a, const generation *g) {
    return !a->form->begins && (g->finish != MN_FINISH_NONE || mn_stream_stopped(g->stream));
}

void answer_token(answer *a, generation *g, const wire_event *e, const mn_stream_event *events,
                  uint32_t n) {
    int thinks = 0;
    if (a->failed)
        return;
    for (uint32_t i = 0; i < n; i++) {
        a->form->text(a, g, &events[i]);
        thinks |= events[i].kind == MN_EVENT_THINKING;
    }
    n += (uint32_t)keep_stop(a, g);
    g->n_thinking += (uint32_t)(thinks && e);
    a->http->n_new += e != NULL;
    if (!(a->http->first_at > 0))
        a->http->first_at = seconds();
    if (e && a->ask.logprobs)
        a->form->logprob(a, g, e);
    if (a->ask.stream && n && e && !waits_for_end(a, g))
        put_chunk(a, g, NULL);
    if (http_unsent(a->http) > MAX_UNSENT)
        http_drop(a->http);
}

void answer_finished(answer *a, generation *g) {
    if (a->failed)
        return;
    count_tokens(a);
    a->n_done++;
    if (a->ask.stream)
        put_chunk(a, g, reason_of(g));
    if (a->n_done < a->n)
        return;
    if (a->ask.stream)
        end_stream(a);
    else
        send_whole(a);
}

void answer_tick(answer *a, double now) {
    const dialect *d = a->form->dialect;
    const char *ping = d ? d->ping : ": keep-alive\n\n";
    if (!ping || !a->started || a->n_done == a->n || a->failed ||
        now - a->last_sent < (double)a->s->flags->ping)
        return;
    http_put(a->http, ping, strlen(ping));
    a->last_sent = now;
}
