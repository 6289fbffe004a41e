/* test_negotiate_split.c -- placements on several devices: where operations or memory end, what
 * has to stay together, and whether the split is worth it. */
#include "negotiate/choose.h"
#include "negotiate_fakes.h"

/* ---- a part of the operations ---------------------------------------------------------------- */
static void test_part_by_list(void **state) {
    (void)state;
    INSTALL(CPU, VENDOR(1000));
    mn_placement p = negotiate("vendor,cpu");
    check_placement(&p);
    assert_int_equal(p.n_segments, 2 + 3 * N_LAYERS + N_LAYERS + 1);
    for (uint32_t i = 0; i < n_nodes; i++) {
        bool its = nodes[i].op == MN_OP_RMS_NORM || nodes[i].op == MN_OP_LINEAR;
        assert_string_equal(at_node(&p, i), its ? "vendor" : "cpu");
    }
    assert_string_equal(p.offers[p.chosen].record->name, "vendor"); /* all weights are there */
    assert_true(p.n_copies > 4 * N_LAYERS);
    has_words(p.why, "vendor RMS_NORM, LINEAR, cpu the rest: named by the user");
    mn_placement_free(&p);
}

static void test_part_under_auto(void **state) {
    (void)state;
    INSTALL(CPU, VENDOR(1000));
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu");
    const mn_offer *v = offer_of(&p, "vendor");
    assert_int_equal(v->outcome, MN_OUTCOME_PARTIAL);
    assert_true(v->trial.result && v->trial.score > p.score && v->trial.n_copies > 4 * N_LAYERS);
    has_words(v->trial.reason, "us per token");
    has_words(v->trial.reason, "cpu alone takes");
    mn_placement_free(&p);
    /* Where the CPU is slow enough, the copies are worth it. */
    list_[0].us_per_node = 1e6, list_[1].us_per_node = 1;
    p = negotiate("auto");
    check_placement(&p);
    assert_true(p.n_segments > 1);
    assert_int_equal(offer_of(&p, "vendor")->outcome, MN_OUTCOME_CHOSEN);
    assert_true(p.score < offer_of(&p, "cpu")->score);
    mn_placement_free(&p);
    /* Nobody can do all, but two can together: without asking what it costs. */
    list_[0].ops = ~(OP(LINEAR) | OP(RMS_NORM)), list_[0].us_per_node = 1,
    list_[1].us_per_node = 1000;
    p = negotiate("auto");
    check_placement(&p);
    assert_true(p.n_segments > 1);
    mn_placement_free(&p);
    list_[0].ops &= ~OP(ADD);
    refused("auto", MN_NO_DEVICE, "ADD");
    refused("vendor,cpu", MN_NO_DEVICE, "none of the devices can run ADD");
}

/* ATTENTION without KV_STORE is of no use, nor EMBED without SAMPLE. */
static void test_what_stays_together(void **state) {
    (void)state;
    INSTALL(CPU, {"half", MN_DEVICE_NPU, OP(ATTENTION) | OP(EMBED) | OP(LINEAR), 0, 0, 0, 1, "npu",
                  HONEST, 0, 10});
    mn_placement p = negotiate("half,cpu");
    check_placement(&p);
    for (uint32_t i = 0; i < n_nodes; i++)
        assert_string_equal(at_node(&p, i), nodes[i].op == MN_OP_LINEAR ? "half" : "cpu");
    mn_placement_free(&p);
}

static void test_old_contract(void **state) {
    (void)state;
    INSTALL(CPU, {"old", MN_DEVICE_GPU, ALL_OPS & ~OP(ROPE), OP(ROPE), 0, 0, 1, "o", HONEST, 0, 10},
            {"older", MN_DEVICE_GPU, 0, ALL_OPS, 0, 0, 1, "p", HONEST, 0, 10});
    mn_placement p = negotiate("auto");
    has_words(offer_of(&p, "old")->reason,
              "ROPE with f32 weights: newer than the plugin's contract");
    assert_int_equal(offer_of(&p, "old")->n_can, n_nodes - N_LAYERS);
    assert_int_equal(offer_of(&p, "older")->outcome, MN_OUTCOME_UNSUPPORTED);
    assert_int_equal(list_[2].n_supports, 0); /* a no without a call */
    assert_int_equal(list_[1].n_supports, 1);
    mn_placement_free(&p);
}

/* Of a node's weights any may be why it is refused: all their types are named, and the tensor of a
 * type that its like do not have. */
static void test_types_of_all_weights(void **state) {
    (void)state;
    INSTALL(CPU, {"vendor", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 1, "v", NO_F64, 0, 10});
    int32_t *bias[2] = {NULL};
    for (uint32_t i = 0, n = 0; i < n_nodes && n < 2; i++)
        if (nodes[i].op == MN_OP_LINEAR)
            bias[n++] = &operands[nodes[i].in_off + MN_LINEAR_WEIGHT + 1];
    *bias[0] = *bias[1] = f64_bias;
    mn_placement p = negotiate("auto");
    assert_string_equal(offer_of(&p, "vendor")->reason,
                        "cannot run LINEAR with f32, f64 weights (t is f64)");
    assert_int_equal(offer_of(&p, "vendor")->n_can, n_nodes - 2);
    mn_placement_free(&p);
    *bias[0] = *bias[1] = -1;
}

/* ---- memory ---------------------------------------------------------------------------------- */
static void test_layers_over_two(void **state) {
    (void)state;
    INSTALL(CPU, GPU(5 * LAYER + HEAD + SPARE));
    list_[0].us_per_node = 100;
    mn_placement p = negotiate("auto");
    check_placement(&p);
    /* front and end with the first layers: EMBED and SAMPLE share the slots */
    assert_int_equal(p.n_segments, 3);
    for (uint32_t i = 0; i < n_nodes; i++)
        assert_string_equal(at_node(&p, i), nodes[i].layer >= 5 ? "cpu" : "gpu");
    assert_int_equal(p.segments[1].kv_bytes, 2 * 4096 * 3);
    /* memory of what crosses, for a batch of 4: rows of D and their positions, on both sides */
    assert_int_equal(p.segments[0].boundary_bytes, 4 * D * 4 + 4 * 4);
    assert_int_equal(p.segments[1].boundary_bytes, 2 * 4 * D * 4 + 4 * 4);
    assert_int_equal(p.segments[2].boundary_bytes, 0); /* where the rows were that went there */
    assert_int_equal(p.n_copies, 3); /* the residual there and back, positions there */
    has_words(p.why, "gpu layers 0-4, cpu the rest: 0.0 GiB would be needed, 0.0 are free");
    assert_string_equal(p.offers[p.chosen].record->name, "gpu");
    mn_placement_free(&p);
    p = negotiate("gpu,cpu");
    check_placement(&p);
    assert_int_equal(p.n_segments, 3);
    mn_placement_free(&p);
    refused("gpu", MN_OUT_OF_MEMORY, "gpu: needs");
    /* A CPU that is as fast does it alone. */
    list_[0].us_per_node = 1, list_[1].us_per_node = 0.99;
    p = negotiate("auto");
    only_on(&p, "cpu");
    assert_int_equal(offer_of(&p, "gpu")->outcome, MN_OUTCOME_OUT_OF_MEMORY);
    assert_true(offer_of(&p, "gpu")->trial.result);
    mn_placement_free(&p);
}

/* The number of layers that the memory holds: to the byte. */
static void test_layers_that_just_fit(void **state) {
    (void)state;
    INSTALL(CPU, GPU(5 * LAYER + HEAD + SPARE));
    mn_placement p = negotiate("gpu,cpu");
    uint64_t need = 0;
    for (uint32_t k = 0; k < p.n_segments; k++)
        need += p.segments[k].offer == p.chosen ? p.segments[k].need : 0;
    mn_placement_free(&p);
    for (uint32_t less = 0; less < 2; less++) {
        devices[1].info.mem_free = need - less;
        p = negotiate("gpu,cpu");
        check_placement(&p);
        for (uint32_t i = 0; i < n_nodes; i++)
            assert_string_equal(at_node(&p, i), nodes[i].layer >= (less ? 4 : 5) ? "cpu" : "gpu");
        mn_placement_free(&p);
    }
}

/* A split is worth its trouble from a tenth on: rates are those of a busy machine. */
static void test_split_gains(void **state) {
    (void)state;
    INSTALL(CPU, GPU(5 * LAYER + HEAD + SPARE));
    list_[0].us_per_node = 100;
    list_[1].us_per_node = 91;
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu"); /* 45 of 69 nodes gain 9 us each: 6 of 100 */
    mn_placement_free(&p);
    list_[1].us_per_node = 80;
    p = negotiate("auto");
    assert_int_equal(p.n_segments, 3); /* 13 of 100 */
    mn_placement_free(&p);
}

/* Layers go to the CPU last, however fast it is: it has other things to do. */
static void test_cpu_takes_the_rest(void **state) {
    (void)state;
    INSTALL(CPU, GPU(5 * LAYER + HEAD + SPARE));
    list_[0].us_per_node = 0.5;
    devices[0].info.mem_free = 5 * LAYER + HEAD + SPARE;
    mn_placement p = negotiate("auto");
    check_placement(&p);
    for (uint32_t i = 0; i < n_nodes; i++)
        assert_string_equal(at_node(&p, i), nodes[i].layer >= 5 ? "cpu" : "gpu");
    /* wherever its rates come from */
    const mn_chooser c = {.g = graph, .p = &p};
    static const mn_rates_source sources[] = {MN_RATES_CLAIMED, MN_RATES_CACHED, MN_RATES_MEASURED};
    mn_offer *cpu = (mn_offer *)(uintptr_t)offer_of(&p, "cpu");
    assert_true(cpu->score < offer_of(&p, "gpu")->score);
    for (uint32_t i = 0; i < MN_COUNT(sources); i++) {
        mn_order order = {0};
        cpu->rates.source = sources[i];
        mn_order_add_ranked(&c, &order, false, false);
        assert_int_equal(order.n, 2);
        assert_ptr_equal(&p.offers[order.at[1]], cpu);
    }
    mn_placement_free(&p);
}

static void test_three_and_a_pool(void **state) {
    (void)state;
    INSTALL(GPU(4 * LAYER + HEAD + SPARE),
            {"gpu2", MN_DEVICE_GPU, ALL_OPS, 0, 0, 3 * LAYER + SPARE, 2, "gpu1", HONEST, 0, 10},
            CPU);
    list_[2].us_per_node = 1000;
    mn_placement p = negotiate("auto");
    check_placement(&p);
    for (uint32_t i = 0; i < n_nodes; i++) {
        const char *name = nodes[i].layer < 7 ? "gpu2" : "cpu";
        assert_string_equal(at_node(&p, i), nodes[i].layer < 4 ? "gpu" : name);
    }
    mn_placement_free(&p);
    /* The same two on one memory have it once. */
    snprintf(devices[1].info.mem_pool, sizeof devices[1].info.mem_pool, "gpu0");
    devices[1].info.mem_free = devices[0].info.mem_free;
    p = negotiate("auto");
    check_placement(&p);
    for (uint32_t i = 0; i < n_nodes; i++)
        assert_true(strcmp(at_node(&p, i), "gpu2") != 0);
    mn_placement_free(&p);
}

/* One card by two plugins: the one that claims more takes part, unless the user names the other. */
static void test_same_card(void **state) {
    (void)state;
    INSTALL({"open", MN_DEVICE_GPU, ALL_OPS, 0, 0, 0, 0.5, "gpu0", HONEST, 0, 10},
            GPU(3 * LAYER + SPARE), CPU);
    snprintf(devices[0].info.uid, sizeof devices[0].info.uid, "pci-0000:00:06");
    snprintf(devices[1].info.uid, sizeof devices[1].info.uid, "pci-0000:00:06");
    devices[1].info.mem_gbps = 4800;
    mn_placement p = negotiate("auto"); /* memory for three layers is no reason to open it twice */
    check_placement(&p);
    assert_int_equal(offer_of(&p, "open")->outcome, MN_OUTCOME_SAME_CARD);
    assert_int_equal(offer_of(&p, "open")->rates.source, MN_RATES_NONE);
    assert_string_equal(at_node(&p, 1), "gpu");
    mn_placement_free(&p);
    p = negotiate("open");
    only_on(&p, "open");
    mn_placement_free(&p);
    p = negotiate("open,gpu");
    only_on(&p, "open");
    mn_placement_free(&p);
    devices[1].usable = false; /* then the other one has the card */
    fakes[1].ops = 0;
    p = negotiate("auto");
    only_on(&p, "open");
    mn_placement_free(&p);
    fakes[1].ops = ALL_OPS;
    devices[1].usable = true;
    devices[1].info.mem_gbps = 0; /* of equal claims the first counts */
    devices[1].info.mem_free = 0;
    p = negotiate("auto");
    only_on(&p, "open");
    assert_int_equal(offer_of(&p, "gpu")->outcome, MN_OUTCOME_SAME_CARD);
    mn_placement_free(&p);
}

static void test_share(void **state) {
    (void)state;
    INSTALL(CPU, GPU(LAYER + SPARE / 2)); /* one layer of eight and the output: under a tenth */
    list_[0].us_per_node = 100;
    mn_placement p = negotiate("auto");
    only_on(&p, "cpu");
    assert_int_equal(offer_of(&p, "gpu")->outcome, MN_OUTCOME_LEFT_OUT);
    has_words(offer_of(&p, "gpu")->trial.reason, "share of the work would be");
    mn_placement_free(&p);
    p = negotiate("gpu,cpu"); /* what the user names, the user gets */
    check_placement(&p);
    assert_true(p.n_segments > 1);
    mn_placement_free(&p);
    devices[1].info.mem_free = 1;
    refused("gpu,vendor", MN_NO_DEVICE, "vendor");
    p = negotiate("gpu,cpu");
    only_on(&p, "cpu");
    mn_placement_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_part_by_list),
                                       cmocka_unit_test(test_part_under_auto),
                                       cmocka_unit_test(test_what_stays_together),
                                       cmocka_unit_test(test_old_contract),
                                       cmocka_unit_test(test_types_of_all_weights),
                                       cmocka_unit_test(test_layers_over_two),
                                       cmocka_unit_test(test_layers_that_just_fit),
                                       cmocka_unit_test(test_split_gains),
                                       cmocka_unit_test(test_cpu_takes_the_rest),
                                       cmocka_unit_test(test_three_and_a_pool),
                                       cmocka_unit_test(test_same_card),
                                       cmocka_unit_test(test_share)};
    return cmocka_run_group_tests(tests, fake_graph, NULL);
}
