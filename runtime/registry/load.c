/* load.c -- opens a plugin file and checks what it offers before anybody uses it: entry, ABI, id,
 * tables, and what its note promised. The record is the caller's (the registry's, or that of a
 * probing process); handle and tables in it live until mn_plugin_unload. No field of the plugin is
 * read before its size says that it is there. What is wrong with a plugin is a status and a
 * sentence of the record; functions return false, or an error, for lack of memory alone. */
#include "registry/internal.h"
#include "queue_scratch.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- the words of statuses ------------------------------------------------------------------- */

static const char *const status_names[] = {
    [MN_RECORD_PENDING] = "",
    [MN_RECORD_OK] = "ok",
    [MN_RECORD_REFUSED] = "refused",
    [MN_RECORD_INCOMPATIBLE] = "incompatible",
    [MN_RECORD_FAILED] = "failed",
    [MN_RECORD_CRASHED] = "crashed",
    [MN_RECORD_HUNG] = "hung",
    [MN_RECORD_SHADOWED] = "shadowed",
    [MN_RECORD_SET_ASIDE] = "set aside",
};

const char *mn_record_status_name(mn_record_status status) {
    return status_names[status];
}

mn_record_status mn_record_status_of(mn_str name) {
    for (size_t i = MN_RECORD_OK; i < MN_COUNT(status_names); i++)
        if (mn_str_is(name, status_names[i]))
            return (mn_record_status)i;
    return MN_RECORD_FAILED;
}

/* ---- a record's life ------------------------------------------------------------------------- */

bool mn_plugin_record_init(mn_plugin_record *rec, const mn_services *services, const char *path) {
    *rec = (mn_plugin_record){.kind = ""};
    rec->path = mn_strndup(path, strlen(path));
    bool done = rec->path != NULL;
    char **const texts[] = {&rec->reason, &rec->vendor, &rec->version, &rec->build_id};
    for (size_t i = 0; i < MN_COUNT(texts); i++) {
        *texts[i] = mn_strndup("", 0);
        done = done && *texts[i];
    }
    rec->host = mn_calloc(1, sizeof *rec->host);
    if (!done || !rec->host)
        return false;
    rec->callee = &rec->host->callee;
    rec->memory = &rec->host->memory;
    return mn_plugin_host_init(rec->host, services, rec->path);
}

void mn_plugin_record_clear(mn_plugin_record *rec) {
    mn_plugin_unload(rec);
    mn_free(rec->path);
    mn_free((void *)(uintptr_t)rec->id.ptr);
    mn_free(rec->reason);
    mn_free(rec->vendor);
    mn_free(rec->version);
    mn_free(rec->build_id);
    if (rec->host) {
        mn_sealed_free(rec->host->pages);
        mn_text_free(&rec->host->report);
        mn_ledger_clear(&rec->host->memory);
    }
    mn_free(rec->host);
}

bool mn_plugin_reject(mn_plugin_record *rec, mn_record_status status, const char *fmt, ...) {
    mn_error text = MN_ERROR_INIT;
    char reason[sizeof text.msg];
    va_list args;
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    mn_plain_array(reason, sizeof reason);
    char *copy = mn_strndup(reason, strlen(reason));
    if (!copy)
        return false;
    mn_free(rec->reason);
    rec->reason = copy;
    rec->status = status;
    return true;
}

void mn_plugin_unload(mn_plugin_record *rec) {
    if (rec->plugin) {
        uint64_t flags = rec->plugin->flags;
        if (MN_HAS(mn_plugin, rec->plugin, shutdown))
            MN_WATCHED(rec->callee, "shutdown", rec->plugin->shutdown(rec->plugin->self));
        const bool unloads = flags & MN_PLUGIN_UNLOADABLE;
        if (rec->handle && unloads && !rec->probe.pending)
            MN_WATCHED(rec->callee, "its destructors", dlclose(rec->handle));
    }
    /* a library that did not say so is never closed: its threads may still run */
    rec->handle = NULL;
    rec->plugin = NULL;
    rec->backend = NULL;
    rec->loader = NULL;
    rec->profile = NULL;
    rec->group = NULL;
    mn_patterns_free(&rec->patterns);
    mn_vendor_types_free(&rec->types);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const char *kind_name(uint32_t kinds) {
    static const char *const names[] = {"", "backend", "loader", "backend+loader"};
    return names[kinds & (MN_KIND_BACKEND | MN_KIND_LOADER)];
}

typedef struct {
    const char *name;
    size_t at;
} table_slot;
#define SLOT(table, name)                                                                          \
    { #name, offsetof(table, name) }

static const table_slot backend_slots[] = {
    SLOT(mn_backend, device_count),   SLOT(mn_backend, device_info),
    SLOT(mn_backend, device_open),    SLOT(mn_backend, device_close),
    SLOT(mn_backend, contracts),      SLOT(mn_backend, supports),
    SLOT(mn_backend, estimate),       SLOT(mn_backend, alloc),
    SLOT(mn_backend, buffer_free),    SLOT(mn_backend, map),
    SLOT(mn_backend, queue_create),   SLOT(mn_backend, queue_free),
    SLOT(mn_backend, write),          SLOT(mn_backend, read),
    SLOT(mn_backend, copy),           SLOT(mn_backend, wait),
    SLOT(mn_backend, queue_wait),     SLOT(mn_backend, event_free),
    SLOT(mn_backend, weights_open),   SLOT(mn_backend, weights_put),
    SLOT(mn_backend, weights_seal),   SLOT(mn_backend, weights_free),
    SLOT(mn_backend, memory_layout),  SLOT(mn_backend, memory_copy),
    SLOT(mn_backend, compile),        SLOT(mn_backend, program_free),
    SLOT(mn_backend, context_create), SLOT(mn_backend, context_bind),
    SLOT(mn_backend, execute),        SLOT(mn_backend, context_free),
};
static const table_slot loader_slots[] = {
    SLOT(mn_loader, guess),     SLOT(mn_loader, open),  SLOT(mn_loader, meta_at),
    SLOT(mn_loader, tensor_at), SLOT(mn_loader, close), SLOT(mn_loader, patterns),
};

static const table_slot types_slots[] = {SLOT(mn_types, type_at)};
static const table_slot profile_slots[] = {SLOT(mn_profile, execute)};
static const table_slot group_slots[] = {
    SLOT(mn_group, open),
    SLOT(mn_group, memory),
    SLOT(mn_group, member_estimate),
};

/* The first required function that the table (uint32_t size first) lacks; NULL = none. */
static const char *missing_slot(const void *table, const table_slot *slots, size_t n) {
    uint32_t size;
    memcpy(&size, table, sizeof size);
    for (size_t i = 0; i < n; i++) {
        void (*fn)(void) = NULL;
        if (size < slots[i].at + sizeof fn)
            return slots[i].name;
        memcpy(&fn, (const char *)table + slots[i].at, sizeof fn);
        if (!fn)
            return slots[i].name;
    }
    return NULL;
}

/* false = out of memory. */
static bool take_patterns(mn_plugin_record *rec, const mn_loader *loader) {
    mn_error why = MN_ERROR_INIT;
    mn_status st = mn_patterns_read(loader, rec->plugin->self, &rec->patterns, &why);
    if (st == MN_OUT_OF_MEMORY)
        return false;
    return !st || mn_plugin_reject(rec, MN_RECORD_FAILED, "%s", why.msg);
}

/* false = out of memory. */
static bool take_types(mn_plugin_record *rec, const mn_types *types, bool is_loader) {
    mn_error why = MN_ERROR_INIT;
    const mn_status st =
        mn_vendor_types_read(types, rec->plugin->self, is_loader, &rec->types, &why);
    rec->types.callee = rec->callee;
    if (st == MN_OUT_OF_MEMORY)
        return false;
    return !st || mn_plugin_reject(rec, MN_RECORD_FAILED, "%s: %s", MN_TYPES_ID, why.msg);
}

/* Rejects the plugin if the table of this interface is there and lacks a function; false = out of
 * memory. */
static bool check_table(mn_plugin_record *rec, const char *interface, const void *table,
                        const table_slot *slots, size_t n) {
    const bool asked = table && rec->status == MN_RECORD_PENDING;
    const char *missing = asked ? missing_slot(table, slots, n) : NULL;
    return !missing || mn_plugin_reject(rec, MN_RECORD_FAILED, "its table %s lacks the function %s",
                                        interface, missing);
}

/* Those of the interfaces that it has; sets kind. */
static bool find_tables(mn_plugin_record *rec) {
    const mn_plugin *p = rec->plugin;
    const mn_backend *backend = p->query(p->self, MN_BACKEND_ID);
    const mn_loader *loader = p->query(p->self, MN_LOADER_ID);
    const mn_profile *profile = backend ? p->query(p->self, MN_PROFILE_ID) : NULL;
    const mn_group *group = backend ? p->query(p->self, MN_GROUP_ID) : NULL;
    const mn_types *types = p->query(p->self, MN_TYPES_ID);
    const uint32_t kinds = (backend ? MN_KIND_BACKEND : 0) | (loader ? MN_KIND_LOADER : 0);
    rec->kind = kind_name(kinds);
    if (!backend && !loader)
        return mn_plugin_reject(rec, MN_RECORD_FAILED, "offers neither %s nor %s", MN_BACKEND_ID,
                                MN_LOADER_ID);
    const bool enough_memory =
        check_table(rec, MN_BACKEND_ID, backend, backend_slots, MN_COUNT(backend_slots)) &&
        check_table(rec, MN_LOADER_ID, loader, loader_slots, MN_COUNT(loader_slots)) &&
        check_table(rec, MN_PROFILE_ID, profile, profile_slots, MN_COUNT(profile_slots)) &&
        check_table(rec, MN_GROUP_ID, group, group_slots, MN_COUNT(group_slots)) &&
        check_table(rec, MN_TYPES_ID, types, types_slots, MN_COUNT(types_slots));
    if (!enough_memory || rec->status != MN_RECORD_PENDING)
        return enough_memory;
    const bool joins = group && MN_HAS(mn_group, group, make_id);
    const uint32_t id_bytes = joins && MN_HAS(mn_group, group, id_bytes) ? group->id_bytes : 0;
    if (joins && (!id_bytes || id_bytes > MN_MAX_GROUP_ID))
        return mn_plugin_reject(rec, MN_RECORD_FAILED,
                                "its table %s has ids of %u bytes: expected 1 to %u", MN_GROUP_ID,
                                id_bytes, MN_MAX_GROUP_ID);
    if (loader && !take_patterns(rec, loader))
        return false;
    if (types && rec->status == MN_RECORD_PENDING && !take_types(rec, types, loader != NULL))
        return false;
    rec->profile = profile;
    rec->group = group;
    rec->shares_scratch = backend && p->query(p->self, MN_QUEUE_SCRATCH_ID);
    rec->backend = backend;
    rec->loader = loader;
    if (loader)
        atomic_store(&rec->host->memory.notes, true);
    return true;
}

/* ---- identity -------------------------------------------------------------------------------- */

static bool is_id_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

static bool id_spelled(mn_str id) {
    if (!id.ptr || !id.len || id.len >= 64)
        return false;
    for (uint64_t i = 0; i < id.len; i++)
        if (!is_id_character(id.ptr[i]))
            return false;
    return true;
}

/* The id that the entry states takes the place of the note's. */
static bool loading_take_id(mn_plugin_record *rec) {
    mn_str id = rec->plugin->id;
    if (!id_spelled(id))
        return mn_plugin_reject(
            rec, MN_RECORD_FAILED,
            "its id is misspelled: expected 1 to 63 characters of a-z, 0-9 and _");
    char *copy = mn_strndup(id.ptr, id.len);
    if (!copy)
        return false;
    mn_free((void *)(uintptr_t)rec->id.ptr);
    rec->id = (mn_str){copy, id.len};
    memcpy(rec->host->id, copy, id.len + 1);
    if (mn_str_is(id, "auto") || mn_str_is(id, "cpu")) /* these mean a choice among devices */
        return mn_plugin_reject(rec, MN_RECORD_FAILED, "its id is the reserved word \"%s\"", copy);
    return true;
}

bool mn_plugin_text(char **at, mn_str text) {
    char plain[256];
    const mn_str given = {text.ptr, text.ptr ? text.len : 0};
    const size_t n = mn_plain(plain, sizeof plain, given);
    char *copy = mn_strndup(plain, n);
    if (!copy)
        return false;
    mn_free(*at);
    *at = copy;
    return true;
}

/* The text of a length that no name has, 2^64 - 1 or a pointer; NULL = none. */
static const char *absurd_text(const mn_plugin *p) {
    enum { MOST = 4096 };
    if (p->vendor.len > MOST)
        return "vendor";
    if (p->version.len > MOST)
        return "version";
    return p->build_id.len > MOST ? "build_id" : NULL;
}

/* Without a build id of its own a plugin has the linker's. */
static bool take_texts(mn_plugin_record *rec, const mn_plugin_file *file) {
    const mn_plugin *p = rec->plugin;
    const char *absurd = absurd_text(p);
    if (absurd)
        return mn_plugin_reject(rec, MN_RECORD_FAILED, "its %s states more than 4096 bytes",
                                absurd);
    const mn_str build_id = p->build_id.len ? p->build_id : mn_str_of(file->note.build_id);
    return mn_plugin_text(&rec->vendor, p->vendor) && mn_plugin_text(&rec->version, p->version) &&
           mn_plugin_text(&rec->build_id, build_id);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Tells a probing process how far this came. */
static void loading_phase(const mn_plugin_record *rec, const char *doing) {
    if (rec->host->services->phase)
        rec->host->services->phase(doing);
}

/* dlopen, and the address of the entry; NULL: the record says why, or memory is short. */
static mn_entry_fn open_entry(mn_plugin_record *rec, const mn_plugin_file *file,
                              bool *enough_memory) {
    mn_plugin_file_key(file, rec->host->callee.key);
    loading_phase(rec, "running its constructors");
    if (!mn_plugin_file_same(file)) {
        *enough_memory =
            mn_plugin_reject(rec, MN_RECORD_REFUSED, "changed while it was being looked at");
        return NULL;
    }
    errno = 0;
    MN_WATCHED(rec->callee, "its constructors",
               rec->handle = dlopen(file->real, RTLD_NOW | RTLD_LOCAL));
    if (!rec->handle) {
        rec->no_memory = errno == ENOMEM; /* the words of dlerror seldom say so */
        const char *why = dlerror();
        *enough_memory = mn_plugin_reject(rec, MN_RECORD_FAILED, "cannot be loaded: %s",
                                          why ? why : "no reason given");
        return NULL;
    }
    void *symbol = dlsym(rec->handle, MN_ENTRY_NAME);
    mn_entry_fn entry = NULL;
    if (symbol)
        memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from object to function */
    else
        *enough_memory = mn_plugin_reject(rec, MN_RECORD_FAILED,
                                          "no Minerva plugin: it exports no %s", MN_ENTRY_NAME);
    return entry;
}

/* Rejects it if this host does not understand its ABI, or it not the host's; false = out of
 * memory. */
static bool check_abi(mn_plugin_record *rec, uint32_t abi, uint32_t oldest) {
    if (mn_abi_fits(MN_ABI_VERSION, MN_ABI_OLDEST, abi, oldest))
        return true;
    return mn_plugin_reject(rec, MN_RECORD_INCOMPATIBLE,
                            "built for ABI %u.%u, this Minerva has %u.%u", abi >> 16, abi & 0xFFFF,
                            MN_ABI_VERSION >> 16, MN_ABI_VERSION & 0xFFFF);
}

/* Calls the entry and believes no field before size and ABI were looked at. rec->plugin: set where
 * it may be used. */
static bool loading_enter(mn_plugin_record *rec, mn_entry_fn entry) {
    mn_error why = MN_ERROR_INIT;
    loading_phase(rec, "running its entry");
    uint64_t begin = mn_now_ns();
    const mn_plugin *p = NULL;
    MN_WATCHED(rec->callee, "entry", p = entry(rec->host->table, &why));
    rec->probe.entry_ms = (uint32_t)MN_MIN((mn_now_ns() - begin) / 1000000, (uint64_t)UINT32_MAX);
    loading_phase(rec, "offering its tables");
    mn_fail_plain(&why);
    rec->no_memory = !p && why.status == MN_OUT_OF_MEMORY;
    if (!p)
        return mn_plugin_reject(rec, MN_RECORD_FAILED, "%s",
                                why.msg[0] ? why.msg : "its entry gave no plugin and no reason");
    if (p->size < offsetof(mn_plugin, abi) + sizeof p->abi)
        return mn_plugin_reject(rec, MN_RECORD_INCOMPATIBLE, "its mn_plugin has only %u bytes",
                                p->size);
    rec->abi = p->abi;
    const uint32_t oldest = rec->has_note ? rec->note_abi_oldest : mn_abi_oldest(p->abi);
    const bool enough_memory = check_abi(rec, p->abi, oldest);
    if (!enough_memory || rec->status != MN_RECORD_PENDING)
        return enough_memory;
    if (!MN_HAS(mn_plugin, p, query))
        return mn_plugin_reject(rec, MN_RECORD_FAILED, "its mn_plugin lacks the function query");
    rec->plugin = p;
    return true;
}

/* ---- the note -------------------------------------------------------------------------------- */

/* What the note promised before the plugin was opened. */
static bool check_against_note(mn_plugin_record *rec, const mn_plugin_note *note) {
    uint32_t kinds = (rec->backend ? MN_KIND_BACKEND : 0) | (rec->loader ? MN_KIND_LOADER : 0);
    if (!note->found)
        return true;
    if (!mn_str_is(rec->id, note->id))
        return mn_plugin_reject(rec, MN_RECORD_FAILED,
                                "its note says that its id is \"%s\", its entry says \"%s\"",
                                note->id, rec->id.ptr);
    if (rec->abi != note->abi)
        return mn_plugin_reject(rec, MN_RECORD_FAILED,
                                "its note says ABI %u.%u, its entry says %u.%u", note->abi >> 16,
                                note->abi & 0xFFFF, rec->abi >> 16, rec->abi & 0xFFFF);
    if (kinds != (note->kinds & 3u))
        return mn_plugin_reject(
            rec, MN_RECORD_FAILED,
            "its note says that it is a \"%s\", its tables are those of a \"%s\"",
            kind_name(note->kinds), kind_name(kinds));
    return true;
}

bool mn_plugin_note_judge(mn_plugin_record *rec, const mn_plugin_note *note) {
    mn_error why = MN_ERROR_INIT;
    if (!note->found)
        return true;
    rec->has_note = true;
    rec->abi = rec->note_abi = note->abi;
    rec->note_abi_oldest = note->abi_oldest;
    rec->kind = kind_name(note->kinds);
    mn_str id = mn_str_of(note->id);
    if (id_spelled(id)) {
        char *copy = mn_strndup(id.ptr, id.len);
        if (!copy)
            return false;
        rec->id = (mn_str){copy, id.len};
    }
    const bool enough_memory = check_abi(rec, note->abi, note->abi_oldest);
    if (!enough_memory || rec->status != MN_RECORD_PENDING)
        return enough_memory;
    return mn_isa_check(note->isa, &why) == MN_OK ||
           mn_plugin_reject(rec, MN_RECORD_REFUSED, "%s", why.msg);
}

mn_status mn_plugin_load(mn_plugin_record *rec, const mn_plugin_file *file, mn_error *err) {
    bool enough_memory = true;
    mn_entry_fn entry = open_entry(rec, file, &enough_memory);
    if (entry)
        enough_memory = loading_enter(rec, entry);
    if (enough_memory && rec->plugin)
        enough_memory = loading_take_id(rec) && take_texts(rec, file);
    if (enough_memory && rec->plugin && rec->status == MN_RECORD_PENDING)
        MN_WATCHED(rec->callee, "query", enough_memory = find_tables(rec));
    if (enough_memory && rec->plugin && rec->status == MN_RECORD_PENDING)
        enough_memory = check_against_note(rec, &file->note);
    if (!enough_memory || rec->status != MN_RECORD_PENDING)
        mn_plugin_unload(rec);
    if (!enough_memory)
        return mn_fail_memory(err, 0);
    if (rec->status == MN_RECORD_PENDING)
        rec->status = MN_RECORD_OK;
    return MN_OK;
}
