/* prompts.h -- from flags, standard input or a file of lines to prompts of ids. */
#ifndef MINERVA_PROMPTS_H
#define MINERVA_PROMPTS_H
#include "generate.h"
#include "talk.h"

typedef struct {
    int raw, parse_special;
    int64_t max_new;
    const talk *talk;
} prompt_flags; /* max_new: of a line that has no "n" */

/* Text to g->prompt: a user turn of the model's chat template if it has one and not raw, with all
 * of flags->talk before it, else the tokeniser's BOS and the text. 0 or the exit code. */
int prompt_from_text(app *a, gen *g, mn_str text, const prompt_flags *flags);
/* the answer follows the history as it is */
int prompt_from_history(app *a, gen *g, const prompt_flags *flags);
int prompt_from_ids(gen *g, const arg_ints *ids);
/* One {"prompt"|"prompt_ids", "n"?} per line; *out is malloc'ed, each freed by gen_free. Errors
 * name file and line. */
int prompts_from_file(app *a, const char *path, const prompt_flags *flags, gen **out, size_t *n);
#endif
