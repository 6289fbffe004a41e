/* sampler.h -- SAMPLE of ops.def on the CPU, shared by the CPU plugins: the same logits give the
 * same ids on both. Pure functions over one row; scratch is the caller's. Any thread. */
#ifndef MNC_SAMPLER_H
#define MNC_SAMPLER_H
#include "cpu_host.h"

/* One row that a slot draws from, or whose TARGET is asked for. */
typedef struct {
    const float *logits;   /* [n_vocab] */
    const float *bias;     /* [n_vocab] or NULL */
    const uint32_t *mask;  /* [ceil(n_vocab / 32)] or NULL */
    const int32_t *sparse; /* [n_sparse] ids or -1, or NULL */
    const float *sparse_by;
    int64_t n_vocab;
    int64_t n_sparse;
    const mn_slot_params *params;
    const int32_t *history; /* [n_ctx] of this slot, by position */
    int64_t n_ctx;
    const uint32_t *breakers; /* [ceil(n_vocab / 32)] or NULL: ids that end matches of dry */
    float *mu;                /* the slot's, moved by mirostat; NULL = there is none */
    int32_t pos, n_drawn;     /* the slot's: tokens stored, the counter of the draw; ids drawn */
    int32_t *top_ids;         /* [n_top] or NULL; -1 where there are fewer ids */
    float *top_logprobs;      /* [n_top] or NULL */
    int64_t n_top;
    float *logprob; /* of the id, or NULL */
} mnc_sample;

/* scratch of one call; 0 for a negative vocabulary */
uint64_t mnc_sample_bytes(int64_t n_vocab);
/* The id, MN_ID_NONE (no finite logit) or MN_ID_NAN. */
int32_t mnc_sample_draw(const mnc_sample *s, void *scratch);
/* Fills logprob and top_* from the logits as they are; params, history and bias are not read. */
void mnc_sample_target(const mnc_sample *s, int32_t target, void *scratch);
/* The op itself: slots are dealt out over the workers; needs worker_bytes = mnc_sample_bytes(V). */
void mnc_op_sample(const mnc_call *c, mnc_worker *w);
/* Philox4x32-10, Salmon et al. 2011. */
void mnc_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

#endif
