/* wrong.c -- wrong numbers, with a self-test that passes: its RMS_NORM does not normalise. Stands
 * in for op_norm.c of the reference. It boasts of its rates too, and a step takes 250 ms at least:
 * whoever measures finds the slowest, also where sanitizers or load slow the others down. */
#include "stub.h"
#include "reference/reference.h"
#include <unistd.h>

MN_PLUGIN_NOTE("wrong", MN_KIND_BACKEND, "");

static void rms_norm(const mnc_call *c, mnc_worker *w) {
    const mnc_operand *x = &c->in[MN_RMS_NORM_X];
    float *out = c->out[MN_RMS_NORM_OUT_Y].ptr;
    int64_t lo;
    int64_t hi;
    int64_t d = ref_last(x);
    mnc_range(w, ref_rows(x), 1, &lo, &hi);
    for (int64_t i = lo * d; i < hi * d; i++)
        out[i] = ((const float *)x->ptr)[i] * 0.5f;
}
const ref_op ref_op_rms_norm = {.fn = rms_norm};
const ref_op ref_op_layer_norm = {.fn = rms_norm};

static mn_status execute(mn_context *c, const mn_step *step, mn_event **event, mn_error *err) {
    usleep(250000);
    return stub_inner->execute(c, step, event, err);
}

const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err) {
    const mn_plugin *p = stub_enter(host, err, "wrong");
    stub_table.device_info = stub_boast;
    stub_table.estimate = stub_boast_estimate;
    stub_table.execute = execute;
    return p;
}
