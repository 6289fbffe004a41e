/* chain.h -- the samplers of SAMPLE and the draw, over the logits of one row. The candidates are
 * a range of the order of logits: samplers narrow it, or change logits and make the order anew.
 * Pure functions; scratch is the caller's. Any thread. */
#ifndef MNC_CHAIN_H
#define MNC_CHAIN_H
#include "sampler.h"

/* Ids by logit descending, the lower id first, sorted no further than they are asked for:
 * id[0 .. n - popped) is a heap, behind it stand the best, last first. */
typedef struct {
    const float *logit;
    int32_t *id;
    int64_t n;
    int64_t popped;
} mnc_order;
/* All finite logits, or the k best of them (k > 0). id: room for n_vocab. */
mnc_order mnc_order_of(const float *l, int64_t n_vocab, int64_t k, int32_t *id);
/* The i-th best, i < n, asked for in any order. */
int32_t mnc_order_at(mnc_order *o, int64_t i);

/* One row between its biases and its id. */
typedef struct {
    const mnc_sample *s;
    float *l;         /* [n_vocab] adjusted logits */
    int32_t *count;   /* [n_vocab] scratch */
    uint64_t left;    /* samplers to come, as in mn_slot_params.samplers */
    uint32_t word[2]; /* the first words of the position's random block */
    mnc_order order;  /* id NULL: not made yet */
    int32_t *ids;     /* [n_vocab] room of the order */
    int64_t lo, hi;   /* the candidates: places [lo, hi) of the order */
    double temp;      /* divides the logits, over all temperatures so far */
    float max;        /* the logit at lo */
    bool rewritten;   /* l was changed by samplers behind those of mnc_chain_begin */
} mnc_chain;
/* Whether a sampler of mn_slot_params changes logits by the history. */
bool mnc_chain_reads_history(const mn_slot_params *p);
/* l: the logits with their biases; ids, count: room for n_vocab. Runs the penalties and dry that
 * come first; greedy: runs the penalties and dry of the whole list. */
mnc_chain mnc_chain_begin(const mnc_sample *s, float *l, int32_t *ids, int32_t *count, bool greedy);
/* Runs the rest and draws: the id, or MN_ID_NONE (no finite logit). *mu: mirostat's, moved. */
int32_t mnc_chain_draw(mnc_chain *c, float *mu);

#endif
