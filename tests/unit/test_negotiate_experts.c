/* test_negotiate_experts.c -- models with experts on a card that lacks memory: which experts are
 * left to the CPU, what the user says of them, and how near the choice is to the best of all
 * placements. */
#include "graph/stream.h"
#include "negotiate/choose.h"
#include "negotiate_fakes.h"
#include <math.h>

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

/* Of two CPUs the one in front: of a list the user's first one, in auto the faster one, whatever
 * place it has among the devices. The first device of a list has the rest. */
static void test_two_cpus(void **state) {
    static const struct {
        const char *list, *experts, *rest;
    } cases[] = {{"oracle,cpu", "cpu", "oracle"},
                 {"gpu,slow,cpu", "slow", "gpu"},
                 {"gpu,cpu,slow", "cpu", "gpu"},
                 {"auto", "cpu", "gpu"}};
    (void)state;
    for (size_t i = 0; i < 2 * MN_COUNT(cases); i++) {
        const bool slow_first = i % 2; /* in the registry */
        INSTALL({"gpu", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 0.1, "gpu0", HONEST, 0, 10},
                {slow_first ? "slow" : "cpu", MN_DEVICE_CPU, ALL_OPS, 0, 0, 0, 0.1, "host", HONEST,
                 0, 10},
                {slow_first ? "cpu" : "slow", MN_DEVICE_CPU, ALL_OPS, 0, 0, 0, 0.1, "host", HONEST,
                 0, 10},
                ORACLE);
        product_rates[0] = (fake_rates){100, 1};
        product_rates[1 + slow_first] = (fake_rates){10, 0.02};
        product_rates[2 - slow_first] = (fake_rates){1, 0.01};
        mn_placement p = fixed(cases[i / 2].list, 3);
        check_placement(&p);
        for (uint32_t k = 0; k < n_nodes; k++)
            assert_string_equal(at_node(&p, k), is_expert(k) && nodes[k].layer < 3
                                                    ? cases[i / 2].experts
                                                    : cases[i / 2].rest);
        mn_placement_free(&p);
    }
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
/* owner: [n_nodes] of g's, offers of p, a placement of g. The score of that placement, or infinity:
 * a device lacks memory. */
static double score_on(const mn_model_graph *g, mn_placement *p, const mn_request *r,
                       const int32_t *owner) {
    mn_segment *s;
    mn_copies copies = {0};
    mn_error err = MN_ERROR_INIT;
    uint32_t n;
    double decode_us = 0;
    double prefill_us = 0;
    uint64_t need[MAX_FAKES] = {0};
    assert_int_equal(mn_plan_segments(p->offers, g, owner, &s, &n, &err), MN_OK);
    for (uint32_t k = 0; k < n; k++) {
        mn_offer *o = &p->offers[s[k].offer];
        assert_int_equal(mn_segment_ask(o, g, r, &s[k], &err), MN_OK);
        mn_segment_time(o, g, &s[k]);
    }
    mn_plan_times(s, n, &decode_us, &prefill_us);
    assert_int_equal(mn_boundaries(p->offers, g, r, s, n, &copies, &err), MN_OK);
    for (uint32_t k = 0; k < n; k++)
        need[s[k].offer] += s[k].need + s[k].boundary_bytes;
    mn_free(s);
    for (uint32_t i = 0; i < p->n_offers; i++)
        if (p->offers[i].free_bytes && need[i] > p->offers[i].free_bytes)
            return 1e30;
    return mn_score(decode_us + copies.decode_us, prefill_us + copies.prefill_us);
}

static double score_of(mn_placement *p, const mn_request *r, const int32_t *owner) {
    return score_on(graph, p, r, owner);
}

/* Of all placements that give the card layers [0, l), the ends or not, and the experts of the first
 * e of these layers. */
static double best_of_all(mn_placement *p, const mn_request *r) {
    static int32_t owner[MAX_NODES];
    const int32_t card = (int32_t)(offer_of(p, "gpu") - p->offers);
    const int32_t cpu = (int32_t)(offer_of(p, "cpu") - p->offers);
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

/* ---- divided layers -------------------------------------------------------------------------- */
/* As INSTALL_CARD, a card that works on by itself. */
#define INSTALL_ASYNC(memory, card_gbps, cpu_gbps)                                                 \
    INSTALL_CARD(memory, card_gbps, cpu_gbps);                                                     \
    devices[0].info.flags = MN_DEVICE_ASYNC

static mn_status make_divided(void *arg, mn_division d, const mn_model_graph **out, mn_error *err) {
    (void)arg, (void)err;
    *out = divided_graph(d);
    return MN_OK;
}

static mn_placement divided(const char *list, uint32_t n_gpu_experts, const mn_model_graph **g) {
    const mn_divider divider = {make_divided, NULL};
    mn_request r = request_for(list);
    mn_placement p;
    mn_error err = MN_ERROR_INIT;
    r.n_gpu_experts = n_gpu_experts;
    *g = graph;
    if (mn_negotiate_divided(NULL, g, &divider, &r, &p, &err))
        fail_msg("%s with %u: %s", list, n_gpu_experts, err.msg);
    return p;
}

/* The second halves are on the CPU, and nothing else. */
static void halves_on_cpu(const mn_model_graph *g, const mn_placement *p) {
    mn_expert_range *e;
    mn_error err = MN_ERROR_INIT;
    uint32_t n;
    uint32_t at = 0;
    assert_int_equal(mn_expert_ranges(&g->abi, &e, &n, &err), MN_OK);
    for (uint32_t i = 0; i < g->abi.n_nodes; i++) {
        while (at < n && (i >= e[at].hi || e[at].layer < g->division.layer_lo))
            at++;
        const bool cpu = at < n && i >= e[at].lo;
        assert_string_equal(at_node(p, i), cpu ? "cpu" : "gpu");
    }
    mn_free(e);
}

/* So many of each layer as the user says; what the card computes meanwhile is a segment. */
static void test_divided(void **state) {
    static const char *const lists[] = {"auto", "gpu,cpu"};
    const mn_model_graph *g;
    (void)state;
    INSTALL_ASYNC(0, 100, 1);
    for (size_t i = 0; i < MN_COUNT(lists); i++) {
        mn_placement p = divided(lists[i], 3, &g);
        assert_int_equal(g->division.n_first, 3);
        halves_on_cpu(g, &p);
        assert_int_equal(p.n_segments, 1 + 3 * N_LAYERS);
        assert_int_equal(p.n_copies, 4 * N_LAYERS);
        has_words(p.why, "gpu layers 0-7 with 3 experts of each of 0-7, cpu the rest");
        uint32_t n_beside = 0;
        for (uint32_t k = 0; k < p.n_segments; k++)
            n_beside += p.segments[k].beside;
        assert_int_equal(n_beside, N_LAYERS);
        mn_placement_free(&p);
        p = divided(lists[i], MN_EXPERTS_NONE, &g);
        only_on(&p, "gpu");
        mn_placement_free(&p);
    }
    mn_placement p = divided("cpu", 3, &g);
    assert_true(g->division.on && p.n_segments == 1); /* both halves */
    mn_placement_free(&p);
}

/* Products of experts take what such products were measured to take, other products what LINEAR
 * does. */
static void test_rates_of_experts(void **state) {
    (void)state;
    INSTALL_CARD(0, 100, 20);
    mn_placement p = fixed("cpu", 0);
    mn_offer o = *offer_of(&p, "cpu");
    uint32_t n_experts = 0;
    for (uint32_t i = 0; i < n_nodes; i++) {
        mn_segment slow = {.node_lo = i, .node_hi = i + 1};
        mn_segment fast = slow;
        o.rates = (mn_rates){.n_types = 1, .type = {{.decode_gbps = 8, .prefill_tflops = 1}}};
        mn_segment_time(&o, graph, &fast);
        o.rates.type[0].experts_gbps = 2;
        o.rates.type[0].experts_tflops = 1e-3;
        mn_segment_time(&o, graph, &slow);
        const double times = nodes[i].op == MN_OP_MOE_LINEAR ? 4 : 1;
        n_experts += times > 1;
        assert_true(fabs(slow.decode_us - times * fast.decode_us) <= 1e-9 * slow.decode_us);
        assert_true(times > 1 ? slow.prefill_us > 100 * fast.prefill_us
                              : slow.prefill_us == fast.prefill_us);
    }
    assert_int_equal(n_experts, 2 * N_LAYERS);
    mn_placement_free(&p);
}

/* From how many rows on experts are copied to the card: their bytes against what the CPU takes for
 * each row, and the launches against what the card gains with each. */
static void test_rows_of_streamed(void **state) {
    const mn_stream_times bus = {.bus_us = 1000, .launch_us = 1, .card_us = 1, .cpu_us = 10};
    const mn_stream_times launches = {
        .bus_us = 1000, .launch_us = 1800, .card_us = 1, .cpu_us = 10};
    const mn_stream_times never = {.bus_us = 1, .launch_us = 1, .card_us = 10, .cpu_us = 10};
    (void)state;
    assert_true(fabs(mn_stream_rows(&bus) - 100) < 1e-9);
    assert_true(fabs(mn_stream_rows(&launches) - 200) < 1e-9);
    assert_true(mn_stream_rows(&never) == MN_STREAM_NEVER);
}

/* A group divides the number of experts, has at most the bytes, and is not all of them. */
static void test_group_of_streamed(void **state) {
    (void)state;
    assert_int_equal(mn_stream_group(32, 32, 4), 4);
    assert_int_equal(mn_stream_group(60, 60, 9), 6);
    assert_int_equal(mn_stream_group(60, 60, 1000), 30);
    assert_int_equal(mn_stream_group(7, 7, 100), 1);
    assert_int_equal(mn_stream_group(8, 8e9, 1), 1);
}

/* Where choices were counted, each half of a layer computes what falls on its experts. */
static void test_counted_experts(void **state) {
    static const double share[N_EXPERTS + 1] = {0, 0.5, 0.75, 0.8, 0.85, 0.9, 0.94, 0.97, 1};
    static mn_layer_shape layers[N_LAYERS];
    const mn_model_graph *even = divided_graph((mn_division){.on = true, .n_first = 2});
    mn_model_graph counted = *even;
    (void)state;
    INSTALL_CARD(0, 100, 20);
    mn_placement p = fixed("cpu", 0);
    mn_offer o = *offer_of(&p, "cpu");
    o.given = NULL;
    o.rates = (mn_rates){.n_types = 1, .type = {{.decode_gbps = 8, .prefill_tflops = 1e-3}}};
    for (int i = 0; i < N_LAYERS; i++)
        layers[i] = (mn_layer_shape){.n_expert = N_EXPERTS, .expert_share = share};
    counted.hp.layer = layers;
    counted.hp.n_layer = N_LAYERS;
    uint32_t n_second = 0;
    for (uint32_t i = 0; i < even->abi.n_nodes; i++) {
        mn_segment a = {.node_lo = i, .node_hi = i + 1};
        mn_segment b = a;
        mn_segment_time(&o, even, &a);
        mn_segment_time(&o, &counted, &b);
        const double own = mn_experts_share(&even->abi, i);
        if (even->abi.nodes[i].op != MN_OP_MOE_LINEAR || own < 0.5) {
            assert_true(even->abi.nodes[i].op == MN_OP_MOE_LINEAR || a.decode_us == b.decode_us);
            continue;
        }
        assert_true(own == 0.75 && fabs(b.decode_us / a.decode_us - 0.25 / 0.75) < 1e-9);
        assert_true(fabs(b.prefill_us / a.prefill_us - 0.25 / 0.75) < 1e-9);
        n_second++;
    }
    assert_int_equal(n_second, 2 * N_LAYERS);
    mn_placement_free(&p);
}

/* Scratch of segments counts once where contexts of a queue share it: a card then has room for all
 * but the experts, which it lacks else. */
static void test_shared_scratch(void **state) {
    enum { ROW = 1 << 16, ROWS = 4 };
    const uint64_t scratch = (1 << 10) + ROWS * ROW; /* of each segment */
    uint32_t on_cpu[2] = {0};
    (void)state;
    for (int shares = 0; shares < 2; shares++) {
        INSTALL_CARD(need_without(N_LAYERS) + 2 * scratch, 100, 20);
        records[0].shares_scratch = shares;
        row_scratch = ROW;
        mn_placement p = fixed("gpu,cpu", N_LAYERS);
        for (uint32_t i = 0; i < n_nodes; i++)
            on_cpu[shares] += !strcmp(at_node(&p, i), "cpu");
        if (shares)
            experts_on_cpu(&p, 0, N_LAYERS);
        mn_placement_free(&p);
    }
    assert_true(on_cpu[0] > on_cpu[1]);
}

/* A card without a queue of its own has nothing to do meanwhile. */
static void test_not_beside(void **state) {
    const mn_model_graph *g;
    (void)state;
    INSTALL_CARD(0, 100, 1);
    mn_placement p = divided("auto", 3, &g);
    assert_int_equal(p.n_segments, 1 + 2 * N_LAYERS);
    mn_placement_free(&p);
}

/* Of the options that divide, how near their prediction of memory is, and which one is chosen. */
static void test_divided_options(void **state) {
    const mn_model_graph *g;
    uint32_t n_divided = 0;
    (void)state;
    INSTALL_ASYNC(need_without(3) + EXPERTS, 3, 1);
    product_rates[0].tflops = 0.06;
    devices[0].info.h2d_gbps = 4;
    mn_placement p = divided("auto", 0, &g);
    assert_true(g->division.on);
    halves_on_cpu(g, &p);
    for (uint32_t i = 0; i < p.n_options; i++) {
        const mn_option *o = &p.options[i];
        n_divided += o->divided;
        if (o->chosen)
            assert_true(o->divided && o->n_first == g->division.n_first && o->need <= o->room &&
                        o->score == p.score);
    }
    assert_in_range(n_divided, 1, 7);
    mn_placement_free(&p);
}

/* The best of the undivided placements, and of all with second halves of the last layers on the
 * CPU. */
static double best_divided(const mn_request *r, double best) {
    static int32_t owner[MAX_NODES];
    for (int32_t lo = 0; lo < N_LAYERS; lo++)
        for (uint32_t k = 1; k < N_EXPERTS; k++) {
            const mn_division d = {.on = true, .n_first = k, .layer_lo = lo};
            const mn_model_graph *g = divided_graph(d);
            mn_placement p;
            mn_error err = MN_ERROR_INIT;
            assert_int_equal(mn_negotiate(NULL, g, r, &p, &err), MN_OK);
            mn_expert_range *e;
            uint32_t n;
            assert_int_equal(mn_expert_ranges(&g->abi, &e, &n, &err), MN_OK);
            for (uint32_t i = 0; i < g->abi.n_nodes; i++)
                owner[i] = (int32_t)(offer_of(&p, "gpu") - p.offers);
            for (uint32_t x = (uint32_t)lo; x < n; x++)
                for (uint32_t i = e[x].lo; i < e[x].hi; i++)
                    owner[i] = (int32_t)(offer_of(&p, "cpu") - p.offers);
            const double score = score_on(g, &p, r, owner);
            best = score < best ? score : best;
            mn_free(e);
            mn_placement_free(&p);
        }
    return best;
}

/* The sixty machines again, with a card that works beside the CPU. */
static void test_sixty_divided(void **state) {
    static const double holds[] = {0.1, 0.3, 0.5, 0.7, 0.9};
    static const double faster[] = {0.7, 2, 6, 25};
    static const double bus[] = {0.02, 0.2, 4};
    const uint64_t all = need_without(0);
    uint32_t n_best = 0;
    uint32_t n_divided = 0;
    double worst = 1;
    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        INSTALL_ASYNC((uint64_t)((double)all * holds[i % 5]), faster[i / 5 % 4], 1);
        product_rates[0].tflops = 0.04 * faster[i / 5 % 4];
        devices[0].info.h2d_gbps = bus[i / 20];
        const mn_model_graph *g;
        const mn_request r = request_for("auto");
        mn_placement whole = negotiate("auto");
        const double best = best_divided(&r, best_of_all(&whole, &r));
        mn_placement p = divided("auto", 0, &g);
        worst = best / p.score < worst ? best / p.score : worst;
        n_best += p.score <= best * (1 + 1e-9);
        n_divided += g->division.on;
        mn_placement_free(&whole);
        mn_placement_free(&p);
    }
    if (n_best < 55 || worst < 0.9)
        fail_msg("%u of 60 are the best, expected at least 55; the worst is %g of the best", n_best,
                 worst);
    print_message("%u of 60 the best, the worst %g of it; %u divided\n", n_best, worst, n_divided);
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
                                       cmocka_unit_test(test_sixty),
                                       cmocka_unit_test(test_divided),
                                       cmocka_unit_test(test_not_beside),
                                       cmocka_unit_test(test_divided_options),
                                       cmocka_unit_test(test_sixty_divided),
                                       cmocka_unit_test(test_shared_scratch),
                                       cmocka_unit_test(test_rates_of_experts),
                                       cmocka_unit_test(test_rows_of_streamed),
                                       cmocka_unit_test(test_group_of_streamed),
                                       cmocka_unit_test(test_counted_experts)};
    return cmocka_run_group_tests(tests, fake_expert_graph, NULL);
}
