/* ranks.c -- mn_rank_of_process, mn_model_join, mn_model_follow: which device of this process is
 * the member, which token is proven, and what must be the same on all ranks. */
#include "opened/opened.h"
#include "ranks/ranks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { TOKEN_BYTES = 32, MAX_TOKEN = 4096 };
#define TOKEN_FILE "rank-token"

static const char *variable(const char *name) {
    return secure_getenv(name);
}

mn_status mn_rank_of_process(uint32_t *rank, uint32_t *n, mn_error *err) {
    mn_rank_place place;
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"rank", rank}, {"n", n}, {0}});
    if (!st)
        st = mn_rank_place_read(variable, &place, err);
    if (st)
        return st;
    *rank = place.rank;
    *n = place.n_ranks;
    return MN_OK;
}

/* ---- the member ------------------------------------------------------------------------------ */
static bool can_join(const mn_device_record *d) {
    const mn_group *g = d->plugin->group;
    return g && MN_HAS(mn_group, g, join) && MN_HAS(mn_group, g, make_id);
}

static uint32_t count_usable(mn_registry *reg, mn_str id) {
    size_t n;
    const mn_device_record *all = mn_registry_devices(reg, &n);
    uint32_t n_usable = 0;
    for (size_t i = 0; i < n; i++)
        n_usable += all[i].usable && mn_str_eq(all[i].plugin->id, id);
    return n_usable;
}

/* Among the devices of a plugin that can be used, the one of the local rank: launchers that show
 * each process its own card alone show it as the first. */
static const mn_device_record *of_plugin(mn_registry *reg, mn_str id, uint32_t local_rank) {
    size_t n;
    const mn_device_record *all = mn_registry_devices(reg, &n);
    const uint32_t n_usable = count_usable(reg, id);
    for (size_t i = 0; i < n && n_usable; i++)
        if (all[i].usable && mn_str_eq(all[i].plugin->id, id) && !(local_rank-- % n_usable))
            return &all[i];
    return NULL;
}

static const mn_device_record *of_any_plugin(mn_registry *reg, uint32_t local_rank) {
    size_t n;
    const mn_device_record *all = mn_registry_devices(reg, &n);
    for (size_t i = 0; i < n; i++)
        if (all[i].usable && can_join(&all[i]))
            return of_plugin(reg, all[i].plugin->id, local_rank);
    return NULL;
}

/* "auto", "cuda" or "cuda:1"; of a list the first. */
static mn_status choose_member(const mn_runtime *rt, const mn_rank_place *place,
                               const mn_device_record **out, mn_error *err) {
    const char *list = mn_config_get_str(rt->config, "device");
    const mn_str name = {list, strcspn(list, ",")};
    const mn_device_record *d = NULL;
    if (!name.len || mn_str_is(name, "auto"))
        d = of_any_plugin(rt->registry, place->local_rank);
    else if (mn_registry_plugin(rt->registry, name))
        d = of_plugin(rt->registry, name, place->local_rank);
    else
        d = mn_registry_device(rt->registry, name);
    if (!d || !d->usable)
        return mn_fail(err, MN_NO_DEVICE,
                       "rank %u of %u: found no device of %.*s that can be used: %s", place->rank,
                       place->n_ranks, MN_STR_ARG(name), d ? d->reason : "there is none");
    if (d->n_members || !can_join(d))
        return mn_fail(err, MN_NO_DEVICE, "rank %u of %u: %s forms no groups of several processes",
                       place->rank, place->n_ranks, d->name);
    *out = d;
    return MN_OK;
}

/* ---- the token ------------------------------------------------------------------------------- */
/* Without line ends and blanks around it. */
static mn_str trimmed(mn_str s) {
    while (s.len && strchr(" \t\r\n", s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* The user's own, below the cache folder; rank 0 makes it. The others wait a moment for it. */
static mn_status own_token(const mn_rank_place *place, mn_text *out, mn_error *err) {
    mn_error why = MN_ERROR_INIT;
    mn_status st = mn_cache_read(TOKEN_FILE, MAX_TOKEN, out, &why);
    if (st && !place->rank) {
        uint8_t bytes[TOKEN_BYTES];
        if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
            return mn_fail(err, MN_IO_ERROR, "rank 0: found no random numbers");
        for (size_t i = 0; i < sizeof bytes; i++)
            mn_text_printf(out, "%02x", bytes[i]);
        st = mn_cache_write(TOKEN_FILE, out->ptr, out->len, &why);
    }
    for (int tries = 0; st && place->rank && tries < 50; tries++) {
        struct timespec moment = {.tv_nsec = 100000000};
        nanosleep(&moment, NULL);
        st = mn_cache_read(TOKEN_FILE, MAX_TOKEN, out, &why);
    }
    if (st)
        return mn_fail(err, st,
                       "rank %u: found no token of the user's own (%s); expected "
                       "rank_token_file or MINERVA_RANK_TOKEN",
                       place->rank, why.msg);
    return MN_OK;
}

static bool is_loopback(const char *host) {
    return !strncmp(host, "127.", 4) || !strcmp(host, "::1") || !strcmp(host, "localhost");
}

static mn_status read_token(const mn_runtime *rt, const mn_rank_place *place, mn_text *out,
                            mn_error *err) {
    const char *path = mn_config_get_str(rt->config, "rank_token_file");
    const char *given = variable("MINERVA_RANK_TOKEN");
    mn_status st = MN_OK;
    if (*path) {
        char *data = NULL;
        uint64_t n = 0;
        st = mn_read_file(path, MAX_TOKEN, &data, &n, err);
        if (!st)
            mn_text_put(out, data, (size_t)n);
        mn_free(data);
    } else if (given && *given)
        mn_text_puts(out, given);
    else if (is_loopback(place->host))
        st = own_token(place, out, err);
    else
        st = mn_fail(err, MN_BAD_INPUT,
                     "rank %u: other machines can reach %s: found no token, expected "
                     "--rank-token-file or MINERVA_RANK_TOKEN, the same on all ranks",
                     place->rank, place->host);
    if (!st && out->failed)
        st = mn_fail_memory(err, MAX_TOKEN);
    if (!st && !trimmed((mn_str){out->ptr, out->len}).len)
        st = mn_fail(err, MN_BAD_INPUT, "rank %u: the token is empty", place->rank);
    return st;
}

/* ---- the seat -------------------------------------------------------------------------------- */
/* The kernel's own number of this boot, which containers of a machine share; else its name. */
static void name_machine(char *out, size_t cap) {
    char *data = NULL;
    uint64_t n = 0;
    if (mn_read_file("/proc/sys/kernel/random/boot_id", cap - 1, &data, &n, NULL) || !n)
        gethostname(out, cap - 1);
    else
        memcpy(out, data, (size_t)n);
    mn_free(data);
}

static void set_seat(mn_registry *reg, mn_ranks_params *p) {
    const mn_device_record *d = p->device;
    mn_rank_seat *seat = &p->seat;
    name_machine(seat->machine, sizeof seat->machine);
    snprintf(seat->uid, sizeof seat->uid, "%s", d->info.uid);
    snprintf(seat->name, sizeof seat->name, "%s", d->name);
    seat->n_devices = count_usable(reg, d->plugin->id);
}

/* ---- joining --------------------------------------------------------------------------------- */
static mn_rank_fact *next_fact(mn_ranks_params *p, const char *name) {
    mn_rank_fact *f = &p->facts[p->n_facts++];
    f->name = name;
    return f;
}

static void set_facts(const mn_model *m, mn_ranks_params *p) {
    const mn_plugin_record *plugin = p->device->plugin;
    const uint32_t abi = MN_ABI_VERSION;
    char text[33];
    mn_rank_fact *f = next_fact(p, "version");
    snprintf(f->value, sizeof f->value, "Minerva %s, ABI %u.%u", mn_version(), abi >> 16,
             abi & 0xffff);
    f = next_fact(p, "plugin");
    snprintf(f->value, sizeof f->value, "%.40s %.40s (%.60s)", plugin->id.ptr, plugin->version,
             plugin->build_id);
    f = next_fact(p, "model");
    mn_rank_model_digest(m->canonical, text);
    snprintf(f->value, sizeof f->value, "%.100s %s", m->name ? m->name : m->arch, text);
}

static void on_broken(void *arg, const char *why) {
    const mn_runtime *rt = arg;
    if (rt->rank_lost)
        rt->rank_lost(rt->callback_arg, why);
}

/* Rank 0: the device of all sessions to come. */
static mn_status add_device(mn_runtime *rt, mn_error *err) {
    mn_device_info info = {.size = sizeof info};
    const mn_status st = mn_ranks_device_info(rt->ranks, &info, err);
    if (st)
        return st;
    rt->ranked = mn_registry_add_ranks(rt->registry, mn_ranks_plugin(rt->ranks), &info);
    return rt->ranked ? MN_OK : mn_fail(err, MN_UNSUPPORTED, "too many groups of devices");
}

mn_status mn_model_join(mn_model *m, uint32_t *rank, mn_error *err) {
    mn_text token = {0};
    mn_ranks_params p = {.broken = on_broken};
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"m", m}, {"rank", rank}, {0}});
    if (!st)
        st = mn_args_same_process(err, __func__, m->rt);
    if (!st)
        st = mn_rank_place_read(variable, &p.place, err);
    if (!st)
        *rank = p.place.rank;
    if (st || p.place.n_ranks < 2)
        return st;
    if (m->rt->ranks)
        return mn_fail(err, MN_INVALID, "mn_model_join: this runtime has joined already");
    st = choose_member(m->rt, &p.place, &p.device, err);
    if (!st)
        st = read_token(m->rt, &p.place, &token, err);
    if (!st) {
        p.arg = m->rt;
        p.files = &m->canonical->files;
        p.token = trimmed((mn_str){token.ptr, token.len});
        p.timeout_ns = (uint64_t)(mn_config_get_float(m->rt->config, "rank_timeout") * 1e9);
        set_facts(m, &p);
        set_seat(m->rt->registry, &p);
        st = mn_ranks_open(&p, &m->rt->ranks, err);
    }
    mn_text_free(&token);
    if (st)
        return st;
    mn_log(MN_LOG_INFO, "rank %u of %u (%s) has joined with %s", p.place.rank, p.place.n_ranks,
           p.place.launcher, p.device->name);
    return p.place.rank ? MN_OK : add_device(m->rt, err);
}

mn_status mn_model_follow(mn_model *m, mn_error *err) {
    const mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"m", m}, {0}});
    if (st)
        return st;
    if (!m->rt->ranks || !mn_ranks_rank(m->rt->ranks))
        return MN_OK;
    return mn_ranks_follow(m->rt->ranks, err);
}

void mn_model_leave(mn_model *m) {
    if (m && m->rt->ranks)
        mn_ranks_leave(m->rt->ranks);
}
