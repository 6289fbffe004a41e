/* common.cl -- what all kernels share; the plugin puts it in front of every source. The device's
 * facts come as macros: LANES (items of a group that share a row, a power of two; 1 on a CPU, where
 * groups are the parallel work and barriers cost dear), LINEAR_LANES (items on one output of a
 * product), IS_CPU, HAS_DOUBLE.
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

#define REF(name) global char *name##_mem, const ulong name##_at
#define PTR(T, name) ((global T *)(name##_at == OCL_ABSENT ? 0 : name##_mem + name##_at))

/* Types of cached keys and values, by their ids. */
enum { TYPE_F32 = 1, TYPE_F16 = 2, TYPE_Q8_0 = 24 };

#if LANES > 1
#define SYNC_LOCAL barrier(CLK_LOCAL_MEM_FENCE)
#define SYNC_GLOBAL barrier(CLK_GLOBAL_MEM_FENCE)
#else
#define SYNC_LOCAL
#define SYNC_GLOBAL
#endif

/* ---- sums over the items of a group; each begins and ends so that red may be used again ------ */
#if LANES > 1
#define GROUP_REDUCE(T, name, combine)                                                             \
    static T name(T v, local T *red) {                                                             \
        const int lane = get_local_id(0);                                                          \
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

static float half_at(global const uchar *p) {
    const ushort bits = (ushort)(p[0] | p[1] << 8);
    return vload_half(0, (const private half *)&bits);
}

static float bf16_to_f32(ushort bits) {
    return as_float((uint)bits << 16);
}
