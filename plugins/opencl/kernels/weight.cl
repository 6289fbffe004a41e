/* weight.cl -- behind the file of a weight type (w_*.cl), which has PIECE(row, scale, bias, i): the
 * 16 elements from 16 i on of a row that begins at `row`; scale and bias: the row's values of the
 * planes beside, a float for each block. */
#define TYPED
static float16 matrix_piece(global const uchar *w, const ocl_matrix *m, long row, int i) {
    global const float *scale = (global const float *)(w + m->scale_at) + row * m->blocks;
    global const float *bias = (global const float *)(w + m->bias_at) + row * m->blocks;
    return PIECE(w + row * (long)m->row_bytes, scale, bias, i);
}
