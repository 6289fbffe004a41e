/* prompt_sm90.c -- which attention of many rows runs on Hopper's own kernels (prompt_sm90.cuh), and
 * the maps of keys and values that they are launched with. */
#include "prompt_sm90.h"
#include "tensor_map.h"

static bool usable; /* there is code for this card, and the driver encodes maps */

void cu_prompt_sm90_init(const cu_card *d) {
    if (d->cc != 90)
        return;
    for (int i = 0; i < PROMPT_SM90_KERNELS; i++)
        if (!prompt_sm90_f16[i].init())
            return;
    for (int i = 0; i < PROMPT_SM90_Q8_KERNELS; i++)
        if (!prompt_sm90_q8_0[i].init())
            return;
    usable = cu_maps_init();
}

/* The kernel for heads of so many elements; NULL = they are too long. */
static const prompt_sm90_kernel *sm90_kernel_of(const cu_cache *c) {
    const int dims = c->pk > c->pv ? c->pk : c->pv;
    const prompt_sm90_kernel *table = prompt_sm90_f16;
    int kernels = PROMPT_SM90_KERNELS;
    if (c->dtype == MN_Q8_0) {
        table = prompt_sm90_q8_0;
        kernels = PROMPT_SM90_Q8_KERNELS;
    }
    for (int i = 0; i < kernels; i++)
        if (dims <= table[i].dims)
            return &table[i];
    return NULL;
}

/* Tiles of all heads, if each sequence ends in one that is not full. */
static int64_t tiles_most(const cu_attend *a, int rows) {
    const int each = rows / (a->H / a->c.Hkv);
    const int whole = a->c.T / each;
    const int64_t tiles = whole + 1 + a->n_seqs;
    return tiles * a->c.Hkv;
}

/* Rows are read and written as vectors; few tiles would leave processors idle, and those of
 * prompt.cuh can be shared by several. */
bool cu_prompt_sm90_fits(const cu_card *d, const cu_attend *a) {
    const cu_cache *c = &a->c;
    if (!usable || d->cc != 90)
        return false;
    if (c->dtype != MN_F16 && c->dtype != MN_Q8_0)
        return false;
    const prompt_sm90_kernel *k = sm90_kernel_of(c);
    if (!k || (c->dk | c->dv) % 8 != 0)
        return false;
    if (!(a->scale > 0))
        return false;
    const int64_t rows = c->T - a->n_seqs;
    const int64_t pairs = rows * a->H;
    return pairs >= (int64_t)k->rows * d->sms / 4;
}

/* [pages, heads, positions, pad] */
static bool page_map(CUtensorMap *map, const cu_cache *c, uint64_t at, int pad) {
    const cuuint64_t row = (cuuint64_t)pad * 2;
    const cu_boxes boxes = {
        .type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        .n_dim = 4,
        .at = c->kv + at,
        .dim = {(cuuint64_t)pad, CU_PAGE_TOKENS, (cuuint64_t)c->Hkv, (cuuint64_t)c->n_pages},
        .stride = {row, row * CU_PAGE_TOKENS, c->page_bytes},
        .box = {64, CU_PAGE_TOKENS, 1, 1}};
    return cu_map_encode(map, &boxes);
}

static bool page_maps(prompt_params *p, const cu_cache *c) {
    const uint64_t v_at = c->layer_at + c->v_offset;
    if (!page_map(&p->keys, c, c->layer_at, c->pk))
        return false;
    return page_map(&p->values, c, v_at, c->pv);
}

bool cu_prompt_sm90_run(const cu_card *d, cudaStream_t s, const cu_attend *a) {
    const cu_cache *c = &a->c;
    const prompt_sm90_kernel *k = sm90_kernel_of(c);
    prompt_params p;
    memset(&p, 0, sizeof p);
    p.a = *a;
    if (c->dtype == MN_F16 && !page_maps(&p, c))
        return false;
    const int64_t tiles = tiles_most(a, k->rows);
    int blocks = d->sms;
    if (tiles < blocks)
        blocks = (int)tiles;
    k->launch(s, &p, blocks);
    return true;
}
