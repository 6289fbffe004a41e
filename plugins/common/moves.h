/* moves.h -- pages of the memory of sequences in the form that all devices share (mn.kv/1), in
 * memory of the host. */
#ifndef MNP_MOVES_H
#define MNP_MOVES_H
#include "common.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The cookie of a PAGED group's layout: the types that its cache has, whatever class chose them. */
#define MNP_COOKIE(k, v) ((uint64_t)(k) | (uint64_t)(v) << 16)
#define MNP_COOKIE_K(cookie) ((uint32_t)((cookie)&0xffff))
#define MNP_COOKIE_V(cookie) ((uint32_t)((cookie) >> 16 & 0xffff))

/* A row of a head in a page: of its n elements at position `at`. head: where the head's part of the
 * page begins, page_tokens times row_bytes. */
typedef struct mnp_rows {
    void (*get)(uint32_t dtype, const uint8_t *head, int64_t row_bytes, uint32_t page_tokens,
                int64_t at, int64_t n, float *x);
    void (*put)(uint32_t dtype, const float *x, int64_t row_bytes, uint32_t page_tokens, int64_t at,
                int64_t n, uint8_t *head);
} mnp_rows;
/* A call of mn.kv/1, read. */
typedef struct {
    mn_kv_page page;
    mn_memory_params params; /* with the types of the layout */
    mn_memory_layout layout;
    mnp_kv kv;           /* of a PAGED group */
    mnp_state_cols cols; /* of a STATE group */
    uint64_t bytes;      /* in the shared form */
} mnp_moves;
mn_status mnp_moves_of(const mn_kv_page *in, const mnp_kv_rules *rules, const mnp_state_cols *cols,
                       mnp_moves *out, mn_error *err);
/* The page and the host's bytes lie in buffers of so many bytes. */
mn_status mnp_moves_check(const mnp_moves *m, uint64_t memory_bytes, uint64_t host_bytes,
                          mn_error *err);
/* page: its bytes, those of a put zeroed before. */
void mnp_moves_get(const mnp_moves *m, const mnp_rows *rows, const uint8_t *page, float *to);
void mnp_moves_put(const mnp_moves *m, const mnp_rows *rows, const float *from, uint8_t *page);
#ifdef __cplusplus
}
#endif
#endif
