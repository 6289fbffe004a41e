/* tables.h -- values that codes of four bits stand for. */
#ifndef MN_CONVERT_TABLES_H
#define MN_CONVERT_TABLES_H
#include <stdint.h>

/* IQ4_NL and IQ4_XS, of the GGUF specification. */
static const int8_t mn_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
/* E2M1 (OCP MX 1.0), twice the value. */
static const int8_t mn_e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
#endif
