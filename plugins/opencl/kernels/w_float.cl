/* w_float.cl -- f32, f16 and bf16; rows are padded with zeros to whole pieces. */
static float16 piece_f32(global const uchar *row, int i) {
    return vload16(i, (global const float *)row);
}
static float16 piece_f16(global const uchar *row, int i) {
    return vload_half16(i, (global const half *)row);
}
static float16 piece_bf16(global const uchar *row, int i) {
    const ushort16 bits = vload16(i, (global const ushort *)row);
    return as_float16(convert_uint16(bits) << 16);
}
#define PIECE_OF_(type, row, i) piece_##type(row, i)
#define PIECE_OF(type, row, i) PIECE_OF_(type, row, i)
#define PIECE(row, scale, bias, i) PIECE_OF(TYPE, row, i)
