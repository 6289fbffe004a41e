/* generate.h -- sequences from prompt ids to text: run and chat. */
#ifndef MINERVA_GENERATE_H
#define MINERVA_GENERATE_H
#include "app.h"

/* beside MN_FINISH_* */
#define GEN_INTERRUPTED 4
#define GEN_STOPPED 5 /* by a string of stop; the sequence is freed */

typedef struct {
    int32_t *prompt; /* malloc'ed by whoever fills it */
    uint32_t n_prompt;
    int64_t max_new; /* -1: until the context is full */
    double tokenize_s;
    mn_sample_params sample; /* for gen_begin; the seed is shown */
    arg_texts stop;          /* strings that end the answer */
    int owns_stop;           /* they are malloc'ed */
    size_t line;             /* of the file of prompts, from 1; 0: there is none */
    char *error;             /* malloc'ed: why it cannot be run */
    /* filled by gen_* */
    int32_t seq, finish, *ids;
    size_t n_ids, cap_ids, n_text, cap_text, n_thinking, cap_thinking;
    char *text, *thinking;     /* the answer; what the model wrote beside it */
    char tool[64];             /* whom the answer's end is addressed to (a call), else empty */
    size_t call;               /* where in text the call's arguments begin */
    int show_thinking;         /* by the caller: live output has both */
    int begun;                 /* a sequence of gen_batch that runs */
    int dim;                   /* the terminal is in the colour of thinking */
    mn_stream *stream;         /* NULL: the model has no tokeniser */
    double begin, first, last; /* seconds(): asked, first and last id */
} gen;

/* Begins a sequence; an error is in a->err. */
mn_status gen_begin(app *a, gen *g);
/* Until none of the n runs any more, or Ctrl-C (finish is then GEN_INTERRUPTED and the code 130).
 * live: text goes there as it comes (NULL: none); a write that fails ends it, with code 1 to be
 * said by out_finish. */
int gen_run(app *a, gen *g, size_t n, out_file *live);
/* Begins and runs those of n that have no error, at most width at once, and hands each to done when
 * it has ended or got one; after Ctrl-C, those that had begun. done returns 0, or a code that ends
 * it all. */
typedef int (*gen_done)(void *arg, gen *g);
int gen_batch(app *a, gen *g, size_t n, uint32_t width, gen_done done, void *arg);
/* Begins the stream of a further turn, which follows ids: forgets ids and text of the last one. */
int gen_restart(app *a, gen *g, const int32_t *ids, uint32_t n);
/* of a call: tool without the "functions." that Harmony puts before it */
const char *gen_tool_name(const gen *g);
void gen_json(const app *a, const gen *g, json_out *j);
void gen_free(gen *g);
#endif
