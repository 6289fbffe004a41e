/* head.h -- whether the head of a request can be read in one way only (RFC 9112).
 *
 * A proxy in front that reads it in another way than this server would take the rest of one body
 * for the next request, or the other way round. Two tests: of the bytes as they came, as far as
 * they are known, and of the fields that the library has read. No state but head_fields. */
#ifndef MINERVA_SERVE_HEAD_H
#define MINERVA_SERVE_HEAD_H
#include <stddef.h>

typedef enum {
    HEAD_CLEAN,  /* whole, and every line as the grammar has it */
    HEAD_UNSEEN, /* the rest has not come yet, or is longer than what can be seen */
    HEAD_BAD
} head_verdict;

/* A text within the head; p NULL: there is none. */
typedef struct {
    const char *p;
    size_t n;
} head_text;

/* What was found in the fields of one head; all zero at first. */
typedef struct {
    const char *why; /* the first thing that is wrong; NULL: nothing */
    head_text host, length, coding;
} head_fields;

/* The target of a request as it came. NULL, or what is wrong: a byte that may not be in a URL, an
 * encoded NUL, or neither a path nor an absolute URL (nor "*"). */
const char *head_target(const char *target);
/* The lines of fields in bytes, up to the empty line; the n bytes are what has come, and zeros
 * behind that. Adds the fields to h. *used: length of the lines with the empty one, if they are
 * clean; h->why, if they are bad. */
head_verdict head_lines(const char *bytes, size_t n, size_t *used, head_fields *h);
/* One field as the library has it. The texts outlive h. */
void head_field(head_fields *h, head_text name, head_text value);
/* After the last one. NULL, or what is wrong. is_1_1: HTTP/1.1, which needs a Host. */
const char *head_check(head_fields *h, int is_1_1);

/* The path of a decoded target: of an absolute URL what is behind its authority, which has to be
 * the same as host. NULL: it is another one. */
const char *head_path(const char *target, head_text host);
#endif
