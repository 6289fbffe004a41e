/* search.c -- walks the plugin folders, and takes what is found there through its checks into the
 * registry. */
#include "registry/guest.h"
#include "registry/internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define BUILT_PROBE "runtime/registry/minerva-probe"

/* One search: what passed the checks waits here, to be probed all at once. */
typedef struct {
    mn_registry *reg;
    mn_trust trust;
    mn_probe_candidate *list;
    size_t n, cap;
} search_state;

/* ---- files ----------------------------------------------------------------------------------- */

static mn_plugin_record *add_record(mn_registry *reg, const char *path) {
    void *ptr = reg->records;
    if (!mn_grow(&ptr, &reg->cap_records, reg->n_records + 1, sizeof *reg->records))
        return NULL;
    reg->records = ptr;
    mn_plugin_record *rec = &reg->records[reg->n_records++]; /* freed with the registry */
    return mn_plugin_record_init(rec, &reg->services, path) ? rec : NULL;
}

/* The same file by another path says nothing new. */
static bool seen_before(const mn_registry *reg, const mn_plugin_record *rec) {
    for (const mn_plugin_record *r = reg->records; r < rec; r++)
        if (rec->file_ino && r->file_ino == rec->file_ino && r->file_dev == rec->file_dev)
            return true;
    return false;
}

static mn_probe_candidate *add_candidate(search_state *s) {
    void *ptr = s->list;
    if (!mn_grow(&ptr, &s->cap, s->n + 1, sizeof *s->list))
        return NULL;
    s->list = ptr;
    s->list[s->n] = (mn_probe_candidate){.record = s->reg->n_records - 1};
    return &s->list[s->n++];
}

/* Rejects what is not known to be a loader alone; false = out of memory. */
static bool leave_backends(const mn_registry *reg, mn_plugin_record *rec,
                           const mn_plugin_note *note) {
    const bool is_loader = note->found && note->kinds == MN_KIND_LOADER;
    if (!reg->services.no_backends || rec->status != MN_RECORD_PENDING || is_loader)
        return true;
    return mn_plugin_reject(rec, MN_RECORD_REFUSED,
                            "the application asked for loaders only, which this file is not by "
                            "its note");
}

/* Records the file, and makes it a candidate if nothing that can be seen from outside speaks
 * against it. */
static mn_status try_file(search_state *s, const char *path, mn_error *err) {
    mn_registry *reg = s->reg;
    mn_error why = MN_ERROR_INIT;
    mn_plugin_record *rec = add_record(reg, path);
    mn_probe_candidate *c = rec ? add_candidate(s) : NULL;
    if (!c)
        return mn_fail_memory(err, sizeof *rec);
    mn_status status = mn_plugin_file_check(&s->trust, path, &c->file, &why);
    rec->file_dev = c->file.dev;
    rec->file_ino = c->file.ino;
    if (status == MN_OUT_OF_MEMORY)
        return mn_fail_memory(err, sizeof *rec);
    if (seen_before(reg, rec)) {
        mn_plugin_record_clear(rec);
        reg->n_records--;
        s->n--;
        return MN_OK;
    }
    bool done = status == MN_OK ? mn_plugin_note_judge(rec, &c->file.note)
                                : mn_plugin_reject(rec, MN_RECORD_REFUSED, "%s", why.msg);
    done = done && leave_backends(reg, rec, &c->file.note);
    if (rec->status != MN_RECORD_PENDING)
        s->n--;
    return done ? MN_OK : mn_fail_memory(err, 0);
}

static mn_status shadow(mn_registry *reg, mn_plugin_record *rec, mn_error *err) {
    const mn_plugin_record *first = mn_registry_plugin(reg, rec->id);
    if (rec->status != MN_RECORD_OK || first == rec)
        return MN_OK;
    mn_plugin_unload(rec);
    return mn_plugin_reject(rec, MN_RECORD_SHADOWED, "%s has the same id and comes first",
                            first->path)
               ? MN_OK
               : mn_fail_memory(err, 0);
}

/* What a plugin is known to change or to print while it is loaded is set back, with a warning. */
static mn_status load_guest(mn_plugin_record *rec, const mn_plugin_file *file, mn_error *err) {
    mn_guest_visit visit;
    if (!rec->probe.intrudes)
        return mn_plugin_load(rec, file, err);
    mn_guest_begin(&visit);
    const mn_status st = mn_plugin_load(rec, file, err);
    mn_guest_end(&visit);
    mn_log(MN_LOG_WARN, "plugin %s %s; what it does so while it is loaded is set back", rec->path,
           rec->probe.remarks);
    return st;
}

static mn_plugin_record *record_of(const search_state *s, const mn_probe_candidate *c) {
    return &s->reg->records[c->record];
}

static mn_status plugin_search_load(search_state *s, mn_probe_candidate *c, mn_error *err) {
    mn_plugin_record *rec = record_of(s, c);
    rec->host->report = c->report; /* the device list asks it */
    c->report = (mn_text){0};
    const mn_status st = load_guest(rec, &c->file, err);
    return st ? st : shadow(s->reg, rec, err);
}

/* In the order of the search: the first good file of an id wins. */
static mn_status load_candidates(search_state *s, const mn_text *journal, mn_error *err) {
    const mn_services *services = &s->reg->services;
    mn_status st = MN_OK;
    for (size_t i = 0; i < s->n && !st; i++) {
        mn_probe_candidate *c = &s->list[i];
        mn_plugin_record *rec = record_of(s, c);
        bool judged = mn_probe_judge(rec, c);
        if (judged && rec->status == MN_RECORD_PENDING)
            judged = mn_plugin_past_judge(services, journal, rec, c);
        if (!judged)
            return mn_fail_memory(err, 0);
        if (rec->status == MN_RECORD_PENDING)
            st = plugin_search_load(s, c, err);
    }
    return st;
}

static bool has_cpu(const mn_registry *reg) {
    for (size_t i = 0; i < reg->n_records; i++)
        if (mn_plugin_offers_cpu(&reg->records[i]))
            return true;
    return false;
}

/* Of those that are set aside, the one in which the fewest processes died; NULL = none. */
static mn_probe_candidate *least_deadly(const search_state *s) {
    mn_probe_candidate *best = NULL;
    for (size_t i = 0; i < s->n; i++) {
        mn_probe_candidate *c = &s->list[i];
        if (c->deaths && (!best || c->deaths < best->deaths))
            best = c;
    }
    return best;
}

/* Opens what was set aside, and leaves it so only where it brings a CPU. */
static mn_status bring_back(search_state *s, mn_probe_candidate *c, mn_error *err) {
    mn_plugin_record *rec = record_of(s, c);
    c->deaths = 0;
    rec->status = MN_RECORD_PENDING;
    const mn_status st = plugin_search_load(s, c, err);
    if (st || rec->status != MN_RECORD_OK)
        return st;
    if (mn_plugin_offers_cpu(rec)) {
        rec->reason[0] = 0;
        return MN_OK;
    }
    mn_plugin_unload(rec);
    rec->status = MN_RECORD_SET_ASIDE;
    return MN_OK;
}

/* The last CPU of a machine is used whatever its past. */
static mn_status keep_a_cpu(search_state *s, mn_error *err) {
    mn_probe_candidate *c = least_deadly(s);
    mn_status st = MN_OK;
    while (c && !st && !has_cpu(s->reg)) {
        st = bring_back(s, c, err);
        c = least_deadly(s);
    }
    return st;
}

/* ---- folders --------------------------------------------------------------------------------- */

static mn_status plugin_search_add_folder(mn_registry *reg, const char *path, size_t n,
                                          const char *origin, const char *reason, mn_error *err) {
    void *ptr = reg->folders;
    if (!mn_grow(&ptr, &reg->cap_folders, reg->n_folders + 1, sizeof *reg->folders))
        return mn_fail_memory(err, sizeof *reg->folders);
    reg->folders = ptr;
    char *copy = mn_strndup(path, n);
    if (!copy)
        return mn_fail_memory(err, n);
    reg->folders[reg->n_folders++] = (mn_plugin_folder){copy, origin, reason};
    return MN_OK;
}

static int plugin_search_by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names in the folder that end so, sorted: the order in a folder means nothing. NULL out = out of
 * memory. */
static mn_status list_names(DIR *dir, const char *ending, char ***out, size_t *n, mn_error *err) {
    size_t cap = 0;
    void *ptr = NULL;
    *out = NULL, *n = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || !mn_str_ends(mn_str_of(entry->d_name), ending))
            continue;
        if (!mn_grow(&ptr, &cap, *n + 1, sizeof **out))
            return mn_fail_memory(err, cap * sizeof **out);
        *out = ptr;
        char *name = mn_strndup(entry->d_name, strlen(entry->d_name));
        if (!name)
            return mn_fail_memory(err, strlen(entry->d_name));
        (*out)[(*n)++] = name;
    }
    if (*n)
        qsort(*out, *n, sizeof **out, plugin_search_by_name);
    return MN_OK;
}

/* Calls each(s, "folder/name", ...) for the sorted names of a folder that end so. */
static mn_status plugin_search_walk(search_state *s, const char *folder, const char *ending,
                                    mn_status (*each)(search_state *, const char *path, mn_error *),
                                    bool *found, mn_error *err) {
    DIR *dir = opendir(folder);
    *found = dir != NULL;
    if (!dir)
        return errno == ENOMEM ? mn_fail_memory(err, 0) : MN_OK;
    char **names;
    size_t n;
    mn_status status = list_names(dir, ending, &names, &n, err);
    closedir(dir);
    for (size_t i = 0; i < n; i++) {
        char *path = status == MN_OK ? mn_path_join(folder, names[i]) : NULL;
        if (status == MN_OK)
            status = path ? each(s, path, err) : mn_fail_memory(err, strlen(folder));
        mn_free(path);
        mn_free(names[i]);
    }
    mn_free(names);
    return status;
}

/* What could not be searched is shown among the files, too, where plugins were expected there. */
static mn_status report_entry(mn_registry *reg, const char *path, const char *why, mn_error *err) {
    mn_plugin_record *rec = add_record(reg, path);
    return rec && mn_plugin_reject(rec, MN_RECORD_REFUSED, "%s", why) ? MN_OK
                                                                      : mn_fail_memory(err, 0);
}

static const char too_many[] = "too many open files";

/* Static words for the folder that opendir has just refused. */
static const char *why_closed(const char *folder, int code) {
    switch (code) {
    case ENOENT:
        return "does not exist";
    case EACCES:
        return "permission denied";
    case ENOTDIR:
        return "is no folder";
    case EMFILE:
    case ENFILE:
        return too_many;
    default:
        return mn_path_exists(folder) ? "cannot be read" : "does not exist";
    }
}

static mn_status search_folder(search_state *s, const char *folder, const char *origin,
                               mn_error *err) {
    mn_status status = plugin_search_add_folder(s->reg, folder, strlen(folder), origin, "", err);
    if (status != MN_OK)
        return status;
    size_t at = s->reg->n_folders - 1;
    bool found;
    status = plugin_search_walk(s, folder, ".so", try_file, &found, err);
    if (found || status)
        return status;
    const int code = errno;
    const char *why = why_closed(folder, code);
    s->reg->folders[at].reason = why;
    const bool named = !strncmp(origin, "plugin_path", strlen("plugin_path"));
    if (named || code == EMFILE || code == ENFILE)
        status = report_entry(s->reg, folder, why, err);
    return status;
}

static mn_status search_built(search_state *s, const char *folder, mn_error *err) {
    bool objects = mn_str_ends(mn_str_of(folder), ".p"); /* meson's own */
    return objects || !mn_path_is_dir(folder) ? MN_OK : search_folder(s, folder, "build tree", err);
}

static mn_status refuse_relative(search_state *s, const char *entry, const char *origin,
                                 mn_error *err) {
    static const char why[] = "refused: expected an absolute path";
    mn_status status = plugin_search_add_folder(s->reg, entry, strlen(entry), origin, why, err);
    return status ? status : report_entry(s->reg, entry, "expected an absolute path", err);
}

/* An entry of a path list: a folder, or one plugin's file. */
static mn_status search_entry(search_state *s, const char *entry, size_t n, const char *origin,
                              mn_error *err) {
    char *path = mn_strndup(entry, n);
    if (!path)
        return mn_fail_memory(err, n);
    const bool is_file = mn_str_ends(mn_str_of(path), ".so") && !mn_path_is_dir(path);
    mn_status status;
    if (*path != '/')
        status = refuse_relative(s, path, origin, err);
    else if (is_file)
        status = try_file(s, path, err);
    else
        status = search_folder(s, path, origin, err);
    mn_free(path);
    return status;
}

static mn_status search_list(search_state *s, const char *key, mn_error *err) {
    mn_status status = MN_OK;
    for (const char *at = mn_config_get_str(s->reg->services.cfg, key); *at && status == MN_OK;) {
        size_t n = strcspn(at, ":");
        if (n)
            status = search_entry(s, at, n, key, err);
        at += n + (at[n] == ':');
    }
    return status;
}

static mn_status search_user(search_state *s, mn_error *err) {
    const char *base = secure_getenv("XDG_DATA_HOME"), *tail = "minerva/plugins";
    if (!base || *base != '/')
        base = secure_getenv("HOME"), tail = ".local/share/minerva/plugins";
    if (!base || *base != '/')
        return MN_OK;
    char *folder = mn_path_join(base, tail);
    mn_status status =
        folder ? search_folder(s, folder, "user", err) : mn_fail_memory(err, strlen(base));
    mn_free(folder);
    return status;
}

/* <build>/plugins/X and <build>/loaders/X */
static mn_status search_build_tree(search_state *s, const char *root, mn_error *err) {
    static const char *const parts[] = {"plugins", "loaders"};
    mn_status status = MN_OK;
    for (size_t i = 0; i < MN_COUNT(parts) && status == MN_OK; i++) {
        char *path = mn_path_join(root, parts[i]);
        bool any;
        status = path ? plugin_search_walk(s, path, "", search_built, &any, err)
                      : mn_fail_memory(err, strlen(root));
        mn_free(path);
    }
    return status;
}

static mn_status search_installed(search_state *s, mn_error *err) {
    char root[PATH_MAX];
    if (!*s->trust.dir)
        return MN_OK;
    char *folder = mn_path_join(s->trust.dir, "minerva/plugins");
    if (!folder)
        return mn_fail_memory(err, strlen(s->trust.dir));
    mn_status status = !mn_path_is_dir(folder) && mn_trust_build_root(&s->trust, root)
                           ? search_build_tree(s, root, err)
                           : search_folder(s, folder, "installed", err);
    mn_free(folder);
    return status;
}

static mn_status search_all(search_state *s, mn_error *err) {
    if (*mn_config_get_str(s->reg->services.cfg, "plugin_path_only"))
        return search_list(s, "plugin_path_only", err);
    mn_status status = search_list(s, "plugin_path", err);
    if (status == MN_OK)
        status = search_user(s, err);
    return status == MN_OK ? search_installed(s, err) : status;
}

/* minerva-probe: in the build tree, or where it was installed with the library, wherever the prefix
 * was moved. probe.c checks who may write it. NULL = out of memory. */
static char *probe_program(const mn_trust *trust) {
    char root[PATH_MAX];
    if (!*trust->dir)
        return mn_strndup("", 0); /* never relative to the current directory */
    if (mn_trust_build_root(trust, root))
        return mn_path_join(root, BUILT_PROBE);
    return mn_path_join(*MN_PROBE_PATH == '/' ? "" : trust->dir, MN_PROBE_PATH);
}

/* Few descriptors look like plugins that are missing: what follows from that would be said of them
 * alone. */
static void warn_of_descriptors(const mn_registry *reg) {
    unsigned n = 0;
    for (size_t i = 0; i < reg->n_records; i++) {
        const mn_plugin_record *r = &reg->records[i];
        if (r->status == MN_RECORD_OK)
            continue;
        n += strstr(r->reason, too_many) || strstr(r->reason, strerror(EMFILE)) ||
             strstr(r->reason, strerror(ENFILE));
    }
    struct rlimit most = {0};
    getrlimit(RLIMIT_NOFILE, &most);
    if (n)
        mn_log(
            MN_LOG_WARN,
            "%u plugin files or folders could not be opened or probed: too many open files (this "
            "process may have %llu: see ulimit -n)",
            n, (unsigned long long)most.rlim_cur);
}

/* A plugin that would have harmed this process is not left out in silence. */
static void warn_of_harm(const mn_plugin_record *rec) {
    const bool is_harm = rec->status == MN_RECORD_CRASHED || rec->status == MN_RECORD_HUNG ||
                         rec->status == MN_RECORD_REFUSED;
    if (rec->probe.done && !rec->probe.ok && is_harm)
        mn_log(MN_LOG_WARN, "plugin %s is left out: %s", rec->path, rec->reason);
}

static void plugin_search_tell(const mn_registry *reg) {
    for (size_t i = 0; i < reg->n_folders; i++)
        mn_log(MN_LOG_DEBUG, "plugin folder %s (%s): %s", reg->folders[i].path,
               reg->folders[i].origin,
               *reg->folders[i].reason ? reg->folders[i].reason : "searched");
    for (size_t i = 0; i < reg->n_records; i++) {
        const mn_plugin_record *r = &reg->records[i];
        warn_of_harm(r);
        mn_log(MN_LOG_DEBUG, "plugin file %s: %s%s%s%s%s", r->path,
               mn_record_status_name(r->status), *r->reason ? ": " : "", r->reason,
               *r->probe.text ? "; probe: " : "", r->probe.text);
    }
}

mn_status mn_search(mn_registry *reg, mn_error *err) {
    search_state s = {.reg = reg};
    mn_text journal = {0};
    mn_trust_init(&s.trust);
    mn_status status = search_all(&s, err);
    char *program = status == MN_OK ? probe_program(&s.trust) : NULL;
    if (status == MN_OK)
        status = program ? mn_probe_all(reg->services.cfg, &s.trust, program, s.list, s.n, err)
                         : mn_fail_memory(err, PATH_MAX);
    if (status == MN_OK) {
        mn_journal_read(&journal);
        reg->notes_crashes = reg->services.journal && s.n;
        if (reg->notes_crashes) /* a damaged one is gone by now */
            mn_journal_open();
        status = load_candidates(&s, &journal, err);
        mn_text_free(&journal);
    }
    if (status == MN_OK && !reg->services.no_backends)
        status = keep_a_cpu(&s, err);
    if (status == MN_OK) {
        plugin_search_tell(reg);
        warn_of_descriptors(reg);
    }
    for (size_t i = 0; i < s.n; i++)
        mn_text_free(&s.list[i].report);
    mn_free(s.list);
    mn_free(program);
    return status;
}
