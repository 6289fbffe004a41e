/* check.h -- minerva-check, the program of minerva plugins check: every rule that a plugin must
 * keep, tried on the plugin itself.
 *
 * rules.def lists the rules; check_GROUP_NAME is the function of a rule. The runner (check_run.c)
 * calls the functions of a group one after the other in a forked child process. A crash or a
 * hang of the child is a failure of the rule that was running, and a new child continues with
 * the next rule. A rule that fails also ends its child: every rule starts in a process that no
 * failed rule has changed. A rule's function runs on one thread, and joins the threads that it
 * starts. */
#ifndef MINERVA_CHECK_H
#define MINERVA_CHECK_H
#include "ground.h"
#include "host.h"
#include "usual.h"
#include <minerva/plugin.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

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
    uint32_t kinds;   /* MN_KIND_* bits: the kinds of plugin that its rules apply to */
    uint32_t seconds; /* time limit of one rule; for the limit of one call see check_run */
    uint32_t
        first; /* 1: all later groups depend on it; they are skipped if one of its rules fails */
} check_group;
extern const check_group check_groups[];
extern const uint32_t check_n_groups;

#define CHECK_WAITING 0u
#define CHECK_RUNNING 1u
#define CHECK_PASSED 2u
#define CHECK_FAILED 3u
#define CHECK_SKIPPED 4u
typedef struct {
    uint32_t status;
    /* written by the child, read by the parent: the function of the plugin that was called last,
     * the number of calls that have not returned, and a counter that changes whenever a call
     * begins or returns (watch.h) */
    _Atomic(const char *) call;
    atomic_uint in_call;
    atomic_ullong n_calls;
    char doing[200];    /* "it opened the device": for "crashed with SIGSEGV while ..." */
    char message[1200]; /* what was found, or why the rule was skipped */
} check_result;

/* What rules found out and later rules use. */
typedef struct {
    uint32_t kinds; /* MN_KIND_*: the note's, then those that query has tables for */
    uint32_t n_devices;
    char id[64];
    char no_device[512]; /* why there is none, as a sentence; empty = there is one */
} check_facts;

struct check {
    const char *path;
    const void *bytes; /* the file, mapped read-only */
    uint64_t n_bytes;
    check_facts *facts;
    check_result *result;  /* of the rule that runs */
    const char *reference; /* path of the plugin `reference`; NULL = not installed */
    const char *model;     /* --model: a file or folder of the loader's format; NULL = none */
    uint32_t patience;     /* --limit: seconds that all hanging calls together may take */
};

/* ---- in a rule's function -------------------------------------------------------------------- */
/* States what is done next, as the end of "crashed while ...": check_doing(c, "device_open
 * ran"). */
void check_doing(check *c, const char *fmt, ...) MN_PRINTF(2, 3);
/* The rule fails: what was found and what was expected. The first message is kept. Return soon
 * afterwards. */
void check_fail(check *c, const char *fmt, ...) MN_PRINTF(2, 3);
/* The rule cannot be tried here, and why. No effect after check_fail. */
void check_skip(check *c, const char *fmt, ...) MN_PRINTF(2, 3);
/* A remark for the report, if the rule passes. */
void check_found(check *c, const char *fmt, ...) MN_PRINTF(2, 3);
int check_over(const check *c); /* 1 after check_fail or check_skip */
/* Fails the rule unless st is MN_OK: "WHAT: found status 0x... (message), expected MN_OK". fmt:
 * WHAT; err may be NULL. Returns 1 if st is not MN_OK. */
int check_status(check *c, mn_status st, const mn_error *err, const char *fmt, ...) MN_PRINTF(4, 5);
#define CHECK(c, cond, ...)                                                                        \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            check_fail(c, __VA_ARGS__);                                                            \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define CHECK_OK(c, st, err, ...)                                                                  \
    do {                                                                                           \
        if (check_status(c, st, err, __VA_ARGS__))                                                 \
            return;                                                                                \
    } while (0)

/* ---- open.c: the plugin in this process ------------------------------------------------------ */
typedef struct {
    const mn_plugin *api;
    const mn_backend *be; /* NULL: not a backend; calls are watched (watch.h) */
    const mn_loader *ld;  /* NULL: not a loader; likewise */
    const void *be_table; /* what query returned for be */
    mn_device *dev;       /* device 0, and a queue on it: after check_open_device */
    mn_queue *queue;
    check_host *host;
    mn_error err;
    mn_error
        no; /* case_on.no of what is asked of dev; an error in it fails the rule (check_close) */
} check_plugin;
/* ": " and the plugin's own words for its last no; "" = it has none. Of this thread, until the next
 * call. */
const char *check_no_text(const check_plugin *p);
mn_error check_error(void); /* an empty one, ready to be filled */
/* The entry function of the file, which the first call opens. NULL: the rule has failed. */
mn_entry_fn check_entry(check *c);
/* From now on check_open passes what fn makes of the host's table; NULL: the table. */
void check_give_host(const mn_host *(*fn)(const mn_host *));
/* Enters the plugin with that host (check_host_init first). 1, or 0 and the rule is over. */
int check_open(check *c, check_plugin *p, check_host *host);
/* The same with device 0 opened; skips the rule where the machine has no device. */
int check_open_device(check *c, check_plugin *p, check_host *host);
/* An optional table of the entered plugin; NULL: it has none. */
const void *check_table(const check_plugin *p, const char *interface_id);
/* Frees what check_open* made, and fails the rule if memory of the host is left. No effect on a
 * plugin that failed to open. */
void check_close(check *c, check_plugin *p);

/* static.c: MN_KIND_* of the file's note; 0 = it has no note that can be read. */
uint32_t check_note_kinds(const check *c);
/* The versions that the note states; this one's, if there is no note that can be read. */
uint32_t check_note_abi(const check *c, uint32_t *oldest);
/* Whether the linker put a build id into the file. */
int check_has_build_id(const check *c);

/* ---- check_run.c ----------------------------------------------------------------------------- */
typedef struct {
    check_facts facts;
    uint64_t hung_ns;      /* time that hanging calls have taken */
    check_result result[]; /* [check_n_rules]; CHECK_WAITING = does not apply to this plugin */
} check_report;
/* Tries all rules whose id begins with `only` (NULL or "" = all) on the plugin of c, of which
 * path, bytes, reference, model and patience are set. A call that does not return within a third
 * of patience fails its rule; when patience is used up, the remaining rules are skipped. NULL:
 * out of memory or processes. Freed by check_report_free. */
check_report *check_run(const check *plugin, const char *only);
int check_selects(const char *only); /* 1: the id of a rule begins with it */
void check_report_free(check_report *r);

const char *check_class_name(uint32_t precision); /* "exact"; numeric_sweeps.c */

/* "docs/plugin-howto.md#rule-static-exports" */
void check_page(const check_rule *rule, char *dst, size_t n);
#endif
