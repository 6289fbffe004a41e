/* cuda_attention.cu -- attention of many rows, and of rows over a latent cache, beside sums in
 * double, on each kernel that has it: over heads, groups, windows, sinks, sequences of unequal
 * lengths and pages in any order, in memory full of NaN. Outputs are poisoned, run twice and
 * compared bit by bit. `cuda_attention bench` times them over the shapes of known models,
 * `cuda_attention latent` latent rows alone. Needs a GPU; stands alone. */
#include "cached.cuh"
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
enum { PAGE = CU_PAGE_TOKENS, MOST_SEEN = 8192 };

/* ---- cases ----------------------------------------------------------------------------------- */
struct sequence {
    int past, rows;
};
struct attention_case {
    const char *name;
    int H, Hkv, dk, dv;
    int window;
    float cap;
    bool sinks, odd; /* odd: NaN and infinity in some rows of the cache and of q */
    int y_kind;
    std::vector<sequence> seqs;
    bool latent; /* values are the first elements of keys */
};
struct attention_problem {
    cu_attend a;
    std::vector<void *> owned;
    size_t y_bytes;
};

static __device__ float noise(uint64_t seed, uint64_t i) {
    uint64_t v = (seed + 1) * 0x9e3779b97f4a7c15ull + i;
    v ^= v >> 33;
    v *= 0xff51afd7ed558ccdull;
    v ^= v >> 33;
    v *= 0xc4ceb9fe1a85ec53ull;
    v ^= v >> 33;
    int sum = 0;
    for (int k = 0; k < 3; k++) {
        sum += (int)(v & 0xffff);
        v >>= 16;
    }
    return sum / 32768.0f - 3.0f;
}
__global__ void fill_floats(float *x, int64_t n, float scale, uint64_t seed) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        x[i] = scale * noise(seed, i);
}
static __device__ char *plane_of(const cu_cache &c, int slot, int p, bool values) {
    const int64_t first = (int64_t)slot * c.P;
    const int page = c.pages[first + p / PAGE];
    if (values)
        return values_at(c, page);
    return keys_at(c, page);
}
/* Keys or values of a slot's first `positions` positions. A block has one of them. */
__global__ void fill_rows(cu_cache c, int slot, bool values, uint64_t seed) {
    const int p = blockIdx.x;
    const int kvh = blockIdx.y;
    const int pad = values ? c.pv : c.pk;
    const int dim = values ? c.dv : c.dk;
    char *plane = plane_of(c, slot, p, values);
    const int64_t position = (int64_t)slot * c.P * PAGE + p;
    const int64_t before = (position * c.Hkv + kvh) * pad;
    char *head = q8_head(plane, kvh, pad);
    __half *row = (__half *)plane + float_row(kvh, p, pad);
    for (int x = threadIdx.x; x < pad; x += blockDim.x) {
        float v = 0;
        if (x < dim)
            v = noise(seed, before + x);
        if (c.dtype == MN_F16) {
            row[x] = __float2half_rn(v);
            continue;
        }
        const float scale = 0.02f + 0.001f * (p % 7);
        q8_codes_at(head, p, pad)[x] = (char)(int)(v * 40);
        q8_scales_at(head, p, pad)[x / 32] = __float2half_rn(scale);
    }
}
__global__ void set_half(cu_cache c, int slot, int p, bool values, float v) {
    const int pad = values ? c.pv : c.pk;
    __half *plane = (__half *)plane_of(c, slot, p, values);
    plane[float_row(0, p, pad) + 3] = __float2half_rn(v);
}

static void *area(attention_problem *p, size_t bytes, int poison) {
    void *m;
    CHECK(cudaMalloc(&m, bytes));
    CHECK(cudaMemset(m, poison, bytes));
    p->owned.push_back(m);
    return m;
}
template <class T> static T *upload(attention_problem *p, const std::vector<T> &v) {
    T *m = (T *)area(p, v.size() * sizeof(T), 0);
    CHECK(cudaMemcpy(m, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return m;
}

/* Sequences with their rows, positions and pages, the pages in an order of their own. */
static void make_rows(attention_problem *p, const attention_case &c) {
    std::vector<int32_t> pos, slot, seqs, pages;
    int longest = 0;
    for (const sequence &s : c.seqs) {
        const int end = s.past + s.rows;
        longest = std::max(longest, end);
    }
    cu_cache *k = &p->a.c;
    k->S = (int)c.seqs.size();
    k->P = (longest + PAGE - 1) / PAGE + 1;
    k->n_pages = (int64_t)k->S * k->P;
    pages.assign((size_t)k->n_pages, -1);
    for (int i = 0; i < k->S; i++) {
        const sequence &s = c.seqs[i];
        seqs.insert(seqs.end(), {(int32_t)pos.size(), s.rows, i, 0});
        for (int r = 0; r < s.rows; r++) {
            pos.push_back(s.past + r);
            slot.push_back(i);
        }
        const int end = s.past + s.rows;
        int32_t *own = &pages[(size_t)i * k->P];
        for (int j = 0; j * PAGE < end; j++) {
            const int64_t place = (int64_t)j * k->S + i;
            own[j] = (int32_t)(place * 7919 % k->n_pages);
        }
    }
    k->T = (int)pos.size();
    k->row_pos = upload(p, pos);
    k->row_slot = upload(p, slot);
    k->pages = upload(p, pages);
    p->a.seqs = upload(p, seqs);
    p->a.n_seqs = k->S;
}
static uint64_t row_bytes(uint32_t dtype, int pad) {
    if (dtype == MN_Q8_0)
        return (uint64_t)pad / 32 * 34;
    return (uint64_t)pad * 2;
}
static void make_cache(attention_problem *p, const attention_case &c, uint32_t dtype) {
    cu_cache *k = &p->a.c;
    const int block = dtype == MN_Q8_0 ? 32 : 8;
    k->Hkv = c.Hkv;
    k->dk = c.dk;
    k->dv = c.dv;
    k->pk = (c.dk + block - 1) / block * block;
    k->pv = (c.dv + block - 1) / block * block;
    k->dtype = dtype;
    k->k_dtype = dtype;
    k->v_dtype = dtype;
    const uint64_t places = (uint64_t)c.Hkv * PAGE;
    k->v_offset = places * row_bytes(dtype, k->pk);
    k->layer_at = k->v_offset + places * row_bytes(dtype, k->pv); /* the second of two layers */
    if (c.latent) {
        k->pv = k->pk;
        k->layer_at = k->v_offset;
        k->v_offset = 0;
    }
    k->page_bytes = 2 * k->layer_at;
    k->kv = (char *)area(p, (size_t)k->n_pages * k->page_bytes, 0xff);
    for (int i = 0; i < k->S; i++) {
        const sequence &s = c.seqs[i];
        const unsigned end = (unsigned)(s.past + s.rows);
        const int middle = s.past + s.rows / 2;
        const dim3 grid(end, (unsigned)c.Hkv);
        fill_rows<<<grid, 64>>>(*k, i, false, 11);
        if (!c.latent)
            fill_rows<<<grid, 64>>>(*k, i, true, 12);
        if (!c.odd || dtype != MN_F16)
            continue;
        set_half<<<1, 1>>>(*k, i, middle, false, INFINITY);
        set_half<<<1, 1>>>(*k, i, middle + 9, true, NAN);
    }
}
/* What attend_long and attend_latent leave between blocks. */
static void make_splits(attention_problem *p) {
    cu_attend *a = &p->a;
    const int64_t heads = std::min((int64_t)a->c.T * a->H, (int64_t)16 * device.sms);
    a->split = 1024;
    a->max_splits = (a->c.P * PAGE + a->split - 1) / a->split;
    const uint64_t splits = (uint64_t)heads * a->max_splits * (a->c.dv + 2) * 4;
    const uint64_t parts = cu_latent_bytes(&device, a->c.T, a->H, a->n_seqs);
    a->partial = (float *)area(p, std::max(splits, parts), 0xff);
    a->arrived = (unsigned *)area(p, (size_t)heads * 4, 0);
}
static void make(attention_problem *p, const attention_case &c, uint32_t dtype) {
    *p = {};
    make_rows(p, c);
    make_cache(p, c, dtype);
    cu_attend *a = &p->a;
    const int64_t n_q = (int64_t)a->c.T * c.H * c.dk;
    float *q = (float *)area(p, (size_t)n_q * 4, 0);
    fill_floats<<<1024, 256>>>(q, n_q, 1.0f, 5);
    a->q = q;
    if (c.sinks) {
        float *sinks = (float *)area(p, (size_t)c.H * 4, 0);
        fill_floats<<<1, 256>>>(sinks, c.H, 2.0f, 6);
        a->sinks = sinks;
    }
    const size_t n_y = (size_t)a->c.T * c.H * c.dv;
    p->y_bytes = n_y * (c.y_kind == CU_F32 ? 4 : 2);
    a->y = area(p, p->y_bytes, 0xff);
    a->y_kind = c.y_kind;
    a->H = c.H;
    a->window = c.window;
    a->softcap = c.cap;
    a->scale = 2.0f / sqrtf((float)c.dk);
    a->rounds = true;
    if (c.latent)
        make_splits(p);
    const int dims = std::max(c.dk, c.dv);
    a->tile_sums = (float *)area(p, cu_tile_bytes(&device, dims), 0);
    a->tiles_arrived = (unsigned *)area(p, 4096, 0);
    CHECK(cudaDeviceSynchronize());
}
static void drop(attention_problem *p) {
    for (void *m : p->owned)
        CHECK(cudaFree(m));
    p->owned.clear();
}

/* ---- in double ------------------------------------------------------------------------------- */
static __device__ double element(const cu_cache &c, char *plane, int kvh, int p, int pad, int x) {
    if (c.dtype == MN_F16)
        return __half2float(((const __half *)plane)[float_row(kvh, p, pad) + x]);
    char *head = q8_head(plane, kvh, pad);
    const double scale = __half2float(q8_scales_at(head, p, pad)[x / 32]);
    return scale * (signed char)q8_codes_at(head, p, pad)[x];
}
/* A block: a row's head; want: [T, H, dv]. */
__global__ void expect_rows(cu_attend a, float *want) {
    __shared__ float score[MOST_SEEN];
    const cu_cache &c = a.c;
    const int row = blockIdx.x;
    const int head = blockIdx.y;
    const int kvh = head / (a.H / c.Hkv);
    const int slot = c.row_slot[row];
    const int pos = c.row_pos[row];
    const int64_t at = (int64_t)row * a.H + head;
    const float *q = a.q + at * c.dk;
    const double sink = a.sinks ? a.sinks[head] : -INFINITY;
    int from = 0;
    if (a.window > 0)
        from = max(pos - a.window + 1, 0);
    for (int p = from + threadIdx.x; p <= pos; p += blockDim.x) {
        double s = 0;
        char *keys = plane_of(c, slot, p, false);
        for (int x = 0; x < c.dk; x++) {
            const double rounded = __half2float(to_half(q[x]));
            s += rounded * element(c, keys, kvh, p % PAGE, c.pk, x);
        }
        s *= a.scale;
        if (a.softcap != 0)
            s = a.softcap * tanh(s / a.softcap);
        score[p - from] = (float)s;
    }
    __syncthreads();
    for (int x = threadIdx.x; x < c.dv; x += blockDim.x) {
        double top = sink;
        for (int p = from; p <= pos; p++)
            top = fmax(top, (double)score[p - from]);
        double sum = exp(sink - top);
        double y = 0;
        for (int p = from; p <= pos; p++) {
            char *values = plane_of(c, slot, p, true);
            const double w = exp(score[p - from] - top);
            sum += w;
            y += w * element(c, values, kvh, p % PAGE, c.pv, x);
        }
        want[at * c.dv + x] = (float)(y / sum);
    }
}

/* ---- ways to run it -------------------------------------------------------------------------- */
enum { PORTABLE, HOPPER, LATENT, LONG, WAYS };
static const char *const way_name[WAYS] = {"attend_prompt", "attend_prompt_sm90", "attend_latent",
                                           "attend_long"};
static bool run_way(int way, const cu_attend *a) {
    if (way == LATENT) {
        if (!cu_latent_fits(&device, a))
            return false;
        cu_latent_run(&device, 0, a);
        return true;
    }
    if (way == LONG) {
        if (!cu_attends_long(a) || !a->partial)
            return false;
        cu_attend_run(&device, 0, a);
        return true;
    }
    if (way == HOPPER)
        return cu_prompt_sm90_fits(&device, a) && cu_prompt_sm90_run(&device, 0, a);
    if (!cu_prompt_fits(&device, a))
        return false;
    cu_prompt_run(&device, 0, a);
    return true;
}

/* ---- checks ---------------------------------------------------------------------------------- */
static float value_at(const std::vector<char> &y, size_t i, int kind) {
    if (kind == CU_F32)
        return ((const float *)y.data())[i];
    return __half2float(((const __half *)y.data())[i]);
}
/* Of all, and the largest of a head's row. */
struct errors {
    double all, row;
    int64_t odd; /* numbers where none should be, and the reverse */
};
static errors errors_of(const std::vector<char> &y, const std::vector<float> &want, int dv,
                        int kind) {
    errors e = {0, 0, 0};
    double all = 0;
    double of = 0;
    for (size_t r = 0; r < want.size(); r += (size_t)dv) {
        double diff = 0;
        double sum = 0;
        for (int x = 0; x < dv; x++) {
            const double v = value_at(y, r + x, kind);
            const double w = want[r + x];
            e.odd += isfinite(v) != isfinite(w);
            if (!isfinite(v) || !isfinite(w))
                continue;
            diff += (v - w) * (v - w);
            sum += w * w;
        }
        all += diff;
        of += sum;
        if (sum > 0)
            e.row = std::max(e.row, sqrt(diff / sum));
    }
    e.all = sqrt(all / of);
    return e;
}
static std::vector<char> output_of(int way, attention_problem *p, bool *ran) {
    std::vector<char> y(p->y_bytes);
    CHECK(cudaMemset(p->a.y, 0xff, p->y_bytes));
    *ran = run_way(way, &p->a);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(y.data(), p->a.y, y.size(), cudaMemcpyDeviceToHost));
    return y;
}
static int check_way(int way, attention_problem *p, const attention_case &c,
                     const std::vector<float> &want, const char *kind) {
    bool ran;
    const std::vector<char> y = output_of(way, p, &ran);
    const bool of_latents = way == LATENT || way == LONG;
    if (!ran && of_latents != c.latent)
        return 0;
    if (!ran) {
        printf("skip %-20s %-5s %s\n", c.name, kind, way_name[way]);
        return 0;
    }
    const bool same = y == output_of(way, p, &ran);
    const errors e = errors_of(y, want, c.dv, c.y_kind);
    const bool good = e.all < 1e-3 && e.row < 1e-2 && e.odd == 0 && same;
    printf("%s %-20s %-5s %-20s %.2e, row %.2e%s%s\n", good ? "ok  " : "FAIL", c.name, kind,
           way_name[way], e.all, e.row, e.odd ? ", NaN differ" : "", same ? "" : ", bits differ");
    return !good;
}
static int check_case(const attention_case &c, uint32_t dtype) {
    attention_problem p;
    make(&p, c, dtype);
    const size_t n = (size_t)p.a.c.T * c.H * c.dv;
    float *to = (float *)area(&p, n * 4, 0);
    std::vector<float> want(n);
    expect_rows<<<dim3((unsigned)p.a.c.T, (unsigned)c.H), 128>>>(p.a, to);
    CHECK(cudaMemcpy(want.data(), to, n * 4, cudaMemcpyDeviceToHost));
    int failed = 0;
    for (int way = 0; way < WAYS; way++)
        failed += check_way(way, &p, c, want, dtype == MN_F16 ? "f16" : "q8_0");
    drop(&p);
    return failed;
}

static const std::vector<sequence> alone = {{0, 1500}};
static const std::vector<sequence> deeper = {{2500, 900}};
static const std::vector<sequence> unequal = {{0, 700}, {130, 3},   {1000, 64}, {63, 65},
                                              {7, 1},   {777, 500}, {4000, 129}};
static const std::vector<sequence> single_rows = {{63, 1},   {64, 1},   {700, 1}, {5000, 1},
                                                  {2300, 1}, {8100, 1}, {0, 1}};
static const std::vector<attention_case> checked = {
    {"128", 8, 2, 128, 128, 0, 0, false, false, CU_F32, alone},
    {"128 deep", 8, 8, 128, 128, 0, 0, false, false, CU_HALF, deeper},
    {"128 unequal", 14, 2, 128, 128, 0, 0, true, false, CU_F32, unequal},
    {"128 window", 8, 2, 128, 128, 300, 0, true, false, CU_F32, unequal},
    {"128 odd", 8, 2, 128, 128, 0, 0, false, true, CU_F32, unequal},
    {"128 cap", 8, 4, 128, 128, 0, 5, true, false, CU_F32, unequal},
    {"96", 12, 4, 96, 96, 0, 0, false, false, CU_F32, unequal},
    {"80 and 128", 12, 4, 80, 128, 100, 0, false, false, CU_HALF, unequal},
    {"64", 16, 2, 64, 64, 0, 0, false, false, CU_F32, alone},
    {"64 one group", 16, 16, 64, 64, 0, 0, false, false, CU_F32, deeper},
    {"64 unequal", 16, 2, 64, 64, 0, 0, true, false, CU_F32, unequal},
    {"64 window", 64, 8, 64, 64, 128, 0, true, false, CU_HALF, unequal},
    {"64 odd", 16, 2, 64, 64, 500, 0, true, true, CU_F32, unequal},
    {"48", 16, 2, 48, 32, 0, 0, false, false, CU_F32, unequal},
    {"256", 8, 4, 256, 256, 0, 0, false, false, CU_F32, alone},
    {"256 unequal", 8, 2, 256, 256, 0, 50, true, false, CU_F32, unequal},
    {"256 window", 8, 4, 256, 256, 512, 0, false, false, CU_HALF, unequal},
    {"256 odd", 8, 4, 256, 256, 0, 0, false, true, CU_F32, unequal},
    {"latent 16, one row", 16, 1, 576, 512, 0, 0, false, false, CU_F32, {{3000, 1}}, true},
    {"latent 128, one row", 128, 1, 576, 512, 0, 0, false, false, CU_F32, {{8000, 1}}, true},
    {"latent 20, one page", 20, 1, 576, 512, 0, 0, false, false, CU_F32, {{3, 1}}, true},
    {"latent 128, rows", 128, 1, 576, 512, 0, 0, false, false, CU_F32, single_rows, true},
    {"latent 16, prompt", 16, 1, 576, 512, 0, 0, false, false, CU_F32, alone, true},
    {"latent 20, unequal", 20, 1, 576, 512, 0, 0, false, false, CU_F32, unequal, true},
    {"latent 128, unequal", 128, 1, 576, 512, 0, 0, false, false, CU_HALF, unequal, true},
    {"latent 16, odd", 16, 1, 576, 512, 0, 0, false, true, CU_F32, unequal, true},
    {"latent 8 of 320", 8, 1, 320, 256, 0, 0, false, false, CU_F32, unequal, true},
};

static int check_all(void) {
    int failed = 0;
    for (const attention_case &c : checked) {
        failed += check_case(c, MN_F16);
        if (!c.odd && !c.latent)
            failed += check_case(c, MN_Q8_0);
    }
    printf("%d failed\n", failed);
    return failed != 0;
}

/* ---- times ----------------------------------------------------------------------------------- */
/* Products of what rows see; and of the whole tiles of 128 rows by 128 positions that have some of
 * it, which is what a kernel of such tiles must do. */
static double flop_of(const attention_case &c, int tile) {
    double seen = 0;
    const int step = tile > 1 ? 128 : 1;
    for (const sequence &s : c.seqs) {
        for (int r = 0; r < s.rows; r += tile) {
            const int rows = std::min(tile, s.rows - r);
            const int first = s.past + r;
            const int last = first + rows - 1;
            int from = 0;
            if (c.window > 0)
                from = std::max(first - c.window + 1, 0);
            const int begin = from / step;
            const int end = last / step + 1;
            seen += (double)tile * step * (end - begin);
        }
    }
    return seen * 2.0 * c.H * (c.dk + c.dv);
}
static double time_way(int way, attention_problem *p) {
    enum { RUNS = 5 };
    cudaEvent_t a, b;
    float ms[RUNS];
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    if (!run_way(way, &p->a))
        return 0;
    for (int i = 0; i < RUNS; i++) {
        const int times = 4;
        CHECK(cudaEventRecord(a));
        for (int j = 0; j < times; j++)
            run_way(way, &p->a);
        CHECK(cudaEventRecord(b));
        CHECK(cudaEventSynchronize(b));
        CHECK(cudaEventElapsedTime(&ms[i], a, b));
        ms[i] /= times;
    }
    std::sort(ms, ms + RUNS);
    return ms[RUNS / 2] * 1e-3;
}
static void time_case(const attention_case &c, uint32_t dtype) {
    attention_problem p;
    make(&p, c, dtype);
    const char *kind = dtype == MN_F16 ? "f16" : "q8_0";
    const double flop = flop_of(c, 1);
    const double of_tiles = flop_of(c, 128 / (c.H / c.Hkv));
    printf("%-24s %-5s", c.name, kind);
    for (int way = 0; way < WAYS; way++) {
        const double s = time_way(way, &p);
        if (s == 0) {
            printf(" | -");
            continue;
        }
        const double rate = flop / s * 1e-12;
        const double tile_rate = of_tiles / s * 1e-12;
        printf(" | %9.1f us", s * 1e6);
        printf(" %6.1f TFLOP/s, %6.1f of tiles", rate, tile_rate);
    }
    printf("\n");
    drop(&p);
}
static const std::vector<attention_case> timed = {
    {"32/8 128, 4096", 32, 8, 128, 128, 0, 0, false, false, CU_HALF, {{0, 4096}}},
    {"32/8 128, 512", 32, 8, 128, 128, 0, 0, false, false, CU_HALF, {{0, 512}}},
    {"32/8 128, 2048", 32, 8, 128, 128, 0, 0, false, false, CU_HALF, {{0, 2048}}},
    {"32/8 128, 2048 at 14000", 32, 8, 128, 128, 0, 0, false, false, CU_HALF, {{14000, 2048}}},
    {"32/8 128, 4096, w 1024", 32, 8, 128, 128, 1024, 0, false, false, CU_HALF, {{0, 4096}}},
    {"32/8 128, 8 x 512",
     32,
     8,
     128,
     128,
     0,
     0,
     false,
     false,
     CU_HALF,
     {{0, 512}, {0, 512}, {0, 512}, {0, 512}, {0, 512}, {0, 512}, {0, 512}, {0, 512}}},
    {"32/32 128, 8192", 32, 32, 128, 128, 0, 0, false, false, CU_HALF, {{0, 8192}}},
    {"32/4 64, 512", 32, 4, 64, 64, 0, 0, false, false, CU_HALF, {{0, 512}}},
    {"32/4 64, 2048", 32, 4, 64, 64, 0, 0, false, false, CU_HALF, {{0, 2048}}},
    {"64/8 64, 4096", 64, 8, 64, 64, 0, 0, true, false, CU_HALF, {{0, 4096}}},
    {"64/8 64, 4096, w 128", 64, 8, 64, 64, 128, 0, true, false, CU_HALF, {{0, 4096}}},
    {"64/8 64, 4096, w 1024", 64, 8, 64, 64, 1024, 0, true, false, CU_HALF, {{0, 4096}}},
    {"16/8 256, 4096", 16, 8, 256, 256, 0, 0, false, false, CU_HALF, {{0, 4096}}},
    {"16/8 256, 4096, w 1024", 16, 8, 256, 256, 1024, 0, false, false, CU_HALF, {{0, 4096}}},
    {"16/8 256, 4096, cap", 16, 8, 256, 256, 0, 50, false, false, CU_HALF, {{0, 4096}}},
};

/* ---- times of latent rows -------------------------------------------------------------------- */
/* What a card of this kind does by docs/lab/cuda.md: products in f16, copies. */
static const double most_tflops = 785;
static const double most_gbps = 4480;

static std::vector<sequence> rows_at(int n, int depth) {
    return std::vector<sequence>((size_t)n, sequence{depth - 1, 1});
}
static const std::vector<attention_case> timed_latent = {
    {"128, 1 at 4096", 128, 1, 576, 512, 0, 0, false, false, CU_F32, rows_at(1, 4096), true},
    {"128, 1 at 32768", 128, 1, 576, 512, 0, 0, false, false, CU_F32, rows_at(1, 32768), true},
    {"128, 20 at 4096", 128, 1, 576, 512, 0, 0, false, false, CU_F32, rows_at(20, 4096), true},
    {"128, 20 at 32768", 128, 1, 576, 512, 0, 0, false, false, CU_F32, rows_at(20, 32768), true},
    {"128, 70 at 4096", 128, 1, 576, 512, 0, 0, false, false, CU_F32, rows_at(70, 4096), true},
    {"64, 1 at 32768", 64, 1, 576, 512, 0, 0, false, false, CU_F32, rows_at(1, 32768), true},
    {"16, 1 at 4096", 16, 1, 576, 512, 0, 0, false, false, CU_F32, rows_at(1, 4096), true},
    {"16, 1 at 32768", 16, 1, 576, 512, 0, 0, false, false, CU_F32, rows_at(1, 32768), true},
    {"16, 20 at 32768", 16, 1, 576, 512, 0, 0, false, false, CU_F32, rows_at(20, 32768), true},
    {"128, prompt 512", 128, 1, 576, 512, 0, 0, false, false, CU_F32, {{0, 512}}, true},
    {"128, prompt 4096", 128, 1, 576, 512, 0, 0, false, false, CU_F32, {{0, 4096}}, true},
    {"128, 512 at 14000", 128, 1, 576, 512, 0, 0, false, false, CU_F32, {{14000, 512}}, true},
    {"16, prompt 512", 16, 1, 576, 512, 0, 0, false, false, CU_F32, {{0, 512}}, true},
    {"16, prompt 4096", 16, 1, 576, 512, 0, 0, false, false, CU_F32, {{0, 4096}}, true},
};
/* Bytes of the cache, of q and of y, each once. */
static double bytes_of(const attention_case &c) {
    double bytes = 0;
    for (const sequence &s : c.seqs) {
        bytes += (double)(s.past + s.rows) * c.dk * 2;
        bytes += (double)s.rows * c.H * (c.dk + c.dv) * 4;
    }
    return bytes;
}
static void time_latent(const attention_case &c) {
    attention_problem p;
    make(&p, c, MN_F16);
    const double flop = flop_of(c, 1);
    const double bytes = bytes_of(c);
    const double least = std::max(flop / most_tflops * 1e-12, bytes / most_gbps * 1e-9);
    printf("%-18s limit %9.1f us", c.name, least * 1e6);
    for (int way = LATENT; way <= LONG; way++) {
        if (way == LONG && flop > 3e11) /* seconds */
            continue;
        const double s = time_way(way, &p);
        printf(" | %s", way_name[way]);
        if (s == 0) {
            printf(" -");
            continue;
        }
        printf(" %9.1f us %5.0f GB/s %6.1f TFLOP/s %3.0f %%", s * 1e6, bytes / s * 1e-9,
               flop / s * 1e-12, 100 * least / s);
    }
    printf("\n");
    drop(&p);
}

static void fact(int *to, cudaDeviceAttr what) {
    CHECK(cudaDeviceGetAttribute(to, what, 0));
}
int main(int argc, char **argv) {
    int major = 0;
    int minor = 0;
    fact(&device.sms, cudaDevAttrMultiProcessorCount);
    fact(&device.smem_max, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    fact(&major, cudaDevAttrComputeCapabilityMajor);
    fact(&minor, cudaDevAttrComputeCapabilityMinor);
    device.cc = 10 * major + minor;
    cu_prompt_sm90_init(&device);
    cu_attend_long_init(&device);
    cu_latent_init(&device);
    if (argc < 2)
        return check_all();
    for (const attention_case &c : timed_latent)
        time_latent(c);
    if (strcmp(argv[1], "latent") == 0)
        return 0;
    for (const attention_case &c : timed) {
        time_case(c, MN_F16);
        time_case(c, MN_Q8_0);
    }
    return 0;
}
