/* lanes.c -- weights to the layout of lanes.h. */
#include "lanes.h"

typedef uint32_t quad __attribute__((vector_size(16)));
static quad load_quad(const uint8_t *p) {
    quad v;
    memcpy(&v, p, sizeof v);
    return v;
}
/* Dword c of four rows to line c, 64 bytes apart. */
static void put_quads(const quad row[4], uint8_t *to) {
    const quad a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    const quad b = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    const quad c = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    const quad d = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const quad line[4] = {
        __builtin_shufflevector(a, b, 0, 1, 4, 5),
        __builtin_shufflevector(a, b, 2, 3, 6, 7),
        __builtin_shufflevector(c, d, 0, 1, 4, 5),
        __builtin_shufflevector(c, d, 2, 3, 6, 7),
    };
    for (int i = 0; i < 4; i++)
        memcpy(to + MNK_LANES_LINE * i, &line[i], sizeof line[i]);
}
/* `bytes`, a multiple of 16, of each row, from[i] + at on, to lines of four bytes of each. */
static void put_lines(const uint8_t *const from[MNK_LANES], int64_t at, int64_t bytes, void *to) {
    for (int i = 0; i < MNK_LANES; i += 4) {
        uint8_t *line = (uint8_t *)to + 4 * i;
        for (int64_t b = at; b < at + bytes; b += 16, line += 4 * MNK_LANES_LINE) {
            quad row[4];
            for (int j = 0; j < 4; j++)
                row[j] = load_quad(from[i + j] + b);
            put_quads(row, line);
        }
    }
}

static void put_q4_0(const uint8_t *const from[MNK_LANES], void *to) {
    mnk_lanes_q4_0 *o = to;
    for (int b = 0; b < 8; b++) {
        const int at = 18 * b;
        for (int i = 0; i < MNK_LANES; i++)
            o->d[b][i] = mnk_u16(from[i] + at);
        put_lines(from, at + 2, 16, o->q[b]);
    }
}

/* Scale and minimum of group g, of those of 6 bits in the 12 bytes at p. */
static void scale_and_min(const uint8_t *p, int g, uint8_t *scale, uint8_t *min) {
    if (g < 4) {
        *scale = p[g] & 63;
        *min = p[g + 4] & 63;
        return;
    }
    const int lower = p[g + 4];
    const int of_scale = p[g - 4] >> 6;
    const int of_min = p[g] >> 6;
    *scale = (uint8_t)((lower & 15) | of_scale << 4);
    *min = (uint8_t)(lower >> 4 | of_min << 4);
}
/* The head that Q4_K and Q5_K have alike. */
static void put_k_head(const uint8_t *const from[MNK_LANES], mnk_lanes_k *o) {
    for (int i = 0; i < MNK_LANES; i++) {
        o->d[i] = mnk_u16(from[i]);
        o->dmin[i] = mnk_u16(from[i] + 2);
        for (int g = 0; g < 8; g++)
            scale_and_min(from[i] + 4, g, &o->scale[g][i], &o->min[g][i]);
    }
}
static void put_q4_k(const uint8_t *const from[MNK_LANES], void *to) {
    mnk_lanes_q4_k *o = to;
    put_k_head(from, &o->head);
    put_lines(from, 16, 128, o->q);
}
static void put_q5_k(const uint8_t *const from[MNK_LANES], void *to) {
    mnk_lanes_q5_k *o = to;
    put_k_head(from, &o->head);
    put_lines(from, 16, 32, o->high);
    put_lines(from, 48, 128, o->q);
}

static void put_q6_k(const uint8_t *const from[MNK_LANES], void *to) {
    mnk_lanes_q6_k *o = to;
    memset(o->unused, 0, sizeof o->unused);
    for (int i = 0; i < MNK_LANES; i++) {
        const uint8_t *p = from[i];
        o->d[i] = mnk_u16(p + 208);
        for (int g = 0; g < 16; g++)
            o->scale[g][i] = (int8_t)p[192 + g];
    }
    for (int i = 0; i < 2; i++) {
        put_lines(from, 64 * i, 32, o->half[i].low);
        put_lines(from, 64 * i + 32, 32, o->half[i].low_next);
        put_lines(from, 128 + 32 * i, 32, o->half[i].high);
    }
}

/* ---- affine types of 4 bits ------------------------------------------------------------------ */
/* Bytes of neighbours to bytes of columns 16 apart, 32 at a time: those of Q4_0. */
static void part_nibbles(const uint8_t *from, uint8_t *to) {
    for (int b = 0; b < MNK_LANES_SPAN / 2; b += 16)
        for (int i = 0; i < 8; i++) {
            const uint8_t low = from[b + i];
            const uint8_t high = from[b + 8 + i];
            uint8_t *two = to + b + 2 * i;
            two[0] = (uint8_t)((low & 15) | high << 4);
            two[1] = (uint8_t)(low >> 4 | (high & 0xf0));
        }
}
static void put_nibbles(const uint8_t *const from[MNK_LANES], void *to) {
    uint8_t parted[MNK_LANES][MNK_LANES_SPAN / 2];
    const uint8_t *rows[MNK_LANES];
    for (int i = 0; i < MNK_LANES; i++) {
        part_nibbles(from[i], parted[i]);
        rows[i] = parted[i];
    }
    put_lines(rows, 0, MNK_LANES_SPAN / 2, to);
}
static void put_mlx4_32(const uint8_t *const from[MNK_LANES], void *to) {
    put_nibbles(from, ((mnk_lanes_mlx4_32 *)to)->q);
}
static void put_mlx4_64(const uint8_t *const from[MNK_LANES], void *to) {
    put_nibbles(from, ((mnk_lanes_mlx4_64 *)to)->q);
}
static void put_mlx4_128(const uint8_t *const from[MNK_LANES], void *to) {
    put_nibbles(from, ((mnk_lanes_mlx4_128 *)to)->q);
}
/* n numbers as f16, MNK_LANES apart, without the factor that they have in common: the power of two
 * that brings the largest of them to [2^14, 2^15). Returns it as bf16; 1 if they are not finite. */
static uint16_t put_factored(const float *v, int n, uint16_t *to) {
    uint32_t most = 0;
    for (int i = 0; i < n; i++) {
        const uint32_t size = mnk_f32_bits(v[i]) & 0x7fffffffu;
        if (size > most)
            most = size;
    }
    uint32_t exponent = most >> 23;
    if (exponent > 14)
        exponent -= 14;
    else
        exponent = 1;
    if (!most || most >= 0x7f800000u)
        exponent = 127;
    const float factor = mnk_bits_f32(exponent << 23);
    for (int i = 0; i < n; i++)
        to[MNK_LANES * i] = mnk_to_f16(v[i] / factor);
    return (uint16_t)(exponent << 7);
}
/* Scales and offsets of a span of lane i, n of each, at the beginning of any mnk_lanes_mlx4. */
static void put_affine(const mnc_weight *w, int64_t row, int64_t span, int i, void *to) {
    const int n = MNK_LANES_SPAN / (int)w->dtype.block_elems;
    const mnk_at at = mnk_row_at(w, row);
    mnk_lanes_mlx4_32 *o = to; /* the others begin alike */
    uint16_t *scales = o->scale[0] + i;
    float scale[8];
    float offset[8];
    for (int g = 0; g < n; g++) {
        const uint64_t block = (uint64_t)(span * n + g);
        const uint8_t *of_scale = at.scale + block * w->scale.step;
        const uint8_t *of_offset = at.bias + block * w->bias.step;
        scale[g] = mnk_load1(of_scale, w->scale.dtype, 0);
        offset[g] = mnk_load1(of_offset, w->bias.dtype, 0);
    }
    o->d[i] = put_factored(scale, n, scales);
    uint16_t *offsets = scales + MNK_LANES * n;
    const uint16_t dmin = put_factored(offset, n, offsets);
    o->dmin[i] = 0x8000u | dmin;
}

typedef struct {
    uint32_t dtype;
    int64_t from_bytes; /* of a span of one row */
    uint64_t to_bytes;  /* of a span of MNK_LANES rows */
    void (*put)(const uint8_t *const from[MNK_LANES], void *to);
} layout;
#define LAYOUT(ID, type, ...) {MN_##ID, FROM_##ID, sizeof(mnk_lanes_##type), put_##type},
enum { FROM_Q4_0 = 8 * 18, FROM_Q4_K = 144, FROM_Q5_K = 176, FROM_Q6_K = 210 };
enum { FROM_MLX4_32 = 128, FROM_MLX4_64 = 128, FROM_MLX4_128 = 128 };
static const layout layouts[] = {MNK_LANES_TYPES(LAYOUT, )};

static const layout *lanes_layout(uint32_t dtype) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].dtype == dtype)
            return &layouts[i];
    return NULL;
}

uint64_t mnk_lanes_bytes(uint32_t dtype, int64_t rows, int64_t cols) {
    const layout *l = lanes_layout(dtype);
    if (!l || cols % MNK_LANES_SPAN)
        return 0;
    const int64_t groups = (rows + MNK_LANES - 1) / MNK_LANES;
    const int64_t spans = cols / MNK_LANES_SPAN;
    return (uint64_t)(groups * spans) * l->to_bytes;
}

/* The rows of a group of lanes, span by span, to *to on. affine: with scales apart. */
static void pack_lanes(const mnc_weight *w, const layout *l, const int64_t at[MNK_LANES],
                       bool affine, uint8_t *to) {
    const uint8_t *from[MNK_LANES];
    for (int i = 0; i < MNK_LANES; i++)
        from[i] = mnc_row(w, at[i]);
    for (int64_t b = 0; b < w->cols / MNK_LANES_SPAN; b++, to += l->to_bytes) {
        l->put(from, to);
        for (int i = 0; i < MNK_LANES; i++) {
            from[i] += l->from_bytes;
            if (affine)
                put_affine(w, at[i], b, i, to);
        }
    }
}

bool mnk_lanes_pack(const mnc_weight *w, uint8_t *to) {
    const layout *l = lanes_layout(w->dtype.id);
    const bool affine = w->scale.data || w->scale.groups;
    const uint64_t bytes = (uint64_t)(w->cols / MNK_LANES_SPAN) * l->to_bytes;
    if (affine && (w->scale.dtype == MN_F32 || w->bias.dtype == MN_F32))
        return false;
    for (int64_t row = 0; row < w->rows; row += MNK_LANES, to += bytes) {
        int64_t at[MNK_LANES];
        for (int64_t i = 0; i < MNK_LANES; i++) {
            at[i] = row + i;
            if (at[i] >= w->rows)
                at[i] = w->rows - 1;
        }
        pack_lanes(w, l, at, affine, to);
    }
    return true;
}
