/* weight.cl -- behind the file of a weight type (w_*.cl), which has PIECE(row, scale, bias, i): the
 * 16 elements from 16 i on of a row that begins at `row`; scale and bias: the row's values of the
 * planes beside, HEAD bytes for each block of the former, a float of the latter. */
#define TYPED
#ifndef HEAD
#define HEAD 4
#endif
static float16 matrix_piece(global const uchar *w, const ocl_matrix *m, long row, int i) {
    global const uchar *scale = w + m->scale_at + row * m->blocks * HEAD;
    global const float *bias = (global const float *)(w + m->bias_at) + row * m->blocks;
    return PIECE(w + row * (long)m->row_bytes, scale, bias, i);
}
