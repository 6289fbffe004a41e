/* serve.c -- minerva serve: flags, start, the loop of the front process, and its end.
 *
 * Start: the model is opened for its text, the engines are started, HTTP listens; requests are
 * refused with 503 until an engine is ready. The loop waits for HTTP, engines, signals and a tick
 * of 100 ms. SIGTERM and Ctrl-C stop new requests and let those that run end for --drain seconds; a
 * second signal ends at once. The struct serve lives on the stack of cmd_serve. */
#include "serve/serve.h"
#include "serve/answer.h"
#include "serve/engine.h"
#include "serve/follow.h"
#include "serve/notify.h"
#include "serve/relay.h"
#include "serve/responses_store.h"
#include "serve/tasks.h"
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 100, SEND_S = 120, OTHER_FILES = 64, READERS = 2 };

/* ---- flags ----------------------------------------------------------------------------------- */

#define F(field) offsetof(serve_flags, field)
static const arg_row address_rows[] = {
    {"--host", "ADDRESS", ARG_TEXT, F(host), 1, 0, NULL,
     "listen on this address (default: 127.0.0.1)"},
    {"--port", "N", ARG_INT, F(port), 0, 65535, NULL,
     "listen on this port; 0 = any that is free (default: 8080)"},
    {"--api-key", "FILE", ARG_FILE, F(key_file), 0, 0, NULL,
     "clients need one of the keys in this file, one per line, as\nAuthorization: Bearer KEY"},
    {"--manage", NULL, ARG_FLAG, F(manage), 0, 0, NULL,
     "every client may load, unload, pull and delete models (default: keys named\nadmin in the "
     "file of --api-key)"},
    {"--metrics-open", NULL, ARG_FLAG, F(metrics_open), 0, 0, NULL,
     "/metrics needs no key, as /health does not"},
    {"--metrics", "NAMES", ARG_CHOICE, F(metrics_names), 0, 0, METRICS_CHOICES,
     "names in /metrics: minerva (minerva_..., default), vllm (vllm:..., as gateways\nand "
     "schedulers for vLLM read them) or both"},
    {"--log-format", "FORMAT", ARG_CHOICE, F(log_format), 0, 0, "text|json",
     "text (default) or json: of the line about each request that -v has"},
    {"--insecure", NULL, ARG_FLAG, F(insecure), 0, 0, NULL,
     "listen on other addresses than this machine's own without --api-key"},
    {"--tls-cert", "FILE", ARG_FILE, F(tls_cert), 0, 0, NULL, "HTTPS with this certificate (PEM)"},
    {"--tls-key", "FILE", ARG_FILE, F(tls_key), 0, 0, NULL, "its key (PEM)"},
    {"--allow-origin", "ORIGIN", ARG_TEXTS, F(origins), 1, 0, NULL,
     "pages of this origin may use the server: https://example.org, or *;\nmay be given several "
     "times"},
    {"--alias", "NAME", ARG_TEXTS, F(aliases), 1, 0, NULL,
     "name of the model in requests; the first is the one in answers\n(default: the file's); *: "
     "any; "
     "may be given several times"},
};
static const arg_row load_rows[] = {
    {"--parallel", "N", ARG_INT, F(n_seq), 1, 4096, NULL,
     "generations at once per engine (default: 64; 16 if all devices that can be\nchosen are "
     "CPUs)"},
    {"--kv-size", "MIB", ARG_INT, F(kv_mb), 0, 1 << 24, NULL,
     "memory of the KV cache (default, and 0: for all sequences if the device\nhas room)"},
    {"--no-prefix-cache", NULL, ARG_FLAG, F(no_cache), 0, 0, NULL,
     "requests do not share the computed beginnings of their prompts"},
    {"--embeddings", NULL, ARG_FLAG, F(embeddings), 0, 0, NULL,
     "answer /v1/embeddings, too, with a model that generates"},
    {"--replicas", "LIST", ARG_TEXTS, F(replicas), 1, 0, NULL,
     "one engine per entry, each with the whole model: --replicas cuda:0 cuda:1;\nor URLs: "
     "requests go to other servers, and no model is opened here:\n--replicas "
     "http://a:8080,http://b:8080"},
    {"LIST", NULL, ARG_TEXTS, F(more_replicas), 1, 0, NULL, "more entries of --replicas"},
    {"--replica-ca", "FILE", ARG_FILE, F(replica_ca), 0, 0, NULL,
     "certificates (PEM) that URLs of --replicas are checked with, instead of\nthe system's"},
    {"--max-queue", "N", ARG_INT, F(max_queue), 0, 1000000, NULL,
     "generations that may wait; more are refused with 429 (default: 1024)"},
    {"--max-per-key", "N", ARG_INT, F(per_key), 0, 1000000, NULL,
     "requests in flight per key; 0 = no limit (default)"},
    {"--max-connections", "N", ARG_INT, F(max_connections), 1, 1000000, NULL,
     "open connections (default: 4096)"},
    {"--max-body", "MIB", ARG_INT, F(max_body), 1, 4096, NULL,
     "size of a request's body (default: 32)"},
    {"--max-unfinished", "MIB", ARG_INT, F(max_unfinished), 1, 1 << 24, NULL,
     "bodies that have not arrived whole, together, without the first 64 KiB\nof each (default: "
     "256; at least --max-body)"},
    {"--keep-responses", "MIB", ARG_INT, F(responses), 0, 1 << 20, NULL,
     "the last responses of /v1/responses, for previous_response_id (default: 64;\n0: none)"},
    {"--receive-timeout", "S", ARG_INT, F(receive), 1, 86400, NULL,
     "time for a request to arrive, and of a connection without one (default: 60)"},
    {"--ping", "S", ARG_INT, F(ping), 1, 86400, NULL,
     "a comment in streams that have nothing else to send (default: 15)"},
    {"--engine-timeout", "S", ARG_INT, F(engine_timeout), 0, 86400, NULL,
     "an engine process that shows no life for so long is ended and started again\n(default: 60; "
     "0: never)"},
    {"--settings", "FILE", ARG_FILE, F(settings), 0, 0, NULL,
     "a file with lines such as max-queue = 100, instead of the flags: max-queue,\nmax-per-key, "
     "ping, drain, engine-timeout; SIGHUP reads it again"},
    {"--drain", "S", ARG_INT, F(drain), 0, 86400, NULL,
     "after SIGTERM, seconds for the answers that run (default: 30)"},
    {"--lora", "[NAME=]FILE[:SCALE]", ARG_TEXTS, F(loras), 1, 0, NULL,
     "an adapter (LoRA) that requests choose as model MODEL:NAME (default: the\nfile's name); may "
     "be given several times"},
    {"--max-loras", "N", ARG_INT, F(max_loras), 0, 4096, NULL,
     "room for so many adapters at once, on all matrices, as /v1/load_lora_adapter\nneeds it "
     "(default, and 0: for those of --lora alone)"},
    {"--max-lora-rank", "R", ARG_INT, F(max_lora_rank), 0, 4096, NULL,
     "with --max-loras: the largest rank (default: 16)"},
    {"--lora-type", "TYPE", ARG_CHOICE, F(lora_type), 0, 0, "f32|f16",
     "type of the adapters on the devices (default: f32)"},
    {"--chat-template", "F|NAME", ARG_FILE, F(chat_template), 0, 0, NULL,
     "instead of the model's own: a file, the name of another one in the model,\nor chatml gemma "
     "llama2 llama3 mistral phi3 zephyr"},
};

const arg_row *serve_model_setting(const char *name) {
    static const char *const names[] = {
        "alias",    "parallel", "kv-size",   "no-prefix-cache", "embeddings", "chat-template",
        "replicas", "lora",     "max-loras", "max-lora-rank",   "lora-type"};
    const struct {
        const arg_row *rows;
        size_t n;
    } tables[] = {{address_rows, MN_COUNT(address_rows)}, {load_rows, MN_COUNT(load_rows)}};
    size_t i = 0;
    while (i < MN_COUNT(names) && strcmp(names[i], name) != 0)
        i++;
    for (size_t t = 0; i < MN_COUNT(names) && t < MN_COUNT(tables); t++)
        for (size_t k = 0; k < tables[t].n; k++)
            if (!strcmp(tables[t].rows[k].flags + 2, name))
                return &tables[t].rows[k];
    return NULL;
}

const arg_row *serve_setting(const char *name) {
    static const char *const names[] = {"max-queue", "max-per-key", "ping", "drain",
                                        "engine-timeout"};
    size_t i = 0;
    while (i < MN_COUNT(names) && strcmp(names[i], name) != 0)
        i++;
    for (size_t k = 0; i < MN_COUNT(names) && k < MN_COUNT(load_rows); k++)
        if (!strcmp(load_rows[k].flags + 2, name))
            return &load_rows[k];
    return NULL;
}

static const arg_row models_rows[] = {
    {"-m --model", "MODEL", ARG_FILES, F(models), 0, 0, NULL,
     "a GGUF file, a .safetensors file, a folder in Hugging Face layout, or a name:\norg/repo, "
     "org/repo:QUANT, an alias, as minerva list prints them (default: the demo\nmodel). Given "
     "several times: several models; requests name one of them"},
    {"--models", "FILE", ARG_FILE, F(models_file), 0, 0, NULL,
     "models and their settings: sections [NAME] with lines such as model = PATH,\nctx-size = "
     "8192, alias = small, keep-alive = 300; [*]: of all"},
    {"--all-models", NULL, ARG_FLAG, F(all_models), 0, 0, NULL, "all that minerva list prints"},
    {"--models-max", "N", ARG_INT, F(models_max), 0, 65536, NULL,
     "models that are loaded at once (default, and 0: as many as fit)"},
    {"--models-memory", "MIB", ARG_INT, F(models_memory), 0, 1 << 30, NULL,
     "weights and KV caches of the models that are loaded (default, and 0: what the\ndevices "
     "have; of CPUs five sixths of the machine's memory)"},
    {"--keep-alive", "S", ARG_COUNT, F(keep_alive), -1, 1e9, NULL,
     "a model that nobody has asked for so long is unloaded; -1: none is (default)"},
};

/* ---- start ----------------------------------------------------------------------------------- */

/* An origin as browsers send it: scheme, host and port, and nothing behind them. */
static int is_origin(const char *text) {
    const char *host = strstr(text, "://");
    return !strcmp(text, "*") || !strcmp(text, "null") ||
           (host && host > text && host[3] && !strpbrk(host + 3, "/?# "));
}

static int check_origins(const arg_texts *origins) {
    for (size_t i = 0; i < origins->n; i++)
        if (!is_origin(origins->v[i]))
            return complain(EXIT_USAGE,
                            "--allow-origin: found \"%s\", expected an origin as browsers send it, "
                            "such as https://example.org, or \"*\"",
                            origins->v[i]);
    return 0;
}

/* What is not safe without being asked for. 0, or the exit code with the error printed. */
static int server_check_flags(const serve_flags *f) {
    if (!f->tls_cert != !f->tls_key)
        return complain(EXIT_USAGE, "found %s alone, expected --tls-cert and --tls-key",
                        f->tls_cert ? "--tls-cert" : "--tls-key");
    if (f->more_replicas.n && !f->replicas.n)
        return complain(EXIT_USAGE,
                        "found \"%s\", expected a flag (minerva serve --help); a model is -m %s",
                        f->more_replicas.v[0], f->more_replicas.v[0]);
    if (!access_is_local(f->host) && !f->key_file && !f->insecure)
        return complain(EXIT_USAGE,
                        "--host %s can be reached by other machines: expected --api-key FILE, or "
                        "--insecure if everybody may use the server",
                        f->host);
    return check_origins(&f->origins);
}

/* 0, or the exit code with the error printed. */
static int open_access(serve *s) {
    const serve_flags *f = s->flags;
    s->access.origins = f->origins.v;
    s->access.n_origins = f->origins.n;
    s->access.host = f->host;
    s->access.insecure = f->insecure;
    s->access.tls = f->tls_cert != NULL;
    s->access.metrics_open = f->metrics_open;
    return f->key_file ? access_read_keys(&s->access, f->key_file) : 0;
}

/* As many descriptors as the system permits: each connection needs some. How many connections
 * there may be. */
static unsigned raise_limit(const serve *s) {
    const unsigned asked = (unsigned)s->flags->max_connections;
    const unsigned each = s->relay ? 2 : 1; /* one more to a server */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return asked;
    if (limit.rlim_cur != limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur > (rlim_t)asked * each + OTHER_FILES || limit.rlim_cur <= OTHER_FILES)
        return asked;
    const unsigned most = ((unsigned)limit.rlim_cur - OTHER_FILES) / each;
    note("warning: at most %u connections: the system permits %llu open files (ulimit -n)", most,
         (unsigned long long)limit.rlim_cur);
    return most;
}

/* The library copies certificate and key. */
static int start_http(serve *s) {
    const serve_flags *f = s->flags;
    const http_app engines = {
        .arg = s, .request = serve_request, .gone = serve_gone, .ended = serve_ended};
    const http_app replicas = {
        .arg = s, .request = relay_handle, .gone = relay_gone, .ended = serve_ended};
    char *cert = NULL;
    char *key = NULL;
    const int64_t unfinished = f->max_unfinished > f->max_body ? f->max_unfinished : f->max_body;
    int code = serve_read_tls(f, &cert, &key);
    const http_params params = {.host = f->host,
                                .port = (int)f->port,
                                .tls_cert = cert,
                                .tls_key = key,
                                .max_connections = raise_limit(s),
                                .max_body = (size_t)f->max_body << 20,
                                .max_unfinished = (size_t)unfinished << 20,
                                .receive_s = (int)f->receive,
                                .send_s = SEND_S,
                                .access = &s->access,
                                .set = s->set};
    if (code == 0)
        code = http_create(&params, s->relay ? &replicas : &engines, &s->http);
    free(cert);
    free(key);
    return code;
}

/* The line that people look for; on standard output, where scripts read the port. Printed once an
 * engine is ready; by a front at once, for its servers may start later. */
static int print_url(const serve *s) {
    const serve_flags *f = s->flags;
    const int is_v6 = strchr(f->host, ':') != NULL;
    out_file out = out_stdout();
    out_printf(&out, "%s: http%s://%s%s%s:%d\n", s->name, f->tls_cert ? "s" : "", is_v6 ? "[" : "",
               f->host, is_v6 ? "]" : "", http_port(s->http));
    out_flush(&out);
    return out_finish(&out, 0);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* The first signal; a second one ends at once. */
static void begin_drain(serve *s) {
    const double limit = (double)s->flags->drain;
    if (s->draining) {
        s->over = 1;
        return;
    }
    s->draining = 1;
    s->drain_end = seconds() + limit;
    notify_send("STOPPING=1");
    http_stop_listening(s->http);
    if (!s->n_generations)
        app_remark(&s->a, "stopping");
    else
        app_remark(&s->a, "stopping: %.0f s for generations to end: %u", limit, s->n_generations);
}

/* What signals have asked for. */
typedef struct {
    int fd;
    int is_terminal; /* SIGHUP: the terminal is gone, and so is the server */
    int n_ends, n_reloads;
} signals;

/* A dead engine needs no more than the wake-up. */
static void on_signal(void *arg, uint32_t events) {
    signals *g = arg;
    struct signalfd_siginfo info;
    (void)events;
    while (read(g->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        const int reloads = info.ssi_signo == SIGHUP && !g->is_terminal;
        g->n_reloads += reloads;
        g->n_ends += info.ssi_signo != SIGCHLD && !reloads;
    }
}

/* 1 if the process has a controlling terminal. */
static int has_terminal(void) {
    const int fd = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* How many engines were given up, and the exit code of one of them. */
static int all_dead(const serve *s, int *code) {
    unsigned n = 0;
    const served *m = !models_are_several(s) && s->models.n ? s->models.v[0] : NULL;
    for (unsigned i = 0; m && i < m->n_links; i++)
        if (m->links[i].state == LINK_DEAD) {
            n++;
            *code = m->links[i].exit_code ? m->links[i].exit_code : EXIT_FAILED;
        }
    return n && n == m->n_links && (!s->models.lazy || !m->n_loads);
}

/* When no request is left: gives memory back that only they needed, whose holes the allocator would
 * keep. Twice, a tick apart: connections may end after their answers. */
static void server_trim(serve *s) {
    if (s->answers || !s->n_trims)
        return;
    s->n_trims--;
    malloc_trim(0);
}

/* What time brings: restarts, and once a second pings, limits and memory. */
static void tick(serve *s, double now) {
    models_tick(s, now);
    if (s->relay)
        relay_tick(s->relay, now);
    if (now - s->last_tick < 1)
        return;
    s->last_tick = now;
    http_tick(s->http, now);
    for (answer *a = s->answers; a; a = a->next)
        answer_tick(a, now);
    server_trim(s);
}

/* What still runs when the time of the drain is over ends with an error; http_free sends it. */
static void end_answers(serve *s) {
    for (answer *a = s->answers; a; a = a->next)
        answer_fail(a, 503, "server_error", "the server is being stopped");
    if (s->relay)
        relay_end(s->relay);
    http_run(s->http);
}

static unsigned n_ready(const serve *s) {
    return s->relay ? replicas_ready(&s->relay->all) : models_engines_ready(s);
}

/* The shorter time of two, of which -1 is none. */
static int sooner(int a_ms, int b_ms) {
    if (a_ms < 0 || (b_ms >= 0 && b_ms < a_ms))
        return b_ms;
    return a_ms;
}

/* What signals have asked for in this round. */
static void obey(serve *s, signals *g) {
    if (g->n_reloads) {
        g->n_reloads = 0;
        serve_reload(s);
    }
    if (g->n_ends) {
        g->n_ends--;
        begin_drain(s);
    }
}

/* Until the end; the exit code. */
static int server_run(serve *s, signals *g) {
    int wait_ms = 0;
    int code = 0;
    int told = 0;
    notify_watchdog watchdog = notify_watchdog_open();
    while (!s->over) {
        loop_wait(s->set, wait_ms >= 0 && wait_ms < TICK_MS ? wait_ms : TICK_MS);
        const double now = seconds();
        if (s->relay)
            relay_run(s->relay);
        wait_ms = sooner(http_run(s->http), s->relay ? relay_wait_ms(s->relay) : -1);
        tick(s, now);
        notify_tick(&watchdog, now);
        if (!told && (n_ready(s) || models_were_ready(s))) {
            notify_send("READY=1");
            told = 1;
            code = s->relay || models_are_several(s) ? 0 : print_url(s);
        }
        obey(s, g);
        if (all_dead(s, &code) || code)
            break;
        const int drained = s->draining && !s->answers && !http_busy(s->http);
        if (drained || (s->draining && now > s->drain_end))
            s->over = 1;
    }
    end_answers(s);
    return code;
}

/* SIGTERM, SIGHUP, Ctrl-C and the deaths of engines arrive at a descriptor. -1: none. */
static int open_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* The models. The only one of a server is open then. */
static int open_models(serve *s) {
    const int code = models_list(s);
    if (code == 0)
        s->tasks = tasks_create(s->set, READERS); /* without: long requests hold up the loop */
    return code;
}

/* Of several models the URL is printed at once: they are loaded when they are asked for. */
static int start_models(serve *s) {
    const int code = models_begin(s);
    return code || !models_are_several(s) ? code : print_url(s);
}

/* A front of other servers. */
static int open_front(serve *s) {
    int code = 0;
    s->relay = relay_open(s, &code);
    s->name = s->relay ? s->relay->name : NULL;
    return code;
}

/* The whole life of the front; the exit code. */
static int serve_all(serve *s) {
    signals g = {.fd = -1, .is_terminal = has_terminal()};
    watch signal_watch = {on_signal, &g};
    int code = server_check_flags(s->flags);
    s->given = *s->flags;
    if (code == 0)
        code = serve_read_settings(s);
    if (code == 0)
        code = open_access(s);
    if (code)
        return code;
    s->set = loop_create();
    s->next_id = 1;
    s->created = (int64_t)time(NULL);
    g.fd = open_signals();
    loop_add(s->set, g.fd, EPOLLIN, &signal_watch);
    if (!relay_is_asked(s->flags) && s->flags->responses)
        s->responses = responses_store_open((size_t)s->flags->responses << 20);
    if (relay_is_asked(s->flags))
        code = open_front(s);
    else
        code = open_models(s);
    if (code == 0)
        code = start_http(s);
    if (code == 0)
        code = s->relay ? print_url(s) : start_models(s);
    if (code == 0)
        code = server_run(s, &g);
    close(g.fd);
    return code;
}

/* HTTP first: its requests hold what the rest frees. */
static void serve_close(serve *s) {
    if (s->http)
        http_free(s->http);
    relay_free(s->relay);
    tasks_free(s->tasks);
    models_free(s);
    responses_store_free(s->responses);
    app_close(&s->a);
    access_free(&s->access);
    if (s->set > 0)
        close(s->set);
}

/* Of several processes rank 0 is the server, the others compute with its engine. The engine reads
 * the token's file by the variable. */
static int serve_as_rank(serve *s) {
    const app_flags *f = s->app_flags;
    mn_error err = MN_ERROR;
    uint32_t rank = 0;
    uint32_t n = 1;
    if (!relay_is_asked(s->flags) && mn_rank_of_process(&rank, &n, &err) != MN_OK)
        return complain(EXIT_FAILED, "%s", err.msg);
    if (rank)
        return serve_follow(f);
    if (n > 1 && models_are_several(s))
        return complain(EXIT_USAGE, "found several models in a group of %u processes, expected one",
                        n);
    if (n > 1 && s->flags->replicas.n)
        return complain(EXIT_USAGE,
                        "found --replicas in a group of %u processes, expected one engine", n);
    if (f->rank_token_file)
        setenv("MINERVA_RANK_TOKEN_FILE", f->rank_token_file, 1);
    return serve_all(s);
}

int cmd_serve(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--engine"))
        return engine_main(ENGINE_FD, BLAME_FD);
    app_flags common = {0};
    serve_flags own = {.host = "127.0.0.1",
                       .port = 8080,
                       .max_queue = 1024,
                       .max_connections = 4096,
                       .max_body = 32,
                       .max_unfinished = 256,
                       .responses = 64,
                       .receive = 60,
                       .ping = 15,
                       .engine_timeout = 60,
                       .drain = 30};
    sampling_flags sampling = sampling_defaults();
    const arg_group groups[] = {
        {"Address and access", address_rows, MN_COUNT(address_rows), &own},
        {"Load", load_rows, MN_COUNT(load_rows), &own},
        {"Sampling, where a request says nothing", sampling_rows,
         SAMPLING_ROWS - SAMPLING_BIAS_ROWS, &sampling},
        {"Model and device", models_rows, MN_COUNT(models_rows), &own},
        {"", app_model_rows + 1, APP_MODEL_ROWS - 1, &common},
        {"", app_device_rows, APP_DEVICE_ROWS, &common},
        {"", app_session_rows, APP_SESSION_ROWS, &common},
        {"", app_draft_rows, APP_DRAFT_ROWS, &common},
        {"", app_cache_rows, APP_CACHE_ROWS, &common},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &common},
    };
    const arg_page page = {
        "serve", "[-m MODEL] [--port N] [flags]",
        "Serves one model or several over HTTP with OpenAI's interface, and a web page.", groups,
        MN_COUNT(groups)};
    static serve s;
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK && sampling_check(&sampling))
        code = EXIT_USAGE;
    if (code == ARGS_OK && common.list_devices)
        code = cmd_devices(1, argv);
    else if (code == ARGS_OK) {
        mallopt(M_ARENA_MAX, 1); /* so that memory of one thread serves the others */
        common.model = own.models.n ? own.models.v[0] : NULL;
        s.flags = &own;
        s.app_flags = &common;
        s.sampling = &sampling;
        s.a.flags = &common;
        code = serve_as_rank(&s);
        serve_close(&s);
    }
    args_free_texts(&own.models);
    args_free_texts(&own.replicas);
    args_free_texts(&own.more_replicas);
    args_free_texts(&own.aliases);
    args_free_texts(&own.loras);
    args_free_texts(&own.origins);
    sampling_free(&sampling);
    return code;
}
