/* embed.cl -- EMBED and LOOKUP: first the state of the slots goes forward (embed_state), or ids are
 * looked up where it left them (lookup_ids), then ids become rows of the table, in the form of its
 * type. */
enum { SLOT_LAST_ID = 0, SLOT_POS = 1, SLOT_DONE = 3 }; /* words of an mn_slot */

/* Which id a row stands for, and at which position; -1: it is no row. */
static int2 resolve(int src, int pos, global const int *slot, int C, int V) {
    const int2 none = (int2)(-1, -1);
    if (src < 0 && slot[SLOT_DONE])
        return none;
    const int at = pos < 0 ? slot[SLOT_POS] : pos;
    const int id = src < 0 ? slot[SLOT_LAST_ID] : src;
    if (at < 0 || at >= C)
        return none;
    return (int2)(id < 0 || id >= V ? 0 : id, at);
}

/* One item for each row. Rows of a slot stand together in ascending positions; the last of them
 * moves the slot. One that continues its slot is the only one of it. */
kernel void embed_state(REF(src), REF(pos), REF(row_slot), REF(slots), REF(history), REF(row_pos),
                        REF(ids), const ocl_embed_args p) {
    const int t = get_global_id(0);
    if (t >= p.T)
        return;
    global const int *row_slot = PTR(const int, row_slot);
    const int s = row_slot[t];
    int2 row = (int2)(-1, -1);
    if (s >= 0 && s < p.S) {
        global int *slot = PTR(int, slots) + (ulong)s * p.slot_words;
        row = resolve(PTR(const int, src)[t], PTR(const int, pos)[t], slot, p.C, p.V);
        if (row.y >= 0) {
            PTR(int, history)[(ulong)s * p.C + row.y] = row.x;
            if (t + 1 >= p.T || row_slot[t + 1] != s)
                slot[SLOT_POS] = row.y + 1;
        }
    }
    PTR(int, ids)[t] = row.x;
    PTR(int, row_pos)[t] = row.y;
}

/* One item for each row: the id at its position. */
kernel void lookup_ids(REF(row_pos), REF(row_slot), REF(history), REF(ids),
                       const ocl_embed_args p) {
    const int t = get_global_id(0);
    if (t >= p.T)
        return;
    const int s = PTR(const int, row_slot)[t];
    const int pos = PTR(const int, row_pos)[t];
    int id = -1;
    if (s >= 0 && s < p.S && pos >= 0 && pos < p.C) {
        id = PTR(const int, history)[(ulong)s * p.C + pos];
        id = id < 0 || id >= p.V ? 0 : id;
    }
    PTR(int, ids)[t] = id;
}

#ifdef TYPED
/* Elements [16 i, 16 i + 16) of a row behind `column`, which may lie in two pieces. */
static float16 columns_piece(global const uchar *w, ARGS ocl_matrix *m, int row, int column,
                             int i) {
    const int first = column / 16 + i;
    const int off = column % 16;
    float both[32];
    if (!off)
        return matrix_piece(w, m, row, first);
    vstore16(matrix_piece(w, m, row, first), 0, both);
    vstore16(matrix_piece(w, m, row, min(first + 1, m->pieces - 1)), 1, both);
    return vload16(0, both + off);
}

/* One item for each 16 elements of a row of x. */
kernel void embed_rows(REF(w), REF(positions), REF(ids), REF(row_pos), REF(x),
                       const ocl_embed_args p) {
    const int i = get_global_id(0);
    const int t = get_global_id(1);
    if (16 * i >= p.D)
        return;
    const int id = PTR(const int, ids)[t];
    if (id >= 0 && (id < p.first || id >= p.first + p.count))
        return;
    global const float *learned = PTR(const float, positions);
    float16 v = 0;
    if (id >= 0)
        v = columns_piece(PTR(const uchar, w), &p.w, id - p.first, p.column, i) * p.factor;
    if (id >= 0 && learned) {
        const int pos = PTR(const int, row_pos)[t];
        const int last = p.n_positions - 1;
        v += row_piece(learned + (ulong)(pos < last ? pos : last) * p.D, i, p.D);
    }
    global float *x = PTR(float, x) + (ulong)t * p.D;
    if (16 * i + 16 <= p.D) {
        vstore16(v, 0, x + 16 * i);
        return;
    }
    float part[16];
    vstore16(v, 0, part);
    for (int k = 0; 16 * i + k < p.D; k++)
        x[16 * i + k] = part[k];
}
#endif
