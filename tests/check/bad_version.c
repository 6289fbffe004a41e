/* bad_version.c -- the reference plugin with a fault that a host of one version meets (minerva
 * plugins check --abi). BAD_ABI_... says which. */
#include "stub.h"

MN_PLUGIN_NOTE("bad", MN_KIND_BACKEND, "");

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
#endif

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    return enter(host, err);
}
