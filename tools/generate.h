/* generate.h -- generations from prompt ids to text, for run and chat. */
#ifndef MINERVA_GENERATE_H
#define MINERVA_GENERATE_H
#include "app.h"
#include "markdown.h"

/* beside MN_FINISH_* */
#define GEN_INTERRUPTED 4
#define GEN_STOPPED 5 /* by a string of stop; the sequence is freed */

/* A tool call of the answer; malloc'ed. */
typedef struct {
    char *name, *args; /* args: what came of them, NUL-terminated; NULL: nothing */
    size_t n_args, cap_args;
} gen_call;

typedef struct {
    int32_t *prompt; /* malloc'ed, freed by gen_free */
    uint32_t n_prompt;
    int64_t max_new; /* -1: until the context is full */
    double tokenize_s;
    mn_sample_params sample; /* for gen_begin; the seed is in the results */
    arg_texts stop;          /* strings that end the answer */
    int owns_stop;           /* they are malloc'ed */
    size_t line;             /* of the file of prompts, from 1; 0: no file */
    char *error;             /* malloc'ed: the message, if it cannot be run */
    /* filled by gen_* */
    int32_t seq, finish, *ids;
    size_t n_ids, cap_ids, n_text, cap_text, n_thinking, cap_thinking;
    char *text, *thinking; /* the answer; the thinking before it */
    gen_call *calls;       /* the tool calls of the answer; text has them as lines, too */
    size_t n_calls, cap_calls;
    size_t n_content;   /* bytes of text before the first call */
    int show_thinking;  /* set by the caller: thinking is printed, too */
    const char *tools;  /* set by the caller: calls written as text are recognised; or NULL */
    markdown *markdown; /* set by the caller: live text goes through it; or NULL */
    int plain;          /* set by the caller: the answer is no Markdown */
    int in_call;        /* the last event was of a call */
    int begun;          /* 1: gen_batch runs its sequence */
    int dim;            /* 1: the terminal shows the style of thinking */
    mn_stream *stream;  /* NULL: the model has no tokeniser */
    double begin, first, last; /* seconds() of gen_restart, first and last id */
} gen;

/* Creates the sequence; an error is in a->err. */
mn_status gen_begin(app *a, gen *g);
/* Steps until all n have ended, or Ctrl-C (finish is GEN_INTERRUPTED then, the code 130). live:
 * text is written there as it is generated (NULL: not); a failed write ends it with code 1, and
 * out_finish prints the error. */
int gen_run(app *a, gen *g, size_t n, out_file *live);
/* Runs those of n that have no error, at most width at once. done is called with each that has
 * ended or has an error, after Ctrl-C with those that had begun; it returns 0, or a code that
 * ends the batch. */
typedef int (*gen_done)(void *arg, gen *g);
int gen_batch(app *a, gen *g, size_t n, uint32_t width, gen_done done, void *arg);
/* Prepares g for a generation after ids: removes ids and text of the last one, creates the
 * stream. */
int gen_restart(app *a, gen *g, const int32_t *ids, uint32_t n);
void gen_json(const app *a, const gen *g, json_out *j);
void gen_free(gen *g);
#endif
