/* test_cuda_latent.cpp -- latent attention of the CUDA plugin on the CPU (emulated.h) beside sums in
 * double: steps of prompts and of sequences of one row, tiles of one block and tiles that several
 * share, in memory that is NaN where nothing was stored. Warpgroup products are emulated, too; what
 * a GPU proves is speed and order. */
#include "attend_distance.h"
#include <cstdio>
#include <vector>

/* attend.c refers to them. */
extern "C" {
void cu_attend_long(cudaStream_t, const cu_attend *, int, int) {
}
void cu_attend_distance(cudaStream_t, const cu_attend *, const cu_distance *, int, int, int) {
}
void cu_attend_tiles(cudaStream_t, const cu_attend_args *, dim3) {
}
void cu_attend_f32(cudaStream_t, const cu_attend_args *, dim3) {
}
void cu_attend_f16(cudaStream_t, const cu_attend_args *, dim3) {
}
void cu_attend_q8_0(cudaStream_t, const cu_attend_args *, dim3) {
}
void cu_attend_any(cudaStream_t, const cu_attend_args *, dim3) {
}
extern const cu_prompt_kernel cu_prompt_f16[CU_PROMPT_KERNELS] = {};
extern const cu_prompt_kernel cu_prompt_q8_0[CU_PROMPT_KERNELS] = {};
}

struct sequence {
    int past, rows;
};
struct latent_case {
    const char *name;
    int sms, heads, dk, dv;
    bool odd; /* the newest row of the first sequence is no number in its values */
    std::vector<sequence> seqs;
};

static float noise() {
    static uint64_t state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((double)(state >> 33) / (1u << 30) - 1.0);
}

/* A step and its cache: pages of two layers, of which the second is used. */
struct latent_step {
    cu_attend a = {};
    std::vector<__half> kv;
    std::vector<float> q, y, parts;
    std::vector<int32_t> pos, slot, seqs, pages;
};
static __half *row_at(const cu_cache &c, int slot, int p) {
    const int page = c.pages[slot * c.P + p / CU_PAGE_TOKENS];
    __half *layer = (__half *)(c.kv + page * c.page_bytes + c.layer_at);
    return layer + p % CU_PAGE_TOKENS * c.pk;
}
static void make_rows(const latent_case &l, latent_step *s) {
    int longest = 0;
    for (const sequence &q : l.seqs) {
        s->seqs.insert(s->seqs.end(), {(int32_t)s->pos.size(), q.rows, (int)s->seqs.size() / 4, 0});
        for (int i = 0; i < q.rows; i++) {
            s->pos.push_back(q.past + i);
            s->slot.push_back((int)s->seqs.size() / 4 - 1);
        }
        longest = std::max(longest, q.past + q.rows);
    }
    s->pos.push_back(-1); /* padding */
    s->slot.push_back(-1);
    cu_cache *c = &s->a.c;
    c->S = (int)l.seqs.size();
    c->P = longest / CU_PAGE_TOKENS + 2;
    c->n_pages = c->S * c->P;
    for (int i = 0; i < c->n_pages; i++)
        s->pages.push_back((int32_t)c->n_pages - 1 - i);
    s->seqs.insert(s->seqs.end(), {0, 0, 0, 0}); /* an entry that is not used */
    s->a.n_seqs = c->S + 1;
    c->T = (int)s->pos.size();
}
static void make_cache(const latent_case &l, latent_step *s) {
    cu_cache *c = &s->a.c;
    c->Hkv = 1;
    c->dk = l.dk;
    c->dv = l.dv;
    c->pk = (l.dk + 7) / 8 * 8;
    c->pv = c->pk;
    c->dtype = c->k_dtype = c->v_dtype = MN_F16;
    c->layer_at = (uint64_t)CU_PAGE_TOKENS * c->pk * 2;
    c->page_bytes = 2 * c->layer_at;
    const size_t halves = (size_t)c->n_pages * c->page_bytes / 2;
    s->kv.assign(halves, __float2half(NAN));
    c->kv = (char *)s->kv.data();
    c->pages = s->pages.data();
    c->row_pos = s->pos.data();
    c->row_slot = s->slot.data();
    for (size_t i = 0; i < l.seqs.size(); i++)
        for (int p = 0; p < l.seqs[i].past + l.seqs[i].rows; p++)
            for (int x = 0; x < c->pk; x++)
                row_at(*c, (int)i, p)[x] = __float2half(x < l.dk ? noise() : 0);
    if (l.odd)
        row_at(*c, 0, l.seqs[0].past + l.seqs[0].rows - 1)[3] = __float2half(NAN);
}
static void make(const latent_case &l, latent_step *s) {
    make_rows(l, s);
    make_cache(l, s);
    cu_attend *a = &s->a;
    const size_t pairs = (size_t)a->c.T * l.heads;
    for (size_t i = 0; i < pairs * l.dk; i++)
        s->q.push_back(noise());
    s->y.assign(pairs * l.dv, 7);
    const cu_card card = {l.sms, 232448, 90};
    const uint64_t bytes = cu_latent_bytes(&card, a->c.T, l.heads, a->n_seqs);
    s->parts.assign(bytes / sizeof(float), NAN);
    a->q = s->q.data();
    a->y = s->y.data();
    a->partial = s->parts.data();
    a->seqs = s->seqs.data();
    a->H = l.heads;
    a->scale = 0.2f;
    a->rounds = true;
    cu_latent_run(&card, 0, a);
}

/* A row's head, in double. */
static std::vector<double> expected(const latent_step &s, int row, int head) {
    const cu_cache &c = s.a.c;
    const float *q = &s.q[((size_t)row * s.a.H + head) * c.dk];
    std::vector<double> y((size_t)c.dv, 0.0);
    double sum = 0;
    for (int p = 0; p <= s.pos[row]; p++) {
        const __half *k = row_at(c, s.slot[row], p);
        double logit = 0;
        for (int x = 0; x < c.dk; x++)
            logit += (double)__half2float(k[x]) * q[x];
        const double e = exp(logit * s.a.scale);
        sum += e;
        for (int x = 0; x < c.dv; x++)
            y[x] += e * __half2float(k[x]);
    }
    for (double &v : y)
        v /= sum;
    return y;
}
static int check(const latent_case &l) {
    latent_step s;
    make(l, &s);
    double off = 0;
    double all = 0;
    int odd = 0;
    for (int row = 0; row + 1 < s.a.c.T; row++) {
        for (int head = 0; head < l.heads; head++) {
            const std::vector<double> want = expected(s, row, head);
            const float *y = &s.y[((size_t)row * l.heads + head) * l.dv];
            for (int x = 0; x < l.dv; x++) {
                odd += std::isnan(want[x]) != std::isnan(y[x]);
                if (std::isnan(want[x]) || std::isnan(y[x]))
                    continue;
                off += (y[x] - want[x]) * (y[x] - want[x]);
                all += want[x] * want[x];
            }
        }
    }
    const size_t padding = (size_t)(s.a.c.T - 1) * l.heads * l.dv;
    const bool untouched = s.y[padding] == 7;
    const bool good = all > 0 && sqrt(off / all) < 1e-3 && !odd && untouched;
    printf("%s  %-28s %.2e%s%s\n", good ? "ok  " : "FAIL", l.name, sqrt(off / all),
           odd ? ", NaN differ" : "", untouched ? "" : ", padding written");
    return !good;
}

int main() {
    const std::vector<latent_case> cases = {
        {"one row, shared", 4, 16, 576, 512, false, {{700, 1}}},
        {"one row, one page", 4, 3, 576, 512, false, {{5, 1}}},
        {"two tiles of heads", 5, 80, 576, 512, false, {{64, 1}, {199, 1}, {320, 1}}},
        {"many slices", 200, 8, 320, 256, false, {{900, 1}, {0, 1}, {1500, 1}}},
        {"rows of a draft", 6, 20, 576, 512, false, {{254, 5}, {60, 4}}},
        {"a prompt of whole tiles", 1, 20, 576, 512, false, {{30, 21}}},
        {"a prompt beside one row", 2, 12, 576, 512, false, {{50, 30}, {190, 1}, {63, 2}}},
        {"no numbers, whole tiles", 1, 12, 576, 512, true, {{58, 18}}},
        {"no numbers, shared", 4, 12, 576, 512, true, {{250, 9}}},
    };
    int failed = 0;
    for (const latent_case &l : cases)
        failed += check(l);
    printf("%d failed\n", failed);
    return failed != 0;
}
