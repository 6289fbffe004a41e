/* wire.h -- messages between the two processes of the server, the front and an engine, over a
 * stream socket of one machine.
 *
 * A message is a head of 8 bytes (length of the payload, type) and a payload of numbers in the
 * byte order of the machine, texts and arrays with their lengths, padded to 8 bytes. Neither side
 * trusts the other's bytes: a length that exceeds the message, an array that exceeds a limit and
 * an unknown type are errors of the reader, never accesses outside the message.
 *
 * Front to engine: OPEN once, then SUBMIT, ABORT, EMBED and ADAPTER. Engine to front: READY once,
 * then for each SUBMIT either REFUSED or ADMITTED and the EVENTs of its choices, for each EMBED a
 * VECTOR or REFUSED, for each ADAPTER either ADMITTED or REFUSED, and BEAT about twice a second.
 * REFUSED in place of READY says why the model cannot be opened. */
#ifndef MINERVA_SERVE_WIRE_H
#define MINERVA_SERVE_WIRE_H
#include "text_buffer.h"
#include <minerva/minerva.h>

#define WIRE_VERSION 10u
#define WIRE_MAX (256u << 20) /* bytes of a message at most */
#define WIRE_MAX_TOP 32u
#define WIRE_MAX_BIAS 320u

typedef enum {
    WIRE_OPEN = 1,
    WIRE_SUBMIT,
    WIRE_ABORT,
    WIRE_EMBED,
    WIRE_ADAPTER,
    WIRE_READY = 64,
    WIRE_ADMITTED,
    WIRE_REFUSED,
    WIRE_EVENT,
    WIRE_VECTOR,
    WIRE_BEAT,
} wire_type;

/* What the engine opens: the values of app_flags and the server's own. */
#define WIRE_STRICT 1u
#define WIRE_NO_PROBE_CACHE 2u
#define WIRE_QUIET 4u
#define WIRE_VERBOSE 8u
#define WIRE_EMBEDDINGS 16u
#define WIRE_NO_CACHE 32u
#define WIRE_LOOKUP 64u
#define WIRE_IGNORE_UNUSED 128u
#define WIRE_CPU_MOE 512u
#define WIRE_TEMPLATE_NAMED 256u /* chat_template is a name */
typedef struct {
    uint32_t version, flags;
    mn_str model, device, excluded; /* excluded: ids of plugins with commas */
    int32_t threads;                /* -1: not given */
    int32_t ctx;                    /* -1: not given */
    uint32_t n_batch, n_seq, precision, kv_k, kv_v;
    uint64_t kv_bytes;
    mn_str draft, draft_device; /* empty: none */
    uint32_t n_draft, numa;
    mn_str chat_template;         /* empty: the model's own */
    mn_str cache_dir, cache_disk; /* empty: the settings */
    int32_t n_cpu_moe;            /* -1: not given */
    int32_t n_gpu_experts;        /* -1: not given */
    mn_str tensor_devices, device_memory, expert_counts;
    /* lines "REQUIRED\tSCALE\tNAME\tPATH\n", REQUIRED 0 or 1; the room: mn_adapter_room */
    mn_str adapters;
    uint32_t n_adapters, adapter_rank, adapter_type, pad_adapters;
} wire_open;

/* An adapter is loaded, or unloaded. */
typedef struct {
    uint64_t id;
    uint32_t unloads;
    float scale;
    mn_str name, path;
} wire_adapter;

/* A generation: the prompt, then the n_drawn ids that an earlier engine drew. */
typedef struct {
    uint64_t id;
    uint32_t n_ids, n_drawn, n_top;
    uint32_t flags, priority; /* MN_SUBMIT_* and MN_PRIORITY_* */
    /* without the bias; stop and samplers point into the message, dry_breakers is not set: where
     * has_breakers, it is the list of this struct */
    mn_sample_params sample;
    uint32_t has_breakers, pad_breakers;
    const char *breakers[MN_MAX_DRY_BREAKERS];
    const int32_t *ids;
    uint32_t n_bias;
    const int32_t *bias_ids;
    const float *bias;
    uint64_t cache_salt;
    uint32_t form, form_flags; /* of the answer (form.h): MN_CONSTRAINT_*; 0: none */
    mn_str form_source;
} wire_submit;

typedef struct {
    uint64_t id;
    uint32_t n_texts, n_dim;
    const uint32_t *lengths; /* [n_texts] */
    const int32_t *ids;      /* one text after the other */
    uint32_t n_ids, how;     /* WIRE_EMBED_* */
    const uint32_t *firsts;  /* [n_texts] of pairs: ids of the first text; else none */
} wire_embed;
enum { WIRE_EMBED_VECTORS, WIRE_EMBED_SCORES, WIRE_EMBED_LOGITS };

typedef struct {
    uint32_t version, precision, n_ctx, n_seq, n_batch, fallback;
    uint64_t weight_bytes, kv_bytes;
    uint64_t stamp; /* engine_stamp of the model */
    mn_str device, description, why;
} wire_ready;

/* Why a request was not accepted: a mn_status and the library's message. */
typedef struct {
    uint64_t id;
    int32_t status;
    uint32_t of_form; /* 1: the form of the answer is at fault */
    mn_str message;
} wire_refused;

typedef struct {
    uint64_t id;           /* of the generation */
    uint32_t kind;         /* MN_REQUEST_* */
    int32_t token, finish; /* MN_FINISH_* */
    uint32_t n_cached, n_drawn, n_preempted;
    float logprob;
    uint32_t n_top; /* of top_ids and top_logprobs */
    const int32_t *top_ids;
    const float *top_logprobs;
    uint32_t n_prompt; /* PROMPT: of prompt_logprobs, with n_top ids for each */
    const float *prompt_logprobs, *prompt_top_logprobs;
    const int32_t *prompt_top_ids;
    uint64_t queued_ns, prefill_ns, first_ns, decode_ns;
    int32_t status; /* FINISH with MN_FINISH_FAILED: a mn_status, and the library's message */
    uint32_t pad;
    mn_str message;
    uint64_t n_drafted, n_accepted;
    uint32_t n_computed, pad_computed; /* PROGRESS */
} wire_event;

typedef struct {
    uint64_t id;
    uint32_t n_texts, n_dim;
    const float *values; /* [n_texts, n_dim] */
} wire_vector;

typedef struct {
    uint32_t n_running, n_waiting;
    uint64_t pages_total, pages_used, cache_queries, cache_hits, n_preempted, n_steps;
    uint64_t usual_step_ns, beat_ms;
    uint64_t n_drafted, n_accepted, n_forced;
    uint64_t forms_ns, forms_most_ns, page_tokens;
} wire_beat;

/* ---- writing: a whole message is appended to out; out->failed: out of memory ----------------- */
void wire_put_open(mn_text *out, const wire_open *m);
void wire_put_submit(mn_text *out, const wire_submit *m);
void wire_put_id(mn_text *out, wire_type type, uint64_t id); /* ABORT, ADMITTED */
void wire_put_embed(mn_text *out, const wire_embed *m);
void wire_put_adapter(mn_text *out, const wire_adapter *m);
void wire_put_ready(mn_text *out, const wire_ready *m);
void wire_put_refused(mn_text *out, const wire_refused *m);
void wire_put_event(mn_text *out, const wire_event *m);
void wire_put_vector(mn_text *out, const wire_vector *m);
void wire_put_beat(mn_text *out, const wire_beat *m);

/* ---- reading --------------------------------------------------------------------------------- */
/* One message; the payload is valid until the next call with its wire_in. */
typedef struct {
    wire_type type;
    const unsigned char *payload;
    size_t n;
} wire_message;

/* The bytes that came, and how far they are read. All zero: empty. */
typedef struct {
    unsigned char *bytes;
    size_t n, at, cap;
} wire_in;

/* Reads once from fd. 1: bytes came; 0: none now (EAGAIN, EINTR); -1: the other side has ended, or
 * an error, or out of memory (errno: ENOMEM). */
int wire_fill(wire_in *in, int fd);
/* The next message. 1: *out is one; 0: it is not complete yet; -1: not a message. */
int wire_next(wire_in *in, wire_message *out);
void wire_free(wire_in *in);

/* Each 1, or 0 if the payload is no such message. Texts and arrays point into the payload. */
int wire_get_open(const wire_message *m, wire_open *out);
int wire_get_submit(const wire_message *m, wire_submit *out);
int wire_get_id(const wire_message *m, uint64_t *id);
int wire_get_embed(const wire_message *m, wire_embed *out);
int wire_get_adapter(const wire_message *m, wire_adapter *out);
int wire_get_ready(const wire_message *m, wire_ready *out);
int wire_get_refused(const wire_message *m, wire_refused *out);
int wire_get_event(const wire_message *m, wire_event *out);
int wire_get_vector(const wire_message *m, wire_vector *out);
int wire_get_beat(const wire_message *m, wire_beat *out);
#endif
