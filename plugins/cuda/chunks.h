/* chunks.h -- SSM_SCAN and GATED_DELTA of many rows by matrix units (k_chunks.cu), for classes a16
 * and a8. For the plugin and tests/kernels/cuda_state. */
#ifndef CU_CHUNKS_H
#define CU_CHUNKS_H
#include "kernels.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { CU_CHUNK_ROWS = 64, CU_CHUNK_LONG = 128, CU_CHUNK_COLUMNS = 32 };
/* Bytes of what a chunk leaves for each group of vectors, and for each head. */
enum {
    CU_CHUNK_VECTORS = 2 * CU_CHUNK_ROWS * CU_CHUNK_LONG * 2,
    CU_CHUNK_HEAD = 2 * CU_CHUNK_ROWS * CU_CHUNK_ROWS * 2 + 2 * CU_CHUNK_ROWS * 4
};
/* Bytes of `room` for so many rows and sequences of a step, and groups and heads of a scan. */
static inline uint64_t cu_chunks_room(int rows, int seqs, int groups, int heads) {
    const uint64_t chunks = (uint64_t)rows / CU_CHUNK_ROWS + (uint64_t)seqs;
    return chunks * ((uint64_t)groups * CU_CHUNK_VECTORS + (uint64_t)heads * CU_CHUNK_HEAD);
}
/* Whether it can: decays by heads, vectors of CU_CHUNK_LONG, heads of whole CU_CHUNK_COLUMNS; of
 * the delta rule keys of length 1, for with others the inverse may grow without bound. */
static inline bool cu_chunks_fit(const cu_scan *a) {
    const uintptr_t at = (uintptr_t)a->rows | (uintptr_t)a->y | (uintptr_t)a->s.memory;
    if (at % 16 != 0 || a->width % 4 != 0 || a->s.page_bytes % 8 != 0)
        return false;
    if (a->each || (a->beta && a->eps == 0))
        return false;
    return a->n == CU_CHUNK_LONG && a->dim % CU_CHUNK_COLUMNS == 0;
}
/* As cu_scan_run; room: memory of the step, aligned to 16 bytes. */
void cu_chunks_run(cudaStream_t s, const cu_scan *a, void *room);

#ifdef __cplusplus
}
#endif
#endif
