/* attend_distance.h -- attention with what contracts 4 and 5 of ATTENTION brought: what is launched
 * (k_attention_distance.cu), and how it is dealt to blocks (attend.c). */
#ifndef CU_ATTEND_DISTANCE_H
#define CU_ATTEND_DISTANCE_H
#include "kernels.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What joins scores, or is seen in place of a row's own past; NULL: absent. Tables [B, H],
 * [B, H, dk], lengths [S], ancestors [T, n_words]; exact to step: mnp_distances. */
enum { CU_DISTANCE_STEPS = 128 };
typedef struct {
    const float *biases, *rel_k, *rel_q;
    const int32_t *lengths, *ancestors;
    int n_words, exact, places, n_steps;
    int step[CU_DISTANCE_STEPS];
} cu_distance;
void cu_attend_distance_init(const cu_card *d); /* once for each device */
/* `rows` rows in a block, one where there are several slices; splits as in cu_attend_long. */
void cu_attend_distance(cudaStream_t s, const cu_attend *a, const cu_distance *d, int rows,
                        int log_split, int slices);
void cu_distance_run(const cu_card *d, cudaStream_t s, const cu_attend *a, const cu_distance *by);

#ifdef __cplusplus
}
#endif
#endif
