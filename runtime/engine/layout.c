/* layout.c -- where the inputs of a step lie in the packed block, and how large tensors are. The
 * caller packs one block for all devices; a device whose pages are smaller than the caller's gets
 * one of its own, with its own page tables, in d->packed. */
#include "engine/engine_impl.h"
#include <string.h>

enum { ALIGN = 16 /* int32s: 64 bytes */ };

/* Room for n int32; where they begin. */
static uint32_t place_input(mn_input_layout *l, int64_t n) {
    uint32_t at = l->total;
    l->total += (uint32_t)((n + ALIGN - 1) / ALIGN * ALIGN);
    return at;
}

void mn_inputs_lay_out(const int64_t *s, const mn_model_graph *g, mn_input_layout *l) {
    const mn_hparams *hp = &g->hp;
    const bool adapts = g->io.adapter >= 0;
    const int64_t rows = s[MN_SYM_TOKENS];
    const int64_t outputs = s[MN_SYM_OUTPUTS];
    *l = (mn_input_layout){0};
    l->step = place_input(l, MN_STEP_WORDS);
    l->src = place_input(l, rows);
    l->pos = place_input(l, rows);
    l->row_slot = place_input(l, rows);
    l->seqs = place_input(l, s[MN_SYM_SEQS] * 4);
    l->out_row = place_input(l, outputs);
    l->out_slot = place_input(l, outputs);
    l->target = place_input(l, outputs);
    l->draft = place_input(l, outputs);
    if (hp->n_encoder) {
        l->text_src = place_input(l, s[MN_SYM_TEXT]);
        l->text_pos = place_input(l, s[MN_SYM_TEXT]);
        l->text_row_slot = place_input(l, s[MN_SYM_TEXT]);
        l->text_seqs = place_input(l, s[MN_SYM_SEQS] * 4);
        l->text_length = place_input(l, s[MN_SYM_SLOTS]);
    }
    l->adapter = place_input(l, adapts ? rows : 0);
    l->out_adapter = place_input(l, adapts ? outputs : 0);
    l->head = l->total;
    for (uint32_t i = 0; i < hp->n_kv; i++)
        l->pages[i] = place_input(l, s[MN_SYM_SLOTS] * (hp->kv[i].state ? 2 : s[MN_SYM_PAGES]));
}

/* Page p of the caller is pages p * ratio, p * ratio + 1, ... of the device; -1: no page. */
static void expand_page(int32_t page, uint32_t ratio, int32_t *to) {
    const int32_t first = page * (int32_t)ratio;
    for (uint32_t k = 0; k < ratio; k++) {
        if (page < 0)
            to[k] = -1;
        else
            to[k] = first + (int32_t)k;
    }
}

/* The group's page table of every slot. */
static void expand_group(const mn_engine *e, mn_engine_device *d, uint32_t group,
                         const int32_t *packed) {
    const uint32_t ratio = mn_page_ratio(e, d, group);
    const uint32_t row = e->graph->hp.kv[group].state ? e->group[group].row : d->row_pages;
    const int64_t n_slots = e->symbol_max[MN_SYM_SLOTS];
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        const int32_t *from = packed + mn_engine_row(e, group, slot);
        int32_t *to = d->packed + d->in.pages[group] + (size_t)slot * row;
        for (uint32_t i = 0; i < e->group[group].n_pages; i++)
            expand_page(from[i], ratio, to + i * ratio);
    }
}

void mn_inputs_expand(const mn_engine *e, mn_engine_device *d, const int32_t *packed) {
    memcpy(d->packed, packed, e->in.head * sizeof *packed); /* equal up to the page tables */
    for (uint32_t i = 0; i < e->graph->hp.n_kv; i++)
        expand_group(e, d, i, packed);
}
