/* reading.c -- reads requests in the loop or, if they are long, in a thread (reading.h).
 *
 * What a thread touches: the reading and its owner, which nobody else touches while it runs, and of
 * the server what does not change after its start, or is atomic. A client may leave meanwhile; then
 * the owner is freed when the thread is done with it. */
#include "serve/reading.h"
#include <stdlib.h>

/* A text of so many bytes is tokenised in less than a millisecond. */
enum { SHORT = 4096 };

/* 0: the error is set. */
static int choose_model(reading *x) {
    const char *name = NULL;
    if (!json_read_string(x->body, "model", &name, &x->e))
        return 0;
    x->m = models_choose(x->s, name, &x->e);
    return x->m != NULL;
}

/* JSON, then what the endpoint makes of it. */
static void reading_read_body(reading *x, const char *text, size_t n) {
    x->body = json_parse(text, n, &x->e);
    if (x->body && (!choose_model(x) || !x->read(x)))
        json_fail(&x->e, NULL, "the request cannot be read"); /* nothing else has said why */
}

static void reading_finish(reading *x) {
    if (x->e.failed) {
        serve_refuse(x->s, x->http, &x->e);
        return;
    }
    if (x->counts)
        snprintf(x->http->model, sizeof x->http->model, "%s", x->m->name);
    x->begin(x);
}

static void reading_release(reading *x) {
    cJSON *body = x->body;
    free(x->text);
    x->release(x);
    cJSON_Delete(body);
}

/* ---- in a thread ----------------------------------------------------------------------------- */

static void work(task *t) {
    reading *x = (reading *)(void *)t;
    if (!x->gone)
        reading_read_body(x, x->text, x->n_text);
    free(x->text);
    x->text = NULL;
}

static void done(task *t) {
    reading *x = (reading *)(void *)t;
    x->running = 0;
    if (!x->http) {
        reading_release(x);
        return;
    }
    x->s->n_reading -= (unsigned)x->counts;
    serve_leave(x->s, x->http);
    reading_finish(x);
}

/* Hands the request to a thread. 0: there is none, or no memory. */
static int hand_over(reading *x) {
    serve *s = x->s;
    http_request *r = x->http;
    if (!s->tasks || r->n_body <= SHORT)
        return 0;
    x->n_text = r->n_body;
    x->text = http_take_body(r);
    if (!x->text)
        return 0;
    x->task.work = work;
    x->task.done = done;
    x->running = 1;
    s->n_reading += (unsigned)x->counts;
    tasks_add(s->tasks, &x->task);
    return 1;
}

/* ---- for endpoints --------------------------------------------------------------------------- */

void reading_start(reading *x, serve *s, http_request *r) {
    x->s = s;
    x->http = r;
    x->key = r->key;
    r->owner = x;
    if (x->counts && !serve_admit(s, r, 1))
        return;
    if (hand_over(x))
        return;
    serve_leave(s, r);
    reading_read_body(x, r->body, r->n_body);
    reading_finish(x);
}

void reading_gone(reading *x) {
    if (!x->running) {
        reading_release(x);
        return;
    }
    x->http = NULL;
    x->gone = 1;
    x->s->n_reading -= (unsigned)x->counts;
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
