/* host_rules.c -- group host: hosts that are older or newer than the plugin, lack functions,
 * refuse memory, or answer with odd values. The plugin may refuse them; it must not crash, nor
 * access memory outside of the structs that it is given, and it must release all memory. Structs
 * that end early stand before a page without access (fence.h); a whole life of the plugin is
 * life_run. */
#include "fence.h"
#include "life.h"
#include <stdio.h>
#include <string.h>

/* Enters the plugin with a host of which only the first `readable` bytes can be read. NULL:
 * refused. */
static const mn_plugin *host_rule_enter(check *c, const mn_host *host, size_t readable,
                                        mn_error *err) {
    mn_entry_fn entry = check_entry(c);
    fence f = fence_new(readable);
    if (!entry || !f.at)
        return NULL;
    memcpy(f.at, host, readable < sizeof *host ? readable : sizeof *host);
    return entry(f.at, err); // the fence is not freed: the host lives longer than its plugins
}

static void must_refuse(check *c, const mn_host *host, size_t readable, const char *what) {
    mn_error err = check_error();
    if (!check_entry(c))
        return;
    check_doing(c, MN_ENTRY_NAME " met %s", what);
    const mn_plugin *p = host_rule_enter(c, host, readable, &err);
    CHECK(c, !p, "%s: found a plugin, expected NULL and an error", what);
    CHECK(c, err.status && memchr(err.msg, 0, sizeof err.msg) && err.msg[0],
          "%s: found NULL without a status or a message in the error, expected both", what);
    check_doing(c, MN_ENTRY_NAME " met %s and no mn_error", what);
    CHECK(c, !host_rule_enter(c, host, readable, NULL),
          "%s and no mn_error: found a plugin, expected NULL", what);
}

static void must_be_released(check *c, const check_host *h, const char *what) {
    const long long live = atomic_load(&h->live);
    CHECK(c, !live, "%s: found %lld blocks not released after shutdown, expected none", what, live);
}

void check_host_truncated(check *c) {
    check_host h;
    char what[64];
    check_host_init(&h);
    h.api.size = 16;
    must_refuse(c, &h.api, 16, "a host of 16 bytes");
    for (uint32_t n = 24; n < sizeof(mn_host) && !check_over(c); n += 8) {
        mn_error err = check_error();
        snprintf(what, sizeof what, "a host of %u bytes", n);
        h.api.size = n;
        check_doing(c, MN_ENTRY_NAME " met %s", what);
        const mn_plugin *p = host_rule_enter(c, &h.api, n, &err);
        CHECK(c, p || err.msg[0], "%s: found NULL without a message, expected one", what);
        if (p)
            p->shutdown(p->self);
        must_be_released(c, &h, what);
    }
}

void check_host_longer(check *c) {
    struct {
        mn_host api;
        uint64_t more[32];
    } longer;
    check_host h;
    check_host_init(&h);
    memset(&longer, 0xee, sizeof longer);
    longer.api = h.api;
    longer.api.size = sizeof longer;
    mn_error err = check_error();
    check_doing(c, MN_ENTRY_NAME " met a host that is longer than the plugin knows");
    const mn_plugin *p = host_rule_enter(c, &longer.api, sizeof longer.api, &err);
    CHECK(c, p, "found NULL (%s), expected a plugin that ignores what is behind the known fields",
          err.msg);
    p->shutdown(p->self);
    must_be_released(c, &h, "a longer host");
}

/* The host has that version alone. */
static void set_abi(check_host *h, uint32_t abi) {
    h->api.abi = abi;
    h->api.abi_min = abi;
}

void check_host_major(check *c) {
    check_host h;
    check_host_init(&h);
    set_abi(&h, MN_ABI((MN_ABI_VERSION >> 16) + 1, 0));
    h.api.size = 4096;
    must_refuse(c, &h.api, 16, "a host of the next major, of which 16 bytes may be read");
}

/* Whether the text has the version, and not as the beginning of another one. */
static int names_version(const char *text, uint32_t abi) {
    char version[24];
    const size_t n = (size_t)snprintf(version, sizeof version, "%u.%u", abi >> 16, abi & 0xffff);
    for (const char *at = strstr(text, version); at; at = strstr(at + 1, version))
        if ((at == text || !mn_is_digit(at[-1])) && !mn_is_digit(at[n]))
            return 1;
    return 0;
}

/* A host of these versions; oldest, newest: the plugin's own. */
static void refuse_version(check *c, uint32_t abi, uint32_t abi_min, uint32_t oldest,
                           uint32_t newest) {
    check_host h;
    mn_error err = check_error();
    char what[80];
    check_host_init(&h);
    h.api.abi = abi;
    h.api.abi_min = abi_min;
    snprintf(what, sizeof what, "a host of ABI %u.%u that accepts plugins from %u.%u on", abi >> 16,
             abi & 0xffff, abi_min >> 16, abi_min & 0xffff);
    must_refuse(c, &h.api, sizeof h.api, what);
    if (check_over(c))
        return;
    host_rule_enter(c, &h.api, sizeof h.api, &err);
    must_be_released(c, &h, what);
    const int own = names_version(err.msg, oldest) || names_version(err.msg, newest);
    const int hosts = names_version(err.msg, abi) || names_version(err.msg, abi_min);
    CHECK(c, own && hosts,
          "%s: found the message \"%.200s\", expected one that names both versions", what, err.msg);
}

/* With --abi OLDER that host, too. */
void check_host_minor(check *c) {
    uint32_t oldest;
    const uint32_t abi = check_note_abi(c, &oldest);
    const uint32_t older = check_host_played();
    if (older < oldest)
        refuse_version(c, older, older, oldest, abi);
    refuse_version(c, abi + 9, abi + 1, oldest, abi);
    refuse_version(c, MN_ABI(0, 1), MN_ABI(0, 1), oldest, abi);
}

/* An mn_error of n bytes that a refused entry has filled. R4: nothing behind `size` is written,
 * and size states how much was. */
static void judge_error(check *c, const uint8_t *bytes, uint32_t n) {
    const uint32_t text = offsetof(mn_error, msg);
    uint32_t size;
    int32_t status;
    memcpy(&size, bytes, 4);
    memcpy(&status, bytes + 4, 4);
    CHECK(c, size <= n && size >= 8, "mn_error of %u bytes: found size %u, expected 8 to %u", n,
          size, n);
    CHECK(c, status && status != (int32_t)0xeeeeeeee,
          "mn_error of %u bytes: found no status in it, expected one", n);
    CHECK(c, size <= text || memchr(bytes + text, 0, size - text),
          "mn_error of %u bytes: found a message without its NUL, expected one", n);
    for (uint32_t i = size; i < n; i++)
        CHECK(c, bytes[i] == 0xee, "mn_error of %u bytes, size %u: found byte %u written", n, size,
              i);
}

void check_host_error_size(check *c) {
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    check_close(c, &p);
    set_abi(&h, MN_ABI((MN_ABI_VERSION >> 16) + 1, 0));
    for (uint32_t n = 8; n <= sizeof(mn_error) + 64; n += n < 64 ? 8 : 96) {
        fence f = fence_new(n);
        CHECK(c, f.at, "out of memory");
        memset(f.at, 0xee, n);
        memcpy(f.at, &n, sizeof n);
        check_doing(c, "an error was written into an mn_error of %u bytes", n);
        const mn_plugin *api = host_rule_enter(c, &h.api, sizeof h.api, f.at);
        CHECK(c, !api, "found a plugin on a host of the next major, expected NULL");
        judge_error(c, f.at, n);
        fence_free(&f);
    }
}

/* Appends " name" to a list, as far as there is room. */
static void add_word(char *list, size_t room, const char *name) {
    const size_t n = strlen(list);
    snprintf(list + n, room - n, " %s", name);
}

/* One function of the host is NULL at a time: the plugin works, or refuses with a message. */
void check_host_missing(check *c) {
    static const struct {
        const char *name;
        size_t at;
    } f[] = {{"log", offsetof(mn_host, log)},         {"alloc", offsetof(mn_host, alloc)},
             {"release", offsetof(mn_host, release)}, {"parallel", offsetof(mn_host, parallel)},
             {"workers", offsetof(mn_host, workers)}, {"progress", offsetof(mn_host, progress)},
             {"now_ns", offsetof(mn_host, now_ns)},   {"option", offsetof(mn_host, option)},
             {"query", offsetof(mn_host, query)},     {"team", offsetof(mn_host, team)}};
    char without[128] = "";
    for (size_t i = 0; i < sizeof f / sizeof f[0]; i++) {
        check_host h;
        mn_error err = check_error();
        check_host_init(&h);
        memset((char *)&h.api + f[i].at, 0, sizeof(void *));
        const mn_status st = life_run(c, &h, &err);
        CHECK(c, !st || err.msg[0],
              "a host without %s: found status 0x%x without a message, expected one", f[i].name,
              (unsigned)st);
        if (check_over(c))
            return;
        if (!st)
            add_word(without, sizeof without, f[i].name);
    }
    check_found(c, "runs without:%s", without[0] ? without : " none");
}

/* One option with a value that has no meaning. */
static void odd_option(check *c, const char *key, const char *value) {
    check_host h;
    mn_error err = check_error();
    check_host_init(&h);
    h.option_key = key;
    h.option_value = value;
    const mn_status st = life_run(c, &h, &err);
    if (!check_over(c))
        check_doing(c, "option %s was \"%.40s\"", key, value);
    CHECK(c, !st || err.msg[0],
          "option %s = \"%.40s\": found status 0x%x without a message, expected one", key, value,
          (unsigned)st);
}

/* The keys that the plugin asks for, each with all of these values. */
void check_host_options(check *c) {
    static const char *const absurd[] = {
        "",
        "-1",
        "99999999999999999999999",
        "no-such-value",
        "0",
        "nan",
        "\xff\xfe%n%s",
        " 1 ",
        "1e308",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    check_host plain;
    mn_error err = check_error();
    char keys[256] = "";
    check_host_init(&plain);
    CHECK_OK(c, life_run(c, &plain, &err), &err, "a host without options");
    for (uint32_t k = 0; k < atomic_load(&plain.n_asked); k++) {
        const char *key = plain.asked[k];
        for (size_t i = 0; i < sizeof absurd / sizeof absurd[0] && !check_over(c); i++)
            odd_option(c, key, absurd[i]);
        add_word(keys, sizeof keys, key);
    }
    check_found(c, "asks for:%s", keys[0] ? keys : " none");
}

/* Puts the allocation before the message of a rule that has failed. */
static void name_allocation(check_result *r, long long k, int once) {
    char was[1000];
    snprintf(was, sizeof was, "%.900s", r->message);
    snprintf(r->message, sizeof r->message, "allocation %lld failed%s: %s", k,
             once ? " once" : " and all after it", was);
}

/* A life in which allocation k fails: once, or with all later ones. 0 = there is no allocation
 * k, or the rule has failed. */
static int live_without(check *c, long long k, int once) {
    check_host h;
    mn_error err = check_error();
    check_host_init(&h);
    atomic_store(&h.fail_in, k);
    h.fail_once = once;
    const mn_status st = life_run(c, &h, &err);
    if (c->result->status == CHECK_FAILED) {
        name_allocation(c->result, k, once);
        return 0;
    }
    if (!atomic_load(&h.refused))
        return 0;
    if (!st)
        return 1;
    if (MN_STATUS_CLASS(st) != MN_CLASS_SMALLER)
        check_fail(c,
                   "allocation %lld failed: found status 0x%x (%s), expected one of class SMALLER",
                   k, (unsigned)st, err.msg);
    else if (!err.msg[0])
        check_fail(c, "allocation %lld failed: found status 0x%x without a message, expected one",
                   k, (unsigned)st);
    return !check_over(c);
}

/* Each of the first 200 allocations, then fewer. The number of lives. */
static uint32_t fail_each(check *c, int once) {
    long long k = 0;
    uint32_t n = 0;
    while (live_without(c, k, once)) {
        k += k < 200 ? 1 : k / 8;
        n++;
    }
    return n;
}

void check_host_no_memory(check *c) {
    uint32_t n = fail_each(c, 0);
    if (!check_over(c))
        n += fail_each(c, 1);
    check_found(c, "%u failures", n);
}

void check_host_cancel(check *c) {
    long long most = 0;
    for (long long k = 0; k <= most && k < 32; k++) {
        check_host h;
        mn_error err = check_error();
        check_host_init(&h);
        atomic_store(&h.stop_in, k);
        check_doing(c, "progress requested a stop");
        const mn_status st = life_run(c, &h, &err);
        if (check_over(c))
            return;
        most = atomic_load(&h.progressed);
        CHECK(c, !st || st == MN_CANCELLED,
              "progress requested a stop at call %lld: found status 0x%x (%s), expected "
              "MN_CANCELLED or "
              "MN_OK",
              k, (unsigned)st, err.msg);
    }
    check_found(c, "progress is %s", most ? "called" : "not called");
}

/* Three hosts in one process: p is shut down while q lives, then a third one comes and goes. */
void check_host_two(check *c) {
    check_host a;
    check_host b;
    check_host third;
    check_plugin p;
    check_plugin q;
    mn_error err = check_error();
    check_host_init(&a);
    check_host_init(&b);
    check_host_init(&third);
    if (!check_open(c, &p, &a) || !check_open(c, &q, &b))
        return;
    CHECK(c, p.api != q.api && p.api->self != q.api->self,
          "found one self for two hosts, expected two");
    check_close(c, &p);
    must_be_released(c, &a, "a host beside another one");
    CHECK_OK(c, life_run(c, &third, &err), &err, "a third host beside a second");
    check_doing(c, "query ran after another self was shut down");
    CHECK(c, q.api->query(q.api->self, MN_BACKEND_ID) == q.be_table,
          "found another table after another self was shut down, expected the same");
    check_close(c, &q);
}

void check_host_again(check *c) {
    for (int i = 0; i < 3; i++) {
        check_host h;
        mn_error err = check_error();
        check_host_init(&h);
        mn_status st = life_run(c, &h, &err);
        CHECK_OK(c, st, &err, "life %d of the plugin in one process", i + 1);
    }
}
