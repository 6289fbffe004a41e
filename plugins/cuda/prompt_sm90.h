/* prompt_sm90.h -- attention of many rows on Hopper: what its kernels (prompt_sm90.cuh) are
 * launched with, and their tables. prompt_sm90.c fills in the former and chooses from the
 * latter. */
#ifndef CU_PROMPT_SM90_H
#define CU_PROMPT_SM90_H
#include "kernels.h"
#include <cuda.h>
#ifdef __cplusplus
extern "C" {
#endif

/* keys, values: [pages, heads, CU_PAGE_TOKENS, pad] of a layer, read by boxes of a page's rows */
typedef struct {
    CUtensorMap keys, values;
    cu_attend a;
} prompt_params;

typedef struct {
    int dims;           /* of the longest heads */
    int rows;           /* pairs of row and head of a tile */
    bool (*init)(void); /* false: built without code for 9.0 */
    void (*launch)(cudaStream_t s, const prompt_params *p, int blocks);
} prompt_sm90_kernel;
enum { PROMPT_SM90_KERNELS = 3, PROMPT_SM90_Q8_KERNELS = 2 };
/* By dims, for keys and values in f16 and in q8_0, which want no maps. */
extern const prompt_sm90_kernel prompt_sm90_f16[PROMPT_SM90_KERNELS];
extern const prompt_sm90_kernel prompt_sm90_q8_0[PROMPT_SM90_Q8_KERNELS];
#ifdef __cplusplus
}
#endif
#endif
