/* open_rules.c -- groups open and device: opening the file, entering the plugin, its interfaces
 * and tables, its devices. Later groups use what these find (check_facts), and are skipped where
 * one of these fails. */
#include "life.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

void check_open_load(check *c) {
    check_entry(c);
}

/* The rule is 50 ms; ten times that is allowed, since other programs may use the machine. The
 * fastest of three entries counts, and the processor time of the first, which alone may
 * initialise something. */
#define ENTRY_NS UINT64_C(500000000)

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void check_open_entry(check *c) {
    check_host h;
    check_plugin p;
    uint64_t least = UINT64_MAX;
    uint64_t first_cpu = 0;
    if (!check_entry(c))
        return;
    for (int i = 0; i < 3; i++) {
        check_host_init(&h);
        const uint64_t cpu = cpu_ns();
        const uint64_t began = check_now_ns();
        if (!check_open(c, &p, &h))
            return;
        const uint64_t took = check_now_ns() - began;
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

static int open_rule_is_text(mn_str s) {
    if (!s.len)
        return 1;
    return s.len < 4096 && s.ptr && !memchr(s.ptr, 0, s.len);
}

static void judge_identity(check *c, const mn_plugin *p) {
    char id[64] = "";
    CHECK(c, p->size >= offsetof(mn_plugin, shutdown) + sizeof p->shutdown,
          "found mn_plugin of %u bytes, expected at least %zu", p->size, sizeof(mn_plugin));
    CHECK(c, p->abi >= MN_ABI_OLDEST && p->abi >> 16 == MN_ABI_VERSION >> 16,
          "found ABI %u.%u, expected one from %u.%u on of the same major", p->abi >> 16,
          p->abi & 0xffff, MN_ABI_OLDEST >> 16, MN_ABI_OLDEST & 0xffff);
    CHECK(c, p->query && p->shutdown, "found no query or no shutdown");
    const int has_texts =
        open_rule_is_text(p->id) && open_rule_is_text(p->vendor) && open_rule_is_text(p->version);
    CHECK(c, has_texts && open_rule_is_text(p->build_id),
          "found an id, vendor, version or build_id that is not a text");
    if (p->id.len < sizeof id)
        memcpy(id, p->id.ptr, p->id.len);
    CHECK(c, id[0] && !id[strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_")],
          "found id \"%.*s\", expected 1 to 63 characters of [a-z0-9_]",
          (int)(p->id.len < 200 ? p->id.len : 200), p->id.ptr);
    CHECK(c, !c->facts->id[0] || !strcmp(c->facts->id, id),
          "found id \"%s\", expected \"%s\" as in the note", id, c->facts->id);
    CHECK(
        c, p->build_id.len || check_has_build_id(c),
        "found an empty build_id and no build id of the linker, expected one of them: a text that "
        "changes with every build, or -Wl,--build-id");
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

static const char *const unknown_ids[] = {
    "mn.backend/999999", "", "com.example.unheard-of/1", "mn.backend/1 ", "MN.LOADER/1", "%s%n%s"};

void check_open_query(check *c) {
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    const mn_plugin *api = p.api;
    for (size_t i = 0; i < sizeof unknown_ids / sizeof unknown_ids[0]; i++) {
        check_doing(c, "query(\"%s\") ran", unknown_ids[i]);
        CHECK(c, !api->query(api->self, unknown_ids[i]),
              "query(\"%s\"): found a table, expected NULL", unknown_ids[i]);
    }
    const uint32_t noted = check_note_kinds(c);
    CHECK(c, !noted || noted == c->facts->kinds,
          "found tables for kinds 0x%x, expected 0x%x as in the note", c->facts->kinds, noted);
    CHECK(c, p.be || p.ld, "found neither " MN_BACKEND_ID " nor " MN_LOADER_ID ", expected one");
    const void *loader = api->query(api->self, MN_LOADER_ID);
    CHECK(c, api->query(api->self, MN_BACKEND_ID) == p.be_table,
          "found another backend table at the next query, expected the same");
    CHECK(c, api->query(api->self, MN_LOADER_ID) == loader,
          "found another loader table at the next query, expected the same");
    check_close(c, &p);
}

typedef struct {
    const char *name;
    size_t at;
} function;
#define F(T, f)                                                                                    \
    { #f, offsetof(T, f) }
/* Functions that must be there; all others are optional, and NULL where the plugin lacks them. */
static const function backend_functions[] = {
    F(mn_backend, device_count), F(mn_backend, device_info),   F(mn_backend, device_open),
    F(mn_backend, device_close), F(mn_backend, contracts),     F(mn_backend, supports),
    F(mn_backend, estimate),     F(mn_backend, alloc),         F(mn_backend, buffer_free),
    F(mn_backend, map),          F(mn_backend, queue_create),  F(mn_backend, queue_free),
    F(mn_backend, write),        F(mn_backend, read),          F(mn_backend, copy),
    F(mn_backend, wait),         F(mn_backend, queue_wait),    F(mn_backend, event_free),
    F(mn_backend, weights_open), F(mn_backend, weights_put),   F(mn_backend, weights_seal),
    F(mn_backend, weights_free), F(mn_backend, memory_layout), F(mn_backend, memory_copy),
    F(mn_backend, compile),      F(mn_backend, program_free),  F(mn_backend, context_create),
    F(mn_backend, context_bind), F(mn_backend, execute),       F(mn_backend, context_free)};
static const function loader_functions[] = {F(mn_loader, guess),   F(mn_loader, open),
                                            F(mn_loader, meta_at), F(mn_loader, tensor_at),
                                            F(mn_loader, close),   F(mn_loader, patterns)};

/* id: of the interface; f: [n]. */
static void judge_table(check *c, const char *id, const void *table, const function *f, size_t n) {
    uint32_t size;
    memcpy(&size, table, sizeof size);
    for (size_t i = 0; i < n; i++) {
        void *fn = NULL;
        CHECK(c, size >= f[i].at + sizeof fn,
              "%s: found %s outside of the table's size, expected a function", id, f[i].name);
        memcpy(&fn, (const char *)table + f[i].at, sizeof fn);
        CHECK(c, fn, "%s: found %s NULL, expected a function", id, f[i].name);
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
static int has_end(const char text[64]) {
    return memchr(text, 0, 64) != NULL;
}

/* The output of device_info for device i. */
static void judge_info(check *c, uint32_t i, const mn_device_info *d) {
    const int has_ends = has_end(d->name) && has_end(d->uid) && has_end(d->driver);
    const int has_rates = d->mem_gbps >= 0 && d->fp16_tflops >= 0 && d->int8_tops >= 0;
    CHECK(c, has_ends && has_end(d->mem_pool),
          "device %u: found a text without its NUL, expected one within 64 bytes", i);
    CHECK(c, d->size && d->size <= sizeof *d,
          "device %u: found size %u, expected the number of bytes filled, at most %zu", i, d->size,
          sizeof *d);
    CHECK(c, d->kind >= MN_DEVICE_CPU && d->kind <= MN_DEVICE_OTHER,
          "device %u: found kind %u, expected 1 to 4", i, d->kind);
    CHECK(c, d->name[0] && d->uid[0] && d->mem_pool[0],
          "device %u: found an empty name, uid or mem_pool, expected a text", i);
    CHECK(c, d->align && !(d->align & (d->align - 1)),
          "device %u: found align %llu, expected a power of 2", i, (unsigned long long)d->align);
    CHECK(c, d->mem_total && d->mem_free <= d->mem_total,
          "device %u: found %llu bytes free of %llu, expected a total above 0 and no more free", i,
          (unsigned long long)d->mem_free, (unsigned long long)d->mem_total);
    CHECK(c, has_rates && d->launch_us >= 0 && d->h2d_gbps >= 0,
          "device %u: found a rate below 0 or NaN, expected 0 for unknown", i);
}

/* Fills the facts. A plugin may refuse, with a message why it has no device. */
static void count_devices(check *c, check_plugin *p) {
    check_facts *facts = c->facts;
    const char *why = "";
    uint32_t n = 0;
    check_doing(c, "device_count ran");
    const mn_status st = p->be->device_count(p->api->self, &n, &p->err);
    CHECK(c, !st || MN_STATUS_CLASS(st) == MN_CLASS_REFUSE,
          "device_count: found status 0x%x (%s), expected MN_OK or MN_UNSUPPORTED", (unsigned)st,
          p->err.msg);
    CHECK(c, !st || p->err.msg[0],
          "device_count: found status 0x%x without a message, expected one", (unsigned)st);
    facts->n_devices = 0;
    if (!st)
        facts->n_devices = n;
    if (st)
        why = p->err.msg;
    else if (n == 0)
        why = "device_count is 0";
    snprintf(facts->no_device, sizeof facts->no_device, "%s", why);
    check_found(c, "%u devices%s%s", facts->n_devices, st ? ": " : "", st ? why : "");
}

/* st: what was returned for index i, which is past the last one. Where device_count fails, so may
 * this, in the same way. */
static void judge_missing(check *c, const char *call, uint32_t i, mn_status st) {
    const uint32_t n = c->facts->n_devices;
    CHECK(c, st == MN_NO_DEVICE || (st && !n),
          "%s of device %u: found %s (0x%x), expected MN_NO_DEVICE, as device_count is %u", call, i,
          st ? "another error" : "MN_OK", (unsigned)st, n);
}

static void must_not_exist(check *c, check_plugin *p, uint32_t i) {
    mn_device_info d = {.size = sizeof d};
    mn_device *dev = NULL;
    check_doing(c, "device_info and device_open of device %u, which does not exist, ran", i);
    judge_missing(c, "device_info", i, p->be->device_info(p->api->self, i, &d, NULL));
    judge_missing(c, "device_open", i, mn_usual_open(p->be, p->api->self, i, &dev, NULL));
}

static void open_rule_list(check *c, check_plugin *p) {
    count_devices(c, p);
    for (uint32_t i = 0; i < c->facts->n_devices; i++) {
        mn_device_info d = {.size = sizeof d};
        check_doing(c, "device_info(%u) ran", i);
        mn_status st = p->be->device_info(p->api->self, i, &d, &p->err);
        CHECK_OK(c, st, &p->err, "device_info(%u)", i);
        judge_info(c, i, &d);
    }
    must_not_exist(c, p, c->facts->n_devices);
    must_not_exist(c, p, 9999);
    must_not_exist(c, p, ~0u);
}

void check_device_list(check *c) {
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    open_rule_list(c, &p);
    if (!check_over(c))
        check_close(c, &p);
}

void check_device_open(check *c) {
    check_host h;
    check_plugin p;
    uint64_t free_bytes = 1;
    uint64_t total = 0;
    check_host_init(&h);
    if (!check_open_device(c, &p, &h))
        return;
    if (MN_HAS(mn_backend, p.be, device_memory)) {
        check_doing(c, "device_memory ran");
        mn_status st = p.be->device_memory(p.dev, &free_bytes, &total, &p.err);
        CHECK_OK(c, st, &p.err, "device_memory");
        CHECK(c, free_bytes <= total && total,
              "device_memory: found %llu bytes free of %llu, expected a total above 0 and no more "
              "free",
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
    CHECK_OK(c, p.be->self_test(p.dev, &p.err), &p.err, "self_test");
    check_close(c, &p);
}

/* Bytes of an mn_op_contract of the first release. */
#define FIRST_STRIDE (offsetof(mn_op_contract, contract) + sizeof(uint32_t))

static void judge_contracts(check *c, const op_contracts *list) {
    for (uint32_t i = 0; i < list->n; i++) {
        const uint32_t op = op_contract(list, i)->op;
        const uint32_t version = op_contract(list, i)->contract;
        CHECK(c, op && version, "contracts: found op %u version %u, expected both from 1 on", op,
              version);
        for (uint32_t k = 0; k < i; k++)
            CHECK(c, op_contract(list, k)->op != op,
                  "contracts: found op %u twice, expected it once", op);
    }
}

/* The text of a reason into room for n bytes, at most 16. */
static void judge_reason(check *c, const check_plugin *p, uint32_t id, uint32_t n) {
    char text[24];
    memset(text, 0x6e, sizeof text);
    check_doing(c, "reason(%u) with room for %u bytes ran", id, n);
    p->be->reason(p->api->self, id, text, n);
    CHECK(c, text[n] == 0x6e && (!n || memchr(text, 0, n)),
          "reason(%u) with room for %u bytes: found more written, or no NUL", id, n);
}

void check_device_contracts(check *c) {
    static const uint32_t reasons[] = {0, 1, 2, 3, 1000, ~0u};
    check_host h;
    check_plugin p;
    op_contracts list = {0};
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    check_doing(c, "contracts ran");
    CHECK_OK(c, p.be->contracts(p.api->self, &list.at, &list.n, &list.stride), NULL, "contracts");
    CHECK(c, list.at || !list.n, "contracts: found NULL for %u ops, expected a table", list.n);
    CHECK(c, !list.n || list.stride >= FIRST_STRIDE,
          "contracts: found a stride of %u bytes, expected at least %zu", list.stride,
          FIRST_STRIDE);
    judge_contracts(c, &list);
    const int has_reason = MN_HAS(mn_backend, p.be, reason);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons && has_reason && !check_over(c); i++)
        for (uint32_t room = 0; room <= 16; room += 8)
            judge_reason(c, &p, reasons[i], room);
    if (check_over(c))
        return;
    check_found(c, "%u ops", list.n);
    check_close(c, &p);
}
