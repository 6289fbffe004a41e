/* params.c -- the parameters of calls, read by their sizes; what is not known here is refused, not
 * dropped. Holds nothing. */
#include "words.h"

/* The flags of a call that has none here. */
static mn_status params_no_flags(uint64_t flags, const char *call, mn_error *err) {
    if (!flags)
        return MN_OK;
    return mnp_fail(err, MN_UNSUPPORTED, ~0u, "%s: flags 0x%llx are unknown", call,
                    (unsigned long long)flags);
}

mn_status mnp_read_alloc(const mn_alloc_params *in, uint64_t most, mn_alloc_params *out,
                         mn_error *err) {
    mnp_read(out, sizeof *out, in, in->size);
    if (out->kind != MN_MEM_DEVICE && out->kind != MN_MEM_HOST_PINNED)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "alloc: memory kind %u is unknown", out->kind);
    if (out->align & (out->align - 1))
        return mnp_fail(err, MN_INVALID, ~0u, "alloc: alignment %llu is no power of 2",
                        (unsigned long long)out->align);
    if (out->align > most)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "alloc: alignment %llu; at most %llu",
                        (unsigned long long)out->align, (unsigned long long)most);
    return params_no_flags(out->flags & ~(uint64_t)MN_ALLOC_UNZEROED, "alloc", err);
}

mn_status mnp_check_queue(const mn_queue_params *in, mn_error *err) {
    mn_queue_params p;
    mnp_read(&p, sizeof p, in, in->size);
    return params_no_flags(p.flags, "queue_create", err);
}

mn_status mnp_check_open(const mn_open_params *in, const char *uid, mn_error *err) {
    mn_open_params p;
    mnp_read(&p, sizeof p, in, in->size);
    const bool other = p.uid.len && (p.uid.len != strlen(uid) || memcmp(p.uid.ptr, uid, p.uid.len));
    if (other)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "the device is \"%s\", not \"%.*s\"", uid,
                        (int)(p.uid.len > 64 ? 64 : p.uid.len), p.uid.ptr);
    return params_no_flags(p.flags, "device_open", err);
}

mn_status mnp_read_context(const mn_context_params *in, mn_queue **queue, mn_error *err) {
    mn_context_params p;
    mnp_read(&p, sizeof p, in, in->size);
    *queue = p.queue;
    if (!p.queue)
        return mnp_fail(err, MN_INVALID, ~0u, "context_create without a queue");
    return params_no_flags(p.flags, "context_create", err);
}

/* The step of a host that has all of it is one copy of a fixed size. Called for every step. */
static void params_see_step(const mn_step *in, mn_step *out) {
    if (in->size >= sizeof *out)
        *out = *in;
    else
        mnp_read(out, sizeof *out, in, in->size);
}

mn_status mnp_read_step_words(const mn_step *in, mn_step *out, mn_error *err) {
    params_see_step(in, out);
    if (!(out->n_waits | out->n_signals | out->flags))
        return MN_OK;
    const uint32_t n = out->n_waits + out->n_signals;
    const bool has_all = (out->waits || !out->n_waits) && (out->signals || !out->n_signals);
    if (n && (!has_all || out->word_stride < MNP_UP_TO(mn_word, value)))
        return mnp_fail(err, MN_INVALID, ~0u, "a step with %u words at a stride of %u", n,
                        out->word_stride);
    return params_no_flags(out->flags, "a step", err);
}

mn_status mnp_check_word(const mn_word *w, uint64_t bytes, mn_error *err) {
    const uint64_t size = sizeof w->value;
    if (w->offset % size || bytes < size || w->offset > bytes - size)
        return mnp_fail(err, MN_INVALID, ~0u,
                        "a word at %llu of a buffer of %llu bytes; a multiple of 4 within it is "
                        "meant",
                        (unsigned long long)w->offset, (unsigned long long)bytes);
    return MN_OK;
}

mn_status mnp_read_step(const mn_step *in, mn_step *out, mn_error *err) {
    params_see_step(in, out);
    if (out->n_waits || out->n_signals)
        return mnp_fail(err, MN_UNSUPPORTED, ~0u, "a step that waits for words or writes them");
    return params_no_flags(out->flags, "a step", err);
}
