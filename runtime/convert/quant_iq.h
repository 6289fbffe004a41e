/* quant_iq.h -- how a block of 256 values is fitted to a codebook. quant_iq.c, which says how it
 * works; quant_iq1.c has codebooks of its own. */
#ifndef MN_QUANT_IQ_H
#define MN_QUANT_IQ_H
#include "convert/quant.h"

/* An entry with its sums: sum(w a v) and sum(w v v), weights w, magnitudes a, values v. */
typedef struct {
    float a, b;
    int entry;
} mn_iq_pick;

typedef struct mn_codebook mn_codebook;
struct mn_codebook {
    int n, size;         /* entries, and elements of one */
    int group;           /* elements with one scale */
    int levels;          /* number of scales of a group: odd multiples of the block's */
    bool is_signed;      /* its values have signs: the block stores none */
    bool even;           /* of eight elements an even number is negative */
    float top;           /* the largest value */
    const float *tried;  /* MN_IQ_TRIED scales of a group: times the one of its largest element */
    const float *values; /* [size][n]; NULL: of `pick` */
    /* finds the best entry of `size` elements at scale s > 0 without trying all entries; `moves`
     * and `start` belong to it */
    mn_iq_pick (*pick)(const mn_codebook *c, const float *a, const float *w, float s);
    unsigned moves;
    const uint16_t *start;
};
enum { MN_IQ_TRIED = 4 };

typedef struct {
    uint16_t code[64]; /* of each `size` elements */
    uint8_t sign[32];  /* of eight elements each */
    uint8_t level[16]; /* a group's scale is 2 level + 1 times the block's */
    uint8_t form[16];  /* which codebook a group uses */
    float scale;
} mn_iq_block;

/* forms: [n_forms], codebooks of one shape; each group uses the one that fits it best. */
void mn_iq_fit(const mn_codebook *forms, int n_forms, const float *x, const float *w,
               mn_iq_block *o);
#endif
