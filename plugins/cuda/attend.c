/* attend.c -- how attention is dealt to blocks: rows head by head with their keys split
 * (attend.cuh), rows of long sequences by tiles (prompt.cuh), rows and heads of a latent cache by
 * tiles (k_attention_latent.cu). It chooses kernel and grid from sizes; rows of tables and
 * functions of k_attention_*.cu and k_prompt_*.cu launch. */
#include "attend_distance.h"
#include <limits.h>

/* Tiles that a warp asks for before the one that it reads. 0, 1 and 2: mistral-7b at 32,000
 * positions 308 to 321, 316 and 285 to 296 t/s. */
enum { TILES_AHEAD = 0 };

static int longest_row(const cu_cache *c) {
    if (c->pk > c->pv)
        return c->pk;
    return c->pv;
}

/* ---- few rows -------------------------------------------------------------------------------- */
/* Heads that share keys, of f16 rows that a matrix unit may take. */
static bool goes_by_tiles(const cu_attend *a, int group) {
    return a->rounds && a->c.dtype == MN_F16 && group > 1 && longest_row(&a->c) <= 256;
}

static void launch_attend(cudaStream_t s, const cu_attend_args *x, dim3 grid, bool tiles) {
    if (tiles)
        cu_attend_tiles(s, x, grid);
    else if (x->a.c.dtype == MN_F32)
        cu_attend_f32(s, x, grid);
    else if (x->a.c.dtype == MN_F16)
        cu_attend_f16(s, x, grid);
    else if (x->a.c.dtype == MN_Q8_0)
        cu_attend_q8_0(s, x, grid);
    else
        cu_attend_any(s, x, grid);
}

bool cu_attends_long(const cu_attend *a) {
    return longest_row(&a->c) > 256 || a->slopes || a->chunk > 0;
}

/* Blocks of a row, or of several. */
static int long_blocks(const cu_attend *a, int rows) {
    const int per_kv = a->H / a->c.Hkv;
    const int of_row = (per_kv + CU_LONG_HEADS - 1) / CU_LONG_HEADS * a->c.Hkv;
    return of_row * ((a->c.T + rows - 1) / rows);
}

/* As many slices of a row's positions as leave no unit idle. */
static int long_slices(const cu_card *d, const cu_attend *a) {
    const bool splits = (int64_t)a->c.T * a->H <= 16 * d->sms && a->partial && a->max_splits > 1;
    const int slices = splits ? 4 * d->sms / long_blocks(a, 1) + 1 : 1;
    return slices > a->max_splits ? a->max_splits : slices;
}

static int log_of(int split) {
    int log_split = 0;
    while (1 << log_split < split)
        log_split++;
    return log_split;
}

static void attend_long(const cu_card *d, cudaStream_t s, const cu_attend *a) {
    cu_attend_long(s, a, log_of(a->split), long_slices(d, a));
}

/* Rows of prompts share tiles where that leaves a block for each unit. */
void cu_distance_run(const cu_card *d, cudaStream_t s, const cu_attend *a, const cu_distance *by) {
    const int per_kv = a->H / a->c.Hkv;
    const int rows = per_kv < CU_LONG_HEADS ? CU_LONG_HEADS / per_kv : 1;
    if (rows > 1 && a->c.T > a->n_seqs && long_blocks(a, rows) >= d->sms)
        cu_attend_distance(s, a, by, rows, log_of(a->split), 1);
    else
        cu_attend_distance(s, a, by, 1, log_of(a->split), long_slices(d, a));
}

/* One row over a short cache has a block per head: what counts is how long each takes. */
void cu_attend_run(const cu_card *d, cudaStream_t s, const cu_attend *a) {
    if (cu_attends_long(a)) {
        attend_long(d, s, a);
        return;
    }
    const int group = a->H / a->c.Hkv;
    const int rows = a->apart ? a->n_seqs : a->c.T;
    const bool splits = (int64_t)rows * a->H <= 16 * d->sms && a->partial && a->max_splits > 1;
    const bool alone = a->one && a->c.T == 1 && a->c.P * CU_PAGE_TOKENS <= 4096;
    const bool tiles = !alone && goes_by_tiles(a, group);
    int most = alone ? 1 : CU_ATTEND_GROUP; /* heads of a block at once */
    if (tiles)
        most = CU_ATTEND_TILE_HEADS;
    cu_attend_args x = {.a = *a, .group = group, .parts = (group + most - 1) / most};
    x.a.ahead = TILES_AHEAD;
    x.per = (group + x.parts - 1) / x.parts;
    x.parts = (group + x.per - 1) / x.per;
    while (1 << x.log_split < a->split)
        x.log_split++;
    const int64_t heads = (int64_t)a->c.Hkv * rows;
    const bool waves = heads * x.parts > 2 * d->sms; /* then a block does all parts of its heads */
    x.blocks = waves && a->one ? 1 : x.parts;
    const int blocks = x.parts * a->c.Hkv * rows;
    const int slices = 8 * d->sms / blocks + 1;
    dim3 grid = {(unsigned)(x.parts * a->c.Hkv), (unsigned)rows, 1};
    if (a->one) {
        grid.x = (unsigned)(x.blocks * a->c.T);
        grid.y = (unsigned)a->c.Hkv;
    }
    if (splits)
        grid.z = (unsigned)(slices < a->max_splits ? slices : a->max_splits);
    launch_attend(s, &x, grid, tiles);
}

/* ---- latent rows ----------------------------------------------------------------------------- */
static bool latent_usable; /* there is code for this card */

void cu_latent_init(const cu_card *d) {
    latent_usable = d->cc == 90 && cu_latent_kernel_init();
}

/* Rows are read as vectors; scores are compared before they are scaled. */
bool cu_latent_fits(const cu_card *d, const cu_attend *a) {
    const cu_cache *c = &a->c;
    if (!latent_usable || d->cc != 90 || !a->rounds || !a->seqs || a->one)
        return false;
    if (c->Hkv != 1 || c->v_offset || c->dtype != MN_F16)
        return false;
    if (c->pk > CU_LATENT_KEYS || c->dv > CU_LATENT_VALUES || (c->pk | c->dk | c->dv) % 8)
        return false;
    if (a->bidirectional || a->window || a->chunk || a->softcap || a->sinks || a->slopes)
        return false;
    return a->scale > 0;
}

/* Tiles of rows and heads, if each sequence ends in one that is not full. */
static int64_t latent_tiles(int64_t rows, int64_t heads, int64_t n_seqs) {
    return rows * heads / CU_LATENT_ROWS + n_seqs;
}
/* Tiles whose pages blocks share: from two waves on, each block has a tile. */
static int64_t latent_sharing_most(const cu_card *d) {
    return 2 * d->sms;
}
/* Slices: of a whole share no more than two waves of blocks have, and one that is left of each
 * tile. */
static int64_t latent_slices(const cu_card *d, int64_t tiles) {
    return latent_sharing_most(d) + tiles;
}

uint64_t cu_latent_bytes(const cu_card *d, int64_t rows, int64_t heads, int64_t n_seqs) {
    int64_t tiles = latent_tiles(rows, heads, n_seqs);
    if (tiles > latent_sharing_most(d))
        tiles = latent_sharing_most(d);
    return (uint64_t)latent_slices(d, tiles) * CU_LATENT_PART * sizeof(float);
}

/* Tiles whose pages blocks share; many: of all sequences, else of those of one row. */
static void latent_shared(const cu_card *d, cudaStream_t s, cu_latent *p, int64_t tiles,
                          bool many) {
    p->sharing = d->sms;
    cu_attend_latent(s, p, (int)latent_slices(d, tiles));
    cu_merge_latent(s, p, many);
}

/* Prompts have tiles enough; sequences of one row beside them may not. */
void cu_latent_run(const cu_card *d, cudaStream_t s, const cu_attend *a) {
    cu_latent p = {.a = *a, .least = 1, .most = INT_MAX, .parts = a->partial};
    const int64_t tiles = latent_tiles(a->c.T, a->H, a->n_seqs);
    const int64_t single = latent_tiles(a->n_seqs, a->H, a->n_seqs);
    if (tiles <= latent_sharing_most(d)) {
        latent_shared(d, s, &p, tiles, true);
        return;
    }
    if (a->n_seqs > 1 && single <= latent_sharing_most(d)) {
        p.most = 1;
        latent_shared(d, s, &p, single, false);
        p.least = 2;
        p.most = INT_MAX;
        p.sharing = 0;
    }
    cu_attend_latent(s, &p, (int)tiles);
}

/* ---- many rows ------------------------------------------------------------------------------- */
/* The kernel for heads of so many elements; NULL = they are too long. */
static const cu_prompt_kernel *prompt_kernel(const cu_prompt_kernel *table, int dims) {
    for (int i = 0; i < CU_PROMPT_KERNELS; i++)
        if (dims <= table[i].dims)
            return &table[i];
    return NULL;
}

static const cu_prompt_kernel *prompt_kernel_of(const cu_attend *a) {
    const bool blocks = a->c.dtype == MN_Q8_0;
    return prompt_kernel(blocks ? cu_prompt_q8_0 : cu_prompt_f16, longest_row(&a->c));
}

int cu_tile_blocks(const cu_card *d, int dims) {
    if (dims > 128)
        return d->sms;
    return 2 * d->sms;
}

/* Of each thread, a float4 for eight dims of its rows, and one for their maxima and sums. */
uint64_t cu_tile_bytes(const cu_card *d, int dims) {
    const cu_prompt_kernel *k = prompt_kernel(cu_prompt_f16, dims);
    const int most = k ? k->dims : cu_prompt_f16[CU_PROMPT_KERNELS - 1].dims;
    const uint64_t of_thread = (uint64_t)(most / 8 + 1) * 4 * sizeof(float);
    return (uint64_t)cu_tile_blocks(d, dims) * CU_PROMPT_THREADS * of_thread;
}

/* Whether these kernels can do it, and whether there are rows enough for tiles to pay. */
bool cu_prompt_fits(const cu_card *d, const cu_attend *a) {
    const cu_cache *c = &a->c;
    if (c->dtype != MN_F16 && c->dtype != MN_Q8_0)
        return false;
    if (!a->seqs || a->bidirectional)
        return false;
    if (a->H / c->Hkv > CU_PROMPT_ROWS)
        return false;
    if (c->T <= a->n_seqs) /* one row of each sequence, or few rows */
        return false;
    return prompt_kernel_of(a) && cu_prompt_f16[CU_PROMPT_KERNELS - 1].shared_bytes <= d->smem_max;
}

void cu_prompt_run(const cu_card *d, cudaStream_t s, const cu_attend *a) {
    const cu_prompt_kernel *k = prompt_kernel_of(a);
    const int each = CU_PROMPT_ROWS / (a->H / a->c.Hkv);
    const int tiles = (a->c.T + each - 1) / each + a->n_seqs; /* each sequence may end in one */
    cu_attend x = *a;
    x.tile_slots = a->tile_sums ? cu_tile_blocks(d, k->dims) / a->c.Hkv : 0;
    int across = tiles;
    if (x.tile_slots > across)
        across = x.tile_slots;
    const dim3 grid = {(unsigned)across, (unsigned)a->c.Hkv, 1};
    k->launch(s, &x, grid);
}
