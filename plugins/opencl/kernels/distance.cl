/* distance.cl -- behind cache.cl: ATTENTION whose scores or whose range have what its other kernels
 * do not know: biases by distance, relative keys and queries, rows of another text, trees of
 * drafts. A program of its own, so that the other kernels stay as they are; it takes a cache in one
 * buffer as one in several. */

typedef struct {
    global const int *row_pos;
    global const int *row_slot;
    global const float *slopes;
    global const float *biases; /* [B, H] */
    global const int *lengths;
    global const uint *ancestors; /* [T, n_words] */
    global const float *rel_k;    /* [B, H, dk] */
    global const float *rel_q;
} distance_refs;

/* A row of a step with one of its heads. */
typedef struct {
    int t;
    int head;
    int pos;
    int past; /* with ANCESTORS: the position of the first row of its sequence */
    int2 range;
} distance_row;

/* The positions that row t sees; of a tree: among which they are. */
static int2 distance_range(const distance_refs *u, ARGS ocl_distance_args *p, int t) {
    const int slot = u->row_slot[t];
    const int last_place = p->a.c.P * PAGE_TOKENS - 1;
    int last = t;
    if (u->lengths)
        return (int2)(0, min(u->lengths[slot] - 1, last_place));
    if (!u->ancestors)
        return seen(&p->a, u->row_pos, u->row_slot, t);
    while (last + 1 < p->a.c.T && u->row_slot[last + 1] == slot && u->row_pos[last + 1] >= 0)
        last++;
    return (int2)(0, min(u->row_pos[last], last_place));
}

static int distance_past(const distance_refs *u, int t) {
    const int slot = u->row_slot[t];
    while (t > 0 && u->row_slot[t - 1] == slot && u->row_pos[t - 1] >= 0)
        t--;
    return u->row_pos[t];
}

/* Whether the row sees a position of its range. */
static bool distance_sees(const distance_refs *u, ARGS ocl_distance_args *p,
                          const distance_row *row, int at) {
    const int j = at - row->past;
    if (!u->ancestors || j < 0)
        return true;
    return j < 32 * p->n_words && u->ancestors[(ulong)row->t * p->n_words + j / 32] >> j % 32 & 1;
}

/* The length of a distance (distances.h). */
static int distance_length(ARGS ocl_distance_args *p, int m) {
    int below = 0;
    int end = p->n_steps;
    if (m < p->exact)
        return m;
    while (below < end) {
        const int mid = (below + end) / 2;
        if (p->step[mid] <= m)
            below = mid + 1;
        else
            end = mid;
    }
    return p->exact + below;
}

/* Elements of a table's row times x, whose pieces are whole: the row is not padded. */
static float distance_product(global const float *row, const float16 *x, int i, int n) {
    if (16 * i + 16 <= n)
        return sum16(vload16(i, row) * *x);
    float part[16];
    float sum = 0;
    vstore16(*x, 0, part);
    for (int k = 16 * i; k < n; k++)
        sum += row[k] * part[k - 16 * i];
    return sum;
}

/* The row of relative keys and queries for a key at `at`. */
static ulong distance_place(ARGS ocl_distance_args *p, const distance_row *row, int at) {
    const int d = row->pos - at;
    const int length = distance_length(p, abs(d));
    const int place = clamp(p->places + (d < 0 ? -length : length), 0, 2 * p->places - 1);
    return ((ulong)place * p->a.H + row->head) * p->a.c.dk;
}

/* What the distance adds behind the soft cap. */
static float distance_bias(const distance_refs *u, ARGS ocl_distance_args *p,
                           const distance_row *row, int at) {
    const int d = row->pos - at;
    const bool later = d < 0 && p->a.bidirectional;
    if (!u->biases)
        return 0.0f;
    const int bucket = distance_length(p, later ? -d : max(d, 0)) + (later ? p->places : 0);
    return u->biases[(ulong)bucket * p->a.H + row->head];
}

/* The product of the query, in local memory, with the key of a position, and with what joins it. */
static float distance_logit(const distance_refs *u, ARGS ocl_distance_args *p,
                            const distance_row *row, int at, global const uchar *k,
                            local const float *q) {
    const int n = p->a.c.dk;
    const bool relative = u->rel_k || u->rel_q;
    const ulong place = relative ? distance_place(p, row, at) : 0;
    float16 dot16 = 0;
    float more = 0;
    for (int i = 0; i < (n + 15) / 16; i++) {
        const float16 q16 = vload16(i, q);
        const float16 k16 = cached_piece(k, p->a.c.k_type, i);
        dot16 += q16 * k16;
        if (u->rel_k)
            more += distance_product(u->rel_k + place, &q16, i, n);
        if (u->rel_q)
            more += distance_product(u->rel_q + place, &k16, i, n);
    }
    const float logit = (sum16(dot16) + more) * p->a.scale;
    return bent(&p->a, u->slopes, row->head, at - row->pos, logit) + distance_bias(u, p, row, at);
}

/* One group for each row and head, as `attend` of cache.cl. */
kernel void attend_distance(REF(q), REF(row_pos), REF(row_slot), REF(pages), REF(kv), REF(sinks),
                            REF(y), REF(slopes), REF(biases), REF(lengths), REF(ancestors),
                            REF(rel_k), REF(rel_q) KV_MORE, const ocl_distance_args p) {
    local float q[OCL_MAX_HEAD];
    local float share[LANES];
    local float red[LANES];
    const distance_refs u = {PTR(const int, row_pos),  PTR(const int, row_slot),
                             PTR(const float, slopes), PTR(const float, biases),
                             PTR(const int, lengths),  PTR(const uint, ancestors),
                             PTR(const float, rel_k),  PTR(const float, rel_q)};
    const int lane = get_local_id(0);
    const int t = get_group_id(1);
    distance_row row = {t, get_group_id(0), u.row_pos[t], 0, (int2)(0, -1)};
    const int head_kv = row.head / (p.a.H / p.a.c.Hkv);
    const int slot = u.row_slot[t];
    const bool there =
        row.pos >= 0 && row.pos < p.a.c.P * PAGE_TOKENS && slot >= 0 && slot < p.a.c.S;
    if (there)
        row.range = distance_range(&u, &p, t);
    if (there && u.ancestors)
        row.past = distance_past(&u, t);
    const kv_base kv = KV_BASE;
    global const int *pages = PTR(const int, pages);
    global const float *from = PTR(const float, q) + ((ulong)t * p.a.H + row.head) * p.a.c.dk;
    global const float *sinks = PTR(const float, sinks);
    float sums[(OCL_MAX_HEAD + LANES - 1) / LANES];
    float top = sinks ? sinks[row.head] : -INFINITY;
    float weight = sinks ? 1.0f : 0.0f;
    for (int i = lane; i < (p.a.c.dk + 15) / 16 * 16; i += LANES)
        q[i] = i < p.a.c.dk ? from[i] : 0.0f;
    for (int j = 0; j < (OCL_MAX_HEAD + LANES - 1) / LANES; j++)
        sums[j] = 0;
    SYNC_LOCAL;
    for (int base = row.range.x; base <= row.range.y; base += LANES) {
        const int count = min(LANES, row.range.y - base + 1);
        global const uchar *k = 0;
        float logit = -INFINITY;
        if (lane < count && distance_sees(&u, &p, &row, base + lane))
            k = cached_row(&p.a.c, kv, pages, slot, head_kv, base + lane, false);
        if (k)
            logit = distance_logit(&u, &p, &row, base + lane, k, q);
        const float highest = fmax(top, group_max(logit, red));
        const float zero = highest == -INFINITY ? 0.0f : highest;
        const float shrink = exp(top - zero);
        const float mine = k ? exp(logit - zero) : 0.0f;
        share[lane] = mine;
        weight = weight * shrink + group_sum(mine, red);
        top = highest;
        for (int j = 0; j < (OCL_MAX_HEAD + LANES - 1) / LANES; j++)
            sums[j] *= shrink;
        for (int n = 0; n < count; n++) {
            global const uchar *v = 0;
            if (distance_sees(&u, &p, &row, base + n))
                v = cached_row(&p.a.c, kv, pages, slot, head_kv, base + n, true);
            for (int j = 0; v && lane + j * LANES < p.a.c.dv; j++)
                sums[j] += share[n] * cached_element(v, p.a.c.v_type, lane + j * LANES);
        }
        SYNC_LOCAL;
    }
    global float *y = PTR(float, y) + ((ulong)t * p.a.H + row.head) * p.a.c.dv;
    for (int j = 0; lane + j * LANES < p.a.c.dv; j++)
        y[lane + j * LANES] = there ? sums[j] / weight : 0.0f;
}
