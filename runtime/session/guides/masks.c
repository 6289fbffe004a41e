/* masks.c -- rows of masks, one per output of a step. They lie in the engine, which all programs
 * with masks read; a row of no guide has all bits set. A copy of what was written last is here, so
 * that only what differs is written. */
#include "session/guides/guides.h"
#include <string.h>

mn_status mn_masks_make(mn_guides *g, const mn_engine *e, uint32_t n_outputs, mn_error *err) {
    mn_masks *m = &g->masks;
    if (m->rows)
        return MN_OK;
    m->n_words = mn_engine_mask_words(e);
    m->rows = mn_alloc((size_t)n_outputs * m->n_words, sizeof *m->rows);
    m->is_open = mn_calloc(n_outputs, sizeof *m->is_open);
    m->of = mn_calloc(n_outputs, sizeof *m->of);
    if (m->rows && m->is_open && m->of)
        return MN_OK;
    mn_masks_free(g);
    return mn_fail_memory(err, (size_t)n_outputs * m->n_words * sizeof *m->rows);
}

void mn_masks_free(mn_guides *g) {
    mn_free(g->masks.rows);
    mn_free(g->masks.is_open);
    mn_free(g->masks.of);
    g->masks = (mn_masks){0};
}

/* Rows `first` and behind. */
typedef struct {
    const mn_masks *masks;
    uint32_t first;
} row_work;

static void write_row(void *arg, uint32_t i) {
    const row_work *w = arg;
    const mn_masks *m = w->masks;
    const mn_mask_of *of = &m->of[w->first + i];
    uint32_t *row = m->rows + (size_t)(w->first + i) * m->n_words;
    if (of->guide)
        memcpy(row, mn_guide_mask(of->guide, of->ahead), m->n_words * sizeof *row);
    else
        memset(row, 0xff, m->n_words * sizeof *row);
}

mn_status mn_masks_write(mn_guides *g, mn_engine *e, uint32_t n, mn_error *err) {
    mn_masks *m = &g->masks;
    uint32_t lo = n;
    uint32_t hi = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool is_open = !m->of[i].guide;
        if (is_open && m->is_open[i])
            continue;
        m->is_open[i] = is_open;
        lo = MN_MIN(lo, i);
        hi = i + 1;
    }
    if (lo >= hi)
        return MN_OK;
    row_work w = {m, lo};
    mn_guides_share(g, hi - lo, write_row, &w);
    return mn_engine_write_masks(e, lo, hi - lo, m->rows + (size_t)lo * m->n_words, err);
}
