/* open.c -- the plugin in the process of a rule: the file is opened once (dlopen) and never closed;
 * the rule may enter it several times.
 *
 * check_open fills a check_plugin, which the rule owns until check_close; the blocks of the host
 * that are left then are a fault. Calls outside of the watched tables (dlopen, entry, query,
 * shutdown) are announced to watch.c here. */
#include "watch.h"
#include "wide.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

mn_error check_error(void) {
    return (mn_error){.size = sizeof(mn_error), .node = ~0u};
}

/* The entry of the file, which is opened at the first call. NULL: the failure is reported. */
mn_entry_fn check_entry(check *c) {
    static void *so; // one file per process
    mn_entry_fn entry = NULL;
    if (!so) {
        check_doing(c, "the file was opened (its constructors ran)");
        watch_begin(c, "dlopen");
        so = dlopen(c->path, RTLD_NOW | RTLD_LOCAL);
        watch_end("dlopen");
    }
    if (!so) {
        check_fail(c, "dlopen: %s", dlerror());
        return NULL;
    }
    *(void **)&entry = dlsym(so, MN_ENTRY_NAME);
    if (!entry)
        check_fail(c, "found no symbol " MN_ENTRY_NAME);
    return entry;
}

static const mn_host *(*give_host)(const mn_host *);
void check_give_host(const mn_host *(*fn)(const mn_host *)) {
    give_host = fn;
}

int check_open(check *c, check_plugin *p, check_host *host) {
    const mn_host *api = give_host ? give_host(&host->api) : &host->api;
    memset(p, 0, sizeof *p);
    p->host = host;
    p->err = check_error();
    mn_entry_fn entry = check_entry(c);
    if (!entry)
        return 0;
    check_doing(c, "%s ran", MN_ENTRY_NAME);
    watch_begin(c, MN_ENTRY_NAME);
    p->api = entry(api, &p->err);
    watch_end(MN_ENTRY_NAME);
    if (!p->api) {
        check_fail(c, "%s: found NULL (%s), expected a plugin", MN_ENTRY_NAME,
                   p->err.msg[0] ? p->err.msg : "no message");
        return 0;
    }
    check_doing(c, "query ran");
    watch_begin(c, "query");
    p->be_table = p->api->query(p->api->self, MN_BACKEND_ID);
    const mn_backend *be = p->be_table;
    const mn_loader *ld = p->api->query(p->api->self, MN_LOADER_ID);
    p->be = watch_backend(c, check_host_is_newer() ? wide_always(be) : be);
    p->ld = watch_loader(c, check_host_is_newer() ? wide_loader(ld) : ld);
    watch_end("query");
    return 1;
}

const void *check_table(const check_plugin *p, const char *interface_id) {
    const void *table = p->api->query(p->api->self, interface_id);
    return check_host_is_newer() ? wide_table(interface_id, table) : table;
}

int check_open_device(check *c, check_plugin *p, check_host *host) {
    if (!check_open(c, p, host))
        return 0;
    if (c->facts->no_device[0]) {
        check_skip(c, "no device on this machine: %s", c->facts->no_device);
        check_close(c, p);
        return 0;
    }
    check_doing(c, "device_open ran");
    mn_status st = mn_usual_open(p->be, p->api->self, 0, &p->dev, &p->err);
    if (!st)
        st = mn_usual_queue(p->be, p->dev, &p->queue, &p->err);
    return !check_status(c, st, &p->err, "opening device 0 and a queue");
}

const char *check_no_text(const check_plugin *p) {
    static _Thread_local char text[sizeof p->no.msg + 2];
    snprintf(text, sizeof text, "%s%s", p->no.msg[0] ? ": " : "", p->no.msg);
    return text;
}

/* An error of supports is no answer. */
static void judge_no(check *c, const check_plugin *p) {
    const mn_status st = p->no.status;
    if (st && MN_STATUS_CLASS(st) != MN_CLASS_REFUSE)
        check_fail(c, "supports: found status 0x%x (%s), expected MN_OK and a verdict of each node",
                   (unsigned)st, p->no.msg[0] ? p->no.msg : "no message");
}

void check_close(check *c, check_plugin *p) {
    if (!p->api)
        return;
    judge_no(c, p);
    check_doing(c, "queue_free, device_close and shutdown ran");
    if (p->queue)
        p->be->queue_free(p->queue);
    if (p->dev)
        p->be->device_close(p->dev);
    watch_begin(c, "shutdown");
    p->api->shutdown(p->api->self);
    watch_end("shutdown");
    memset(&p->api, 0, offsetof(check_plugin, host));
    long long live = atomic_load(&p->host->live);
    const char *fault = check_host_fault(p->host);
    if (live)
        check_fail(c,
                   "found %lld blocks of host->alloc (%lld bytes) not released after shutdown, "
                   "expected none",
                   live, (long long)atomic_load(&p->host->bytes));
    if (fault)
        check_fail(c, "the plugin %s", fault);
}
