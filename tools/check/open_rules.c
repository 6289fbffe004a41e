/* open_rules.c -- groups open and device: the file becomes a plugin, with devices. What they find,
 * the later groups stand on. */
#include "check.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

void check_open_load(check *c) {
    check_entry(c);
}

/* "Within 50 ms", of which ten times are granted: the check may share the machine. The fastest of
 * three counts, or the processor's time of the first, which alone may initialise something. */
#define ENTRY_NS UINT64_C(500000000)

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void check_open_entry(check *c) {
    check_host h;
    check_plugin p;
    uint64_t least = UINT64_MAX, first_cpu = 0;
    for (int i = 0; i < 3; i++) {
        check_host_init(&h);
        if (!check_entry(c))
            return;
        uint64_t cpu = cpu_ns(), began = check_now_ns();
        if (!check_open(c, &p, &h))
            return;
        uint64_t took = check_now_ns() - began;
        if (i == 0)
            first_cpu = cpu_ns() - cpu;
        if (took < least)
            least = took;
        c->facts->kinds = (p.be ? MN_KIND_BACKEND : 0u) | (p.ld ? MN_KIND_LOADER : 0u);
        check_close(c, &p);
    }
    CHECK(c, least < ENTRY_NS && first_cpu < ENTRY_NS,
          "found %.0f ms (%.0f ms of processor time at first), expected at most 50 ms (500 ms are "
          "granted)",
          (double)least / 1e6, (double)first_cpu / 1e6);
}

static int is_text(mn_str s) {
    return s.len < 4096 && (s.ptr || !s.len) && !(s.len && memchr(s.ptr, 0, s.len));
}

static void judge_identity(check *c, const mn_plugin *p) {
    char id[64] = "";
    CHECK(c, p->size >= offsetof(mn_plugin, shutdown) + sizeof p->shutdown,
          "found mn_plugin of %u bytes, expected at least %zu", p->size, sizeof(mn_plugin));
    CHECK(c, p->abi >= MN_ABI_OLDEST && p->abi >> 16 == MN_ABI_VERSION >> 16,
          "found ABI %u.%u, expected one from %u.%u on of the same major", p->abi >> 16,
          p->abi & 0xffff, MN_ABI_OLDEST >> 16, MN_ABI_OLDEST & 0xffff);
    CHECK(c, p->query && p->shutdown, "found no query or no shutdown");
    CHECK(c, is_text(p->id) && is_text(p->vendor) && is_text(p->version) && is_text(p->build_id),
          "found an id, vendor, version or build_id that is no text");
    if (p->id.len < sizeof id)
        memcpy(id, p->id.ptr, p->id.len);
    CHECK(c, id[0] && !id[strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_")],
          "found id \"%.*s\", expected 1 to 63 characters of [a-z0-9_]",
          (int)(p->id.len < 200 ? p->id.len : 200), p->id.ptr);
    CHECK(c, !c->facts->id[0] || !strcmp(c->facts->id, id), "found id \"%s\"; its note says \"%s\"",
          id, c->facts->id);
    CHECK(c, p->build_id.len,
          "found an empty build_id, expected one that changes with every build");
    memcpy(c->facts->id, id, sizeof id);
    check_found(c, "%s %.*s of %.*s, ABI %u.%u", id, (int)p->version.len, p->version.ptr,
                (int)p->vendor.len, p->vendor.ptr, p->abi >> 16, p->abi & 0xffff);
}

void check_open_identity(check *c) {
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    judge_identity(c, p.api);
    check_close(c, &p);
}

static const char *const strangers[] = {
    "mn.backend/999999", "", "com.example.unheard-of/1", "mn.backend/1 ", "MN.LOADER/1", "%s%n%s"};

void check_open_query(check *c) {
    check_host h;
    check_plugin p;
    uint32_t noted = c->facts->kinds;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        check_doing(c, "query(\"%s\") ran", strangers[i]);
        CHECK(c, !p.api->query(p.api->self, strangers[i]),
              "query(\"%s\"): found a table, expected NULL", strangers[i]);
    }
    CHECK(c, p.be || p.ld, "found neither " MN_BACKEND_ID " nor " MN_LOADER_ID);
    const void *be = p.be_table;
    const void *ld = p.api->query(p.api->self, MN_LOADER_ID);
    CHECK(c,
          p.api->query(p.api->self, MN_BACKEND_ID) == be &&
              p.api->query(p.api->self, MN_LOADER_ID) == ld,
          "found another table at the next query, expected the same");
    CHECK(c, !noted || noted == c->facts->kinds, "the note says kinds 0x%x, query 0x%x", noted,
          c->facts->kinds);
    check_close(c, &p);
}

typedef struct {
    const char *name;
    size_t at;
} function;
#define F(T, f)                                                                                    \
    { #f, offsetof(T, f) }
/* What the host cannot do without; the rest it does not call where it is NULL. */
static const function backend_functions[] = {
    F(mn_backend, device_count), F(mn_backend, device_info),  F(mn_backend, device_open),
    F(mn_backend, device_close), F(mn_backend, contracts),    F(mn_backend, supports),
    F(mn_backend, estimate),     F(mn_backend, alloc),        F(mn_backend, buffer_free),
    F(mn_backend, map),          F(mn_backend, queue_create), F(mn_backend, queue_free),
    F(mn_backend, write),        F(mn_backend, read),         F(mn_backend, copy),
    F(mn_backend, wait),         F(mn_backend, queue_wait),   F(mn_backend, event_free),
    F(mn_backend, weights_open), F(mn_backend, weights_put),  F(mn_backend, weights_seal),
    F(mn_backend, weights_free), F(mn_backend, kv_layout),    F(mn_backend, kv_copy),
    F(mn_backend, compile),      F(mn_backend, program_free), F(mn_backend, context_create),
    F(mn_backend, context_bind), F(mn_backend, execute),      F(mn_backend, context_free)};
static const function loader_functions[] = {F(mn_loader, guess),   F(mn_loader, open),
                                            F(mn_loader, meta_at), F(mn_loader, tensor_at),
                                            F(mn_loader, close),   F(mn_loader, patterns)};

static void judge_table(check *c, const char *what, const void *table, const function *f,
                        size_t n) {
    uint32_t size;
    memcpy(&size, table, sizeof size);
    for (size_t i = 0; i < n; i++) {
        void *fn = NULL;
        if (size >= f[i].at + sizeof fn)
            memcpy(&fn, (const char *)table + f[i].at, sizeof fn);
        CHECK(c, fn, "%s: found %s %s, expected a function", what, f[i].name,
              size >= f[i].at + sizeof fn ? "NULL" : "outside of the table's size");
    }
}

void check_open_table(check *c) {
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    if (p.be)
        judge_table(c, MN_BACKEND_ID, p.be, backend_functions,
                    sizeof backend_functions / sizeof *backend_functions);
    if (p.ld)
        judge_table(c, MN_LOADER_ID, p.ld, loader_functions,
                    sizeof loader_functions / sizeof *loader_functions);
    check_close(c, &p);
}

/* ---- device ---------------------------------------------------------------------------------- */
static void judge_info(check *c, uint32_t i, const mn_device_info *d) {
    const char *const text[] = {d->name, d->uid, d->driver, d->mem_pool};
    for (int k = 0; k < 4; k++)
        CHECK(c, memchr(text[k], 0, 64), "device %u: found a name without an end in mn_device_info",
              i);
    CHECK(c, d->size && d->size <= sizeof *d,
          "device %u: found size %u, expected what was filled, at most %zu", i, d->size, sizeof *d);
    CHECK(c, d->kind >= MN_DEVICE_CPU && d->kind <= MN_DEVICE_OTHER,
          "device %u: found kind %u, expected 1 to 4", i, d->kind);
    CHECK(c, d->name[0] && d->uid[0] && d->mem_pool[0],
          "device %u: found an empty name, uid or mem_pool", i);
    CHECK(c, d->align && !(d->align & (d->align - 1)),
          "device %u: found align %llu, expected a power of 2", i, (unsigned long long)d->align);
    CHECK(c, d->mem_total && d->mem_free <= d->mem_total,
          "device %u: found %llu bytes free of %llu", i, (unsigned long long)d->mem_free,
          (unsigned long long)d->mem_total);
    CHECK(c,
          d->mem_gbps >= 0 && d->fp16_tflops >= 0 && d->int8_tops >= 0 && d->launch_us >= 0 &&
              d->h2d_gbps >= 0,
          "device %u: found a rate below 0 or no number, expected 0 for unknown", i);
}

static void list(check *c, check_plugin *p) {
    uint32_t n = 0;
    check_doing(c, "device_count ran");
    mn_status s = p->be->device_count(p->api->self, &n, &p->err);
    CHECK(c, !s || MN_STATUS_CLASS(s) == MN_CLASS_REFUSE,
          "device_count: found status 0x%x (%s), expected MN_OK or a refusal", (unsigned)s,
          p->err.msg);
    CHECK(c, !s || p->err.msg[0], "device_count: found status 0x%x without a message", (unsigned)s);
    c->facts->n_devices = s ? 0 : n;
    snprintf(c->facts->no_device, sizeof c->facts->no_device, "%s",
             s   ? p->err.msg
             : n ? ""
                 : "device_count says 0");
    check_found(c, "%u devices%s%s", c->facts->n_devices, s ? ": " : "", s ? p->err.msg : "");
    for (uint32_t i = 0; i < c->facts->n_devices; i++) {
        mn_device_info d = {.size = sizeof d};
        check_doing(c, "device_info(%u) ran", i);
        s = p->be->device_info(p->api->self, i, &d, &p->err);
        CHECK(c, !s, "device_info(%u): found status 0x%x (%s)", i, (unsigned)s, p->err.msg);
        judge_info(c, i, &d);
    }
    for (uint32_t i = 0, bad[] = {c->facts->n_devices, 9999, ~0u}; i < 3; i++) {
        mn_device_info d = {.size = sizeof d};
        mn_device *dev = NULL;
        check_doing(c, "device_info and device_open of device %u, which does not exist, ran",
                    bad[i]);
        CHECK(c,
              p->be->device_info(p->api->self, bad[i], &d, NULL) &&
                  p->be->device_open(p->api->self, bad[i], &dev, NULL),
              "device %u: found MN_OK, expected an error, as there are %u devices", bad[i],
              c->facts->n_devices);
    }
}

void check_device_list(check *c) {
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    list(c, &p);
    check_close(c, &p);
}

void check_device_open(check *c) {
    check_host h;
    check_plugin p;
    uint64_t free_bytes = 1, total = 0;
    check_host_init(&h);
    if (!check_open_device(c, &p, &h))
        return;
    if (MN_HAS(mn_backend, p.be, device_memory)) {
        check_doing(c, "device_memory ran");
        mn_status s = p.be->device_memory(p.dev, &free_bytes, &total, &p.err);
        CHECK(c, !s && free_bytes <= total && total,
              "device_memory: found status 0x%x, %llu bytes free of %llu", (unsigned)s,
              (unsigned long long)free_bytes, (unsigned long long)total);
    }
    check_close(c, &p);
}

void check_device_self_test(check *c) {
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open_device(c, &p, &h))
        return;
    if (!MN_HAS(mn_backend, p.be, self_test)) {
        check_close(c, &p);
        check_skip(c, "the plugin has no self_test");
        return;
    }
    check_doing(c, "self_test ran");
    mn_status s = p.be->self_test(p.dev, &p.err);
    CHECK(c, !s, "self_test: found status 0x%x (%s), expected MN_OK", (unsigned)s, p.err.msg);
    check_close(c, &p);
}

void check_device_contracts(check *c) {
    check_host h;
    check_plugin p;
    const uint32_t(*table)[2] = NULL;
    uint32_t n = 0;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    check_doing(c, "contracts ran");
    mn_status s = p.be->contracts(p.api->self, &table, &n);
    CHECK(c, !s && (table || !n), "contracts: found status 0x%x", (unsigned)s);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(c, table[i][0] && table[i][1],
              "contracts: found op %u version %u, expected both from 1 on", table[i][0],
              table[i][1]);
        for (uint32_t k = 0; k < i; k++)
            CHECK(c, table[k][0] != table[i][0], "contracts: found op %u twice", table[i][0]);
    }
    for (uint32_t i = 0, ids[] = {0, 1, 2, 3, 1000, ~0u}; i < 6 && MN_HAS(mn_backend, p.be, reason);
         i++)
        for (uint32_t cap = 0; cap <= 16; cap += 8) {
            char buf[24];
            memset(buf, 0x6e, sizeof buf);
            check_doing(c, "reason(%u) with room for %u bytes ran", ids[i], cap);
            p.be->reason(p.api->self, ids[i], buf, cap);
            CHECK(c, buf[cap] == 0x6e && (!cap || memchr(buf, 0, cap)),
                  "reason(%u) with room for %u bytes: found more written, or no NUL", ids[i], cap);
        }
    check_found(c, "%u ops", n);
    check_close(c, &p);
}
