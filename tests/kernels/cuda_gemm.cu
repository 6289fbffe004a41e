/* cuda_gemm.cu -- the matrix product of many rows beside sums in double: every way to run it, over
 * shapes, types, epilogues and experts. Outputs are poisoned, run twice and compared bit by bit.
 * `cuda_gemm bench` times every way over the shapes of known models. A number behind it (-1 =
 * portable kernel, -2 = what is chosen) leaves the other ways out. Needs a GPU; stands alone. */
#include "device.cuh"
#include "gemm.h"
#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess) {                                                                   \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_));          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static cu_card device;
static void *scratch;
static int only = INT32_MIN; /* shape, of the command line */

static bool wanted(int shape) {
    return only == INT32_MIN || only == shape;
}

/* ---- cases ----------------------------------------------------------------------------------- */
struct test_case {
    const char *name;
    int rows, K, n_seg, n[4];
    int epi, y_kind, act;
    bool bias, wide, odd; /* wide: padding in y; odd: NaN and huge values in x */
    int groups;
};

struct problem {
    test_case c;
    cu_gemm g;
    std::vector<int32_t> offsets;
    size_t y_bytes[4];
    std::vector<void *> owned;
    float *residual;
};

static __device__ uint32_t mix(uint64_t v) {
    v ^= v >> 33;
    v *= 0xff51afd7ed558ccdull;
    v ^= v >> 33;
    v *= 0xc4ceb9fe1a85ec53ull;
    return (uint32_t)(v ^ v >> 33);
}
static __device__ float noise(uint64_t seed, uint64_t i) {
    const uint32_t a = mix(seed * 0x9e3779b97f4a7c15ull + i);
    const uint32_t b = mix(a + seed + 1);
    return ((a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16)) / 65536.0f - 2.0f;
}
/* rows of K elements in ld; zeros behind K */
__global__ void fill(void *y, int64_t rows, int K, int ld, int kind, float scale, uint64_t seed) {
    const int64_t n = rows * ld;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        put(y, i, i % ld < K ? scale * noise(seed, i) : 0.0f, kind);
}
__global__ void set_one(void *y, int64_t at, float v, int kind) {
    put(y, at, v, kind);
}

static void *take(problem *p, size_t bytes) {
    void *m;
    CHECK(cudaMalloc(&m, bytes));
    p->owned.push_back(m);
    return m;
}
static void *random_of(problem *p, int64_t rows, int K, int ld, int kind, float scale, int seed) {
    void *m = take(p, (size_t)(rows * ld) * (kind == CU_F32 ? 4 : 2));
    fill<<<1024, 256>>>(m, rows, K, ld, kind, scale, (uint64_t)seed);
    return m;
}

static void groups_of(problem *p) {
    p->offsets.assign(1, 0);
    const int e = p->c.groups;
    const int mean = p->c.rows / e;
    for (int i = 0; i < e; i++) {
        const int left = p->c.rows - p->offsets.back();
        const int some = i % 5 == 1 ? 0 : (int)(rand() % (2 * mean + 2));
        p->offsets.push_back(p->offsets.back() + std::min(left, some));
    }
    int32_t *m = (int32_t *)take(p, p->offsets.size() * 4);
    CHECK(cudaMemcpy(m, p->offsets.data(), p->offsets.size() * 4, cudaMemcpyHostToDevice));
    p->g.offsets = m;
    p->g.n_groups = e;
}

enum { GUARD = 1024 };
static void make(problem *p, const test_case &c, int kind) {
    const int ld = (c.K + 63) / 64 * 64;
    const int e = c.groups ? c.groups : 1;
    p->c = c;
    cu_gemm *g = &p->g;
    memset(g, 0, sizeof *g);
    if (c.groups)
        groups_of(p);
    g->kind = kind;
    g->rows = c.rows;
    g->K = c.K;
    g->ld = ld;
    g->epi = c.epi;
    g->y_kind = c.y_kind;
    g->n_seg = c.n_seg;
    g->x = random_of(p, c.rows, c.K, ld, kind, 1.0f, 1);
    if (c.odd) {
        set_one<<<1, 1>>>((void *)g->x, (int64_t)3 * ld + 5, NAN, kind);
        set_one<<<1, 1>>>((void *)g->x, (int64_t)6 * ld + 7, 60000.0f, kind);
        set_one<<<1, 1>>>((void *)g->x, (int64_t)7 * ld + 7, -60000.0f, kind);
    }
    g->glu = cu_glu{c.act, 0, 0, 0};
    if (c.act == MN_ACT_SILU && c.bias)
        g->glu = cu_glu{c.act, 1.702f, 0.9f, 1.0f};
    for (int i = 0; i < c.n_seg; i++) {
        const int n = c.n[i];
        const int wide = c.wide ? (n + 63) / 64 * 64 : n;
        cu_gemm_seg *s = &g->seg[i];
        const float scale = (c.odd ? 60.0f : 1.7f) / sqrtf((float)c.K);
        s->w = random_of(p, (int64_t)e * n, c.K, ld, kind, scale, 10 + i);
        s->bias = c.bias ? (float *)random_of(p, e, n, n, CU_F32, 1.0f, 20 + i) : NULL;
        s->n = n;
        s->ld_y = wide;
        g->w_stride = (int64_t)n * ld;
        p->y_bytes[i] = (size_t)c.rows * wide * (c.y_kind == CU_F32 ? 4 : 2);
        s->y = take(p, p->y_bytes[i] + GUARD);
    }
    p->residual = NULL;
    if (c.epi == CU_EPI_ADD) {
        p->residual =
            (float *)random_of(p, c.rows, g->seg[0].ld_y, g->seg[0].ld_y, CU_F32, 1.0f, 30);
    }
    g->residual = p->residual;
    g->scratch = scratch;
    g->scratch_bytes = cu_gemm_scratch(&device);
}
static void drop(problem *p) {
    for (void *m : p->owned)
        CHECK(cudaFree(m));
    p->owned.clear();
}

/* ---- reference ------------------------------------------------------------------------------- */
__device__ double element(const void *x, int64_t i, int kind) {
    return kind == CU_HALF ? (double)__half2float(((const __half *)x)[i])
                           : (double)__bfloat162float(((const __nv_bfloat16 *)x)[i]);
}
__device__ double dot(const cu_gemm &g, int seg, int64_t row, int group, int col) {
    const int lane = threadIdx.x % 32;
    const int64_t w = group * g.w_stride + (int64_t)col * g.ld;
    double s = 0;
    for (int k = lane; k < g.K; k += 32) {
        const double x = element(g.x, row * g.ld + k, g.kind);
        s += x * element(g.seg[seg].w, w + k, g.kind);
    }
    for (int o = 16; o; o >>= 1)
        s += __shfl_xor_sync(~0u, s, o);
    const float *b = g.seg[seg].bias;
    return b ? s + b[(int64_t)group * g.seg[seg].n + col] : s;
}
__device__ double act_of(const cu_glu &p, double x) {
    if (p.kind == MN_ACT_SILU)
        return x / (1 + exp(-(p.alpha == 0 ? 1.0 : (double)p.alpha) * x));
    if (p.kind == MN_ACT_GELU_ERF)
        return 0.5 * x * (1 + erf(x * 0.70710678118654752));
    if (p.kind == MN_ACT_GELU_TANH)
        return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    return x < 0 ? 0 : x;
}
__device__ double glu_of(const cu_glu &p, double gate, double up) {
    if (p.limit != 0) {
        gate = gate > p.limit ? p.limit : gate;
        up = up > p.limit ? p.limit : up;
        up = up < -p.limit ? -p.limit : up;
    }
    return act_of(p, gate) * (up + p.up_offset);
}
/* places[i]: seg, row, group, col */
__global__ void reference(cu_gemm g, const int4 *places, double *out, int n) {
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (i >= n)
        return;
    const int4 at = places[i];
    double v = dot(g, at.x, at.y, at.z, at.w);
    if (g.epi == CU_EPI_GLU)
        v = glu_of(g.glu, v, dot(g, 1, at.y, at.z, at.w));
    if (g.epi == CU_EPI_ADD)
        v += g.residual[(int64_t)at.y * g.seg[0].ld_y + at.w];
    if (threadIdx.x % 32 == 0)
        out[i] = v;
}
/* stats: wrong elements, sum of squared errors, of squares */
__global__ void compare(cu_gemm g, const int4 *places, const double *want, int n, double most,
                        double rms, double *stats) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const int4 at = places[i];
    const int64_t k = (int64_t)at.y * g.seg[at.x].ld_y + at.w;
    const void *y = g.seg[at.x].y;
    double v = want[i];
    double got = 0;
    if (g.y_kind == CU_F32)
        got = (double)((const float *)y)[k];
    else
        got = element(y, k, g.y_kind);
    if (g.y_kind == CU_HALF && v > 65504)
        v = 65504;
    if (g.y_kind == CU_HALF && v < -65504)
        v = -65504;
    if (isnan(v) && isnan(got))
        return;
    if (!(fabs(got - v) <= most * (fabs(v) + rms)))
        atomicAdd(stats, 1.0);
    if (isnan(v) || isnan(got))
        return;
    atomicAdd(stats + 1, (got - v) * (got - v));
    atomicAdd(stats + 2, v * v);
}
/* bad: elements that still hold poison before `rows`, padding that is not zero, anything but poison
 * behind; sum: of the bits */
__global__ void inspect(const void *y, int64_t rows, int64_t all, int n, int ld, int kind,
                        unsigned long long *bad, unsigned long long *sum) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    unsigned long long s = 0;
    unsigned long long b = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        const uint32_t poison = kind == CU_F32 ? 0xffffffffu : 0xffffu;
        const uint32_t v = kind == CU_F32 ? ((const uint32_t *)y)[i] : ((const uint16_t *)y)[i];
        const bool inside = i < rows * ld;
        if (inside ? v == poison : v != poison)
            b++;
        const bool padding = inside && i % ld >= n;
        const uint32_t magnitude = v << (kind == CU_F32 ? 1 : 17);
        if (padding && magnitude != 0)
            b++;
        if (inside)
            s += mix(((uint64_t)i << 32) ^ v);
    }
    if (b)
        atomicAdd(bad, b);
    atomicAdd(sum, s);
}

/* ---- test ------------------------------------------------------------------------------------ */
struct expected {
    std::vector<int4> at;
    int4 *places;
    double *want, *stats, rms;
    unsigned long long *counts;
};

static void expect(problem *p, expected *x) {
    enum { MOST = 1 << 16 };
    const cu_gemm *g = &p->g;
    const int outs = g->epi == CU_EPI_GLU ? 1 : g->n_seg;
    const int rows = g->offsets ? p->offsets.back() : g->rows;
    int64_t cols = 0;
    for (int i = 0; i < outs; i++)
        cols += g->seg[i].n;
    const bool all = rows * cols <= MOST;
    const int n = (int)(all ? rows * cols : MOST);
    x->at.resize(n);
    for (int i = 0; i < n; i++) {
        const uint64_t r = ((uint64_t)rand() << 31) ^ (uint64_t)rand();
        int64_t k = all ? i : (int64_t)(r % (uint64_t)(rows * cols));
        int4 a = make_int4(0, (int)(k / cols), 0, (int)(k % cols));
        while (a.w >= g->seg[a.x].n)
            a.w -= g->seg[a.x++].n;
        while (g->offsets && p->offsets[a.z + 1] <= a.y)
            a.z++;
        x->at[i] = a;
    }
    x->places = (int4 *)take(p, n * sizeof(int4) + 16);
    x->want = (double *)take(p, n * 8 + 8);
    x->stats = (double *)take(p, 24);
    x->counts = (unsigned long long *)take(p, 16);
    CHECK(cudaMemcpy(x->places, x->at.data(), n * sizeof(int4), cudaMemcpyHostToDevice));
    if (n)
        reference<<<(n + 7) / 8, 256>>>(*g, x->places, x->want, n);
    std::vector<double> host(n);
    CHECK(cudaMemcpy(host.data(), x->want, n * 8, cudaMemcpyDeviceToHost));
    double ss = 0;
    int finite = 0;
    for (double v : host) {
        if (fabs(v) < 1e30) {
            ss += v * v;
            finite++;
        }
    }
    x->rms = finite ? sqrt(ss / finite) : 0;
}

static void poison(problem *p) {
    for (int i = 0; i < p->c.n_seg; i++) {
        CHECK(cudaMemset(p->g.seg[i].y, 0xff, p->y_bytes[i] + GUARD));
        if (p->c.epi == CU_EPI_ADD && p->g.residual == (float *)p->g.seg[0].y)
            CHECK(cudaMemcpy(p->g.seg[0].y, p->residual, p->y_bytes[0], cudaMemcpyDeviceToDevice));
    }
}

static void inspect_all(problem *p, expected *x, unsigned long long counts[2]) {
    const cu_gemm *g = &p->g;
    const int rows = g->offsets ? p->offsets.back() : g->rows;
    CHECK(cudaMemset(x->counts, 0, 16));
    for (int i = 0; i < (g->epi == CU_EPI_GLU ? 1 : g->n_seg); i++) {
        const int64_t all = (int64_t)(p->y_bytes[i] + GUARD) / (g->y_kind == CU_F32 ? 4 : 2);
        inspect<<<512, 256>>>(g->seg[i].y, rows, all, g->seg[i].n, g->seg[i].ld_y, g->y_kind,
                              x->counts, x->counts + 1);
    }
    CHECK(cudaMemcpy(counts, x->counts, 16, cudaMemcpyDeviceToHost));
}

static bool run(problem *p, cu_gemm_plan plan) {
    if (plan.shape == -2)
        cu_gemm_run(&device, 0, &p->g);
    else if (plan.shape < 0)
        cu_gemm_mma(&device, 0, &p->g);
    else if (!cu_gemm_sm90(&device, 0, &p->g, plan))
        return false;
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    return true;
}

static int check(problem *p, expected *x, cu_gemm_plan plan) {
    const cu_gemm *g = &p->g;
    unsigned long long first[2];
    unsigned long long again[2];
    double most = g->y_kind == CU_HALF ? 2e-3 : 1.2e-2;
    if (g->y_kind == CU_F32)
        most = 3e-4;
    const int n = (int)x->at.size();
    poison(p);
    if (plan.shape >= 0 && p->c.K <= 64 && cu_gemm_shapes[plan.shape].deep > 1)
        return 0; /* nothing to split */
    if (!run(p, plan)) {
        printf("FAIL %s: not launched, shape %d\n", p->c.name, plan.shape);
        return 1;
    }
    inspect_all(p, x, first);
    CHECK(cudaMemset(x->stats, 0, 24));
    if (n)
        compare<<<(n + 255) / 256, 256>>>(*g, x->places, x->want, n, most, x->rms, x->stats);
    double stats[3];
    CHECK(cudaMemcpy(stats, x->stats, 24, cudaMemcpyDeviceToHost));
    poison(p);
    run(p, plan);
    inspect_all(p, x, again);
    const double l2 = stats[2] > 0 ? sqrt(stats[1] / stats[2]) : 0;
    const bool same = first[1] == again[1];
    const bool ok = first[0] == 0 && stats[0] == 0 && same && l2 < most;
    if (!ok) {
        printf(
            "FAIL %s kind %d shape %d split %d: %llu unwritten or overwritten, %.0f of %d wrong, "
            "L2 %.2e, %s\n",
            p->c.name, g->kind, plan.shape, plan.split, first[0], stats[0], n, l2,
            same ? "same again" : "DIFFERENT AGAIN");
    }
    return !ok;
}

static const test_case cases[] = {
    {"one", 1, 64, 1, {8}, CU_EPI_NONE, CU_F32},
    {"small", 37, 200, 1, {72}, CU_EPI_NONE, CU_F32, 0, true},
    {"tails", 193, 2880, 3, {260, 72, 8}, CU_EPI_NONE, CU_F32, 0, true},
    {"odd columns", 130, 320, 2, {51, 333}, CU_EPI_NONE, CU_HALF, 0, true},
    {"odd columns f32", 130, 320, 2, {51, 333}, CU_EPI_NONE, CU_F32, 0, true},
    {"padded y", 77, 1000, 1, {1000}, CU_EPI_NONE, CU_BF16, 0, true, true},
    {"qkv", 512, 2048, 3, {2048, 256, 256}, CU_EPI_NONE, CU_F32},
    {"four", 300, 512, 4, {100, 200, 300, 400}, CU_EPI_NONE, CU_HALF, 0, true},
    {"add", 512, 2048, 1, {2048}, CU_EPI_ADD, CU_F32, 0, true},
    {"add odd", 333, 704, 1, {1037}, CU_EPI_ADD, CU_F32, 0, false},
    {"add deep", 200, 14336, 1, {520}, CU_EPI_ADD, CU_F32, 0, false},
    {"deep narrow", 65, 32768, 1, {128}, CU_EPI_NONE, CU_F32, 0, true},
    {"glu silu", 512, 2048, 2, {5632, 5632}, CU_EPI_GLU, CU_HALF, MN_ACT_SILU},
    {"glu parameters", 140, 2880, 2, {2880, 2880}, CU_EPI_GLU, CU_HALF, MN_ACT_SILU, true, true},
    {"glu erf", 100, 512, 2, {1000, 1000}, CU_EPI_GLU, CU_BF16, MN_ACT_GELU_ERF, true, true},
    {"glu tanh", 70, 512, 2, {333, 333}, CU_EPI_GLU, CU_F32, MN_ACT_GELU_TANH, true},
    {"glu relu", 1100, 256, 2, {200, 200}, CU_EPI_GLU, CU_HALF, MN_ACT_RELU, false, true},
    {"NaN and beyond f16", 140, 512, 1, {300}, CU_EPI_NONE, CU_HALF, 0, true, false, true},
    {"many rows", 5000, 192, 1, {2000}, CU_EPI_NONE, CU_HALF, 0, true},
    {"vocabulary", 66, 512, 1, {32003}, CU_EPI_NONE, CU_F32},
    {"experts", 700, 320, 1, {200}, CU_EPI_NONE, CU_F32, 0, true, false, false, 9},
    {"experts glu",
     2048,
     2880,
     2,
     {720, 720},
     CU_EPI_GLU,
     CU_HALF,
     MN_ACT_SILU,
     true,
     true,
     false,
     32},
    {"many experts", 300, 128, 1, {96}, CU_EPI_NONE, CU_BF16, 0, true, true, false, 1000},
    {"few rows", 12, 256, 2, {80, 80}, CU_EPI_GLU, CU_HALF, MN_ACT_SILU, true, true, false, 40},
};

static int tests(void) {
    int failed = 0;
    int runs = 0;
    for (const test_case &c : cases) {
        for (int kind = CU_HALF; kind <= CU_BF16; kind++) {
            problem p;
            expected x;
            make(&p, c, kind);
            expect(&p, &x);
            for (int place = 0; place < (c.epi == CU_EPI_ADD ? 2 : 1); place++) {
                if (place)
                    p.g.residual = (float *)p.g.seg[0].y;
                for (int shape = -2; shape < (device.cc == 90 ? CU_GEMM_SHAPES : 0); shape++) {
                    for (int split = 0; split <= (shape < 0 ? 0 : 100); split += 100) {
                        if (!wanted(shape))
                            continue;
                        failed += check(&p, &x, cu_gemm_plan{shape, split});
                        runs++;
                        if (failed > 40)
                            return failed;
                    }
                }
            }
            drop(&p);
        }
    }
    printf("%d runs, %d failed\n", runs, failed);
    return failed;
}

/* ---- benchmark ------------------------------------------------------------------------------- */
enum { SETS = 12 };
/* Weights are so many that the cache holds none from the last time. Median of the mean, in ms. */
static float time_plan(problem *p, cu_gemm_plan plan, const void *w[SETS][4], int sets) {
    cudaStream_t s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from;
    cudaEvent_t to;
    const double flop = 2.0 * p->c.rows * p->c.K * (p->c.n[0] + p->c.n[1] + p->c.n[2]);
    const int launches = std::max(sets, std::min(48, (int)(2e-3 * 6e14 / flop)));
    float ms[7];
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; i++) {
        cu_gemm g = p->g;
        for (int k = 0; k < g.n_seg; k++)
            g.seg[k].w = w[i % sets][k];
        if (plan.shape < 0)
            cu_gemm_mma(&device, s, &g);
        else
            cu_gemm_sm90(&device, s, &g, plan);
    }
    CHECK(cudaStreamEndCapture(s, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, s));
    for (float &t : ms) {
        CHECK(cudaEventRecord(from, s));
        CHECK(cudaGraphLaunch(exec, s));
        CHECK(cudaEventRecord(to, s));
        CHECK(cudaEventSynchronize(to));
        CHECK(cudaEventElapsedTime(&t, from, to));
        t /= (float)launches;
    }
    std::sort(ms, ms + 7);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(s));
    CHECK(cudaEventDestroy(from));
    CHECK(cudaEventDestroy(to));
    return ms[3];
}

static const test_case timed[] = {
    {"tl qkv", 0, 2048, 3, {2048, 256, 256}, CU_EPI_NONE, CU_F32},
    {"tl o", 0, 2048, 1, {2048}, CU_EPI_ADD, CU_F32},
    {"tl gate up", 0, 2048, 2, {5632, 5632}, CU_EPI_GLU, CU_HALF, MN_ACT_SILU},
    {"tl down", 0, 5632, 1, {2048}, CU_EPI_ADD, CU_F32},
    {"mi qkv", 0, 4096, 3, {4096, 1024, 1024}, CU_EPI_NONE, CU_F32},
    {"mi o", 0, 4096, 1, {4096}, CU_EPI_ADD, CU_F32},
    {"mi gate up", 0, 4096, 2, {14336, 14336}, CU_EPI_GLU, CU_HALF, MN_ACT_SILU},
    {"mi down", 0, 14336, 1, {4096}, CU_EPI_ADD, CU_F32},
};
static const test_case timed_experts[] = {
    {"oss gate up",
     0,
     2880,
     2,
     {2880, 2880},
     CU_EPI_GLU,
     CU_HALF,
     MN_ACT_SILU,
     true,
     false,
     false,
     32},
    {"oss down", 0, 2880, 1, {2880}, CU_EPI_NONE, CU_F32, 0, true, false, false, 32},
};

/* One line a shape: TFLOP/s of every shape of tile without and with splits, the portable kernel,
 * the best and the choice. Returns the best. */
static cu_gemm_plan bench_one(test_case c, int rows) {
    problem p;
    const void *w[SETS][4] = {};
    c.rows = rows;
    make(&p, c, CU_BF16);
    const int cols = c.n[0] + c.n[1] + c.n[2];
    const int e = c.groups ? c.groups : 1;
    const double bytes = 2.0 * c.K * cols * e;
    const int sets = std::max(1, std::min((int)SETS, (int)(3e8 / bytes)));
    const int used = c.groups ? p.offsets.back() : rows;
    const double flop = 2.0 * used * c.K * cols;
    for (int i = 0; i < sets; i++) {
        for (int k = 0; k < c.n_seg; k++) {
            w[i][k] = i == 0 ? p.g.seg[k].w
                             : random_of(&p, (int64_t)e * c.n[k], c.K, p.g.ld, CU_BF16,
                                         1.7f / sqrtf((float)c.K), 100 + 4 * i + k);
        }
    }
    printf("%-11s %5d", c.name, used);
    cu_gemm_plan best = {-1, 0};
    float least = 1e9f;
    for (int shape = 0; shape < CU_GEMM_SHAPES; shape++) {
        for (int split = 0; split <= (cu_gemm_shapes[shape].deep > 1 ? 0 : 100); split += 100) {
            if (!wanted(shape))
                continue;
            const float ms = time_plan(&p, cu_gemm_plan{shape, split}, w, sets);
            printf(split ? "/%-3.0f" : " %3.0f", flop / ms * 1e-9);
            if (ms < least) {
                least = ms;
                best = cu_gemm_plan{shape, split};
            }
        }
    }
    const cu_gemm_plan plan = cu_gemm_choose(&device, &p.g);
    if (!wanted(plan.shape) || least > 1e8f) {
        printf("\n");
        drop(&p);
        return best;
    }
    const float ms = time_plan(&p, plan, w, sets);
    if (rows <= 512)
        printf(" mma %3.0f", flop / time_plan(&p, cu_gemm_plan{-1, 0}, w, sets) * 1e-9);
    printf(" | best %d,%d %.2f us %.0f", best.shape, best.split, least * 1e3, flop / least * 1e-9);
    printf(" | chosen %d,%d %.2f us %.0f\n", plan.shape, plan.split, ms * 1e3, flop / ms * 1e-9);
    fflush(stdout);
    drop(&p);
    return best;
}

/* Stands for the small kernels between products: rows of f32 to bf16. */
__global__ void between(const float *x, __nv_bfloat16 *y, int n) {
    cu_next();
    cu_wait();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        put(y, (int64_t)blockIdx.x * n + i, __ldcg(x + (int64_t)blockIdx.x * n + i), CU_BF16);
}

/* The products of a layer of TinyLlama with small kernels between them, as in a model; us a layer,
 * then the same without the products. */
static void bench_layer(int rows, const cu_gemm_plan plans[4]) {
    enum { LAYERS = 6 };
    problem p[4];
    const void *w[LAYERS][4][4];
    for (int i = 0; i < 4; i++) {
        test_case c = timed[i];
        c.rows = rows;
        make(&p[i], c, CU_BF16);
        for (int l = 0; l < LAYERS; l++) {
            for (int k = 0; k < c.n_seg; k++)
                w[l][i][k] = random_of(&p[i], c.n[k], c.K, p[i].g.ld, CU_BF16, 0.01f, 7 * l + k);
        }
    }
    for (int with = 1; with >= 0; with--) {
        cudaStream_t s;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaEvent_t from;
        cudaEvent_t to;
        float ms[9];
        CHECK(cudaStreamCreate(&s));
        CHECK(cudaEventCreate(&from));
        CHECK(cudaEventCreate(&to));
        CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        for (int l = 0; l < 22; l++) {
            for (int i = 0; i < 4; i++) {
                cu_gemm g = p[i].g;
                for (int k = 0; k < g.n_seg; k++)
                    g.seg[k].w = w[l % LAYERS][i][k];
                if (i < 3) {
                    launch(s, between, dim3((unsigned)rows), 256, 0, (const float *)p[1].g.seg[0].y,
                           (__nv_bfloat16 *)g.x, g.K);
                }
                if (with)
                    cu_gemm_sm90(&device, s, &g, plans[i]);
            }
        }
        CHECK(cudaStreamEndCapture(s, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphLaunch(exec, s));
        for (float &t : ms) {
            CHECK(cudaEventRecord(from, s));
            CHECK(cudaGraphLaunch(exec, s));
            CHECK(cudaEventRecord(to, s));
            CHECK(cudaEventSynchronize(to));
            CHECK(cudaEventElapsedTime(&t, from, to));
        }
        std::sort(ms, ms + 9);
        printf("layer of tl, %d rows, %s products: %.2f us; 22 layers %.3f ms\n", rows,
               with ? "with" : "without", ms[4] / 22 * 1e3, ms[4]);
    }
    for (problem &x : p)
        drop(&x);
}

static void bench(void) {
    static const int rows[] = {512, 4096, 64, 128, 256, 1024, 2048};
    printf("TFLOP/s whole/split by shape:");
    for (const cu_gemm_shape &s : cu_gemm_shapes)
        printf(" %dx%d,%d", s.rows, s.cols, s.deep);
    printf("\n");
    for (int r : rows) {
        cu_gemm_plan best[8];
        for (int i = 0; i < 8; i++)
            best[i] = bench_one(timed[i], r);
        if (only == INT32_MIN)
            bench_layer(r, best);
    }
    for (int r : {256, 2048, 16384}) {
        for (const test_case &c : timed_experts)
            bench_one(c, r);
    }
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    int major;
    int minor;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    CHECK(cudaDeviceGetAttribute(&device.sms, cudaDevAttrMultiProcessorCount, 0));
    device.cc = 10 * major + minor;
    cu_gemm_init(&device);
    CHECK(cudaGetLastError());
    CHECK(cudaMalloc(&scratch, cu_gemm_scratch(&device)));
    CHECK(cudaMemset(scratch, 0, cu_gemm_scratch(&device)));
    const bool time = argc > 1 && !strcmp(argv[1], "bench");
    if (argc > 1 + time)
        only = atoi(argv[1 + time]);
    if (time)
        bench();
    else if (tests())
        return 1;
    CHECK(cudaDeviceSynchronize());
    return 0;
}
