/* internal.h -- the registry's parts among themselves. In the order of a plugin's way:
 *   search.c       walks the folders
 *   plugin_file.c  may this file be opened? trust.c: who may write it; note.c, isa.c: what does it
 *                  say of itself?
 *   probe.c        asks all files at once in other processes (probe_main.c, the program
 *                  minerva-probe, of which guest.c and small_graph.c are parts), probe_cache.c
 *                  remembers
 *   journal.c      did processes die in it?
 *   load.c         opens it and checks what it offers           host.c    what plugins may call
 *   devices.c      the list of their devices                    lost.c    devices that are lost
 *   registry.c     life and lists */
#ifndef MN_REGISTRY_INTERNAL_H
#define MN_REGISTRY_INTERNAL_H
#include "registry/registry.h"
#include "base/sealed.h"
#include "base/trust.h"
#include <pthread.h>

/* ---- what plugins may call: host.c ----------------------------------------------------------- */

/* The data behind the services of the host: of a registry, or of a probing process. */
typedef struct {
    const mn_config *cfg;
    mn_pool *pool;
    mn_progress_fn progress; /* NULL = reports are dropped */
    void *progress_arg;
    mn_watch *watch;  /* NULL = calls are not waited for */
    bool journal;     /* crashes are reported and written to the journal */
    bool no_backends; /* MN_RUNTIME_NO_BACKENDS */
    /* called before each step of mn_plugin_load: "running its entry"; NULL = none */
    void (*phase)(const char *doing);
} mn_services;

/* One table of services per plugin: `self` identifies the caller. */
typedef struct mn_plugin_host {
    const mn_host *table; /* in sealed pages */
    mn_sealed *pages;
    const mn_services *services;
    mn_callee callee;
    _Atomic uint64_t log_since_ns; /* a span of time and the lines in it (host.c) */
    _Atomic uint32_t n_logged;
    char id[64];    /* until the plugin has told its id: its file's name */
    mn_text report; /* of the probe */
    mn_ledger memory;
} mn_plugin_host;
/* host_cache.c: what mn_host.query has for MN_CACHE_ID */
extern const mn_cache mn_plugin_cache;
/* false = out of memory */
bool mn_plugin_host_init(mn_plugin_host *host, const mn_services *services, const char *path);

/* ---- the registry ---------------------------------------------------------------------------- */

/* Beside mn_device_record: who has the device open, and when it is tried again. */
typedef struct {
    mn_device *open;
    uint32_t users;      /* of open */
    bool busy;           /* a thread closes it, or tries to open it again, without the lock */
    uint64_t delay_ns;   /* before the next attempt; 0 = not lost of late */
    uint64_t next_ns;    /* when that is, by mn_now_ns */
    uint64_t revived_ns; /* when it came back the last time */
    struct mn_loss *losses;
    uint32_t n_losses;
} mn_device_state;

struct mn_registry {
    mn_services services;
    mn_plugin_record *records;
    size_t n_records, cap_records;
    mn_plugin_folder *folders;
    size_t n_folders, cap_folders;
    bool notes_crashes;   /* holds the journal open */
    pthread_mutex_t lock; /* of what follows */
    bool listed;
    mn_device_record *devices;
    mn_device_state *state; /* [n_devices + MN_MAX_GROUPS] */
    size_t n_devices, cap_devices;
    size_t n_groups; /* device_groups.c: records behind the records of devices */
    uint64_t first_delay_ns, most_delay_ns;
};

/* devices.c: whether one of its devices is a CPU that can be used. */
bool mn_plugin_offers_cpu(const mn_plugin_record *plugin);
/* device_groups.c: device_open of a device or of a group's members. */
mn_status mn_device_call_open(const mn_device_record *rec, mn_device **out, mn_error *why);
/* lost.c: closes what is open and forgets why devices were lost. */
void mn_registry_close_devices(mn_registry *reg);

/* ---- before it is opened: plugin_file.c, note.c, isa.c --------------------------------------- */

typedef struct {
    bool found; /* has a .note.minerva */
    uint32_t abi, abi_oldest, kinds;
    char id[64], isa[64];
    char build_id[65]; /* the linker's, in hexadecimal; "" = none */
} mn_plugin_note;

typedef struct {
    char real[PATH_MAX]; /* the path without links: what is opened */
    uint64_t dev, ino, size, mtime_ns;
    mn_plugin_note note;
} mn_plugin_file;

/* Whether the file may be opened: regular, for this processor, not writable by others. MN_BAD_FILE
 * = no, with the reason. Only reads; dev and ino are set also where it says no, 0 = not known. */
mn_status mn_plugin_file_check(const mn_trust *trust, const char *path, mn_plugin_file *out,
                               mn_error *err);
struct stat;
/* dev, ino, size, mtime */
void mn_plugin_file_identify(mn_plugin_file *out, const struct stat *st);
/* Whether the file at real is still the one that was checked. */
bool mn_plugin_file_same(const mn_plugin_file *file);

/* The notes of an ELF file of this machine's class. MN_BAD_FILE: damaged. */
mn_status mn_plugin_note_read(int fd, mn_plugin_note *out, mn_error *err);
/* One note segment of n bytes and alignment align; adds to *out. Any bytes will do. */
mn_status mn_notes_parse(const uint8_t *bytes, size_t n, uint64_t align, mn_plugin_note *out,
                         mn_error *err);
/* words: instruction sets separated by spaces. MN_BAD_FILE names the first that this CPU lacks, or
 * that is not known here. */
mn_status mn_isa_check(const char *words, mn_error *err);

/* The rule of versions (R9): below 0.9 the same version, from 0.9 on all minors of a major, if no
 * side is older than the oldest version that the other states. mn_abi_oldest: the oldest version of
 * a side that states none. */
bool mn_abi_fits(uint32_t host, uint32_t host_oldest, uint32_t plugin, uint32_t plugin_oldest);
uint32_t mn_abi_oldest(uint32_t abi);

/* ---- opening: load.c ------------------------------------------------------------------------- */

/* A record without a plugin; false = out of memory (mn_plugin_record_clear frees what there is). */
bool mn_plugin_record_init(mn_plugin_record *rec, const mn_services *services, const char *path);
void mn_plugin_record_clear(mn_plugin_record *rec);
/* Sets status and reason; false = out of memory. */
bool mn_plugin_reject(mn_plugin_record *rec, mn_record_status status, const char *fmt, ...)
    MN_PRINTF(3, 4);
/* A copy in place of *at, made plain and cut at 255 bytes; false = out of memory. */
bool mn_plugin_text(char **at, mn_str text);
/* Copies the note's facts into the record, and rejects the record if they do not fit this host or
 * CPU; false = out of memory. */
bool mn_plugin_note_judge(mn_plugin_record *rec, const mn_plugin_note *note);
/* Opens the file and fills rec: id, abi, kind, tables; or status and reason. An error is out of
 * memory. */
mn_status mn_plugin_load(mn_plugin_record *rec, const mn_plugin_file *file, mn_error *err);
/* Shutdown, and dlclose if the plugin allows it. The record keeps path, id and reason. */
void mn_plugin_unload(mn_plugin_record *rec);

/* ---- probing: probe.c, probe_report.c, probe_cache.c ----------------------------------------- */

/* A report is text, one line per fact, "key\tvalue\n", written as the probing process goes, so that
 * what came before a crash is known. The line "end" makes it complete. Of lines with one key the
 * last counts. Keys:
 *   phase      what is done now: "listing devices"
 *   id, kind, abi, vendor, version, build_id, entry_ms
 *   fault      a device that is not to be used: "INDEX\tUID\tREASON"; every line counts
 *   changes    what the plugin changes of the process while it is loaded, if that can be undone
 * prints     the beginning of its output on standard output
 *   leaves     threads that run on after its shutdown
 *   wrote      1: it died of a write into memory that it was given as const
 * again      1: the failure may be gone next time; the report is not kept
 *   memory     1: memory ran out while it was probed, which says nothing of the plugin
 *   status     of the record, and reason
 *   ms         what the host had to wait for
 * watch      until when (mn_now_ns in ms) the process goes on after its first verdict; 0 = over */
#define MN_REPORT_END "end\n"
/* where minerva-probe writes it; what the plugin's process writes goes through another pipe
 * first */
#define MN_REPORT_FD 3
#define MN_REPORT_MAX (256u << 10)
/* behind a reason from the cache */
#define MN_PROBE_REMEMBERED " (remembered; --no-probe-cache asks again)"
void mn_report_put(mn_text *report, const char *key, const char *fmt, ...)
    MN_PRINTF(3, 4); /* made plain (mn_plain), but for tabs; at most 900 bytes */
/* The lines status and reason. */
void mn_report_verdict(mn_text *report, mn_record_status status, const char *fmt, ...)
    MN_PRINTF(3, 4);
mn_record_status mn_report_status(const mn_text *report);
bool mn_report_complete(const mn_text *report);
/* Value of the last line with this key, or empty. */
mn_str mn_report_get(const mn_text *report, const char *key);
uint32_t mn_report_number(const mn_text *report, const char *key);
/* The fault of this device, known by uid where both sides have one, else by index. */
mn_str mn_report_fault(const mn_text *report, uint32_t index, const char *uid);

/* A file that passed the checks, on its way to be loaded. */
typedef struct {
    size_t record; /* in the registry */
    mn_plugin_file file;
    mn_text report; /* always complete after mn_probe_all, or empty: not probed */
    bool cached;
    uint32_t deaths; /* for which it is set aside; 0 = it is not */
} mn_probe_candidate;

/* Probes all candidates, side by side, by the program at `program`, which is started only if
 * `trust` accepts it; returns after probe_timeout and a little at most. The report of a candidate
 * says what went wrong with it. The processes, which are no children of this one, go on for some
 * seconds: their findings are in the cache at the next start. An error is out of memory. */
mn_status mn_probe_all(const mn_config *cfg, const mn_trust *trust, const char *program,
                       mn_probe_candidate *list, size_t n, mn_error *err);
/* From report to record; false = out of memory. */
bool mn_probe_judge(mn_plugin_record *rec, const mn_probe_candidate *candidate);

/* The cache of reports: one file per plugin, whose first lines are the key: all that an answer
 * depends on. The host reads it; minerva-probe, which is given the key, writes it. Whatever is
 * wrong with the cache means that it has no answer. */
typedef struct {
    mn_text host; /* the part of the key that all plugins share */
    bool forget;  /* probe_cache = false: nothing is found or kept, and what was kept is deleted */
} mn_probe_cache;
/* false = out of memory */
bool mn_probe_cache_open(mn_probe_cache *cache, const mn_config *cfg, const char *program);
void mn_probe_cache_close(mn_probe_cache *cache);
/* *report: complete, or empty where there is no answer. A first verdict whose watch never ended
 * (the machine was switched off) is no answer. */
bool mn_probe_cache_find(const mn_probe_cache *cache, const mn_plugin_file *file, mn_text *report);
/* report: complete. replace: only if there is an answer already, which may have been deleted. */
void mn_probe_cache_keep(const mn_probe_cache *cache, const mn_plugin_file *file,
                         const mn_text *report, bool replace);

/* ---- deaths of earlier processes: journal.c -------------------------------------------------- */

typedef struct {
    uint32_t deaths;
    bool wrote;   /* into memory that it was given as const */
    bool told;    /* the user knows of the last one */
    char how[64]; /* "SIGSEGV in execute" */
} mn_past;
/* What stands for the file, as long as it stays as it is, in 16 digits. */
void mn_plugin_file_key(const mn_plugin_file *file, char key[17]);
/* Appends the whole journal. A damaged one is removed with a warning, and none is an empty one. */
void mn_journal_read(mn_text *journal);
void mn_journal_past(const mn_text *journal, const char *key, mn_past *out);
/* Opens the process's descriptor of the journal if it can, and closes it after as many calls. */
void mn_journal_open(void);
void mn_journal_close(void);
/* Names a plugin in which a process died, and sets it aside, as minerva.h says of
 * mn_runtime_create; false = out of memory. */
bool mn_plugin_past_judge(const mn_services *services, const mn_text *journal,
                          mn_plugin_record *rec, mn_probe_candidate *c);

/* ---- search.c -------------------------------------------------------------------------------- */
mn_status mn_search(mn_registry *reg, mn_error *err);

#endif
