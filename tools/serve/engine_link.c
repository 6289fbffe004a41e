/* engine_link.c -- the life of an engine process as its front sees it.
 *
 * The process is this program again, with a socket as its standard way in (engine.c). Its death is
 * the end of the socket; the exit status says whose fault it was. SIGSEGV, SIGBUS, SIGILL, SIGFPE
 * and SIGABRT count against the plugin that the process names last, else the one that the session
 * ran on; SIGKILL and SIGTERM against nobody.
 * A plugin that crashed twice is left out. Starts that fail are repeated with growing delays. */
#include "serve/engine_link.h"
#include "app.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* LATE_S: ticks that are further apart come late, since the front itself stood still. */
enum {
    EXIT_NO_DEVICE = 3,
    MAX_CRASHES = 2,
    MAX_DELAY_S = 30,
    REAP_S = 20,
    REAP_MS = 2000,
    LATE_S = 2
};

static void engine_link_start(engine_link *l);
static void engine_link_on_ready(void *arg, uint32_t events);

void link_init(engine_link *l, unsigned index, int set, const wire_open *open, uint64_t stamp,
               const char *device, const char *of, const engine_calls *calls) {
    *l = (engine_link){.index = index, .set = set, .open = open, .calls = *calls, .fd = -1};
    l->blame = -1;
    snprintf(l->title, sizeof l->title, "engine %u%s%.80s", index, of ? " of " : "", of ? of : "");
    l->stamp = stamp;
    l->device = device ? strdup(device) : NULL;
    l->watch = (watch){engine_link_on_ready, l};
    engine_link_start(l);
}

/* ---- start ----------------------------------------------------------------------------------- */

/* In the child: becomes the engine. Only async-signal-safe functions. */
static void become_engine(int fd, int blame, pid_t parent) {
    static char name[] = "minerva", serve[] = "serve", engine[] = "--engine";
    char *words[] = {name, serve, engine, NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    const int apart = fcntl(blame, F_DUPFD, BLAME_FD + 1); /* it may be ENGINE_FD */
    if (fd == ENGINE_FD)
        fcntl(fd, F_SETFD, 0);
    else if (dup2(fd, ENGINE_FD) < 0)
        _exit(EXIT_FAILED);
    if (dup2(apart, BLAME_FD) < 0)
        _exit(EXIT_FAILED);
    close_range(BLAME_FD + 1, ~0u, 0);
    execv("/proc/self/exe", words);
    _exit(EXIT_FAILED);
}

static mn_str engine_link_str_of(const char *z) {
    return (mn_str){z, z ? strlen(z) : 0};
}

/* The first message, after a head that only the new process knows. */
static void send_open(engine_link *l) {
    wire_open open = *l->open;
    open.version = WIRE_VERSION;
    if (l->device)
        open.device = engine_link_str_of(l->device);
    open.excluded = (mn_str){l->excluded.ptr, l->excluded.len};
    mn_text_clear(&l->out);
    l->sent = 0;
    wire_put_open(&l->out, &open);
}

/* A process that could not be started or has died is tried again after a while. */
static void wait_and_retry(engine_link *l) {
    const double delay = l->n_failed ? ldexp(0.5, (int)l->n_failed) : 0;
    l->state = LINK_WAITING;
    l->start_at = seconds() + (delay < MAX_DELAY_S ? delay : MAX_DELAY_S);
}

/* The process, with a socket and a pipe between it and this one. 0: there is none. */
static int fork_engine(engine_link *l) {
    int pair[2];
    int blame[2];
    const pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return 0;
    if (pipe2(blame, O_CLOEXEC | O_NONBLOCK)) {
        close(pair[0]);
        close(pair[1]);
        return 0;
    }
    l->pid = fork();
    if (l->pid == 0)
        become_engine(pair[1], blame[1], parent);
    close(pair[1]);
    close(blame[1]);
    if (l->pid < 0) {
        close(pair[0]);
        close(blame[0]);
        return 0;
    }
    if (l->blame >= 0)
        close(l->blame);
    l->fd = pair[0];
    l->blame = blame[0];
    return 1;
}

/* Starts a process and sends it what it opens. */
static void engine_link_start(engine_link *l) {
    if (!fork_engine(l)) {
        l->n_failed++;
        wait_and_retry(l);
        return;
    }
    fcntl(l->fd, F_SETFL, O_NONBLOCK);
    l->state = LINK_LOADING;
    free(l->why);
    l->why = NULL;
    l->beat_at = seconds();
    l->want_write = 0;
    l->in.n = 0;
    l->in.at = 0;
    loop_add(l->set, l->fd, EPOLLIN, &l->watch);
    send_open(l);
    if (!link_flush(l))
        kill(l->pid, SIGKILL); /* it has nothing to open: another one is started */
}

/* ---- death ----------------------------------------------------------------------------------- */

/* 1 if the process ended by a signal that counts against its plugin. */
static int is_crash(int status) {
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (size_t i = 0; WIFSIGNALED(status) && i < MN_COUNT(deadly); i++)
        if (WTERMSIG(status) == deadly[i])
            return 1;
    return 0;
}

/* The id of the plugin that the process crashed in: as it wrote itself, which may be that of a
 * draft model, else that of the session's first device. "": not known. 1: the plugin wrote into
 * memory that it was given as const. */
static int blamed(const engine_link *l, char id[LINK_ID]) {
    char words[1 + LINK_ID] = "";
    const ssize_t n = l->blame < 0 ? 0 : read(l->blame, words, sizeof words - 1);
    const char *device = l->info_texts[0] ? l->info_texts[0] : "";
    if (n > 1)
        snprintf(id, LINK_ID, "%s", words + 1);
    else
        snprintf(id, LINK_ID, "%.*s", (int)strcspn(device, ":,"), device);
    return words[0] == CONTAIN_WROTE;
}

static void leave_out(engine_link *l, const char *id) {
    mn_text_puts(&l->excluded, l->excluded.len ? "," : "");
    mn_text_puts(&l->excluded, id);
}

/* Counts a crash against its plugin, and leaves it out at the second one; at the first, if it wrote
 * where it must not, also while the model was loaded. */
static void count_crash(engine_link *l, int was_ready) {
    char id[LINK_ID];
    size_t i = 0;
    const int wrote = blamed(l, id);
    if (!was_ready && !wrote)
        return;
    while (i < l->n_plugins && strcmp(l->crashes[i].id, id) != 0)
        i++;
    if (!*id || i == LINK_MAX_PLUGINS)
        return;
    if (i == l->n_plugins) {
        memcpy(l->crashes[i].id, id, sizeof id);
        l->n_plugins++;
    }
    l->crashes[i].n++;
    if (wrote && l->crashes[i].n == 1) {
        l->crashes[i].n = MAX_CRASHES;
        leave_out(l, id);
        note("warning: %s: plugin %s wrote into memory that it was given as const and is "
             "left "
             "out from now on",
             l->title, id);
        return;
    }
    if (l->crashes[i].n != MAX_CRASHES)
        return;
    leave_out(l, id);
    note("warning: %s: plugin %s crashed %d times with this model and is left out from now "
         "on",
         l->title, id, MAX_CRASHES);
}

static void describe(int status, char *out, size_t n) {
    if (WIFSIGNALED(status))
        snprintf(out, n, "ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(out, n, "exited with code %d", WEXITSTATUS(status));
}

/* The sentence for who asks why the engine has ended. */
static void set_why(engine_link *l, const char *text, size_t n) {
    free(l->why);
    l->why = strndup(text, n);
}

/* The exit status is known: gives up, or prepares the next start. */
static void after_death(engine_link *l, int status) {
    char how[96];
    const int crashed = is_crash(status);
    const int was_ready = l->state == LINK_DYING && l->was_ready;
    describe(status, how, sizeof how);
    l->pid = 0;
    if (l->stopping) {
        l->state = LINK_DEAD;
        return;
    }
    if (!was_ready)
        l->n_failed++;
    else
        l->n_failed = 0;
    if (crashed)
        count_crash(l, was_ready);
    l->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
    l->was_ready = 0;
    const int first_start = !l->info_texts[0];
    if (!was_ready && !l->why)
        set_why(l, how, strlen(how));
    const int hopeless = WIFEXITED(status) && (first_start || l->exit_code == EXIT_NO_DEVICE);
    if (!was_ready && (hopeless || l->other_model || (crashed && l->n_failed > MAX_CRASHES))) {
        l->state = LINK_DEAD;
        complain(l->exit_code, "%s %s while it loaded the model", l->title, how);
    } else {
        note("warning: %s %s; starting it again", l->title, how);
        l->n_restarts++;
        wait_and_retry(l);
    }
    l->calls.down(l->calls.arg, l, crashed && was_ready);
}

/* The socket has closed, or what came from it cannot be read. */
static void on_end(engine_link *l) {
    loop_remove(l->set, l->fd);
    close(l->fd);
    l->fd = -1;
    l->was_ready = l->state == LINK_READY;
    l->state = LINK_DYING;
    l->died_at = seconds();
    l->n_preempted += l->beat.n_preempted;
    l->cache_queries += l->beat.cache_queries;
    l->cache_hits += l->beat.cache_hits;
    l->n_drafted += l->beat.n_drafted;
    l->n_accepted += l->beat.n_accepted;
    l->n_forced += l->beat.n_forced;
    l->forms_ns += l->beat.forms_ns;
    l->beat = (wire_beat){0};
    memset(l->prefixes, 0, sizeof l->prefixes);
    mn_text_clear(&l->out);
    l->sent = 0;
}

/* Ends a process that shows no life, stopped or stuck in the kernel: the next one starts when its
 * socket has closed. What it shows while the front stood still counts. */
static void end_if_silent(engine_link *l, double now) {
    if (l->tick_at > 0 && now - l->tick_at > LATE_S)
        l->beat_at += now - l->tick_at;
    l->tick_at = now;
    if ((l->state != LINK_LOADING && l->state != LINK_READY) || !(l->most_silent_s > 0) ||
        now - l->beat_at <= l->most_silent_s)
        return;
    note("warning: %s has shown no life for %.0f s: it is ended", l->title, now - l->beat_at);
    kill(l->pid, SIGKILL);
    l->beat_at = now;
}

void link_tick(engine_link *l, double now) {
    int status = 0;
    end_if_silent(l, now);
    if (l->state == LINK_WAITING && now >= l->start_at)
        engine_link_start(l);
    if (l->state != LINK_DYING)
        return;
    const pid_t got = waitpid(l->pid, &status, WNOHANG);
    if (got == l->pid || (got < 0 && errno == ECHILD))
        after_death(l, status);
    else if (now - l->died_at > REAP_S)
        kill(l->pid, SIGKILL);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Keeps a text of the message, which lives until the next message only. */
static void set_text(engine_link *l, size_t i, mn_str *text) {
    free(l->info_texts[i]);
    l->info_texts[i] = text->len ? strndup(text->ptr, text->len) : strdup("");
    *text = engine_link_str_of(l->info_texts[i]);
}

/* 0: the message is malformed, of another version or not expected now. */
static int on_engine_ready(engine_link *l, const wire_message *m) {
    wire_ready info;
    if (l->state != LINK_LOADING || !wire_get_ready(m, &info) || info.version != WIRE_VERSION)
        return 0;
    if (info.stamp != l->stamp) {
        complain(EXIT_FAILED,
                 "the model's file has changed since the server began: start it again");
        l->other_model = 1;
        return 0;
    }
    l->info = info;
    set_text(l, 0, &l->info.device);
    set_text(l, 1, &l->info.description);
    set_text(l, 2, &l->info.why);
    l->state = LINK_READY;
    l->beat_at = seconds();
    l->calls.ready(l->calls.arg, l);
    return 1;
}

/* 0: the message is not one that an engine sends. */
static int on_message(engine_link *l, const wire_message *m) {
    const engine_calls *calls = &l->calls;
    wire_event event;
    wire_refused refused;
    wire_vector vector;
    uint64_t id = 0;
    if (m->type == WIRE_READY)
        return on_engine_ready(l, m);
    if (m->type == WIRE_BEAT && l->state == LINK_LOADING && wire_get_beat(m, &l->beat)) {
        l->beat_at = seconds();
        return 1;
    }
    if (m->type == WIRE_REFUSED && l->state == LINK_LOADING && wire_get_refused(m, &refused)) {
        if (refused.message.len)
            set_why(l, refused.message.ptr, (size_t)refused.message.len);
        return 1;
    }
    if (l->state != LINK_READY)
        return 0;
    if (m->type == WIRE_EVENT && wire_get_event(m, &event))
        calls->event(calls->arg, l, &event);
    else if (m->type == WIRE_ADMITTED && wire_get_id(m, &id))
        calls->admitted(calls->arg, l, id);
    else if (m->type == WIRE_REFUSED && wire_get_refused(m, &refused))
        calls->refused(calls->arg, l, &refused);
    else if (m->type == WIRE_VECTOR && wire_get_vector(m, &vector))
        calls->vector(calls->arg, l, &vector);
    else if (m->type == WIRE_BEAT && wire_get_beat(m, &l->beat))
        l->beat_at = seconds();
    else
        return 0;
    return 1;
}

/* All whole messages that have come. What cannot be read ends the engine: its state is unknown.
 * Where this process has no memory for them, they wait in the socket. */
static void read_messages(engine_link *l) {
    wire_message m;
    const int filled = wire_fill(&l->in, l->fd);
    if (filled < 0 && errno == ENOMEM)
        return;
    int found = wire_next(&l->in, &m);
    while (found > 0 && on_message(l, &m))
        found = wire_next(&l->in, &m);
    if (found) {
        note("warning: %s sent a message that cannot be read (type %u): it is ended", l->title,
             found > 0 ? (unsigned)m.type : 0);
        kill(l->pid, SIGKILL);
    }
    if (found || filled < 0)
        on_end(l);
}

static void engine_link_on_ready(void *arg, uint32_t events) {
    engine_link *l = arg;
    if (l->fd >= 0 && (events & EPOLLOUT))
        link_flush(l);
    if (l->fd >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        read_messages(l);
}

int link_flush(engine_link *l) {
    const int lost = l->out.failed;
    l->out.failed = 0; /* all that is in it are whole messages */
    if (l->fd < 0)
        return !lost;
    while (l->sent < l->out.len) {
        const ssize_t n =
            send(l->fd, l->out.ptr + l->sent, l->out.len - l->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break; /* full: EPOLLOUT follows; closed: EPOLLIN does */
        l->sent += (size_t)n;
    }
    const int want_write = l->sent < l->out.len;
    if (!want_write) {
        mn_text_clear(&l->out);
        l->sent = 0;
    }
    if (want_write != l->want_write)
        loop_change(l->set, l->fd, EPOLLIN | (want_write ? EPOLLOUT : 0), &l->watch);
    l->want_write = want_write;
    return !lost;
}

void link_stop(engine_link *l) {
    l->stopping = 1;
    if (l->fd >= 0)
        on_end(l);
    else if (l->state != LINK_DYING)
        l->state = LINK_DEAD;
}

double link_silence(const engine_link *l, double now) {
    if (l->state != LINK_READY)
        return INFINITY;
    return (double)l->beat.beat_ms * 1e-3 + now - l->beat_at;
}

/* It ends by itself once the connection is closed, and tells other ranks; a device may hang. */
static void reap(pid_t pid) {
    for (int ms = 0; ms < REAP_MS; ms++) {
        const struct timespec moment = {.tv_nsec = 1000000};
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return;
        nanosleep(&moment, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

void link_free(engine_link *l) {
    if (l->fd >= 0)
        close(l->fd);
    if (l->blame >= 0)
        close(l->blame);
    if (l->pid > 0)
        reap(l->pid);
    for (size_t i = 0; i < MN_COUNT(l->info_texts); i++)
        free(l->info_texts[i]);
    free(l->why);
    wire_free(&l->in);
    mn_text_free(&l->out);
    mn_text_free(&l->excluded);
    free(l->device);
    *l = (engine_link){.fd = -1, .blame = -1};
}
