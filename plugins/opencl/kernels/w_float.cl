/* w_float.cl -- f32, f16 and bf16; rows are padded with zeros to whole pieces. */
#ifndef W_FLOAT
#define W_FLOAT
static float16 piece_f32(global const uchar *row, int i) {
    return *(global const float16 *)(row + 64 * i);
}
static float16 piece_f16(global const uchar *row, int i) {
#ifdef PTX
    const uint4 a = words4(row + 32 * i);
    const uint4 b = words4(row + 32 * i + 16);
    return (float16)(two_halves(a.x), two_halves(a.y), two_halves(a.z), two_halves(a.w),
                     two_halves(b.x), two_halves(b.y), two_halves(b.z), two_halves(b.w));
#else
    return vload_half16(i, (global const half *)row);
#endif
}
static float16 piece_bf16(global const uchar *row, int i) {
    const ushort16 bits = *(global const ushort16 *)(row + 32 * i);
    return as_float16(convert_uint16(bits) << 16);
}
#endif
#undef PIECE
#undef PIECE_OF
#undef PIECE_OF_
#define PIECE_OF_(type, row, i) piece_##type(row, i)
#define PIECE_OF(type, row, i) PIECE_OF_(type, row, i)
#define PIECE(row, scale, bias, i) PIECE_OF(TYPE, row, i)
