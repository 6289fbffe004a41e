/* test_rows_state.c -- test_rows: the rows of operations with a state of an instruction set,
 * against sums in double; and that rows in place have the bits of rows from one page to another. */
#include "test_rows.h"
#include <math.h>

enum { MOST_N = 40, MOST = MOST_N * MNK_STATE_COLS };

static void draw(float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = rows_uniform();
}

/* Sizes of steps, decays and sigmoids over the whole range of f32's exponential. */
static void elements(const mnk_state *s, const char *name) {
    enum { N = 203 };
    float x[N];
    float bias[N];
    float rate[N];
    float size[N];
    float decay[N];
    float y[N];
    double worst = 0;
    for (int i = 0; i < N; i++) {
        x[i] = 40 * rows_uniform();
        bias[i] = rows_uniform();
        rate[i] = -rows_uniform() * rows_uniform();
    }
    s->decays(x, bias, rate, N, 0.01f, 20, size, decay);
    s->sigmoids(x, N, 2, y);
    for (int i = 0; i < N; i++) {
        const double at = (double)(x[i] + bias[i]);
        const double soft = fmax(at, 0) + log1p(exp(-fabs(at)));
        const double step = fmin(fmax(soft, 0.01f), 20);
        worst = fmax(worst, fabs((double)size[i] / step - 1));
        worst = fmax(worst, fabs((double)decay[i] / exp(step * (double)rate[i]) - 1) / 20);
        worst = fmax(worst, fabs((double)y[i] * (1 + exp(-(double)x[i])) / 2 - 1));
    }
    rows_check(worst < 4e-7, "decays", name, N, 0, 0, worst);
    x[0] = NAN;
    x[1] = INFINITY;
    x[2] = -INFINITY;
    s->decays(x, bias, rate, 3, 0, INFINITY, size, decay);
    rows_check(isnan(size[0]) && isnan(decay[0]), "decay of NaN", name, 0, 0, 0, size[0]);
    rows_check(size[1] == INFINITY && size[2] == 0, "softplus of infinity", name, 0, 0, 0, size[1]);
}

static void convolutions(const mnk_state *s, const char *name, int64_t n, int64_t width) {
    enum { MOST_WIDTH = 6, CHANNELS = 70 };
    float x[MOST_WIDTH][CHANNELS];
    float stored[MOST_WIDTH * CHANNELS];
    float w[MOST_WIDTH * CHANNELS];
    float bias[CHANNELS];
    float y[CHANNELS + 1];
    const float *rows[MOST_WIDTH];
    draw(x[0], MOST_WIDTH * CHANNELS);
    draw(stored, MOST_WIDTH * CHANNELS);
    draw(bias, CHANNELS);
    for (int64_t j = 0; j < width; j++)
        rows[j] = x[j];
    y[n] = 7;
    s->conv_turn(stored, n, width, w);
    for (int has_bias = 0; has_bias < 2; has_bias++) {
        double worst = 0;
        s->conv_row(rows, w, width, has_bias ? bias : NULL, n, y);
        for (int64_t i = 0; i < n; i++) {
            double sum = has_bias ? (double)bias[i] : 0;
            for (int64_t j = 0; j < width; j++)
                sum += (double)stored[i * width + j] * (double)x[j][i];
            worst = fmax(worst, fabs(sum - (double)y[i]));
        }
        rows_check(worst < 2e-6, "conv_row", name, width, n, has_bias, worst);
    }
    rows_check(y[n] == 7, "conv_row: behind the channels", name, width, n, 0, y[n]);
}

/* One row of a block, as docs/ops.md writes it. */
typedef struct {
    float from[MOST];
    float decay[MOST_N];
    float write[MOST_N];
    float read[MOST_N];
    float x[MNK_STATE_COLS];
} block;

static double block_column(const block *b, const mnk_state_row *r, bool delta, int64_t j,
                           double *next) {
    double known = 0;
    double sum = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const double by = r->each ? (double)b->decay[i] : 1;
        known += by * (double)b->write[i] * (double)b->from[i * r->cols + j];
    }
    double u = (double)b->x[j];
    if (delta)
        u -= (double)r->known_by * known;
    u *= (double)r->x_by;
    for (int64_t i = 0; i < r->n; i++) {
        const double by = (double)b->decay[r->each ? i : 0];
        next[i] = by * (double)b->from[i * r->cols + j] + (double)b->write[i] * u;
        sum += (double)b->read[i] * next[i];
    }
    return (double)r->y_by * sum + (delta ? 0 : (double)r->pass_by * (double)b->x[j]);
}

static void blocks(const mnk_state *s, const char *name, int64_t n, int64_t cols, int which) {
    const bool delta = which > 0;
    static block b;
    static float to[MOST + 1];
    float y[MNK_STATE_COLS + 1];
    float y_in_place[MNK_STATE_COLS];
    double next[MOST_N];
    double worst = 0;
    mnk_state_row r = {.from = b.from,
                       .to = to,
                       .n = n,
                       .cols = cols,
                       .each = which == 2,
                       .decay = b.decay,
                       .write = b.write,
                       .read = b.read,
                       .x = b.x,
                       .x_by = 0.7f,
                       .known_by = 0.2f,
                       .y_by = 1.5f,
                       .pass_by = -0.3f,
                       .y = y};
    draw(b.from, sizeof b / sizeof(float));
    to[n * cols] = 7;
    y[cols] = 7;
    if (delta)
        s->delta_row(&r);
    else
        s->scan_row(&r);
    for (int64_t j = 0; j < cols; j++) {
        worst = fmax(worst, fabs(block_column(&b, &r, delta, j, next) - (double)y[j]));
        for (int64_t i = 0; i < n; i++)
            worst = fmax(worst, fabs(next[i] - (double)to[i * cols + j]));
    }
    rows_check(worst < 1e-5, delta ? "delta_row" : "scan_row", name, n, cols, which, worst);
    rows_check(to[n * cols] == 7 && y[cols] == 7, "a state's row: behind it", name, n, cols, which,
               y[cols]);
    r.to = b.from;
    r.y = y_in_place;
    if (delta)
        s->delta_row(&r);
    else
        s->scan_row(&r);
    const bool same = !memcmp(to, b.from, (size_t)(n * cols) * sizeof *to) &&
                      !memcmp(y, y_in_place, (size_t)cols * sizeof *y);
    rows_check(same, "a state's row in place", name, n, cols, which, y[0] - y_in_place[0]);
}

void rows_state(const mnk_vector *v) {
    static const int64_t lengths[] = {1, 2, 3, 5, 8, 13, MOST_N};
    elements(v->state, v->name);
    for (int64_t n = 1; n <= 70; n += rows_quick ? 9 : 1)
        for (int64_t width = 2; width <= 6; width++)
            convolutions(v->state, v->name, n, width);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int64_t cols = 1; cols <= MNK_STATE_COLS; cols += rows_quick && cols < 31 ? 5 : 1)
            for (int which = 0; which < 3; which++)
                blocks(v->state, v->name, lengths[i], cols, which);
}
