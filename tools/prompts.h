/* prompts.h -- makes prompts (token ids) of flags, standard input or a file of lines. */
#ifndef MINERVA_PROMPTS_H
#define MINERVA_PROMPTS_H
#include "generate.h"
#include "talk.h"

/* How prompts become ids, and the defaults of lines. */
typedef struct {
    int raw, parse_special;
    int64_t max_new;
    const talk *talk;
    const char *system; /* a system message before the prompt; NULL: none */
    mn_sample_params sample;
    int own_seeds; /* 1: each line gets a random seed of its own */
    const arg_texts *stop;
} prompt_flags;

/* Text to g->prompt: a user turn of the model's chat template if it has one and not raw, with all
 * of flags->talk before it, else the tokeniser's BOS and the text. 0 or the exit code. */
int prompt_from_text(app *a, gen *g, mn_str text, const prompt_flags *flags);
/* The prompt is the conversation of --history without another message. */
int prompt_from_history(app *a, gen *g, const prompt_flags *flags);
int prompt_from_ids(gen *g, const arg_ints *ids);
/* One JSON object per line: "prompt" or "prompt_ids", and any of "max_tokens" (or "n"), "seed",
 * "temp", "stop" (a string or a list of them) and "system". *out is malloc'ed, each freed by
 * gen_free. The error of a line is in its gen. 0, or the exit code if the file cannot be read. */
int prompts_from_file(app *a, const char *path, const prompt_flags *flags, gen **out, size_t *n);
#endif
