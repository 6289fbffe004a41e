/* loader_rules.c -- groups model and loader: what a loader returns for undamaged files. Models and
 * parses come from loader.h; damaged files are in loader_bad.c, the rule about patterns in
 * loader_patterns.c. The rule loader.files is the last one of its group, since afterwards no
 * file can be opened in its process. */
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
/* Files of no format. */
static void guess_garbage(loader *l, const mapped_files *m) {
    const int confidence = loader_guess(l, m);
    CHECK(l->c, confidence <= 0,
          "guess on %s: found confidence %d, expected 0: it is a model of no format",
          l->model.format, confidence);
}

/* A model that may be of another format: confidence 0, or it opens. */
static void guess_other(loader *l, const mapped_files *m) {
    const char *format = l->model.format;
    mn_parsed *p = NULL;
    mn_error e = check_error();
    const int confidence = loader_guess(l, m);
    if (confidence <= 0)
        return;
    mn_guess g = {.size = sizeof g};
    l->plugin.ld->guess(l->plugin.api->self, m->views, m->n, sizeof *m->views, &g);
    CHECK(l->c, g.format[0],
          "guess on a %s model: found a claim with an empty format, expected its name", format);
    check_doing(l->c, "open of a %s model, which it claims, ran", format);
    const mn_status st = loader_open(l, m, &p, &e);
    CHECK(l->c, !st, "guess on a %s model: found confidence %d, but open fails (%s), expected 0",
          format, confidence, e.msg);
    if (p)
        l->plugin.ld->close(p);
}

/* Calls fn on the files of l->model, and frees them. */
static void on_files(loader *l, int how, void (*fn)(loader *, const mapped_files *)) {
    mapped_files m;
    if (!check_over(l->c)) {
        if (mapped_make(&m, &l->model, how))
            fn(l, &m);
        mapped_free(&m);
    }
    model_free(&l->model);
}

void check_model_guess(check *c) {
    loader l;
    if (loader_enter(c, &l)) {
        for (uint32_t i = 0; i < LOADER_GARBAGE; i++) {
            model_make_garbage(&l.model, i);
            on_files(&l, MAP_END, guess_garbage);
        }
        for (uint32_t i = 0; i < 2; i++) { // not mlx: a safetensors loader may claim its names
            model_make(&l.model, i);
            on_files(&l, MAP_BEGIN, guess_other);
        }
    }
    loader_close(&l);
}

static void opens(loader *l, mapped_files *m) {
    check *c = l->c;
    const char *format = l->model.format;
    mn_error e = check_error();
    mn_parsed *p = NULL;
    const int confidence = loader_guess(l, m);
    if (check_over(c))
        return;
    CHECK(c, confidence > 0, "guess on %s: found confidence 0, expected a claim",
          c->model ? c->model : format);
    if (loader_parse(l, m, format, NULL)) // once more, for the message
        check_status(c, loader_open(l, m, &p, &e), &e, "open of a valid model (%s)", format);
    if (!check_over(c))
        loader_once(l, m);
    check_found(c, "%s, confidence %d", format, confidence);
}

void check_model_open(check *c) {
    loader_on_model(c, MAP_BEGIN, opens);
}

/* ---- the same answers ------------------------------------------------------------------------ */
enum { N_PARSERS = 4 };

/* A thread that parses; digest: of all its parses, 0 = they differ. */
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

static void same_answers(loader *l, mapped_files *m) {
    parse_job jobs[N_PARSERS];
    pthread_t threads[N_PARSERS];
    int n = 0;
    const uint64_t want = loader_digest(l, m);
    if (!check_over(l->c) && loader_digest(l, m) != want)
        check_fail(l->c, "two parses of the same files give different answers, expected the same");
    check_doing(l->c, "4 threads parsed the same files at the same time");
    while (n < N_PARSERS) {
        jobs[n] = (parse_job){l, m, 0};
        if (pthread_create(&threads[n], NULL, parse_often, &jobs[n]))
            break;
        n++;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        if (jobs[i].digest != want)
            check_fail(l->c,
                       "parses in several threads give other answers than one alone, expected "
                       "the same");
    }
}

void check_loader_same(check *c) {
    loader_on_model(c, MAP_BEGIN, same_answers);
}

/* ---- named files, flags and neighbours ------------------------------------------------------- */
typedef struct {
    mn_file file;
    uint64_t later[3]; /* fields that the loader does not know */
} longer_file;

/* The same answers as want, for the model's files with these flags, in elements longer than
 * known. */
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

static uint32_t kinds_of(const loader *l, const mapped_files *m, uint32_t i) {
    return patterns_kinds(&l->patterns, m->views[i].name.ptr);
}

/* Whether the user may name file i and mean the whole model: of several files that are models
 * each, one names itself alone. */
static bool may_be_named(const loader *l, const mapped_files *m, uint32_t i) {
    const uint32_t kinds = kinds_of(l, m, i);
    uint32_t models = 0;
    for (uint32_t k = 0; k < m->n; k++)
        models += kinds_of(l, m, k) == 1u << MN_PATTERN_MODEL;
    if (!(kinds & PATTERNS_FILE))
        return false;
    return models <= 1 || (kinds & 1u << MN_PATTERN_SHARD);
}

/* No file named, then each that a user may name, then all with a flag of a later version. */
static void try_names(loader *l, const mapped_files *m, uint64_t want) {
    uint32_t flags[LOADER_FILES] = {0};
    char what[400];
    try_flags(l, m, want, flags, "no file named, as of a folder");
    for (uint32_t i = 0; i < m->n && !check_over(l->c); i++) {
        if (!may_be_named(l, m, i))
            continue;
        flags[i] = MN_FILE_NAMED;
        snprintf(what, sizeof what, "%s named", m->views[i].name.ptr);
        try_flags(l, m, want, flags, what);
        flags[i] = MN_FILE_NAMED | 1u << 30;
        snprintf(what, sizeof what, "%s named, and flag 1 << 30", m->views[i].name.ptr);
        try_flags(l, m, want, flags, what);
        flags[i] = 0;
    }
    for (uint32_t i = 0; i < m->n; i++)
        flags[i] = m->views[i].flags | 1u << 30;
    try_flags(l, m, want, flags, "flag 1 << 30 on every file");
}

/* With files that the patterns of other loaders match. */
static void try_others(loader *l, uint64_t want) {
    static const uint8_t prose[] = "Once upon a time there was a {\"thing\": [1, 2, 3]}.\n";
    static const char *const names[] = {".aaa", "~~~.thing"}; // the first and the last by name
    static model_files more;
    mapped_files m;
    more = l->model; // borrows the bytes
    for (uint32_t i = 0; i < 2 && more.n < LOADER_FILES; i++) {
        model_file f = {
            .bytes = (uint8_t *)(uintptr_t)prose,
            .n = sizeof prose - 1,
        };
        snprintf(f.name, sizeof f.name, "%s", names[i]);
        more.file[more.n] = f;
        more.n++;
    }
    model_sort(&more);
    check_doing(l->c, "open ran with files of other formats beside");
    const bool mapped = mapped_make(&m, &more, MAP_END);
    uint32_t flags[LOADER_FILES] = {0};
    if (mapped && loader_digest(l, &m) != want)
        check_fail(l->c, "with files of other formats beside: found other answers, expected the "
                         "same");
    else if (mapped) /* a second file is where a stride that is not read shows */
        try_flags(l, &m, want, flags, "files of other formats beside, in longer elements");
    mapped_free(&m);
}

static void named(loader *l, mapped_files *m) {
    const uint64_t want = loader_digest(l, m);
    try_names(l, m, want);
    if (!check_over(l->c))
        try_others(l, want);
}

void check_loader_named(check *c) {
    loader_on_model(c, MAP_BEGIN, named);
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
    list->file[list->n] = file;
    list->planes[list->n] = *p;
    list->n++;
}

/* Makes the pages of tensor data unreadable and parses again. */
static void lazy(loader *l, mapped_files *m) {
    static plane_list list;
    uint64_t closed = 0;
    const uint64_t want = loader_digest(l, m);
    list.n = 0;
    loader_each_plane(l, m, list_plane, &list);
    for (uint32_t i = 0; i < list.n; i++) {
        const mn_plane *p = &list.planes[i];
        closed += mapped_close(m, list.file[i], p->ptr, p->bytes);
    }
    if (!closed)
        check_skip(l->c, "no tensor of the model fills a page");
    loader_guess(l, m);
    check_doing(l->c, "open ran, with the pages of tensor data closed: headers are enough");
    if (!check_over(l->c) && loader_digest(l, m) != want)
        check_fail(l->c, "with tensor data closed: found other answers, expected the same");
}

void check_loader_lazy(check *c) {
    loader_on_model(c, MAP_BEGIN, lazy);
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

static void opens_no_file(loader *l, mapped_files *m) {
    const uint64_t want = loader_digest(l, m);
    mn_guess g = {.size = sizeof g};
    if (!forbid_opening())
        check_skip(l->c, "this system cannot forbid a process to open files (seccomp): %s",
                   strerror(errno));
    check_doing(l->c,
                "guess and open ran where opening a file or a socket is forbidden (SIGSYS): a "
                "loader opens none");
    l->plugin.ld->guess(l->plugin.api->self, m->views, m->n, sizeof *m->views, &g);
    if (!check_over(l->c) && loader_digest(l, m) != want)
        check_fail(l->c, "found other answers where no file can be opened, expected the same");
}

void check_loader_files(check *c) {
    loader_on_model(c, MAP_BEGIN, opens_no_file);
}
