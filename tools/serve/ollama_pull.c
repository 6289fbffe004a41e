/* ollama_pull.c -- Ollama's /api/pull, /api/delete and /api/copy, for those who may manage models.
 *
 * A download runs in a process of its own, `minerva pull --lines NAME`, so that the front uses no
 * network: it writes a line "pull DONE TOTAL" for each step, and its errors, into one pipe. The
 * hub's token goes to it through its standard input. It ends with its request. */
#include "hub/hub.h"
#include "serve/dialect_ollama.h"
#include "serve/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    reading in; /* the owner of the request */
    pid_t pid;  /* 0: none */
    int fd;     /* what it writes; -1: closed */
    watch watch;
    mn_text text;      /* of it, up to the end of a line */
    char name[1024];   /* the model's */
    char message[512]; /* its last line that is no progress */
    int streams;
} pull;

/* ---- answers --------------------------------------------------------------------------------- */

static void pull_put(pull *p, mn_text *line) {
    if (line->failed)
        http_drop(p->in.http);
    else if (p->streams)
        http_put(p->in.http, line->ptr, line->len);
    mn_text_free(line);
}

static void put_progress(pull *p, unsigned long long done, unsigned long long total) {
    mn_text line = {0};
    mn_text_printf(
        &line,
        "{\"status\":\"pulling model\",\"digest\":\"model\",\"total\":%llu,\"completed\":%llu}\n",
        total, done);
    pull_put(p, &line);
}

/* The process has ended. */
static void end_pull(pull *p, int is_done) {
    http_request *r = p->in.http;
    mn_text line = {0};
    json_error e = {.status = 500};
    if (is_done && !models_learn(p->in.s, p->name))
        note("warning: out of memory: %s is not in the list of models", p->name);
    if (is_done)
        mn_text_puts(&line, "{\"status\":\"success\"}\n");
    else
        json_fail(&e, NULL, "%s", p->message[0] ? p->message : "the download has failed");
    if (p->streams) {
        if (!is_done)
            dialect_ollama.stream_error(r, &e, &line);
        pull_put(p, &line);
        http_end(r);
    } else if (is_done) {
        serve_json(p->in.s, r, &line);
    } else {
        mn_text_free(&line);
        serve_refuse(p->in.s, r, &e);
    }
}

/* ---- the process ----------------------------------------------------------------------------- */

static void read_line(pull *p, const char *line) {
    static const char prefix[] = "minerva: error: ";
    unsigned long long done = 0;
    unsigned long long total = 0;
    if (sscanf(line, "pull %llu %llu", &done, &total) == 2)
        put_progress(p, done, total);
    else if (*line)
        snprintf(p->message, sizeof p->message, "%s",
                 strncmp(line, prefix, sizeof prefix - 1) ? line : line + sizeof prefix - 1);
}

static void read_lines(pull *p) {
    char *end = p->text.len ? memchr(p->text.ptr, '\n', p->text.len) : NULL;
    while (end) {
        *end = 0;
        read_line(p, p->text.ptr);
        mn_text_remove(&p->text, 0, (size_t)(end - p->text.ptr) + 1);
        end = p->text.len ? memchr(p->text.ptr, '\n', p->text.len) : NULL;
    }
}

static void pull_ready(void *arg, uint32_t events) {
    pull *p = arg;
    char bytes[4096];
    int status = 0;
    (void)events;
    const ssize_t n = read(p->fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n > 0) {
        mn_text_put(&p->text, bytes, (size_t)n);
        read_lines(p);
        return;
    }
    loop_remove(p->in.s->set, p->fd);
    close(p->fd);
    p->fd = -1;
    waitpid(p->pid, &status, 0); /* it has closed its pipe: it ends */
    p->pid = 0;
    end_pull(p, WIFEXITED(status) && !WEXITSTATUS(status));
}

/* In the child. Only async-signal-safe functions. */
static void become_pull(int in, int out, const char *name) {
    static char minerva[] = "minerva", command[] = "pull", lines[] = "--lines";
    char *words[] = {minerva, command, lines, (char *)(uintptr_t)name, NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(EXIT_FAILED);
    close_range(3, ~0u, 0);
    execv("/proc/self/exe", words);
    _exit(EXIT_FAILED);
}

/* 0: there is none. */
static int start_pull(pull *p, const char *name) {
    const char *token = hub_token();
    int in[2];
    int out[2];
    if (pipe2(in, O_CLOEXEC))
        return 0;
    if (pipe2(out, O_CLOEXEC)) {
        close(in[0]);
        close(in[1]);
        return 0;
    }
    const size_t n = token ? strlen(token) : 0; /* fits into the pipe */
    const int told =
        write(in[1], token ? token : "", n) == (ssize_t)n && write(in[1], "\n", 1) == 1;
    p->pid = told ? fork() : -1;
    if (p->pid == 0)
        become_pull(in[0], out[1], name);
    close(in[0]);
    close(in[1]);
    close(out[1]);
    if (p->pid < 0) {
        p->pid = 0;
        close(out[0]);
        return 0;
    }
    p->fd = out[0];
    fcntl(p->fd, F_SETFL, O_NONBLOCK);
    p->watch = (watch){pull_ready, p};
    loop_add(p->in.s->set, p->fd, EPOLLIN, &p->watch);
    return 1;
}

static void pull_release(reading *x) {
    pull *p = (pull *)(void *)x;
    if (p->fd >= 0) {
        loop_remove(x->s->set, p->fd);
        close(p->fd);
    }
    if (p->pid > 0) {
        kill(p->pid, SIGKILL); /* what it has loaded stays: the next one goes on */
        waitpid(p->pid, NULL, 0);
    }
    mn_text_free(&p->text);
    free(p);
}

/* ---- the routes ------------------------------------------------------------------------------ */

/* The body of a request of who may manage; NULL: it is answered. */
static cJSON *managed_body(serve *s, http_request *r) {
    json_error e = {0};
    if (!models_permit(s, r))
        return NULL;
    cJSON *body = json_parse(r->body, r->n_body, &e);
    if (!body)
        serve_refuse(s, r, &e);
    return body;
}

/* A name that is no flag. */
static int read_name(const cJSON *body, const char **name, json_error *e) {
    return ollama_model(body, name, e) &&
           ((**name != '-' && strlen(*name) < 1024) ||
            json_fail(e, "model", "model: found \"%.60s\", expected the name of a model", *name));
}

static void begin_pull(serve *s, http_request *r, const char *name, int streams) {
    mn_text line = {0};
    pull *p = calloc(1, sizeof *p);
    if (p) {
        p->fd = -1;
        p->streams = streams;
        snprintf(p->name, sizeof p->name, "%s", name);
        p->in.s = s;
        p->in.http = r;
        p->in.release = pull_release;
        r->owner = &p->in;
    }
    if (!p || !start_pull(p, name)) {
        http_error(r, 503, "server_error", NULL, NULL, "no process could be started");
        return;
    }
    if (!streams)
        return;
    http_begin(r, dialect_ollama.stream_type);
    mn_text_puts(&line, "{\"status\":\"pulling manifest\"}\n");
    pull_put(p, &line);
}

void route_ollama_pull(serve *s, http_request *r) {
    cJSON *body = managed_body(s, r);
    const char *name = NULL;
    int streams = 1;
    json_error e = {0};
    if (!body)
        return;
    const int ok = read_name(body, &name, &e) && json_read_bool(body, "stream", &streams, &e);
    if (ok && hub_is_offline(s->app_flags))
        json_fail(&e, "model",
                  "%.200s: found --offline or HF_HUB_OFFLINE, and nothing is downloaded", name);
    if (e.failed)
        serve_refuse(s, r, &e);
    else
        begin_pull(s, r, name, streams);
    cJSON_Delete(body);
}

/* The front's runtime, or one of a model that is open: a thread may be opening the others. NULL:
 * there is none. */
static mn_runtime *any_runtime(const serve *s) {
    if (s->a.rt)
        return s->a.rt;
    for (unsigned i = 0; i < s->models.n; i++)
        if (s->models.v[i]->is_open && s->models.v[i]->a.rt)
            return s->models.v[i]->a.rt;
    return NULL;
}

/* 0: the error is set. */
static int delete_model(serve *s, const cJSON *body, json_error *e) {
    const char *name = NULL;
    mn_error err = MN_ERROR;
    uint64_t bytes = 0;
    mn_runtime *rt = any_runtime(s);
    if (!read_name(body, &name, e))
        return 0;
    if (models_find(s, name))
        return json_fail(e, "model", "model '%.200s' is one of this server, which keeps it", name);
    const mn_status st = rt ? mn_model_remove(rt, name, 0, &bytes, &err) : MN_INVALID;
    if (!st)
        return 1;
    e->status = st == MN_IO_ERROR ? 404 : 400;
    return json_fail(e, "model", "%s", rt ? err.msg : "no model is open");
}

static int copy_model(serve *s, const cJSON *body, json_error *e) {
    const char *source = NULL;
    const char *destination = NULL;
    mn_error err = MN_ERROR;
    mn_runtime *rt = any_runtime(s);
    if (!json_read_string(body, "source", &source, e) ||
        !json_read_string(body, "destination", &destination, e))
        return 0;
    if (!source || !destination || !*source)
        return json_fail(e, "source", "expected source and destination");
    const mn_status st = rt ? mn_model_set_alias(rt, destination, source, &err) : MN_INVALID;
    return !st || json_fail(e, "destination", "%s", rt ? err.msg : "no model is open");
}

/* An answer without a text, or the error of `change`. */
static void manage(serve *s, http_request *r, int (*change)(serve *, const cJSON *, json_error *)) {
    cJSON *body = managed_body(s, r);
    json_error e = {0};
    mn_text out = {0};
    if (!body)
        return;
    if (change(s, body, &e)) {
        mn_text_puts(&out, "{}\n");
        serve_json(s, r, &out);
    } else {
        serve_refuse(s, r, &e);
    }
    cJSON_Delete(body);
}

void route_ollama_delete(serve *s, http_request *r) {
    manage(s, r, delete_model);
}

void route_ollama_copy(serve *s, http_request *r) {
    manage(s, r, copy_model);
}

void route_ollama_absent(serve *s, http_request *r) {
    (void)s;
    http_error(r, 501, "not_supported_error", NULL, "not_supported",
               "this server makes and uploads no models");
}
