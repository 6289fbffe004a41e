/* host_rules.c -- group host: hosts that are older, newer, poorer or meaner than the plugin
 * expects. Whatever it does, it does not crash, does not read or write outside of what it was
 * given, and releases what it took. */
#include "fence.h"
#include "life.h"
#include <stdio.h>
#include <string.h>

/* Entry on a host of which only the first `readable` bytes may be read. NULL: no plugin. */
static const mn_plugin *enter(check *c, const mn_host *host, size_t readable, mn_error *err) {
    mn_entry_fn entry = check_entry(c);
    fence f = fence_new(readable);
    if (!entry || !f.at)
        return NULL;
    memcpy(f.at, host, readable < sizeof *host ? readable : sizeof *host);
    const mn_plugin *p = entry(f.at, err); // the fence stays: a host outlives its plugins
    return p;
}

static void must_refuse(check *c, const mn_host *host, size_t readable, const char *what) {
    mn_error err = check_error();
    if (!check_entry(c))
        return;
    check_doing(c, MN_ENTRY_NAME " met %s", what);
    const mn_plugin *p = enter(c, host, readable, &err);
    CHECK(c, !p, "%s: found a plugin, expected NULL and an error", what);
    CHECK(c, err.status && memchr(err.msg, 0, sizeof err.msg) && err.msg[0],
          "%s: found NULL without a status or a message in the error", what);
    check_doing(c, MN_ENTRY_NAME " met %s and no mn_error", what);
    CHECK(c, !enter(c, host, readable, NULL), "%s and no mn_error: found a plugin, expected NULL",
          what);
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
        const mn_plugin *p = enter(c, &h.api, n, &err);
        CHECK(c, p || err.msg[0], "%s: found NULL without a message", what);
        if (p)
            p->shutdown(p->self);
        CHECK(c, !atomic_load(&h.live), "%s: found %lld blocks not released", what,
              (long long)atomic_load(&h.live));
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
    const mn_plugin *p = enter(c, &longer.api, sizeof longer.api, &err);
    CHECK(c, p,
          "found NULL (%s), expected a plugin: what is behind the known fields does not concern it",
          err.msg);
    p->shutdown(p->self);
    CHECK(c, !atomic_load(&h.live), "found %lld blocks not released",
          (long long)atomic_load(&h.live));
}

void check_host_major(check *c) {
    check_host h;
    check_host_init(&h);
    h.api.abi = h.api.abi_min = MN_ABI((MN_ABI_VERSION >> 16) + 1, 0);
    h.api.size = 4096;
    must_refuse(c, &h.api, 16, "a host of the next major, of which 16 bytes may be read");
}

void check_host_minor(check *c) {
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    uint32_t abi = p.api->abi;
    check_close(c, &p);
    h.api.abi = abi + 9, h.api.abi_min = abi + 1;
    must_refuse(c, &h.api, sizeof h.api, "a host that needs a newer plugin (abi_min)");
    h.api.abi = h.api.abi_min = MN_ABI(0, 1);
    must_refuse(c, &h.api, sizeof h.api, "a host of ABI 0.1");
}

/* R4: nothing behind `size` is written, and size says what was. */
void check_host_error_size(check *c) {
    check_host h;
    check_plugin p;
    check_host_init(&h);
    if (!check_open(c, &p, &h))
        return;
    check_close(c, &p);
    h.api.abi = h.api.abi_min = MN_ABI((MN_ABI_VERSION >> 16) + 1, 0);
    for (uint32_t n = 8; n <= sizeof(mn_error) + 64; n += n < 64 ? 8 : 96) {
        fence f = fence_new(n);
        CHECK(c, f.at, "out of memory");
        memset(f.at, 0xee, n);
        memcpy(f.at, &n, sizeof n);
        check_doing(c, "an error was written into an mn_error of %u bytes", n);
        const mn_plugin *api = enter(c, &h.api, sizeof h.api, f.at);
        CHECK(c, !api, "found a plugin on a host of the next major");
        uint32_t size;
        int32_t status;
        memcpy(&size, f.at, 4), memcpy(&status, (char *)f.at + 4, 4);
        CHECK(c, size <= n && size >= 8,
              "mn_error of %u bytes: found size %u, expected at most that", n, size);
        CHECK(c, status && status != (int32_t)0xeeeeeeee,
              "mn_error of %u bytes: found no status in it", n);
        CHECK(c,
              size <= offsetof(mn_error, msg) ||
                  memchr((char *)f.at + offsetof(mn_error, msg), 0, size - offsetof(mn_error, msg)),
              "mn_error of %u bytes: found a message without an end", n);
        for (uint32_t i = size; i < n; i++)
            CHECK(c, ((uint8_t *)f.at)[i] == 0xee,
                  "mn_error of %u bytes, size %u: found byte %u written", n, size, i);
        fence_free(&f);
    }
}

/* One function of the host is NULL at a time: the plugin does without it, or says that it
 * cannot. */
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
        mn_status s = life_run(c, &h, NULL, &err);
        CHECK(c, !s || err.msg[0], "a host without %s: found status 0x%x without a message",
              f[i].name, (unsigned)s);
        if (check_over(c))
            return;
        if (!s)
            snprintf(without + strlen(without), sizeof without - strlen(without), " %s", f[i].name);
    }
    check_found(c, "runs without:%s", without[0] ? without : " none");
}

/* Keys that the plugin asks for, each with values that mean nothing. */
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
    mn_status s = life_run(c, &plain, NULL, &err);
    CHECK(c, !s, "without options: found status 0x%x (%s)", (unsigned)s, err.msg);
    for (uint32_t k = 0; k < atomic_load(&plain.n_asked); k++)
        for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++) {
            check_host h;
            check_host_init(&h);
            h.option_key = plain.asked[k], h.option_value = absurd[i];
            err = check_error();
            s = life_run(c, &h, NULL, &err);
            if (c->result->status == CHECK_RUNNING)
                check_doing(c, "option %s was \"%.40s\"", plain.asked[k], absurd[i]);
            CHECK(c, !s || err.msg[0], "option %s = \"%.40s\": found status 0x%x without a message",
                  plain.asked[k], absurd[i], (unsigned)s);
            if (check_over(c))
                return;
            if (!i)
                snprintf(keys + strlen(keys), sizeof keys - strlen(keys), " %s", plain.asked[k]);
        }
    check_found(c, "asks for:%s", keys[0] ? keys : " none");
}

/* once: one allocation fails and the next work again; else all fail from the k-th on. */
static int fail_each(check *c, int once, uint32_t *n) {
    for (int64_t k = 0;; k += k < 200 ? 1 : k / 8, ++*n) {
        check_host h;
        mn_error err = check_error();
        check_host_init(&h);
        atomic_store(&h.fail_in, k);
        h.fail_once = once;
        mn_status s = life_run(c, &h, NULL, &err);
        if (c->result->status == CHECK_FAILED) {
            char was[1000];
            snprintf(was, sizeof was, "%.900s", c->result->message);
            snprintf(c->result->message, sizeof c->result->message, "allocation %lld failed%s: %s",
                     (long long)k, once ? " once" : " and all after it", was);
            return 0;
        }
        if (!atomic_load(&h.refused))
            return 1; // k is behind the last one
        uint32_t class = MN_STATUS_CLASS(s);
        if (s && class != MN_CLASS_SMALLER) {
            check_fail(
                c, "allocation %lld failed: found status 0x%x (%s), expected one of class SMALLER",
                (long long)k, (unsigned)s, err.msg);
            return 0;
        }
        if (s && !err.msg[0]) {
            check_fail(c, "allocation %lld failed: found status 0x%x without a message",
                       (long long)k, (unsigned)s);
            return 0;
        }
    }
}

void check_host_no_memory(check *c) {
    uint32_t n = 0;
    if (fail_each(c, 0, &n) && fail_each(c, 1, &n))
        check_found(c, "%u failures", n);
}

void check_host_cancel(check *c) {
    long long most = 0;
    for (long long k = 0; k <= most && k < 32; k++) {
        check_host h;
        mn_error err = check_error();
        check_host_init(&h);
        atomic_store(&h.stop_in, k);
        check_doing(c, "progress said stop");
        mn_status s = life_run(c, &h, NULL, &err);
        if (check_over(c))
            return;
        most = atomic_load(&h.progressed);
        CHECK(c, !s || s == MN_CANCELLED,
              "progress said stop at call %lld: found status 0x%x (%s), expected MN_CANCELLED or "
              "MN_OK",
              k, (unsigned)s, err.msg);
    }
    check_found(c, "progress is %s", most ? "asked" : "not asked for");
}

/* Two hosts in one process are two selves. */
void check_host_two(check *c) {
    check_host a, b;
    check_plugin p, q;
    int ran;
    mn_error err = check_error();
    check_host_init(&a), check_host_init(&b);
    if (!check_open(c, &p, &a) || !check_open(c, &q, &b))
        return;
    CHECK(c, p.api != q.api && p.api->self != q.api->self,
          "found one self for two hosts, expected two");
    check_close(c, &p);
    CHECK(c, !atomic_load(&a.live),
          "found memory of a host not released after shutdown, while another host's plugin lives");
    check_host third;
    check_host_init(&third);
    mn_status s = life_run(c, &third, &ran, &err);
    CHECK(c, !s, "a third host beside a second: found status 0x%x (%s)", (unsigned)s, err.msg);
    check_doing(c, "query ran after another self was shut down");
    CHECK(c, q.api->query(q.api->self, MN_BACKEND_ID) == q.be_table,
          "found another table after another self was shut down");
    check_close(c, &q);
}

void check_host_again(check *c) {
    for (int i = 0; i < 3; i++) {
        check_host h;
        mn_error err = check_error();
        check_host_init(&h);
        mn_status s = life_run(c, &h, NULL, &err);
        CHECK(c, !s, "life %d of the plugin in one process: found status 0x%x (%s), expected MN_OK",
              i + 1, (unsigned)s, err.msg);
    }
}
