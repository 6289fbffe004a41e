/* test_cuda_distance.cpp -- attention with biases by distance, relative keys and queries, rows of
 * another text and trees, of the CUDA plugin on the CPU (emulated.h) beside sums in double: steps of
 * several sequences by blocks of one row, of several rows and by slices, whose bits are equal, in
 * memory that is NaN where nothing was stored. */
#include "attend_distance.h"
#include <cstdio>
#include <vector>

/* attend.c refers to them. */
extern "C" {
void cu_attend_long(cudaStream_t, const cu_attend *, int, int) {
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
void cu_attend_latent(cudaStream_t, const cu_latent *, int) {
}
void cu_merge_latent(cudaStream_t, const cu_latent *, bool) {
}
bool cu_latent_kernel_init(void) {
    return false;
}
extern const cu_prompt_kernel cu_prompt_f16[CU_PROMPT_KERNELS] = {};
extern const cu_prompt_kernel cu_prompt_q8_0[CU_PROMPT_KERNELS] = {};
}

enum { BIASES = 1, BOTH = 2, LENGTHS = 4, TREES = 8, REL_K = 16, REL_Q = 32, SINKS = 64 };
enum { SLOPES = 128, CAP = 256, OF_KEYS = 512 };
struct sequence {
    int past, rows;
};
struct distance_case {
    const char *name;
    int what, heads, kv_heads, dk, dv, n_rows, far, window, chunk; /* n_rows: of the table */
    uint32_t dtype;
    std::vector<sequence> seqs;
};

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

/* The length of a distance by docs/ops.md: of DISTANCE_BIAS the bucket of one direction. */
static int length_of(const distance_case &t, int m) {
    if (t.what & BIASES) {
        const int n = t.what & BOTH ? t.n_rows / 2 : t.n_rows;
        const double from = n / 2;
        if (m < n / 2)
            return m;
        return std::min(n / 2 + (int)floor(log(m / from) / log(t.far / from) * (n - n / 2)), n - 1);
    }
    const double from = t.n_rows / 4;
    if (!t.far || m <= t.n_rows / 4)
        return m;
    return t.n_rows / 4 + (int)ceil(log(m / from) / log((t.far - 1) / from) * (from - 1));
}

/* A step and its cache: pages of two layers, of which the second is used. */
struct step {
    cu_attend a = {};
    cu_distance d = {};
    std::vector<char> kv;
    std::vector<float> q, y, parts, sinks, slopes, biases, rel_k, rel_q;
    std::vector<int32_t> pos, slot, seqs, pages, lengths, ancestors;
    std::vector<unsigned> arrived;
};

static float *scratch_row(const step &s, bool value, int slot, int kvh, int p) {
    static float row[CU_MAX_HEAD];
    const cu_cache &c = s.a.c;
    const int page = c.pages[slot * c.P + p / CU_PAGE_TOKENS];
    const int pad = value ? c.pv : c.pk;
    char *plane = c.kv + page * c.page_bytes + c.layer_at + (value ? c.v_offset : 0);
    const size_t at = ((size_t)kvh * CU_PAGE_TOKENS + p % CU_PAGE_TOKENS) * pad;
    for (int i = 0; i < pad; i++)
        row[i] = c.k_dtype == MN_F16 ? __half2float(((__half *)plane)[at + i])
                                     : ((float *)plane)[at + i];
    return row;
}
static void put_row(const step &s, bool value, int slot, int kvh, int p) {
    const cu_cache &c = s.a.c;
    const int page = c.pages[slot * c.P + p / CU_PAGE_TOKENS];
    const int pad = value ? c.pv : c.pk;
    const int n = value ? c.dv : c.dk;
    char *plane = c.kv + page * c.page_bytes + c.layer_at + (value ? c.v_offset : 0);
    const size_t at = ((size_t)kvh * CU_PAGE_TOKENS + p % CU_PAGE_TOKENS) * pad;
    for (int i = 0; i < pad; i++) {
        const float x = i < n ? noise() : 0;
        if (c.k_dtype == MN_F16)
            ((__half *)plane)[at + i] = __float2half(x);
        else
            ((float *)plane)[at + i] = x;
    }
}

static void make_rows(const distance_case &t, step *s) {
    int longest = 0;
    for (const sequence &q : t.seqs) {
        const int own = (int)s->seqs.size() / 4;
        s->seqs.insert(s->seqs.end(), {(int32_t)s->pos.size(), q.rows, own, 0});
        for (int i = 0; i < q.rows; i++) {
            s->pos.push_back(q.past + i);
            s->slot.push_back(own);
            uint32_t bits = 1u | 1u << i % 32; /* the first row, itself, and some of the others */
            for (int j = 0; j < i; j++)
                bits |= (noise() > 0 ? 1u : 0u) << j % 32;
            s->ancestors.push_back((int32_t)bits);
        }
        s->lengths.push_back(1 + (q.past + q.rows - 1) * 2 / 3);
        longest = std::max(longest, q.past + q.rows);
    }
    s->pos.push_back(-1); /* padding */
    s->slot.push_back(-1);
    s->ancestors.push_back(0);
    s->seqs.insert(s->seqs.end(), {0, 0, 0, 0}); /* an entry that is not used */
    cu_cache *c = &s->a.c;
    c->S = (int)t.seqs.size();
    c->P = longest / CU_PAGE_TOKENS + 2;
    c->n_pages = c->S * c->P;
    for (int i = 0; i < c->n_pages; i++)
        s->pages.push_back((int32_t)c->n_pages - 1 - i);
    s->a.n_seqs = c->S + 1;
    c->T = (int)s->pos.size();
}

static void make_cache(const distance_case &t, step *s) {
    cu_cache *c = &s->a.c;
    const int bytes = t.dtype == MN_F16 ? 2 : 4;
    c->Hkv = t.kv_heads;
    c->dk = t.dk;
    c->dv = t.dv;
    c->pk = (t.dk + 7) / 8 * 8;
    c->pv = (t.dv + 7) / 8 * 8;
    c->dtype = c->k_dtype = c->v_dtype = t.dtype;
    if (t.what & OF_KEYS)
        c->pv = c->pk;
    else
        c->v_offset = (uint64_t)CU_PAGE_TOKENS * t.kv_heads * c->pk * bytes;
    c->layer_at = c->v_offset + (uint64_t)CU_PAGE_TOKENS * t.kv_heads * c->pv * bytes;
    c->page_bytes = 2 * c->layer_at;
    s->kv.assign((size_t)c->n_pages * c->page_bytes, (char)0xff);
    c->kv = s->kv.data();
    c->pages = s->pages.data();
    c->row_pos = s->pos.data();
    c->row_slot = s->slot.data();
    for (int i = 0; i < c->S; i++)
        for (int p = 0; p < t.seqs[i].past + t.seqs[i].rows; p++)
            for (int h = 0; h < 2 * t.kv_heads; h++)
                if (h < t.kv_heads || c->v_offset)
                    put_row(*s, h >= t.kv_heads, i, h % t.kv_heads, p);
}

static void make_tables(const distance_case &t, step *s) {
    cu_distance *d = &s->d;
    s->biases = noises((size_t)t.n_rows * t.heads);
    s->rel_k = noises((size_t)t.n_rows * t.heads * t.dk);
    s->rel_q = noises((size_t)t.n_rows * t.heads * t.dk);
    d->biases = t.what & BIASES ? s->biases.data() : NULL;
    d->rel_k = t.what & REL_K ? s->rel_k.data() : NULL;
    d->rel_q = t.what & REL_Q ? s->rel_q.data() : NULL;
    d->lengths = t.what & LENGTHS ? s->lengths.data() : NULL;
    d->ancestors = t.what & TREES ? s->ancestors.data() : NULL;
    d->n_words = 1;
    if (!(t.what & (BIASES | REL_K | REL_Q)))
        return;
    d->places = t.what & BIASES && !(t.what & BOTH) ? t.n_rows : t.n_rows / 2;
    d->exact = t.what & BIASES ? d->places / 2 : t.far ? t.n_rows / 4 : t.n_rows / 2;
    const int most = t.what & BIASES ? d->places - 1 : t.n_rows / 2;
    for (int m = d->exact; m < 4096 && t.far; m++)
        while (d->exact + d->n_steps < std::min(length_of(t, m), most))
            d->step[d->n_steps++] = m;
}

static void make(const distance_case &t, step *s) {
    make_rows(t, s);
    make_cache(t, s);
    make_tables(t, s);
    cu_attend *a = &s->a;
    const size_t pairs = (size_t)a->c.T * t.heads;
    s->q = noises(pairs * t.dk);
    s->sinks = noises((size_t)t.heads);
    s->slopes = noises((size_t)t.heads);
    a->q = s->q.data();
    a->seqs = s->seqs.data();
    a->sinks = t.what & SINKS ? s->sinks.data() : NULL;
    a->slopes = t.what & SLOPES ? s->slopes.data() : NULL;
    a->softcap = t.what & CAP ? 1.5f : 0;
    a->bidirectional = t.what & BOTH;
    a->window = t.window;
    a->chunk = t.chunk;
    a->H = t.heads;
    a->scale = 0.2f;
    a->split = 64;
    a->max_splits = a->c.P;
    s->parts.assign(pairs * a->max_splits * (t.dv + 2), NAN);
    s->arrived.assign(pairs, 0);
    a->partial = s->parts.data();
    a->arrived = s->arrived.data();
}

static bool is_seen(const distance_case &t, const step &s, int row, int p) {
    const sequence &q = t.seqs[s.slot[row]];
    const int pos = s.pos[row];
    if (t.what & LENGTHS)
        return p < s.lengths[s.slot[row]];
    if (t.what & TREES)
        return p < q.past || (p - q.past < 32 && (uint32_t)s.ancestors[row] >> (p - q.past) & 1);
    if (t.window && abs(p - pos) >= t.window)
        return false;
    if (t.chunk && p < pos - pos % t.chunk)
        return false;
    return p <= pos || t.what & BOTH;
}

static double logit_of(const distance_case &t, const step &s, int row, int head, int p) {
    const int m = s.pos[row] - p;
    const int kvh = head / (t.heads / t.kv_heads);
    const float *k = scratch_row(s, false, s.slot[row], kvh, p);
    const float *q = &s.q[((size_t)row * t.heads + head) * t.dk];
    double sum = 0;
    const int length = length_of(t, t.what & BIASES && !(t.what & BOTH) ? std::max(m, 0) : abs(m));
    const int place =
        std::min(std::max(t.n_rows / 2 + (m < 0 ? -length : length), 0), t.n_rows - 1);
    const size_t at = ((size_t)place * t.heads + head) * t.dk;
    for (int i = 0; i < t.dk; i++) {
        sum += (double)k[i] * q[i];
        sum += t.what & REL_K ? (double)s.rel_k[at + i] * q[i] : 0;
        sum += t.what & REL_Q ? (double)s.rel_q[at + i] * k[i] : 0;
    }
    sum *= s.a.scale;
    if (t.what & CAP)
        sum = 1.5 * tanh(sum / 1.5);
    if (t.what & BIASES) {
        const int bucket = (m < 0 && t.what & BOTH ? t.n_rows / 2 : 0) + length;
        sum += s.biases[(size_t)bucket * t.heads + head];
    }
    return t.what & SLOPES ? sum - (double)s.slopes[head] * m : sum;
}

static std::vector<double> expected(const distance_case &t, const step &s, int row, int head) {
    const sequence &q = t.seqs[s.slot[row]];
    const int kvh = head / (t.heads / t.kv_heads);
    std::vector<double> y((size_t)t.dv, 0.0);
    double sum = t.what & SINKS ? exp((double)s.sinks[head]) : 0;
    for (int p = 0; p < q.past + q.rows; p++) {
        if (!is_seen(t, s, row, p))
            continue;
        const double e = exp(logit_of(t, s, row, head, p));
        const float *v = scratch_row(s, !(t.what & OF_KEYS), s.slot[row], kvh, p);
        sum += e;
        for (int x = 0; x < t.dv; x++)
            y[x] += e * v[x];
    }
    for (double &v : y)
        v /= sum;
    return y;
}

/* One unit has several rows in a block, 4,000 ask for slices. */
static std::vector<float> run(step *s, int sms) {
    const cu_card card = {sms, 232448, 90};
    s->y.assign((size_t)s->a.c.T * s->a.H * s->a.c.dv, 7);
    s->a.y = s->y.data();
    cu_distance_run(&card, 0, &s->a, &s->d);
    return s->y;
}

static int check(const distance_case &t) {
    step s;
    make(t, &s);
    const std::vector<float> y = run(&s, 1);
    const bool same = run(&s, 4000) == y;
    double off = 0;
    double all = 0;
    for (int row = 0; row + 1 < s.a.c.T; row++) {
        for (int head = 0; head < t.heads; head++) {
            const std::vector<double> want = expected(t, s, row, head);
            const float *got = &y[((size_t)row * t.heads + head) * t.dv];
            for (int x = 0; x < t.dv; x++) {
                off += (got[x] - want[x]) * (got[x] - want[x]);
                all += want[x] * want[x];
            }
        }
    }
    bool zero = true;
    for (size_t i = (size_t)(s.a.c.T - 1) * t.heads * t.dv; i < y.size(); i++)
        zero = zero && y[i] == 0;
    bool left = false;
    for (unsigned n : s.arrived)
        left = left || n;
    const double e = sqrt(off / all);
    const bool good = e < 2e-6 && same && zero && !left;
    printf("%s  %-36s %.2e%s%s%s\n", good ? "ok  " : "FAIL", t.name, e, same ? "" : ", bits differ",
           zero ? "" : ", padding is not 0", left ? ", counters" : "");
    return !good;
}

int main() {
    const std::vector<sequence> several = {{0, 43}, {130, 1}, {0, 3}, {61, 5}};
    const std::vector<sequence> singles = {{300, 1}, {0, 1}, {77, 1}, {64, 1}};
    const std::vector<sequence> whole = {{0, 67}, {0, 1}, {0, 9}};
    const std::vector<distance_case> cases = {
        {"biases, rows before", BIASES, 3, 3, 24, 24, 12, 40, 0, 0, MN_F32, several},
        {"biases, both ways", BIASES | BOTH, 4, 4, 20, 20, 32, 128, 0, 0, MN_F32, whole},
        {"biases, window, cap, sinks", BIASES | SINKS | CAP, 6, 2, 20, 12, 12, 40, 17, 0, MN_F32,
         several},
        {"biases both ways, window", BIASES | BOTH, 3, 3, 20, 12, 12, 40, 17, 0, MN_F16, whole},
        {"biases, one row each", BIASES, 2, 2, 64, 64, 32, 128, 0, 0, MN_F32, singles},
        {"lengths", LENGTHS, 3, 3, 16, 16, 2, 0, 0, 0, MN_F32, several},
        {"lengths, biases, one row each", LENGTHS | BIASES | SLOPES, 12, 1, 48, 48, 12, 40, 0, 0,
         MN_F16, singles},
        {"trees", TREES, 4, 2, 32, 32, 2, 0, 0, 0, MN_F32, {{90, 20}, {0, 7}, {63, 30}}},
        {"trees, values of keys",
         TREES | OF_KEYS | BIASES | SLOPES | CAP,
         4,
         1,
         200,
         160,
         12,
         40,
         0,
         0,
         MN_F32,
         {{90, 20}, {0, 7}}},
        {"relative keys", REL_K, 2, 2, 32, 32, 26, 0, 0, 0, MN_F32, several},
        {"relative, both ways", REL_K | REL_Q | BOTH, 3, 3, 32, 32, 24, 40, 0, 0, MN_F32, whole},
        {"relative queries, both ways", REL_Q | BOTH, 2, 2, 20, 12, 26, 0, 0, 0, MN_F16, whole},
        {"relative, slopes, window, cap", REL_K | REL_Q | SLOPES | CAP | SINKS, 4, 2, 136, 144, 24,
         40, 17, 0, MN_F32, several},
        {"relative queries, chunks", REL_Q, 2, 2, 32, 32, 24, 40, 0, 23, MN_F32, several},
    };
    int failed = 0;
    for (const distance_case &t : cases)
        failed += check(t);
    printf("%d failed\n", failed);
    return failed != 0;
}
