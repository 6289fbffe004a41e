/* row_order.h -- in which order the rows of q and k stand: files of GGUF reorder these rows for
 * some architectures, so that neighbours rotate together where checkpoints rotate the halves of a
 * head; and in which order heads of v of the delta rule stand, of which several read one head of
 * k. */
#ifndef MN_MODEL_ROW_ORDER_H
#define MN_MODEL_ROW_ORDER_H
#include "model/model.h"

/* How the rows of a tensor are ordered beside the rows of another one: heads of `head` rows whose
 * first `rot` are reordered from halves (i, i + rot/2) to neighbours (2i, 2i+1), or back; rows from
 * `end` on keep their place. head 0 = no reordering.
 *
 * Or n_group times `each` heads of `width` rows, from row `first` on, move from group by group, as
 * in checkpoints, to a head of each group in turn. width 0 = no reordering. */
typedef struct {
    uint64_t head, rot, end;
    bool back;
    uint64_t first, width, n_group, each;
} mn_row_order;
uint64_t mn_row_of(mn_row_order o, uint64_t row); /* the row that goes to this one */
static inline bool mn_row_order_moves(const mn_row_order *o) {
    return o->head || o->width;
}
/* How rows of a layer's tensor `rest` with numbers of heads of v move to a head of each group in
 * turn. columns: ssm_out's columns are what moves. */
mn_row_order mn_row_order_in_turn(const mn_hparams *h, mn_str rest, bool *columns);
/* How rows of the canonical tensor `name` move from one pairing (MN_ROPE_*) to another. */
mn_row_order mn_row_order_of(const mn_hparams *h, uint32_t from, uint32_t to, mn_str name);
/* The layer of "blk.N.", or -1; *rest: what comes behind. */
int64_t mn_tensor_layer(mn_str name, mn_str *rest);
#endif
