/* wide_tables.c -- the optional tables beside a backend seen through a host of a later minor:
 * mn.profile/1 and mn.kv/1 (wide_args.h). Others are passed on as they are. */
#include "wide.h"
#include "wide_args.h"
#include <stdlib.h>
#include <string.h>

static mn_profile real_profile; /* copies: a table may be freed with the plugin's self */
static mn_kv_moves real_moves;

/* Units further apart, of which only the known bytes may be written. */
static mn_status profile_execute(mn_context *c, const mn_step *s, mn_profile_unit *units,
                                 uint32_t stride, uint32_t *n, mn_error *err) {
    wide_in in;
    wide_out e;
    const uint32_t room = units && stride >= sizeof *units ? *n : 0; /* else as it is */
    const uint32_t step = sizeof *units + WIDE_MORE;
    char *wide = wide_spread(units, room, sizeof *units, stride);
    mn_profile_unit *to = room ? (mn_profile_unit *)(void *)wide : units;
    if (!wide)
        return MN_OUT_OF_MEMORY;
    s = wide_input(&in, s, sizeof *s);
    const mn_status st =
        real_profile.execute(c, s, to, room ? step : stride, n, wide_error_begin(&e, err));
    for (uint32_t i = 0; i < room; i++) {
        memcpy((char *)units + (size_t)i * stride, wide + (size_t)i * step, sizeof *units);
        wide_look("mn_profile.execute", wide + (size_t)i * step + sizeof *units, WIDE_MORE);
    }
    free(wide);
    return wide_error_end(&e, err, st, "mn_profile.execute");
}

/* A longer page, with longer params and layers. */
typedef mn_status (*move_fn)(mn_queue *, const mn_kv_page *, mn_event **, mn_error *);
static mn_status move_page(move_fn move, mn_queue *q, const mn_kv_page *p, mn_event **ev,
                           mn_error *err) {
    const mn_memory_use use = {p->params, p->layout};
    const mn_compile c = {
        .size = sizeof c, .memory = &use, .n_memory = 1, .memory_stride = sizeof use};
    wide_ask a;
    wide_in in;
    wide_out e;
    const mn_compile *ask = wide_ask_begin(&a, &c, false);
    if (!ask)
        return MN_OUT_OF_MEMORY;
    const bool is_known = p->size == sizeof *p;
    p = wide_input(&in, p, sizeof *p);
    if (is_known) {
        in.page.params = ask->memory->params;
        in.page.layout = ask->memory->layout;
    }
    const mn_status st = move(q, p, ev, wide_error_begin(&e, err));
    wide_ask_end(&a);
    return wide_error_end(&e, err, st, "mn_kv_moves");
}

static mn_status moves_get(mn_queue *q, const mn_kv_page *p, mn_event **ev, mn_error *err) {
    return move_page(real_moves.get, q, p, ev, err);
}

static mn_status moves_put(mn_queue *q, const mn_kv_page *p, mn_event **ev, mn_error *err) {
    return move_page(real_moves.put, q, p, ev, err);
}

static const mn_profile *widen_profile(const mn_profile *from) {
    static mn_profile table;
    memset(&real_profile, 0, sizeof real_profile);
    memcpy(&real_profile, from, from->size < sizeof table ? from->size : sizeof table);
    table = real_profile;
    if (table.execute)
        table.execute = profile_execute;
    return &table;
}

static const mn_kv_moves *widen_moves(const mn_kv_moves *from) {
    static mn_kv_moves table;
    memset(&real_moves, 0, sizeof real_moves);
    memcpy(&real_moves, from, from->size < sizeof table ? from->size : sizeof table);
    table = real_moves;
    if (table.get)
        table.get = moves_get;
    if (table.put)
        table.put = moves_put;
    return &table;
}

const void *wide_table(const char *id, const void *table) {
    if (table && !strcmp(id, MN_PROFILE_ID))
        return widen_profile(table);
    if (table && !strcmp(id, MN_KV_ID))
        return widen_moves(table);
    return table;
}
