/* reading.c -- reads requests in the loop or, if they are long, in a thread (reading.h).
 *
 *   parse    in a thread if the body is long      JSON
 *   arrive   in the loop                          its model; it may have to wait for that one
 *   read     in a thread if the body is long      what the endpoint makes of it
 *   begin    in the loop
 *
 * What a thread touches: the reading and its owner, which nobody else touches while it runs, the
 * model that it holds, and of the server what does not change after its start, or is atomic. A
 * client may leave meanwhile; then the owner is freed when the thread is done with it. */
#include "serve/reading.h"
#include "serve/dialect.h"
#include <stdlib.h>
#include <string.h>

/* A text of so many bytes is tokenised in less than a millisecond. */
enum { SHORT = 4096 };

/* ---- ends ------------------------------------------------------------------------------------ */

/* The request is none of those that are read any more. */
static void reading_uncount(reading *x) {
    x->s->n_reading -= (unsigned)x->is_counted;
    x->is_counted = 0;
}

void reading_refuse(reading *x) {
    reading_uncount(x);
    serve_leave(x->s, x->http);
    serve_refuse(x->s, x->http, &x->e);
}

static void reading_release(reading *x) {
    cJSON *body = x->body;
    if (x->m)
        models_leave(x); /* it is not freed before the next tick */
    free(x->text);
    x->release(x);
    cJSON_Delete(body);
}

/* It is read: begun or refused. */
static void reading_finish(reading *x) {
    if (!x->e.failed)
        models_check(x);
    if (x->e.failed) {
        reading_refuse(x);
        return;
    }
    reading_uncount(x);
    serve_leave(x->s, x->http);
    if (x->counts)
        snprintf(x->http->model, sizeof x->http->model, "%s", x->m->name);
    if (x->has_stay)
        models_stay(x, x->stay);
    x->begin(x);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void reading_parse(reading *x) {
    x->body =
        json_parse(x->text ? x->text : x->http->body, x->text ? x->n_text : x->http->n_body, &x->e);
}

static void reading_read(reading *x) {
    if (!x->read(x))
        json_fail(&x->e, NULL, "the request cannot be read"); /* nothing else has said why */
}

/* Finds the model, and enters its queue. */
static void arrive(reading *x) {
    const char *name = NULL;
    free(x->text);
    x->text = NULL;
    if (!x->e.failed && json_read_string(x->body, "model", &name, &x->e))
        x->m = models_choose(x->s, name, &x->e);
    const dialect *d = dialect_of(x->http->path);
    if (x->m) {
        x->has_stay = d && d->stay && d->stay(x->body, &x->stay);
        models_enter(x);
    } else {
        reading_refuse(x);
    }
}

static void work(task *t) {
    reading *x = (reading *)(void *)t;
    if (!x->gone)
        x->step(x);
}

static void done(task *t) {
    reading *x = (reading *)(void *)t;
    x->running = 0;
    if (x->http)
        x->then(x);
    else
        reading_release(x);
}

/* One step, in a thread if the request is long, then what follows in the loop. */
static void take_step(reading *x, void (*step)(reading *x), void (*then)(reading *x)) {
    if (!x->is_long) {
        step(x);
        then(x);
        return;
    }
    x->step = step;
    x->then = then;
    x->task.work = work;
    x->task.done = done;
    x->running = 1;
    tasks_add(x->s->tasks, &x->task);
}

void reading_go(reading *x) {
    take_step(x, reading_read, reading_finish);
}

/* ---- for endpoints --------------------------------------------------------------------------- */

void reading_start(reading *x, serve *s, http_request *r) {
    x->s = s;
    x->http = r;
    x->key = r->key;
    r->owner = x;
    if (x->counts && !serve_admit(s, r, 1))
        return;
    x->is_counted = x->counts;
    s->n_reading += (unsigned)x->counts;
    x->n_text = r->n_body;
    if (s->tasks && r->n_body > SHORT)
        x->text = http_take_body(r);
    x->is_long = x->text != NULL;
    take_step(x, reading_parse, arrive);
}

void reading_gone(reading *x) {
    reading_uncount(x);
    if (!x->running) {
        reading_release(x);
        return;
    }
    x->http = NULL;
    x->gone = 1;
}

/* ---- a wait for a model ---------------------------------------------------------------------- */

/* 1 if the request asks for an event stream, in which comments may be sent. */
static int wants_events(const reading *x) {
    const dialect *d = dialect_of(x->http->path);
    return x->streams && cJSON_IsTrue(json_field(x->body, "stream")) &&
           (!d || !strcmp(d->stream_type, "text/event-stream"));
}

void reading_ping(reading *x, double now) {
    enum { FIRST_S = 1 };
    static const char comment[] = ": the model is being loaded\n\n";
    const double every = x->http->began ? (double)x->s->flags->ping : FIRST_S;
    const double last = x->pinged_at > 0 ? x->pinged_at : x->http->since;
    if (now - last < every || !wants_events(x))
        return;
    if (!x->http->began) {
        const dialect *d = dialect_of(x->http->path);
        if (d)
            dialect_name_request(d, x->http);
        http_begin(x->http, "text/event-stream");
    }
    http_put(x->http, comment, sizeof comment - 1);
    x->pinged_at = now;
}

/* ---- answers without an engine --------------------------------------------------------------- */

/* The owner of a request whose answer is whole when it is read. */
typedef struct {
    reading in;
    mn_text out;
} text_answer;

mn_text *reading_out(reading *x) {
    return &((text_answer *)(void *)x)->out;
}

static void send_text(reading *x) {
    serve_json(x->s, x->http, reading_out(x));
}

static void release_text(reading *x) {
    mn_text_free(reading_out(x));
    free(x);
}

void reading_serve(serve *s, http_request *r, int (*read)(reading *x)) {
    text_answer *a = calloc(1, sizeof *a);
    if (!a) {
        http_error(r, 503, "server_error", NULL, NULL, "out of memory");
        return;
    }
    a->in.read = read;
    a->in.begin = send_text;
    a->in.release = release_text;
    reading_start(&a->in, s, r);
}
