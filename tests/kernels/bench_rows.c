/* bench_rows.c -- not a test: what one core makes of weights that lie in its cache, per row of
 * cpu_simd's table, by the CPU time of the thread: what the instructions cost, apart from memory
 * and from neighbours on the machine. The best of many runs. Usage: bench_rows [isa [part of a
 * kernel's name [rows, at most 512]]]. */
#include "../../plugins/cpu_simd/nodes.h"
#include "../../plugins/cpu_simd/lanes.h"
#include "case.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { K = 2048, N = 128, MANY = 512 };

static double cpu_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static mnc_weight random_weight(uint32_t type, uint8_t *p) {
    const mn_dtype t = case_dtype(type);
    const uint64_t blocks = K / t.block_elems;
    mnc_weight w = {
        .dtype = t,
        .data = p,
        .rows = N,
        .cols = K,
        .row_bytes = case_plane_bytes(type, K),
    };
    uint64_t seed = 5;
    case_random_weight(type, N, K, &seed, p);
    p += case_plane_bytes(type, (int64_t)N * K);
    if (type == MN_MXFP4_SPLIT)
        w.scale = (mnc_extra){
            .data = p,
            .row_bytes = blocks,
            .step = 1,
            .dtype = MN_U8,
        };
    if (type == MN_F8_E4M3_128)
        w.scale = (mnc_extra){
            .data = p,
            .row_bytes = 0,
            .step = 4,
            .dtype = MN_F32,
        };
    if (t.n_planes == 3) {
        w.scale = (mnc_extra){
            .data = p,
            .row_bytes = 2 * blocks,
            .step = 2,
            .dtype = MN_F16,
        };
        w.bias = w.scale;
        w.bias.data = p + 2 * blocks * N;
    }
    return w;
}

/* Row j of x, or its group, in the form that the kernel reads. The first row of a group packs
 * it. */
static const uint8_t *row_of_x(const mnk_linear *k, const float *x, const uint8_t *xq,
                               uint8_t *tiles, int64_t j) {
    if (k->x_form == MNK_X_F32)
        return (const uint8_t *)(x + j * K);
    if (k->x_form == MNK_X_A8)
        return xq + j * mnk_quant_bytes(K);
    uint8_t *to = tiles + j / MNK_GROUP * mnk_group_bytes(K, k->x_form);
    const float *rows[MNK_GROUP];
    for (int i = 0; i < MNK_GROUP; i++) {
        rows[i] = x;
        rows[i] += (j + i) * K;
    }
    if (j % MNK_GROUP == 0)
        k->pack(rows, MNK_GROUP, K, to);
    return to;
}

static double best(const mnk_linear *k, const mnc_weight *w, const mnk_pair *pair, int64_t r,
                   void *panel) {
    double least = 1e9;
    for (int i = 0; i < (r > 1 ? 30 : 200); i++) {
        double t0 = cpu_time();
        mnk_linear_rows(k, w, pair, r, 0, N, panel);
        double s = cpu_time() - t0;
        least = s < least ? s : least;
    }
    return least;
}

static void print_row(const char *name, uint32_t type, const mnc_weight *w, double one, double all,
                      int64_t many) {
    const double bytes = (double)w->row_bytes * N;
    const double elements = (double)K * N;
    double rate = 0;
    if (all > 0)
        rate = 2.0 * elements * (double)many / all * 1e-9;
    printf("| %s (%s) | %.1f | %.1f | %.0f |\n", name, mn_dtype_name(type), bytes / one * 1e-9,
           elements / one * 1e-9, rate);
}

/* The same of weights whose rows lie side by side, with one row. */
static void lanes_row(uint32_t type, int32_t level, const char *part, const uint8_t *xq, float *y,
                      uint8_t *mem) {
    const mnk_linear *k = mnk_find_lanes(type, MN_PRECISION_A8, level, 1, K);
    const mnk_pair pair = {xq, y};
    if (!k || (part && !strstr(k->name, part)))
        return;
    mnc_weight w = random_weight(type, mem);
    w.repacked = aligned_alloc(64, mnk_lanes_bytes(type, N, K));
    if (!w.repacked)
        return;
    if (mnk_lanes_pack(&w, w.repacked))
        print_row(k->name, type, &w, best(k, &w, &pair, 1, NULL), 0, 1);
    free(w.repacked);
}

int main(int argc, char **argv) {
    uint32_t n;
    const mnk_set *sets = mnk_sets(&n);
    const int32_t level = argc > 1 ? mnk_isa_by_name(argv[1], strlen(argv[1])) : mnk_cpu_level();
    const int64_t many = argc > 3 ? atoi(argv[3]) : 64;
    const int64_t ldq = mnk_quant_bytes(K);
    float *x = malloc(sizeof *x * K * MANY);
    float *y = malloc(sizeof *y * N * MANY);
    uint8_t *xq = aligned_alloc(64, (size_t)(MANY * ldq));
    uint8_t *mem = malloc(8u << 20);
    void *panel = aligned_alloc(64, 4u << 20);
    const int64_t groups = MANY / MNK_GROUP;
    const int64_t tiles_bytes = groups * mnk_group_bytes(K, MNK_X_TILES2);
    uint8_t *tiles = aligned_alloc(64, (size_t)tiles_bytes);
    if (many < 1 || many > MANY)
        return 2;
    if (level < 0 || !(mnk_cpu_levels() >> level & 1))
        return 2;
    if (!x || !y || !xq || !mem || !panel || !tiles)
        return 2;
    for (int i = 0; i < K * MANY; i++)
        x[i] = (float)(i % 17 - 8) * 0.1f;
    for (int i = 0; i < many; i++)
        mnk_quantise(x + i * K, K, 0, K / 32, xq + i * ldq);
    printf("| kernel | GB/s of weights, 1 row | 10^9 elements/s | GFLOP/s, %d rows "
           "|\n|---|---|---|---|\n",
           (int)many);
    for (uint32_t i = 0; i < n * MNK_N_TYPES; i++) {
        const uint32_t type = i % MNK_N_TYPES;
        const mnk_set *set = &sets[i / MNK_N_TYPES];
        const mnk_linear *k = mnk_set_linear(set, type);
        if (!k || set->isa != level || (argc > 2 && !strstr(k->name, argv[2])))
            continue;
        const mnc_weight w = random_weight(type, mem);
        mnk_pair pair[MANY];
        for (int j = 0; j < many; j++)
            pair[j] = (mnk_pair){row_of_x(k, x, xq, tiles, j), y + j * N};
        double one = 1e9;
        double all = 0;
        if (k->dot)
            one = best(k, &w, pair, 1, panel);
        if (k->gemm || k->product)
            all = best(k, &w, pair, many, panel);
        print_row(k->name, type, &w, one, all, many);
    }
    for (uint32_t type = 0; type < MNK_N_TYPES; type++)
        lanes_row(type, level, argc > 2 ? argv[2] : NULL, xq, y, mem);
    return 0;
}
