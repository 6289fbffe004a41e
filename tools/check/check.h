/* check.h -- minerva plugins check: the rules that a plugin must keep, each tried on the plugin
 * itself.
 *
 * rules.def lists the rules; check_GROUP_NAME is the function of a rule. The runner (run.c) calls
 * the functions of a group one after the other in a forked child: what kills or stops the child is
 * a failure of the rule that was being tried, and a fresh child goes on with the next one. A rule
 * that fails also ends its child: every rule begins in a process that no failed rule has touched.
 * Only one thread runs a rule's function; what it starts, it joins. */
#ifndef MINERVA_CHECK_H
#define MINERVA_CHECK_H
#include "host.h"
#include <minerva/plugin.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CHECK_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CHECK_PRINTF(fmt, args)
#endif

#define CHECK_ANY (MN_KIND_BACKEND | MN_KIND_LOADER)

typedef struct check check;
typedef void (*check_fn)(check *c);
typedef struct {
    const char *id;    /* "static.exports" */
    const char *group; /* "static" */
    const char *name;  /* "exports" */
    const char *holds; /* what must hold, one sentence */
    check_fn fn;
} check_rule;
extern const check_rule check_rules[];
extern const uint32_t check_n_rules;

typedef struct {
    const char *name;
    uint32_t kinds;   /* MN_KIND_* bits: which plugins it concerns */
    uint32_t seconds; /* that one rule of it may take; one call: see check_run */
    /* 1: all later groups stand on it, and are skipped when a rule of it is broken */
    uint32_t first;
} check_group;
extern const check_group check_groups[];
extern const uint32_t check_n_groups;

#define CHECK_WAITING 0u
#define CHECK_RUNNING 1u
#define CHECK_OK 2u
#define CHECK_FAILED 3u
#define CHECK_SKIPPED 4u
typedef struct {
    uint32_t status;
    /* for the parent: the function of the plugin that was called last, calls that have not
     * returned, and a number that moves whenever a call begins or ends (watch.h) */
    _Atomic(const char *) call;
    atomic_uint in_call;
    atomic_ullong n_calls;
    char doing[200];    /* "it opened the device": for "crashed with SIGSEGV while ..." */
    char message[1200]; /* what was found, or why it was skipped */
} check_result;

/* What the children found out, for the rules after them. */
typedef struct {
    uint32_t kinds; /* MN_KIND_*; of the note, then of the opened plugin */
    uint32_t n_devices;
    char id[64];
    char no_device[512]; /* why there is none, as a sentence; empty = there is one */
} check_facts;

struct check {
    const char *path;
    const void *bytes; /* the file, mapped read-only */
    uint64_t n_bytes;
    check_facts *facts;
    check_result *result; /* of the rule that runs */
    /* path of the plugin that numbers are held against; NULL = none is installed */
    const char *reference;
    const char *model; /* --model: a file or folder of the loader's format; NULL = none */
    uint32_t patience; /* --limit: seconds that the check waits for calls that hang, in all */
};

/* ---- in a rule's function -------------------------------------------------------------------- */
/* Says what comes next, as the end of "crashed while ...": check_doing(c, "device_open was
 * called"). */
void check_doing(check *c, const char *fmt, ...) CHECK_PRINTF(2, 3);
/* The rule is broken: what was found and what was expected. The first message stays; return soon
 * afterwards. */
void check_fail(check *c, const char *fmt, ...) CHECK_PRINTF(2, 3);
/* The rule cannot be tried here, and why. A failure stays a failure. */
void check_skip(check *c, const char *fmt, ...) CHECK_PRINTF(2, 3);
/* What is worth telling of a rule that holds. */
void check_found(check *c, const char *fmt, ...) CHECK_PRINTF(2, 3);
int check_over(const check *c); /* 1 after check_fail or check_skip */
#define CHECK(c, cond, ...)                                                                        \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            check_fail(c, __VA_ARGS__);                                                            \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* ---- open.c: the plugin in this process ------------------------------------------------------ */
typedef struct {
    const mn_plugin *api;
    const mn_backend *be; /* NULL: not a backend; watched (watch.h) */
    const mn_loader *ld;  /* NULL: not a loader; likewise */
    const void *be_table; /* what query gave for be */
    mn_device *dev;       /* device 0, and a queue on it: after check_open_device */
    mn_queue *queue;
    check_host *host;
    mn_error err;
} check_plugin;
mn_error check_error(void); /* an empty one, to hand over */
/* The entry of the file, which is opened when first asked for; NULL: the rule has failed. */
mn_entry_fn check_entry(check *c);
/* A self of the plugin on that host (check_host_init first). 1, or 0 and the rule is over. */
int check_open(check *c, check_plugin *p, check_host *host);
/* The same with device 0 opened; skips the rule where the machine has no device. */
int check_open_device(check *c, check_plugin *p, check_host *host);
/* Frees what check_open* made; then nothing of the host's may be left. A plugin that failed to open
 * is fine. */
void check_close(check *c, check_plugin *p);

/* ---- run.c ----------------------------------------------------------------------------------- */
typedef struct {
    check_facts facts;
    uint64_t hung_ns;      /* what calls that hang have cost */
    check_result result[]; /* [check_n_rules]; CHECK_WAITING = does not concern this plugin */
} check_report;
/* Tries all rules whose id begins with `only` (NULL or "" = all) on c's plugin: path, bytes,
 * reference, model and patience are set. A call that does not return within a third of patience
 * fails its rule; when patience is used up, the rules that are left are skipped. NULL: out of memory or processes; freed by check_report_free. */
check_report *check_run(const check *plugin, const char *only);
/* 1: there is a rule whose id begins so. */
int check_selects(const char *only);
void check_report_free(check_report *r);

/* "docs/plugin-howto.md#rule-static-exports" */
void check_page(const check_rule *rule, char *dst, size_t n);

/* The subcommand: argv[0] is "check". */
int cmd_plugins_check(int argc, char **argv);
#endif
