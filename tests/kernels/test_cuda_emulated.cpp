/* test_cuda_emulated.cpp -- kernels of the CUDA plugin's cache on the CPU (emulated.h), against
 * sums in double: keys and values of each pair of types, turned on the way or not, stored and
 * attended to, with windows, over pages in any order; views. A GPU proves speed and the rest; this
 * runs in every gate. */
#include "attend_distance.h"
extern "C" {
#include "common.h"
#include "dtype.h"
}
#include <cstdio>
#include <vector>

struct shape {
    uint32_t k_dtype, v_dtype;
    int heads, kv_heads, dim_k, dim_v, length, window;
    bool turned;
    bool rounds; /* matrix units where there are such rows */
};
static const float scale = 0.2f;
static int failed;
/* Heads beyond attend.cuh's are tried on a GPU alone. */
extern "C" void cu_attend_long(cudaStream_t, const cu_attend *, int, int) {
    printf("FAIL  cu_attend_long was not asked for\n");
    failed++;
}
/* Of test_cuda_distance.cpp, and test_cuda_latent.cpp. */
extern "C" void cu_attend_distance(cudaStream_t, const cu_attend *, const cu_distance *, int, int,
                                   int) {
    failed++;
}
extern "C" void cu_attend_latent(cudaStream_t, const cu_latent *, int) {
    failed++;
}
extern "C" void cu_merge_latent(cudaStream_t, const cu_latent *, bool) {
    failed++;
}
extern "C" bool cu_latent_kernel_init(void) {
    return false;
}

static float noise() {
    static uint64_t state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((double)(state >> 33) / (1u << 30) - 1.0);
}
static std::vector<float> noises(size_t n) {
    std::vector<float> x(n);
    for (float &v : x)
        v = noise();
    return x;
}

static int padded(uint32_t dtype, int n) {
    const int align = dtype == MN_Q8_0 ? 32 : 8;
    return (n + align - 1) / align * align;
}
static int row_bytes(uint32_t dtype, int n) {
    const int64_t blocks = n / mnp_kv_block(dtype);
    return (int)(blocks * mnp_kv_block_bytes(dtype));
}

/* A cache of two layers, of which the second is used, and of two slots. */
struct cache {
    cu_cache c = {};
    std::vector<char> kv;
    std::vector<int32_t> pages, pos, slot;
    explicit cache(const shape &s) : pos((size_t)s.length), slot((size_t)s.length, 1) {
        c.Hkv = s.kv_heads;
        c.dk = s.dim_k;
        c.dv = s.dim_v;
        c.pk = padded(s.k_dtype, s.dim_k);
        c.pv = padded(s.v_dtype, s.dim_v);
        c.k_dtype = s.k_dtype;
        c.v_dtype = s.v_dtype;
        c.dtype = s.k_dtype == s.v_dtype ? s.k_dtype : (uint32_t)MN_DTYPE_NONE;
        c.S = 2;
        c.P = (s.length + CU_PAGE_TOKENS - 1) / CU_PAGE_TOKENS + 1;
        c.n_pages = 2 * c.P;
        const int places = s.kv_heads * CU_PAGE_TOKENS;
        c.v_offset = (uint64_t)places * row_bytes(s.k_dtype, c.pk);
        c.layer_at = c.v_offset + (uint64_t)places * row_bytes(s.v_dtype, c.pv);
        c.page_bytes = 2 * c.layer_at;
        kv.resize(c.page_bytes * (uint64_t)c.n_pages);
        for (int i = 0; i < c.n_pages; i++)
            pages.push_back((int32_t)c.n_pages - 1 - i);
        for (int i = 0; i < s.length; i++)
            pos[(size_t)i] = i;
        c.kv = kv.data();
        c.pages = pages.data();
    }
};

/* Pairs (i, i + n / 2) of a row of n at a position. */
static void turn(float *x, int n, int pos, const float *freqs) {
    for (int i = 0; i < n / 2; i++) {
        const double t = (double)pos * freqs[i];
        const float c = (float)cos(t);
        const float s = (float)sin(t);
        const float a = x[i];
        const float b = x[i + n / 2];
        x[i] = a * c - b * s;
        x[i + n / 2] = a * s + b * c;
    }
}

static std::vector<double> kept(uint32_t dtype, const float *x, int n) {
    uint8_t stored[1024];
    float y[256];
    mn_cached_put(dtype, x, n, stored);
    mn_cached_get(dtype, stored, n, y);
    return std::vector<double>(y, y + n);
}

/* One head's output over positions [from, length). */
static std::vector<double> attended(const shape &s, const float *q, const float *k, const float *v,
                                    int from) {
    const int k_step = s.kv_heads * s.dim_k;
    const int v_step = s.kv_heads * s.dim_v;
    std::vector<double> y((size_t)s.dim_v, 0.0);
    double sum = 0;
    for (int t = from; t < s.length; t++) {
        const std::vector<double> key = kept(s.k_dtype, k + (size_t)t * k_step, s.dim_k);
        const std::vector<double> value = kept(s.v_dtype, v + (size_t)t * v_step, s.dim_v);
        double logit = 0;
        for (int i = 0; i < s.dim_k; i++)
            logit += key[(size_t)i] * q[i];
        const double e = exp(logit * scale);
        sum += e;
        for (int i = 0; i < s.dim_v; i++)
            y[(size_t)i] += e * value[(size_t)i];
    }
    for (double &x : y)
        x /= sum;
    return y;
}

/* Relative L2 of all heads of the last row. */
static double compare(const shape &s) {
    cache of(s);
    const std::vector<float> k = noises((size_t)s.length * s.kv_heads * s.dim_k);
    const std::vector<float> v = noises((size_t)s.length * s.kv_heads * s.dim_v);
    const std::vector<float> q = noises((size_t)s.heads * s.dim_k);
    const std::vector<float> rows_q = noises((size_t)s.length * s.heads * s.dim_k);
    std::vector<float> turned_q = rows_q;
    std::vector<float> turned_k = k;
    std::vector<float> freqs((size_t)s.dim_k);
    std::vector<float> y((size_t)s.heads * s.dim_v);
    for (int i = 0; i < s.dim_k; i++)
        freqs[(size_t)i] = powf(10000, -2.0f * (float)i / (float)s.dim_k);
    cu_store store = {};
    store.c = of.c;
    store.c.T = s.length;
    store.c.row_pos = of.pos.data();
    store.c.row_slot = of.slot.data();
    store.k = k.data();
    store.v = v.data();
    store.rope = s.turned;
    store.kr = cu_rope{k.data(),   of.pos.data(), freqs.data(), NULL, s.length,
                       s.kv_heads, s.dim_k,       s.dim_k,      0,    1};
    store.q = cu_rope{rows_q.data(),
                      of.pos.data(),
                      freqs.data(),
                      turned_q.data(),
                      s.length,
                      s.heads,
                      s.dim_k,
                      s.dim_k,
                      0,
                      1};
    cu_store_run(0, &store);
    for (int i = 0; s.turned && i < s.length * s.kv_heads; i++)
        turn(&turned_k[(size_t)i * s.dim_k], s.dim_k, i / s.kv_heads, freqs.data());

    const int32_t last = s.length - 1;
    const int32_t slot = 1;
    const int32_t seqs[4] = {0, 1, 1, 0};
    cu_card device = {};
    cu_attend a = {};
    device.sms = 4;
    a.c = of.c;
    a.c.T = 1;
    a.c.row_pos = &last;
    a.c.row_slot = &slot;
    a.q = q.data();
    a.y = y.data();
    a.H = s.heads;
    a.seqs = seqs;
    a.n_seqs = 1;
    a.split = 256;
    a.max_splits = (a.c.P * CU_PAGE_TOKENS + 255) / 256;
    a.scale = scale;
    a.window = s.window;
    a.rounds = s.rounds;
    std::vector<float> partial((size_t)s.heads * a.max_splits * (s.dim_v + 2));
    std::vector<unsigned> arrived((size_t)s.heads);
    a.partial = partial.data();
    a.arrived = arrived.data();
    cu_attend_run(&device, 0, &a);

    const int from = s.window && s.length > s.window ? s.length - s.window : 0;
    double off = 0;
    double all = 0;
    for (int h = 0; h < s.heads; h++) {
        const int g = h / (s.heads / s.kv_heads);
        const float *keys = &turned_k[(size_t)g * s.dim_k];
        const float *values = &v[(size_t)g * s.dim_v];
        const std::vector<double> want = attended(s, &q[(size_t)h * s.dim_k], keys, values, from);
        for (int i = 0; i < s.dim_v; i++) {
            const double w = want[(size_t)i];
            const double d = y[(size_t)h * s.dim_v + i] - w;
            off += d * d;
            all += w * w;
        }
    }
    for (int h = 0; s.turned && h < s.heads; h++) { /* queries were turned, too */
        const size_t at = ((size_t)last * s.heads + h) * s.dim_k;
        std::vector<float> want(&rows_q[at], &rows_q[at] + s.dim_k);
        turn(want.data(), s.dim_k, last, freqs.data());
        for (int i = 0; i < s.dim_k; i++)
            off += fabs(want[(size_t)i] - turned_q[at + i]) > 1e-5;
    }
    return sqrt(off / all);
}

static void caches() {
    static const uint32_t types[] = {MN_F32, MN_F16, MN_Q8_0};
    static const shape shapes[] = {
        {0, 0, 8, 2, 64, 64, 70, 0, false},     {0, 0, 4, 4, 80, 48, 130, 0, true},
        {0, 0, 6, 1, 128, 128, 300, 100, true}, {0, 0, 2, 1, 256, 200, 65, 0, false},
        {0, 0, 4, 2, 20, 20, 33, 0, true},
    };
    for (uint32_t k : types) {
        for (uint32_t v : types) {
            for (shape s : shapes) {
                s.k_dtype = k;
                s.v_dtype = v;
                /* turning in f32 may move a code of q8_0, or an element of f16, by one */
                const bool may_move = s.turned && (k != MN_F32 || v != MN_F32);
                const double e = compare(s);
                if (e <= (may_move ? 1e-4 : 2e-6))
                    continue;
                printf("FAIL  keys %s, values %s, dims %d and %d, %d positions: off by %g\n",
                       mn_dtype_name(k), mn_dtype_name(v), s.dim_k, s.dim_v, s.length, e);
                failed++;
            }
        }
    }
}

/* Keys and values in f16 on matrix units, which round weights to 11 bits. */
static void rounding() {
    static const shape shapes[] = {
        {MN_F16, MN_F16, 8, 1, 64, 64, 70, 0, false, true},
        {MN_F16, MN_F16, 8, 2, 64, 64, 700, 130, true, true},
        {MN_F16, MN_F16, 12, 1, 128, 128, 290, 0, false, true},
        {MN_F16, MN_F16, 6, 2, 80, 48, 300, 100, true, true},
        {MN_F16, MN_F16, 2, 1, 20, 20, 33, 0, true, true},
    };
    for (const shape &s : shapes) {
        const double e = compare(s);
        if (e <= 5e-4)
            continue;
        printf("FAIL  matrix units, dims %d and %d, %d positions: off by %g\n", s.dim_k, s.dim_v,
               s.length, e);
        failed++;
    }
}

/* One row of each of two sequences, and padding: attention that stores on the way leaves what a
 * store and an attention behind it leave, bit for bit. */
enum { JOINED = 3 };
static bool joins(const shape &s) {
    cache of(s);
    const int rows_k = (s.length + 9) * s.kv_heads;
    const std::vector<float> k = noises((size_t)rows_k * s.dim_k);
    const std::vector<float> v = noises((size_t)rows_k * s.dim_v);
    const std::vector<float> q = noises((size_t)JOINED * s.heads * s.dim_k);
    const std::vector<float> freqs = noises((size_t)s.dim_k);
    const int32_t slot[JOINED] = {1, -1, 0};
    const int32_t pos[JOINED] = {s.length - 1, -1, s.length / 2};
    std::vector<float> turned((size_t)JOINED * s.heads * s.dim_k);
    std::vector<float> y[2];
    cu_store before = {};
    before.c = of.c;
    before.c.T = s.length - 1;
    before.c.row_pos = of.pos.data();
    before.k = k.data();
    before.v = v.data();
    for (int32_t i : {0, 1}) { /* both sequences have the same past */
        const std::vector<int32_t> all((size_t)s.length, i);
        before.c.row_slot = all.data();
        cu_store_run(0, &before);
    }
    const std::vector<char> past = of.kv;
    std::vector<char> stored;
    for (int one = 0; one < 2; one++) {
        cu_card device = {};
        cu_attend a = {};
        device.sms = 2; /* fewer than blocks of one part each */
        of.kv = past;
        a.c = of.c;
        a.c.kv = of.kv.data();
        a.c.T = JOINED;
        a.c.row_pos = pos;
        a.c.row_slot = slot;
        a.H = s.heads;
        a.split = 64;
        a.max_splits = (a.c.P * CU_PAGE_TOKENS + 63) / 64;
        a.scale = scale;
        a.window = s.window;
        a.rounds = s.rounds;
        a.one = one;
        a.st.c = a.c;
        a.st.rope = true;
        a.st.v = &v[(size_t)s.length * s.kv_heads * s.dim_v];
        a.st.q = cu_rope{
            q.data(), pos, freqs.data(), turned.data(), JOINED, s.heads, s.dim_k, s.dim_k, 0, 1};
        a.st.kr = a.st.q;
        a.st.kr.x = &k[(size_t)s.length * s.kv_heads * s.dim_k];
        a.st.kr.H = s.kv_heads;
        a.q = turned.data();
        if (!one)
            cu_store_run(0, &a.st);
        y[one].resize((size_t)JOINED * s.heads * s.dim_v);
        a.y = y[one].data();
        const size_t heads = (size_t)JOINED * s.heads;
        std::vector<float> partial(heads * a.max_splits * (s.dim_v + 2));
        std::vector<unsigned> arrived(heads);
        a.partial = partial.data();
        a.arrived = arrived.data();
        cu_attend_run(&device, 0, &a);
        if (!one)
            stored = of.kv;
    }
    return y[0] == y[1] && stored == of.kv;
}

static void rows_of_sequences() {
    static const shape shapes[] = {
        {MN_F16, MN_F16, 8, 2, 64, 64, 70, 0, true},
        {MN_F16, MN_F16, 8, 2, 64, 64, 170, 90, true, true},
        {MN_F16, MN_F16, 12, 1, 128, 128, 150, 0, true, true},
        {MN_F32, MN_F32, 6, 1, 128, 128, 300, 100, true},
        {MN_F16, MN_F16, 2, 2, 80, 48, 200, 0, true},
    };
    for (const shape &s : shapes) {
        if (joins(s))
            continue;
        printf("FAIL  %d heads of %d, %d positions: stored on the way, rows differ\n", s.heads,
               s.dim_k, s.length);
        failed++;
    }
}

/* A step with a prompt's rows and a row of another sequence, whose caches are the same: each its own
 * way, tiles shared by blocks. hides: the newest key and value are no numbers, which the last row
 * alone sees. */
enum { MIXED = 11, MIXED_ROWS = MIXED + 2 };
static double mixed(const shape &s, bool hides) {
    cache of(s);
    const std::vector<float> q = noises((size_t)MIXED_ROWS * s.heads * s.dim_k);
    std::vector<float> k = noises((size_t)s.length * s.kv_heads * s.dim_k);
    std::vector<float> v = noises((size_t)s.length * s.kv_heads * s.dim_v);
    std::vector<float> y((size_t)MIXED_ROWS * s.heads * s.dim_v);
    const int32_t seqs[12] = {0, MIXED, 1, 0, MIXED, 1, 0, 0, 0, 0, 0, 0};
    int32_t pos[MIXED_ROWS];
    int32_t slot[MIXED_ROWS];
    for (int i = 0; i < MIXED_ROWS; i++) {
        slot[i] = i < MIXED;
        pos[i] = i < MIXED ? s.length - MIXED + i : s.length / 2;
    }
    slot[MIXED + 1] = pos[MIXED + 1] = -1;
    if (hides) {
        k[(size_t)(s.length - 1) * s.kv_heads * s.dim_k] = NAN;
        v[(size_t)(s.length - 1) * s.kv_heads * s.dim_v] = NAN;
    }
    cu_store before = {};
    before.c = of.c;
    before.c.T = s.length;
    before.c.row_pos = of.pos.data();
    before.k = k.data();
    before.v = v.data();
    for (int32_t i : {0, 1}) {
        const std::vector<int32_t> all((size_t)s.length, i);
        before.c.row_slot = all.data();
        cu_store_run(0, &before);
    }
    cu_card device = {};
    cu_attend a = {};
    device.sms = 20;
    device.smem_max = 232448;
    a.c = of.c;
    a.c.T = MIXED_ROWS;
    a.c.row_pos = pos;
    a.c.row_slot = slot;
    a.q = q.data();
    a.y = y.data();
    a.H = s.heads;
    a.seqs = seqs;
    a.n_seqs = 3;
    a.split = 64;
    a.max_splits = (a.c.P * CU_PAGE_TOKENS + 63) / 64;
    a.scale = scale;
    a.window = s.window;
    a.rounds = true;
    a.apart = true;
    std::vector<float> partial((size_t)3 * s.heads * a.max_splits * (s.dim_v + 2));
    std::vector<unsigned> arrived((size_t)3 * s.heads);
    const int longest = a.c.pk > a.c.pv ? a.c.pk : a.c.pv;
    std::vector<float4> sums(cu_tile_bytes(&device, longest) / sizeof(float4));
    std::vector<unsigned> tiles((size_t)cu_tile_blocks(&device, longest));
    a.partial = partial.data();
    a.arrived = arrived.data();
    a.tile_sums = (float *)sums.data();
    a.tiles_arrived = tiles.data();
    if (!cu_prompt_fits(&device, &a))
        return INFINITY;
    cu_prompt_run(&device, 0, &a);
    cu_attend_run(&device, 0, &a);
    for (unsigned left : tiles) {
        if (left)
            return INFINITY;
    }
    double off = 0;
    double all = 0;
    for (int i = 0; i <= MIXED; i++) {
        shape row = s;
        row.length = pos[i] + 1;
        const int from = s.window && row.length > s.window ? row.length - s.window : 0;
        for (int h = 0; h < s.heads; h++) {
            const int g = h / (s.heads / s.kv_heads);
            const size_t at = (size_t)i * s.heads + h;
            const std::vector<double> want = attended(
                row, &q[at * s.dim_k], &k[(size_t)g * s.dim_k], &v[(size_t)g * s.dim_v], from);
            for (int x = 0; x < s.dim_v; x++) {
                const double w = want[(size_t)x];
                const double got = y[at * s.dim_v + x];
                if (isnan(w) && isnan(got))
                    continue;
                off += (got - w) * (got - w);
                all += isnan(w) ? 0 : w * w;
            }
        }
    }
    return sqrt(off / all);
}

static void mixed_steps() {
    static const shape shapes[] = {
        {MN_F16, MN_F16, 8, 1, 64, 64, 300, 0, false},
        {MN_F16, MN_F16, 8, 2, 128, 128, 200, 0, false},
        {MN_F16, MN_F16, 8, 2, 64, 64, 420, 150, false},
        {MN_Q8_0, MN_Q8_0, 8, 1, 64, 64, 300, 0, false},
        {MN_F16, MN_F16, 2, 2, 80, 48, 230, 0, false},
    };
    for (const shape &s : shapes) {
        const bool can = s.k_dtype == MN_F16;
        for (int hides = 0; hides <= can; hides++) {
            const double e = mixed(s, hides);
            if (e <= 1e-3)
                continue;
            printf("FAIL  %d heads of %d, %d positions: a mixed step is off by %g\n", s.heads,
                   s.dim_k, s.length, e);
            failed++;
        }
    }
}

/* 2 x 3 x 4 elements of a larger tensor, to a dense one and back. */
static void views() {
    uint32_t dense[24] = {0};
    uint32_t whole[200];
    cu_view v = {};
    for (uint32_t i = 0; i < 200; i++)
        whole[i] = i;
    const int64_t dim[3] = {2, 3, 4};
    const int64_t stride[3] = {70, 20, 4};
    memcpy(v.dim, dim, sizeof dim);
    memcpy(v.stride, stride, sizeof stride);
    v.n_dim = 3;
    v.n = 24;
    v.dense = dense;
    v.apart = whole + 3;
    cu_copy_view(0, &v);
    for (uint32_t i = 0; i < 24; i++) {
        const uint32_t at = 3 + 70 * (i / 12) + 20 * (i / 4 % 3) + 4 * (i % 4);
        if (dense[i] != at)
            failed++;
        dense[i] = at + 1000;
    }
    v.to_apart = true;
    cu_copy_view(0, &v);
    uint32_t changed = 0;
    for (uint32_t i = 0; i < 200; i++)
        changed += whole[i] == i + 1000;
    if (changed != 24)
        failed++;
}

int main() {
    caches();
    rounding();
    rows_of_sequences();
    mixed_steps();
    views();
    printf("%d failed\n", failed);
    return failed != 0;
}
