/* device.c -- the plugin's entry, and its devices. A device is the backend's struct, with a base
 * that holds its names and its spare events; what was made on it is freed before it is closed. */
#include "gpu_table.h"
#include "queue_scratch.h"

/* ---- the plugin ------------------------------------------------------------------------------ */
static const mn_queue_scratch queue_scratch = {.size = sizeof queue_scratch};

static const void *query(void *self, const char *id) {
    mng_plugin *p = self;
    const mng_backend *b = p->backend;
    if (!strcmp(id, MN_PROFILE_ID))
        return b->profile ? b->profile : &mng_profile;
    if (!strcmp(id, MN_KV_ID))
        return b->moves ? b->moves : &mng_moves;
    if (!strcmp(id, MN_BACKEND_ID))
        return b->table ? b->table : &mng_table;
    if (!strcmp(id, MN_QUEUE_SCRATCH_ID))
        return &queue_scratch;
    return b->query ? b->query(p, id) : NULL;
}

static void shutdown(void *self) {
    mng_plugin *p = self;
    if (p->backend->fini)
        p->backend->fini(p);
    mnp_delete(p->host, p);
}

static void fill_plugin(mng_plugin *p, const mn_host *host, const mng_backend *b) {
    p->host = host;
    p->backend = b;
    for (uint32_t i = 0; i < b->n_ops; i++) {
        p->contracts[i].op = b->ops[i]->op;
        p->contracts[i].contract = b->ops[i]->contract;
    }
    /* Never closed (no MN_PLUGIN_UNLOADABLE): drivers' threads may outlive shutdown. */
    p->api = (mn_plugin){
        .size = sizeof p->api,
        .abi = MN_ABI_VERSION,
        .self = p,
        .id = mnp_str(b->id),
        .vendor = mnp_str(b->vendor),
        .version = mnp_str(b->version),
        .query = query,
        .shutdown = shutdown,
    };
}

const mn_plugin *mng_plugin_entry(const mn_host *host, const mng_backend *b, mn_error *err) {
    if (mnp_check_host(host, b->id, err))
        return NULL;
    if (!MN_HAS(mn_host, host, now_ns)) {
        mnp_fail(err, MN_INVALID, ~0u, "%s: the host lacks now_ns", b->id);
        return NULL;
    }
    if (b->n_ops > MNG_MAX_OPS || b->limits.segments > MNG_SEGMENTS) {
        mnp_fail(err, MN_INVALID, ~0u, "%s: %u operations and %u segments; there may be %d and %d",
                 b->id, b->n_ops, b->limits.segments, MNG_MAX_OPS, MNG_SEGMENTS);
        return NULL;
    }
    mng_plugin *p = mnp_new(host, b->plugin_bytes);
    if (!p) {
        mnp_fail_memory(err, b->plugin_bytes, "the plugin");
        return NULL;
    }
    fill_plugin(p, host, b);
    if (!b->init || !b->init(p, err))
        return &p->api;
    mnp_delete(host, p);
    return NULL;
}

/* ---- devices --------------------------------------------------------------------------------- */
mn_status mng_check_device(const mn_device *own, const mn_device *of, const char *what,
                           mn_error *err) {
    if (own == of)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "%s of another device: %s, not %s", what,
                    mng_device_of(of)->uid, mng_device_of(own)->uid);
}

mn_status mng_device_count(void *self, uint32_t *n, mn_error *err) {
    mng_plugin *p = self;
    *n = 0;
    return p->backend->device_count(p, n, err);
}

/* The facts of device i. MN_NO_DEVICE: there are fewer. */
static mn_status read_info(mng_plugin *p, uint32_t i, mn_device_info *info, mn_error *err) {
    uint32_t n;
    const mn_status st = mng_device_count(p, &n, err);
    if (st)
        return st;
    if (i >= n)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "device %u; there are %u", i, n);
    *info = (mn_device_info){.size = sizeof *info, .align = MNG_ALIGN};
    return p->backend->device_info(p, i, info, err);
}

mn_status mng_device_info(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    mn_device_info info;
    const mn_status st = read_info(self, i, &info, err);
    if (!st)
        mnp_fill(out, &info, sizeof info);
    return st;
}

mn_device *mng_device_new(mng_plugin *p, uint64_t bytes, const mn_device_info *info) {
    mn_device *dev = mnp_new(p->host, bytes);
    if (!dev)
        return NULL;
    mng_device *d = mng_device_of(dev);
    d->plugin = p;
    d->backend = p->backend;
    d->host = p->host;
    memcpy(d->name, info->name, sizeof d->name);
    memcpy(d->uid, info->uid, sizeof d->uid);
    memcpy(d->driver, info->driver, sizeof d->driver);
    pthread_mutex_init(&d->lock, NULL);
    return dev;
}

void mng_device_delete(mn_device *dev) {
    mng_events_drop(dev);
    pthread_mutex_destroy(&mng_device_of(dev)->lock);
    mng_delete(dev, dev);
}

mn_status mng_device_open(void *self, uint32_t i, const mn_open_params *params, mn_device **out,
                          mn_error *err) {
    mng_plugin *p = self;
    mn_device_info info;
    mn_status st = read_info(p, i, &info, err);
    if (!st)
        st = mnp_check_open(params, info.uid, err);
    if (st)
        return st;
    mn_device *dev = mng_device_new(p, p->backend->device_bytes, &info);
    if (!dev)
        return mnp_fail_memory(err, p->backend->device_bytes, "a device");
    st = p->backend->device_open(p, i, dev, err);
    if (st)
        mng_device_close(dev);
    else
        *out = dev;
    return st;
}

void mng_device_close(mn_device *dev) {
    if (!dev)
        return;
    mng_enter(dev, NULL);
    mng_watch_free(dev);
    mng_events_drop(dev);
    mng_backend_of(dev)->device_close(dev);
    mng_device_delete(dev);
}

mn_status mng_device_memory(mn_device *dev, uint64_t *free_bytes, uint64_t *total, mn_error *err) {
    const mn_status st = mng_enter(dev, err);
    return st ? st : mng_backend_of(dev)->device_memory(dev, free_bytes, total, err);
}

mn_status mng_self_test(mn_device *dev, mn_error *err) {
    const mn_status st = mng_enter(dev, err);
    return st ? st : mng_backend_of(dev)->self_test(dev, err);
}
