/* state.cl -- CONV_STATE, SSM_SCAN and GATED_DELTA: the rows of a sequence one after the other, in
 * class exact. An item has a channel or a column of a head and all rows of a sequence; neighbouring
 * items have neighbouring columns, and a state lies so that they read together: [W - 1, C], the
 * oldest first; [H, N, P]; [Hv, Dk, Dv]. It stays in memory, in the page that the sequence leaves.
 * Pages lie in up to OCL_KV_PARTS buffers, of which an item chooses once. */
#define STATE_MORE , REF(s1), REF(s2), REF(s3), REF(s4), REF(s5), REF(s6), REF(s7)
#define STATE_BASE                                                                                 \
    {{PTR(char, s0), PTR(char, s1), PTR(char, s2), PTR(char, s3), PTR(char, s4), PTR(char, s5),    \
      PTR(char, s6), PTR(char, s7)}}
typedef struct {
    global char *part[OCL_KV_PARTS];
} state_base;

/* Rows [lo, hi) but for padding; from 0: zeros. */
typedef struct {
    int lo;
    int hi;
    global const float *from;
    global float *to;
} sequence;

static global float *floats_of_page(const ocl_states *s, const state_base *b, int page) {
    const ulong own = (ulong)page / s->part_pages;
    const ulong at = (ulong)page % s->part_pages;
    global char *part = b->part[0];
    for (int i = 1; i < OCL_KV_PARTS; i++)
        part = own == i ? b->part[i] : part;
    return (global float *)(part + at * s->page_bytes + s->layer_at);
}

/* Entry i of SEQS; false: it is unused, or its slot has no page. */
static bool sequence_at(const ocl_states *s, const state_base *b, global const int *seqs,
                        global const int *states, int i, sequence *q) {
    global const int *entry = seqs + 4 * i;
    const int lo = entry[0];
    const int n = entry[1];
    const int slot = entry[2];
    if (lo < 0 || n <= 0 || n > s->T - lo || slot < 0 || slot >= s->S)
        return false;
    const int from = states[2 * slot];
    const int to = states[2 * slot + 1];
    if (to < 0 || (ulong)to >= s->n_pages || (from >= 0 && (ulong)from >= s->n_pages))
        return false;
    q->lo = lo;
    q->hi = lo + n;
    q->from = from < 0 ? 0 : floats_of_page(s, b, from);
    q->to = floats_of_page(s, b, to);
    return true;
}

/* The n numbers of an item, `step` apart, from where the sequence begins to where it ends. */
static void carry(const sequence *q, ulong at, ulong step, int n) {
    for (int i = 0; i < n; i++) {
        const ulong place = at + i * step;
        q->to[place] = q->from ? q->from[place] : 0.0f;
    }
}

/* ---- CONV_STATE ------------------------------------------------------------------------------ */
kernel void conv_state(REF(x), REF(w), REF(bias), REF(row_pos), REF(seqs), REF(states), REF(y),
                       REF(s0) STATE_MORE, const ocl_conv_args p) {
    const state_base base = STATE_BASE;
    global const int *pos = PTR(const int, row_pos);
    global const float *added = PTR(const float, bias);
    const int c = get_global_id(0);
    sequence q;
    if (c >= p.C)
        return;
    if (!sequence_at(&p.s, &base, PTR(const int, seqs), PTR(const int, states), get_global_id(1),
                     &q))
        return;
    global const float *in = PTR(const float, x) + c;
    global const float *weight = PTR(const float, w) + (ulong)c * p.W;
    global float *out = PTR(float, y) + c;
    const int past = p.W - 1;
    float held[OCL_CONV_MOST];
    for (int j = 0; j < past; j++)
        held[j] = q.from ? q.from[(ulong)j * p.C + c] : 0.0f;
    for (int t = q.lo; t < q.hi; t++) {
        if (pos[t] < 0)
            continue;
        float sum = added ? added[c] : 0.0f;
        held[past] = in[(ulong)t * p.C];
        for (int j = 0; j < p.W; j++)
            sum = fma(weight[j], held[j], sum);
        for (int j = 0; j < past; j++)
            held[j] = held[j + 1];
        out[(ulong)t * p.C] = sum;
    }
    for (int j = 0; j < past; j++)
        q.to[(ulong)j * p.C + c] = held[j];
}

/* ---- SSM_SCAN and GATED_DELTA ---------------------------------------------------------------- */
/* ln(1 + e^v). */
static float softplus(float v) {
    const float above = v < 0.0f ? 0.0f : v;
    if (isnan(v))
        return v;
    return above + log1p(exp(-fabs(v)));
}

/* factor / length. Squares that leave the range of f32 are summed again, smaller. */
static float over_length(global const float *v, int n, float eps, float factor) {
    float sum = 0;
    float top = 0;
    if (eps == 0.0f)
        return factor;
    for (int i = 0; i < n; i++)
        sum = fma(v[i], v[i], sum);
    if (!isinf(sum))
        return factor / sqrt(sum + eps);
    for (int i = 0; i < n; i++)
        top = fmax(top, fabs(v[i]));
    sum = 0;
    for (int i = 0; i < n; i++)
        sum = fma(v[i] / top, v[i] / top, sum);
    return factor / top / sqrt(sum);
}

/* What an item reads in each row. */
typedef struct {
    global const float *rows;
    global const float *step;
    global const float *beta; /* 0: SSM_SCAN */
    global const float *bias;
    float rate;
    float pass;
    int head;
    int group;
    int column; /* among those of all heads */
} column_refs;

/* The size of a step, of element i where each has its own. */
static float step_size(const column_refs *u, const ocl_scan_args *p, int t, int i) {
    const ulong row = (ulong)t * p->H + u->head;
    float size;
    if (p->each)
        return softplus(u->step[row * p->n + i] + u->bias[u->head * p->n + i]);
    size = softplus(u->step[row] + u->bias[u->head]);
    size = size < p->dt_min ? p->dt_min : size;
    return p->dt_max != 0.0f && size > p->dt_max ? p->dt_max : size;
}

/* Row t of a column, whose numbers are `dim` apart; returns y. */
static float advance(const column_refs *u, const ocl_scan_args *p, int t, global float *s) {
    global const float *row = u->rows + (ulong)t * p->width;
    global const float *write = row + p->write_at + u->group * p->n;
    global const float *read = row + p->read_at + u->group * p->n;
    const float x = row[p->x_at + u->column];
    const float size = p->each ? 0.0f : step_size(u, p, t, 0);
    const float decay = exp(size * u->rate);
    float write_by = 1.0f;
    float add = size * x;
    float sum = 0;
    if (u->beta) {
        const float beta = u->beta[(ulong)t * p->H + u->head];
        float known = 0;
        write_by = over_length(write, p->n, p->eps, 1.0f);
        for (int i = 0; i < p->n; i++) {
            const float of_each = p->each ? exp(step_size(u, p, t, i) * u->rate) : decay;
            const float kept = of_each * s[(ulong)i * p->dim];
            s[(ulong)i * p->dim] = kept;
            known = fma(kept, write[i], known);
        }
        add = p->beta_scale / (1.0f + exp(-beta)) * (x - write_by * known);
    }
    add *= write_by;
    for (int i = 0; i < p->n; i++) {
        const float kept = u->beta ? s[(ulong)i * p->dim] : decay * s[(ulong)i * p->dim];
        const float next = fma(write[i], add, kept);
        s[(ulong)i * p->dim] = next;
        sum = fma(next, read[i], sum);
    }
    if (u->beta)
        return sum * over_length(read, p->n, p->eps, p->scale);
    return fma(u->pass, x, sum);
}

kernel void scan_state(REF(rows), REF(step), REF(beta), REF(a), REF(bias), REF(d), REF(row_pos),
                       REF(seqs), REF(states), REF(y), REF(s0) STATE_MORE, const ocl_scan_args p) {
    const state_base base = STATE_BASE;
    global const int *pos = PTR(const int, row_pos);
    global const float *through = PTR(const float, d);
    const int column = get_global_id(0);
    const int head = column / p.dim;
    sequence q;
    if (column >= p.H * p.dim)
        return;
    if (!sequence_at(&p.s, &base, PTR(const int, seqs), PTR(const int, states), get_global_id(1),
                     &q))
        return;
    column_refs u = {PTR(const float, rows), PTR(const float, step), PTR(const float, beta),
                     PTR(const float, bias)};
    u.rate = PTR(const float, a)[head];
    if (p.a_log)
        u.rate = -exp(u.rate);
    u.pass = through ? through[head] : 0.0f;
    u.head = head;
    u.group = p.in_turn ? head % p.G : head / (p.H / p.G);
    u.column = column;
    const ulong at = (ulong)head * p.n * p.dim + column % p.dim;
    global float *out = PTR(float, y) + column;
    carry(&q, at, p.dim, p.n);
    for (int t = q.lo; t < q.hi; t++)
        if (pos[t] >= 0)
            out[(ulong)t * p.H * p.dim] = advance(&u, &p, t, q.to + at);
}
