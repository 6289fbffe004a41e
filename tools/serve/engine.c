/* engine.c -- the engine process: one thread computes, one reads the socket.
 *
 * The front starts it (engine_link.c) and owns its life: it ends at once when the socket closes,
 * and by the kernel's signal when the front dies. It holds no state that the front cannot send
 * again: the front keeps the tokens of every request. Messages of both threads go out under one
 * lock. */
#include "serve/engine.h"
#include "app.h"
#include "serve/embed_work.h"
#include "serve/forms.h"
#include "serve/work.h"
#include <errno.h>
#include <poll.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BEAT_MS = 500, NEXT_MS = 1000, GPU_SEQUENCES = 64, CPU_SEQUENCES = 16 };

typedef struct {
    int fd;
    wire_in in;
    app a;
    app_flags flags;
    char *model, *device, *draft, *draft_device, *cache_dir, *cache_disk, *device_memory;
    char *expert_counts;
    forms forms;       /* of the thread that reads */
    work *work;        /* NULL: an encoder, which only embeds */
    embed_work *embed; /* NULL: no embeddings */
    pthread_mutex_t out_lock;
    mn_text out;
    int is_ready; /* READY was sent; under out_lock */
} engine;

/* The front is gone: so is the reason to be, also of other ranks. */
static void engine_end(engine *e) {
    mn_model_leave(e->a.model);
    _exit(0);
}

/* The front starts another engine, which goes on. */
static _Noreturn void no_more_memory(void) {
    _exit(complain(EXIT_NO_MEMORY, "engine: out of memory"));
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Sends what is in the buffer. The front reads all the time; if it is gone, this is the end. */
static void flush(engine *e) {
    size_t at = 0;
    while (at < e->out.len) {
        const ssize_t n = write(e->fd, e->out.ptr + at, e->out.len - at);
        if (n < 0 && errno != EINTR)
            engine_end(e);
        at += n > 0 ? (size_t)n : 0;
    }
    if (e->out.failed)
        no_more_memory();
    mn_text_clear(&e->out);
}

/* Queues why a request was not accepted. */
static void refuse(engine *e, uint64_t id, mn_status st, const char *message, int of_form) {
    const wire_refused m = {.id = id,
                            .status = (int32_t)st,
                            .of_form = (uint32_t)of_form,
                            .message = {message, strlen(message)}};
    wire_put_refused(&e->out, &m);
}

/* Tells the front that this process lives, and when its scheduler last did something. */
static void send_beat(engine *e) {
    wire_beat beat = {0};
    if (e->work)
        work_beat(e->work, &beat);
    pthread_mutex_lock(&e->out_lock);
    wire_put_beat(&e->out, &beat);
    flush(e);
    pthread_mutex_unlock(&e->out_lock);
}

/* Tells the front that this process lives while the model is loaded; ends with that. */
static void *beat_while_loading(void *arg) {
    engine *e = arg;
    const struct timespec pause = {.tv_nsec = BEAT_MS * 1000000L};
    const wire_beat beat = {0};
    int is_ready = 0;
    while (!is_ready) {
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&e->out_lock);
        is_ready = e->is_ready;
        if (!is_ready) {
            wire_put_beat(&e->out, &beat);
            flush(e);
        }
        pthread_mutex_unlock(&e->out_lock);
    }
    return NULL;
}

/* ---- the thread that reads ------------------------------------------------------------------- */

/* The form is compiled, and its first mask made, without the lock: others go on meanwhile. Events
 * of the request may then be queued before the answer; the front takes the first one for it. */
static void on_submit(engine *e, const wire_submit *m) {
    mn_error err = MN_ERROR;
    mn_constraint *c = NULL;
    const mn_status bad =
        forms_get(&e->forms, e->a.model, m->form, m->form_flags, m->form_source, &c, &err);
    mn_status st = bad ? bad : MN_UNSUPPORTED;
    if (e->work && !bad)
        st = work_submit(e->work, m, c, &err);
    else if (!bad)
        snprintf(err.msg, sizeof err.msg,
                 "the model is an encoder: it embeds, it generates nothing");
    pthread_mutex_lock(&e->out_lock);
    if (st == MN_OK)
        wire_put_id(&e->out, WIRE_ADMITTED, m->id);
    else
        refuse(e, m->id, st, err.msg, bad != MN_OK);
    flush(e);
    pthread_mutex_unlock(&e->out_lock);
}

/* The answer of embeddings: vectors, or why there are none. */
static void on_vector(void *arg, const wire_vector *v, mn_status st, const char *why) {
    engine *e = arg;
    pthread_mutex_lock(&e->out_lock);
    if (st == MN_OK)
        wire_put_vector(&e->out, v);
    else
        refuse(e, v->id, st, why, 0);
    flush(e);
    pthread_mutex_unlock(&e->out_lock);
}

static void on_embed(engine *e, const wire_embed *m) {
    const wire_vector none = {.id = m->id};
    if (!e->embed)
        on_vector(e, &none, MN_UNSUPPORTED, "the server was started without --embeddings");
    else if (!embed_work_submit(e->embed, m))
        on_vector(e, &none, MN_OUT_OF_MEMORY, "out of memory");
}

/* The front's list says what is loaded; requests that have the adapter go on. */
static void on_adapter(engine *e, const wire_adapter *m) {
    mn_error err = MN_ERROR;
    char *name = strndup(m->name.ptr ? m->name.ptr : "", (size_t)m->name.len);
    char *path = strndup(m->path.ptr ? m->path.ptr : "", (size_t)m->path.len);
    const mn_adapter_source source = {.path = path, .scale = m->scale};
    if (!name || !path)
        no_more_memory();
    const mn_status st = m->unloads ? mn_model_unload_adapter(e->a.model, name, &err)
                                    : mn_model_load_adapter(e->a.model, name, &source, 1, &err);
    free(name);
    free(path);
    pthread_mutex_lock(&e->out_lock);
    if (st == MN_OK)
        wire_put_id(&e->out, WIRE_ADMITTED, m->id);
    else
        refuse(e, m->id, st, err.msg, 0);
    flush(e);
    pthread_mutex_unlock(&e->out_lock);
}

/* 0: the message is not one that the front sends. */
static int engine_on_message(engine *e, const wire_message *m) {
    wire_submit submit;
    wire_embed embed;
    wire_adapter adapter;
    uint64_t id = 0;
    switch (m->type) {
    case WIRE_SUBMIT:
        if (!wire_get_submit(m, &submit))
            return 0;
        on_submit(e, &submit);
        return 1;
    case WIRE_ABORT:
        if (!wire_get_id(m, &id))
            return 0;
        if (e->work)
            work_abort(e->work, id);
        return 1;
    case WIRE_EMBED:
        if (!wire_get_embed(m, &embed))
            return 0;
        on_embed(e, &embed);
        return 1;
    case WIRE_ADAPTER:
        if (!wire_get_adapter(m, &adapter))
            return 0;
        on_adapter(e, &adapter);
        return 1;
    default:
        return 0;
    }
}

/* The thread that reads; the end of the socket is the end of the process. */
static void *engine_read_messages(void *arg) {
    engine *e = arg;
    wire_message m;
    struct pollfd poll_fd = {.fd = e->fd, .events = POLLIN};
    for (;;) {
        const int ready = poll(&poll_fd, 1, BEAT_MS);
        if (ready > 0 && wire_fill(&e->in, e->fd) < 0) {
            if (errno == ENOMEM)
                no_more_memory();
            engine_end(e);
        }
        int found = wire_next(&e->in, &m);
        while (found > 0 && engine_on_message(e, &m))
            found = wire_next(&e->in, &m);
        if (found)
            _exit(complain(EXIT_FAILED, "engine: found a message that the front does not send"));
        send_beat(e);
    }
    return NULL;
}

/* ---- the thread that computes ---------------------------------------------------------------- */

/* Queues an event; compute sends all of one step together. */
static void engine_on_event(void *arg, const wire_event *event) {
    engine *e = arg;
    pthread_mutex_lock(&e->out_lock);
    wire_put_event(&e->out, event);
    pthread_mutex_unlock(&e->out_lock);
}

/* Until the process ends. An error of the session is tried again: the requests remain in it. */
static int engine_compute(engine *e) {
    int n_failed = 0;
    while (n_failed < 3) {
        mn_error err = MN_ERROR;
        const mn_status st = work_next(e->work, NEXT_MS, engine_on_event, e, &err);
        pthread_mutex_lock(&e->out_lock);
        flush(e);
        pthread_mutex_unlock(&e->out_lock);
        n_failed = st ? n_failed + 1 : 0;
        if (st)
            complain(EXIT_FAILED, "engine: %s", err.msg);
    }
    return EXIT_FAILED;
}

/* ---- start ----------------------------------------------------------------------------------- */

static char *engine_text_of(mn_str s) {
    return s.len ? strndup(s.ptr, s.len) : NULL;
}

/* 1 if the list "a,b" has the plugin of the device, the first of "a:0,c". */
static int is_excluded(const char *list, const char *device) {
    const size_t n = strcspn(device, ":,");
    for (const char *at = list; *at; at += strspn(at, ",")) {
        const size_t len = strcspn(at, ",");
        if (len == n && !memcmp(at, device, n))
            return 1;
        at += len;
    }
    return 0;
}

static void engine_add_name(mn_text *list, const char *name, size_t n) {
    if (list->len)
        mn_text_put(list, ",", 1);
    mn_text_put(list, name, n);
}

/* The list as a text, malloc'ed; NULL: it is empty. */
static char *take_names(mn_text *list) {
    if (list->len)
        return mn_text_take(list);
    mn_text_free(list);
    return NULL;
}

/* The devices of a list, or for "auto" those of the machine, without excluded plugins; NULL: none
 * is left. */
static char *other_devices(const app *a, const char *device, const char *excluded) {
    mn_text list = {0};
    mn_device_item item;
    if (!strcmp(device, "auto")) {
        for (uint32_t i = 0; mn_runtime_device(a->rt, i, &item) == MN_OK; i++)
            if (item.usable && !is_excluded(excluded, item.name))
                engine_add_name(&list, item.name, strlen(item.name));
        return take_names(&list);
    }
    for (const char *at = device; *at; at += strspn(at, ",")) {
        const size_t n = strcspn(at, ",");
        const int is_cpu = n == 3 && !memcmp(at, "cpu", 3);
        const char *name = is_cpu ? "cpu_simd" : at;
        if (!is_excluded(excluded, name) && !is_excluded(excluded, at))
            engine_add_name(&list, at, n);
        else if (is_cpu)
            engine_add_name(&list, "reference", 9);
        at += n;
    }
    return take_names(&list);
}

/* The flags of the command line, as the front sent them. */
static void set_flags(engine *e, const wire_open *m) {
    e->model = engine_text_of(m->model);
    e->device = engine_text_of(m->device);
    e->draft = engine_text_of(m->draft);
    e->draft_device = engine_text_of(m->draft_device);
    e->cache_dir = engine_text_of(m->cache_dir);
    e->cache_disk = engine_text_of(m->cache_disk);
    e->device_memory = engine_text_of(m->device_memory);
    e->expert_counts = engine_text_of(m->expert_counts);
    e->flags = (app_flags){
        .model = e->model,
        .device = e->device,
        .strict = (m->flags & WIRE_STRICT) != 0,
        .ignore_unused = (m->flags & WIRE_IGNORE_UNUSED) != 0,
        .no_probe_cache = (m->flags & WIRE_NO_PROBE_CACHE) != 0,
        .quiet = (m->flags & WIRE_QUIET) != 0,
        .verbose = (m->flags & WIRE_VERBOSE) != 0,
        .informs = 1,
        .threads = {m->threads, m->threads >= 0},
        .ctx = {m->ctx < 0 ? 0 : m->ctx, m->ctx >= 0},
        .rows = m->n_batch,
        .precision = (int)m->precision,
        .numa = (int)m->numa,
        .kv_k = (int)m->kv_k,
        .kv_v = (int)m->kv_v,
        .draft = e->draft,
        .draft_device = e->draft_device,
        .draft_max = m->n_draft,
        .lookup = (m->flags & WIRE_LOOKUP) != 0,
        .cache_dir = e->cache_dir,
        .cache_disk = e->cache_disk,
        .cpu_moe = (m->flags & WIRE_CPU_MOE) != 0,
        .n_cpu_moe = {m->n_cpu_moe < 0 ? 0 : m->n_cpu_moe, m->n_cpu_moe >= 0},
        .n_gpu_experts = {MN_MAX(m->n_gpu_experts, 0), m->n_gpu_experts >= 0},
        .device_memory = e->device_memory,
        .expert_counts = e->expert_counts,
    };
    const size_t n = MN_MIN(m->tensor_devices.len, sizeof e->flags.tensor_devices.text - 1);
    if (n)
        memcpy(e->flags.tensor_devices.text, m->tensor_devices.ptr, n);
}

/* The draft model's devices likewise; without one there are no drafts of it. */
static void exclude_from_draft(engine *e, const char *device, const char *excluded) {
    if (!e->draft)
        return;
    char *others = other_devices(&e->a, e->draft_device ? e->draft_device : device, excluded);
    if (!others)
        e->flags.draft = NULL;
    free(e->draft_device);
    e->draft_device = others;
    e->flags.draft_device = others;
}

/* Replaces the devices if plugins are excluded. 0, or the exit code with the error printed. */
static int exclude(engine *e, const wire_open *m) {
    char *excluded = engine_text_of(m->excluded);
    if (!excluded)
        return 0;
    const char *device = mn_runtime_setting(e->a.rt, "device");
    char *others = other_devices(&e->a, *device ? device : "auto", excluded);
    exclude_from_draft(e, *device ? device : "auto", excluded);
    free(excluded);
    if (!others)
        return complain(3, "no device is left: those of --device crashed");
    free(e->device);
    e->device = others;
    e->flags.device = others;
    return 0;
}

/* 1 if a device may be used that is no CPU, so that more sequences at once cost little. */
static int may_be_gpu(const app *a) {
    const char *device = mn_runtime_setting(a->rt, "device");
    mn_device_item item;
    const int any = !strcmp(device, "auto");
    for (uint32_t i = 0; mn_runtime_device(a->rt, i, &item) == MN_OK; i++) {
        const int named = any || strstr(device, item.plugin);
        if (item.usable && named && strcmp(item.kind, "cpu"))
            return 1;
    }
    return 0;
}

/* The session of embeddings comes last: it shares the weights of the one that generates. Where that
 * one's KV cache left it no room, a smaller one does. 0, or the exit code with the error
 * printed. */
static int open_embedding(engine *e, mn_session_params *params, int may_shrink) {
    app *a = &e->a;
    const mn_status st = embed_work_create(a, on_vector, e, &e->embed);
    if (!st)
        return 0;
    if (st != MN_OUT_OF_MEMORY || !may_shrink)
        return app_fail(a, st);
    params->kv_bytes = a->session_info.kv_bytes / 4 * 3;
    app_remark(a, "the KV cache gives way to that of embeddings: %.1f MiB instead of %.1f",
               (double)params->kv_bytes / 1048576, (double)a->session_info.kv_bytes / 1048576);
    interrupt_watch(NULL);
    mn_session_free(a->session);
    a->session = NULL;
    const int code = app_open_session(a, params);
    return code ? code : open_embedding(e, params, 0);
}

/* The front has tried the template. */
static int engine_use_template(engine *e, const wire_open *m) {
    app *a = &e->a;
    char *text = strndup(m->chat_template.ptr ? m->chat_template.ptr : "", m->chat_template.len);
    const uint32_t flags = m->flags & WIRE_TEMPLATE_NAMED ? MN_CHAT_NAMED : 0;
    mn_status st = MN_OK;
    if (!text)
        return no_memory();
    if (*text && a->info.has_tokenizer)
        st = mn_model_set_template(a->model, text, flags, &a->err);
    free(text);
    return st ? app_fail(a, st) : 0;
}

/* One line of the list: REQUIRED, SCALE, NAME, PATH. Without one that was loaded later the engine
 * starts, too. */
static int open_adapter(engine *e, char *line) {
    app *a = &e->a;
    char *rest = line;
    const char *required = strsep(&rest, "\t");
    const char *scale = strsep(&rest, "\t");
    const char *name = strsep(&rest, "\t");
    if (!rest || !name || !scale)
        return complain(EXIT_FAILED, "engine: found a list of adapters that cannot be read");
    const mn_adapter_source source = {.path = rest, .scale = strtof(scale, NULL)};
    const mn_status st = mn_model_load_adapter(a->model, name, &source, 1, &a->err);
    if (st && *required == '1')
        return app_fail(a, st);
    if (st)
        note("warning: adapter %s: %s", name, a->err.msg);
    return 0;
}

static int open_adapters(engine *e, const wire_open *m) {
    const mn_adapter_room room = {.size = sizeof room,
                                  .n_adapters = m->n_adapters,
                                  .rank = m->adapter_rank,
                                  .dtype = m->adapter_type};
    char *lines = strndup(m->adapters.ptr ? m->adapters.ptr : "", (size_t)m->adapters.len);
    char *rest = lines;
    if (!lines)
        return no_memory();
    const mn_status st = mn_model_set_adapter_room(e->a.model, &room, &e->a.err);
    int code = st ? app_fail(&e->a, st) : 0;
    while (!code && rest && *rest)
        code = open_adapter(e, strsep(&rest, "\n"));
    free(lines);
    return code;
}

/* 0, or the exit code with the error printed. */
static int open_sessions(engine *e, const wire_open *m) {
    mn_session_params params = {.n_seq = m->n_seq, .kv_bytes = m->kv_bytes};
    if (m->flags & WIRE_NO_CACHE)
        params.flags = MN_SESSION_NO_CACHE;
    int code = app_open_ranked(&e->a, &e->flags);
    if (code == 0)
        code = exclude(e, m);
    if (code == 0)
        code = engine_use_template(e, m);
    if (code == 0)
        code = open_adapters(e, m);
    if (code == 0 && !params.n_seq)
        params.n_seq = may_be_gpu(&e->a) ? GPU_SEQUENCES : CPU_SEQUENCES;
    const int generates = code == 0 && !embed_work_is_encoder(&e->a);
    if (generates)
        code = app_open_session(&e->a, &params);
    if (code == 0 && embed_work_is_wanted(&e->a, m->flags & WIRE_EMBEDDINGS))
        code = open_embedding(e, &params, generates && !m->kv_bytes);
    if (code || !generates)
        return code;
    e->work = work_create(e->a.session);
    return e->work ? 0 : no_memory();
}

uint64_t engine_stamp(const app *a) {
    struct stat file = {0};
    stat(a->info.path, &file);
    const uint64_t facts[] = {a->info.n_params,
                              a->info.n_bytes,
                              (uint64_t)a->info.n_vocab,
                              (uint64_t)file.st_ino,
                              (uint64_t)file.st_size,
                              (uint64_t)file.st_mtim.tv_sec,
                              (uint64_t)file.st_mtim.tv_nsec};
    uint64_t h = MN_FNV_BASIS;
    for (size_t i = 0; i < MN_COUNT(facts); i++)
        h = mn_fnv_word(h, facts[i]);
    return h;
}

/* What the front needs to know of the session. */
static void send_ready(engine *e) {
    const mn_session_info *s = &e->a.session_info;
    wire_ready m = {.version = WIRE_VERSION,
                    .precision = s->precision,
                    .n_ctx = s->n_ctx,
                    .n_seq = s->n_seq,
                    .n_batch = s->n_batch,
                    .fallback = (uint32_t)s->fallback,
                    .weight_bytes = s->weight_bytes,
                    .kv_bytes = s->kv_bytes,
                    .stamp = engine_stamp(&e->a)};
    m.device = (mn_str){s->device, s->device ? strlen(s->device) : 0};
    m.description = (mn_str){s->description, s->description ? strlen(s->description) : 0};
    m.why = (mn_str){s->why, s->why ? strlen(s->why) : 0};
    pthread_mutex_lock(&e->out_lock);
    e->is_ready = 1;
    wire_put_ready(&e->out, &m);
    flush(e);
    pthread_mutex_unlock(&e->out_lock);
}

/* Why the model cannot be opened, for who waits for it. */
static void tell_failure(engine *e) {
    pthread_mutex_lock(&e->out_lock);
    e->is_ready = 1; /* nothing follows */
    refuse(e, 0, MN_INVALID, plain_message(e->a.err.msg), 0);
    flush(e);
    pthread_mutex_unlock(&e->out_lock);
}

/* Waits for the first message. 0: it is not OPEN. */
static int receive_open(engine *e, wire_open *m) {
    wire_message first;
    int found = 0;
    while (found == 0) {
        if (wire_fill(&e->in, e->fd) < 0) {
            if (errno == ENOMEM)
                no_more_memory();
            _exit(0);
        }
        found = wire_next(&e->in, &first);
    }
    return found > 0 && first.type == WIRE_OPEN && wire_get_open(&first, m) &&
           m->version == WIRE_VERSION;
}

/* Ctrl-C at a terminal goes to the front, which decides; a front that is gone sends none. */
static void set_signals(void) {
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

#define THREAD_ERROR "engine: cannot start a thread: out of memory, or too many threads"
int engine_main(int fd, int blame) {
    static engine e; /* the reading thread uses it until the process ends */
    wire_open open;
    pthread_t reader;
    e.fd = fd;
    if (fcntl(blame, F_SETFD, FD_CLOEXEC) == 0)
        contain_tell(blame);
    pthread_mutex_init(&e.out_lock, NULL);
    set_signals();
    if (!receive_open(&e, &open))
        return complain(EXIT_FAILED, "engine: found no message of this version; it is started by "
                                     "minerva serve");
    set_flags(&e, &open);
    if (pthread_create(&reader, NULL, beat_while_loading, &e) != 0)
        return complain(EXIT_NO_MEMORY, THREAD_ERROR);
    pthread_detach(reader);
    int code = open_sessions(&e, &open);
    if (code) {
        tell_failure(&e);
        return code;
    }
    send_ready(&e);
    if (pthread_create(&reader, NULL, engine_read_messages, &e) != 0)
        return complain(EXIT_NO_MEMORY, THREAD_ERROR);
    if (e.work)
        return engine_compute(&e);
    pthread_join(reader, NULL);
    return 0;
}
