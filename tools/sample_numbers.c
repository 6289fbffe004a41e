/* sample_numbers.c -- the numbers of samplers.def between those who give them, a command line or a
 * request, and the library, whose 0 is "off" or a default. */
#include "sample_numbers.h"
#include <math.h>

sample_numbers sample_numbers_absent(void) {
    return (sample_numbers){
#define MN_SAMPLE_F32(member, ...) .member = NAN,
#define MN_SAMPLE_I32(member, ...) .member = SAMPLE_ABSENT,
#include "samplers.def"
    };
}

/* What a number becomes that was given: the words of samplers.def. */
static double PLAIN(double given) {
    return given;
}
static double OFF(double given) {
    return given > 0 ? given : 0;
}
static double LEAST(double given) {
    return given > 0 ? given : 1e-9;
}

void sample_numbers_apply(const sample_numbers *n, mn_sample_params *out) {
#define MN_SAMPLE_F32(member, zero, ...)                                                           \
    if (!isnan(n->member))                                                                         \
        out->member = (float)zero(n->member);
#define MN_SAMPLE_I32(member, zero, ...)                                                           \
    if (n->member != SAMPLE_ABSENT)                                                                \
        out->member = (int32_t)zero((double)n->member);
#include "samplers.def"
    if (n->dry_last_n == 0)
        out->dry_multiplier = 0;
}
