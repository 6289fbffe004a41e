/* infill.h -- prompts that ask for the text between a prefix and a suffix, by the tokens that a
 * model was trained with. */
#ifndef MINERVA_SERVE_INFILL_H
#define MINERVA_SERVE_INFILL_H
#include "serve/json.h"
#include <minerva/minerva.h>

/* Ids of a model's marks; -1: it has none. */
typedef struct {
    int32_t prefix, suffix, middle;
    int32_t repository, file; /* before the name of a repository, of a file */
} infill_marks;

/* The id of the token that is written like text; -1: there is none. */
int32_t infill_token(const mn_model *m, const char *text);
/* 1 if the model has the marks of prefix, suffix and middle: by keys of its file, else by the
 * spellings of its vocabulary. */
int infill_find(const mn_model *m, infill_marks *out);

/* A further file before the prompt. */
typedef struct {
    const char *name, *text;
} infill_file;
typedef struct {
    const char *prefix, *suffix;
    const infill_file *files;
    uint32_t n_files;
    int add_special; /* a begin-of-text token where the model has one */
} infill_parts;
/* The ids of the prompt, malloc'ed. 0: the error is set: the model has no such marks, or out of
 * memory. */
int infill_prompt(const mn_model *m, const infill_parts *parts, int32_t **ids, uint32_t *n,
                  json_error *e);
#endif
