/* test_rows.h -- between the parts of test_rows: a part tests one family of rows of an instruction
 * set, by the runner, the random numbers and the counter of failures of test_rows.c. */
#ifndef TEST_ROWS_H
#define TEST_ROWS_H
#include "../../plugins/cpu_simd/nodes.h"

/* Of the oracles' inner loops, which take most of the time under sanitizers. */
#define UNSANITIZED __attribute__((no_sanitize("address", "undefined")))

extern bool rows_quick; /* under an emulator: fewer shapes */
extern bool rows_once;

/* Counts a check; a failed one is printed with the row, its sizes and what it got. */
void rows_check(bool ok, const char *what, const char *row, int64_t k, int64_t n, int64_t r,
                double got);
/* Runs a node on n threads, over scratch that is NaN. */
void rows_run(mnc_fn fn, mnc_call *c, uint32_t n);
void rows_run_attention(mnc_call *c, uint32_t n);

uint32_t rows_u32(void);  /* random, the same in every run */
float rows_uniform(void); /* in [-1, 1) */
double rows_f16(uint16_t h);
double rows_rel_l2(const float *a, const double *b, int64_t n);
double rows_norm(const double *a, int64_t n);
uint64_t rows_bits(double d); /* as an attribute */

/* The parts. */
/* With at least that many rows of x. */
void rows_linear(uint32_t type, uint32_t precision, int32_t level,
                 int64_t least); /* both GEMV and GEMM */
void rows_small(const mnk_vector *v);
void rows_state(const mnk_vector *v);
void rows_attend(const mnk_attend *tiles);
void rows_attention(int32_t level, uint32_t precision, const char *name);
#endif
