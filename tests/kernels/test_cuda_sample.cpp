/* test_cuda_sample.cpp -- SAMPLE of the CUDA plugin on the CPU (emulated.h) against the CPU
 * plugins' own: ids, logprobs and mirostat's state for random parameters of every sampler, orders,
 * histories, biases and masks. With fewer threads per block than on a GPU, since each is a fiber. */
#include "kernels.h"
extern "C" {
#include "sampler.h"
}
#include <cstdio>
#include <vector>

enum { C = 96, N_TOP = 4 };
static int failed;
static uint64_t state = 5;

static uint32_t below(uint32_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((state >> 33) % n);
}
static float between(float lo, float hi) {
    return lo + (hi - lo) * (float)below(1 << 20) * 0x1p-20f;
}
static bool one_in(uint32_t n) {
    return !below(n);
}
static float maybe(uint32_t n, float lo, float hi) {
    return one_in(n) ? between(lo, hi) : 0;
}

/* Some of the samplers, shuffled; 0 in half of the rows. */
static uint64_t some_order() {
    uint64_t list[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    uint64_t bits = 0;
    const uint32_t n = 4 + below(6);
    if (one_in(2))
        return 0;
    for (uint32_t i = 8; i > 0; i--)
        std::swap(list[i], list[below(i + 1)]);
    for (uint32_t i = 0; i < n; i++)
        bits |= list[i] << 4 * i;
    return bits;
}

static mn_slot_params some_params(int V) {
    mn_slot_params p = {};
    p.seed = below(1u << 30);
    p.temp = one_in(8) ? 0 : between(0.3f, 2);
    p.top_k = one_in(3) ? (int32_t)below((uint32_t)V + 4) : 0;
    p.top_p = maybe(3, 0.1f, 1);
    p.min_p = maybe(4, 0, 0.3f);
    p.penalty_last_n = one_in(2) ? -1 : (int32_t)below(20);
    p.repeat_penalty = one_in(4) ? between(0.8f, 1.5f) : 1;
    p.presence_penalty = maybe(6, -1, 1);
    p.frequency_penalty = maybe(6, 0, 0.5f);
    p.samplers = some_order();
    p.dry_multiplier = maybe(3, 0.1f, 2);
    p.dry_base = between(1, 2);
    p.dry_allowed_length = (int32_t)below(4);
    p.dry_last_n = one_in(2) ? -1 : (int32_t)below(40);
    p.top_n_sigma = maybe(4, 0.1f, 2);
    p.typical_p = maybe(3, 0.05f, 1);
    p.xtc_probability = maybe(3, 0, 1.2f);
    p.xtc_threshold = between(0, 0.2f);
    p.dynatemp_range = maybe(3, 0.1f, 1.5f);
    p.dynatemp_exponent = between(0.5f, 2);
    p.mirostat = one_in(5) ? 2 : 0;
    p.mirostat_tau = between(1, 5);
    p.mirostat_eta = between(0, 0.3f);
    return p;
}

/* O rows of V logits, each drawn from by its own slot. steps: how many values a logit may have, 0 =
 * any: with few of them there are many ties. */
struct batch {
    int O, V;
    bool samplers; /* those of contract 4 */
    std::vector<float> logits;
    std::vector<mn_slot_params> params;
    std::vector<mn_slot> slots;
    std::vector<int32_t> history, out_slot;
    std::vector<uint32_t> breakers, mask;
    batch(int rows, int n, int steps, bool has_samplers);
};

batch::batch(int rows, int n, int steps, bool has_samplers)
    : O(rows), V(n), samplers(has_samplers) {
    const int words = (V + 31) / 32;
    for (int i = 0; i < O; i++) {
        const float width = between(1, 8);
        const int alphabet = 2 + (int)below(6);
        for (int j = 0; j < V; j++) {
            const float l = between(-1, 1);
            const float rounded = steps ? rintf(l * (float)steps) / (float)steps : l;
            logits.push_back(one_in(40) ? -INFINITY : rounded * width);
        }
        for (int j = 0; j < C; j++)
            history.push_back((int32_t)below((uint32_t)alphabet) * 5 % V);
        for (int j = 0; j < words; j++) {
            breakers.push_back(one_in(3) ? 1u << below(20) : 0);
            mask.push_back(one_in(9) ? below(1u << 30) : ~0u);
        }
        params.push_back(some_params(V));
        mn_slot slot = {};
        slot.pos = (int32_t)below(C);
        slot.mu = between(0, 8);
        slots.push_back(slot);
        out_slot.push_back(i);
    }
}

/* What a row's outputs are. */
struct outcome {
    int32_t id, top[N_TOP];
    float mu, logprob, top_logprob[N_TOP];
};

static outcome expected(const batch &b, int row) {
    const int words = (b.V + 31) / 32;
    std::vector<char> scratch(mnc_sample_bytes(b.V));
    outcome o = {};
    mnc_sample s = {};
    s.logits = &b.logits[(size_t)row * b.V];
    s.mask = &b.mask[(size_t)row * words];
    s.n_vocab = b.V;
    mn_slot_params params = b.params[(size_t)row];
    if (!b.samplers)
        memset(&params.samplers, 0, sizeof params - offsetof(mn_slot_params, samplers));
    s.params = &params;
    s.history = &b.history[(size_t)row * C];
    s.n_ctx = C;
    s.breakers = &b.breakers[(size_t)row * words];
    o.mu = b.slots[(size_t)row].mu;
    s.mu = &o.mu;
    s.pos = b.slots[(size_t)row].pos;
    s.top_ids = o.top;
    s.top_logprobs = o.top_logprob;
    s.n_top = N_TOP;
    s.logprob = &o.logprob;
    o.id = mnc_sample_draw(&s, scratch.data());
    return o;
}

static std::vector<outcome> drawn(const batch &b) {
    const size_t n = (size_t)b.O;
    std::vector<mn_slot> slots = b.slots;
    std::vector<int32_t> ids(n), top(n * N_TOP), count(n * b.V);
    std::vector<float> mu(n), logprob(n), top_logprob(n * N_TOP), adjusted(n * b.V);
    cu_sample a = {};
    a.logits = b.logits.data();
    a.out_slot = b.out_slot.data();
    a.params.at = (int32_t *)b.params.data();
    a.params.words = sizeof(mn_slot_params) / 4;
    a.slots.at = (int32_t *)slots.data();
    a.slots.words = sizeof(mn_slot) / 4;
    a.history = b.history.data();
    a.mask = b.mask.data();
    a.breakers = b.breakers.data();
    a.logprob = logprob.data();
    a.ids = ids.data();
    a.adjusted = adjusted.data();
    a.count = count.data();
    a.O = b.O;
    a.S = b.O;
    a.C = C;
    a.V = b.V;
    a.top_ids = top.data();
    a.top_logprobs = top_logprob.data();
    a.n_top = N_TOP;
    a.mu = mu.data();
    a.samplers = b.samplers;
    cu_sample_run(0, &a);
    std::vector<outcome> all(n);
    for (size_t i = 0; i < n; i++) {
        all[i].id = ids[i];
        all[i].mu = mu[i];
        all[i].logprob = logprob[i];
        memcpy(all[i].top, &top[i * N_TOP], sizeof all[i].top);
        memcpy(all[i].top_logprob, &top_logprob[i * N_TOP], sizeof all[i].top_logprob);
        if (!b.samplers)
            all[i].mu = b.slots[i].mu;
        if (all[i].mu != slots[i].mu || (ids[i] >= 0) != (slots[i].n_drawn == 1))
            failed++;
    }
    return all;
}

static bool near(float a, float b) {
    return a == b || fabsf(a - b) <= 1e-5f * (1 + fabsf(b));
}

static bool same(const outcome &a, const outcome &b) {
    bool equal = a.id == b.id && near(a.mu, b.mu) && near(a.logprob, b.logprob);
    for (int i = 0; i < N_TOP; i++)
        equal &= a.top[i] == b.top[i] && near(a.top_logprob[i], b.top_logprob[i]);
    return equal;
}

static void compare(int rows, int V, int steps, bool samplers) {
    const batch b(rows, V, steps, samplers);
    const std::vector<outcome> got = drawn(b);
    for (int i = 0; i < rows; i++) {
        const outcome want = expected(b, i);
        if (same(got[(size_t)i], want))
            continue;
        const outcome &o = got[(size_t)i];
        printf("FAIL  vocabulary %d, steps %d, row %d: id %d, mu %g, logprob %g; want %d, %g, %g\n",
               V, steps, i, o.id, o.mu, o.logprob, want.id, want.mu, want.logprob);
        failed++;
    }
}

int main() {
    compare(150, 40, 0, true);
    compare(60, 1999, 0, true);
    compare(30, 1300, 1, true); /* a logit has three values: most ids are tied */
    compare(20, 900, 5, true);
    compare(40, 1300, 0, false);
    printf("%d failed\n", failed);
    return failed != 0;
}
