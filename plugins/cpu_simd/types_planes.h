/* types_planes.h -- types whose scales lie apart from their data: MXFP4 as released, NVFP4, MLX's
 * affine groups. Taken 32 elements at a time, or 256 where eight scales are read at once,
 * whatever the length of a group. */
SCALES(mxfp4_split) {
    (void)m;
    const uint64_t offset = (uint64_t)b * w->scale.step;
    d[0] = mnk_e8m0_half(at->scale[offset]);
}
BYTES(mxfp4_split) {
    return vb_lookup(vb_pairs(p + 16 * j), fp4_values);
}

/* Blocks of 16: two of the type make one of the kernel, with two scales. */
INLINE float nvfp4_scale(const mnc_weight *w, const mnk_at *at, int64_t block) {
    const uint64_t offset = (uint64_t)block * w->scale.step;
    const uint8_t e4m3 = at->scale[offset];
    return mnk_e4m3(e4m3) * (0.5f * at->tensor_scale);
}
SCALES(nvfp4) {
    (void)m;
    d[0] = nvfp4_scale(w, at, 2 * b);
    d[1] = nvfp4_scale(w, at, 2 * b + 1);
}
BYTES(nvfp4) {
    return vb_lookup(vb_pairs(p + 16 * j), fp4_values);
}

INLINE float load_scale(const uint8_t *p, uint32_t dtype) {
    return dtype == MN_F16 ? v_f16_1(p) : mnk_load1(p, dtype, 0);
}
INLINE int group_shift(const mnc_weight *w) {
    return __builtin_ctz(w->dtype.block_elems / 32);
}
INLINE void group_scales(const mnc_weight *w, const mnk_at *at, int64_t b, float *d, float *m) {
    const uint64_t g = (uint64_t)b >> group_shift(w);
    const uint8_t *scale = at->scale + g * w->scale.step;
    const uint8_t *bias = at->bias + g * w->bias.step;
    d[0] = load_scale(scale, w->scale.dtype);
    m[0] = load_scale(bias, w->bias.dtype);
}
#define GROUP_SCALES(name)                                                                         \
    SCALES(name) {                                                                                 \
        group_scales(w, at, b, d, m);                                                              \
    }
GROUP_SCALES(mlx2)
BYTES(mlx2) {
    return vb_stream(p + 8 * j, 2);
}
GROUP_SCALES(mlx3)
BYTES(mlx3) {
    return vb_stream(p + 12 * j, 3);
}
GROUP_SCALES(mlx4)
BYTES(mlx4) {
    return vb_pairs(p + 16 * j);
}
GROUP_SCALES(mlx5)
BYTES(mlx5) {
    return vb_stream(p + 20 * j, 5);
}
GROUP_SCALES(mlx6)
BYTES(mlx6) {
    return vb_stream(p + 24 * j, 6);
}
SCALES(mlx8) {
    group_scales(w, at, b, d, m);
    m[0] += 128 * d[0];
}
BYTES(mlx8) {
    return vb_load(p + 32 * j);
}

#ifdef V_SCALES8
#define SCALES8(name)                                                                              \
    INLINE void name##_scales8(const mnc_weight *w, const mnk_at *at, int64_t b, float *d, float *m)
SCALES8(mxfp4_split) {
    (void)w;
    (void)m;
    v_e8m0_half8(load_u64(at->scale + 8 * b), d);
}

SCALES8(nvfp4) {
    (void)w;
    (void)m;
    const uint8_t *scale = at->scale + 16 * b;
    const VF half = v_set1(0.5f * at->tensor_scale);
    for (int i = 0; i < 16; i += VL)
        v_store(d + i, v_mul(v_e4m3(scale + i), half));
}

INLINE void group_scales8(const mnc_weight *w, const mnk_at *at, int64_t b, float *d, float *m) {
    const int shift = group_shift(w);
    const uint64_t g = (uint64_t)(8 * b) >> shift;
    const uint8_t *scale = at->scale + g * w->scale.step;
    const uint8_t *bias = at->bias + g * w->bias.step;
    v_scales8(scale, w->scale.dtype, shift, d);
    v_scales8(bias, w->bias.dtype, shift, m);
}
#define GROUP_SCALES8(name)                                                                        \
    SCALES8(name) {                                                                                \
        group_scales8(w, at, b, d, m);                                                             \
    }
GROUP_SCALES8(mlx2)
GROUP_SCALES8(mlx3)
GROUP_SCALES8(mlx4)
GROUP_SCALES8(mlx5)
GROUP_SCALES8(mlx6)
SCALES8(mlx8) {
    group_scales8(w, at, b, d, m);
    for (int i = 0; i < 8; i += VL) {
        const VF scale = v_load(d + i);
        const VF sum = v_fma(v_set1(128), scale, v_load(m + i));
        v_store(m + i, sum);
    }
}
#endif
