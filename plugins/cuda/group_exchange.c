/* group_exchange.c -- what the members of a group do with each other between two units: over peer
 * memory kernels of k_group.cu alone; without it NCCL brings rows of the others into `arrivals`,
 * memory of the context, and a kernel of this card adds them or puts them side by side. Sums are
 * added in the order of ranks either way, and give the same bits.
 *
 * A small sum goes in one round: every member sends all to all. A large one goes in two: each
 * member has a part from all others, adds it, and sends the sum to all. What is larger than
 * `arrivals` goes in slabs. */
#include "group_step.h"

/* Floats of a slab of large sums and of gathered rows; bytes behind it, since parts of a sum are
 * rounded up to four floats. */
enum { SLAB = 4 << 20, ROUNDED = CU_MAX_MEMBERS * 16 };

/* ---- room ------------------------------------------------------------------------------------ */
static uint64_t mailbox_bytes(const cu_group *g) {
    return sizeof(cu_mailbox) + 2 * g->n * (g->small / sizeof(float)) * sizeof(uint64_t);
}

static uint64_t arrival_bytes(const cu_group *g) {
    const uint64_t whole = g->n * g->small;
    const uint64_t slab = (uint64_t)SLAB * sizeof(float) + ROUNDED;
    if (whole > slab)
        return whole;
    return slab;
}

uint64_t cu_exchange_bytes(const cu_group *g) {
    uint64_t bytes = 0;
    if (g->peers)
        bytes += mailbox_bytes(g);
    if (g->nccl)
        bytes += arrival_bytes(g);
    return bytes;
}

static mn_status make_mailbox(cu_group_context *c, uint32_t rank, mn_error *err) {
    const uint64_t bytes = mailbox_bytes(cu_group_of_context(c));
    mn_status st = cu_check_room(cudaMalloc((void **)&c->mail[rank], bytes), bytes, err,
                                 "mailboxes of a group");
    if (!st)
        st = cu_check(cudaMemset(c->mail[rank], 0, bytes), err, "mailboxes of a group");
    if (!st)
        st = cu_check(cudaStreamSynchronize(0), err, "mailboxes of a group");
    return st;
}

mn_status cu_exchange_room(cu_group_context *c, uint32_t rank, mn_error *err) {
    const cu_group *g = cu_group_of_context(c);
    const uint64_t bytes = arrival_bytes(g);
    mn_status st = cu_choose_member(g, rank, err);
    if (!st && g->peers)
        st = make_mailbox(c, rank, err);
    if (!st && g->nccl)
        st = cu_check_room(cudaMalloc((void **)&c->arrivals[rank], bytes), bytes, err,
                           "what members of a group send");
    return st;
}

void cu_exchange_room_free(cu_group_context *c, uint32_t rank) {
    if (c->mail[rank])
        cudaFree(c->mail[rank]);
    if (c->arrivals[rank])
        cudaFree(c->arrivals[rank]);
}

/* Where a tensor lies on a member that is here. */
static float *data_of(const cu_joint_step *s, uint32_t rank, uint32_t tensor) {
    return cu_f32(&s->run[rank], tensor);
}

/* ---- sums ------------------------------------------------------------------------------------ */
static cu_exchange exchange_of(const cu_joint_step *s, uint32_t rank) {
    cu_exchange e = {0};
    for (uint32_t r = 0; r < s->g->n; r++)
        e.mail[r] = s->c->mail[r];
    e.missed = &s->g->missed[rank];
    e.rank = rank;
    e.n = s->g->n;
    e.index = s->n_exchanges;
    e.one_card = s->g->one_card;
    e.room = (int64_t)(s->g->small / sizeof(float));
    return e;
}

/* Where a sum goes on member `rank`: to what adds to it, if its exchange does that. */
static float *sum_to(const cu_joint_step *s, uint32_t k, uint32_t rank, const mnp_exchange *e,
                     const float **add) {
    const mng_run *r = &s->run[rank];
    const int32_t unit = r->p->stops[k].add;
    *add = NULL;
    if (unit < 0)
        return cu_f32(r, e->to);
    const mn_node *n = mnp_node(r->g, r->p->base.units[unit].node);
    const int32_t a = mnp_in(r->g, n, 0);
    *add = cu_f32(r, a == (int32_t)e->to ? mnp_in(r->g, n, 1) : a);
    return cu_out_f32(r, n, 0);
}

static mn_status sum_by_peers(cu_joint_step *s, uint32_t k, const mnp_exchange *e, int64_t n,
                              bool small, mn_error *err) {
    cu_sum a = {0};
    a.n = n;
    for (uint32_t r = 0; r < s->g->n; r++) {
        a.x[r] = data_of(s, r, e->from);
        a.y[r] = sum_to(s, k, r, e, &a.add);
    }
    for (uint32_t r = 0; r < s->g->n; r++) {
        const mn_status st = cu_choose_member(s->g, r, err);
        if (st)
            return st;
        a.e = exchange_of(s, r);
        sum_to(s, k, r, e, &a.add);
        if (small)
            cu_sum_words(s->run[r].step->stream, &a);
        else
            cu_sum_parts(s->run[r].step->stream, &a);
    }
    s->n_exchanges++;
    return MN_OK;
}

/* One exchange of all members that are here, on their streams. */
static mn_status swap(const cu_joint_step *s, const cu_parcels *parcels, mn_error *err) {
    cudaStream_t streams[CU_MAX_MEMBERS];
    CU_EACH_MEMBER (s->g, r, true)
        streams[r] = s->run[r].step->stream;
    return cu_nccl_swap(s->g, parcels, streams, err);
}

/* Elements [lo, hi) of a sum of n, which member `rank` adds up. */
static mnp_share part_of(const cu_group *g, int64_t n, uint32_t rank) {
    const int64_t quads = (n + 3) / 4;
    mnp_share part;
    part.lo = quads * rank / g->n * 4;
    part.hi = quads * (rank + 1) / g->n * 4;
    if (part.hi > n)
        part.hi = n;
    if (part.lo > part.hi)
        part.lo = part.hi;
    return part;
}

/* A slab of a sum on each member: x from `first` on, n elements. */
typedef struct {
    uint32_t k;
    const mnp_exchange *e;
    int64_t first, n;
} slab;

/* Adds [part.lo, part.hi) of the slab: rows of the others lie `pitch` apart in `arrivals`. */
static mn_status add_rows(const cu_joint_step *s, const slab *b, uint32_t rank, mnp_share part,
                          int64_t pitch, mn_error *err) {
    const mng_run *run = &s->run[rank];
    const int64_t at = b->first + part.lo;
    cu_sum a = {0};
    for (uint32_t r = 0; r < s->g->n; r++)
        a.x[r] = s->c->arrivals[rank] + r * pitch;
    a.x[rank] = data_of(s, rank, b->e->from) + at;
    a.y[rank] = sum_to(s, b->k, rank, b->e, &a.add) + at;
    a.add = a.add ? a.add + at : NULL;
    a.n = part.hi - part.lo;
    a.e.n = s->g->n;
    a.e.rank = rank;
    const mn_status st = cu_choose_member(s->g, rank, err);
    if (!st && a.n)
        cu_sum_rows(run->step->stream, &a);
    return st;
}

static mn_status sum_whole(const cu_joint_step *s, const slab *b, mn_error *err) {
    cu_parcels parcels[CU_MAX_MEMBERS] = {0};
    const cu_group *g = s->g;
    CU_EACH_MEMBER (g, r, true) {
        const float *x = data_of(s, r, b->e->from) + b->first;
        for (uint32_t to = 0; to < g->n; to++) {
            cu_parcel *p = &parcels[r].of[to];
            p->from = x;
            p->to = s->c->arrivals[r] + to * b->n;
            p->n_from = b->n;
            p->n_to = b->n;
        }
    }
    mn_status st = swap(s, parcels, err);
    CU_EACH_MEMBER (g, r, !st)
        st = add_rows(s, b, r, (mnp_share){0, b->n}, b->n, err);
    return st;
}

/* What member `rank` exchanges before it adds its part, and behind that. */
static void name_parts(const cu_joint_step *s, const slab *b, uint32_t rank, cu_parcels *parts,
                       cu_parcels *sums) {
    const cu_group *g = s->g;
    const float *add;
    const float *x = data_of(s, rank, b->e->from) + b->first;
    float *y = sum_to(s, b->k, rank, b->e, &add) + b->first;
    const mnp_share own = part_of(g, b->n, rank);
    const int64_t n_own = own.hi - own.lo;
    for (uint32_t to = 0; to < g->n; to++) {
        const mnp_share part = part_of(g, b->n, to);
        cu_parcel *p = &parts->of[to];
        p->from = x + part.lo;
        p->to = s->c->arrivals[rank] + to * n_own;
        p->n_from = part.hi - part.lo;
        p->n_to = n_own;
        p = &sums->of[to];
        p->from = y + own.lo;
        p->to = y + part.lo;
        p->n_from = n_own;
        p->n_to = part.hi - part.lo;
    }
}

static mn_status sum_in_parts(const cu_joint_step *s, const slab *b, mn_error *err) {
    cu_parcels parts[CU_MAX_MEMBERS] = {0};
    cu_parcels sums[CU_MAX_MEMBERS] = {0};
    const cu_group *g = s->g;
    CU_EACH_MEMBER (g, r, true)
        name_parts(s, b, r, &parts[r], &sums[r]);
    mn_status st = swap(s, parts, err);
    CU_EACH_MEMBER (g, r, !st) {
        const mnp_share own = part_of(g, b->n, r);
        st = add_rows(s, b, r, own, own.hi - own.lo, err);
    }
    if (st)
        return st;
    return swap(s, sums, err);
}

static mn_status sum_by_nccl(const cu_joint_step *s, uint32_t k, const mnp_exchange *e, int64_t n,
                             bool small, mn_error *err) {
    mn_status st = MN_OK;
    for (int64_t at = 0; at < n && !st; at += SLAB) {
        slab b = {k, e, at, n - at};
        if (b.n > SLAB)
            b.n = SLAB;
        st = small ? sum_whole(s, &b, err) : sum_in_parts(s, &b, err);
    }
    return st;
}

static mn_status sum(cu_joint_step *s, uint32_t k, const mnp_exchange *e, mn_error *err) {
    const int64_t n = mng_elements(&s->run[s->g->lo], e->to);
    const bool small = n * (int64_t)sizeof(float) <= (int64_t)s->g->small;
    if (!n)
        return MN_OK;
    if (!s->g->peers || (s->g->nccl && !small))
        return sum_by_nccl(s, k, e, n, small, err);
    return sum_by_peers(s, k, e, n, small, err);
}

/* ---- columns --------------------------------------------------------------------------------- */
/* Of a tensor that is divided along dim: its rows, and what member `rank` has of each. Sizes are
 * those of a member that is here. */
static cu_columns columns_of(const cu_joint_step *s, uint32_t rank, const mnp_exchange *e) {
    const mng_run *r = &s->run[s->g->lo];
    const bool gathers = e->kind == MNP_GATHER;
    const int32_t whole = (int32_t)(gathers ? e->to : e->from);
    const mnp_share share = mnp_shard_share(s->plan, gathers ? e->from : e->to, rank);
    const uint32_t n_dim = mnp_tensor(r->g, whole)->n_dim;
    int64_t inner = 1;
    cu_columns c = {1, 0, 0, 0};
    for (uint32_t i = 0; i < e->dim; i++)
        c.rows *= mng_dim(r, whole, i);
    for (uint32_t i = e->dim + 1; i < n_dim; i++)
        inner *= mng_dim(r, whole, i);
    c.first = share.lo * inner;
    c.width = (share.hi - share.lo) * inner;
    c.pitch = mng_dim(r, whole, e->dim) * inner;
    return c;
}

static mn_status gather_by_peers(cu_joint_step *s, const mnp_exchange *e, mn_error *err) {
    cu_gather_parts a = {0};
    for (uint32_t r = 0; r < s->g->n; r++)
        a.y[r] = data_of(s, r, e->to);
    for (uint32_t r = 0; r < s->g->n; r++) {
        const mn_status st = cu_choose_member(s->g, r, err);
        if (st)
            return st;
        a.e = exchange_of(s, r);
        a.x = data_of(s, r, e->from);
        a.c = columns_of(s, r, e);
        cu_gather_run(s->run[r].step->stream, &a);
    }
    s->n_exchanges++;
    return MN_OK;
}

/* Rows [from, from + c->rows) of a piece, which lie dense, become columns of `to`. */
static mn_status put_columns(cudaStream_t stream, float *to, const float *piece,
                             const cu_columns *c, mn_error *err) {
    const size_t width = (size_t)c->width * sizeof(float);
    const size_t pitch = (size_t)c->pitch * sizeof(float);
    return cu_check(cudaMemcpy2DAsync(to + c->first, pitch, piece, width, width, (size_t)c->rows,
                                      cudaMemcpyDeviceToDevice, stream),
                    err, "gathering");
}

/* Rows [row, row + n) of a gathered tensor, on member `rank`: what it sends of its own, and where
 * the others' pieces arrive. A row alone goes to its place at once. */
static void name_pieces(const cu_joint_step *s, const mnp_exchange *e, uint32_t rank, int64_t row,
                        int64_t n, cu_parcels *out) {
    const cu_columns own = columns_of(s, rank, e);
    const float *x = data_of(s, rank, e->from) + row * own.width;
    float *y = data_of(s, rank, e->to) + row * own.pitch;
    for (uint32_t from = 0; from < s->g->n; from++) {
        const cu_columns c = columns_of(s, from, e);
        cu_parcel *p = &out->of[from];
        p->from = x;
        p->to = s->c->arrivals[rank] + n * c.first;
        p->n_from = n * own.width;
        p->n_to = n * c.width;
        if (n == 1)
            p->to = y + c.first;
    }
}

/* The pieces, own one included, to their columns. */
static mn_status put_pieces(const cu_joint_step *s, const mnp_exchange *e, uint32_t rank,
                            int64_t row, int64_t n, const cu_parcels *pieces, mn_error *err) {
    const mng_run *run = &s->run[rank];
    mn_status st = cu_choose_member(s->g, rank, err);
    for (uint32_t from = 0; from < s->g->n && !st; from++) {
        const cu_parcel *p = &pieces->of[from];
        const float *piece = from == rank ? p->from : p->to;
        cu_columns c = columns_of(s, from, e);
        float *y = data_of(s, rank, e->to) + row * c.pitch;
        c.rows = n;
        if (piece != y + c.first)
            st = put_columns(run->step->stream, y, piece, &c, err);
    }
    return st;
}

static mn_status gather_rows(const cu_joint_step *s, const mnp_exchange *e, int64_t row, int64_t n,
                             mn_error *err) {
    cu_parcels pieces[CU_MAX_MEMBERS] = {0};
    CU_EACH_MEMBER (s->g, r, true)
        name_pieces(s, e, r, row, n, &pieces[r]);
    mn_status st = swap(s, pieces, err);
    CU_EACH_MEMBER (s->g, r, !st)
        st = put_pieces(s, e, r, row, n, &pieces[r], err);
    return st;
}

static mn_status gather_by_nccl(const cu_joint_step *s, const mnp_exchange *e, mn_error *err) {
    const cu_columns c = columns_of(s, s->g->lo, e);
    const int64_t fit = SLAB / c.pitch;
    mn_status st = MN_OK;
    for (int64_t row = 0, n; row < c.rows && !st; row += n) {
        n = c.rows - row;
        if (n > fit)
            n = fit > 1 ? fit : 1;
        st = gather_rows(s, e, row, n, err);
    }
    return st;
}

static mn_status gather(cu_joint_step *s, const mnp_exchange *e, mn_error *err) {
    if (!mng_elements(&s->run[s->g->lo], e->to))
        return MN_OK;
    if (s->g->peers)
        return gather_by_peers(s, e, err);
    return gather_by_nccl(s, e, err);
}

static mn_status take_columns(const cu_joint_step *s, const mnp_exchange *e, mn_error *err) {
    CU_EACH_MEMBER (s->g, r, true) {
        cu_take a = {0};
        const mn_status st = cu_choose_member(s->g, r, err);
        if (st)
            return st;
        a.x = data_of(s, r, e->from);
        a.y = data_of(s, r, e->to);
        a.c = columns_of(s, r, e);
        if (a.c.rows)
            cu_take_run(s->run[r].step->stream, &a);
    }
    return MN_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */
bool cu_is_exchanged(const cu_joint_step *s, const mnp_exchange *e) {
    const mng_run *r = &s->run[s->g->lo];
    return cu_ptr(r, e->from) && cu_ptr(r, e->to);
}

mn_status cu_launch_exchange(cu_joint_step *s, uint32_t k, const mnp_exchange *e, mn_error *err) {
    mn_status st = MN_OK;
    if (!cu_is_exchanged(s, e))
        return MN_OK;
    if (e->kind == MNP_SUM)
        st = sum(s, k, e, err);
    else if (e->kind == MNP_GATHER)
        st = gather(s, e, err);
    else
        st = take_columns(s, e, err);
    if (st)
        return st;
    return cu_check(cudaPeekAtLastError(), err, "an exchange of the group");
}

mn_status cu_end_exchanges(const cu_joint_step *s, mn_error *err) {
    mn_status st = MN_OK;
    for (uint32_t r = s->g->lo; r < s->g->hi && !st && s->n_exchanges; r++) {
        st = cu_choose_member(s->g, r, err);
        if (!st)
            cu_count_exchanges(s->run[r].step->stream, s->c->mail[r], s->n_exchanges);
    }
    return st;
}
