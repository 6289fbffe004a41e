/* random_case.c -- one random case per op, for comparisons between plugins. */
#include "harness.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *noise(int64_t n, uint64_t *seed, float scale) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = scale * (h_rand(seed) + h_rand(seed));
    return x;
}

static int32_t f32_tensor(h_case *c, uint32_t role, uint32_t n_dim, const int64_t *dim, uint64_t *seed,
                          const char *name) {
    int64_t n = 1;
    for (uint32_t i = 0; i < n_dim; i++) n *= dim[i];
    float *x = noise(n, seed, 1);
    int32_t t = h_tensor(c, role, MN_F32, n_dim, dim, role == MN_ROLE_OUTPUT ? NULL : x, name);
    free(x);
    return t;
}

static int32_t weight(h_case *c, uint32_t dtype, int64_t rows, int64_t cols, uint64_t *seed,
                      const char *name) { /* rows 0: a vector */
    int64_t n = (rows ? rows : 1) * cols;
    float *x = noise(n, seed, rows ? 1 / sqrtf((float)cols) : 1);
    void *q = calloc(1, h_dtype_bytes(dtype, n) + 64);
    h_quantise(dtype, x, n, q);
    int32_t t =
        rows ? h_mat(c, MN_ROLE_WEIGHT, dtype, rows, cols, q, name) : h_vec(c, MN_ROLE_WEIGHT, dtype, cols, q, name);
    free(x), free(q);
    return t;
}

static uint32_t vector_type(uint32_t dtype) { return dtype == MN_F16 || dtype == MN_BF16 ? dtype : MN_F32; }

static void linear(h_case *c, uint32_t dtype, const h_shape *s, uint64_t *seed) {
    int32_t in[32], out[16];
    uint32_t n = (uint32_t)s->variant + 1;
    in[0] = f32_tensor(c, MN_ROLE_INPUT, 2, (const int64_t[]){s->rows, s->k}, seed, "x");
    for (uint32_t i = 0; i < n; i++) {
        int64_t rows = s->n + i; /* unequal, on purpose */
        in[1 + 2 * i] = weight(c, dtype, rows, s->k, seed, "w");
        in[2 + 2 * i] = i % 2 ? weight(c, vector_type(dtype), 0, rows, seed, "b") : -1;
        out[i] = h_mat(c, MN_ROLE_OUTPUT, MN_F32, s->rows, rows, NULL, "y");
    }
    h_node(c, MN_OP_LINEAR, in, 1 + 2 * n, out, n, NULL, 0);
}

static void embed(h_case *c, uint32_t dtype, const h_shape *s, uint64_t *seed) {
    int32_t *row = calloc((size_t)s->rows * 3, 4), *pos = row + s->rows, *slot = pos + s->rows;
    mn_slot slots[2] = {{5, 3, 1, 0}, {6, 9, 2, 0}};
    for (int64_t t = 0; t < s->rows; t++) {
        row[t] = t == s->rows - 1 ? ~1 : (int32_t)((uint64_t)t * 7 % (uint64_t)s->n);
        pos[t] = t == s->rows - 1 ? -1 : (int32_t)t;
        slot[t] = t == s->rows - 1 ? 1 : 0;
    }
    int32_t in[6] = {h_vec(c, MN_ROLE_INPUT, MN_I32, s->rows, row, "src"),
                     h_vec(c, MN_ROLE_INPUT, MN_I32, s->rows, pos, "pos"),
                     h_vec(c, MN_ROLE_INPUT, MN_I32, s->rows, slot, "row_slot"),
                     weight(c, dtype, s->n, s->k, seed, "table"),
                     h_state(c, slots, sizeof slots, 2, "slots"),
                     h_mat(c, MN_ROLE_STATE, MN_I32, 2, s->rows + 16, NULL, "history")};
    int32_t out[2] = {h_mat(c, MN_ROLE_OUTPUT, MN_F32, s->rows, s->k, NULL, "x"),
                      h_vec(c, MN_ROLE_OUTPUT, MN_I32, s->rows, NULL, "row_pos")};
    h_node(c, MN_OP_EMBED, in, 6, out, 2, (const uint64_t[]){h_f64(2.5)}, 1);
    free(row);
}

static void norm(h_case *c, uint32_t op, uint32_t dtype, const h_shape *s, uint64_t *seed) {
    int32_t x = s->n_head ? f32_tensor(c, MN_ROLE_INPUT, 3, (const int64_t[]){s->rows, s->n_head, s->k}, seed, "x")
                          : f32_tensor(c, MN_ROLE_INPUT, 2, (const int64_t[]){s->rows, s->k}, seed, "x");
    int32_t y = h_tensor(c, MN_ROLE_OUTPUT, MN_F32, c->t[x].n_dim, c->t[x].dim, NULL, "y");
    int32_t w = weight(c, vector_type(dtype), 0, s->k, seed, "w"),
            b = weight(c, vector_type(dtype), 0, s->k, seed, "b");
    h_node(c, op, (const int32_t[]){x, w, b}, op == MN_OP_RMS_NORM ? 2 : 3, &y, 1,
           (const uint64_t[]){h_f64(1e-5), h_f64(1)}, op == MN_OP_RMS_NORM ? 2 : 1);
}

static void rope(h_case *c, const h_shape *s, uint64_t *seed) {
    int64_t n_rot = s->dim;
    float freqs[512];
    int32_t *pos = calloc((size_t)s->rows, 4);
    for (int64_t i = 0; i < n_rot / 2; i++) freqs[i] = powf(10000, -2 * (float)i / (float)n_rot);
    for (int64_t t = 0; t < s->rows; t++) pos[t] = (int32_t)(t * 37 + s->past);
    int32_t x = f32_tensor(c, MN_ROLE_INPUT, 3, (const int64_t[]){s->rows, s->n_head, s->dim}, seed, "x"),
            p = h_vec(c, MN_ROLE_INPUT, MN_I32, s->rows, pos, "row_pos");
    int32_t f = h_vec(c, MN_ROLE_WEIGHT, MN_F32, n_rot / 2, freqs, "freqs"),
            y = h_tensor(c, MN_ROLE_OUTPUT, MN_F32, 3, c->t[x].dim, NULL, "y");
    h_node(c, MN_OP_ROPE, (const int32_t[]){x, p, f}, 3, &y, 1, (const uint64_t[]){(uint64_t)s->variant, 0, h_f64(1.1)},
           3);
    free(pos);
}

/* The cache is filled by a KV_STORE of the same graph: `past` rows of each sequence, then the step's rows. */
static void attention(h_case *c, const h_shape *s, uint64_t *seed) {
    int64_t nq = s->n_seqs ? s->n_seqs : 1, per = s->rows / nq, len = s->past + per, pages = (len + 63) / 64;
    int32_t *kpos = calloc((size_t)(nq * len * 2 + s->rows * 2 + nq * 4 + nq * pages), 4), *kslot = kpos + nq * len,
            *qpos = kslot + nq * len, *qslot = qpos + s->rows;
    int32_t *seqs = qslot + s->rows, *table = seqs + nq * 4;
    for (int64_t q = 0; q < nq; q++) {
        for (int64_t i = 0; i < len; i++) kpos[q * len + i] = (int32_t)i, kslot[q * len + i] = (int32_t)q;
        for (int64_t i = 0; i < per; i++) qpos[q * per + i] = (int32_t)(s->past + i), qslot[q * per + i] = (int32_t)q;
        seqs[4 * q] = (int32_t)(q * per), seqs[4 * q + 1] = (int32_t)per, seqs[4 * q + 2] = (int32_t)q;
    }
    uint32_t n_pages = (uint32_t)(nq * pages + 1);
    for (int64_t i = 0; i < nq * pages; i++)
        table[i] = (int32_t)(nq * pages - i); /* backwards, so that order is no accident */
    assert_true(per * nq == s->rows);
    int32_t k = f32_tensor(c, MN_ROLE_INPUT, 3, (const int64_t[]){nq * len, s->n_head_kv, s->dim}, seed, "k"),
            v = f32_tensor(c, MN_ROLE_INPUT, 3, c->t[k].dim, seed, "v");
    int32_t kp = h_vec(c, MN_ROLE_INPUT, MN_I32, nq * len, kpos, "kpos"),
            ks = h_vec(c, MN_ROLE_INPUT, MN_I32, nq * len, kslot, "kslot");
    int32_t pg = h_mat(c, MN_ROLE_INPUT, MN_I32, nq, pages, table, "pages"),
            kv = h_kv(c, s->kv_dtype ? s->kv_dtype : MN_F32, n_pages);
    int32_t q = f32_tensor(c, MN_ROLE_INPUT, 3, (const int64_t[]){s->rows, s->n_head, s->dim}, seed, "q"),
            y = h_tensor(c, MN_ROLE_OUTPUT, MN_F32, 3, c->t[q].dim, NULL, "y");
    int32_t qp = h_vec(c, MN_ROLE_INPUT, MN_I32, s->rows, qpos, "row_pos"),
            qs = h_vec(c, MN_ROLE_INPUT, MN_I32, s->rows, qslot, "row_slot");
    int32_t sq = h_mat(c, MN_ROLE_INPUT, MN_I32, nq, 4, seqs, "seqs"),
            sinks = s->variant & 4 ? weight(c, MN_F32, 0, s->n_head, seed, "sinks") : -1;
    h_node(c, MN_OP_KV_STORE, (const int32_t[]){k, v, kp, ks, pg, kv}, 6, NULL, 0, (const uint64_t[]){0, 0}, 2);
    h_node(c, MN_OP_ATTENTION, (const int32_t[]){q, qp, qs, sq, pg, kv, sinks}, 7, &y, 1,
           (const uint64_t[]){h_f64(1 / sqrt((double)s->dim)), s->variant & 1 ? 17 : 0, s->variant & 2 ? h_f64(1.5) : 0,
                              0, 0, (uint64_t)s->n_head_kv, 0},
           7);
    free(kpos);
}

static void elementwise(h_case *c, uint32_t op, const h_shape *s, uint64_t *seed) {
    int64_t dim[2] = {s->rows, s->k};
    int32_t a = f32_tensor(c, MN_ROLE_INPUT, 2, dim, seed, "a"), b = f32_tensor(c, MN_ROLE_INPUT, 2, dim, seed, "b"),
            y = h_tensor(c, MN_ROLE_OUTPUT, MN_F32, 2, dim, NULL, "y");
    bool two = op == MN_OP_GLU || op == MN_OP_ADD || op == MN_OP_MUL;
    uint64_t attr = op == MN_OP_ACT || op == MN_OP_GLU ? (uint64_t)s->variant : h_f64(1.75);
    h_node(c, op, (const int32_t[]){a, b}, two ? 2 : 1, &y, 1, &attr, op == MN_OP_ADD || op == MN_OP_MUL ? 0 : 1);
}

static void gather(h_case *c, const h_shape *s, uint64_t *seed) {
    int32_t rows[64], x = f32_tensor(c, MN_ROLE_INPUT, 2, (const int64_t[]){s->rows, s->k}, seed, "x");
    int64_t n = s->rows < 64 ? s->rows : 64;
    for (int64_t i = 0; i < n; i++) rows[i] = (int32_t)(n - 1 - i);
    int32_t r = h_vec(c, MN_ROLE_INPUT, MN_I32, n, rows, "rows"),
            y = h_mat(c, MN_ROLE_OUTPUT, MN_F32, n, s->k, NULL, "y");
    h_node(c, MN_OP_GATHER_ROWS, (const int32_t[]){x, r}, 2, &y, 1, NULL, 0);
}

static void sample(h_case *c, const h_shape *s, uint64_t *seed) {
    mn_slot *slots = calloc((size_t)s->rows, sizeof *slots);
    mn_slot_params *params = calloc((size_t)s->rows, sizeof *params);
    int32_t *slot = calloc((size_t)s->rows, 4), *history = calloc((size_t)s->rows * 16, 4);
    for (int64_t i = 0; i < s->rows; i++) {
        slot[i] = (int32_t)i;
        slots[i].pos = (int32_t)(3 + i % 12);
        params[i] = (mn_slot_params){.seed = (uint64_t)i * 77,
                                     .temp = (float)(i % 3) * 0.7f,
                                     .top_k = (int32_t)(i % 5) * 10,
                                     .top_p = i % 2 ? 0.9f : 0,
                                     .min_p = i % 7 == 1 ? 0.05f : 0,
                                     .repeat_penalty = i % 4 == 3 ? 1.3f : 0,
                                     .penalty_last_n = -1,
                                     .max_new = 1 + (int32_t)(i % 2)};
        for (int j = 0; j < 16; j++) history[i * 16 + j] = (int32_t)((i * 5 + j * 3) % s->n);
    }
    float *logits = noise(s->rows * s->n, seed, 4);
    int32_t in[5] = {h_mat(c, MN_ROLE_INPUT, MN_F32, s->rows, s->n, logits, "logits"),
                     h_vec(c, MN_ROLE_INPUT, MN_I32, s->rows, slot, "out_slot"),
                     h_state(c, params, (uint64_t)s->rows * sizeof *params, s->rows, "params"),
                     h_state(c, slots, (uint64_t)s->rows * sizeof *slots, s->rows, "slots"),
                     h_mat(c, MN_ROLE_STATE, MN_I32, s->rows, 16, history, "history")};
    int32_t out[3] = {h_vec(c, MN_ROLE_OUTPUT, MN_I32, s->rows, NULL, "ids"),
                      h_mat(c, MN_ROLE_OUTPUT, MN_I32, s->rows, 5, NULL, "top_ids"),
                      h_mat(c, MN_ROLE_OUTPUT, MN_F32, s->rows, 5, NULL, "top_logprobs")};
    h_node(c, MN_OP_SAMPLE, in, 5, out, 3, NULL, 0);
    free(slots), free(params), free(slot), free(history), free(logits);
}

h_case *h_random_case(uint32_t op, uint32_t dtype, const h_shape *s, uint64_t seed) {
    h_case *c = h_new();
    switch (op) {
    case MN_OP_EMBED: embed(c, dtype, s, &seed); break;
    case MN_OP_RMS_NORM:
    case MN_OP_LAYER_NORM: norm(c, op, dtype, s, &seed); break;
    case MN_OP_LINEAR: linear(c, dtype, s, &seed); break;
    case MN_OP_ROPE: rope(c, s, &seed); break;
    case MN_OP_KV_STORE:
    case MN_OP_ATTENTION: attention(c, s, &seed); break;
    case MN_OP_GATHER_ROWS: gather(c, s, &seed); break;
    case MN_OP_SAMPLE: sample(c, s, &seed); break;
    default: elementwise(c, op, s, &seed);
    }
    return c;
}

static double differ(const h_case *a, const h_case *b) {
    double worst = 0;
    for (uint32_t i = 0; i < a->g.n_tensors; i++) {
        uint32_t role = a->t[i].role;
        if ((role != MN_ROLE_OUTPUT && role != MN_ROLE_STATE) || (int32_t)i == a->kv) continue;
        if (a->t[i].dtype.id != MN_F32) { /* ids, slots, history: the same bits */
            if (memcmp(a->result[i], b->result[i], a->bytes[i])) return INFINITY;
            continue;
        }
        double e = h_rel_l2(a->result[i], b->result[i], (int64_t)a->bytes[i] / 4);
        worst = e > worst ? e : worst;
    }
    return worst;
}

static bool says_no(h_plugin *p, const h_case *c) {
    mn_verdict v[H_MAX_NODES];
    if (p->be->supports(p->dev, &c->g, c->value, v, sizeof v[0], NULL)) return true;
    for (uint32_t i = 0; i < c->g.n_nodes; i++)
        if (v[i].verdict == MN_VERDICT_NO) return true;
    return false;
}

double h_compare(const char *name, const char *against, uint32_t op, uint32_t dtype, const h_shape *s,
                 uint32_t precision) {
    h_plugin p, r;
    double worst = -1;
    if (!h_open(&p, name)) return -1;
    if (h_open(&r, against)) {
        h_case *a = h_random_case(op, dtype, s, 42 + op), *b = h_random_case(op, dtype, s, 42 + op);
        if (!says_no(&p, a) && !says_no(&r, b)) {
            h_run(&p, a, precision);
            h_run(&r, b, MN_PRECISION_EXACT);
            worst = differ(a, b);
        }
        h_free(a), h_free(b);
        h_close(&r);
    }
    h_close(&p);
    return worst;
}

int h_batch_invariant(const char *plugin, uint32_t dtype) {
    enum { N = 37, K = 1056, MANY = 33 };
    float *x = malloc(sizeof *x * MANY * K), *w = malloc(sizeof *w * N * K), *all = malloc(sizeof *all * MANY * N);
    void *q = calloc(1, h_dtype_bytes(dtype, N * K) + 64);
    uint64_t seed = 7;
    int same = 1;
    for (int i = 0; i < MANY * K; i++) x[i] = h_rand(&seed);
    for (int i = 0; i < N * K; i++) w[i] = h_rand(&seed);
    h_quantise(dtype, w, N * K, q);
    for (int64_t r = MANY; r >= 1 && same == 1; r /= 2) {
        h_plugin p;
        if (!h_open(&p, plugin)) {
            same = -1;
            break;
        }
        h_case *c = h_new();
        int32_t xt = h_mat(c, MN_ROLE_INPUT, MN_F32, r, K, x, "x"), wt = h_mat(c, MN_ROLE_WEIGHT, dtype, N, K, q, "w"),
                y = h_mat(c, MN_ROLE_OUTPUT, MN_F32, r, N, NULL, "y");
        h_node(c, MN_OP_LINEAR, (const int32_t[]){xt, wt, -1}, 3, &y, 1, NULL, 0);
        h_run(&p, c, MN_PRECISION_EXACT);
        if (r == MANY) memcpy(all, c->result[y], sizeof *all * MANY * N);
        same = !memcmp(all, c->result[y], sizeof *all * (size_t)(r * N));
        h_free(c);
        h_close(&p);
    }
    free(x), free(w), free(all), free(q);
    return same;
}
