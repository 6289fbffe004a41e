/* prompt_forms.h -- the forms that a prompt may have in a request: a text, token ids, both in one
 * list, or llama-server's objects of text. */
#ifndef MINERVA_SERVE_PROMPT_FORMS_H
#define MINERVA_SERVE_PROMPT_FORMS_H
#include "serve/serve.h"

/* 1 if v is a list of prompts, not one prompt: a list that has no number in it. */
int prompt_is_list(const cJSON *v);
/* The ids of one prompt, malloc'ed: of its first text with `flags` (MN_TEXT_*), of later ones
 * without special tokens around them. param: the field, for errors. 0: the error is set. */
int prompt_ids(const served *m, const cJSON *prompt, const char *param, uint32_t flags,
               int32_t **ids, uint32_t *n, json_error *e);
/* The text of a prompt, malloc'ed; of ids as a stream would have it. NULL: out of memory. */
char *prompt_text(const served *m, const cJSON *prompt, const int32_t *ids, uint32_t n);
#endif
