/* words.h -- the words of a step (mn_step.waits and signals), for backends that have them. Pure
 * functions, any thread; beside common.h. */
#ifndef MNP_WORDS_H
#define MNP_WORDS_H
#include "common.h"
#ifdef __cplusplus
extern "C" {
#endif

/* As mnp_read_step, of a backend that has words: waits and signals are arrays at a stride that
 * fits. */
mn_status mnp_read_step_words(const mn_step *in, mn_step *out, mn_error *err);
/* Word i of an array of them. */
static inline const mn_word *mnp_word(const mn_word *words, uint32_t i, uint32_t stride) {
    return (const mn_word *)((const char *)words + (uint64_t)i * stride);
}
/* Whether it lies in a buffer of so many bytes. */
mn_status mnp_check_word(const mn_word *w, uint64_t bytes, mn_error *err);

#ifdef __cplusplus
}
#endif
#endif
