/* process.c -- group process: a plugin runs in the host's process and must not change its state:
 * open descriptors, signal handlers and masks, working folder, umask, environment, floating-point
 * mode, standard output, child processes, threads. The state is compared after each call of the
 * plugin
 * (watch.h), in the thread that made the call; a rule runs in a process of its own, so that
 * earlier rules have changed nothing. */
#include "life.h"
#include "loader.h"
#include "watch.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_DESCRIPTORS 1024
#define MAX_NAMES 16384

typedef struct {
    struct sigaction action[NSIG];
    sigset_t blocked;
    char folder[4096]; /* "": removed by somebody else; not compared */
    mode_t mask;
    int rounding;
    uint32_t fp_mode;
    char locale[256];
    uint64_t environment;      /* all of it, in order */
    char variables[MAX_NAMES]; /* "A=1", 0, "B=2", 0, 0: as much as there is room for */
    locale_t thread_locale;
    uint8_t descriptor[N_DESCRIPTORS]; /* 1 = open */
} process_state;

/* The control register beyond rounding: exceptions that trap, subnormals that count as zero. 0
 * where it is not known. */
static uint32_t fp_mode(void) {
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & 0xffc0u; /* without the flags that arithmetic raises */
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return (uint32_t)fpcr;
#else
    return 0;
#endif
}

/* Variables and their values, in their order. */
static uint64_t environment_now(void) {
    uint64_t h = MN_FNV_BASIS;
    for (char **e = environ; e && *e; e++)
        h = mn_fnv(h, *e, strlen(*e) + 1);
    return h;
}

static void copy_variables(char to[MAX_NAMES]) {
    size_t at = 0;
    for (char **e = environ; e && *e && at + strlen(*e) + 2 < MAX_NAMES; e++) {
        memcpy(to + at, *e, strlen(*e) + 1);
        at += strlen(*e) + 1;
    }
    to[at] = 0;
}

/* The variable of this name in a copy, as "A=1"; NULL = it is not there. */
static const char *find_variable(const char *in, const char *variable) {
    const size_t n = strcspn(variable, "=") + 1;
    while (*in && strncmp(in, variable, n) != 0)
        in += strlen(in) + 1;
    return *in ? in : NULL;
}

static mode_t umask_now(void) {
    const mode_t m = umask(077);
    umask(m);
    return m;
}

static void read_state(process_state *s) {
    memset(s, 0, sizeof *s);
    for (int i = 1; i < NSIG; i++)
        sigaction(i, NULL, &s->action[i]);
    pthread_sigmask(SIG_BLOCK, NULL, &s->blocked);
    if (!getcwd(s->folder, sizeof s->folder))
        s->folder[0] = 0;
    s->mask = umask_now();
    s->rounding = fegetround();
    s->fp_mode = fp_mode();
    snprintf(s->locale, sizeof s->locale, "%s", setlocale(LC_ALL, NULL));
    s->thread_locale = uselocale((locale_t)0);
    s->environment = environment_now();
    copy_variables(s->variables);
    for (int i = 0; i < N_DESCRIPTORS; i++)
        s->descriptor[i] = fcntl(i, F_GETFD) >= 0;
}

/* Says which file an open descriptor refers to. */
static void name_descriptor(int fd, char *text, size_t n) {
    char link[64];
    char to[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t got = readlink(link, to, sizeof to - 1);
    to[got > 0 ? got : 0] = 0;
    snprintf(text, n, "descriptor %d (%.120s) is open, which was not", fd, to);
}

/* Each diff_*: the first difference in text, as a clause; text is not changed where there is
 * none. */
static void diff_signals(const process_state *was, const process_state *is, char *text, size_t n) {
    for (int i = 1; i < NSIG && !text[0]; i++) {
        const char *name = "?";
        if (sigabbrev_np(i))
            name = sigabbrev_np(i);
        if (was->action[i].sa_handler != is->action[i].sa_handler)
            snprintf(text, n, "SIG%s has another handler", name);
        else if (sigismember(&was->blocked, i) != sigismember(&is->blocked, i))
            snprintf(text, n, "SIG%s is blocked or not as it was before", name);
    }
}

static void diff_environment(const process_state *was, const process_state *is, char *text,
                             size_t n) {
    if (was->environment == is->environment)
        return;
    snprintf(text, n, "the environment is another one (setenv, putenv, unsetenv)");
    for (const char *e = is->variables; *e; e += strlen(e) + 1) {
        const char *before = find_variable(was->variables, e);
        if (!before)
            snprintf(text, n, "the environment has %.200s, which was not there", e);
        else if (strcmp(before, e))
            snprintf(text, n, "the environment has %.200s, and had %.200s", e, before);
    }
    for (const char *e = was->variables; *e; e += strlen(e) + 1)
        if (!find_variable(is->variables, e))
            snprintf(text, n, "the environment lacks %.200s, which was there", e);
}

static void diff_modes(const process_state *was, const process_state *is, char *text, size_t n) {
    if (was->folder[0] && is->folder[0] && strcmp(was->folder, is->folder))
        snprintf(text, n, "the working folder is %.200s, and was %.200s", is->folder, was->folder);
    else if (was->mask != is->mask)
        snprintf(text, n, "the umask is %03o, and was %03o", is->mask, was->mask);
    else if (was->rounding != is->rounding)
        snprintf(text, n, "the rounding mode of floating-point numbers is %d, and was %d",
                 is->rounding, was->rounding);
    else if (was->fp_mode != is->fp_mode)
        snprintf(text, n,
                 "the floating-point control register is %#x, and was %#x (subnormals count as "
                 "zero? -ffast-math does that to a whole process)",
                 is->fp_mode, was->fp_mode);
    else if (strcmp(was->locale, is->locale))
        snprintf(text, n, "the locale is %.200s, and was %.200s", is->locale, was->locale);
    else if (was->thread_locale != is->thread_locale)
        snprintf(text, n, "the thread has another locale");
}

static void diff_descriptors(const process_state *was, const process_state *is, char *text,
                             size_t n) {
    for (int i = 0; i < N_DESCRIPTORS && !text[0]; i++) {
        if (is->descriptor[i] && !was->descriptor[i])
            name_descriptor(i, text, n);
        else if (!is->descriptor[i] && was->descriptor[i])
            snprintf(text, n, "descriptor %d is closed, which was open", i);
    }
}

/* ---- what is checked after each call ------------------------------------------------------- */
typedef struct {
    check *c;
    process_state was;
    int descriptors; /* 1: compare them, too; an open device may hold some */
    int out;         /* descriptor of the file that receives standard output */
} witness;

static void after_state(void *arg, const char *name) {
    witness *w = arg;
    process_state is;
    char text[700] = "";
    read_state(&is);
    diff_signals(&w->was, &is, text, sizeof text);
    if (!text[0])
        diff_modes(&w->was, &is, text, sizeof text);
    if (!text[0])
        diff_environment(&w->was, &is, text, sizeof text);
    if (!text[0] && w->descriptors)
        diff_descriptors(&w->was, &is, text, sizeof text);
    if (text[0])
        check_fail(w->c, "after %s %s, expected all as it was before", name, text);
}

static void after_output(void *arg, const char *name) {
    witness *w = arg;
    char text[64] = "";
    fflush(stdout);
    const ssize_t n = pread(w->out, text, sizeof text - 1, 0);
    for (char *p = text; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = ' ';
    if (n > 0)
        check_fail(w->c,
                   "%s wrote to standard output: \"%s\", expected nothing: it is the "
                   "program's; use host->log",
                   name, text);
}

static void after_children(void *arg, const char *name) {
    witness *w = arg;
    siginfo_t info = {0};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        check_fail(w->c,
                   "after %s a process that it started is %s, expected none: the program may fork, "
                   "wait for any child, or end at any time",
                   name, info.si_pid ? "not waited for" : "still running");
}

/* ---- the calls ------------------------------------------------------------------------------- */
static void guess_and_parse(loader *l, mapped_files *m) {
    loader_guess(l, m);
    loader_parse(l, m, "a model", NULL);
}

/* A whole life of the plugin: opened, used, shut down, with fn called after each call. Statuses are
 * judged by other rules. */
static void process_live(check *c, void (*fn)(void *, const char *), witness *w) {
    watch_after(fn, w);
    if (c->facts->kinds & MN_KIND_BACKEND) {
        check_host h;
        mn_error err = check_error();
        check_host_init(&h);
        life_run(c, &h, &err);
    }
    if (c->facts->kinds & MN_KIND_LOADER && !check_over(c))
        loader_on_model(c, MAP_BEGIN, guess_and_parse);
    watch_after(NULL, NULL);
}

/* The first rule of its group, since the file must not be open yet in this process. */
void check_process_load(check *c) {
    witness w = {
        .c = c,
        .descriptors = 1,
    };
    check_host h;
    check_plugin p;
    check_host_init(&h);
    read_state(&w.was);
    watch_after(after_state, &w);
    const int opened = check_open(c, &p, &h);
    watch_after(NULL, NULL);
    if (opened)
        check_close(c, &p);
}

void check_process_calls(check *c) {
    witness w = {.c = c};
    read_state(&w.was);
    process_live(c, after_state, &w);
}

void check_process_silent(check *c) {
    witness w = {
        .c = c,
        .out = memfd_create("stdout", MFD_CLOEXEC),
    };
    const int usual = dup(1);
    if (w.out < 0 || usual < 0 || dup2(w.out, 1) < 0) {
        check_skip(c, "standard output cannot be redirected: %s", strerror(errno));
        return;
    }
    process_live(c, after_output, &w);
    fflush(stdout);
    dup2(usual, 1);
    close(usual);
    close(w.out);
}

void check_process_children(check *c) {
    witness w = {.c = c};
    siginfo_t info = {0};
    /* children of children become this process's when their parent ends */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) ||
        waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
        check_skip(c, "child processes of the plugin cannot be distinguished from others here");
        return;
    }
    process_live(c, after_children, &w);
}

/* ---- threads --------------------------------------------------------------------------------- */
static int n_threads(void) {
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* Those that end by themselves have 2 s: a detached one may still be on its way out. */
void check_process_threads(check *c) {
#if defined(__SANITIZE_THREAD__)
    check_skip(c, "ThreadSanitizer has a thread of its own");
    return;
#endif
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    const bool unloads = p.api->flags & MN_PLUGIN_UNLOADABLE;
    check_close(c, &p);
    if (!unloads) {
        check_found(c, "it may not be unloaded");
        return;
    }
    process_live(c, NULL, NULL);
    for (int i = 0; i < 200 && n_threads() > 1; i++)
        usleep(10000);
    const int left = n_threads() - 1;
    if (!check_over(c) && left > 0)
        check_fail(c,
                   "after shutdown found %d threads that were not there before, expected none: the "
                   "plugin has MN_PLUGIN_UNLOADABLE, and the host unmaps the code that they run",
                   left);
}
