/* step.cl -- a part of a step as one kernel: its groups, one on each compute unit and all running
 * at once, go through a list of operations together and meet after each, which costs less than a
 * kernel of its own. The plugin puts the sources of the operations in front, those of weight types
 * once for each type of the model, and defines STEP_WARPS (warps of a group), STEP_PER (of 32
 * elements of a head), STEP_TILES (there are products on tensor cores) and EACH_TYPE, EACH_TILE:
 * X(row of the types' table, type), the latter of those on tensor cores. */
enum { OP_WORDS = sizeof(ocl_step_op) / 4, POOL = 40960 / 16, AHEAD = 3 };

/* What a group knows: room of 16-byte words, used by one operation at a time; its number and how
 * many there are. */
typedef struct {
    local float4 *pool;
    local float *red;
    local float *sums;
    local int *count;
    local uint *top;
    int me;
    int n;
} group;

#define REF_OF(T, i) ((global T *)op->refs[i].at)
#define ARGS_OF(T) ((local const T *)op->args)

/* The first of n groups of an operation that begins at group `begin`. */
static int first_of(const group *g, int begin) {
    return g->me >= begin ? g->me - begin : g->me - begin + g->n;
}

/* Groups that share a row of products; that row and the part of one, of group v. One row has no
 * division, which takes as long as a memory access. */
static int row_groups(const group *g, local const ocl_step_op *op) {
    return op->n[0] == 1 ? g->n : max(1, g->n / op->n[0]);
}
static int row_of(int v, int rows) {
    return rows == 1 ? 0 : v % rows;
}
static int part_of(int v, int rows) {
    return rows == 1 ? v : v / rows;
}

#define RESULTS(g) ((local float2 *)((g)->pool + QUADS + ZEROS))
typedef char pool_holds_results[POOL * 16 >= (QUADS + ZEROS) * 16 + ITEMS * 8 ? 1 : -1];

/* turns: the operation behind, if this one does its work, too. */
INLINED void run_products(const group *g, local const ocl_step_op *op,
                         local const ocl_step_op *turns, under_way *way, bool asked) {
    const stage_room room = {g->pool, g->red, g->sums, RESULTS(g), turns, g->top};
    const int rows = op->n[0];
    const int parts = row_groups(g, op);
    for (int v = g->me; v < rows * parts; v += g->n) {
        switch (op->type) {
#define PRODUCTS(i, type)                                                                          \
    case i:                                                                                        \
        NAME(row_products, type)                                                                   \
        (op, row_of(v, rows), part_of(v, rows), parts, room, way, asked && v == g->me);            \
        break;
            EACH_TYPE(PRODUCTS)
        }
    }
}

/* The operation behind products, if these do its work, too; 0: they do not. */
static local const ocl_step_op *turns_of(local const ocl_step_op *behind) {
    return behind && behind->what == OCL_STEP_TURNED ? behind : 0;
}

static attend_refs attend_refs_of(local const ocl_step_op *op) {
    const attend_refs u = {REF_OF(const float, 0), REF_OF(const int, 1), REF_OF(const int, 2),
                           REF_OF(const int, 3),   REF_OF(uchar, 4),     REF_OF(const float, 5),
                           REF_OF(float, 6),       REF_OF(const float, 7)};
    return u;
}

/* The first weights of an operation, which no other makes, before its turn; false: there are none.
 * Of experts nobody knows yet whose. turns: as in run_products. */
INLINED bool ask_ahead(const group *g, local const ocl_step_op *op, local const ocl_step_op *turns,
                      under_way *way) {
    const int rows = op->n[0];
    const int parts = row_groups(g, op);
#ifdef PTX
    if (op->what == OCL_STEP_ATTEND && g->me < op->n[0] * op->n[1]) {
        const attend_refs u = attend_refs_of(op);
        ask_kept(&u, ARGS_OF(ocl_attend_args), g->me % op->n[0], g->me / op->n[0]);
    }
    if (op->what == OCL_STEP_PRODUCTS && op->refs[IN_NORM].at)
        for (int i = 32 * GROUP_ITEM; i < ARGS_OF(ocl_warp_args)->K; i += 32 * ITEMS)
            asm volatile("prefetch.global.L2 [%0];" : : "l"(REF_OF(float, IN_NORM) + i));
#endif
    if (op->what != OCL_STEP_PRODUCTS || op->refs[IN_EXPERTS].at || g->me >= rows * parts) {
        const under_way none = {0}; /* so that no register is held for them */
        *way = none;
        return false;
    }
    switch (op->type) {
#define ASK_FIRST(i, type)                                                                         \
    case i:                                                                                        \
        NAME(ask_row, type)                                                                        \
        (op, turns, row_of(g->me, rows), part_of(g->me, rows), parts, way);                        \
        break;
        EACH_TYPE(ASK_FIRST)
    }
    return true;
}

/* Whether 32 outputs go together, so that a row is read for twice as many: where units of 16 are
 * enough for two of each group. */
static bool is_wide(const group *g, local const ocl_step_op *op) {
    return op->what == OCL_STEP_FEW && op->n[0] * op->n[1] >= 2 * g->n;
}

/* How many groups an operation has work for, by its own kernel's count. */
static int units_of(const group *g, local const ocl_step_op *op) {
    return is_wide(g, op) ? (op->n[0] + 1) / 2 * op->n[1] : op->n[0] * op->n[1];
}

#if defined PTX && defined STEP_TILES
/* The rows of w of 16 or 32 outputs. */
static void ask_tile(global const uchar *w, ARGS ocl_linear_args *p, int first, int n) {
    const int lines = (int)(p->w.row_bytes + 127) / 128;
    for (int i = GROUP_ITEM; i < n * lines; i += ITEMS) {
        const long row = min(first + i / lines, p->N - 1);
        asm volatile("prefetch.global.L2 [%0];"
                     :
                     : "l"(w + row * (long)p->w.row_bytes + 128 * (i % lines)));
    }
}

static void run_few(const group *g, local const ocl_step_op *op, int begin) {
    const product_refs u = {REF_OF(const float, 0), REF_OF(const int, 1),   REF_OF(const uchar, 2),
                            REF_OF(const float, 3), REF_OF(const float, 4), REF_OF(float, 5)};
    const few_room room = {g->pool, (local int *)(g->pool + WARPS * TILES * 32), g->count};
    local const ocl_linear_args *p = ARGS_OF(ocl_linear_args);
    const bool wide = is_wide(g, op);
    const int across = wide ? (op->n[0] + 1) / 2 : op->n[0];
    const int outputs = wide ? 32 : 16;
    const int units = units_of(g, op);
    for (int v = first_of(g, begin); v < units; v += g->n) {
        const int gx = v % across;
        const int gy = v / across;
        if (v + g->n < units)
            ask_tile(u.w, p, outputs * ((v + g->n) % across), outputs);
        switch (op->type) {
#define FEW(i, type)                                                                               \
    case i:                                                                                        \
        if (wide)                                                                                  \
            NAME(products_few_wide, type)(&u, p, gx, gy, room);                                    \
        else                                                                                       \
            NAME(products_few, type)(&u, p, gx, gy, room);                                         \
        break;
            EACH_TILE(FEW)
        }
    }
}

#endif

static void run_attend(const group *g, local const ocl_step_op *op, int heads) {
    const int parts = STEP_PER == 2 ? 2 * WARPS : WARPS;
    local float *values = (local float *)g->pool;
    local float *tops = values + parts * heads * 32 * STEP_PER;
    const attend_refs u = attend_refs_of(op);
    const attend_room room = {g->red, values, tops, tops + parts * heads, tops + 2 * parts * heads};
    local const ocl_attend_args *p = ARGS_OF(ocl_attend_args);
    for (int v = g->me; v < op->n[0] * op->n[1]; v += g->n) {
        const int head = v % op->n[0] * heads;
        const int t = v / op->n[0];
#if STEP_PER <= 4
        const bool quads = by_quads(&p->c, 32 * STEP_PER);
#ifdef PTX
        if (quads && heads == 4) {
            attend_quads_four(&u, p, head, t, room);
            continue;
        }
#endif
        if (quads) {
            attend_quads(&u, p, head, t, room);
            continue;
        }
#endif
        for (int h = 0; h < heads; h++)
            attend_one(&u, p, head + h, t, room);
    }
}

/* Pairs of 32 by warps. */
static void run_rope_store(const group *g, local const ocl_step_op *op) {
    const store_refs u = refs_of_store(op);
    const int across = op->n[0];
    const int heads = op->n[1];
    const int total = across * heads * op->n[2];
    for (int v = get_local_id(1) * g->n + g->me; v < total; v += WARPS * g->n)
        rope_store_pair(&u, ARGS_OF(ocl_store_args), 32 * (v % across) + get_local_id(0),
                        v / across % heads, v / across / heads);
}

static void run_norm(const group *g, local const ocl_step_op *op) {
    local const ocl_norm_args *p = ARGS_OF(ocl_norm_args);
    for (int v = g->me; v < op->n[0]; v += g->n) {
        const ulong at = (ulong)v * p->D;
        const ulong own = (ulong)(v % p->w_rows) * p->n;
        norm_row(REF_OF(const float, 0) + at, REF_OF(const float, 1) + own, REF_OF(float, 2) + at,
                 p, g->red);
    }
}

static void run_elements(const group *g, local const ocl_step_op *op) {
    local const ocl_elementwise_args *p = ARGS_OF(ocl_elementwise_args);
    global const float *a = REF_OF(const float, 0);
    global const float *b = REF_OF(const float, 1);
    global float *y = REF_OF(float, 2);
    for (ulong i = g->me * ITEMS + GROUP_ITEM; i < p->n; i += g->n * ITEMS)
        y[i] = element_of(p, a[i], second_of(p, b, i));
}

static void run_gather(const group *g, local const ocl_step_op *op) {
    local const ocl_gather_args *p = ARGS_OF(ocl_gather_args);
    for (int v = g->me; v < op->n[0]; v += g->n)
        gather_row(REF_OF(const float, 0), REF_OF(const int, 1)[v],
                   REF_OF(float, 2) + (ulong)v * p->D, p);
}

#ifdef STEP_EXPERTS
static void run_route(const group *g, local const ocl_step_op *op) {
    const route_refs u = {REF_OF(const float, 0), REF_OF(const float, 1), REF_OF(int, 2),
                          REF_OF(float, 3)};
    local ulong *red64 = (local ulong *)g->pool;
    local float *score = (local float *)(red64 + ITEMS);
    local float *pick = score + OCL_MAX_EXPERTS;
    const route_room room = {g->red, red64, score, pick, pick + OCL_MAX_EXPERTS};
    for (int v = g->me; v < op->n[0]; v += g->n)
        route_token(&u, ARGS_OF(ocl_route_args), v, room);
}

static void run_combine(const group *g, local const ocl_step_op *op) {
    local const ocl_combine_args *p = ARGS_OF(ocl_combine_args);
    global const float *add = REF_OF(const float, 2);
    for (ulong i = g->me * ITEMS + GROUP_ITEM; i < p->n; i += g->n * ITEMS) {
        const float sum = combined(p, REF_OF(const float, 0), REF_OF(const float, 1), i);
        REF_OF(float, 3)[i] = add ? sum + add[i] : sum;
    }
}
#endif

/* way, asked: what ask_ahead asked for. */
INLINED void run(const group *g, local const ocl_step_op *op, local const ocl_step_op *behind,
                int begin, under_way *way, bool asked) {
    switch (op->what) {
    case OCL_STEP_PRODUCTS:
        run_products(g, op, turns_of(behind), way, asked);
        break;
#if defined PTX && defined STEP_TILES
    case OCL_STEP_FEW:
        run_few(g, op, begin);
        break;
#endif
    case OCL_STEP_ATTEND:
        run_attend(g, op, 1);
        break;
#if STEP_PER <= 4 && defined PTX
    case OCL_STEP_ATTEND_FOUR:
        run_attend(g, op, 4);
        break;
#endif
    case OCL_STEP_ROPE_STORE:
        run_rope_store(g, op);
        break;
    case OCL_STEP_RMS_NORM:
        run_norm(g, op);
        break;
    case OCL_STEP_ELEMENTWISE:
        run_elements(g, op);
        break;
    case OCL_STEP_GATHER:
        run_gather(g, op);
        break;
#ifdef STEP_EXPERTS
    case OCL_STEP_ROUTE:
        run_route(g, op);
        break;
    case OCL_STEP_COMBINE:
        run_combine(g, op);
        break;
#endif
    }
}

/* The word of operation i of the plan that an item brings into local memory. */
static uint word_of(global const ocl_step_op *plan, int i) {
    return GROUP_ITEM < OP_WORDS ? ((global const uint *)(plan + i))[GROUP_ITEM] : 0;
}
static void keep_word(local ocl_step_op *to, uint word) {
    if (GROUP_ITEM < OP_WORDS)
        ((local uint *)to)[GROUP_ITEM] = word;
}

/* Operands become addresses, 0: absent. */
static void find_refs(local ocl_step_op *op, local const ulong *mems) {
    if (GROUP_ITEM >= OCL_STEP_REFS)
        return;
    local ocl_step_ref *ref = &op->refs[GROUP_ITEM];
    ref->at = ref->at == OCL_ABSENT ? 0 : mems[ref->mem] + ref->at;
}

/* All groups arrive, then wait for all: what each wrote before it arrived can be read behind that.
 * arrived: how many have come to this place and to those before it, modulo 2^32. */
static void arrive(const group *g, global uint *arrived) {
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
#ifdef PTX
    if (GROUP_ITEM == 0 && g->n > 1)
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"(arrived) : "memory");
#endif
}

/* all: what `arrived` is when the last is here. */
static void wait_for_all(const group *g, global uint *arrived, uint all) {
#ifdef PTX
    if (g->n == 1)
        return;
    if (GROUP_ITEM == 0) {
        uint now;
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(now)
                         : "l"(arrived)
                         : "memory");
        while ((int)(now - all) < 0);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
#endif
}

/* The plugin defines STEP_MEMS, how many buffers a kernel has, and EACH_8: X(digit), one for each 8
 * of them. */
#define MEMS8(g)                                                                                   \
    , global char *m##g##_0, global char *m##g##_1, global char *m##g##_2, global char *m##g##_3,  \
        global char *m##g##_4, global char *m##g##_5, global char *m##g##_6, global char *m##g##_7
#define KEEP8(g)                                                                                   \
    mems[8 * g] = (ulong)m##g##_0;                                                                 \
    mems[8 * g + 1] = (ulong)m##g##_1;                                                             \
    mems[8 * g + 2] = (ulong)m##g##_2;                                                             \
    mems[8 * g + 3] = (ulong)m##g##_3;                                                             \
    mems[8 * g + 4] = (ulong)m##g##_4;                                                             \
    mems[8 * g + 5] = (ulong)m##g##_5;                                                             \
    mems[8 * g + 6] = (ulong)m##g##_6;                                                             \
    mems[8 * g + 7] = (ulong)m##g##_7;

kernel __attribute__((reqd_work_group_size(32, WARPS, 1))) void
run_step(global const ocl_step_op *plan, global uint *arrived, const uint came,
         const int n_ops EACH_8(MEMS8)) {
    local float4 pool[POOL];
    local float red[ITEMS];
    local float4 sums4[WARPS / 4];
    local float *sums = (local float *)sums4;
    local int count;
    local uint top;
    local ulong mems[STEP_MEMS];
    local ocl_step_op ops[AHEAD + 1];
    if (GROUP_ITEM == 0) {
        EACH_8(KEEP8)
        top = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < AHEAD && i < n_ops; i++)
        keep_word(&ops[i], word_of(plan, i));
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i + 1 < AHEAD && i < n_ops; i++)
        find_refs(&ops[i], mems);
    barrier(CLK_LOCAL_MEM_FENCE);
    const group g = {pool, red, sums, &count, &top, get_group_id(0), get_num_groups(0)};
    int begin = 0;
    uint all = came;
    under_way way;
    bool asked = false;
    for (int i = 0; i < n_ops; i++) {
        local const ocl_step_op *op = &ops[i % (AHEAD + 1)];
        const uint fetched = i + AHEAD < n_ops ? word_of(plan, i + AHEAD) : 0;
        if (i + AHEAD - 1 < n_ops)
            find_refs(&ops[(i + AHEAD - 1) % (AHEAD + 1)], mems);
        local const ocl_step_op *behind = i + 1 < n_ops ? &ops[(i + 1) % (AHEAD + 1)] : 0;
        run(&g, op, behind, begin, &way, asked);
        if (i + AHEAD < n_ops) /* where the one before was: all have left it */
            keep_word(&ops[(i + AHEAD) % (AHEAD + 1)], fetched);
        if (!behind)
            break;
        begin = behind->beside ? (begin + units_of(&g, op)) % g.n : 0;
        if (behind->beside)
            barrier(CLK_LOCAL_MEM_FENCE);
        else
            arrive(&g, arrived);
        asked = ask_ahead(&g, behind, i + 2 < n_ops ? turns_of(&ops[(i + 2) % (AHEAD + 1)]) : 0,
                          &way);
        if (behind->beside)
            continue;
        all += g.n;
        wait_for_all(&g, arrived, all);
    }
}
