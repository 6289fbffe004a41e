/* embed.c -- mn_session_embed: the hidden states of texts, several texts per step, pooled into one vector
 * each. */
#include "session/session.h"

mn_status mn_session_embed(mn_session *s, const mn_embed_text *texts, uint32_t n_texts,
                           const mn_embed_params *params, float *out, uint64_t cap, mn_error *err) {
    const mn_arg args[] = {{"s", s}, {"texts", texts}, {"out", out}, {0}};
    mn_embed_params p = {.size = sizeof p};
    mn_status st = mn_args_need(err, __func__, args);
    if (!st)
        st = mn_args_take(MN_SIZED_EMBED_PARAMS, &p, params, err);
    if (st)
        return st;
    return mn_fail(err, MN_UNSUPPORTED,
                   "mn_session_embed: %u texts, room for %llu numbers: not built yet", n_texts,
                   (unsigned long long)cap);
}
