/* wire.c -- writes and reads the messages of wire.h.
 *
 * One list of calls per message describes its fields: the same list writes and reads, so that the
 * two sides cannot differ. A pass that reads never goes beyond the payload: the first field that
 * does not fit sets `bad`, after which every field is zero. Arrays are used where they lie: heads
 * and payloads are multiples of 8 bytes, fields of 4. Linked into the command (both processes) and
 * into the fuzz target. */
#include "serve/wire.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAD = 8, FILL = 65536 };

/* One pass over the fields of a message: writing (out not NULL) or reading. */
typedef struct {
    mn_text *out;
    const unsigned char *in;
    size_t n, at;
    int bad;
} pass;

/* ---- fields ---------------------------------------------------------------------------------- */

/* n bytes that are read or written as they are. */
static void raw(pass *p, void *value, size_t n) {
    if (p->out) {
        mn_text_put(p->out, value, n);
        return;
    }
    if (p->bad || n > p->n - p->at) {
        p->bad = 1;
        memset(value, 0, n);
        return;
    }
    memcpy(value, p->in + p->at, n);
    p->at += n;
}

static void u32(pass *p, uint32_t *v) {
    raw(p, v, sizeof *v);
}

static void i32(pass *p, int32_t *v) {
    raw(p, v, sizeof *v);
}

static void u64(pass *p, uint64_t *v) {
    raw(p, v, sizeof *v);
}

static void f32(pass *p, float *v) {
    raw(p, v, sizeof *v);
}

/* Padding up to the next multiple of `to`. */
static void align(pass *p, size_t to) {
    static const char zeros[8];
    const size_t at = p->out ? p->out->len : p->at;
    const size_t more = (to - at % to) % to;
    if (p->out)
        mn_text_put(p->out, zeros, more);
    else if (more > p->n - p->at)
        p->bad = 1;
    else
        p->at += more;
}

/* *n elements of 4 bytes at *v; reading: *v points into the payload, NULL if there are none. */
static void array(pass *p, const void **v, uint64_t n) {
    if (p->out) {
        if (n)
            mn_text_put(p->out, *v, n * 4);
        return;
    }
    *v = NULL;
    if (p->bad || n > (p->n - p->at) / 4) {
        p->bad = 1;
        return;
    }
    if (n)
        *v = p->in + p->at;
    p->at += n * 4;
}

/* array for ids, floats for numbers. */
static void ids(pass *p, const int32_t **v, uint64_t n) {
    const void *at = *v;
    array(p, &at, n);
    *v = at;
}

static void floats(pass *p, const float **v, uint64_t n) {
    const void *at = *v;
    array(p, &at, n);
    *v = at;
}

/* A text: its length, its bytes, padding. Reading: it points into the payload, without a NUL. */
static void text(pass *p, mn_str *s) {
    uint32_t n = (uint32_t)s->len;
    u32(p, &n);
    if (p->out) {
        if (n)
            mn_text_put(p->out, s->ptr, n);
    } else if (p->bad || n > p->n - p->at) {
        p->bad = 1;
        *s = (mn_str){"", 0};
    } else {
        *s = (mn_str){(const char *)p->in + p->at, n};
        p->at += n;
    }
    align(p, 4);
}

/* A text with its NUL, or NULL. */
static void zstring(pass *p, const char **s) {
    mn_str t = {*s, p->out && *s ? strlen(*s) + 1 : 0};
    text(p, &t);
    if (p->out)
        return;
    *s = NULL;
    if (t.len && t.ptr[t.len - 1])
        p->bad = 1;
    else if (t.len)
        *s = t.ptr;
}

/* A count that has a limit. */
static void wire_count(pass *p, uint32_t *n, uint32_t most) {
    u32(p, n);
    if (!p->out && *n > most) {
        p->bad = 1;
        *n = 0;
    }
}

/* ---- the fields of each message -------------------------------------------------------------- */

static void pass_open(pass *p, wire_open *m) {
    u32(p, &m->version);
    u32(p, &m->flags);
    text(p, &m->model);
    text(p, &m->device);
    text(p, &m->excluded);
    i32(p, &m->threads);
    i32(p, &m->ctx);
    u32(p, &m->n_batch);
    u32(p, &m->n_seq);
    u32(p, &m->precision);
    u32(p, &m->kv_k);
    u32(p, &m->kv_v);
    u64(p, &m->kv_bytes);
    text(p, &m->draft);
    text(p, &m->draft_device);
    u32(p, &m->n_draft);
    u32(p, &m->numa);
    text(p, &m->chat_template);
    text(p, &m->cache_dir);
    text(p, &m->cache_disk);
    i32(p, &m->n_cpu_moe);
    i32(p, &m->n_gpu_experts);
    text(p, &m->tensor_devices);
    text(p, &m->device_memory);
    text(p, &m->expert_counts);
    text(p, &m->adapters);
    u32(p, &m->n_adapters);
    u32(p, &m->adapter_rank);
    u32(p, &m->adapter_type);
}

static void pass_adapter(pass *p, wire_adapter *m) {
    u64(p, &m->id);
    u32(p, &m->unloads);
    f32(p, &m->scale);
    text(p, &m->name);
    text(p, &m->path);
}

/* mn_sample_params without the bias, whose two arrays are the message's. */
static void pass_sample(pass *p, mn_sample_params *s) {
    s->size = sizeof *s;
    u32(p, &s->max_new);
    u64(p, &s->seed);
#define MN_SAMPLE_F32(member, ...) f32(p, &s->member);
#define MN_SAMPLE_I32(member, ...) i32(p, &s->member);
#include "samplers.def"
    i32(p, &s->ignore_stop);
    wire_count(p, &s->n_stop, 1024);
    ids(p, &s->stop, s->n_stop);
    u32(p, &s->min_new);
    u32(p, &s->flags);
    zstring(p, &s->samplers);
    zstring(p, &s->adapter);
}

/* The breakers of DRY; has_breakers 0: the default ones. */
static void pass_breakers(pass *p, wire_submit *m) {
    mn_sample_params *s = &m->sample;
    m->has_breakers = p->out ? s->dry_breakers != NULL : 0;
    u32(p, &m->has_breakers);
    wire_count(p, &s->n_dry_breakers, MN_MAX_DRY_BREAKERS);
    for (uint32_t i = 0; i < s->n_dry_breakers; i++) {
        if (p->out)
            m->breakers[i] = s->dry_breakers[i];
        zstring(p, &m->breakers[i]);
        if (!p->out && !m->breakers[i])
            m->breakers[i] = ""; /* refused later */
    }
}

/* At least one id of a prompt precedes those that were drawn. */
static void pass_submit(pass *p, wire_submit *m) {
    u64(p, &m->id);
    u32(p, &m->n_ids);
    u32(p, &m->n_drawn);
    wire_count(p, &m->n_top, WIRE_MAX_TOP);
    u32(p, &m->flags);
    u32(p, &m->priority);
    pass_sample(p, &m->sample);
    pass_breakers(p, m);
    u64(p, &m->cache_salt);
    ids(p, &m->ids, m->n_ids);
    wire_count(p, &m->n_bias, WIRE_MAX_BIAS);
    ids(p, &m->bias_ids, m->n_bias);
    floats(p, &m->bias, m->n_bias);
    u32(p, &m->form);
    u32(p, &m->form_flags);
    text(p, &m->form_source);
    if (!p->out && m->n_drawn >= m->n_ids)
        p->bad = 1;
}

/* The lengths of the texts add up to the ids. */
static void pass_embed(pass *p, wire_embed *m) {
    u64(p, &m->id);
    u32(p, &m->n_texts);
    u32(p, &m->n_dim);
    u32(p, &m->n_ids);
    u32(p, &m->how);
    const void *lengths = m->lengths;
    array(p, &lengths, m->n_texts);
    m->lengths = lengths;
    const void *firsts = m->firsts;
    array(p, &firsts, m->how ? m->n_texts : 0);
    m->firsts = firsts;
    ids(p, &m->ids, m->n_ids);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < m->n_texts && !p->bad; i++)
        sum += m->lengths[i];
    if (!p->out && sum != m->n_ids)
        p->bad = 1;
}

static void pass_ready(pass *p, wire_ready *m) {
    u32(p, &m->version);
    u32(p, &m->precision);
    u32(p, &m->n_ctx);
    u32(p, &m->n_seq);
    u32(p, &m->n_batch);
    u32(p, &m->fallback);
    u64(p, &m->weight_bytes);
    u64(p, &m->kv_bytes);
    u64(p, &m->stamp);
    text(p, &m->device);
    text(p, &m->description);
    text(p, &m->why);
}

static void pass_refused(pass *p, wire_refused *m) {
    u64(p, &m->id);
    i32(p, &m->status);
    u32(p, &m->of_form);
    text(p, &m->message);
}

/* n_top counts the ids beside a drawn one, and beside each of a prompt. */
static void pass_event(pass *p, wire_event *m) {
    u64(p, &m->id);
    u32(p, &m->kind);
    i32(p, &m->token);
    i32(p, &m->finish);
    i32(p, &m->status);
    u32(p, &m->pad);
    u32(p, &m->n_cached);
    u32(p, &m->n_drawn);
    u32(p, &m->n_preempted);
    f32(p, &m->logprob);
    wire_count(p, &m->n_top, WIRE_MAX_TOP);
    ids(p, &m->top_ids, m->kind == MN_REQUEST_TOKEN ? m->n_top : 0);
    floats(p, &m->top_logprobs, m->kind == MN_REQUEST_TOKEN ? m->n_top : 0);
    u32(p, &m->n_prompt);
    const uint64_t n_tops = (uint64_t)m->n_prompt * m->n_top;
    floats(p, &m->prompt_logprobs, m->n_prompt);
    ids(p, &m->prompt_top_ids, n_tops);
    floats(p, &m->prompt_top_logprobs, n_tops);
    u64(p, &m->queued_ns);
    u64(p, &m->prefill_ns);
    u64(p, &m->first_ns);
    u64(p, &m->decode_ns);
    u64(p, &m->n_drafted);
    u64(p, &m->n_accepted);
    u32(p, &m->n_computed);
    text(p, &m->message);
    if (!p->out && (m->finish < MN_FINISH_NONE || m->finish > MN_FINISH_ABORTED))
        p->bad = 1;
}

static void pass_vector(pass *p, wire_vector *m) {
    u64(p, &m->id);
    u32(p, &m->n_texts);
    u32(p, &m->n_dim);
    floats(p, &m->values, (uint64_t)m->n_texts * m->n_dim);
}

static void pass_beat(pass *p, wire_beat *m) {
    u32(p, &m->n_running);
    u32(p, &m->n_waiting);
    u64(p, &m->pages_total);
    u64(p, &m->pages_used);
    u64(p, &m->cache_queries);
    u64(p, &m->cache_hits);
    u64(p, &m->n_preempted);
    u64(p, &m->n_steps);
    u64(p, &m->usual_step_ns);
    u64(p, &m->beat_ms);
    u64(p, &m->n_drafted);
    u64(p, &m->n_accepted);
    u64(p, &m->n_forced);
    u64(p, &m->forms_ns);
    u64(p, &m->forms_most_ns);
    u64(p, &m->page_tokens);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Where the message begins; its length follows in end. */
static size_t wire_begin(mn_text *out, wire_type type) {
    const uint32_t head[2] = {0, type};
    const size_t at = out->len;
    mn_text_put(out, (const char *)head, HEAD);
    return at;
}

/* Pads the message that begins at `at`, and writes its length into its head. A message that memory
 * ran out for is taken back: what is in the buffer are whole ones. */
static void wire_end(mn_text *out, size_t at) {
    pass p = {.out = out};
    align(&p, 8);
    const uint32_t n = (uint32_t)(out->len - at - HEAD);
    if (!out->failed)
        memcpy(out->ptr + at, &n, sizeof n);
    else if (out->len > at)
        mn_text_remove(out, at, out->len);
}

/* The passes do not change what they write; they are the readers' functions, too. */
#define PUT(name, TYPE)                                                                            \
    void wire_put_##name(mn_text *out, const wire_##name *m) {                                     \
        pass p = {.out = out};                                                                     \
        wire_##name copy = *m;                                                                     \
        const size_t at = wire_begin(out, TYPE);                                                   \
        pass_##name(&p, &copy);                                                                    \
        wire_end(out, at);                                                                         \
    }
PUT(open, WIRE_OPEN)
PUT(submit, WIRE_SUBMIT)
PUT(embed, WIRE_EMBED)
PUT(adapter, WIRE_ADAPTER)
PUT(ready, WIRE_READY)
PUT(refused, WIRE_REFUSED)
PUT(event, WIRE_EVENT)
PUT(vector, WIRE_VECTOR)
PUT(beat, WIRE_BEAT)

void wire_put_id(mn_text *out, wire_type type, uint64_t id) {
    const size_t at = wire_begin(out, type);
    mn_text_put(out, (const char *)&id, sizeof id);
    wire_end(out, at);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Moves what is not read to the front, and makes room for FILL bytes more. 0: out of memory. */
static int make_room(wire_in *in) {
    if (in->at) {
        memmove(in->bytes, in->bytes + in->at, in->n - in->at);
        in->n -= in->at;
        in->at = 0;
    }
    if (in->cap - in->n >= FILL)
        return 1;
    const size_t cap = 2 * in->cap + FILL;
    unsigned char *grown = realloc(in->bytes, cap);
    if (!grown)
        return 0;
    in->bytes = grown;
    in->cap = cap;
    return 1;
}

int wire_fill(wire_in *in, int fd) {
    errno = 0;
    if (!make_room(in))
        return -1;
    const ssize_t got = read(fd, in->bytes + in->n, in->cap - in->n);
    if (got > 0) {
        in->n += (size_t)got;
        return 1;
    }
    const int later = got < 0 && (errno == EAGAIN || errno == EINTR);
    return later ? 0 : -1;
}

int wire_next(wire_in *in, wire_message *out) {
    uint32_t head[2];
    if (in->n - in->at < HEAD)
        return 0;
    memcpy(head, in->bytes + in->at, HEAD);
    if (head[0] > WIRE_MAX || head[0] % 8)
        return -1;
    if (in->n - in->at - HEAD < head[0])
        return 0;
    *out = (wire_message){(wire_type)head[1], in->bytes + in->at + HEAD, head[0]};
    in->at += HEAD + head[0];
    return 1;
}

void wire_free(wire_in *in) {
    free(in->bytes);
    *in = (wire_in){0};
}

/* All fields are there, and nothing but padding is behind them. */
#define GET(name)                                                                                  \
    int wire_get_##name(const wire_message *m, wire_##name *out) {                                 \
        pass p = {.in = m->payload, .n = m->n};                                                    \
        *out = (wire_##name){0};                                                                   \
        pass_##name(&p, out);                                                                      \
        return !p.bad && p.n - p.at < 8;                                                           \
    }
GET(open)
GET(submit)
GET(embed)
GET(adapter)
GET(ready)
GET(refused)
GET(event)
GET(vector)
GET(beat)

int wire_get_id(const wire_message *m, uint64_t *id) {
    pass p = {.in = m->payload, .n = m->n};
    u64(&p, id);
    return !p.bad && p.n == p.at;
}
