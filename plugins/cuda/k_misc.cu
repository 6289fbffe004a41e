/* k_misc.cu -- the small kernels: norms, the state of an embedding, rope, storing keys and values,
 * elementwise operations, gather. Each is bound by memory or by its launch; rows are a block's. */
#include "rope.cuh"

/* Rows of K elements to rows of ld in 16 bits, zeros behind. */
__global__ void __launch_bounds__(256)
    to_half_rows(const float *x, void *y, int K, int ld, int kind) {
    cu_next();
    cu_wait();
    const int64_t to = (int64_t)blockIdx.x * ld;
    const float *from = x + (int64_t)blockIdx.x * K;
    for (int i = threadIdx.x; i < ld; i += 256) {
        {
            const float v = i < K ? __ldcg(&from[i]) : 0;
            put(y, to + i, v, kind);
        }
    }
}
void cu_to_half(cudaStream_t s, const float *x, void *y, int rows, int K, int ld, int kind) {
    launch(s, to_half_rows, dim3(rows), 256, 0, x, y, K, ld, kind);
}

__device__ __forceinline__ void put4(void *y, int64_t i, float4 v, int kind) {
    if (kind == CU_F32) {
        *(float4 *)((float *)y + i) = v;
        return;
    }
    ushort4 h;
    put(&h, 0, v.x, kind);
    put(&h, 1, v.y, kind);
    put(&h, 2, v.z, kind);
    put(&h, 3, v.w, kind);
    *(ushort4 *)((uint16_t *)y + i) = h;
}

/* The same order of sums as the norm fused into gemv. Rows of a.x, gathered if asked, to a.y, and
 * in 16 bits to a.half, padded with zeros to a.ld. */
__global__ void __launch_bounds__(256) rms_rows(cu_norm a) {
    enum { HELD = 8 }; /* vectors of x that a thread keeps: rows of up to 8,192 */
    __shared__ float red[8];
    const int D = a.D;
    const bool wide = D % 4 == 0 && D <= 1024 * HELD;
    const float *weight = a.w + (int64_t)(blockIdx.x % a.w_rows) * D;
    float4 v[HELD];
    float4 w[HELD];
    cu_next();
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        const int i = 4 * threadIdx.x + 1024 * k;
        if (wide && i < D)
            w[k] = *(const float4 *)(weight + i);
    }
    cu_wait();
    int64_t row = a.gather ? __ldcg(&a.gather[blockIdx.x]) : (int64_t)blockIdx.x;
    if (row >= a.x_rows)
        row = -1;
    const float *x = row >= 0 ? a.x + row * D : NULL;
    float ss = 0;
    if (!wide)
        ss = scan_row(x, D, D, [](int, float4) {});
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        const int i = 4 * threadIdx.x + 1024 * k;
        v[k] = make_float4(0, 0, 0, 0);
        if (wide && x && i < D)
            v[k] = __ldcg((const float4 *)(x + i));
    }
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        if (1024 * k < D)
            ss = add_squares(ss, v[k]);
    }
    const float rstd = cu_rstd(block_sum256(ss, red), D, a.eps);
    const int64_t at = (int64_t)blockIdx.x * D;
    const int64_t half_at = (int64_t)blockIdx.x * a.ld;
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        const int i = 4 * threadIdx.x + 1024 * k;
        if (!wide || i >= D)
            break;
        float4 y;
        y.x = v[k].x * rstd * (w[k].x + a.offset);
        y.y = v[k].y * rstd * (w[k].y + a.offset);
        y.z = v[k].z * rstd * (w[k].z + a.offset);
        y.w = v[k].w * rstd * (w[k].w + a.offset);
        put4(a.y, at + i, y, a.y_kind);
        if (a.half)
            put4(a.half, half_at + i, y, a.half_kind);
    }
    for (int i = threadIdx.x; !wide && i < D; i += 256) {
        const float from = x ? __ldcg(&x[i]) : 0;
        const float y = from * rstd * (weight[i] + a.offset);
        put(a.y, at + i, y, a.y_kind);
        if (a.half)
            put(a.half, half_at + i, y, a.half_kind);
    }
    for (int i = D + threadIdx.x; a.half && i < a.ld; i += 256)
        put(a.half, half_at + i, 0, a.half_kind);
}
void cu_rms_norm(cudaStream_t s, const cu_norm *a) {
    launch(s, rms_rows, dim3(a->rows), 256, 0, *a);
}

/* A block has a row; w_rows: rows of w and b, which rows of x take in turn. */
__global__ void __launch_bounds__(256) layer_rows(const float *x, const float *w, const float *b,
                                                  float *y, int w_rows, int D, float eps) {
    __shared__ float red[8];
    cu_next();
    cu_wait();
    const float *r = x + (int64_t)blockIdx.x * D;
    float *to = y + (int64_t)blockIdx.x * D;
    const int64_t own = (int64_t)(blockIdx.x % w_rows) * D;
    float sum = 0;
    float var = 0;
    for (int i = threadIdx.x; i < D; i += 256)
        sum += __ldcg(&r[i]);
    float mean = block_sum256(sum, red) / (float)D;
    for (int i = threadIdx.x; i < D; i += 256) {
        float v = __ldcg(&r[i]) - mean;
        var = fmaf(v, v, var);
    }
    float rstd = cu_rstd(block_sum256(var, red), D, eps);
    for (int i = threadIdx.x; i < D; i += 256) {
        const float v = __ldcg(&r[i]) - mean;
        const float bias = b ? b[own + i] : 0;
        to[i] = v * rstd * w[own + i] + bias;
    }
}
void cu_layer_norm(cudaStream_t s, const float *x, const float *w, const float *b, float *y,
                   int rows, int w_rows, int D, float eps) {
    launch(s, layer_rows, dim3(rows), 256, 0, x, w, b, y, w_rows, D, eps);
}

/* ---- embedding ------------------------------------------------------------------------------- */
/* The id of a row and its position; -1 = the row has no effect. A row that continues its slot is
 * the only one of the slot in the step. */
__device__ int resolve(const cu_embed &e, int t, int *id) {
    const int s = __ldcg(&e.row_slot[t]);
    const int src = __ldcg(&e.src[t]);
    if (s < 0 || s >= e.S)
        return -1;
    const int32_t *slot = e.slots.at + (int64_t)s * e.slots.words;
    const int last_id = __ldcg(&slot[0]);
    const int pos = __ldcg(&slot[1]);
    const int done = __ldcg(&slot[3]);
    if (src < 0 && done)
        return -1;
    const int given = __ldcg(&e.pos[t]);
    const int p = given < 0 ? pos : given;
    *id = src < 0 ? last_id : src;
    if (*id < 0 || *id >= e.V)
        *id = 0;
    if (p < e.C)
        return p;
    return -1;
}

/* One block. All rows are resolved from the state before the step, then the state goes forward. */
__global__ void __launch_bounds__(1024) embed_state(cu_embed e) {
    cu_next();
    cu_wait();
    for (int t = threadIdx.x; t < e.T; t += blockDim.x) {
        int id = -1;
        int p = resolve(e, t, &id);
        e.row_pos[t] = p;
        e.ids[t] = p < 0 ? -1 : id;
    }
    __syncthreads();
    for (int t = threadIdx.x; t < e.T; t += blockDim.x) {
        int p = __ldcg(&e.row_pos[t]);
        int s = __ldcg(&e.row_slot[t]);
        if (p < 0)
            continue;
        int32_t *history = e.history + (int64_t)s * e.C;
        history[p] = __ldcg(&e.ids[t]);
        bool last = t + 1 == e.T;
        if (!last)
            last = __ldcg(&e.row_slot[t + 1]) != s || __ldcg(&e.row_pos[t + 1]) < 0;
        int32_t *slot = e.slots.at + (int64_t)s * e.slots.words;
        if (last)
            ((mn_slot *)slot)->pos = p + 1;
    }
}

void cu_embed_state(cudaStream_t s, const cu_embed *e) {
    launch(s, embed_state, dim3(1), e->T > 256 ? 1024 : 256, 0, *e);
}

__global__ void __launch_bounds__(256) lookup_ids(cu_embed e) {
    cu_next();
    cu_wait();
    const int t = blockIdx.x * 256 + threadIdx.x;
    if (t >= e.T)
        return;
    const int p = __ldcg(&e.row_pos[t]);
    const int s = __ldcg(&e.row_slot[t]);
    const bool is_row = p >= 0 && p < e.C && s >= 0 && s < e.S;
    int id = -1;
    if (is_row) {
        id = __ldcg(&e.history[(int64_t)s * e.C + p]);
        if (id < 0 || id >= e.V)
            id = 0;
    }
    e.ids[t] = id;
}

void cu_lookup_ids(cudaStream_t s, const cu_embed *e) {
    launch(s, lookup_ids, dim3((e->T + 255) / 256), 256, 0, *e);
}

/* ---- rope ------------------------------------------------------------------------------------ */
__global__ void __launch_bounds__(256) rope_rows(cu_rope r) {
    cu_next();
    cu_wait();
    int t = blockIdx.x;
    int j = blockIdx.y * 256 + threadIdx.x;
    int pos = max(__ldcg(&r.row_pos[t]), 0);
    if (j < row_pairs(r))
        rope_pair(r, t, j, pos);
}
void cu_rope_run(cudaStream_t s, const cu_rope *r) {
    const dim3 grid(r->T, (row_pairs(*r) + 255) / 256);
    launch(s, rope_rows, grid, 256, 0, *r);
}

/* ---- storing keys and values, with q and k turned on the way --------------------------------- */
__device__ __forceinline__ void put_kv(const cu_cache &c, char *at, int i, float v) {
    if (c.dtype == MN_F32)
        ((float *)at)[i] = v;
    else
        ((__half *)at)[i] = __float2half_rn(v);
}

/* Threads of a row: pairs of q (if it is turned here), pairs of k, elements of v. Rows without a
 * slot, a position or a page store nothing. */
__global__ void __launch_bounds__(256) store_rows(cu_store a) {
    cu_next();
    cu_wait();
    const cu_cache &c = a.c;
    int t = blockIdx.x;
    int j = blockIdx.y * 256 + threadIdx.x;
    int pos = __ldcg(&c.row_pos[t]);
    int slot = __ldcg(&c.row_slot[t]);
    int nq = a.rope ? row_pairs(a.q) : 0;
    int nk = c.Hkv * pairs_of(c.dk);
    int nv = c.Hkv * c.dv;
    if (j < nq)
        return rope_pair(a.q, t, j, max(pos, 0));
    j -= nq;
    if (j >= nk + nv || pos < 0 || slot < 0 || slot >= c.S)
        return;
    if (pos / CU_PAGE_TOKENS >= c.P)
        return;
    const int in_page = pos % CU_PAGE_TOKENS;
    int page = __ldcg(&c.pages[(int64_t)slot * c.P + pos / CU_PAGE_TOKENS]);
    if (page < 0 || page >= c.n_pages)
        return;
    char *base = c.kv + (int64_t)page * c.page_bytes + c.layer_at;
    int esz = c.dtype == MN_F32 ? 4 : 2;
    int per = (c.dk + 1) / 2;
    if (j < nk) {
        int h = j / per;
        int i0;
        int i1;
        float x;
        float y;
        if (a.rope) {
            load_pair(a.kr, t, h, j % per, pos, &i0, &i1, &x, &y);
        } else {
            i0 = 2 * (j % per);
            i1 = i0 + 1;
            const float *k = a.k + ((int64_t)t * c.Hkv + h) * c.dk;
            x = __ldcg(&k[i0]);
            y = i1 < c.dk ? __ldcg(&k[i1]) : 0;
        }
        const int64_t row = (int64_t)h * CU_PAGE_TOKENS + in_page;
        char *at = base + row * c.pk * esz;
        put_kv(c, at, i0, x);
        if (i1 < c.dk)
            put_kv(c, at, i1, y);
    } else {
        j -= nk;
        int h = j / c.dv;
        int i = j % c.dv;
        const int64_t row = (int64_t)h * CU_PAGE_TOKENS + in_page;
        char *at = base + c.v_offset + row * c.pv * esz;
        const float *v = a.v + ((int64_t)t * c.Hkv + h) * c.dv;
        put_kv(c, at, i, __ldcg(&v[i]));
    }
}
void cu_store_run(cudaStream_t s, const cu_store *a) {
    const cu_cache &c = a->c;
    const int nq = a->rope ? row_pairs(a->q) : 0;
    const int n = nq + c.Hkv * pairs_of(c.dk) + c.Hkv * c.dv;
    if (c.dtype != MN_F32 && c.dtype != MN_F16)
        return cu_store_kept(s, a);
    launch(s, store_rows, dim3(a->c.T, (n + 255) / 256), 256, 0, *a);
}

/* ---- elementwise ----------------------------------------------------------------------------- */
__global__ void __launch_bounds__(256) elementwise(cu_elementwise e) {
    cu_next();
    cu_wait();
    const int64_t step = (int64_t)gridDim.x * 256;
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < e.n; i += step) {
        const float x = __ldcg(&e.a[i]);
        int64_t other = i;
        float z = 0;
        if (e.what == CU_EW_PAIRS)
            other = i / e.n_b;
        if (e.b)
            z = __ldcg(&e.b[other]);
        float v;
        switch (e.what) {
        case CU_EW_ACT:
            v = cu_act(e.glu.kind, x);
            break;
        case CU_EW_XIELU:
            v = cu_xielu_of(e.xielu, x);
            break;
        case CU_EW_GLU:
            v = cu_glu_of(e.glu, x, z);
            break;
        case CU_EW_ADD:
            v = x + z;
            break;
        case CU_EW_MUL:
        case CU_EW_PAIRS:
            v = x * z;
            break;
        case CU_EW_SCALE:
            v = x * e.f;
            break;
        default:
            v = e.f * tanhf(x / e.f);
        }
        put(e.y, i, v, e.y_kind);
    }
}
void cu_elementwise_run(cudaStream_t s, const cu_elementwise *e) {
    const int64_t blocks = (e->n + 255) / 256;
    const unsigned grid = (unsigned)(blocks < 4096 ? blocks : 4096);
    if (e->n > 0)
        launch(s, elementwise, dim3(grid), 256, 0, *e);
}

/* A row that is not one of x's T becomes zeros. */
__global__ void __launch_bounds__(256)
    gather_rows(const float *x, const int32_t *rows, float *y, int T, int D) {
    cu_next();
    cu_wait();
    int r = __ldcg(&rows[blockIdx.x]);
    const bool there = r >= 0 && r < T;
    const float *from = x + (int64_t)r * D;
    float *to = y + (int64_t)blockIdx.x * D;
    for (int i = threadIdx.x; i < D; i += 256)
        to[i] = there ? __ldcg(&from[i]) : 0;
}
void cu_gather(cudaStream_t s, const float *x, const int32_t *rows, float *y, int O, int T, int D) {
    launch(s, gather_rows, dim3(O), 256, 0, x, rows, y, T, D);
}
