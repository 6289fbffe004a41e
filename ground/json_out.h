/* json_out.h -- writes JSON piece by piece, to a file or into a text: valid UTF-8, numbers that
 * read back as the same value, never NaN. */
#ifndef MN_JSON_OUT_H
#define MN_JSON_OUT_H
#include "text_buffer.h"

/* {put, to} to begin; at most 16 deep. put: appends n bytes to `to`, which keeps its error. */
typedef struct {
    void (*put)(void *to, const char *bytes, size_t n);
    void *to;
    uint32_t depth, after_value;
    char closer[16];
} json_out;

json_out json_to_text(mn_text *t);

void json_open(json_out *j, char bracket); /* '{' or '[' */
void json_close(json_out *j);
void json_line(json_out *j); /* ends a top-level value */
void json_key(json_out *j, const char *z);
void json_key_n(json_out *j, const char *bytes, size_t n);
void json_str(json_out *j, const char *bytes, size_t n); /* invalid UTF-8 becomes U+FFFD */
void json_z(json_out *j, const char *z);                 /* NULL writes null */
void json_mn_str(json_out *j, mn_str s);
void json_int(json_out *j, int64_t v);
void json_uint(json_out *j, uint64_t v);
void json_num(json_out *j, double v); /* not finite: null */
void json_bool(json_out *j, int v);
void json_null(json_out *j);
void json_ids(json_out *j, const int32_t *ids, size_t n);
/* Members of an object: a key and its value; _object, _array: a key and what is opened. */
void json_put_object(json_out *j, const char *key);
void json_put_array(json_out *j, const char *key);
void json_put_z(json_out *j, const char *key, const char *z);
void json_put_int(json_out *j, const char *key, int64_t v);
void json_put_uint(json_out *j, const char *key, uint64_t v);
void json_put_num(json_out *j, const char *key, double v);
/* With so many significant digits. */
void json_put_rounded(json_out *j, const char *key, double v, int digits);
void json_put_bool(json_out *j, const char *key, int v);
#endif
