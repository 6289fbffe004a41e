/* stub.h -- the reference plugin under another name, for stubs that work until they do not. One
 * file is one plugin: it includes this, changes a copy of the table, and says who it is. */
#ifndef STUB_H
#define STUB_H
#include <minerva/plugin.h>
#include "usual.h"
#include <stdio.h>
#include <string.h>

/* What reference.c calls minerva_plugin_entry; see inner.h. */
const mn_plugin *stub_reference_entry(const mn_host *host, mn_error *err);

static mn_backend stub_table;        /* what the host gets */
static const mn_backend *stub_inner; /* what works */
static const mn_profile *stub_inner_profile;
static const mn_profile *stub_profile; /* NULL: the stub has no mn.profile/1 */
static const mn_kv_moves *stub_moves;  /* as they are */
static const mn_experts *stub_inner_experts;
static const mn_experts *stub_experts; /* NULL: the stub has no mn.x.experts/1 */
static const char *stub_id = "";

static const void *stub_query(void *self, const char *id) {
    (void)self;
    if (!strcmp(id, MN_PROFILE_ID))
        return stub_profile;
    if (!strcmp(id, MN_KV_ID))
        return stub_moves;
    if (!strcmp(id, MN_EXPERTS_ID))
        return stub_experts;
    return strcmp(id, MN_BACKEND_ID) ? NULL : &stub_table;
}

static inline mn_status stub_fail(mn_error *err, mn_status status, uint32_t node, const char *msg) {
    if (!err || err->size < sizeof *err)
        return status;
    err->status = status;
    err->node = node;
    strncpy(err->msg, msg, sizeof err->msg - 1);
    return status;
}

/* A GPU that says it is faster than everything, so that `auto` wants it. */
static inline mn_status stub_boast(void *self, uint32_t i, mn_device_info *out, mn_error *err) {
    mn_device_info info = {.size = sizeof info};
    mn_status s = stub_inner->device_info(self, i, &info, err);
    if (s)
        return s;
    info.kind = MN_DEVICE_GPU;
    info.flags &= ~(uint64_t)MN_DEVICE_ORACLE;
    info.mem_gbps = 1e6;
    info.fp16_tflops = 1e4;
    info.launch_us = 0.1;
    info.h2d_gbps = 1e5;
    strcpy(info.name, "a stub that boasts");
    snprintf(info.uid, sizeof info.uid, "%s-%u", stub_id, i); /* a card of its own */
    info.size = out->size < sizeof info ? out->size : (uint32_t)sizeof info;
    memcpy(out, &info, info.size);
    return MN_OK;
}
static inline mn_status stub_boast_estimate(mn_device *d, const mn_compile *c, mn_estimate *out,
                                            mn_error *err) {
    mn_estimate e = {.size = sizeof e};
    mn_status s = stub_inner->estimate(d, c, &e, err);
    if (s)
        return s;
    e.decode_us = 0.01;
    e.prefill_us = 1;
    e.size = out->size < sizeof e ? out->size : (uint32_t)sizeof e;
    memcpy(out, &e, e.size);
    return MN_OK;
}

/* By the uid that the stub's own device_info tells. */
static inline mn_status stub_open(void *self, uint32_t i, const mn_open_params *params,
                                  mn_device **out, mn_error *err) {
    mn_device_info info = {.size = sizeof info};
    const mn_open_params own = {.size = sizeof own, .flags = params->flags};
    const mn_status st = stub_table.device_info(self, i, &info, err);
    if (st)
        return st;
    const mn_str uid = MN_HAS(mn_open_params, params, uid.len) ? params->uid : (mn_str){0};
    if (uid.len && (uid.len != strlen(info.uid) || memcmp(uid.ptr, info.uid, uid.len)))
        return stub_fail(err, MN_NO_DEVICE, ~0u, "another device is meant");
    return stub_inner->device_open(self, i, &own, out, err);
}

/* Enters the reference and renames it; the table is the stub's to change afterwards. NULL = the
 * reference's own error. */
static const mn_plugin *stub_enter(const mn_host *host, mn_error *err, const char *id) {
    /* cpu_host allocated it: no constant */
    mn_plugin *p = (mn_plugin *)(uintptr_t)stub_reference_entry(host, err);
    if (!p)
        return NULL;
    stub_inner = p->query(p->self, MN_BACKEND_ID);
    stub_inner_profile = p->query(p->self, MN_PROFILE_ID);
    stub_moves = p->query(p->self, MN_KV_ID);
    stub_inner_experts = p->query(p->self, MN_EXPERTS_ID);
    stub_table = *stub_inner;
    stub_table.device_open = stub_open;
    stub_id = id;
    p->id = (mn_str){id, strlen(id)};
    p->query = stub_query;
    return p;
}
#endif
