/* plugin.c -- the toy's facts and memory, and the table that plugins/gpu_host gets. */
#include "toy.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- facts ----------------------------------------------------------------------------------- */
static mn_status device_count(mng_plugin *p, uint32_t *n, mn_error *err) {
    (void)p;
    (void)err;
    *n = 1;
    return MN_OK;
}

static mn_status device_info(mng_plugin *p, uint32_t i, mn_device_info *info, mn_error *err) {
    (void)p;
    (void)i;
    (void)err;
    info->kind = MN_DEVICE_GPU;
    info->flags = MN_DEVICE_ASYNC | MN_DEVICE_PARALLEL_PUT | MN_DEVICE_WRAPS;
    info->mem_total = TOY_MEMORY;
    info->max_alloc = TOY_MEMORY;
    snprintf(info->name, sizeof info->name, "a thread as a GPU");
    snprintf(info->driver, sizeof info->driver, "toy 1");
    snprintf(info->uid, sizeof info->uid, "toy-0");
    snprintf(info->mem_pool, sizeof info->mem_pool, "toy-0");
    return MN_OK;
}

static mn_status device_open(mng_plugin *p, uint32_t i, mn_device *d, mn_error *err) {
    (void)i;
    (void)err;
    d->lost_after = mng_option(p->host, "lost_after", -1);
    d->base.has_words = true;
    d->kernel_us = mng_option(p->host, "kernel_us", 0);
    return MN_OK;
}

static void device_close(mn_device *d) {
    mng_log(d->base.host, MN_LOG_INFO, "toy: at most %" PRIu64 " bytes were in use", d->peak);
    if (d->kernel_us > 0)
        mng_log(d->base.host, MN_LOG_INFO, "toy: %" PRId64 " writes while kernels were under way",
                d->n_beside);
}

/* What cudaSetDevice is to a real one. */
static _Thread_local const mn_device *entered;

static mn_status enter(const mn_device *d, mn_error *err) {
    (void)err;
    entered = d;
    return MN_OK;
}

mn_status toy_check_entered(const mn_device *d, mn_error *err) {
    if (entered == d)
        return MN_OK;
    return mnp_fail(err, MN_INVALID, ~0u, "the toy: a call on a device that is not entered");
}

static mn_status device_memory(mn_device *d, uint64_t *free_bytes, uint64_t *total, mn_error *err) {
    (void)err;
    *total = TOY_MEMORY;
    *free_bytes = TOY_MEMORY - __atomic_load_n(&d->used, __ATOMIC_RELAXED);
    return MN_OK;
}

static mn_status self_test(mn_device *d, mn_error *err) {
    (void)d;
    (void)err;
    return MN_OK;
}

/* ---- memory: a block says in front of it how large it is ------------------------------------- */
enum { ALIGN = 256 };

static mn_status memory_alloc(mn_device *d, uint64_t bytes, uint32_t how, const char *what,
                              void **mem, mn_error *err) {
    const uint64_t all = (uint64_t)mnp_round((int64_t)bytes + ALIGN, ALIGN);
    const mn_status st = toy_check_entered(d, err);
    if (st)
        return st;
    const uint64_t used = __atomic_add_fetch(&d->used, all, __ATOMIC_RELAXED);
    char *block = used <= TOY_MEMORY ? aligned_alloc(ALIGN, all) : NULL;
    if (!block) {
        const mng_vendor_error e = {"toy", "no room", 1, MN_OUT_OF_MEMORY};
        __atomic_sub_fetch(&d->used, all, __ATOMIC_RELAXED);
        return mng_fail_room(&e, bytes, TOY_MEMORY - (used - all), TOY_MEMORY, err, what);
    }
    pthread_mutex_lock(&d->base.lock);
    d->peak = used > d->peak ? used : d->peak;
    pthread_mutex_unlock(&d->base.lock);
    memset(block, how == MNG_ZEROED ? 0 : 0xff, all); /* what is read too early is NaN */
    memcpy(block, &all, sizeof all);
    *mem = block + ALIGN;
    return MN_OK;
}

static void memory_free(mn_device *d, void *mem) {
    char *block = (char *)mem - ALIGN;
    uint64_t all;
    memcpy(&all, block, sizeof all);
    __atomic_sub_fetch(&d->used, all, __ATOMIC_RELAXED);
    free(block);
}

static mn_status pinned_alloc(mn_device *d, uint64_t bytes, void **mem, char **host,
                              mn_error *err) {
    *host = mng_new(d, bytes);
    *mem = *host;
    return *host ? MN_OK : mnp_fail_memory(err, bytes, "pinned memory");
}

static void pinned_free(mn_device *d, void *mem, char *host) {
    (void)mem;
    mng_delete(d, host);
}

/* The host's memory is the device's, too. */
static mn_status wrap(mn_device *d, char *host, uint64_t bytes, void **mem, mn_error *err) {
    (void)d;
    (void)bytes;
    (void)err;
    *mem = host;
    return MN_OK;
}

static void unwrap(mn_device *d, void *mem, char *host) {
    (void)d;
    (void)mem;
    (void)host;
}

/* ---- the table ------------------------------------------------------------------------------- */
static const mng_backend backend = {
    .id = "gpu_toy",
    .vendor = "Minerva",
    .version = "1",
    .plugin_bytes = sizeof(mng_plugin),
    .device_bytes = sizeof(mn_device),
    .queue_bytes = sizeof(mn_queue),
    .program_bytes = sizeof(mn_program),
    .context_bytes = sizeof(mn_context),
    .limits = {.kv = {TOY_PAGE_TOKENS, 1, TOY_MAX_HEAD},
               .max_experts = TOY_MAX_EXPERTS,
               .slack = TOY_SLACK},
    .state_cols = {.ssm_scan = 1}, /* as the kernels of `reference` */
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_memory = device_memory,
    .self_test = self_test,
    .enter = enter,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .pinned_alloc = pinned_alloc,
    .pinned_free = pinned_free,
    .wrap = wrap,
    .unwrap = unwrap,
    .queue_open = toy_queue_open,
    .queue_close = toy_queue_close,
    .queue_finish = toy_queue_finish,
    .copy_in = toy_copy_in,
    .copy_out = toy_copy_out,
    .copy = toy_copy_on,
    .event_record = toy_event_record,
    .event_poll = toy_event_poll,
    .event_wait = toy_event_wait,
    .event_join = toy_event_join,
    .event_free = toy_event_free,
    .event_tell = toy_event_tell,
    .gate_close = toy_gate_close,
    .gate_open = toy_gate_open,
    .word_write = toy_word_write,
    .events_once = true,
    .weight_shape = toy_weight_shape,
    .weight_put = toy_weight_put,
    .ops = toy_ops,
    .n_ops = TOY_N_OPS,
    .copy_view = toy_copy_view,
};

MN_PLUGIN_NOTE("gpu_toy", MN_KIND_BACKEND, "");

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return mng_plugin_entry(host, &backend, err);
}
