/* moves.c -- mn.kv/1: where rows of a head lie in a page, and that a group of cards moves none. Of
 * Q8_0 a head has the codes of all rows, then their scales (cached.cuh). */
#include "group.h"
#include "dtype.h"
#include "moves.h"

/* A row of Q8_0 as blocks of a scale and 32 codes, or back. */
typedef struct {
    uint8_t *codes, *scales;
} split_row;

static split_row split_at(const uint8_t *head, int64_t row_bytes, uint32_t page_tokens,
                          int64_t at) {
    uint8_t *to = (uint8_t *)(uintptr_t)head; /* a get writes nothing */
    const int64_t blocks = row_bytes / 34;
    return (split_row){to + at * blocks * 32, to + page_tokens * blocks * 32 + at * blocks * 2};
}

static void row_get(uint32_t dtype, const uint8_t *head, int64_t row_bytes, uint32_t page_tokens,
                    int64_t at, int64_t n, float *x) {
    if (dtype != MN_Q8_0) {
        mn_cached_get(dtype, head + at * row_bytes, n, x);
        return;
    }
    const split_row r = split_at(head, row_bytes, page_tokens, at);
    for (int64_t i = 0; i < n; i += 32) {
        uint8_t block[34];
        memcpy(block, r.scales + i / 16, 2);
        memcpy(block + 2, r.codes + i, 32);
        mn_cached_get(dtype, block, n - i < 32 ? n - i : 32, x + i);
    }
}

static void row_put(uint32_t dtype, const float *x, int64_t row_bytes, uint32_t page_tokens,
                    int64_t at, int64_t n, uint8_t *head) {
    if (dtype != MN_Q8_0) {
        mn_cached_put(dtype, x, n, head + at * row_bytes);
        return;
    }
    const split_row r = split_at(head, row_bytes, page_tokens, at);
    for (int64_t i = 0; i < n; i += 32) {
        uint8_t block[34];
        mn_cached_put(dtype, x + i, n - i < 32 ? n - i : 32, block);
        memcpy(r.scales + i / 16, block, 2);
        memcpy(r.codes + i, block + 2, 32);
    }
}

const mnp_rows cu_page_rows = {row_get, row_put};

static mn_status check_alone(const mn_queue *q, mn_error *err) {
    if (!cu_is_group(q->base.dev))
        return MN_OK;
    return mnp_fail(err, MN_UNSUPPORTED, ~0u, "a group of devices moves no pages");
}

static mn_status get(mn_queue *q, const mn_kv_page *page, mn_event **event, mn_error *err) {
    const mn_status st = check_alone(q, err);
    return st ? st : mng_moves.get(q, page, event, err);
}

static mn_status put(mn_queue *q, const mn_kv_page *page, mn_event **event, mn_error *err) {
    const mn_status st = check_alone(q, err);
    return st ? st : mng_moves.put(q, page, event, err);
}

const mn_kv_moves cu_moves = {.size = sizeof(mn_kv_moves), .get = get, .put = put};
