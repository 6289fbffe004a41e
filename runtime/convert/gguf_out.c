/* gguf_out.c -- the bytes in front of a GGUF file's data: header, keys, tensor descriptions.
 * Source: the specification of GGUF version 3. Written from the plan into one text in memory, whose
 * `failed` says that memory ran out; numbers are little-endian. */
#include "convert/convert.h"
#include <string.h>

enum {
    KV_U8 = 0,
    KV_U32 = 4,
    KV_I32 = 5,
    KV_F32 = 6,
    KV_BOOL = 7,
    KV_STR = 8,
    KV_ARRAY = 9,
    KV_I64 = 11
};

void mn_gguf_put_uint(mn_text *out, uint64_t v, int bytes) {
    char b[8];
    for (int i = 0; i < bytes; i++, v >>= 8)
        b[i] = (char)(v & 255);
    mn_text_put(out, b, (size_t)bytes);
}

void mn_gguf_put_str(mn_text *out, mn_str s) {
    mn_gguf_put_uint(out, s.len, 8);
    mn_text_put(out, s.ptr, s.len);
}

void mn_gguf_put_f32(mn_text *out, double d) {
    const float f = (float)d;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    mn_gguf_put_uint(out, bits, 4);
}

/* Readers expect counts as uint32 and lists as int32; only what does not fit is wider. */
static uint32_t int_type(int64_t lo, int64_t hi, bool array) {
    if (!array && lo >= 0 && hi <= UINT32_MAX)
        return KV_U32;
    if (lo >= INT32_MIN && hi <= INT32_MAX)
        return KV_I32;
    return KV_I64;
}

static void gguf_out_put_int(mn_text *out, int64_t v, uint32_t type) {
    int bytes = 4;
    if (type == KV_I64)
        bytes = 8;
    if (type == KV_U8)
        bytes = 1;
    mn_gguf_put_uint(out, (uint64_t)v, bytes);
}

/* bytes: integers that are a blob. */
static void gguf_out_put_array(mn_text *out, const mn_value *v, bool bytes) {
    static const uint32_t kinds[] = {0, 0, KV_F32, KV_BOOL, KV_STR};
    const uint32_t element = v->type & 15u;
    const int64_t *ints = v->array;
    int64_t lo = 0;
    int64_t hi = 0;
    for (uint64_t i = 0; i < v->n && element == MN_VALUE_INT; i++) {
        lo = MN_MIN(lo, ints[i]);
        hi = MN_MAX(hi, ints[i]);
    }
    const bool is_blob = bytes && lo >= 0 && hi <= UINT8_MAX;
    uint32_t type = kinds[element];
    if (element == MN_VALUE_INT)
        type = int_type(lo, hi, true);
    if (element == MN_VALUE_INT && is_blob)
        type = KV_U8;
    mn_gguf_put_uint(out, type, 4);
    mn_gguf_put_uint(out, v->n, 8);
    for (uint64_t i = 0; i < v->n; i++) {
        if (element == MN_VALUE_INT)
            gguf_out_put_int(out, ints[i], type);
        if (element == MN_VALUE_FLOAT)
            mn_gguf_put_f32(out, ((const double *)v->array)[i]);
        if (element == MN_VALUE_BOOL)
            mn_gguf_put_uint(out, ((const uint8_t *)v->array)[i], 1);
        if (element == MN_VALUE_STR)
            mn_gguf_put_str(out, ((const mn_str *)v->array)[i]);
    }
}

static void gguf_out_put_value(mn_text *out, mn_str key, const mn_value *v) {
    if (v->type & MN_VALUE_ARRAY) {
        mn_gguf_put_uint(out, KV_ARRAY, 4);
        gguf_out_put_array(out, v, mn_str_is(key, "tokenizer.ggml.precompiled_charsmap"));
        return;
    }
    switch (v->type) {
    case MN_VALUE_INT: {
        const uint32_t type = int_type(v->i, v->i, false);
        mn_gguf_put_uint(out, type, 4);
        gguf_out_put_int(out, v->i, type);
        break;
    }
    case MN_VALUE_FLOAT:
        mn_gguf_put_uint(out, KV_F32, 4);
        mn_gguf_put_f32(out, v->f);
        break;
    case MN_VALUE_BOOL:
        mn_gguf_put_uint(out, KV_BOOL, 4);
        mn_gguf_put_uint(out, v->i != 0, 1);
        break;
    default:
        mn_gguf_put_uint(out, KV_STR, 4);
        mn_gguf_put_str(out, v->s);
    }
}

mn_status mn_gguf_header(const mn_convert_plan *p, mn_text *out, mn_error *err) {
    mn_text_put(out, "GGUF", 4);
    mn_gguf_put_uint(out, 3, 4);
    mn_gguf_put_uint(out, p->n_tensors, 8);
    mn_gguf_put_uint(out, p->n_meta, 8);
    for (size_t i = 0; i < p->n_meta; i++) {
        mn_gguf_put_str(out, p->meta[i].key);
        gguf_out_put_value(out, p->meta[i].key, &p->meta[i].value);
    }
    for (size_t i = 0; i < p->n_tensors; i++) {
        const mn_out_tensor *t = &p->tensors[i];
        uint32_t number = 0;
        mn_dtype_ggml(t->type.id, &number);
        mn_gguf_put_str(out, t->name);
        mn_gguf_put_uint(out, t->n_dim, 4);
        /* innermost first */
        for (uint32_t d = t->n_dim; d-- > 0;)
            mn_gguf_put_uint(out, (uint64_t)t->dim[d], 8);
        mn_gguf_put_uint(out, number, 4);
        mn_gguf_put_uint(out, t->offset, 8);
    }
    while (!out->failed && out->len % MN_GGUF_ALIGNMENT)
        mn_text_put(out, "", 1);
    if (out->failed)
        return mn_fail_memory(err, out->len);
    return MN_OK;
}
