/* common.cl -- what all kernels share; the plugin puts it in front of every source. The device's
 * facts come as macros: LANES (items of a group that share a row, a power of two; 1 on a CPU, where
 * groups are the parallel work and barriers cost dear), LINEAR_LANES (items on one output of a
 * product), IS_CPU, HAS_DOUBLE, PTX (NVIDIA's compiler: shuffles and conversions by inline PTX),
 * SUB_GROUPS (items exchange values by an extension: OCL_SUB_KHR, OCL_SUB_INTEL, or, for tests, by
 * local memory, as if sub-groups had SUB_EMULATED items), MAD (items of a sub-group that multiplies
 * matrices by Intel's extension; MAD_EMULATED: local memory plays it, for tests).
 *
 * An operand is a buffer and an offset in bytes, REF(name) among the parameters; PTR(T, name) is
 * its address, 0 where it is absent. Products and sums are not contracted, so that the same sum has
 * the same bits in every kernel that makes it. */
#pragma OPENCL FP_CONTRACT OFF
#ifdef HAS_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
#else
typedef float real;
#endif

/* What a function gets by its address stays in registers. */
#define INLINED static __attribute__((always_inline))

#define REF(name) global char *name##_mem, const ulong name##_at
#define PTR(T, name) ((global T *)(name##_at == OCL_ABSENT ? 0 : name##_mem + name##_at))

/* Where a function of several kernels finds its values: step.cl holds them in local memory. */
#ifdef STEP_WARPS
#define ARGS local const
#else
#define ARGS const
#endif

/* A function's name for the weight type that a source is compiled for. */
#define NAME_(name, type) name##_##type
#define NAME(name, type) NAME_(name, type)
#define FN(name) NAME(name, TYPE)

/* Types of cached keys and values, by their ids. */
enum { TYPE_F32 = 1, TYPE_F16 = 2, TYPE_Q8_0 = 24 };

#if LANES > 1
#define SYNC_LOCAL barrier(CLK_LOCAL_MEM_FENCE)
#define SYNC_GLOBAL barrier(CLK_GLOBAL_MEM_FENCE)
#else
#define SYNC_LOCAL
#define SYNC_GLOBAL
#endif

/* The number of an item in its group, of LANES. */
#ifdef STEP_WARPS
#define GROUP_ITEM ((int)(get_local_id(0) + 32 * get_local_id(1)))
#else
#define GROUP_ITEM ((int)get_local_id(0))
#endif

/* ---- sub-groups: items of neighbouring numbers that exchange values -------------------------- */
#ifdef SUB_GROUPS
#if SUB_GROUPS == OCL_SUB_KHR
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#elif SUB_GROUPS == OCL_SUB_INTEL
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#endif

/* How many items a whole sub-group has: a power of two, the same in a kernel. */
static int sub_size(void) {
#ifdef SUB_EMULATED
    return SUB_EMULATED;
#else
    return get_max_sub_group_size();
#endif
}

/* SUB_REDUCE(T, name, combine): a function name(v, n, red) of all values v of each n neighbouring
 * items of a sub-group, for all of them. n: a power of two. red: a T for each item of the group,
 * for emulation alone, which every item of the group comes to. */
#ifdef SUB_EMULATED
#define SUB_REDUCE(T, name, combine)                                                               \
    static T name(T v, int n, local T *red) {                                                      \
        const int item = get_local_id(0) + get_local_size(0) * get_local_id(1);                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        red[item] = v;                                                                             \
        barrier(CLK_LOCAL_MEM_FENCE);                                                              \
        v = red[item & ~(n - 1)];                                                                  \
        for (int i = 1; i < n; i++) {                                                              \
            const T a = v;                                                                         \
            const T b = red[(item & ~(n - 1)) + i];                                                \
            v = combine;                                                                           \
        }                                                                                          \
        return v;                                                                                  \
    }
#else
/* What the item whose number differs in the bits n has. */
static uint other_uint(uint v, int n) {
#if SUB_GROUPS == OCL_SUB_KHR
    return sub_group_shuffle_xor(v, (uint)n);
#else
    return intel_sub_group_shuffle_xor(v, (uint)n);
#endif
}
static float other_float(float v, int n) {
    return as_float(other_uint(as_uint(v), n));
}
static ulong other_ulong(ulong v, int n) {
    return (ulong)other_uint((uint)(v >> 32), n) << 32 | other_uint((uint)v, n);
}
static real other_real(real v, int n) {
#ifdef HAS_DOUBLE
    return as_double(other_ulong(as_ulong(v), n));
#else
    return other_float(v, n);
#endif
}
#define SUB_REDUCE(T, name, combine)                                                               \
    static T name(T v, int n, local T *red) {                                                      \
        for (n /= 2; n; n /= 2) {                                                                  \
            const T a = v;                                                                         \
            const T b = other_##T(v, n);                                                           \
            v = combine;                                                                           \
        }                                                                                          \
        return v;                                                                                  \
    }
#endif
SUB_REDUCE(float, sub_sum, a + b)

/* The sum over each n neighbouring items, n a power of two, for all of them: within sub-groups by
 * exchange, over several by local memory. red: a float for each item of the group. */
static float neighbours_sum(float v, int n, local float *red) {
    const int item = get_local_id(0) + get_local_size(0) * get_local_id(1);
    const int size = min(sub_size(), n);
    v = sub_sum(v, size, red);
    if (size == n)
        return v;
    barrier(CLK_LOCAL_MEM_FENCE);
    red[item] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (int i = 0; i < n; i += size)
        sum += red[(item & ~(n - 1)) + i];
    return sum;
}
#endif

/* ---- matrices of a sub-group ----------------------------------------------------------------- */
#ifdef MAD
/* mad8(a, b, sum): sum [8 rows, MAD outputs] += a [8, 16] b [16, MAD], of halves, sums in f32; a
 * sub-group has MAD items, 8 or 16. Item i has of each row of `a` the elements 16 / MAD i and on,
 * and of `b` and `sum` output i. room: for emulation alone, a place for each item of the group,
 * which every item of it comes to. */
#if MAD == 8
typedef uint mad_unit;
typedef int8 mad_rows;
#define AS_MAD_ROWS as_int8
#else
typedef ushort mad_unit;
typedef short8 mad_rows;
#define AS_MAD_ROWS as_short8
#endif
#ifdef MAD_EMULATED
#define MAD_ATTRIBUTES(subs) __attribute__((reqd_work_group_size(MAD, subs, 1)))
static float8 mad8(mad_rows a, int8 b, float8 sum, local uint8 *room) {
    const int first = MAD * get_local_id(1);
    float w[16];
    vstore16(vload_half16(0, (const private half *)&b), 0, w);
    barrier(CLK_LOCAL_MEM_FENCE);
    *(local mad_rows *)(room + first + get_local_id(0)) = a;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < MAD; i++) {
        local const half *rows = (local const half *)(room + first + i);
#if MAD == 8
        const float16 v = vload_half16(0, rows);
        sum += v.even * w[2 * i];
        sum += v.odd * w[2 * i + 1];
#else
        sum += vload_half8(0, rows) * w[i];
#endif
    }
    return sum;
}
#else
#pragma OPENCL EXTENSION cl_intel_subgroup_matrix_multiply_accumulate : enable
#define MAD_ATTRIBUTES(subs)                                                                       \
    __attribute__((intel_reqd_sub_group_size(MAD), reqd_work_group_size(MAD, subs, 1)))
static float8 mad8(mad_rows a, int8 b, float8 sum, local uint8 *room) {
    return intel_sub_group_f16_f16_matrix_mad_k16(a, b, sum);
}
#endif
#endif

/* ---- sums over the items of a group; each begins and ends so that red may be used again ------ */
#if defined PTX && LANES >= 32
/* What the item of the warp whose number differs in the bits n has. */
static uint other_uint(uint v, int n) {
    uint other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=r"(other) : "r"(v), "r"(n));
    return other;
}
static float other_float(float v, int n) {
    return as_float(other_uint(as_uint(v), n));
}
static ulong other_ulong(ulong v, int n) {
    return (ulong)other_uint((uint)(v >> 32), n) << 32 | other_uint((uint)v, n);
}
static real other_real(real v, int n) {
#ifdef HAS_DOUBLE
    return as_double(other_ulong(as_ulong(v), n));
#else
    return other_float(v, n);
#endif
}
#define GROUP_REDUCE(T, name, combine)                                                             \
    static T name(T v, local T *red) {                                                             \
        const int lane = GROUP_ITEM;                                                               \
        for (int n = 16; n; n /= 2) {                                                              \
            const T a = v;                                                                         \
            const T b = other_##T(v, n);                                                           \
            v = combine;                                                                           \
        }                                                                                          \
        SYNC_LOCAL;                                                                                \
        if (lane % 32 == 0)                                                                        \
            red[lane / 32] = v;                                                                    \
        SYNC_LOCAL;                                                                                \
        v = red[lane % (LANES / 32)];                                                              \
        for (int n = LANES / 64; n; n /= 2) {                                                      \
            const T a = v;                                                                         \
            const T b = other_##T(v, n);                                                           \
            v = combine;                                                                           \
        }                                                                                          \
        return v;                                                                                  \
    }
#elif defined SUB_GROUPS && LANES > 1
#define GROUP_REDUCE(T, name, combine)                                                             \
    SUB_REDUCE(T, sub_of_##name, combine)                                                          \
    static T name(T v, local T *red) {                                                             \
        const int lane = GROUP_ITEM;                                                               \
        const int size = min(sub_size(), LANES);                                                   \
        v = sub_of_##name(v, size, red);                                                           \
        SYNC_LOCAL;                                                                                \
        if (lane % size == 0)                                                                      \
            red[lane / size] = v;                                                                  \
        SYNC_LOCAL;                                                                                \
        v = red[0];                                                                                \
        for (int i = 1; i < LANES / size; i++) {                                                   \
            const T a = v;                                                                         \
            const T b = red[i];                                                                    \
            v = combine;                                                                           \
        }                                                                                          \
        return v;                                                                                  \
    }
#elif LANES > 1
#define GROUP_REDUCE(T, name, combine)                                                             \
    static T name(T v, local T *red) {                                                             \
        const int lane = GROUP_ITEM;                                                               \
        SYNC_LOCAL;                                                                                \
        red[lane] = v;                                                                             \
        SYNC_LOCAL;                                                                                \
        for (int n = LANES / 2; n; n /= 2) {                                                       \
            if (lane < n) {                                                                        \
                const T a = red[lane];                                                             \
                const T b = red[lane + n];                                                         \
                red[lane] = combine;                                                               \
            }                                                                                      \
            SYNC_LOCAL;                                                                            \
        }                                                                                          \
        return red[0];                                                                             \
    }
#else
#define GROUP_REDUCE(T, name, combine)                                                             \
    static T name(T v, local T *red) {                                                             \
        return v;                                                                                  \
    }
#endif
GROUP_REDUCE(float, group_sum, a + b)
GROUP_REDUCE(float, group_max, fmax(a, b))
GROUP_REDUCE(ulong, group_sum_u64, a + b)
GROUP_REDUCE(ulong, group_max_u64, max(a, b))

/* ---- warps: 32 items of neighbouring numbers in a group -------------------------------------- */
#ifdef STEP_WARPS
enum { WARPS = STEP_WARPS, ITEMS = 32 * WARPS };
#else
enum { WARPS = OCL_WARPS, ITEMS = 32 * WARPS };
#endif

/* The sum over each n neighbouring items of a warp, n a power of two, for all of them. red: a float
 * for each item of the group. Every item of the group comes here: without shuffles it takes
 * barriers. */
static float part_sum(float v, int n, local float *red) {
#ifdef PTX
    for (int m = n / 2; m; m /= 2) {
        float other;
        asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, -1;" : "=f"(other) : "f"(v), "r"(m));
        v += other;
    }
    return v;
#elif defined SUB_GROUPS
    return neighbours_sum(v, n, red);
#else
    const int item = get_local_id(0) + get_local_size(0) * get_local_id(1);
    barrier(CLK_LOCAL_MEM_FENCE);
    red[item] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += red[(item & ~(n - 1)) + i];
    return sum;
#endif
}
static float warp_sum(float v, local float *red) {
    return part_sum(v, 32, red);
}

/* ---- 16 elements ----------------------------------------------------------------------------- */
static float sum16(float16 v) {
    const float8 a = v.lo + v.hi;
    const float4 b = a.lo + a.hi;
    const float2 c = b.lo + b.hi;
    return c.x + c.y;
}

/* Piece i of a row of n floats; zeros behind its end. */
static float16 row_piece(global const float *row, int i, int n) {
    if (16 * i + 16 <= n)
        return vload16(0, row + 16 * i);
    float16 v = 0;
    float part[16];
    for (int k = 0; k < 16; k++)
        part[k] = 16 * i + k < n ? row[16 * i + k] : 0.0f;
    v = vload16(0, part);
    return v;
}

/* p: a multiple of 2. */
static float half_at(global const uchar *p) {
    const ushort bits = *(global const ushort *)p;
    return vload_half(0, (const private half *)&bits);
}

/* The two halves of a word, the lower first. */
static float2 two_halves(uint bits) {
#ifdef PTX
    float2 v;
    asm("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; }"
        : "=f"(v.x), "=f"(v.y)
        : "r"(bits));
    return v;
#else
    return vload_half2(0, (const private half *)&bits);
#endif
}

/* ---- rows of f32 as halves, which end at 65,504 ---------------------------------------------- */
#define HALF_MOST 65504.0f

/* The largest magnitude of four elements; NaN is left out. */
static float largest4(float4 v) {
    const float4 m = fabs(v);
    return fmax(fmax(m.x, m.y), fmax(m.z, m.w));
}

/* What brings a row whose largest magnitude is `top` within halves: a power of two, 1 where it is
 * within them. The largest becomes 2^14 or more, of which two halves lose less than 2^-38. */
static float fit_of(float top) {
    return top > HALF_MOST ? as_float((268u << 23) - (as_uint(top) & 0x7f800000u)) : 1.0f;
}

/* 1 / fit, exactly. */
static float back_of(float fit) {
    return as_float((254u << 23) - as_uint(fit));
}

/* A group multiplies its rows as if halves held all elements, and notes which rows have others;
 * with those rows brought within halves it multiplies once more, so that what is usual costs a
 * comparison. Other rows have the same bits in both. */
typedef struct {
    local uint *tops;   /* for each row the bits of the largest element beyond halves, or 0 */
    local float *fits;  /* for each row what its elements are multiplied by */
    local uint *beyond; /* whether a row has a top */
} row_fits;

/* All items of a group come here together, as they do to fit_rows. */
static void begin_fits(row_fits f, int rows, int item, int items) {
    if (item == 0)
        *f.beyond = 0;
    for (int r = item; r < rows; r += items) {
        f.tops[r] = 0;
        f.fits[r] = 1.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Four elements of a row as they are multiplied. */
static float4 fitted_quad(row_fits f, int row, float4 v) {
    const float top = largest4(v);
    if (top > HALF_MOST) {
        atomic_max(&f.tops[row], as_uint(top));
        atomic_or(f.beyond, 1u);
    }
    return v * f.fits[row];
}

/* After the last quad of all rows: whether they are to be multiplied once more. */
static bool fit_rows(row_fits f, int rows, int item, int items) {
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool again = *f.beyond != 0;
    if (again)
        for (int r = item; r < rows; r += items)
            f.fits[r] = fit_of(as_float(f.tops[r]));
    barrier(CLK_LOCAL_MEM_FENCE);
    return again;
}

/* Of weights, which no kernel writes; p: a multiple of 16. */
static uint4 words4(global const uchar *p) {
#ifdef PTX
    uint4 v;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
#else
    return *(global const uint4 *)p;
#endif
}
static uchar16 bytes16(global const uchar *p) {
    return as_uchar16(words4(p));
}

/* Of weights, which no kernel writes, before whatever follows; p: a multiple of 16. */
static uint4 asked4(global const uchar *p) {
#ifdef PTX
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
#else
    return words4(p);
#endif
}

/* Four bytes of them; p: a multiple of 4. */
static uint asked1(global const uchar *p) {
#ifdef PTX
    uint v;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
#else
    return *(global const uint *)p;
#endif
}

#ifdef PTX
/* Small integers become the low bits of 1024 and more as halves, from which that is taken: exact,
 * and without conversions of bytes, of which a device makes a quarter as many. */
/* Two bytes, chosen by `which`, with 128 added to each. */
static uint two_bytes(uint bytes, uint which) {
    uint bits;
    asm("{ .reg .b32 a; prmt.b32 a, %1, 0x64646464, %2; sub.f16x2 %0, a, %3; }"
        : "=r"(bits)
        : "r"(bytes), "r"(which), "r"(0x64806480u));
    return bits;
}
#endif
/* Four signed bytes. */
static float4 signed4(uint bytes) {
#ifdef PTX
    const uint moved = bytes ^ 0x80808080u;
    return (float4)(two_halves(two_bytes(moved, 0x4140)), two_halves(two_bytes(moved, 0x4342)));
#else
    return convert_float4(as_char4(bytes));
#endif
}
/* The low nibbles of four bytes. */
static float4 nibbles4(uint bytes) {
#ifdef PTX
    const uint even = (bytes & 0x000f000fu) | 0x64006400u;
    const uint odd = (bytes >> 8 & 0x000f000fu) | 0x64006400u;
    float4 v;
    asm("{ .reg .b32 e, o; .reg .b16 a, b, c, d; sub.f16x2 e, %4, %6; sub.f16x2 o, %5, %6; "
        "mov.b32 {a, c}, e; mov.b32 {b, d}, o; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; "
        "cvt.f32.f16 %2, c; cvt.f32.f16 %3, d; }"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
        : "r"(even), "r"(odd), "r"(0x64006400u));
    return v;
#else
    return convert_float4(as_uchar4(bytes & 0x0f0f0f0fu));
#endif
}
#ifdef PTX
/* What four lanes side by side have. */
static uint4 quarters(uint v) {
    const int first = (int)get_local_id(0) & ~3;
    uint4 all;
    asm("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(all.x) : "r"(v), "r"(first));
    asm("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(all.y) : "r"(v), "r"(first + 1));
    asm("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(all.z) : "r"(v), "r"(first + 2));
    asm("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(all.w) : "r"(v), "r"(first + 3));
    return all;
}
#endif
/* For row.cl. */
static uint component(uint4 v, int i) {
    const uint2 half_of_it = i < 2 ? v.lo : v.hi;
    return i & 1 ? half_of_it.y : half_of_it.x;
}
#ifdef STEP_WARPS
static uint halves_of(float2 v);
/* The low nibbles of four bytes less `from`, in the order 0, 2, 1, 3. */
static uint2 nibble_halves(uint bytes, int from) {
#ifdef PTX
    const uint even = (bytes & 0x000f000fu) | 0x64006400u;
    const uint odd = (bytes >> 8 & 0x000f000fu) | 0x64006400u;
    const uint zero = 0x64006400u + 0x10001u * from;
    uint2 v;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(v.x) : "r"(even), "r"(zero));
    asm("sub.f16x2 %0, %1, %2;" : "=r"(v.y) : "r"(odd), "r"(zero));
    return v;
#else
    const float4 v = nibbles4(bytes) - (float)from;
    return (uint2)(halves_of(v.xz), halves_of(v.yw));
#endif
}
/* Four signed bytes. */
static uint2 byte_halves(uint bytes) {
#ifdef PTX
    const uint moved = bytes ^ 0x80808080u;
    return (uint2)(two_bytes(moved, 0x4140), two_bytes(moved, 0x4342));
#else
    const float4 v = signed4(bytes);
    return (uint2)(halves_of(v.lo), halves_of(v.hi));
#endif
}
#endif
/* 16 signed bytes; the low (high = 0) or high nibbles of 16 bytes. p: a multiple of 16. */
static float16 signed16(global const uchar *p) {
#ifdef PTX
    const uint4 w = words4(p);
    return (float16)(signed4(w.x), signed4(w.y), signed4(w.z), signed4(w.w));
#else
    return convert_float16(as_char16(bytes16(p)));
#endif
}
static float16 nibbles16(global const uchar *p, int high) {
#ifdef PTX
    const uint4 w = words4(p) >> (uint)(4 * high);
    return (float16)(nibbles4(w.x), nibbles4(w.y), nibbles4(w.z), nibbles4(w.w));
#else
    return convert_float16(bytes16(p) >> (uchar)(4 * high) & (uchar)15);
#endif
}

/* The sum of 16 products of codes with x as four, and that of x. */
static float4 dot_codes(float4 a, float4 b, float4 c, float4 d, float4 x0, float4 x1, float4 x2,
                        float4 x3) {
    return fma(d, x3, fma(c, x2, fma(b, x1, a * x0)));
}

/* ---- activations ----------------------------------------------------------------------------- */
enum { SILU = 0, GELU_ERF = 1, GELU_TANH = 2, RELU = 3, SIGMOID = 4, RELU2 = 5 }; /* MN_ACT_* */

/* Some drivers' tanh stays short of 1 for an infinity. */
static float tanh_of(float v) {
    if (fabs(v) > 20.0f)
        return copysign(1.0f, v);
    return tanh(v);
}

static float activate(int kind, float v, float alpha) {
    const float cubic = 0.7978845608028654f * (v + 0.044715f * v * v * v);
    if (isnan(v)) /* tanh and exp of some drivers make a number of it */
        return v;
    switch (kind) {
    case GELU_ERF:
        return 0.5f * v * (1.0f + erf(v * 0.7071067811865476f));
    case GELU_TANH:
        return 0.5f * v * (1.0f + tanh_of(cubic));
    case RELU:
        return v > 0.0f ? v : 0.0f;
    case SIGMOID:
        return 1.0f / (1.0f + exp(-v));
    case RELU2:
        return v > 0.0f ? v * v : 0.0f;
    default:
        return v / (1.0f + exp(-alpha * v));
    }
}

/* The gated product of GLU: limit 0 = none. */
static float gate(int kind, float alpha, float limit, float offset, float g, float up) {
    if (limit != 0.0f) {
        g = g > limit ? limit : g;
        up = up > limit ? limit : up;
        up = up < -limit ? -limit : up;
    }
    return activate(kind, g, alpha) * (up + offset);
}

/* ---- rotation -------------------------------------------------------------------------------- */
/* sin and cos of pos * freq. Without doubles the product is kept in two floats, and whole turns are
 * taken off in three steps. */
static float2 turn_of(int pos, float freq) {
#ifdef HAS_DOUBLE
    const double angle = (double)pos * (double)freq;
    return (float2)((float)sin(angle), (float)cos(angle));
#else
    const float x = (float)pos;
    const float high = x * freq;
    const float low = fma(x, freq, -high);
    const float turns = rint(high * 0.15915494309189535f);
    float r = fma(-turns, 6.28125f, high);
    r = fma(-turns, 0.0019350051879882812f, r);
    r = fma(-turns, 3.0199159819567955e-07f, r) + low;
    return (float2)(sin(r), cos(r));
#endif
}
