/* bench_start.c -- what finding, checking and believing plugins costs at the start of a program:
 * mn_runtime_create with warm cache, against a program that opens the same files and calls their
 * entries itself. Fresh processes, turn by turn; prints medians.
 *   bench_start libminerva.so PLUGIN.so... (three good ones; RUNS in the environment, default
 * 51) */
#include <minerva/minerva.h>
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void host_log(void *self, int32_t level, mn_str msg) {
    (void)self, (void)level, (void)msg;
}
static void *host_alloc(void *self, uint64_t bytes, uint64_t align) {
    (void)self;
    return aligned_alloc(align < 16 ? 16 : align, (bytes + 4095) / 4096 * 4096);
}
static void host_release(void *self, void *ptr) {
    (void)self, free(ptr);
}
static mn_status host_parallel(void *self, uint32_t n, void (*fn)(void *, uint32_t, uint32_t),
                               void *arg) {
    (void)self;
    return fn(arg, 0, n), MN_OK;
}
static uint32_t host_workers(void *self) {
    return (void)self, 1;
}
static int32_t host_progress(void *self, float done, mn_str what) {
    return (void)self, (void)done, (void)what, 0;
}
static uint64_t host_now(void *self) {
    return (void)self, (uint64_t)(now_ms() * 1e6);
}
static int32_t host_option(void *self, const char *key, mn_str *value) {
    return (void)self, (void)key, (void)value, 0;
}
static const void *host_query(void *self, const char *id) {
    return (void)self, (void)id, NULL;
}

static int by_hand(int n, char **paths) {
    static const mn_host host = {sizeof host,   MN_ABI_VERSION, MN_ABI_OLDEST, 0,
                                 NULL,          host_log,       host_alloc,    host_release,
                                 host_parallel, host_workers,   host_progress, host_now,
                                 host_option,   host_query};
    for (int i = 0; i < n; i++) {
        mn_error err = MN_ERROR;
        mn_entry_fn entry = NULL;
        void *library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL),
             *symbol = library ? dlsym(library, MN_ENTRY_NAME) : NULL;
        memcpy(&entry, &symbol, sizeof entry);
        const mn_plugin *p = entry ? entry(&host, &err) : NULL;
        if (!p || (!p->query(p->self, MN_BACKEND_ID) && !p->query(p->self, MN_LOADER_ID)))
            return fprintf(stderr, "%s: %s\n", paths[i], library ? err.msg : dlerror()), 1;
    }
    return 0;
}

/* ---- by the host ----------------------------------------------------------------------------- */

/* The library is opened here, so that the process by hand does not load it. */
static int by_host(int n, const char *path) {
    mn_error err = MN_ERROR;
    mn_runtime *rt;
    mn_plugin_item p = {0};
    mn_status (*create)(const mn_runtime_params *, mn_runtime **, mn_error *);
    mn_status (*plugin)(const mn_runtime *, uint32_t, mn_plugin_item *);
    void *library = dlopen(path, RTLD_NOW), *symbols[2];
    if (!library)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    symbols[0] = dlsym(library, "mn_runtime_create"),
    symbols[1] = dlsym(library, "mn_runtime_plugin");
    memcpy(&create, &symbols[0], sizeof create);
    memcpy(&plugin, &symbols[1], sizeof plugin);
    if (create(NULL, &rt, &err) != MN_OK)
        return fprintf(stderr, "%s\n", err.msg), 1;
    for (int i = 0; i < n; i++)
        if (plugin(rt, (uint32_t)i, &p) != MN_OK || strcmp(p.status, "ok") != 0)
            return fprintf(stderr, "%s: %s\n", p.path, p.reason), 1;
    return 0;
}

/* ---- both, in processes of their own --------------------------------------------------------- */

static double run(char **args) {
    pid_t pid;
    int how = 0;
    double begin = now_ms();
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ) ||
        waitpid(pid, &how, 0) < 0 || how)
        exit(1);
    return now_ms() - begin;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n) {
    return qsort(v, n, sizeof *v, by_value), v[n / 2];
}

int main(int argc, char **argv) {
    static char hand[] = "by-hand", host[] = "by-host";
    if (argc > 1 && !strcmp(argv[0], hand))
        return by_hand(argc - 2, argv + 2);
    if (argc > 1 && !strcmp(argv[0], host))
        return by_host(argc - 2, argv[1]);
    const char *wanted = getenv("RUNS");
    size_t n = wanted ? (size_t)atol(wanted) : 51, length = 1;
    double *t[2] = {calloc(n + 1, sizeof(double)), calloc(n + 1, sizeof(double))};
    for (int i = 2; i < argc; i++)
        length += strlen(argv[i]) + 1;
    char *list = calloc(1, length);
    if (argc < 3 || n < 1 || !list || !t[0] || !t[1])
        return fprintf(stderr, "bench_start libminerva.so PLUGIN.so...\n"), 2;
    for (int i = 2; i < argc; i++)
        strcat(strcat(list, argv[i]), i + 1 < argc ? ":" : "");
    setenv("MINERVA_PLUGIN_PATH_ONLY", list, 1);
    for (size_t i = 0; i <= n; i++) { /* the first round warms cache and files */
        argv[0] = hand, t[0][i] = run(argv);
        argv[0] = host, t[1][i] = run(argv);
    }
    double a = median(t[0] + 1, n), b = median(t[1] + 1, n);
    printf("%d plugins, %zu runs: opened by hand %.2f ms, by the host %.2f ms, %.2f ms more\n",
           argc - 2, n, a, b, b - a);
    return 0;
}
