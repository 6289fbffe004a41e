/* embed.cl -- EMBED: first the state of the slots goes forward (embed_state), then ids become rows
 * of the table, in the form of its type. */
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

#ifdef TYPED
/* One item for each 16 elements of a row. */
kernel void embed_rows(REF(w), REF(positions), REF(ids), REF(row_pos), REF(x),
                       const ocl_embed_args p) {
    const int i = get_global_id(0);
    const int t = get_global_id(1);
    if (i >= p.w.pieces)
        return;
    const int id = PTR(const int, ids)[t];
    if (id >= 0 && (id < p.first || id >= p.first + p.count))
        return;
    global const float *learned = PTR(const float, positions);
    float16 v = 0;
    if (id >= 0)
        v = matrix_piece(PTR(const uchar, w), &p.w, id - p.first, i) * p.factor;
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
