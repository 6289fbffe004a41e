/* rows.cuh -- the row of a type in the table: its products, and whole rows (unpack.cuh). */
#ifndef CU_ROWS_CUH
#define CU_ROWS_CUH
#include "gemv.cuh"
#include "one_row.cuh"
#include "few_rows.cuh"
#include "unpack.cuh"

template <class T> static void init_run(const cu_card *d) {
    gemv_init<T>(d);
    if constexpr ((int)T::HALF != CU_F32)
        mmv_init<T>(d);
    if constexpr (T::PACKED)
        one_row_init<T>(d);
}

/* The table's row of a packed type; F: its stored form (w_*.cu). */
template <class F> static constexpr cu_type packed_type(uint32_t dtype, const char *name) {
    using W = typename F::weight;
    cu_type t = stored_type<F>(dtype, name);
    t.init = init_run<W>;
    t.gemv = gemv_run<W>;
    t.mmv = mmv_run<W>;
    return t;
}
/* Of a float type, which is kept as it is stored. */
template <class W>
static constexpr cu_type float_type(uint32_t dtype, const char *name, int bytes) {
    cu_type t = {};
    t.dtype = dtype;
    t.name = name;
    t.bits[0] = 1024 * bytes;
    t.block = 1;
    t.block_bytes = bytes;
    t.align = CU_K_ALIGN;
    t.half = W::HALF;
    t.init = init_run<W>;
    t.gemv = gemv_run<W>;
    t.embed = embed_run<W>;
    if constexpr ((int)W::HALF != CU_F32) {
        t.mmv = mmv_run<W>;
        t.expand = expand_run<W>;
        t.widens = (int)W::HALF == CU_LOW;
    }
    return t;
}
#endif
