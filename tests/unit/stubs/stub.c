/* stub.c -- a plugin that does nothing, in the ways that STUB_* name: what the registry must take
 * or refuse. */
#include <minerva/plugin.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef STUB_ID
#define STUB_ID "stub"
#endif
#ifndef STUB_ABI
#define STUB_ABI MN_ABI_VERSION
#endif
#ifndef STUB_DEVICES
#define STUB_DEVICES 1
#endif
#ifndef STUB_KIND
#define STUB_KIND MN_DEVICE_CPU
#endif

#ifdef STUB_NOTE /* "id", kinds, "isa" */
#define NOTE_OF(...) MN_PLUGIN_NOTE(__VA_ARGS__)
NOTE_OF(STUB_NOTE);
#endif
#ifdef STUB_NOTE_ABI
static const mn_note note
    __attribute__((section(".note.minerva"), used, aligned(4))) = {8,
                                                                   sizeof(mn_note) - 20,
                                                                   1,
                                                                   "Minerva",
                                                                   sizeof(mn_note) - 20,
                                                                   STUB_NOTE_ABI,
                                                                   STUB_NOTE_ABI,
                                                                   MN_KIND_BACKEND,
                                                                   STUB_ID,
                                                                   ""};
#endif

/* What STUB_CONSTRUCTOR, STUB_ENTRY and STUB_LIST may name. */
static inline void hang(void) {
    for (;;)
        pause();
}
static inline void angry(void) {
    fputs("first\nthe driver is angry\n", stderr);
    abort();
}
static inline void ill(void) {
    raise(SIGILL);
}
static inline void segv(void) {
    raise(SIGSEGV);
}
static inline void leave(void) {
    _exit(7);
}

/* Waits until as many processes as the first digit of $STUB_MEET says have come to the folder
 * behind it. */
static inline void meet(void) {
    const char *where = getenv("STUB_MEET");
    char path[4096];
    if (!where)
        return;
    snprintf(path, sizeof path, "%s/came-%ld", where + 1, (long)getpid());
    close(open(path, O_CREAT | O_WRONLY, 0600));
    for (int n = 0; n < where[0] - '0'; usleep(1000)) {
        DIR *dir = opendir(where + 1);
        n = 0;
        for (const struct dirent *e; dir && (e = readdir(dir));)
            n += !strncmp(e->d_name, "came-", 5);
        if (dir)
            closedir(dir);
    }
}

/* In every process but the one that $STUB_HOST names. */
static inline int is_probe(void) {
    const char *host = getenv("STUB_HOST");
    return host && atol(host) != (long)getpid();
}
static inline void count_files(void) {
    for (int fd = 16; fd < 256 && is_probe(); fd++) /* below: the probe's own */
        if (fcntl(fd, F_GETFD) >= 0)
            abort();
}
static inline void shout(void) {
    for (int i = 0; is_probe() && i < 100000; i++)
        puts("this line is one of very many");
    fflush(stdout);
}

#ifdef STUB_CONSTRUCTOR
__attribute__((constructor)) static void constructor(void) {
    STUB_CONSTRUCTOR();
}
#endif

#ifndef STUB_NO_ENTRY
struct mn_device {
    uint32_t index;
};

static mn_device devices[8];
static int n_open, n_shutdown;
static mn_plugin plugin;
static mn_backend backend;
static mn_loader loader;
static const mn_host *host;

static mn_status nothing(void) {
    return MN_UNSUPPORTED;
}

static mn_status device_count(void *self, uint32_t *n, mn_error *err) {
    (void)self, (void)n, (void)err;
#ifdef STUB_LIST
    STUB_LIST();
#endif
#if STUB_DEVICES < 0
    memcpy(err->msg, "no driver on this machine", 26);
    return err->status = MN_NO_DEVICE;
#else
    *n = STUB_DEVICES;
    return MN_OK;
#endif
}

static mn_status device_info(void *self, uint32_t i, mn_device_info *info, mn_error *err) {
    (void)self, (void)err;
    if (i == 2)
        return MN_DEVICE_LOST; /* without a reason */
    info->kind = STUB_KIND;
    memset(info->name, 'x', sizeof info->name); /* without an end: the host adds it */
    return MN_OK;
}

static mn_status device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                             mn_error *err) {
    (void)self, (void)params;
    if (i == 1) {
        memcpy(err->msg, "out of order", 13);
        return err->status = MN_DEVICE_LOST;
    }
    n_open++;
    devices[i].index = i;
    *out = &devices[i];
    return MN_OK;
}

static void device_close(mn_device *dev) {
    (void)dev;
    n_open--;
}

static mn_status self_test(mn_device *dev, mn_error *err) {
    (void)dev, (void)err;
#ifdef STUB_TEST /* a status, of the first device */
    if (!dev->index) {
        memcpy(err->msg, "2 + 2 = 5", 10);
        return err->status = STUB_TEST;
    }
#endif
    return MN_OK;
}

static mn_status guess(void *self, const mn_file *files, uint32_t n, uint32_t stride,
                       mn_guess *out) {
    (void)self, (void)files, (void)n, (void)stride;
#ifdef STUB_CLAIMS
    out->confidence = 100;
#else
    out->confidence = 0;
#endif
    return MN_OK;
}

#ifndef STUB_PATTERN
#define STUB_PATTERN MN_PATTERN_MODEL, "*.stub"
#endif
static mn_status patterns(void *self, uint32_t i, mn_file_pattern *out) {
    static const struct {
        uint32_t kind;
        const char *text;
    } stated = {STUB_PATTERN};
    (void)self;
    if (i || !stated.text)
        return MN_END;
    out->kind = stated.kind;
    out->text.ptr = stated.text;
    out->text.len = strlen(stated.text);
    return MN_OK;
}

static const void *query(void *self, const char *id) {
    (void)self;
#ifndef STUB_EMPTY
#ifndef STUB_LOADER
    if (!strcmp(id, MN_BACKEND_ID))
        return &backend;
#else
    if (!strcmp(id, MN_LOADER_ID))
        return &loader;
#endif
#endif
    if (!strcmp(id, "test.open"))
        return &n_open;
    if (!strcmp(id, "test.shutdown"))
        return &n_shutdown;
    if (!strcmp(id, "test.host"))
        return host;
    return 0;
}

static void shutdown(void *self) {
    (void)self;
    n_shutdown++;
}

/* Any function will do for those that are never called. */
static void fill(void *table, size_t from, size_t to) {
    mn_status (*fn)(void) = nothing;
    for (; from < to; from += sizeof fn)
        memcpy((char *)table + from, &fn, sizeof fn);
}

MN_EXPORT const mn_plugin *minerva_plugin_entry(const mn_host *h, mn_error *err) {
    host = h;
#ifdef STUB_ENTRY
    STUB_ENTRY();
#endif
#ifdef STUB_NULL
    memcpy(err->msg, "this stub never works", 22);
    err->status = MN_UNSUPPORTED;
    return 0;
#endif
    (void)err;
    backend.size = sizeof backend;
    fill(&backend, offsetof(mn_backend, device_count), sizeof backend);
    backend.device_count = device_count;
    backend.device_info = device_info;
    backend.device_open = device_open;
    backend.device_close = device_close;
    backend.self_test = self_test;
#ifdef STUB_LACKS
    backend.execute = 0;
#endif
    loader.size = sizeof loader;
    fill(&loader, offsetof(mn_loader, guess), sizeof loader);
    loader.guess = guess;
    loader.patterns = patterns;
    plugin.size = sizeof plugin;
    plugin.abi = STUB_ABI;
    plugin.id.ptr = STUB_ID;
    plugin.id.len = sizeof STUB_ID - 1;
    plugin.query = query;
    plugin.shutdown = shutdown;
#ifdef STUB_UNLOADABLE
    plugin.flags = MN_PLUGIN_UNLOADABLE;
#endif
    h->option(h->self, "greeting", &plugin.version);
    return &plugin;
}
#else
int stub_that_is_no_plugin;
#endif
