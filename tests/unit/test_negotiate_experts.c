/* test_negotiate_experts.c -- models with experts on a card that lacks memory: which experts are
 * left to the CPU, what the user says of them, and how near the choice is to the best of all
 * placements. */
#include "negotiate/choose.h"
#include "negotiate_fakes.h"

/* Bytes of the routed experts of a layer. */
enum { EXPERTS = 2 * N_EXPERTS * D * D * 4, ROUTER = N_EXPERTS * D * 4 };
/* A card of so many bytes, and a CPU, with GB/s of each. */
#define INSTALL_CARD(memory, card_gbps, cpu_gbps)                                                  \
    INSTALL({"gpu", MN_DEVICE_GPU, ALL_OPS, 0, 0, memory, 0.1, "gpu0", HONEST, 0, 10},             \
            {"cpu", MN_DEVICE_CPU, ALL_OPS, 0, 0, 0, 0.1, "host", HONEST, 0, 10});                 \
    product_rates[0] = (fake_rates){card_gbps, 1};                                                 \
    product_rates[1] = (fake_rates) {                                                              \
        cpu_gbps, 0.02                                                                             \
    }

static bool is_expert(uint32_t node) {
    while (nodes[node].op == MN_OP_ACT)
        node--;
    return nodes[node].op == MN_OP_MOE_LINEAR || nodes[node].op == MN_OP_MOE_COMBINE;
}

/* Experts of layers [lo, hi) are on the CPU, and nothing else. */
static void experts_on_cpu(const mn_placement *p, int32_t lo, int32_t hi) {
    check_placement(p);
    for (uint32_t i = 0; i < n_nodes; i++) {
        const bool cpu = is_expert(i) && nodes[i].layer >= lo && nodes[i].layer < hi;
        assert_string_equal(at_node(p, i), cpu ? "cpu" : "gpu");
    }
}

/* What the card needs for everything but the experts of n layers. */
static uint64_t need_without(uint32_t n) {
    const uint64_t one = LAYER + ROUTER + EXPERTS;
    const uint64_t crossing = (uint64_t)n * 8 * 4 * D * 4;
    return N_LAYERS * one + HEAD - (uint64_t)n * EXPERTS + crossing + SPARE;
}

static mn_status negotiated(const char *list, uint32_t n_cpu_moe, mn_placement *p, mn_error *err) {
    mn_request r = request_for(list);
    r.n_cpu_moe = n_cpu_moe;
    forget_questions();
    const mn_status st = mn_negotiate(NULL, graph, &r, p, err);
    check_questions();
    return st;
}

static mn_placement fixed(const char *list, uint32_t n_cpu_moe) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    if (negotiated(list, n_cpu_moe, &p, &err))
        fail_msg("%s with %u: %s", list, n_cpu_moe, err.msg);
    return p;
}

/* ---- the choice ------------------------------------------------------------------------------ */
static void test_last_layers(void **state) {
    static const char *const lists[] = {"auto", "gpu,cpu", "gpu,auto"};
    (void)state;
    INSTALL_CARD(need_without(3), 100, 1);
    for (size_t i = 0; i < MN_COUNT(lists); i++) {
        mn_placement p = negotiate(lists[i]);
        experts_on_cpu(&p, N_LAYERS - 3, N_LAYERS);
        has_words(p.why,
                  "gpu layers 0-7 without the experts of 5-7, cpu the rest: 0.0 GiB would be "
                  "needed, 0.0 are free");
        assert_int_equal(p.n_segments, 1 + 2 * 3);
        assert_int_equal(p.n_copies, 4 * 3);
        mn_placement_free(&p);
    }
}

/* Everything that was considered is in the record: the choice is its fastest. */
static void test_options(void **state) {
    (void)state;
    INSTALL_CARD(need_without(3), 100, 1);
    mn_placement p = negotiate("auto");
    const mn_option *chosen = NULL;
    assert_int_equal(p.n_options, 1 + N_LAYERS - 1); /* layers; experts of 8 down to 2 */
    for (uint32_t i = 0; i < p.n_options; i++) {
        const mn_option *o = &p.options[i];
        assert_string_equal(o->reason, "");
        assert_true(o->decode_us > 0 && o->prefill_us > o->decode_us && o->score >= p.score);
        assert_true(o->room == devices[0].info.mem_free && o->need <= o->room);
        assert_int_equal(o->spills, o->n_layers < 3);
        if (o->chosen)
            chosen = o;
    }
    assert_non_null(chosen);
    assert_int_equal(chosen->n_layers, 3);
    assert_true(chosen->score == p.score && chosen->n_segments == p.n_segments);
    mn_placement_free(&p);
}

/* What auto would think is rehearsed for the record, and is not what a list chose. */
static void test_options_of_list(void **state) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = request_for("cpu");
    (void)state;
    INSTALL_CARD(need_without(3), 100, 1);
    r.flags = MN_REQUEST_EXPLAIN;
    assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), MN_OK);
    only_on(&p, "cpu");
    assert_int_equal(p.n_options, 0);
    mn_placement_free(&p);
}

/* A card for everything needs no option; one without room for attention gets whole layers. */
static void test_ends(void **state) {
    (void)state;
    INSTALL_CARD(0, 100, 1);
    mn_placement p = negotiate("auto");
    only_on(&p, "gpu");
    assert_int_equal(p.n_options, 0);
    mn_placement_free(&p);
    devices[0].info.mem_free = need_without(N_LAYERS);
    p = negotiate("auto");
    experts_on_cpu(&p, 0, N_LAYERS);
    mn_placement_free(&p);
    devices[0].info.mem_free = need_without(N_LAYERS) - 3 * LAYER;
    p = negotiate("auto");
    check_placement(&p);
    for (uint32_t i = 0; i < n_nodes; i++)
        if (is_expert(i) || nodes[i].layer == N_LAYERS - 1)
            assert_string_equal(at_node(&p, i), "cpu");
    assert_string_equal(at_node(&p, 1), "gpu");
    mn_placement_free(&p);
}

/* Where crossing costs more than it saves, whole layers are split. */
static void test_slow_bus(void **state) {
    (void)state;
    INSTALL_CARD(need_without(3), 100, 50);
    devices[0].info.h2d_gbps = 0.01;
    mn_placement p = negotiate("auto");
    check_placement(&p);
    assert_true(p.n_segments <= 3);
    mn_placement_free(&p);
}

/* ---- what the user says ---------------------------------------------------------------------- */
static void test_fixed(void **state) {
    static const char *const lists[] = {"auto", "gpu,cpu"};
    (void)state;
    INSTALL_CARD(0, 100, 1);
    for (size_t i = 0; i < MN_COUNT(lists); i++) {
        mn_placement p = fixed(lists[i], 2);
        experts_on_cpu(&p, 0, 2); /* from the first on, as the flag says */
        mn_placement_free(&p);
        p = fixed(lists[i], 1000);
        experts_on_cpu(&p, 0, N_LAYERS);
        mn_placement_free(&p);
        devices[0].info.mem_free = need_without(N_LAYERS);
        p = fixed(lists[i], MN_EXPERTS_NONE);
        check_placement(&p); /* whole layers, however slow */
        assert_true(p.n_segments <= 3);
        devices[0].info.mem_free = 0;
        mn_placement_free(&p);
    }
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    assert_int_equal(negotiated("gpu", 2, &p, &err), MN_NO_DEVICE);
    has_words(err.msg, "the experts of 2 layers are to be on the CPU, and no CPU is in the list");
    p = fixed("cpu", 2);
    only_on(&p, "cpu");
    mn_placement_free(&p);
}

/* The last CPU of a list is the one. */
static void test_two_cpus(void **state) {
    (void)state;
    INSTALL(CPU, ORACLE);
    mn_placement p = fixed("oracle,cpu", 3);
    check_placement(&p);
    for (uint32_t i = 0; i < n_nodes; i++)
        assert_string_equal(at_node(&p, i), is_expert(i) && nodes[i].layer < 3 ? "cpu" : "oracle");
    mn_placement_free(&p);
}

/* ---- weights by their names ------------------------------------------------------------------ */
static mn_status ruled(const char *list, const char *rules, uint32_t n, mn_placement *p,
                       mn_error *err) {
    mn_request r = request_for(list);
    r.tensor_devices = rules;
    r.n_cpu_moe = n;
    forget_questions();
    const mn_status st = mn_negotiate(NULL, graph, &r, p, err);
    check_questions();
    return st;
}

/* The experts of layers [lo, hi) by one name or by another, in a list of several, and before what
 * --n-cpu-moe says of them. */
static void test_names(void **state) {
    static const struct {
        const char *rules;
        uint32_t n;
        int32_t lo, hi;
    } cases[] = {{"_exps=cpu", 0, 0, 8},
                 {"exps=CPU", 0, 0, 8},
                 {"^blk\\.[2-4]\\.ffn_.*exps=cpu", 0, 2, 5},
                 {"blk.7.ffn_(up|down)_exps=cpu,blk.[0-6]{1,2}.ffn_.*exps=gpu", 0, 7, 8},
                 {"blk.[0-2].*exps=gpu", 5, 3, 5}};
    (void)state;
    INSTALL_CARD(0, 100, 1);
    for (size_t i = 0; i < MN_COUNT(cases); i++)
        for (size_t k = 0; k < 2; k++) {
            mn_placement p;
            mn_error err = MN_ERROR_INIT;
            if (ruled(k ? "gpu,cpu" : "auto", cases[i].rules, cases[i].n, &p, &err))
                fail_msg("%s: %s", cases[i].rules, err.msg);
            experts_on_cpu(&p, cases[i].lo, cases[i].hi);
            mn_placement_free(&p);
        }
}

/* A layer whose weights are all named goes whole; what shares a cache or the history stays
 * together. */
static void test_whole_layer(void **state) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    (void)state;
    INSTALL_CARD(0, 100, 1);
    assert_int_equal(ruled("auto", "^blk.3.=cpu,token_embd=cpu", 0, &p, &err), MN_OK);
    check_placement(&p);
    for (uint32_t i = 0; i < n_nodes; i++) {
        const uint32_t op = nodes[i].op;
        const bool first = op == MN_OP_RMS_NORM; /* its weights are those of all layers */
        const bool last = op == MN_OP_ADD && nodes[i + 1].layer != 3;
        const bool cpu = nodes[i].layer == 3 && !first && !last;
        const bool slots = op == MN_OP_EMBED || op == MN_OP_SAMPLE;
        assert_string_equal(at_node(&p, i), cpu || slots ? "cpu" : "gpu");
    }
    mn_placement_free(&p);
}

static void test_bad_names(void **state) {
    static const struct {
        const char *list, *rules;
        mn_status status;
        const char *words;
    } cases[] = {
        {"auto", "exps", MN_INVALID, "found \"exps\", expected PATTERN=DEVICE"},
        {"auto", "(exps=cpu", MN_INVALID, "\"(exps=cpu\": the pattern is no regular expression"},
        {"auto", "shexp=cpu", MN_BAD_INPUT, "\"shexp=cpu\": the pattern matches no matrix"},
        {"auto", "exps=npu", MN_NO_DEVICE, "\"exps=npu\": there is no device \"npu\""},
        {"cpu", "exps=gpu", MN_NO_DEVICE, "\"exps=gpu\": the device is not in the list"},
        {"gpu", "exps=cpu", MN_NO_DEVICE, "\"exps=cpu\": the device is not in the list"},
    };
    (void)state;
    INSTALL_CARD(0, 100, 1);
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        mn_placement p;
        mn_error err = MN_ERROR_INIT;
        assert_int_equal(ruled(cases[i].list, cases[i].rules, 0, &p, &err), cases[i].status);
        has_words(err.msg, cases[i].words);
    }
}

/* Of a card's memory a session may use so much; a CPU's is not counted. */
static void test_device_memory(void **state) {
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = request_for("auto");
    (void)state;
    INSTALL_CARD(0, 100, 1);
    r.device_memory = need_without(5);
    assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), MN_OK);
    experts_on_cpu(&p, N_LAYERS - 5, N_LAYERS);
    assert_int_equal(offer_of(&p, "gpu")->free_bytes, r.device_memory);
    assert_int_equal(offer_of(&p, "cpu")->free_bytes, 0);
    mn_placement_free(&p);
    devices[0].info.mem_free = need_without(6); /* the smaller of the two */
    assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), MN_OK);
    experts_on_cpu(&p, N_LAYERS - 6, N_LAYERS);
    mn_placement_free(&p);
}

/* What a card that is too small says: need, have, and what would fit. */
static void test_what_fits(void **state) {
    static const struct {
        uint64_t less; /* than all */
        const char *words;
    } cases[] = {{EXPERTS, "with weights of q8_0 (minerva convert --type) it would fit"},
                 {UINT64_MAX, "no context and no type of q2_k or more would fit"}};
    const uint64_t all = need_without(0);
    (void)state;
    for (size_t i = 0; i < MN_COUNT(cases); i++) {
        INSTALL_CARD(all > cases[i].less ? all - cases[i].less : 1000, 100, 1);
        refused("gpu", MN_OUT_OF_MEMORY, cases[i].words);
        refused("gpu", MN_OUT_OF_MEMORY, "GiB free; ");
        refused("gpu", MN_OUT_OF_MEMORY, "in --device gpu,cpu the CPU has the rest");
    }
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    mn_request r = request_for("gpu");
    INSTALL_CARD(all, 100, 1);
    r.n_ctx = 4096;
    assert_int_equal(mn_negotiate(NULL, graph, &r, &p, &err), MN_OUT_OF_MEMORY);
    has_words(err.msg, "GiB free; -c 256 would fit; in --device gpu,cpu");
}

/* ---- the best of all ------------------------------------------------------------------------- */
/* owner: [n_nodes] offers. The score of that placement, or infinity: a device lacks memory. */
static double score_of(mn_placement *p, const mn_request *r, const uint32_t *owner) {
    static mn_segment s[14 * N_LAYERS + 8];
    mn_copies copies = {0};
    mn_error err = MN_ERROR_INIT;
    uint32_t n = 0;
    double decode_us = 0;
    double prefill_us = 0;
    uint64_t need[MAX_FAKES] = {0};
    for (uint32_t i = 0; i < n_nodes; i++) {
        if (!i || owner[i] != owner[i - 1])
            s[n++] = (mn_segment){.node_lo = i, .offer = owner[i]};
        s[n - 1].node_hi = i + 1;
    }
    for (uint32_t k = 0; k < n; k++) {
        mn_offer *o = &p->offers[s[k].offer];
        assert_int_equal(mn_segment_ask(o, graph, r, &s[k], &err), MN_OK);
        mn_segment_time(o, graph, &s[k]);
        decode_us += s[k].decode_us;
        prefill_us += s[k].prefill_us;
    }
    assert_int_equal(mn_boundaries(p->offers, graph, r, s, n, &copies, &err), MN_OK);
    for (uint32_t k = 0; k < n; k++)
        need[s[k].offer] += s[k].need + s[k].boundary_bytes;
    for (uint32_t i = 0; i < p->n_offers; i++)
        if (p->offers[i].free_bytes && need[i] > p->offers[i].free_bytes)
            return 1e30;
    return mn_score(decode_us + copies.decode_us, prefill_us + copies.prefill_us);
}

/* Of all placements that give the card layers [0, l), the ends or not, and the experts of the first
 * e of these layers. */
static double best_of_all(mn_placement *p, const mn_request *r) {
    static uint32_t owner[14 * N_LAYERS + 8];
    const uint32_t card = (uint32_t)(offer_of(p, "gpu") - p->offers);
    const uint32_t cpu = (uint32_t)(offer_of(p, "cpu") - p->offers);
    double best = 1e30;
    for (int32_t l = 0; l <= N_LAYERS; l++)
        for (int32_t e = 0; e <= l; e++)
            for (int32_t ends = 0; ends < 2; ends++) {
                for (uint32_t i = 0; i < n_nodes; i++) {
                    const int32_t layer = nodes[i].layer;
                    const int32_t up_to = is_expert(i) ? e : l;
                    const bool here = layer < 0 ? ends : layer < up_to;
                    owner[i] = here ? card : cpu;
                }
                const double score = score_of(p, r, owner);
                best = score < best ? score : best;
            }
    return best;
}

/* Sixty machines: how much of the model the card holds, how much faster it is than the CPU, how
 * fast the bus is. Figures are scaled to a model of so few bytes. */
static void test_sixty(void **state) {
    static const double holds[] = {0.1, 0.3, 0.5, 0.7, 0.9};
    static const double faster[] = {0.7, 2, 6, 25};
    static const double bus[] = {0.02, 0.2, 4};
    const uint64_t all = need_without(0);
    uint32_t n_best = 0;
    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        INSTALL_CARD((uint64_t)((double)all * holds[i % 5]), faster[i / 5 % 4], 1);
        product_rates[0].tflops = 0.04 * faster[i / 5 % 4];
        devices[0].info.h2d_gbps = bus[i / 20];
        mn_placement p = negotiate("auto");
        const mn_request r = request_for("auto");
        const double best = best_of_all(&p, &r);
        if (p.score > best / 0.9)
            fail_msg("the card holds %g, is %g x as fast, bus %g: %g us per token, the best takes "
                     "%g",
                     holds[i % 5], faster[i / 5 % 4], bus[i / 20], p.score, best);
        n_best += p.score <= best * (1 + 1e-9);
        mn_placement_free(&p);
    }
    if (n_best < 55)
        fail_msg("%u of 60 are the best, expected at least 55", n_best);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_last_layers),
                                       cmocka_unit_test(test_options),
                                       cmocka_unit_test(test_options_of_list),
                                       cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_slow_bus),
                                       cmocka_unit_test(test_fixed),
                                       cmocka_unit_test(test_two_cpus),
                                       cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_whole_layer),
                                       cmocka_unit_test(test_bad_names),
                                       cmocka_unit_test(test_device_memory),
                                       cmocka_unit_test(test_what_fits),
                                       cmocka_unit_test(test_sixty)};
    return cmocka_run_group_tests(tests, fake_expert_graph, NULL);
}
