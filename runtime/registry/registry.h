/* registry.h -- finds plugins, checks them, keeps their tables, and opens their devices.
 *
 * Folders, in this order; the first file of a plugin id wins: MINERVA_PLUGIN_PATH and `plugin_path`
 * of minerva.ini, the user's $XDG_DATA_HOME/minerva/plugins, then <folder of
 * libminerva>/minerva/plugins, or the plugins of the build tree if the library is in one. With
 * MINERVA_PLUGIN_PATH_ONLY the folders of that variable alone. Never the current directory: a
 * relative path is refused. A plugin that cannot be used becomes a record with the reason, never an
 * error of the registry. A file is inspected first (write access, ELF header and notes), then
 * opened in another process (minerva-probe) with a time limit, then in this process. */
#ifndef MN_REGISTRY_H
#define MN_REGISTRY_H
#include "base/base.h"
#include "base/call.h"
#include "base/config.h"
#include "base/ledger.h"
#include "base/vendor_types.h"

typedef struct mn_registry mn_registry;

/* The outcome for a file. A device that fails its self-test in the probe is an unusable device of a
 * plugin that is MN_RECORD_OK. */
typedef enum {
    MN_RECORD_PENDING, /* checks are still to come; never seen outside the registry */
    MN_RECORD_OK,      /* its tables may be used */
    /* not opened: unsafe, no plugin for this machine, or it needs instructions that this CPU
     * lacks */
    MN_RECORD_REFUSED,
    /* for another ABI: by its note (then it is not opened), or by its entry */
    MN_RECORD_INCOMPATIBLE,
    /* could not be opened, gave a reason not to run, or broke the contract */
    MN_RECORD_FAILED,
    /* the probing process ended before its report was complete: "crashed: SIGSEGV while listing
     * devices" */
    MN_RECORD_CRASHED,
    /* the probing process was not done in time: "hung for 10 s while running its constructors" */
    MN_RECORD_HUNG,
    MN_RECORD_SHADOWED, /* good, but another file with the same id comes first */
    /* not opened: processes died in its calls, as the crash journal says */
    MN_RECORD_SET_ASIDE
} mn_record_status;

/* "ok", "refused", ...: the words of minerva.h, of probe reports and of `minerva plugins`; "" of
 * MN_RECORD_PENDING. */
const char *mn_record_status_name(mn_record_status status);
/* MN_RECORD_FAILED for any other word. */
mn_record_status mn_record_status_of(mn_str name);

#define MN_MAX_GROUP_ID 4096 /* bytes of an id of mn.group/1 */

typedef struct {
    char *path;
    /* empty until the note or the plugin told it; outlives the plugin */
    mn_str id;
    const char *kind; /* "backend", "loader", "backend+loader", "" */
    uint32_t abi;     /* MN_ABI(major, minor) it was built for; 0 = unknown */
    mn_record_status status;
    char *reason;                      /* a sentence; "" when ok */
    bool no_memory;                    /* failed, as memory ran out while it was probed or opened */
    char *vendor, *version, *build_id; /* copies; "" when unknown */
    bool has_note;                     /* .note.minerva, which says: */
    uint32_t note_abi, note_abi_oldest;
    struct {
        bool done, ok, cached; /* done: asked, now or (cached) at an earlier start */
        bool intrudes;         /* it changes the process, or prints, while it is loaded */
        bool pending;          /* it is still watched: whether it may be unloaded is not known */
        uint32_t ms, entry_ms; /* the whole probe; its entry alone */
        /* "ok in 12 ms", "remembered: ok in 12 ms; changes ...: the umask is 000"; "" = not done */
        char text[900];
        const char *remarks; /* what follows "; " there; "" = nothing, NULL = not done */
    } probe;
    const mn_plugin *plugin;   /* these, handle included: NULL unless ok */
    const mn_backend *backend; /* NULL also = has none */
    const mn_loader *loader;
    const mn_profile *profile; /* beside the backend; NULL also = has none */
    const mn_group *group;     /* the same; id_bytes at most MN_MAX_GROUP_ID */
    bool shares_scratch;       /* contexts of one queue do (queue_scratch.h) */
    mn_patterns patterns;      /* the loader's */
    mn_vendor_types types;     /* of its own, loader's and backend's alike; n 0 = none */
    void *handle;
    struct mn_plugin_host *host; /* the registry's */
    const mn_callee *callee;     /* for MN_WATCHED around calls of its functions */
    mn_ledger *memory;           /* that it has of the host */
    uint64_t file_dev, file_ino;
} mn_plugin_record;

/* A folder of the search path. */
typedef struct {
    char *path;
    const char *origin; /* "plugin_path", "plugin_path_only", "user", "installed", "build tree" */
    const char *reason; /* why the folder was not searched; "" = searched */
} mn_plugin_folder;

#define MN_MAX_MEMBERS 16u /* of a group */
#define MN_MAX_GROUPS 32u  /* of one process */
typedef struct {
    /* "cuda:0"; "cpu_simd" for the one device of a CPU plugin; "cuda:0+cuda:1" of a group */
    char name[96];
    const mn_plugin_record *plugin;
    uint32_t index;                  /* of a group: of its first member */
    uint32_t n_members;              /* 0 = no group */
    uint32_t member[MN_MAX_MEMBERS]; /* indices, in the order of ranks */
    mn_device_info info;             /* zero if the plugin did not state it */
    /* may become false at any time (quarantine), and true again (mn_registry_retry) */
    _Atomic bool usable;
    _Atomic bool lost; /* in quarantine: not usable now, but tried again */
    /* why it is not usable, set before usable falls; "" when usable. What it points to stays as it
     * is as long as the registry lives */
    const char *_Atomic reason;
    char text[400]; /* what reason points to from the start; not for readers */
} mn_device_record;

/* Whether contexts of one queue of the device have one scratch, of the largest of them. */
static inline bool mn_device_shares_scratch(const mn_device_record *d) {
    return d->plugin->shares_scratch && !d->n_members;
}

/* How calls into plugins are watched, and whether crashes are written to the journal. */
typedef struct {
    mn_watch_params watch;
    bool journal;     /* opens the crash journal for mn_journal_note */
    bool no_backends; /* only files whose note says "loader" are opened */
} mn_containment;
/* Finds and loads all plugins. cfg and pool outlive the registry; how NULL: nothing is watched. An
 * error is out of memory, nothing else. */
mn_status mn_registry_create(const mn_config *cfg, mn_pool *pool, const mn_containment *how,
                             mn_registry **out, mn_error *err);
/* Closes the devices and shuts the plugins down. The caller has freed all objects of both
 * before. */
void mn_registry_free(mn_registry *reg);

/* mn_plugin_crashed_at of minerva.h. wrote: into memory that it was given as const. 1: noted. */
int mn_journal_note(int signal_number, bool wrote);

/* All that follows lives as long as the registry; any thread. */
/* every file tried, in search order */
const mn_plugin_record *mn_registry_plugins(const mn_registry *reg, size_t *n);
const mn_plugin_folder *mn_registry_folders(const mn_registry *reg, size_t *n);
/* the one that is ok; NULL = none */
const mn_plugin_record *mn_registry_plugin(const mn_registry *reg, mn_str id);
/* To be asked before the message "there is no such plugin": a plugin that is or may be of this kind
 * ("backend", "loader") and could not be opened for lack of memory; NULL = none. */
const mn_plugin_record *mn_registry_no_memory(const mn_registry *reg, const char *kind);

/* Devices of all backends, in the order of the plugins. The plugins are asked at the first call,
 * which may start drivers; a plugin that cannot list its devices gives one unusable record. NULL =
 * out of memory (n = 0). */
const mn_device_record *mn_registry_devices(mn_registry *reg, size_t *n);
/* By the name that users type: "cuda:1"; ":0" may be left out or added. NULL = none of that
 * name. */
const mn_device_record *mn_registry_device(mn_registry *reg, mn_str name);
/* ---- groups of devices: device_groups.c ------------------------------------------------------ */
/* Whether the name names a group: "cuda:0+cuda:1", "cuda:all". */
bool mn_is_group_name(mn_str name);
#define MN_GROUP_WHY 400
/* The record of the group with such a name. It is made at the first call, lives as long as the
 * registry, and is used like the record of a device. mn_registry_devices does not list it,
 * mn_registry_device finds it. NULL: there can be no such group; the reason is returned. */
const mn_device_record *mn_registry_group(mn_registry *reg, mn_str name, char why[MN_GROUP_WHY]);
/* The record "cuda:ranks" of a plugin whose device 0 is a group with members in other processes;
 * the devices are listed already. NULL: too many groups. */
const mn_device_record *mn_registry_add_ranks(mn_registry *reg, const mn_plugin_record *plugin,
                                              const mn_device_info *info);
/* Whether d is a member. */
bool mn_group_has(const mn_device_record *group, const mn_device_record *d);
/* Whether they are a group and one of its members, or groups with a member in common. */
bool mn_devices_overlap(const mn_device_record *a, const mn_device_record *b);

/* ---- opening --------------------------------------------------------------------------------- */
/* Opened at the first call and kept: the caller does not close it, but gives it back by
 * mn_registry_device_release when what it made of it is freed. The error names the device. */
mn_status mn_registry_device_open(mn_registry *reg, const mn_device_record *rec, mn_device **out,
                                  mn_error *err);

/* The device if it is open, else NULL. To be released as well. */
mn_device *mn_registry_device_opened(mn_registry *reg, const mn_device_record *rec);
/* A device stays open until mn_registry_free, a lost one until its last user has released it. NULL
 * is fine. */
void mn_registry_device_release(mn_registry *reg, const mn_device_record *rec, mn_device *device);

/* ---- lost devices ---------------------------------------------------------------------------- A
 * device that said MN_CLASS_LOST is quarantined: it is in no choice, until mn_registry_retry has
 * opened it again. Between two attempts lies a delay, 1 s at first, which doubles with every
 * attempt that fails and with every loss, up to 5 min; a device that worked for 5 min begins with 1
 * s again. */

/* Unusable from now on, with the reason; the first reason of a loss stays. Work that still runs on
 * it is not touched: its users free their objects and release the device. Any thread, also while
 * others read the record. */
void mn_registry_quarantine(mn_registry *reg, const mn_device_record *rec, const char *why);
/* If the device is lost, has no users and its delay is over: device_open and its self-test. Then
 * it is usable again, or the next delay begins. One thread tries; others return at once. */
void mn_registry_retry(mn_registry *reg, const mn_device_record *rec);
/* Why the device cannot be used; for a lost device also when it is tried again. */
void mn_registry_say_lost(mn_registry *reg, const mn_device_record *rec, char *out, size_t cap);
/* Seconds until then, rounded up; 0 = now, or it is not lost. */
int32_t mn_registry_retry_s(mn_registry *reg, const mn_device_record *rec);
/* For tests: the first and the longest delay. */
void mn_registry_set_delays(mn_registry *reg, uint64_t first_ns, uint64_t most_ns);

/* Threads of the pool that the device's plugin runs on; at least 1. */
uint32_t mn_device_workers(const mn_device_record *rec);

/* Passes reports of mn_host.progress to fn; a non-zero result stops the plugin. NULL = reports are
 * dropped. fn is called from any thread; set it while no plugin works. */
typedef int32_t (*mn_progress_fn)(void *arg, float done, mn_str what);
void mn_registry_on_progress(mn_registry *reg, mn_progress_fn fn, void *arg);
#endif
