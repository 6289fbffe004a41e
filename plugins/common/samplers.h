/* samplers.h -- rules of SAMPLE that every backend follows bit for bit: the random words of a draw,
 * and which samplers of the history are on. Inline, for the host and for CUDA's kernels alike. Pure
 * functions, any thread. Formulas: docs/ops.md, SAMPLE. */
#ifndef MNP_SAMPLERS_H
#define MNP_SAMPLERS_H
#include <minerva/plugin.h>
#include <stdbool.h>
#if defined(__CUDACC__)
#define MNP_INLINE static __host__ __device__ __forceinline__
#else
#define MNP_INLINE static inline
#endif

/* Philox4x32-10 (Salmon et al. 2011) of the counter c, in its place: counter-based, so that a
 * position's draw depends on the seed alone. */
MNP_INLINE void mnp_philox(uint32_t k0, uint32_t k1, uint32_t c[4]) {
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0];
        const uint64_t b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t n0 = (uint32_t)(b >> 32) ^ c[1] ^ k0;
        const uint32_t n2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[0] = n0;
        c[1] = (uint32_t)b;
        c[2] = n2;
        c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Whether these parameters ask for samplers that change logits by the
 * history. */
MNP_INLINE bool mnp_has_penalties(const mn_slot_params *p) {
    const bool repeats = p->repeat_penalty != 0 && p->repeat_penalty != 1;
    const bool counts = p->frequency_penalty != 0 || p->presence_penalty != 0;
    return p->penalty_last_n != 0 && (repeats || counts);
}
MNP_INLINE bool mnp_has_dry(const mn_slot_params *p) {
    return p->dry_multiplier > 0 && p->dry_base >= 1 && p->dry_last_n != 0;
}

typedef enum {
    MNP_NOT_ON_HISTORY, /* another sampler */
    MNP_HISTORY_OFF,
    MNP_HISTORY_ON,
} mnp_on_history;
MNP_INLINE mnp_on_history mnp_sampler_on_history(uint32_t sampler, const mn_slot_params *p) {
    bool on = false;
    if (sampler == MN_SAMPLER_PENALTIES)
        on = mnp_has_penalties(p);
    else if (sampler == MN_SAMPLER_DRY)
        on = mnp_has_dry(p);
    else
        return MNP_NOT_ON_HISTORY;
    return on ? MNP_HISTORY_ON : MNP_HISTORY_OFF;
}

#undef MNP_INLINE
#endif
