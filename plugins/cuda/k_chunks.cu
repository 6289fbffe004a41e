/* k_chunks.cu -- SSM_SCAN and GATED_DELTA of many rows by matrix units, for classes a16 and a8.
 *
 * The chunked form (Yang et al. 2024, "Gated Delta Networks"; Dao and Gu 2024, "Transformers are
 * SSMs"). With S the state in front of a chunk, G_i the product of the decays of its rows up to i,
 * k and q what is written and read with, b the write factors of the delta rule:
 *     A_ij = b_i G_i / G_j (k_i . k_j) for j < i      T = (1 + A)^-1 diag(b)
 *     U    = T (V - diag(G) K S^T)                    a scan: U = diag(b) X
 *     Y    = diag(G) Q S^T + M U                      M_ij = G_i / G_j (q_i . k_j) for j <= i
 *     S    = G_end S + sum over j of G_end / G_j u_j k_j^T
 * Two kernels: chunk_prepare makes K, Q, T, M, G of all chunks at once; chunk_advance goes through
 * the chunks of a sequence, a block for 32 or 64 columns (elements of x or v) of a head, whose
 * state is in registers in f32. K, Q, T, M, and U, V - ..., S where they are multiplied are f16.
 *
 * Vectors k and q have 128 elements. Rows that are padding have k = q = 0 and leave the state as it
 * is. */
#include "device.cuh"
#include "chunks.h"
#include "ptx.cuh"
#include <float.h>

enum { CHUNK = CU_CHUNK_ROWS, LONG = CU_CHUNK_LONG, WARPS = 8, THREADS = 32 * WARPS };
enum { BLOCK = 16, BLOCKS = CHUNK / BLOCK };
/* Rows in shared memory are so much longer than they need be that eight of them lie in different
 * banks. */
enum { LONG_LD = LONG + 8, CHUNK_LD = CHUNK + 8 };

/* ---- rooms ----------------------------------------------------------------------------------- */
/* What chunk_prepare leaves of a chunk: for each group of vectors, and for each head. */
struct chunk_vectors {
    __half write[CHUNK][LONG];
    __half read[CHUNK][LONG];
};
struct chunk_head {
    __half solve[CHUNK]
                [CHUNK];      /* T, of the delta rule; above the blocks of the diagonal: nothing */
    __half mix[CHUNK][CHUNK]; /* M, likewise */
    float log_decay[CHUNK];   /* ln G */
    float by[CHUNK];          /* b of a scan */
};
static_assert(sizeof(chunk_vectors) == CU_CHUNK_VECTORS, "chunks.h");
static_assert(sizeof(chunk_head) == CU_CHUNK_HEAD, "chunks.h");
struct chunk_room {
    chunk_vectors *vectors;
    chunk_head *heads;
};
static __host__ __device__ int most_chunks(const cu_states &s) {
    return s.T / CHUNK + s.Q;
}
static __host__ __device__ chunk_room room_of(const cu_scan &a, char *at) {
    const int64_t n = (int64_t)most_chunks(a.s) * a.G;
    return {(chunk_vectors *)at, (chunk_head *)(at + n * sizeof(chunk_vectors))};
}

/* ---- sequences and their chunks -------------------------------------------------------------- */
struct rows_at {
    int lo, hi;
};
/* Rows of entry i; none if it is unused, or left to cu_scan_run. */
__device__ __forceinline__ rows_at rows_of_entry(const cu_scan &a, int i) {
    const cu_states &s = a.s;
    const int32_t *entry = s.seqs + 4 * (int64_t)i;
    const int lo = __ldcg(&entry[0]);
    const int n = __ldcg(&entry[1]);
    if (lo < 0 || n <= 0 || n > s.T - lo || n < a.chunks_from)
        return {0, 0};
    return {lo, lo + n};
}
/* The first chunk of entry i, whose rows begin at lo: behind all chunks of sequences whose rows
 * come before. ceil(n / CHUNK) of a sequence, summed, is at most lo / CHUNK + their number. */
__device__ int first_chunk(const cu_scan &a, int lo) {
    int before = 0;
    for (int j = 0; j < a.s.Q; j++) {
        const rows_at other = rows_of_entry(a, j);
        before += other.hi > other.lo && other.lo < lo;
    }
    return lo / CHUNK + before;
}
/* By a block: rows of chunk `chunk` to *found, which is empty if it has none. */
__device__ void find_chunk(const cu_scan &a, int chunk, rows_at *found) {
    if (threadIdx.x == 0)
        *found = {0, 0};
    __syncthreads();
    for (int i = threadIdx.x; i < a.s.Q; i += THREADS) {
        const rows_at all = rows_of_entry(a, i);
        if (all.hi <= all.lo)
            continue;
        const int lo = all.lo + (chunk - first_chunk(a, all.lo)) * CHUNK;
        if (lo >= all.lo && lo < all.hi)
            *found = {lo, min(lo + CHUNK, all.hi)};
    }
    __syncthreads();
}

/* ---- fragments ------------------------------------------------------------------------------- */
/* Of mma (m16n8k16): A [16, 16] row by row; A whose memory is [k, m]; B of 16 columns whose memory
 * is [n, k], v[0..1] and v[2..3] for eight each; B whose memory is [k, n]. */
__device__ __forceinline__ void a_rows(uint32_t v[4], const __half *at, int ld, int lane) {
    load_matrices(v, shared_at(at + lane % 16 * ld + lane / 16 * 8));
}
__device__ __forceinline__ void a_columns(uint32_t v[4], const __half *at, int ld, int lane) {
    load_transposed(v, shared_at(at + (lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 8));
}
__device__ __forceinline__ void b_rows(uint32_t v[4], const __half *at, int ld, int lane) {
    load_matrices(v, shared_at(at + (lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 8));
}
__device__ __forceinline__ void b_columns(uint32_t v[4], const __half *at, int ld, int lane) {
    load_transposed(v, shared_at(at + lane % 16 * ld + lane / 16 * 8));
}
/* c of two tiles of eight columns += a b */
__device__ __forceinline__ void mma_pair(float c[][4], const uint32_t a[4], const uint32_t b[4]) {
    mma<CU_HALF>(c[0], a, b);
    mma<CU_HALF>(c[1], a, b + 2);
}
__device__ __forceinline__ __half2 halves(float a, float b) {
    return __halves2half2(to_half(a), to_half(b));
}

/* ---- chunk_prepare --------------------------------------------------------------------------- */
struct __align__(16) prepare_shared {
    __half write[CHUNK][LONG_LD];
    __half read[CHUNK][LONG_LD];
    float a[CHUNK][CHUNK + 4]; /* A, below the diagonal */
    float t[CHUNK][CHUNK + 4]; /* (1 + A)^-1 */
    float w[CHUNK][BLOCK + 4];
    float log_decay[CHUNK], by[CHUNK];
    int live[CHUNK];
    float total;
    rows_at rows;
};

__device__ __forceinline__ float softplus(float x) {
    return fmaxf(x, 0) + log1pf(expf(-fabsf(x)));
}
/* factor / length of a row, of which a lane has four; eps 0: factor. */
__device__ float row_factor(float4 v, float eps, float factor) {
    if (eps == 0)
        return factor;
    const float sum = warp_sum(add_squares(0, v));
    if (sum <= FLT_MAX)
        return factor * rsqrtf(sum + eps);
    const float by = 1.0f / 18446744073709551616.0f; /* 2^-64: the squares leave the range of f32 */
    const float4 low = make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
    return factor * by / sqrtf(warp_sum(add_squares(0, low)));
}
__device__ __forceinline__ void put_row(__half *to, float4 v, bool live, float by) {
    const __half2 none = halves(0, 0);
    ((__half2 *)to)[0] = live ? halves(v.x * by, v.y * by) : none;
    ((__half2 *)to)[1] = live ? halves(v.z * by, v.w * by) : none;
}
/* Vectors of the chunk to shared memory, a row by a warp; padding, and behind the rows: zeros. */
__device__ void prepare_vectors(const cu_scan &a, prepare_shared *m, int group, bool delta) {
    const int lane = threadIdx.x % 32;
    const float scale = delta ? a.scale : 1;
    const float eps = delta ? a.eps : 0;
#pragma unroll 4
    for (int r = threadIdx.x / 32; r < CHUNK; r += WARPS) {
        const bool live = m->live[r];
        const int t = m->rows.lo + (live ? r : 0); /* loads without a branch go ahead together */
        const float *row = a.rows + (int64_t)t * a.width + group * LONG;
        const float4 write = __ldcg((const float4 *)(row + a.write_at) + lane);
        const float4 read = __ldcg((const float4 *)(row + a.read_at) + lane);
        put_row(&m->write[r][4 * lane], write, live, row_factor(write, eps, 1));
        put_row(&m->read[r][4 * lane], read, live, row_factor(read, eps, scale));
    }
}
/* ln of a row's decay, and b; by one thread. */
__device__ void prepare_factors(const cu_scan &a, prepare_shared *m, int head, bool delta) {
    const int r = threadIdx.x;
    const int t = m->rows.lo + r;
    const int64_t step = (int64_t)t * a.H + head;
    float log_decay = 0;
    float by = 0;
    if (m->live[r]) {
        const float rate = a.a_log ? -expf(a.a[head]) : a.a[head];
        float size = softplus(__ldcg(&a.step[step]) + a.dt_bias[head]);
        size = size < a.dt_min ? a.dt_min : size;
        size = a.dt_max != 0 && size > a.dt_max ? a.dt_max : size;
        log_decay = size * rate;
        by = delta ? a.beta_scale / (1.0f + expf(-__ldcg(&a.beta[step]))) : size;
    }
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        const float before = __shfl_up_sync(~0u, log_decay, o);
        log_decay += r % 32 >= o ? before : 0;
    }
    m->log_decay[r] = log_decay; /* of its half; prepare_rows adds the first half's */
    m->by[r] = by;
}
__device__ void prepare_rows(const cu_scan &a, prepare_shared *m, int head, bool delta) {
    const int r = threadIdx.x;
    if (r < CHUNK) {
        const int t = m->rows.lo + r;
        m->live[r] = t < m->rows.hi && __ldcg(&a.s.row_pos[t]) >= 0;
    }
    __syncthreads();
    if (r < CHUNK)
        prepare_factors(a, m, head, delta);
    __syncthreads();
    if (r == 0)
        m->total = m->log_decay[31];
    __syncthreads();
    if (r >= 32 && r < CHUNK)
        m->log_decay[r] += m->total;
}
/* G_i / G_j; both logarithms are sums of one order, so that the difference is what lies between. */
__device__ __forceinline__ float decay_between(const prepare_shared *m, int i, int j) {
    return expf(m->log_decay[i] - m->log_decay[j]);
}
/* Of a [CHUNK, LONG] the warp's 16 rows times those of a pair of tiles of `write`. */
__device__ __forceinline__ void prepare_pair(const prepare_shared *m, const __half (*of)[LONG_LD],
                                             int row0, int pair, float c[2][4]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < LONG; k += 16) {
        uint32_t v[4], b[4];
        a_rows(v, &of[row0][k], LONG_LD, lane);
        b_rows(b, &m->write[16 * pair][k], LONG_LD, lane);
        mma_pair(c, v, b);
    }
}
/* A by the first four warps, M by the others: the blocks on and below the diagonal of 16 rows. */
__device__ void prepare_products(prepare_shared *m, chunk_head *to, bool delta) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int row0 = warp % BLOCKS * 16;
    const bool is_mix = warp >= BLOCKS;
    if (!is_mix && !delta)
        return;
    for (int pair = 0; 16 * pair <= row0; pair++) {
        float c[2][4] = {};
        prepare_pair(m, is_mix ? m->read : m->write, row0, pair, c);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = row0 + lane / 4 + e % 2 * 8;
            const int j = 16 * pair + e / 2 * 8 + 2 * (lane % 4);
            const int last = is_mix ? i : i - 1; /* the last column that counts */
            const float *v = &c[e / 2][e % 2 * 2];
            const float v0 = j <= last ? decay_between(m, i, j) * v[0] : 0;
            const float v1 = j + 1 <= last ? decay_between(m, i, j + 1) * v[1] : 0;
            if (is_mix)
                *(__half2 *)&to->mix[i][j] = halves(v0, v1);
            else
                *(float2 *)&m->a[i][j] = make_float2(m->by[i] * v0, m->by[i] * v1);
        }
    }
}
/* Inverses of the blocks of the diagonal: a thread has a column. */
__device__ void invert_diagonal(prepare_shared *m) {
    const int at = threadIdx.x / BLOCK * BLOCK;
    const int c = threadIdx.x % BLOCK;
    float t[BLOCK];
#pragma unroll
    for (int r = 0; r < BLOCK; r++) {
        float sum = r == c ? 1.0f : 0.0f;
#pragma unroll
        for (int k = 0; k < r; k++)
            sum = fmaf(-m->a[at + r][at + k], t[k], sum);
        t[r] = sum;
        m->t[at + r][at + c] = sum;
    }
}
/* Four numbers of a row of a [16, 16 n] times b [16 n, 16]. */
__device__ __forceinline__ float4 four_of_product(const float *row, const float *b, int ld, int n) {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int k = 0; k < n; k++) {
        const float by = row[k];
        const float4 v = *(const float4 *)(b + k * ld);
        sum.x = fmaf(by, v.x, sum.x);
        sum.y = fmaf(by, v.y, sum.y);
        sum.z = fmaf(by, v.z, sum.z);
        sum.w = fmaf(by, v.w, sum.w);
    }
    return sum;
}
/* Blocks `below` the diagonal: T_ij = -T_ii (sum over k of A_ik T_kj), j <= k < i. */
__device__ void invert_below(prepare_shared *m, int below) {
    const int items = (BLOCKS - below) * BLOCK * BLOCK / 4;
    for (int item = threadIdx.x; item < items; item += THREADS) {
        const int r = below * BLOCK + item / 4;
        const int from = (r / BLOCK - below) * BLOCK;
        const int c = item % 4 * 4;
        *(float4 *)&m->w[r][c] =
            four_of_product(&m->a[r][from], &m->t[from][from + c], CHUNK + 4, below * BLOCK);
    }
    __syncthreads();
    for (int item = threadIdx.x; item < items; item += THREADS) {
        const int r = below * BLOCK + item / 4;
        const int own = r / BLOCK * BLOCK;
        const int c = item % 4 * 4;
        const float4 v = four_of_product(&m->t[r][own], &m->w[own][c], BLOCK + 4, BLOCK);
        *(float4 *)&m->t[r][own - below * BLOCK + c] = make_float4(-v.x, -v.y, -v.z, -v.w);
    }
    __syncthreads();
}
__device__ void prepare_solve(prepare_shared *m, chunk_head *to) {
    if (threadIdx.x < CHUNK)
        invert_diagonal(m);
    __syncthreads();
    for (int below = 1; below < BLOCKS; below++)
        invert_below(m, below);
    for (int i = threadIdx.x; i < CHUNK * CHUNK / 2; i += THREADS) {
        const int r = i / (CHUNK / 2);
        const int c = i % (CHUNK / 2) * 2;
        if (c / BLOCK <= r / BLOCK)
            *(__half2 *)&to->solve[r][c] =
                halves(m->t[r][c] * m->by[c], m->t[r][c + 1] * m->by[c + 1]);
    }
}
/* Grid: chunks, heads. */
template <bool DELTA>
__global__ void __launch_bounds__(THREADS) chunk_prepare(cu_scan a, char *room_at) {
    extern __shared__ __align__(16) char shared[];
    prepare_shared *m = (prepare_shared *)shared;
    const int head = blockIdx.y;
    const int of_group = a.H / a.G;
    const int group = a.in_turn ? head % a.G : head / of_group;
    const bool first = a.in_turn ? head < a.G : head % of_group == 0;
    const chunk_room room = room_of(a, room_at);
    chunk_head *to = room.heads + (int64_t)blockIdx.x * a.H + head;
    cu_wait();
    find_chunk(a, blockIdx.x, &m->rows);
    if (m->rows.hi <= m->rows.lo)
        return;
    prepare_rows(a, m, head, DELTA);
    prepare_vectors(a, m, group, DELTA);
    __syncthreads();
    prepare_products(m, to, DELTA);
    if (threadIdx.x < CHUNK) {
        to->log_decay[threadIdx.x] = m->log_decay[threadIdx.x];
        to->by[threadIdx.x] = m->by[threadIdx.x];
    }
    chunk_vectors *vectors = room.vectors + (int64_t)blockIdx.x * a.G + group;
    for (int i = threadIdx.x; first && i < CHUNK * LONG / 8; i += THREADS) {
        const int r = i / (LONG / 8);
        const int c = i % (LONG / 8) * 8;
        *(uint4 *)&vectors->write[r][c] = *(const uint4 *)&m->write[r][c];
        *(uint4 *)&vectors->read[r][c] = *(const uint4 *)&m->read[r][c];
    }
    __syncthreads();
    if (DELTA)
        prepare_solve(m, to);
}

/* ---- chunk_advance --------------------------------------------------------------------------- */
enum { ADVANCE_WARPS = 8, ADVANCE_THREADS = 32 * ADVANCE_WARPS, ROW_WARPS = CHUNK / 16 };

template <int COLS> struct __align__(16) advance_stage {
    __half write[CHUNK][LONG_LD];
    __half read[CHUNK][LONG_LD];
    __half solve[CHUNK][CHUNK_LD];
    __half mix[CHUNK][CHUNK_LD];
    float x[CHUNK][COLS + 4];
    float log_decay[CHUNK], by[CHUNK];
};
template <int COLS> struct __align__(16) advance_shared {
    advance_stage<COLS> stage[2];
    __half state[COLS][LONG_LD];
    __half missing[CHUNK][COLS + 8]; /* V - diag(G) K S^T */
    __half u[CHUNK][COLS + 8];
    __half u_end[CHUNK][COLS + 8]; /* with G_end / G_j */
};

/* Of a matrix [CHUNK, COLS] a warp has rows row0 + 0..15 and columns col0 + 0..16 PAIRS - 1; of the
 * state elements 16 warp + 0..15 of all columns. */
template <bool DELTA, int COLS> struct advance_block {
    enum { LD = COLS + 8, PAIRS = COLS / 32, TILES = 2 * PAIRS, HALVES = COLS / 16 };
    typedef advance_stage<COLS> stage;
    const cu_scan &a;
    advance_shared<COLS> *m;
    chunk_room room;
    int lane, warp, row0, col0;
    int head, group, first; /* first: of the block's columns */
    rows_at all;
    int chunk0;
    float s[HALVES][2][4]; /* columns 16 i.., elements 16 warp + 8 n.. */

    __device__ advance_block(const cu_scan &args, char *shared, char *room_at)
        : a(args), m((advance_shared<COLS> *)shared), room(room_of(args, room_at)) {
        const int per_head = a.dim / COLS;
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32;
        row0 = warp % ROW_WARPS * 16;
        col0 = warp / ROW_WARPS * 16 * PAIRS;
        head = blockIdx.x / per_head;
        first = blockIdx.x % per_head * COLS;
        group = a.in_turn ? head % a.G : head / (a.H / a.G);
    }

    /* ---- a chunk on its way ---- */
    /* Rows [CHUNK, PIECES of 16 bytes] to rows of LD_BYTES. */
    template <int LD_BYTES, int PIECES>
    __device__ __forceinline__ void ask_rows(void *to, const void *from) const {
        const int c = threadIdx.x % PIECES * 16;
        int r = threadIdx.x / PIECES;
        uint32_t at = shared_at(to) + r * LD_BYTES + c;
        const char *source = (const char *)from + r * PIECES * 16 + c;
        enum { STEP = ADVANCE_THREADS / PIECES };
#pragma unroll
        for (int i = 0; i < CHUNK / STEP; i++) {
            copy16(at, source, true);
            at += STEP * LD_BYTES;
            source += STEP * PIECES * 16;
        }
    }
    /* x; of rows behind the last: zeros. */
    __device__ __forceinline__ void ask_x(stage *to, int lo) const {
        enum { PIECES = COLS / 4, STEP = ADVANCE_THREADS / PIECES };
        const int c = threadIdx.x % PIECES * 4;
        const float *x = a.rows + (int64_t)lo * a.width + a.x_at + head * a.dim + first + c;
#pragma unroll
        for (int i = 0; i < CHUNK / STEP; i++) {
            const int r = threadIdx.x / PIECES + i * STEP;
            const bool in = lo + r < all.hi;
            copy16(shared_at(&to->x[r][c]), x + (in ? (int64_t)r * a.width : 0), in);
        }
    }
    __device__ void ask(int c) {
        const int lo = all.lo + c * CHUNK;
        if (lo < all.hi) {
            stage *to = &m->stage[c % 2];
            const int64_t chunk = chunk0 + c;
            const chunk_vectors *v = room.vectors + chunk * a.G + group;
            const chunk_head *h = room.heads + chunk * a.H + head;
            ask_rows<2 * LONG_LD, LONG / 8>(to->write, v->write);
            ask_rows<2 * LONG_LD, LONG / 8>(to->read, v->read);
            ask_rows<2 * CHUNK_LD, CHUNK / 8>(to->mix, h->mix);
            if (DELTA)
                ask_rows<2 * CHUNK_LD, CHUNK / 8>(to->solve, h->solve);
            ask_x(to, lo);
            if (threadIdx.x < CHUNK / 4)
                copy16(shared_at(&to->log_decay[4 * threadIdx.x]), &h->log_decay[4 * threadIdx.x],
                       true);
            else if (threadIdx.x < CHUNK / 2)
                copy16(shared_at(&to->by[4 * threadIdx.x - CHUNK]), &h->by[4 * threadIdx.x - CHUNK],
                       true);
        }
        copy_commit();
    }

    /* ---- the state ---- */
    /* Element e of tile n of columns 16 i: its column and its place. */
    __device__ __forceinline__ int state_col(int i, int e) const {
        return 16 * i + lane / 4 + e / 2 * 8;
    }
    __device__ __forceinline__ int state_element(int n) const {
        return 16 * warp + 8 * n + 2 * (lane % 4);
    }
    __device__ float2 *state_at(float *page, int i, int n, int e) const {
        const int64_t col = (int64_t)head * a.dim + first + state_col(i, e);
        return (float2 *)(page + col * LONG + state_element(n));
    }
    __device__ void state_load(const float *page) {
#pragma unroll
        for (int p = 0; p < HALVES * 4; p++) {
            float *to = &s[p / 4][p / 2 % 2][p % 2 * 2];
            float2 v = make_float2(0, 0);
            if (page)
                v = __ldcg(state_at((float *)page, p / 4, p / 2 % 2, p % 2 * 2));
            to[0] = v.x;
            to[1] = v.y;
        }
    }
    __device__ void state_store(float *page) const {
#pragma unroll
        for (int p = 0; p < HALVES * 4; p++) {
            const float *from = &s[p / 4][p / 2 % 2][p % 2 * 2];
            *state_at(page, p / 4, p / 2 % 2, p % 2 * 2) = make_float2(from[0], from[1]);
        }
    }
    __device__ void state_round() const {
#pragma unroll
        for (int p = 0; p < HALVES * 4; p++) {
            const float *from = &s[p / 4][p / 2 % 2][p % 2 * 2];
            __half *to = &m->state[state_col(p / 4, p % 2 * 2)][state_element(p / 2 % 2)];
            *(__half2 *)to = halves(from[0], from[1]);
        }
    }

    /* ---- a chunk ---- */
    /* known = K S^T, read = Q S^T, of the warp's part. */
    __device__ void by_state(const stage &g, float known[][4], float read[][4]) const {
#pragma unroll
        for (int k = 0; k < LONG; k += 16) {
            uint32_t w[4], r[4], b[4];
            a_rows(r, &g.read[row0][k], LONG_LD, lane);
            if (DELTA)
                a_rows(w, &g.write[row0][k], LONG_LD, lane);
#pragma unroll
            for (int p = 0; p < PAIRS; p++) {
                b_rows(b, &m->state[col0 + 16 * p][k], LONG_LD, lane);
                mma_pair(&read[2 * p], r, b);
                if (DELTA)
                    mma_pair(&known[2 * p], w, b);
            }
        }
    }
    /* c += the warp's rows of a triangle [CHUNK, CHUNK] times b [CHUNK, COLS] */
    __device__ void by_triangle(const __half (*triangle)[CHUNK_LD], const __half (*b)[LD],
                                float c[][4]) const {
#pragma unroll
        for (int k = 0; k < CHUNK; k += 16) {
            uint32_t v[4], columns[4];
            if (k > row0)
                break;
            a_rows(v, &triangle[row0][k], CHUNK_LD, lane);
#pragma unroll
            for (int p = 0; p < PAIRS; p++) {
                b_columns(columns, &b[k][col0 + 16 * p], LD, lane);
                mma_pair(&c[2 * p], v, columns);
            }
        }
    }
    /* Pair e of the warp's part: row row_of(e % 2), columns col_of(e / 2). */
    __device__ __forceinline__ int row_of(int half) const {
        return row0 + lane / 4 + half * 8;
    }
    __device__ __forceinline__ int col_of(int tile) const {
        return col0 + 8 * tile + 2 * (lane % 4);
    }
    __device__ void put_missing(const stage &g, const float decay[2],
                                const float known[][4]) const {
#pragma unroll
        for (int e = 0; e < 2 * TILES; e++) {
            const int r = row_of(e % 2);
            const int c = col_of(e / 2);
            const float2 x = *(const float2 *)&g.x[r][c];
            const float *k = &known[e / 2][e % 2 * 2];
            const float by = decay[e % 2];
            *(__half2 *)&m->missing[r][c] = halves(x.x - by * k[0], x.y - by * k[1]);
        }
    }
    __device__ void put_u(const float to_end[2], const float u[][4]) const {
#pragma unroll
        for (int e = 0; e < 2 * TILES; e++) {
            const int r = row_of(e % 2);
            const int c = col_of(e / 2);
            const float by = to_end[e % 2];
            const float *v = &u[e / 2][e % 2 * 2];
            *(__half2 *)&m->u[r][c] = halves(v[0], v[1]);
            *(__half2 *)&m->u_end[r][c] = halves(by * v[0], by * v[1]);
        }
    }
    __device__ void u_of_scan(const stage &g, float u[][4]) const {
#pragma unroll
        for (int e = 0; e < 2 * TILES; e++) {
            const int r = row_of(e % 2);
            const float2 x = *(const float2 *)&g.x[r][col_of(e / 2)];
            u[e / 2][e % 2 * 2] = g.by[r] * x.x;
            u[e / 2][e % 2 * 2 + 1] = g.by[r] * x.y;
        }
    }
    __device__ void put_y(const stage &g, int lo, const bool live[2], const float y[][4]) const {
        const float pass = DELTA ? 0 : a.d[head];
#pragma unroll
        for (int e = 0; e < 2 * TILES; e++) {
            const int r = row_of(e % 2);
            const int c = col_of(e / 2);
            if (!live[e % 2])
                continue;
            const float2 x = *(const float2 *)&g.x[r][c];
            const float *v = &y[e / 2][e % 2 * 2];
            float2 all_of_it = make_float2(v[0], v[1]);
            if (!DELTA)
                all_of_it = make_float2(fmaf(pass, x.x, v[0]), fmaf(pass, x.y, v[1]));
            *(float2 *)(a.y + ((int64_t)(lo + r) * a.H + head) * a.dim + first + c) = all_of_it;
        }
    }
    /* The state behind the chunk. */
    __device__ void state_advance(const stage &g, float decay) {
#pragma unroll
        for (int p = 0; p < HALVES * 8; p++)
            s[p / 8][p / 4 % 2][p % 4] *= decay;
#pragma unroll
        for (int k = 0; k < CHUNK; k += 16) {
            uint32_t u[4], b[4];
            b_columns(b, &g.write[k][16 * warp], LONG_LD, lane);
#pragma unroll
            for (int i = 0; i < HALVES; i++) {
                a_columns(u, &m->u_end[k][16 * i], LD, lane);
                mma_pair(s[i], u, b);
            }
        }
    }
    __device__ void advance(const stage &g, int lo) {
        const float end = g.log_decay[CHUNK - 1];
        float known[TILES][4] = {};
        float y[TILES][4] = {};
        float u[TILES][4] = {};
        float decay[2], to_end[2];
        bool live[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int t = lo + row_of(i);
            decay[i] = expf(g.log_decay[row_of(i)]);
            to_end[i] = expf(end - g.log_decay[row_of(i)]);
            live[i] = t < all.hi && __ldcg(&a.s.row_pos[t]) >= 0;
        }
        by_state(g, known, y);
        if (DELTA) {
            put_missing(g, decay, known);
            __syncthreads();
            by_triangle(g.solve, m->missing, u);
        } else {
            u_of_scan(g, u);
        }
        put_u(to_end, u);
#pragma unroll
        for (int e = 0; e < 4 * TILES; e++)
            y[e / 4][e % 4] *= decay[e / 2 % 2];
        __syncthreads();
        state_advance(g, expf(end));
        by_triangle(g.mix, m->u, y);
        put_y(g, lo, live, y);
    }
};

/* Pages of entry i; false: its slot has none. */
__device__ bool pages_of(const cu_states &s, int i, const float **from, float **to) {
    const int slot = __ldcg(&s.seqs[4 * (int64_t)i + 2]);
    if (slot < 0 || slot >= s.S)
        return false;
    const int first = __ldcg(&s.states[2 * (int64_t)slot]);
    const int second = __ldcg(&s.states[2 * (int64_t)slot + 1]);
    if (first >= s.n_pages || second < 0 || second >= s.n_pages)
        return false;
    *from = NULL;
    if (first >= 0)
        *from = (const float *)(s.memory + (uint64_t)first * s.page_bytes + s.layer_at);
    *to = (float *)(s.memory + (uint64_t)second * s.page_bytes + s.layer_at);
    return true;
}

/* Grid: columns of heads, sequences. */
template <bool DELTA, int COLS>
__global__ void __launch_bounds__(ADVANCE_THREADS, 1) chunk_advance(cu_scan a, char *room_at) {
    extern __shared__ __align__(16) char shared[];
    advance_block<DELTA, COLS> b(a, shared, room_at);
    const float *from;
    float *to;
    cu_wait();
    b.all = rows_of_entry(a, blockIdx.y);
    if (b.all.hi <= b.all.lo || !pages_of(a.s, blockIdx.y, &from, &to))
        return;
    b.chunk0 = first_chunk(a, b.all.lo);
    b.ask(0);
    b.state_load(from);
    for (int c = 0; b.all.lo + c * CHUNK < b.all.hi; c++) {
        b.ask(c + 1);
        b.state_round();
        copy_wait<1>();
        __syncthreads();
        b.advance(b.m->stage[c % 2], b.all.lo + c * CHUNK);
        __syncthreads();
    }
    b.state_store(to);
}

/* ---- launches -------------------------------------------------------------------------------- */
/* A kernel with more shared memory than 48 KB. */
template <class F> static F *with_shared(F *kernel, size_t bytes) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return kernel;
}
template <bool DELTA, int COLS>
static void advance_launch(cudaStream_t s, const cu_scan *a, char *room) {
    enum { BYTES = sizeof(advance_shared<COLS>) };
    static void (*const kernel)(cu_scan, char *) = with_shared(chunk_advance<DELTA, COLS>, BYTES);
    launch(s, kernel, dim3(a->H * (a->dim / COLS), a->s.Q), ADVANCE_THREADS, BYTES, *a, room);
}
/* Narrow blocks where wide ones would leave processors idle. */
template <bool DELTA> static void chunks_launch(cudaStream_t s, const cu_scan *a, char *room) {
    enum { BYTES = sizeof(prepare_shared), WIDE = 2 * CU_CHUNK_COLUMNS, BUSY = 100 };
    static void (*const kernel)(cu_scan, char *) = with_shared(chunk_prepare<DELTA>, BYTES);
    const int64_t wide_blocks = (int64_t)a->H * a->dim / WIDE * a->s.Q;
    launch(s, kernel, dim3(most_chunks(a->s), a->H), THREADS, BYTES, *a, room);
    if (a->dim % WIDE == 0 && wide_blocks >= BUSY)
        advance_launch<DELTA, WIDE>(s, a, room);
    else
        advance_launch<DELTA, CU_CHUNK_COLUMNS>(s, a, room);
}
void cu_chunks_run(cudaStream_t s, const cu_scan *a, void *room) {
    if (a->beta)
        chunks_launch<true>(s, a, (char *)room);
    else
        chunks_launch<false>(s, a, (char *)room);
}
