/* bad_version.c -- the reference plugin with a fault that a host of one version meets (minerva
 * plugins check --abi). BAD_ABI_... says which. */
#include "stub.h"

MN_PLUGIN_NOTE("bad", MN_KIND_BACKEND, "");

#if defined(BAD_ABI_NEWER_MOVES)
static const mn_kv_moves *stub_inner_moves;
#endif

#if defined(BAD_ABI_OLDER)
/* Enters any host: what this one says is not read. */
static const mn_plugin *enter(const mn_host *host, mn_error *err) {
    static mn_host own; /* the reference keeps the pointer */
    memcpy(&own, host, host->size < sizeof own ? host->size : sizeof own);
    own.abi = MN_ABI_VERSION;
    own.abi_min = MN_ABI_OLDEST;
    return stub_enter(&own, err, "bad");
}
#elif defined(BAD_ABI_OLDER_WORDS)
/* Refuses, and says of what version neither side is. */
static const mn_plugin *enter(const mn_host *host, mn_error *err) {
    if (host->abi >= MN_ABI_OLDEST && host->abi_min <= MN_ABI_VERSION)
        return stub_enter(host, err, "bad");
    stub_fail(err, MN_UNSUPPORTED, ~0u, "this host is of another time");
    return NULL;
}
#elif defined(BAD_ABI_OWN)
/* An off-by-one: the host has to be newer. */
static const mn_plugin *enter(const mn_host *host, mn_error *err) {
    if (host->abi > MN_ABI_VERSION)
        return stub_enter(host, err, "bad");
    stub_fail(err, MN_UNSUPPORTED, ~0u, "the host is too old");
    return NULL;
}
#elif defined(BAD_ABI_NEWER)
/* A newer host is refused, though it accepts the plugin. */
static const mn_plugin *enter(const mn_host *host, mn_error *err) {
    if (host->abi == MN_ABI_VERSION)
        return stub_enter(host, err, "bad");
    stub_fail(err, MN_UNSUPPORTED, ~0u, "the host is not of ABI 0.10");
    return NULL;
}
#elif defined(BAD_ABI_NEWER_STEP)
/* Takes steps of its own size alone. */
static mn_status execute(mn_context *c, const mn_step *step, mn_event **ev, mn_error *err) {
    if (step->size > sizeof *step)
        return stub_fail(err, MN_INVALID, ~0u, "an mn_step of another size");
    return stub_inner->execute(c, step, ev, err);
}
static const mn_plugin *enter(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, "bad");
    if (p)
        stub_table.execute = execute;
    return p;
}
#elif defined(BAD_ABI_NEWER_MOVES)
/* Layers of a page that is moved are one behind the other. */
static mn_status get(mn_queue *q, const mn_kv_page *p, mn_event **ev, mn_error *err) {
    mn_memory_params params = *p->params;
    mn_kv_page page = *p;
    params.layer_stride = sizeof *params.layers;
    page.size = sizeof page;
    page.params = &params;
    return stub_inner_moves->get(q, &page, ev, err);
}
static const mn_plugin *enter(const mn_host *host, mn_error *err) {
    static mn_kv_moves moves;
    const mn_plugin *p = stub_enter(host, err, "bad");
    if (!p)
        return NULL;
    stub_inner_moves = stub_moves;
    moves = *stub_moves;
    moves.get = get;
    stub_moves = &moves;
    return p;
}
#elif defined(BAD_ABI_NEWER_UNITS)
/* Units of a profile are one behind the other. */
static mn_status profile(mn_context *c, const mn_step *s, mn_profile_unit *units, uint32_t stride,
                         uint32_t *n, mn_error *err) {
    (void)stride;
    return stub_inner_profile->execute(c, s, units, sizeof *units, n, err);
}
static const mn_plugin *enter(const mn_host *host, mn_error *err) {
    static mn_profile own;
    const mn_plugin *p = stub_enter(host, err, "bad");
    own = (mn_profile){.size = sizeof own, .execute = profile};
    stub_profile = &own;
    return p;
}
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return enter(host, err);
}
