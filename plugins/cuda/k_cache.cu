/* k_cache.cu -- storing keys and values that are not both f32 or both f16. A warp has a head of one
 * row: its elements are turned into shared memory, then rounded to the cache's type; of q8_0 a
 * block of 32 is a warp's, with the steps of dtype/cached.c. Queries are turned by warps of their
 * own. */
#include "cached.cuh"
#include "rope.cuh"

enum { WARPS = 8, LONGEST = CU_MAX_HEAD };

/* A block of 32 elements, one each lane. */
__device__ __forceinline__ void put_q8(float x, char *code, __half *scale) {
    const bool finite = __all_sync(~0u, isfinite(x));
    const float top = warp_max(fabsf(x));
    const float wanted = __fdiv_rn(top, 127.0f);
    const __half half = finite ? to_half(wanted) : __ushort_as_half(0x7e00);
    const float d = __half2float(half);
    float q = 0;
    if (d > 0) {
        const float inverse = __fdiv_rn(1.0f, d);
        q = fminf(fmaxf(rintf(__fmul_rn(x, inverse)), -127.0f), 127.0f);
    }
    *(signed char *)code = (signed char)q;
    if (threadIdx.x % 32 == 0)
        *scale = half;
}

/* x: the `pad` elements of a head's row, in shared memory, to position p. */
__device__ void put_row(char *plane, uint32_t dtype, int kvh, int p, int pad, const float *x) {
    const int lane = threadIdx.x % 32;
    const int64_t row = float_row(kvh, p, pad);
    char *head = q8_head(plane, kvh, pad);
    char *codes = q8_codes_at(head, p, pad);
    __half *scales = q8_scales_at(head, p, pad);
    for (int i = lane; i - lane < pad; i += 32) {
        if (dtype == MN_Q8_0)
            put_q8(x[i], &codes[i], &scales[i / 32]);
        else if (i >= pad)
            break;
        else if (dtype == MN_F32)
            ((float *)plane)[row + i] = x[i];
        else
            ((__half *)plane)[row + i] = __float2half_rn(x[i]);
    }
}

/* A head of row t to shared memory; zeros from element n to `pad`. */
__device__ void load_row(const float *from, int n, int pad, float *x) {
    for (int i = threadIdx.x % 32; i < pad; i += 32) {
        x[i] = 0;
        if (i < n)
            x[i] = __ldcg(&from[i]);
    }
}

/* The same, turned. */
__device__ void turn_row(const cu_rope &r, int t, int h, int pos, int pad, float *x) {
    const int lane = threadIdx.x % 32;
    for (int i = r.D + lane; i < pad; i += 32)
        x[i] = 0;
    for (int i = lane; i < pairs_of(r.D); i += 32) {
        int i0;
        int i1;
        float a;
        float b;
        load_pair(r, t, h, i, pos, &i0, &i1, &a, &b);
        x[i0] = a;
        if (i1 < r.D)
            x[i1] = b;
    }
}

/* Head h of the queries of row t. */
__device__ void turn_query(const cu_rope &q, int t, int h, int pos) {
    const int per = pairs_of(q.D);
    const int first = h * per;
    for (int i = threadIdx.x % 32; i < per; i += 32)
        rope_pair(q, t, first + i, max(pos, 0));
}

/* The page of position pos; -1 = none: nothing is stored. */
__device__ int page_of(const cu_cache &c, int slot, int pos) {
    if (pos < 0 || slot < 0 || slot >= c.S)
        return -1;
    const int i = pos / CU_PAGE_TOKENS;
    if (i >= c.P)
        return -1;
    const int64_t table = (int64_t)slot * c.P;
    const int page = __ldcg(&c.pages[table + i]);
    if (page >= c.n_pages)
        return -1;
    return page;
}

/* Grid: x = rows; y = warps: a head of keys, then of values, then of queries. */
__global__ void __launch_bounds__(32 * WARPS) store_heads(cu_store a) {
    __shared__ float heads[WARPS][LONGEST];
    cu_next();
    cu_wait();
    const cu_cache &c = a.c;
    const int warp = threadIdx.x / 32;
    const int t = blockIdx.x;
    const int pos = __ldcg(&c.row_pos[t]);
    const int slot = __ldcg(&c.row_slot[t]);
    const int h = blockIdx.y * WARPS + warp;
    const int value_h = h - c.Hkv;
    const int query_h = value_h - c.Hkv;
    float *x = heads[warp];
    if (value_h >= 0 && query_h < 0 && !a.v) /* values are keys */
        return;
    if (query_h >= 0) {
        if (a.rope && query_h < a.q.H)
            turn_query(a.q, t, query_h, pos);
        return;
    }
    const int page = page_of(c, slot, pos);
    if (page < 0)
        return;
    const int64_t row = (int64_t)t * c.Hkv;
    if (value_h >= 0)
        load_row(a.v + (row + value_h) * c.dv, c.dv, c.pv, x);
    else if (a.rope)
        turn_row(a.kr, t, h, pos, c.pk, x);
    else
        load_row(a.k + (row + h) * c.dk, c.dk, c.pk, x);
    __syncwarp();
    if (value_h >= 0)
        put_row(values_at(c, page), c.v_dtype, value_h, pos, c.pv, x);
    else
        put_row(keys_at(c, page), c.k_dtype, h, pos, c.pk, x);
}

void cu_store_kept(cudaStream_t s, const cu_store *a) {
    const int queries = a->rope ? a->q.H : 0;
    const int heads = 2 * a->c.Hkv + queries;
    const dim3 grid(a->c.T, (heads + WARPS - 1) / WARPS);
    launch(s, store_heads, grid, 32 * WARPS, 0, *a);
}
