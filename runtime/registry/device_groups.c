/* device_groups.c -- several devices of one plugin as one: records that are made when somebody
 * names them ("cuda:0+cuda:1", "cuda:all") and live as long as the registry. They lie behind the
 * devices, in room that was reserved with them, for records do not move. Lists of devices do not
 * have them. */
#include "registry/internal.h"
#include <stdio.h>
#include <string.h>

/* A group that was asked for. */
typedef struct {
    const mn_device_record *member[MN_MAX_MEMBERS]; /* in the order of ranks */
    uint32_t n;
    char name[sizeof((mn_device_record *)0)->name];
} wanted;

static bool is_all(mn_str name, mn_str *plugin) {
    const bool all = mn_str_ends(name, ":all");
    if (all)
        *plugin = (mn_str){name.ptr, name.len - 4};
    return all;
}

/* "cuda:ranks": with members in other processes; there is one if they have joined. */
static bool is_ranks(mn_str name) {
    return mn_str_ends(name, ":ranks");
}

bool mn_is_group_name(mn_str name) {
    mn_str plugin;
    return is_all(name, &plugin) || is_ranks(name) || (name.len && memchr(name.ptr, '+', name.len));
}

/* ---- members --------------------------------------------------------------------------------- */
/* why: what is wrong, [MN_GROUP_WHY]. */
static bool add_member(wanted *w, const mn_device_record *d, char *why) {
    if (w->n == MN_MAX_MEMBERS) {
        snprintf(why, MN_GROUP_WHY, "more than %u members", MN_MAX_MEMBERS);
        return false;
    }
    for (uint32_t i = 0; i < w->n; i++)
        if (w->member[i] == d) {
            snprintf(why, MN_GROUP_WHY, "%s is in it twice", d->name);
            return false;
        }
    if (w->n && w->member[0]->plugin != d->plugin) {
        snprintf(why, MN_GROUP_WHY, "%s and %s are of different plugins", w->member[0]->name,
                 d->name);
        return false;
    }
    w->member[w->n++] = d;
    return true;
}

static bool add_listed(mn_registry *reg, mn_str name, wanted *w, char *why) {
    while (name.len) {
        const char *plus = memchr(name.ptr, '+', name.len);
        const mn_str one = {name.ptr, plus ? (uint64_t)(plus - name.ptr) : name.len};
        const mn_device_record *d = mn_registry_device(reg, one);
        if (!d || d->n_members) {
            snprintf(why, MN_GROUP_WHY, "\"%.*s\" is no device", MN_STR_ARG(one));
            return false;
        }
        if (!add_member(w, d, why))
            return false;
        const uint64_t used = one.len + (plus != NULL);
        name = (mn_str){name.ptr + used, name.len - used};
    }
    return true;
}

/* Those that can be used. */
static bool add_all(mn_registry *reg, mn_str plugin, wanted *w, char *why) {
    size_t n;
    const mn_device_record *all = mn_registry_devices(reg, &n);
    for (size_t i = 0; i < n; i++)
        if (mn_str_eq(all[i].plugin->id, plugin) && all[i].usable && !add_member(w, &all[i], why))
            return false;
    return true;
}

/* Fills w; false: why not. */
static bool read_group(mn_registry *reg, mn_str name, wanted *w, char *why) {
    mn_str plugin;
    *w = (wanted){.n = 0};
    const bool all = is_all(name, &plugin);
    if (!(all ? add_all(reg, plugin, w, why) : add_listed(reg, name, w, why)))
        return false;
    if (w->n < 2) {
        snprintf(why, MN_GROUP_WHY, "a group has at least 2 devices, found %u", w->n);
        return false;
    }
    if (!w->member[0]->plugin->group) {
        snprintf(why, MN_GROUP_WHY, "%s forms no groups", w->member[0]->plugin->id.ptr);
        return false;
    }
    uint64_t length = 0;
    for (uint32_t i = 0; i < w->n; i++)
        length += strlen(w->member[i]->name) + 1;
    if (!all && length > sizeof w->name) {
        snprintf(why, MN_GROUP_WHY, "its name is longer than %zu bytes", sizeof w->name - 1);
        return false;
    }
    if (all)
        snprintf(w->name, sizeof w->name, "%s:all", w->member[0]->plugin->id.ptr);
    for (uint32_t i = 0; i < w->n && !all; i++)
        snprintf(w->name + strlen(w->name), sizeof w->name - strlen(w->name), "%s%s", i ? "+" : "",
                 w->member[i]->name);
    return true;
}

/* ---- records --------------------------------------------------------------------------------- */
/* What the host is told of a group is that of one member: the smallest. */
static void fill_info(const wanted *w, mn_device_info *info) {
    *info = w->member[0]->info;
    for (uint32_t i = 1; i < w->n; i++) {
        const mn_device_info *m = &w->member[i]->info;
        info->mem_total = MN_MIN(info->mem_total, m->mem_total);
        info->mem_free = MN_MIN(info->mem_free, m->mem_free);
        info->max_alloc = MN_MIN(info->max_alloc, m->max_alloc);
        info->flags &= m->flags;
        info->mem_gbps += m->mem_gbps;
        info->fp16_tflops += m->fp16_tflops;
        info->int8_tops += m->int8_tops;
    }
    snprintf(info->name, sizeof info->name, "%u x %.50s", w->n, w->member[0]->info.name);
    snprintf(info->uid, sizeof info->uid, "%u x %.50s", w->n, w->member[0]->info.uid);
}

/* The lock is held. */
static mn_device_record *find_or_add(mn_registry *reg, const wanted *w) {
    mn_device_record *groups = reg->devices + reg->n_devices;
    for (size_t i = 0; i < reg->n_groups; i++)
        if (!strcmp(groups[i].name, w->name))
            return &groups[i];
    if (reg->n_groups == MN_MAX_GROUPS)
        return NULL;
    mn_device_record *d = &groups[reg->n_groups++];
    memset(d, 0, sizeof *d);
    memcpy(d->name, w->name, sizeof d->name);
    d->plugin = w->member[0]->plugin;
    d->index = w->member[0]->index;
    d->usable = true;
    d->reason = "";
    d->n_members = w->n;
    for (uint32_t i = 0; i < w->n; i++)
        d->member[i] = w->member[i]->index;
    fill_info(w, &d->info);
    return d;
}

static const mn_device_record *find_ranks(mn_registry *reg, mn_str name, char *why) {
    const mn_device_record *found = NULL;
    pthread_mutex_lock(&reg->lock);
    const mn_device_record *groups = reg->devices + reg->n_devices;
    for (size_t i = 0; i < reg->n_groups; i++)
        if (mn_str_is(name, groups[i].name))
            found = &groups[i];
    pthread_mutex_unlock(&reg->lock);
    if (!found)
        snprintf(why, MN_GROUP_WHY, "no other process has joined");
    return found;
}

const mn_device_record *mn_registry_add_ranks(mn_registry *reg, const mn_plugin_record *plugin,
                                              const mn_device_info *info) {
    mn_device_record *d = NULL;
    pthread_mutex_lock(&reg->lock);
    if (reg->n_groups < MN_MAX_GROUPS)
        d = &reg->devices[reg->n_devices + reg->n_groups++];
    if (d) {
        memset(d, 0, sizeof *d);
        snprintf(d->name, sizeof d->name, "%.64s:ranks", plugin->id.ptr);
        d->plugin = plugin;
        d->usable = true;
        d->reason = "";
        d->info = *info;
    }
    pthread_mutex_unlock(&reg->lock);
    return d;
}

const mn_device_record *mn_registry_group(mn_registry *reg, mn_str name, char why[MN_GROUP_WHY]) {
    wanted w;
    why[0] = 0;
    if (is_ranks(name))
        return find_ranks(reg, name, why);
    if (!read_group(reg, name, &w, why))
        return NULL;
    for (uint32_t i = 0; i < w.n; i++)
        if (!w.member[i]->usable) {
            snprintf(why, MN_GROUP_WHY, "%s cannot be used: %.200s", w.member[i]->name,
                     w.member[i]->reason);
            return NULL;
        }
    pthread_mutex_lock(&reg->lock);
    const mn_device_record *d = find_or_add(reg, &w);
    pthread_mutex_unlock(&reg->lock);
    if (!d)
        snprintf(why, MN_GROUP_WHY, "more than %u groups in one process", MN_MAX_GROUPS);
    return d;
}

bool mn_group_has(const mn_device_record *group, const mn_device_record *d) {
    for (uint32_t i = 0; i < group->n_members && group->plugin == d->plugin; i++)
        if (group->member[i] == d->index && !d->n_members)
            return true;
    return false;
}

bool mn_devices_overlap(const mn_device_record *a, const mn_device_record *b) {
    if (a == b || a->plugin != b->plugin || (!a->n_members && !b->n_members))
        return false;
    for (uint32_t i = 0; i < MN_MAX(a->n_members, 1); i++)
        for (uint32_t k = 0; k < MN_MAX(b->n_members, 1); k++) {
            const uint32_t of_a = a->n_members ? a->member[i] : a->index;
            const uint32_t of_b = b->n_members ? b->member[k] : b->index;
            if (of_a == of_b)
                return true;
        }
    return false;
}

mn_status mn_device_call_open(const mn_device_record *rec, mn_device **out, mn_error *why) {
    const mn_plugin_record *p = rec->plugin;
    uint32_t member[MN_MAX_MEMBERS]; /* a copy for this call */
    mn_status st = MN_OK;
    char uid[sizeof rec->info.uid]; /* the same */
    memcpy(member, rec->member, sizeof member);
    memcpy(uid, rec->info.uid, sizeof uid);
    const mn_open_params params = {.size = sizeof params, .uid = mn_str_of(uid)};
    if (rec->n_members)
        MN_WATCHED(p->callee, "group open",
                   st = p->group->open(p->plugin->self, member, rec->n_members, out, why));
    else
        MN_WATCHED(p->callee, "device_open",
                   st = p->backend->device_open(p->plugin->self, rec->index, &params, out, why));
    return st;
}
