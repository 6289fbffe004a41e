/* clock.c -- time that only goes forward. */
#include "base/base.h"
#include <time.h>

uint64_t mn_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
