/* program.c -- which nodes are one unit on a device, and what of an estimate is OpenCL's. */
#include "ops.h"

static const char *refuse_several(const mnp_lowering *l, const mnp_unit *u, uint32_t node) {
    (void)node;
    if (mnp_node(l->g, u->node)->n_out == 1)
        return NULL;
    return "there are several products";
}

/* LINEAR [add], MOE_COMBINE [add]: the sum is made where the product is written. */
static const mnp_pattern linear_add = {.name = "linear",
                                       .op = MN_OP_LINEAR,
                                       .n_parts = 1,
                                       .parts = {{.name = "add",
                                                  .op = MN_OP_ADD,
                                                  .edge = MNP_READER,
                                                  .of = MNP_ANCHOR,
                                                  .refuse = refuse_several}}};
static const mnp_pattern *const patterns[] = {&linear_add, &mnp_pattern_combine};
enum { N_PATTERNS = sizeof patterns / sizeof *patterns };
/* Of a device with warps. */
static const mnp_pattern *const warp_patterns[] = {&mnp_pattern_linear, &mnp_pattern_moe_linear,
                                                   &mnp_pattern_combine, &mnp_pattern_store};
enum { N_WARP_PATTERNS = sizeof warp_patterns / sizeof *warp_patterns };

const mnp_pattern *const *ocl_patterns(const mn_device *d, uint32_t *n) {
    *n = d->warps ? N_WARP_PATTERNS : N_PATTERNS;
    return d->warps ? warp_patterns : patterns;
}

void ocl_unit_of(const mnp_unit *m, mng_unit *u) {
    if (m->pattern == &linear_add)
        u->add = m->part[0];
}

/* Times are unknown before the device is measured. */
void ocl_estimate(const mn_program *p, double streamed, mn_estimate *e) {
    (void)p;
    (void)streamed;
    e->row_grain = 4;
}
