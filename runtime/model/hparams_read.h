/* hparams_read.h -- {arch}.* keys out of metadata, for hparams*.c and rope.c. An absent key leaves
 * *out as it is; a wrong value is an error that names the key of the file. */
#ifndef MN_HPARAMS_READ_H
#define MN_HPARAMS_READ_H
#include "model/model.h"

typedef struct {
    const mn_canonical *m;
    const char *arch;
    mn_error *err;
    int64_t n_behind; /* layers of the file behind those that are read: arrays may have them, too */
} mn_hp_reader;

mn_status mn_hp_int(const mn_hp_reader *r, const char *key, int64_t lo, int64_t hi, int64_t *out);
mn_status mn_hp_need_int(const mn_hp_reader *r, const char *key, int64_t lo, int64_t hi,
                         int64_t *out); /* absent: an error */
/* One integer from lo to hi for each layer into out [n_layer]; a single integer counts for all
 * layers. */
mn_status mn_hp_each_int(const mn_hp_reader *r, const char *key, int64_t n_layer, int64_t lo,
                         int64_t hi, int64_t *out);
/* Numbers into out [n], of a key that is an array of n of them. */
mn_status mn_hp_reals(const mn_hp_reader *r, const char *key, uint64_t n, double *out);
/* Of a key without the architecture's name: a number for each of n layers, or one for all. */
mn_status mn_hp_each_own(const mn_hp_reader *r, const char *key, int64_t n, double *out);
/* An error if the value is still 0, as before it was read. */
mn_status mn_hp_need(const mn_hp_reader *r, const char *key, int64_t value);
mn_status mn_hp_real(const mn_hp_reader *r, const char *key, double lo, double hi, double *out);
mn_status mn_hp_bool(const mn_hp_reader *r, const char *key, bool *out);
/* One of n words; key is written out in full. */
mn_status mn_hp_word(const mn_hp_reader *r, const char *key, const char *const *words,
                     const uint32_t *values, size_t n, uint32_t *out);
/* A number or true/false per layer into flags [n_layer]; an integer p: every layer but each p-th.
 * seen: the key was there. */
mn_status mn_hp_layers(const mn_hp_reader *r, const char *key, int64_t n_layer, uint8_t *flags,
                       bool *seen);

#define MN_ROPE_THETA_SAME (-1.0) /* of theta_swa: the base of the full layers, and no scaling */
/* rope.c: everything rotary. On entry, rope is -1 in layers that do not rotate; the other layers
 * get their table. theta_swa: base of window layers if the file states none; they are not scaled
 * then. 0 = window layers rotate like the others. */
mn_status mn_rope_read(const mn_hp_reader *r, mn_hparams *h, mn_layer_shape *layers,
                       double theta_swa);

/* ---- hparams_heads.c, hparams_caches.c: parts of a layer ------------------------------------- */
/* Head counts and sizes; *_swa: of window layers, where they differ. The windows are known. */
mn_status mn_hp_read_heads(const mn_hp_reader *r, const mn_hparams *h, mn_layer_shape *layers);
/* Sizes of latent attention; read before the heads, whose one head of keys is the latent row. */
mn_status mn_hp_read_latent(const mn_hp_reader *r, mn_hparams *h);
/* Whether no layer may be nothing but its state. */
bool mn_hp_all_attend(const mn_hparams *h);
/* The last layers of these models read the keys and values of the last layer in front of them that
 * slides as they do. */
mn_status mn_hp_read_shared_caches(const mn_hp_reader *r, const mn_hparams *h,
                                   mn_layer_shape *layers);
/* One KV group per window and shape of keys and values, in the order of their first layers; behind
 * them one of all states. */
mn_status mn_hp_group_layers(const mn_hp_reader *r, mn_hparams *h, mn_layer_shape *layers);
/* The key as the checkpoint calls it. */
mn_str mn_hp_shown_key(const mn_hp_reader *r, const char *key);
#endif
