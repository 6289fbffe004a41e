/* worth.h -- what drafts are worth: how many to verify in a step, from how many held and what
 * steps cost, and when to try at all. Arithmetic alone; no other part of a session is needed.
 *
 * Of k drafts, each is what is drawn with probability a if all before it were. Then a row yields
 *   E(k) = 1 + a + a^2 + ... + a^k = (1 - a^(k + 1)) / (1 - a)
 * ids instead of one (Leviathan et al. 2023, "Fast inference from transformers via speculative
 * decoding", eq. 1). In a step in which n sequences draw, and m of them verify k drafts each,
 *   ids per time = (n - m + m E(k)) / (T(n + m k) + m k d)
 * where T is the measured time of a step by its rows, and d the time to make a draft. The best k is
 * taken; it is 0 where rows cost as much as what they yield: with many sequences, whose rows fill
 * the device already, or where few drafts hold. */
#ifndef MN_WORTH_H
#define MN_WORTH_H
#include <stdbool.h>
#include <stdint.h>

/* T: times of steps that only draw, by rows; a mean that follows the last ones. The time of a
 * number of rows is known from its second step on, as the shorter of the two: the first step
 * touches new memory. A time that was not measured for long is forgotten, so that one slow step has
 * no lasting effect. */
enum { MN_TIMED_ROWS = 256 };
typedef struct {
    double ns[MN_TIMED_ROWS + 1];
    uint32_t n[MN_TIMED_ROWS + 1];    /* steps seen */
    uint32_t last[MN_TIMED_ROWS + 1]; /* of n_steps: the newest of them */
    uint32_t n_steps;
} mn_step_times;
void mn_step_times_learn(mn_step_times *t, uint32_t n_rows, double ns);
/* Whether so many rows, or fewer, are known. */
bool mn_step_times_known(const mn_step_times *t, uint32_t n_rows);
/* Between known numbers of rows by a straight line; behind the last one with the slope of the last
 * two, or, with one alone, little more for each row, so that it is tried. 0: nothing is known. */
double mn_step_times_of(const mn_step_times *t, double n_rows);

/* a of one sequence: the share of drafts that held, among drafts behind held drafts; newer ones
 * count more. */
typedef struct {
    double held, tried;
} mn_acceptance;
void mn_acceptance_learn(mn_acceptance *a, uint32_t n_drafts, uint32_t n_held);
double mn_acceptance_of(const mn_acceptance *a);

/* E(k) */
double mn_draft_yield(double a, uint32_t k);
typedef struct {
    uint32_t n_draws, n_drafting; /* n and m */
    uint32_t most;                /* k at most */
    double draft_ns;              /* d */
} mn_draft_case;
/* The best k. */
uint32_t mn_draft_count(const mn_step_times *t, double a, const mn_draft_case *c);

/* When a sequence makes drafts. While it does, it waits for the host between its steps, since the
 * next draft follows the last id. Where no draft pays it rests: it goes on by itself for 32 ids,
 * and after each try that fails for twice as many. A try begins with one draft a step until one
 * holds: that is the cheapest test, and needs a single number of rows. The next sequence, and its
 * next try, begin with what the sequences of the session have learned: their drafts have one
 * source. */
typedef struct {
    mn_acceptance acceptance; /* of all sequences */
    uint32_t rest;            /* of the last one that gave up; 0: drafts have paid since */
    uint32_t n_begun;         /* sequences that began meanwhile */
} mn_draft_memory;
typedef struct {
    bool on; /* it makes drafts */
    mn_acceptance acceptance;
    uint32_t until;    /* not on: until so many ids are drawn */
    uint32_t rest;     /* ids that it rested for the last time */
    uint32_t n_missed; /* steps in a row for which no draft was found */
    /* since it is on: steps, steps that verified drafts, and steps in which one held */
    uint32_t n_steps, n_tries, n_hits;
} mn_drafting;
void mn_draft_memory_begin(mn_draft_memory *m);
void mn_drafting_begin(mn_drafting *d, mn_draft_memory *m);
/* Before a step: whether a rest is over. */
void mn_drafting_wake(mn_drafting *d, const mn_draft_memory *m, uint32_t n_drawn);
/* Drafts for the next step of a sequence that is on; it may give up. */
uint32_t mn_drafting_count(mn_drafting *d, mn_draft_memory *m, const mn_step_times *t,
                           const mn_draft_case *c, uint32_t n_drawn);
/* A source that found nothing several times in a row is asked later. */
void mn_drafting_found(mn_drafting *d, uint32_t n_drafts, uint32_t n_drawn);
void mn_drafting_learn(mn_drafting *d, mn_draft_memory *m, uint32_t n_drafts, uint32_t n_held);

/* A guess by lookup (Saxena 2023, "Prompt lookup decoding"): what followed the latest of the
 * longest matches of the last ids, two at least, in ids[0, n). Behind the end it goes on with
 * itself, as in a loop. Up to k ids to `to`; how many. */
uint32_t mn_draft_lookup(const int32_t *ids, uint32_t n, int32_t *to, uint32_t k);
#endif
