/* loader_rules.c -- what a loader makes of good files. */
#include "loader.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- guess ----------------------------------------------------------------------------------- */
static void guess_garbage(loader *l, uint32_t which) {
    model_files own = l->model;
    mapped_files m;
    model_make_garbage(&l->model, which);
    if (mapped_make(&m, &l->model, MAP_END)) {
        int confidence = loader_guess(l, &m);
        if (confidence > 0)
            check_fail(l->c, "guess on %s: found confidence %d, expected 0: it is nobody's model",
                       l->model.format, confidence);
    }
    mapped_free(&m);
    model_free(&l->model);
    l->model = own;
}

/* A model of another format: 0, or it opens. */
static void guess_other(loader *l, uint32_t which) {
    model_files own = l->model;
    mapped_files m;
    mn_parsed *p = NULL;
    model_make(&l->model, which);
    if (mapped_make(&m, &l->model, MAP_BEGIN)) {
        int confidence = loader_guess(l, &m);
        check_doing(l->c, "open of a %s model, which it claims, ran", l->model.format);
        mn_error e = check_error();
        if (confidence > 0 &&
            l->plugin.ld->open(l->plugin.api->self, m.views, m.n, sizeof(mn_file), &p, &e))
            check_fail(l->c,
                       "guess on a %s model: found confidence %d, but open fails (%s); expected 0",
                       l->model.format, confidence, e.msg);
        if (p)
            l->plugin.ld->close(p);
    }
    mapped_free(&m);
    model_free(&l->model);
    l->model = own;
}

static int plain_open(check *c, loader *l) { /* without asking for a model yet */
    const char *model = c->model;
    memset(l, 0, sizeof *l);
    l->c = c, c->model = NULL;
    check_host_init(&l->host);
    int ok = check_open(c, &l->plugin, &l->host);
    c->model = model;
    if (ok && !l->plugin.ld)
        check_fail(c, "query(\"" MN_LOADER_ID "\"): found NULL, expected a table");
    return ok && l->plugin.ld;
}

void check_model_guess(check *c) {
    loader l;
    if (plain_open(c, &l)) {
        for (uint32_t i = 0; i < LOADER_GARBAGE && !check_over(c); i++)
            guess_garbage(&l, i);
        /* mlx is safetensors by its names */
        for (uint32_t i = 0; i < 2 && !check_over(c); i++)
            guess_other(&l, i);
    }
    loader_close(&l);
}

void check_model_open(check *c) {
    loader l;
    mapped_files m;
    uint64_t digest;
    if (loader_open(c, &l) && mapped_make(&m, &l.model, MAP_BEGIN)) {
        int confidence = loader_guess(&l, &m);
        mn_error e = check_error();
        mn_parsed *p = NULL;
        mn_status s = confidence > 0 ? loader_parse(&l, &m, l.model.format, &digest) : MN_OK;
        if (confidence == 0)
            check_fail(c, "guess on %s: found confidence 0, expected a claim",
                       c->model ? c->model : l.model.format);
        if (s) { /* once more, for the sentence */
            l.plugin.ld->open(l.plugin.api->self, m.views, m.n, sizeof(mn_file), &p, &e);
            check_fail(c, "a valid model (%s): found status 0x%x (%s), expected MN_OK",
                       l.model.format, (unsigned)s, e.msg);
        }
        check_found(c, "%s, confidence %d", l.model.format, confidence);
        mapped_free(&m);
    }
    loader_close(&l);
}

/* ---- the same answers ------------------------------------------------------------------------ */
typedef struct {
    loader *l;
    const mapped_files *m;
    uint64_t digest;
} parse_job;
static void *parse_often(void *arg) {
    parse_job *j = arg;
    uint64_t first = loader_digest(j->l, j->m);
    for (int i = 0; i < 20 && first; i++)
        if (loader_digest(j->l, j->m) != first)
            first = 0;
    j->digest = first;
    return NULL;
}

static void same_answers(loader *l, const mapped_files *m) {
    parse_job jobs[4];
    pthread_t threads[4];
    int n = 0;
    uint64_t want = loader_digest(l, m);
    if (!check_over(l->c) && loader_digest(l, m) != want)
        check_fail(l->c, "two parses of the same files give different answers, expected the same");
    check_doing(l->c, "4 threads parsed the same files at the same time");
    for (; n < 4; n++) {
        jobs[n] = (parse_job){l, m, 0};
        if (pthread_create(&threads[n], NULL, parse_often, &jobs[n]))
            break;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        if (jobs[i].digest != want)
            check_fail(
                l->c,
                "parses in several threads give other answers than one alone, expected the same");
    }
}

void check_loader_same(check *c) {
    loader l;
    mapped_files m;
    if (loader_open(c, &l) && mapped_make(&m, &l.model, MAP_BEGIN)) {
        same_answers(&l, &m);
        mapped_free(&m);
    }
    loader_close(&l);
}

/* ---- who named what -------------------------------------------------------------------------- */
typedef struct {
    mn_file file;
    uint64_t later[3]; /* fields that the loader does not know */
} longer_file;

/* The same answers as want, for the model's files with these flags, in elements longer than known. */
static void try_flags(loader *l, const mapped_files *m, uint64_t want, const uint32_t *flags,
                      const char *what) {
    static longer_file files[LOADER_FILES];
    mn_guess g = {.size = sizeof g};
    if (check_over(l->c))
        return;
    memset(files, 0xA5, sizeof files);
    for (uint32_t i = 0; i < m->n; i++) {
        files[i].file = m->views[i];
        files[i].file.flags = flags[i];
    }
    check_doing(l->c, "guess and open ran with %s", what);
    l->plugin.ld->guess(l->plugin.api->self, &files[0].file, m->n, sizeof *files, &g);
    if (!g.confidence)
        check_fail(l->c, "guess with %s: found confidence 0, expected a claim as without", what);
    else if (loader_digest_of(l, m, files, sizeof *files) != want)
        check_fail(l->c, "open with %s: found other answers, expected the same", what);
}

/* No file, each that a user may name, and all with a flag of a later version. */
static void try_names(loader *l, const mapped_files *m, uint64_t want) {
    uint32_t flags[LOADER_FILES] = {0}, models = 0;
    char what[400];
    for (uint32_t i = 0; i < m->n; i++)
        models += patterns_kinds(&l->patterns, m->views[i].name.ptr) == 1u << MN_PATTERN_MODEL;
    try_flags(l, m, want, flags, "no file named, as of a folder");
    for (uint32_t i = 0; i < m->n && !check_over(l->c); i++) {
        const uint32_t kinds = patterns_kinds(&l->patterns, m->views[i].name.ptr);
        if (!(kinds & PATTERNS_FILE) || (models > 1 && !(kinds & 1u << MN_PATTERN_SHARD)))
            continue;
        flags[i] = MN_FILE_NAMED;
        snprintf(what, sizeof what, "%s named", m->views[i].name.ptr);
        try_flags(l, m, want, flags, what);
        flags[i] = 0;
    }
    for (uint32_t i = 0; i < m->n; i++)
        flags[i] = m->views[i].flags | 1u << 30;
    try_flags(l, m, want, flags, "flag 1 << 30 on every file");
}

/* Files that other loaders' patterns name come too. */
static void try_others(loader *l, uint64_t want) {
    static const uint8_t prose[] = "Once upon a time there was a {\"thing\": [1, 2, 3]}.\n";
    static model_files more;
    static const char *const names[] = {".aaa", "~~~.thing"};
    mapped_files m;
    more = l->model;
    for (uint32_t i = 0; i < 2 && more.n < LOADER_FILES; i++) {
        model_file f = {.bytes = (uint8_t *)(uintptr_t)prose, .n = sizeof prose - 1};
        snprintf(f.name, sizeof f.name, "%s", names[i]);
        more.file[more.n++] = f;
    }
    model_sort(&more);
    check_doing(l->c, "open ran with files of other formats beside");
    if (mapped_make(&m, &more, MAP_END) && loader_digest(l, &m) != want)
        check_fail(l->c, "with files of other formats beside: found other answers, expected the "
                         "same");
    mapped_free(&m);
}

void check_loader_named(check *c) {
    loader l;
    mapped_files m;
    if (loader_open(c, &l) && mapped_make(&m, &l.model, MAP_BEGIN)) {
        const uint64_t want = loader_digest(&l, &m);
        try_names(&l, &m, want);
        if (!check_over(c))
            try_others(&l, want);
        mapped_free(&m);
    }
    loader_close(&l);
}

/* ---- headers alone --------------------------------------------------------------------------- */
typedef struct {
    mapped_files *m;
    mn_plane planes[4096];
    uint32_t file[4096], n;
} plane_list;
static void list_plane(void *arg, uint32_t file, const mn_plane *p) {
    plane_list *list = arg;
    if (list->n == 4096)
        return;
    list->file[list->n] = file, list->planes[list->n++] = *p;
}

void check_loader_lazy(check *c) {
    static plane_list list;
    loader l;
    mapped_files m;
    if (loader_open(c, &l) && mapped_make(&m, &l.model, MAP_BEGIN)) {
        uint64_t closed = 0, want = loader_digest(&l, &m);
        list.n = 0;
        loader_each_plane(&l, &m, list_plane, &list);
        for (uint32_t i = 0; i < list.n; i++)
            closed += mapped_close(&m, list.file[i], list.planes[i].ptr, list.planes[i].bytes);
        if (!closed)
            check_skip(c, "no tensor of the model fills a page");
        loader_guess(&l, &m);
        check_doing(c, "open ran, with the pages of tensor data closed: headers are enough");
        if (!check_over(c) && loader_digest(&l, &m) != want)
            check_fail(c, "with tensor data closed: found other answers, expected the same");
        mapped_free(&m);
    }
    loader_close(&l);
}

/* ---- no file is opened ----------------------------------------------------------------------- */
#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

/* From here on a system call that opens a file or a socket ends the process with SIGSYS. */
static bool forbid_opening(void) {
#ifdef OUR_ARCH
#define KILL_AT(nr)                                                                                \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1),                                               \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_open
        KILL_AT(SYS_open),
        KILL_AT(SYS_creat),
#endif
        KILL_AT(SYS_openat),
        KILL_AT(SYS_openat2),
        KILL_AT(SYS_socket),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
#else
    return false;
#endif
}

/* The last rule of its group: nothing opens a file in this process any more. */
void check_loader_files(check *c) {
    loader l;
    mapped_files m;
    if (loader_open(c, &l) && mapped_make(&m, &l.model, MAP_BEGIN)) {
        uint64_t want = loader_digest(&l, &m);
        if (!forbid_opening())
            check_skip(c, "this system cannot forbid a process to open files (seccomp): %s",
                       strerror(errno));
        check_doing(c, "guess and open ran where opening a file or a socket is forbidden (SIGSYS): "
                       "a loader opens none");
        mn_guess g = {.size = sizeof g};
        l.plugin.ld->guess(l.plugin.api->self, m.views, m.n, sizeof(mn_file), &g);
        if (!check_over(c) && loader_digest(&l, &m) != want)
            check_fail(c, "found other answers where no file can be opened, expected the same");
        mapped_free(&m);
    }
    loader_close(&l);
}
