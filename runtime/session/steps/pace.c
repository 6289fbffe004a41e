/* pace.c -- how many rows of prompts a step has beside sequences that draw, by measured times.
 *
 * As many as keep it below three times what a step takes that only draws: rows cost less the more
 * of them are in a step, and where most steps only draw, the slowest hundredth of all gaps between
 * tokens is within three times the middle one. Where many sequences wait for their prompts, the
 * step may be longer: else half of all users wait, for what the others gain by a millisecond; but
 * not longer than three times what it takes once they draw, too, or what the middle one of the last
 * steps took. Where the fewest rows are too many for that (a device that has slower kernels for
 * such steps), it stays below twice the time of a step with the fewest rows: else prompts would be
 * computed a row at a time, for nothing. */
#include "session/steps/steps.h"
#include <math.h>

enum { LEAST_ROWS = 2, LEAST_MIXED = 3, MOST_MIXED = 16, FEW_ROWS = 16 };
enum { LATE_STEPS = 4, OPEN_ROWS = 32, OPEN_STEPS = 64, FIT_STEPS = 32 };
/* Of the usual time: what a mixed step is to take where steps of one kind take the same, less where
 * they do not; what one more row may not make of it; from where on it is late whatever its rows
 * are. */
#define SHARE 2.6
#define LEAST_SHARE 2.0
#define SHARE_OF_NOISE 4
#define MOST 2.7
#define LATE 3.0
/* What it is to take of the time of a step with the fewest rows, where those are late. */
#define OPEN_SHARE 1.8
/* By how many times a step may be longer for each sequence that waits behind another one, as a
 * share of those that draw. */
#define PATIENCE 4.0
#define MOST_PATIENCE 8.0

double mn_pace_usual_ns(const mn_pace *p, double n) {
    const double ns = p->draw_ns + (n - p->n_draws) * p->row_ns;
    return n < p->n_draws ? MN_MAX(ns, p->draw_ns * n / p->n_draws) : ns;
}

/* Rows of prompts beside n sequences that draw, where no more than n wait. Where few rows are
 * allowed, one more is much: so what a row costs limits them, too. Of many it says little: kernels
 * that have tiles take about as long for more. */
static double rows_beside(const mn_pace *p, double n) {
    double rows = p->n_rows;
    if (p->n_open)
        return p->open_rows;
    if (p->row_ns > 0 && rows < FEW_ROWS)
        rows = MN_MIN(rows, ((MOST - 1) * mn_pace_usual_ns(p, n) - p->any_ns) / p->row_ns);
    return MN_MAX(rows, LEAST_ROWS);
}

/* The same where more wait, and what a row costs is known: the step may be `patience` times as much
 * longer, but not longer than it may be whoever waits. */
static double rows_of_patience(const mn_pace *p, double n, double n_waiting, double patience) {
    const double usual = mn_pace_usual_ns(p, n);
    const double rows = rows_beside(p, n);
    const double least = usual + p->any_ns + LEAST_ROWS * p->row_ns;
    const double most = MOST * MN_MAX(mn_pace_usual_ns(p, n + n_waiting), p->middle_ns);
    const double most_rows = MN_MAX((most - usual - p->any_ns) / p->row_ns, LEAST_ROWS);
    double more = rows + (patience - 1) * (MOST - 1) * usual / p->row_ns;
    if (least > MOST * usual) /* what any row costs is more than is allowed */
        more = patience * (MOST - 1) * least / p->row_ns;
    return MN_MAX(rows, MN_MIN(more, most_rows));
}

double mn_pace_rows(const mn_pace *p, uint32_t n_draws, uint32_t n_waiting, double *patience) {
    *patience = 1;
    if (n_waiting > 1)
        *patience = MN_MAX(PATIENCE * (n_waiting - 1) / n_draws, 1);
    *patience = MN_MIN(*patience, MOST_PATIENCE);
    if (*patience <= 1 || p->n_open || p->row_ns <= 0)
        return *patience * rows_beside(p, n_draws);
    return rows_of_patience(p, n_draws, n_waiting, *patience);
}

/* The middle of what steps take in which sequences draw: as many of the last ones took longer as
 * did not. */
static void learn_middle(mn_pace *p, double ns) {
    const double step = 1.04;
    if (p->middle_ns <= 0)
        p->middle_ns = ns;
    else
        p->middle_ns *= ns > p->middle_ns ? step : 1 / step;
}

/* What rows cost, by a step that took ns: exponentially weighted least squares. */
static void learn_row(mn_pace *p, double ns, double n_rows) {
    const double rows = n_rows - p->n_draws;
    const double more = ns - p->draw_ns;
    if (rows < 1 || more <= 0)
        return;
    p->n_fit += p->n_fit < FIT_STEPS;
    const double weight = 1.0 / p->n_fit;
    const double to_rows = rows - p->fit_rows;
    const double to_more = more - p->fit_ns;
    p->fit_rows += weight * to_rows;
    p->fit_ns += weight * to_more;
    p->fit_variance = (1 - weight) * (p->fit_variance + weight * to_rows * to_rows);
    p->fit_covariance = (1 - weight) * (p->fit_covariance + weight * to_rows * to_more);
    const double most = p->fit_ns / p->fit_rows; /* the line goes through 0 */
    const double spread = p->fit_rows / 8;
    if (p->fit_variance < spread * spread)
        return; /* nothing tells the two costs apart */
    p->row_ns = MN_MIN(MN_MAX(p->fit_covariance / p->fit_variance, most / 64), most);
    p->any_ns = p->fit_ns - p->row_ns * p->fit_rows;
}

/* A budget follows the time that mixed steps take: by half of what they miss, so that one slow step
 * of a busy machine does not decide. */
static double adjusted(double rows, double ns, double usual, double share) {
    const double factor = 1 + (share * usual / ns - 1) / 2;
    rows *= MN_MIN(MN_MAX(factor, 0.5), 1.5);
    return MN_MIN(MN_MAX(rows, LEAST_ROWS), UINT16_MAX);
}

/* A step with the fewest rows: whether it took too long whatever its rows are. */
static void learn_least(mn_pace *p, double ns, double n_draws) {
    if (ns <= LATE * mn_pace_usual_ns(p, n_draws)) {
        p->n_late = 0;
        return;
    }
    p->late_ns += (ns - p->late_ns) / ++p->n_late;
    if (p->n_late < LATE_STEPS)
        return;
    p->n_open = OPEN_STEPS;
    p->n_late = 0;
    if (p->open_rows <= 0)
        p->open_rows = OPEN_ROWS;
}

/* A step that goes by the time of the fewest rows. From time to time it is tried again whether
 * those take long. */
static void learn_open(mn_pace *p, double ns, double n_prompt) {
    if (n_prompt >= p->open_rows / 2)
        p->open_rows = adjusted(p->open_rows, ns, p->late_ns, OPEN_SHARE);
    if (--p->n_open)
        return;
    p->n_rows = MN_FIRST_ROWS;
    p->row_ns = 0;
    p->n_fit = 0;
}

/* A step of more patience is taken for one of 1, with as many times fewer rows, until it is known
 * what rows cost: then it says no more than that. */
static void learn_mixed(mn_pace *p, double ns, double n_prompt, double n_draws, double patience) {
    const double usual = mn_pace_usual_ns(p, n_draws);
    const double rows = n_prompt / patience;
    const double one_ns = usual + (ns - usual) / patience;
    if (p->n_open) {
        learn_open(p, ns, patience > 1 ? 0 : n_prompt);
        return;
    }
    if (rows <= LEAST_ROWS)
        learn_least(p, one_ns, n_draws);
    learn_row(p, ns, n_prompt + n_draws);
    const double budget = rows_beside(p, n_draws);
    if (rows < budget / 2 || (patience > 1 && p->row_ns > 0))
        return; /* it says little about a step that is full */
    const double share = MN_MAX(SHARE - SHARE_OF_NOISE * p->noise, LEAST_SHARE);
    p->n_rows = adjusted(budget, one_ns, usual, share);
}

/* Whether what a step of other draws took says little of one of n. */
static bool are_others(const mn_pace *p, double n) {
    return fabs(n - p->n_draws) > p->n_draws / 4;
}

bool mn_pace_in_doubt(const mn_pace *p, uint32_t n_draws) {
    return p->draw_ns <= 0 || (p->n_mixed >= LEAST_MIXED && are_others(p, n_draws)) ||
           (p->n_mixed >= MOST_MIXED && p->n_rows < FEW_ROWS);
}

static void learn_draws(mn_pace *p, double ns, double n_draws) {
    double weight = p->draw_ns > 0 ? 8 : 1;
    if (p->draw_ns > 0 && are_others(p, n_draws))
        weight = 2;
    else if (p->draw_ns > 0)
        p->noise += (fabs(ns / p->draw_ns - 1) - p->noise) / 32;
    p->draw_ns += (ns - p->draw_ns) / weight;
    p->n_draws += (n_draws - p->n_draws) / weight;
    p->n_mixed = 0;
}

bool mn_pace_is_new(mn_steps *s, const mn_pending_step *step) {
    uint64_t hash = step->exec.run;
    if (!mn_engine_rounds(s->engine))
        return false;
    for (uint32_t i = 0; i < MN_SYM_COUNT; i++) {
        hash = (hash ^ (uint64_t)step->exec.symbols[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    uint64_t *word = &s->pace.sizes[hash / 64 % MN_COUNT(s->pace.sizes)];
    const uint64_t bit = UINT64_C(1) << hash % 64;
    const bool is_new = !(*word & bit);
    *word |= bit;
    return is_new;
}

/* Nothing is learned from the first step of its sizes: what the device prepared for it counts in
 * its time. */
void mn_pace_learn(mn_steps *s, const mn_pending_step *step, uint64_t ns) {
    mn_pace *p = &s->pace;
    const uint32_t n_prompt = step->n_prompt_rows + step->n_restored_rows;
    const double now = (double)ns;
    if (step->is_new)
        return;
    if (step->n_rows > n_prompt)
        learn_middle(p, now);
    if (!n_prompt && s->drafts.ready)
        mn_step_times_learn(&s->drafts.times, step->n_rows, now);
    if (!n_prompt) {
        learn_draws(p, now, step->n_rows);
    } else if (p->draw_ns > 0 && step->n_rows > n_prompt) {
        p->n_mixed++;
        learn_mixed(p, now, n_prompt, step->n_rows - n_prompt, MN_MAX(step->patience, 1));
    }
}
