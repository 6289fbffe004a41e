/* sample_numbers.h -- the numbers of samplers.def as a command or a request gives them. */
#ifndef MINERVA_SAMPLE_NUMBERS_H
#define MINERVA_SAMPLE_NUMBERS_H
#include <minerva/minerva.h>

#define SAMPLE_ABSENT INT64_MIN /* an integer that was not given; a float is NAN */
typedef struct {
#define MN_SAMPLE_F32(member, ...) double member;
#define MN_SAMPLE_I32(member, ...) int64_t member;
#include "samplers.def"
} sample_numbers;

sample_numbers sample_numbers_absent(void);
/* The numbers that are given, as the library means them. */
void sample_numbers_apply(const sample_numbers *n, mn_sample_params *out);
#endif
