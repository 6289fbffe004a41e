/* word_rules.c -- rule call.words: the words of a step (mn_step.waits and signals) in pinned
 * memory, as another device would read and write them. The other device is this process. A plugin
 * without words refuses them (call.params). */
#include "case_plan.h"
#include "wrong.h"
#include <string.h>
#include <time.h>

enum { WORDS = 64, SHORT_NS = 20000000 };

typedef struct {
    stage s;
    bool waits; /* the device has MN_DEVICE_ASYNC */
    mn_buffer *buffer;
    uint32_t *at; /* [WORDS] of the buffer */
} word_stage;

static mn_word word_of(const word_stage *w, uint32_t i, uint32_t value) {
    return (mn_word){.buffer = w->buffer, .offset = sizeof(uint32_t) * i, .value = value};
}
static uint32_t word_read(const word_stage *w, uint32_t i) {
    return __atomic_load_n(&w->at[i], __ATOMIC_ACQUIRE);
}
static void word_set(const word_stage *w, uint32_t i, uint32_t value) {
    __atomic_store_n(&w->at[i], value, __ATOMIC_RELEASE);
}

/* Whether the word has the value after a few seconds at most. */
static bool word_becomes(const word_stage *w, uint32_t i, uint32_t value) {
    const struct timespec nap = {0, 1000000};
    for (int k = 0; k < 5000 && word_read(w, i) != value; k++)
        nanosleep(&nap, NULL);
    return word_read(w, i) == value;
}

/* A step between words, which lie at a stride of two elements. */
typedef struct {
    mn_word word, unused;
} spaced;
static mn_status enqueue_spaced(word_stage *w, uint32_t context, const spaced *waits,
                                uint32_t n_waits, const spaced *signals, uint32_t n_signals,
                                mn_event **ev) {
    mn_step step = mn_usual_step(0, w->s.o->value);
    step.waits = n_waits ? &waits->word : NULL;
    step.n_waits = n_waits;
    step.signals = n_signals ? &signals->word : NULL;
    step.n_signals = n_signals;
    step.word_stride = sizeof *waits;
    *ev = NULL;
    return w->s.p.be->execute(w->s.plan->contexts[context], &step, ev, &w->s.p.err);
}

/* ---- signals --------------------------------------------------------------------------------- */
/* False: the plugin has no words. */
static bool words_signals(check *c, word_stage *w) {
    const spaced signals[] = {{.word = word_of(w, 0, 7)}, {.word = word_of(w, 5, 9)}};
    mn_event *ev = NULL;
    check_doing(c, "a step with words to write ran");
    mn_status st = enqueue_spaced(w, 0, NULL, 0, signals, 2, &ev);
    if (st == MN_UNSUPPORTED)
        return false;
    st = case_wait(w->s.p.be, st, &ev, &w->s.p.err);
    check_status(c, st, &w->s.p.err, "a step with words to write");
    if (!st && !(word_becomes(w, 0, 7) && word_becomes(w, 5, 9)))
        check_fail(c, "behind a step that writes 7 and 9: found the words %u and %u",
                   word_read(w, 0), word_read(w, 5));
    return true;
}

/* A word that lies wrong, beside one that is right: nothing is written. */
static void words_wrong(check *c, word_stage *w) {
    const mn_word wrong[] = {
        {.buffer = w->buffer, .offset = 2, .value = 1},
        {.buffer = w->buffer, .offset = WORDS * sizeof(uint32_t), .value = 1},
        {.value = 1},
    };
    static const char *const what[] = {"an odd place", "a place behind the buffer", "no buffer"};
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong && !check_over(c); i++) {
        const spaced signals[] = {{.word = word_of(w, 8, 1)}, {.word = wrong[i]}};
        mn_event *ev = NULL;
        check_doing(c, "a step with a word at %s ran", what[i]);
        const mn_status st = enqueue_spaced(w, 0, NULL, 0, signals, 2, &ev);
        CHECK(c, st == MN_INVALID,
              "execute with a word at %s: found status 0x%x, expected MN_INVALID", what[i],
              (unsigned)st);
        CHECK(c, !word_read(w, 8),
              "execute with a word at %s: another word was written, expected no change", what[i]);
    }
}

/* ---- waits ----------------------------------------------------------------------------------- */
/* The step of the event is not over, and has written nothing. */
static void must_wait(check *c, word_stage *w, mn_event *ev, uint32_t signal, const char *what) {
    const mn_status st = w->s.p.be->wait(ev, SHORT_NS, &w->s.p.err);
    CHECK(c, st == MN_TIMEOUT, "a step that waits for %s: found status 0x%x, expected MN_TIMEOUT",
          what, (unsigned)st);
    CHECK(c, !word_read(w, signal), "a step that waits for %s has written its word already", what);
}

static void must_end(check *c, word_stage *w, mn_event **ev, uint32_t signal, const char *what) {
    const mn_status st = case_wait(w->s.p.be, MN_OK, ev, &w->s.p.err);
    CHECK_OK(c, st, &w->s.p.err, "a step that waited for %s", what);
    CHECK(c, word_becomes(w, signal, 1), "a step that waited for %s: its word was not written",
          what);
}

static void words_wait(check *c, word_stage *w) {
    const spaced waits[] = {{.word = word_of(w, 16, 3)}, {.word = word_of(w, 17, 5)}};
    const spaced signal = {.word = word_of(w, 18, 1)};
    mn_event *ev = NULL;
    check_doing(c, "a step that waits for words ran");
    word_set(w, 17, UINT32_C(0xfffffff0)); /* before 0, and so before 5 */
    CHECK_OK(c, enqueue_spaced(w, 0, waits, 2, &signal, 1, &ev), &w->s.p.err, "a step that waits");
    must_wait(c, w, ev, 18, "two words");
    word_set(w, 16, 2);
    word_set(w, 17, 6); /* beyond its value */
    if (!check_over(c))
        must_wait(c, w, ev, 18, "the other word");
    word_set(w, 16, 3);
    if (!check_over(c))
        must_end(c, w, &ev, 18, "two words");
}

/* An abort ends a wait that nobody else would end. */
static void words_abort(check *c, word_stage *w) {
    const mn_backend *be = w->s.p.be;
    const spaced never = {.word = word_of(w, 24, 1)};
    const spaced signal = {.word = word_of(w, 25, 1)};
    mn_event *ev = NULL;
    if (!MN_HAS(mn_backend, be, abort))
        return;
    check_doing(c, "a queue was aborted whose step waits for a word");
    CHECK_OK(c, case_second_context(w->s.plan, &w->s.p.err), &w->s.p.err, "a second context");
    CHECK_OK(c, enqueue_spaced(w, 1, &never, 1, &signal, 1, &ev), &w->s.p.err, "a step that waits");
    must_wait(c, w, ev, 25, "a word that nobody writes");
    if (check_over(c))
        return;
    CHECK_OK(c, be->abort(w->s.plan->queues[1]), NULL, "abort");
    const mn_status st = case_wait(be, MN_OK, &ev, &w->s.p.err);
    CHECK(c, !st || st == MN_CANCELLED,
          "a step that waits for a word, behind abort: found status 0x%x, expected that it ends",
          (unsigned)st);
    CHECK(c, word_becomes(w, 25, 1), "a step behind abort: its word was not written");
    CHECK(c, !word_read(w, 24), "abort has written the word that the step waited for");
}

/* A device that is not asynchronous waits for none. */
static void words_refused(check *c, word_stage *w) {
    const spaced wait = {.word = word_of(w, 16, 0)};
    mn_event *ev = NULL;
    check_doing(c, "a step that waits for a word ran");
    const mn_status st = enqueue_spaced(w, 0, &wait, 1, NULL, 0, &ev);
    CHECK(c, st == MN_UNSUPPORTED,
          "a step that waits for a word, without MN_DEVICE_ASYNC: found status 0x%x, expected "
          "MN_UNSUPPORTED",
          (unsigned)st);
}

/* ---- the rule -------------------------------------------------------------------------------- */
static void try_words(check *c, word_stage *w) {
    if (!words_signals(c, w)) {
        check_skip(c, "the plugin has no words");
        return;
    }
    if (!check_over(c))
        words_wrong(c, w);
    if (check_over(c))
        return;
    if (!w->waits) {
        words_refused(c, w);
        return;
    }
    words_wait(c, w);
    if (!check_over(c))
        words_abort(c, w);
}

void check_call_words(check *c) {
    word_stage w = {0};
    mn_device_info info = {.size = sizeof info};
    if (!stage_plan(c, &w.s))
        return;
    const mn_backend *be = w.s.p.be;
    mn_status st = be->device_info(w.s.p.api->self, 0, &info, &w.s.p.err);
    if (!st)
        st = mn_usual_alloc(be, w.s.p.dev, WORDS * sizeof(uint32_t), MN_MEM_HOST_PINNED, &w.buffer,
                            &w.s.p.err);
    if (!st)
        st = be->map(w.buffer, (void **)&w.at, &w.s.p.err);
    CHECK_OK(c, st, &w.s.p.err, "pinned memory for words");
    w.waits = info.flags & MN_DEVICE_ASYNC;
    try_words(c, &w);
    if (check_over(c))
        return;
    case_close(w.s.plan);
    w.s.plan = NULL;
    be->buffer_free(w.buffer);
    stage_close(c, &w.s);
}
