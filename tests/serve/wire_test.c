/* wire_test.c -- the messages between front and engine: what is written is read, and no prefix and
 * no changed byte of a message is read beyond its end (run it with a sanitizer). */
#include "serve/wire.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const int32_t ids[] = {5, 6, 7, 8};
static const float floats[] = {0.5f, -1.0f, 2.0f, 3.0f};

static void put_all(mn_text *out) {
    const wire_open open = {.version = WIRE_VERSION,
                            .model = {"model", 5},
                            .device = {"cpu", 3},
                            .chat_template = {"x", 1},
                            .adapters = {"1\t1\ta\tb\n", 8}};
    wire_submit submit = {.id = 7, .n_ids = 4, .n_drawn = 1, .ids = ids, .n_bias = 2};
    submit.sample.n_stop = 2;
    submit.sample.stop = ids;
    submit.sample.seed = 99;
    static const char *const breakers[] = {"\n", "a longer one"};
    submit.sample.samplers = "top_k;dry";
    submit.sample.dry_breakers = breakers;
    submit.sample.n_dry_breakers = 2;
    submit.sample.mirostat_eta = 0.5f;
    submit.sample.adapter = "sql";
    submit.form = 2;
    submit.form_source = (mn_str){"{}", 2};
    submit.bias_ids = ids;
    submit.bias = floats;
    const uint32_t lengths[] = {1, 3};
    const wire_embed embed = {.id = 8,
                              .n_texts = 2,
                              .how = WIRE_EMBED_SCORES,
                              .lengths = lengths,
                              .firsts = lengths,
                              .ids = ids,
                              .n_ids = 4};
    const wire_refused refused = {.id = 9, .status = 3, .message = {"why not", 7}};
    const wire_event event = {.id = 10,
                              .kind = MN_REQUEST_TOKEN,
                              .token = 3,
                              .finish = MN_FINISH_LENGTH,
                              .n_top = 4,
                              .top_ids = ids,
                              .top_logprobs = floats,
                              .decode_ns = 77};
    const wire_event prompt = {.id = 11,
                               .kind = MN_REQUEST_PROMPT,
                               .n_top = 2,
                               .n_prompt = 2,
                               .prompt_logprobs = floats,
                               .prompt_top_ids = ids,
                               .prompt_top_logprobs = floats};
    const wire_vector vector = {.id = 12, .n_texts = 2, .n_dim = 2, .values = floats};
    const wire_ready ready = {.version = WIRE_VERSION, .n_ctx = 64, .device = {"cpu", 3}};
    const wire_adapter adapter = {.id = 14, .scale = 2, .name = {"sql", 3}, .path = {"/a", 2}};
    const wire_beat beat = {.n_running = 3, .beat_ms = 5};
    wire_put_open(out, &open);
    wire_put_submit(out, &submit);
    wire_put_embed(out, &embed);
    wire_put_refused(out, &refused);
    wire_put_event(out, &event);
    wire_put_event(out, &prompt);
    wire_put_vector(out, &vector);
    wire_put_ready(out, &ready);
    wire_put_beat(out, &beat);
    wire_put_id(out, WIRE_ABORT, 13);
    wire_put_adapter(out, &adapter);
}

/* Reads a message as what its type says, and touches all that it points to. */
static int get(const wire_message *m, uint64_t *sum) {
    union {
        wire_open open;
        wire_submit submit;
        wire_embed embed;
        wire_refused refused;
        wire_event event;
        wire_vector vector;
        wire_ready ready;
        wire_beat beat;
        wire_adapter adapter;
    } u;
    int ok = 0;
    switch (m->type) {
    case WIRE_OPEN:
        ok = wire_get_open(m, &u.open);
        for (uint64_t i = 0; ok && i < u.open.model.len; i++)
            *sum += (unsigned char)u.open.model.ptr[i];
        return ok;
    case WIRE_SUBMIT:
        ok = wire_get_submit(m, &u.submit);
        for (uint32_t i = 0; ok && i < u.submit.n_ids; i++)
            *sum += (uint64_t)u.submit.ids[i];
        for (uint32_t i = 0; ok && i < u.submit.n_bias; i++)
            *sum += u.submit.bias[i] > 0;
        return ok;
    case WIRE_EMBED:
        ok = wire_get_embed(m, &u.embed);
        for (uint32_t i = 0; ok && i < u.embed.n_texts; i++)
            *sum += u.embed.lengths[i] + (u.embed.how ? u.embed.firsts[i] : 0);
        return ok;
    case WIRE_REFUSED:
        return wire_get_refused(m, &u.refused);
    case WIRE_EVENT:
        ok = wire_get_event(m, &u.event);
        for (uint32_t i = 0; ok && u.event.kind == MN_REQUEST_TOKEN && i < u.event.n_top; i++)
            *sum += (uint64_t)u.event.top_ids[i];
        for (uint32_t i = 0; ok && i < u.event.n_prompt * u.event.n_top; i++)
            *sum += u.event.prompt_top_logprobs[i] > 0;
        return ok;
    case WIRE_VECTOR:
        ok = wire_get_vector(m, &u.vector);
        for (uint64_t i = 0; ok && i < (uint64_t)u.vector.n_texts * u.vector.n_dim; i++)
            *sum += u.vector.values[i] > 0;
        return ok;
    case WIRE_READY:
        return wire_get_ready(m, &u.ready) && u.ready.n_ctx == 64;
    case WIRE_BEAT:
        return wire_get_beat(m, &u.beat);
    case WIRE_ADAPTER:
        ok = wire_get_adapter(m, &u.adapter);
        for (uint64_t i = 0; ok && i < u.adapter.path.len; i++)
            *sum += (unsigned char)u.adapter.path.ptr[i];
        return ok;
    default:
        return wire_get_id(m, sum);
    }
}

/* How many messages of the n bytes are whole and valid. */
static int read_all(const char *bytes, size_t n) {
    /* a copy of exactly that size: a sanitizer sees what is read behind it */
    wire_in in = {.bytes = malloc(n ? n : 1), .n = n, .cap = n};
    wire_message m;
    uint64_t sum = 0;
    int n_valid = 0;
    if (n)
        memcpy(in.bytes, bytes, n);
    while (wire_next(&in, &m) > 0)
        n_valid += get(&m, &sum);
    wire_free(&in);
    return n_valid;
}

int main(void) {
    mn_text out = {0};
    put_all(&out);
    assert(!out.failed && out.len % 8 == 0);
    assert(read_all(out.ptr, out.len) == 11);
    for (size_t n = 0; n < out.len; n++)
        assert(read_all(out.ptr, n) < 11);
    for (size_t at = 0; at < out.len; at++)
        for (int bit = 0; bit < 8; bit++) {
            out.ptr[at] = (char)(out.ptr[at] ^ 1 << bit);
            read_all(out.ptr, out.len);
            out.ptr[at] = (char)(out.ptr[at] ^ 1 << bit);
        }
    wire_submit submit;
    wire_in in = {.bytes = (unsigned char *)out.ptr, .n = out.len};
    wire_message m;
    assert(wire_next(&in, &m) == 1 && wire_next(&in, &m) == 1 && wire_get_submit(&m, &submit));
    assert(submit.id == 7 && submit.n_drawn == 1 && submit.sample.seed == 99);
    assert(!memcmp(submit.ids, ids, sizeof ids) && submit.sample.stop[1] == 6);
    assert(!strcmp(submit.sample.samplers, "top_k;dry") && submit.sample.mirostat_eta == 0.5f);
    assert(!strcmp(submit.sample.adapter, "sql"));
    assert(submit.has_breakers && !strcmp(submit.breakers[1], "a longer one"));
    assert(submit.form == 2 && submit.form_source.len == 2);
    mn_text_free(&out);
    return 0;
}
