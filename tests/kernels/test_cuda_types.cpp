/* test_cuda_types.cpp -- packed weights of the CUDA plugin on the CPU (emulated.h): random rows of
 * every type go through the kernels that put them on a device (import_groups) and that read whole
 * rows (embed_rows, expand_rows), and come out as the values of dtype/. That all forms of codes and
 * scales are right does not need a GPU; products of them do (test_cuda). */
#include "unpack.cuh"

/* The rest of rows.cuh launches products. */
#define CU_ROWS_CUH
template <class F> static constexpr cu_type packed_type(uint32_t dtype, const char *name) {
    return stored_type<F>(dtype, name);
}
#include "w_f8.cu"
#include "w_f8_e5m2.cu"
#include "w_iq1_m.cu"
#include "w_iq1_s.cu"
#include "w_iq2.cu"
#include "w_iq3_s.cu"
#include "w_iq3_xxs.cu"
#include "w_iq4_nl.cu"
#include "w_iq4_xs.cu"
#include "w_mlx2.cu"
#include "w_mlx3.cu"
#include "w_mlx4_64.cu"
#include "w_mlx5.cu"
#include "w_mlx6.cu"
#include "w_mlx8_32.cu"
#include "w_mxfp4.cu"
#include "w_mxfp4_split.cu"
#include "w_mxfp8.cu"
#include "w_nvfp4.cu"
#include "w_q2_k.cu"
#include "w_q3_k.cu"
#include "w_q4_0.cu"
#include "w_q4_1.cu"
#include "w_q4_k.cu"
#include "w_q5_0.cu"
#include "w_q5_1.cu"
#include "w_q5_k.cu"
#include "w_q6_k.cu"
#include "w_q8_0.cu"
#include "w_tq.cu"
extern "C" {
#include "case.h"
#include "dtype.h"
}
#include <cstdio>
#include <vector>

static const cu_type *const all_types[] = {&cu_type_f8_e4m3, &cu_type_f8_e4m3_128, &cu_type_f8_e4m3_32, &cu_type_f8_e5m2, &cu_type_nvfp4, &cu_type_nvfp4_64, &cu_type_iq1_m, &cu_type_iq1_s, &cu_type_iq2_xxs, &cu_type_iq2_xs, &cu_type_iq2_s, &cu_type_iq3_xxs, &cu_type_iq3_s, &cu_type_iq4_nl, &cu_type_iq4_xs, &cu_type_mlx2_32, &cu_type_mlx2_64, &cu_type_mlx2_128, &cu_type_mlx3_32, &cu_type_mlx3_64, &cu_type_mlx3_128, &cu_type_mlx4_64, &cu_type_mlx5_32, &cu_type_mlx5_64, &cu_type_mlx5_128, &cu_type_mlx6_32, &cu_type_mlx6_64, &cu_type_mlx6_128, &cu_type_mlx8_32, &cu_type_mxfp4, &cu_type_mxfp4_split, &cu_type_q2_k, &cu_type_q3_k, &cu_type_q4_0, &cu_type_q4_1, &cu_type_q4_k, &cu_type_q5_0, &cu_type_q5_1, &cu_type_q5_k, &cu_type_q6_k, &cu_type_q8_0, &cu_type_tq1_0, &cu_type_tq2_0};
enum { ROWS = 3 };
static int failed;

/* A random matrix, as a file has it. */
struct matrix {
    mn_dtype dtype;
    int64_t cols;
    std::vector<uint8_t> bytes;
    mn_stored_row row[ROWS];
};

/* Plane i of the matrix at `at`, a row of values for each row; returns where the next one is. */
static uint8_t *add_plane(matrix &m, uint32_t i, uint8_t *at) {
    mn_plane_spec spec;
    mn_dtype of = m.dtype;
    mn_dtype_plane(m.dtype.id, i, &spec);
    if (i)
        mn_dtype_by_id(spec.dtype, &of);
    const bool by_block = !i || spec.by_block;
    const int64_t n = by_block ? m.cols / m.dtype.block_elems : 1;
    for (int r = 0; r < ROWS; r++, at += n * of.block_bytes) {
        const int64_t step = by_block ? of.block_bytes : 0;
        m.row[r].plane[(i ? spec.kind : (uint32_t)MN_PLANE_DATA) - 1] = {at, step, of.id};
    }
    return at;
}
static void fill(matrix &m, uint32_t dtype, int64_t cols) {
    uint64_t seed = (uint64_t)(dtype * 10000 + cols);
    mn_dtype_by_id(dtype, &m.dtype);
    m.cols = cols;
    m.bytes.resize(case_weight_bytes(dtype, ROWS, cols));
    case_random_weight(dtype, ROWS, cols, &seed, m.bytes.data());
    uint8_t *at = m.bytes.data();
    for (mn_stored_row &row : m.row) {
        row = mn_stored_row{};
        row.dtype = m.dtype;
    }
    for (uint32_t i = 0; i < m.dtype.n_planes; i++)
        at = add_plane(m, i, at);
    /* GGUF has it as a tensor of its own, or not at all */
    static const float tensor_scale = 0.375f; /* products with it are exact */
    for (mn_stored_row &row : m.row)
        if (dtype == MN_NVFP4_64)
            row.plane[MN_PLANE_TENSOR_SCALE - 1] = {(const uint8_t *)&tensor_scale, 0, MN_F32};
}

/* Values of SCALE, or of what stands behind it, as plugins/cuda/weights.c passes them. */
static std::vector<float> values_of(const matrix &m, bool second, int n) {
    std::vector<float> values;
    for (const mn_stored_row &row : m.row) {
        const mn_plane_row *p = &row.plane[MN_PLANE_SCALE - 1];
        if (second)
            p = &row.plane[MN_PLANE_BIAS - 1];
        if (!p->at)
            p = &row.plane[MN_PLANE_TENSOR_SCALE - 1];
        for (int i = 0; i < n; i++)
            values.push_back(p->at ? mn_plane_value(p->dtype, p->at + i * p->step) : 1);
    }
    return values;
}

/* The matrix on the device; planes own what it points to. */
static cu_planes put(const cu_type *t, const matrix &m, int ld, std::vector<char> *planes) {
    cu_import im = {};
    im.data = m.bytes.data();
    im.rows = ROWS;
    im.blocks = (int)(m.cols / t->block);
    im.cols = (int)m.cols;
    im.ld = ld;
    im.values = t->planes ? (im.cols + t->planes - 1) / t->planes : 0;
    const std::vector<float> scales = values_of(m, false, im.values);
    const std::vector<float> biases = values_of(m, true, im.values);
    im.scale = scales.data();
    im.bias = biases.data();
    for (int i = 0; i < CU_MAX_PLANES; i++) {
        planes[i].assign(cu_plane_bytes(t, i, ROWS, ld), 0);
        im.to.at[i] = planes[i].data();
    }
    t->import(NULL, &im);
    return im.to;
}

/* Largest difference beside the largest value, of elements [0, cols) of rows of `pitch`; what lies
 * behind is to be 0. */
static double difference(const matrix &m, const std::vector<float> &got, int pitch) {
    double off = 0;
    double top = 0;
    std::vector<float> want(m.cols);
    for (int r = 0; r < ROWS; r++) {
        mn_dequant_row(&m.row[r], m.cols, want.data());
        for (int i = 0; i < pitch; i++) {
            const double x = i < m.cols ? want[i] : 0;
            off = std::max(off, fabs(got[r * pitch + i] - x));
            top = std::max(top, fabs(x));
        }
    }
    return off / top;
}

static double embedded(const cu_type *t, const matrix &m, const cu_planes &planes, int ld) {
    static const int32_t ids[ROWS] = {0, 1, 2};
    std::vector<float> x(ROWS * m.cols);
    cu_embed e = {};
    e.table = planes;
    e.ids = (int32_t *)ids;
    e.x = x.data();
    e.T = ROWS;
    e.D = (int)m.cols;
    e.ld = ld;
    e.factor = 1;
    t->embed(NULL, &e);
    return difference(m, x, (int)m.cols);
}
static double expanded(const cu_type *t, const matrix &m, const cu_planes &planes, int ld) {
    const int pitch = (int)(m.cols + CU_K_ALIGN - 1) / CU_K_ALIGN * CU_K_ALIGN;
    std::vector<uint16_t> half(ROWS * pitch);
    std::vector<float> x;
    t->expand(NULL, &planes, 0, ROWS, ld, pitch, half.data());
    for (uint16_t h : half)
        x.push_back(mn_f16_to_f32(h));
    return difference(m, x, pitch);
}

/* Exact, but for NVFP4, whose two scales are multiplied in f32. */
static void check(const cu_type *t, int64_t cols) {
    matrix m;
    std::vector<char> planes[CU_MAX_PLANES];
    mn_dtype_by_id(t->dtype, &m.dtype);
    if (cols % t->block || cols % m.dtype.block_elems)
        return;
    fill(m, t->dtype, cols);
    const int ld = (int)(cols + t->align - 1) / t->align * t->align;
    const cu_planes on_device = put(t, m, ld, planes);
    const double off = embedded(t, m, on_device, ld);
    const double off_half = expanded(t, m, on_device, ld);
    const bool ok = off <= (t->dtype == MN_NVFP4 ? 2e-7 : 0) && off_half <= 0x1p-11;
    failed += !ok;
    if (!ok)
        printf("FAIL  %s, rows of %lld: off by %g, in f16 by %g of the largest value\n", t->name,
               (long long)cols, off, off_half);
}

/* A NaN among codes of F8 is one in what becomes of its 128 elements. */
static void check_nan() {
    matrix m;
    std::vector<char> planes[CU_MAX_PLANES];
    std::vector<float> x(512);
    fill(m, MN_F8_E4M3, 512);
    m.bytes[300] = 0xff;
    const cu_planes on_device = put(&cu_type_f8_e4m3, m, 512, planes);
    static const int32_t id = 0;
    cu_embed e = {};
    e.table = on_device;
    e.ids = (int32_t *)&id;
    e.x = x.data();
    e.T = 1;
    e.D = e.ld = 512;
    e.factor = 1;
    cu_type_f8_e4m3.embed(NULL, &e);
    for (int i = 0; i < 512; i++)
        failed += isnan(x[i]) != (i >= 256 && i < 384);
}

int main() {
    for (const cu_type *t : all_types)
        for (int64_t cols : {32, 224, 256, 384, 512, 992, 1216})
            check(t, cols);
    check_nan();
    printf("%d failures\n", failed);
    return failed != 0;
}
