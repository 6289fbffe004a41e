/* golden.h -- what the golden driver's three files share: the data that another implementation
 * computed (golden_data.c), the computation through minerva.h (golden_run.c) and the cases
 * (golden.c). */
#ifndef GOLDEN_H
#define GOLDEN_H
#include <minerva/minerva.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_PATH = 4096, MAX_STORIES = 16, MAX_FIXTURES = 256, MAX_NEW = 160 };

/* ---- golden_data.c: files of the repository; a file that is wrong ends the program ----------- */

/* golden.safetensors of a fixture. */
typedef struct {
    int32_t *prompt, *greedy; // [n_prompt], [n_greedy]
    float *logits;            // [n_prompt, n_vocab]
    uint32_t n_prompt, n_greedy, n_vocab;
} fixture;

/* prompts.safetensors or long.safetensors of a fixture: prompts of several lengths, one behind the
 * other, and the logits behind the last token of each. */
typedef struct {
    int32_t *ids, *lengths; // [sum of lengths], [n]
    float *logits;          // [n, n_vocab]
    uint32_t n, n_vocab;
} fixture_prompts;

/* An entry of golden.json of the storyteller. */
typedef struct {
    char *prompt, *text; // text: NULL if the entry has none
    int32_t *prompt_ids, *greedy_ids;
    uint32_t n_prompt, n_greedy;
} story;

/* A model that a script has made, by an entry of its list: the logits on any device are those of a
 * fixture, or, for ids, those of another model on reference. */
typedef struct {
    char *what, *model, *fixture, *beside; // one of fixture and beside is NULL
    int32_t *ids;                          // [n_ids] of beside
    uint32_t n_ids;
    double limit; // of the relative L2 error on reference
} listed;

/* Prints the reason as TAP's last line and ends the program. */
void give_up(const char *what, const char *on) __attribute__((noreturn));
/* Zeroed; ends the program if there is none. */
void *get_memory(size_t bytes);
/* Of MAX_PATH bytes: "$MINERVA_TEST_DATA/a/b", and a file of the storyteller below
 * $MINERVA_SOURCE_ROOT; without the variable the program ends. */
void data_path(char *out, const char *a, const char *b);
void storyteller_path(char *out, const char *file);
/* false: the fixture has no golden.safetensors. */
bool read_fixture(const char *name, fixture *f);
void free_fixture(fixture *f);
/* Tensor "logits" of $MINERVA_TEST_DATA/below/golden.safetensors, [*n, *n_vocab]. */
float *read_logits(const char *below, uint32_t *n, uint32_t *n_vocab);
/* false: the fixture has no such file. */
bool read_prompts(const char *name, const char *file, fixture_prompts *p);
void free_prompts(fixture_prompts *p);
/* The weights of this fixture are stored as bf16; false: they are not, or it is not there. */
bool fixture_is_bf16(const char *name);
/* The names of all fixtures that have golden.safetensors, in order; how many. */
uint32_t list_fixtures(char names[MAX_FIXTURES][64]);
uint32_t read_stories(story out[MAX_STORIES]);
void free_stories(story *s, uint32_t n);
/* All entries of the list at path; *n of them. */
listed *read_list(const char *path, uint32_t *n);
void free_list(listed *l, uint32_t n);

/* ---- golden_run.c: a model on a device ------------------------------------------------------- */

/* Where the cases run. isa: NULL, or the most advanced instruction set of cpu_simd. */
typedef struct {
    const char *device, *isa;
    mn_runtime *rt;
} place;

/* What became of a case. */
typedef struct {
    char said[2048]; // figures, or what failed
    bool failed, skipped;
} verdict;

/* Adds words to what a case says. */
void say(verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The case has failed, and why; returns false. */
bool fail(verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct {
    int32_t ids[MAX_NEW];
    uint32_t n;
    int32_t finish;   // MN_FINISH_*
    char text[8192];  // of the answer; empty without a tokeniser
    char device[128]; // where it ran
} answer;

void close_place(place *p);
/* Opens a model. Among several processes (mn_model_join) rank 0 alone goes on: the others compute
 * with it until it ends, and *model is NULL for them. */
bool open_model(place *p, const char *path, mn_model **model, verdict *v);
/* Logits of every position in *out, [n, *n_vocab], freed by the caller. n_batch 0: the default. */
bool get_logits(mn_model *m, const char *device, uint32_t precision, uint32_t n_batch,
                const int32_t *ids, uint32_t n, float **out, uint32_t *n_vocab, verdict *v);
/* Greedy answers in class exact to n_prompts prompts in one session, max_new ids at most. */
bool get_answers(mn_model *m, const char *device, const story *prompts, uint32_t n_prompts,
                 uint32_t max_new, bool ignore_stop, answer *out, verdict *v);
/* ||x - golden|| / ||golden||; NaN if x has one. */
double relative_l2(const float *x, const float *golden, size_t n);
#endif
