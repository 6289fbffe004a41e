/* alphabet.c -- tokens that consist of one set of bytes, say letters, and where others leave it.
 *
 * A pattern with a count has a state for each character, and all of them take the same letters: a
 * walk for each would visit most of the vocabulary again. With the tokens of an alphabet in masks
 * by their length, what is left are those that leave it by a byte which may follow there. Alphabets
 * are the vocabulary's, and stay; the first few that occur have one, others are walked. */
#include "grammar/grammar_impl.h"
#include <string.h>

enum { MOST = 16 };

struct mn_galphabets {
    pthread_mutex_t lock;
    mn_galphabet *list[MOST];
    uint32_t n;
};

mn_galphabets *mn_galphabets_create(void) {
    mn_galphabets *a = mn_calloc(1, sizeof *a);
    if (a)
        pthread_mutex_init(&a->lock, NULL);
    return a;
}

static void alphabet_free(mn_galphabet *a) {
    if (!a)
        return;
    mn_free(a->exit);
    mn_free(a->up_to);
    mn_free(a);
}

void mn_galphabets_free(mn_galphabets *a) {
    if (!a)
        return;
    for (uint32_t i = 0; i < a->n; i++)
        alphabet_free(a->list[i]);
    pthread_mutex_destroy(&a->lock);
    mn_free(a);
}

static bool alphabet_has(const mn_galphabet *a, uint8_t byte) {
    return a->bytes[byte / 64] >> byte % 64 & 1;
}

/* Tokens within the alphabet by their length; exits in the order of the trie, counted by byte. */
static void alphabet_visit(mn_galphabet *a, const mn_grammar_vocab *v, uint32_t *exits) {
    const size_t words = MN_GRAMMAR_WORDS(v->n_vocab);
    const mn_gtrie *t = &v->all;
    for (uint32_t i = 1; i < t->n;) {
        const uint32_t depth = t->depth[i];
        if (depth > MN_GRUN_MOST || !alphabet_has(a, t->byte[i])) {
            a->from[t->byte[i] + 1]++;
            exits[a->n_exits++] = i;
            i = t->skip[i];
            continue;
        }
        for (int32_t id = t->token[i]; id >= 0; id = v->same[id])
            a->up_to[depth * words + (uint32_t)id / 32] |= 1u << id % 32;
        i++;
    }
    for (size_t i = words; i < (MN_GRUN_MOST + 1) * words; i++)
        a->up_to[i] |= a->up_to[i - words];
}

/* Exits by their byte. */
static void alphabet_sort(mn_galphabet *a, const mn_grammar_vocab *v, const uint32_t *exits) {
    uint32_t at[256];
    for (uint32_t byte = 0; byte < 256; byte++) {
        a->from[byte + 1] += a->from[byte];
        at[byte] = a->from[byte];
    }
    for (uint32_t i = 0; i < a->n_exits; i++)
        a->exit[at[v->all.byte[exits[i]]]++] = exits[i];
}

static mn_galphabet *alphabet_make(const mn_grammar_vocab *v, const uint64_t *bytes) {
    mn_galphabet *a = mn_calloc(1, sizeof *a);
    uint32_t *exits = mn_alloc(v->all.n, sizeof *exits);
    bool ok = a && exits;
    if (ok) {
        memcpy(a->bytes, bytes, sizeof a->bytes);
        a->up_to = mn_calloc((MN_GRUN_MOST + 1ull) * MN_GRAMMAR_WORDS(v->n_vocab), 4);
        ok = a->up_to != NULL;
    }
    if (ok) {
        alphabet_visit(a, v, exits);
        a->exit = mn_alloc(a->n_exits, sizeof *a->exit);
        ok = a->exit != NULL;
    }
    if (ok)
        alphabet_sort(a, v, exits);
    mn_free(exits);
    if (ok)
        return a;
    alphabet_free(a);
    return NULL;
}

/* Under the lock. */
static const mn_galphabet *alphabet_find_or_make(mn_galphabets *all, const mn_grammar_vocab *v,
                                                 const uint64_t *bytes) {
    for (uint32_t i = 0; i < all->n; i++) {
        if (!memcmp(all->list[i]->bytes, bytes, sizeof all->list[i]->bytes))
            return all->list[i];
    }
    mn_galphabet *fresh = all->n < MOST ? alphabet_make(v, bytes) : NULL;
    if (fresh)
        all->list[all->n++] = fresh;
    return fresh;
}

const mn_galphabet *mn_galphabet_of(const mn_grammar_vocab *v, const uint64_t *bytes) {
    pthread_mutex_lock(&v->alphabets->lock);
    const mn_galphabet *a = alphabet_find_or_make(v->alphabets, v, bytes);
    pthread_mutex_unlock(&v->alphabets->lock);
    return a;
}
