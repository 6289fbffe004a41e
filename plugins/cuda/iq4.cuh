/* iq4.cuh -- the values that codes of IQ4_NL and IQ4_XS stand for. */
#ifndef CU_IQ4_CUH
#define CU_IQ4_CUH
#include "rows.cuh"

/* The sixteen values, 128 added. */
struct iq4_table {
    static __device__ __forceinline__ constexpr uint32_t word(int i) {
        if (i == 0)
            return 0x3f2d1801u;
        if (i == 1)
            return 0x766a5d4fu;
        if (i == 2)
            return 0xa6998d81u;
        return 0xf1d9c5b5u;
    }
};
#endif
