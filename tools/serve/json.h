/* json.h -- JSON of requests and answers: fields of objects with errors that name them, and texts
 * that are appended to a buffer. cJSON parses. */
#ifndef MINERVA_SERVE_JSON_H
#define MINERVA_SERVE_JSON_H
#include "text_buffer.h"
#include <cjson/cJSON.h>
#include <stdint.h>

/* Appends z as a string of JSON, with its quotes. */
void json_stringz(mn_text *out, const char *z);
/* A number that reads back as the same float; NaN and infinity become `otherwise`. */
void json_float(mn_text *out, double v, const char *otherwise);

/* What is wrong with a request: an answer of status 400, unless it is set otherwise. */
typedef struct {
    int failed;
    unsigned status;
    char param[64];    /* the field; empty: none */
    const char *code;  /* static, or NULL */
    uint64_t n_tokens; /* with context_length_exceeded: of the prompt, at least */
    char message[512];
} json_error;
/* Sets the first error; later ones are dropped. param: NULL or the field's name. Returns 0. */
int json_fail(json_error *e, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for memory that is missing: an answer of status 503. Returns 0. */
int json_no_memory(json_error *e);

/* The body, n bytes and a NUL, as an object, freed by cJSON_Delete; NULL with the error set: no
 * JSON, no object, a NUL in a text, or more than a million values. Of members with one name the
 * last is there, at all levels. Members of the object itself that are numbers beyond 2^53 have
 * their digits as valuestring. */
cJSON *json_parse(const char *body, size_t n, json_error *e);
/* The field, or NULL where it is absent or null. */
const cJSON *json_field(const cJSON *object, const char *name);

/* Each leaves *out unchanged if the field is absent or null. 0: the error is set. */
int json_read_bool(const cJSON *object, const char *name, int *out, json_error *e);
int json_read_int(const cJSON *object, const char *name, int64_t lo, int64_t hi, int64_t *out,
                  json_error *e);
/* A whole number of 64 bits, with or without a sign, also where a double does not hold it. */
int json_read_u64(const cJSON *object, const char *name, uint64_t *out, json_error *e);
int json_read_number(const cJSON *object, const char *name, double lo, double hi, double *out,
                     json_error *e);
int json_read_string(const cJSON *object, const char *name, const char **out, json_error *e);
/* What the value is, for messages: "a string", "the number 7". Static, or in the buffer. */
const char *json_found(const cJSON *value, char *out, size_t n);
#endif
