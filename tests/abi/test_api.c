/* test_api.c -- what the functions of minerva.h do with arguments that break their contract: NULL
 * and forgotten sizes, as the header says it (api_null.inc is made from it), and a few that no
 * header can tell. The demo model on the reference device. */
#include <minerva/minerva.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static mn_runtime *api_runtime;
static mn_model *api_model;
static const char api_device[] = "reference";
static const int32_t api_ids[] = {0, 17, 21};
static const mn_message api_messages[] = {{{"user", 4}, {"a", 1}, {NULL, 0}}};
static const mn_str api_strings[] = {{"a", 1}};
static const mn_embed_text api_texts[] = {{api_ids, 3, 0}};
static const mn_adapter_source api_adapters[] = {{"/missing", 1, 0}};
static float api_vector[4096];
static const mn_hub_file api_files[] = {{{"a.gguf", 6}, 1}};
static uint8_t api_chosen[1];
static uint64_t api_bytes;

static int bad;
static const char *doing;
static mn_error err;

static void fail(const char *what) {
    printf("FAILED: %s: %s (%s)\n", doing, what, err.msg);
    bad++;
}

static void begin(const char *what) {
    doing = what;
    err = (mn_error)MN_ERROR;
}

/* refused: MN_INVALID is expected, and nothing else is not; word: of its message. */
static void end_status(mn_status st, int refused, const char *word) {
    if (refused && st != MN_INVALID)
        fail("not MN_INVALID");
    if (!refused && st == MN_INVALID)
        fail("MN_INVALID");
    if (refused && word && !strstr(err.msg, word))
        fail("the message does not name it");
}

static void end_true(int ok) {
    if (!ok)
        fail("not the value that the header says");
}

static mn_status api_rows(void *arg, uint32_t first, uint32_t n, uint32_t v, const float *rows) {
    (void)arg;
    (void)first;
    (void)n;
    (void)v;
    (void)rows;
    return MN_OK;
}

static int api_print(void *arg, const char *text, uint64_t n) {
    (void)arg;
    (void)text;
    (void)n;
    return 1; /* the first word is enough */
}

static void api_profile(void *arg, const mn_step_profile *step) {
    (void)arg;
    (void)step;
}

static const char *api_output(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/minerva-api-%ld.gguf", (long)getpid());
    unlink(path);
    return path;
}

static mn_session *last_session;
static mn_stream *last_stream;
static mn_constraint *last_constraint;
static mn_found *last_found;

static mn_session *open_session(uint32_t flags) {
    const mn_session_params p = {
        .size = sizeof p, .device = api_device, .n_ctx = 64, .n_seq = 2, .flags = flags};
    mn_session *s = NULL;
    if (mn_session_create(api_model, &p, &s, &err))
        fail("no session");
    return s;
}

/* A new one that embeds. */
static mn_session *api_embedding(void) {
    mn_session_free(last_session);
    last_session = open_session(MN_SESSION_EMBED);
    return last_session;
}

/* A new one that sums inputs, and has done so. */
static mn_session *api_sums(int done) {
    mn_session_free(last_session);
    last_session = open_session(MN_SESSION_INPUT_SUMS);
    if (done && mn_session_input_sums(last_session, api_ids, 3, &err))
        fail("no sums");
    return last_session;
}

/* A new one whose sequence 0 has ended. */
static mn_session *api_session(void) {
    const mn_sample_params one = {.size = sizeof one, .max_new = 1};
    mn_token t[2];
    uint32_t n = 0;
    int32_t seq;
    mn_session_free(last_session);
    last_session = open_session(0);
    if (mn_seq_create(last_session, api_ids, 3, &one, &seq, &err) ||
        mn_session_step(last_session, t, 2, &n, &err) || n != 1)
        fail("no sequence");
    return last_session;
}

static mn_found *api_found(void) {
    mn_found_free(last_found);
    last_found = NULL;
    if (mn_model_find(api_runtime, NULL, &last_found, &err))
        fail("nothing found");
    return last_found;
}

static mn_constraint *api_constraint(void) {
    const mn_constraint_params p = {.size = sizeof p, .kind = MN_CONSTRAINT_JSON};
    mn_constraint_free(last_constraint);
    last_constraint = NULL;
    if (mn_constraint_create(api_model, &p, &last_constraint, &err))
        fail("no constraint");
    return last_constraint;
}

static mn_stream *api_stream(void) {
    mn_stream_free(last_stream);
    last_stream = NULL;
    if (mn_stream_create(api_model, 0, &last_stream, &err))
        fail("no stream");
    return last_stream;
}

/* What frees gives away its argument: a new one each time. */
static void free_session(mn_session *s) {
    if (s == last_session)
        last_session = NULL;
    mn_session_free(s);
}
static void free_stream(mn_stream *s) {
    if (s == last_stream)
        last_stream = NULL;
    mn_stream_free(s);
}
static void free_constraint(mn_constraint *c) {
    if (c == last_constraint)
        last_constraint = NULL;
    mn_constraint_free(c);
}
static void free_found(mn_found *f) {
    if (f == last_found)
        last_found = NULL;
    mn_found_free(f);
}
static void keep_runtime(mn_runtime *rt) {
    if (rt != api_runtime)
        mn_runtime_free(rt);
}
static void keep_model(mn_model *m) {
    if (m != api_model)
        mn_model_free(m);
}
#define mn_session_free free_session
#define mn_stream_free free_stream
#define mn_constraint_free free_constraint
#define mn_found_free free_found
#define mn_runtime_free keep_runtime
#define mn_model_free keep_model
#include "api_null.inc"
#undef mn_session_free
#undef mn_stream_free
#undef mn_constraint_free
#undef mn_found_free
#undef mn_runtime_free
#undef mn_model_free

static void call_others(void) {
    const mn_setting nameless = {NULL, "1"};
    const mn_setting worthless = {"threads", NULL};
    const mn_setting *settings[] = {&nameless, &worthless, NULL};
    mn_runtime *rt = NULL;
    for (int i = 0; i < 3; i++) {
        const mn_runtime_params p = {.size = sizeof p, .n_settings = 1, .settings = settings[i]};
        begin("settings with a NULL");
        end_status(mn_runtime_create(&p, &rt, &err), 1, "settings");
    }
    const mn_message message = {{"user", 4}, {NULL, 7}, {NULL, 0}};
    int32_t *ids = NULL;
    int32_t seq;
    uint32_t n = 0;
    begin("a message whose content is NULL");
    end_status(mn_model_chat(api_model, &message, 1, 0, &ids, &n, &err), 1, "content");
    begin("a flag that nobody knows");
    end_status(mn_model_tokenize(api_model, api_strings[0], 1u << 31, &ids, &n, &err), 1, "flags");
    mn_session *s = NULL;
    const mn_session_params flags = {.size = sizeof flags, .flags = 1u << 31};
    end_status(mn_session_create(api_model, &flags, &s, &err), 1, "mn_session_params.flags");
    static const struct {
        const char *word;
        mn_session_params p;
    } kinds[] = {{"precision: found 4", {.size = sizeof kinds[0].p, .precision = 4}},
                 {"k_dtype: found 9999", {.size = sizeof kinds[0].p, .k_dtype = 9999}},
                 {"v_dtype: found 9999", {.size = sizeof kinds[0].p, .v_dtype = 9999}}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        begin("a precision or a KV type that nothing has");
        end_status(mn_session_create(api_model, &kinds[i].p, &s, &err), 1, kinds[i].word);
    }
    mn_model *model = NULL;
    begin("an empty path");
    end_status(mn_model_open(api_runtime, "", &model, &err), 1, "empty");
    end_true(!model);
    const mn_sample_params stop = {.size = sizeof stop, .n_stop = 1};
    begin("stop ids at NULL");
    end_status(mn_seq_create(api_session(), api_ids, 3, &stop, &seq, &err), 1, "stop");
    begin("more messages known than there are");
    end_status(mn_model_chat(api_model, api_messages, 1, 2, &ids, &n, &err), 1, "n_known");
}

/* Numbers that nothing can be drawn by. */
static void call_sampling(void) {
    static const struct {
        const char *name;
        mn_sample_params p;
    } rows[] = {
        {"temp", {.temp = NAN}},
        {"temp", {.temp = INFINITY}},
        {"top_k", {.top_k = -1}},
        {"top_p", {.top_p = 7}},
        {"top_p", {.top_p = -1}},
        {"min_p", {.min_p = 5}},
        {"repeat_penalty", {.repeat_penalty = -1}},
        {"frequency_penalty", {.frequency_penalty = -INFINITY}},
        {"presence_penalty", {.presence_penalty = NAN}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        mn_session *s = open_session(0);
        mn_sample_params p = rows[i].p;
        int32_t seq = 0;
        p.size = sizeof p;
        begin("a number of mn_sample_params");
        end_status(mn_seq_create(s, api_ids, 3, &p, &seq, &err), 1, rows[i].name);
        end_true(mn_seq_create(s, api_ids, 3, NULL, &seq, &err) == MN_OK); /* the slot is free */
        mn_session_free(s);
    }
}

/* A session for logits draws nothing, and gives logits all the same. */
static void call_without_sampling(void) {
    mn_session *s = open_session(MN_SESSION_NO_SAMPLING);
    mn_token t[64];
    uint32_t n = 0;
    int32_t seq = 0;
    begin("mn_seq_create without sampling");
    end_status(mn_seq_create(s, api_ids, 3, NULL, &seq, &err), 1, "computes logits");
    begin("mn_session_step without sampling");
    end_status(mn_session_step(s, t, 64, &n, &err), 1, "computes logits");
    begin("mn_generate without sampling");
    end_status(mn_generate(s, "a", NULL, api_print, NULL, &err), 1, "computes logits");
    begin("mn_session_logits without sampling");
    end_true(mn_session_logits(s, api_ids, 3, api_rows, NULL, &err) == MN_OK);
    mn_session_free(s);
}

/* Texts together and alone, in one step or several, have the same vectors; what breaks the contract
 * is named. */
static void call_embed(void) {
    static const int32_t longer[] = {0, 5, 9, 300, 17, 21, 40, 41, 8};
    static const mn_embed_text texts[] = {{longer, 9, 0}, {api_ids, 3, 0}, {longer, 4, 0}};
    const mn_session_params small = {.size = sizeof small,
                                     .device = api_device,
                                     .n_ctx = 64,
                                     .n_seq = 2,
                                     .n_batch = 4,
                                     .flags = MN_SESSION_EMBED};
    static float vectors[3 * 512];
    static float alone[512];
    mn_model_info info = {.size = sizeof info};
    mn_embed_params p = {.size = sizeof p, .pooling = MN_POOLING_MEAN};
    mn_session *s = NULL;
    int32_t seq;
    begin("mn_session_embed");
    mn_model_get_info(api_model, &info);
    const uint64_t width = (uint64_t)info.n_embd;
    end_true(width > 0 && width <= 512 && !info.is_encoder);
    end_true(mn_session_create(api_model, &small, &s, &err) == MN_OK);
    for (uint32_t pooling = MN_POOLING_DEFAULT; pooling <= MN_POOLING_LAST; pooling++) {
        p.pooling = pooling;
        end_true(mn_session_embed(s, texts, 3, &p, vectors, 3 * width, &err) == MN_OK);
        for (uint32_t i = 0; i < 3; i++) {
            double length = 0;
            end_true(mn_session_embed(s, &texts[i], 1, &p, alone, width, &err) == MN_OK);
            for (uint64_t d = 0; d < width; d++) {
                end_true(fabs((double)(alone[d] - vectors[i * width + d])) < 1e-6);
                length += (double)alone[d] * (double)alone[d];
            }
            end_true(fabs(length - 1) < 1e-5);
        }
    }
    p.n_dim = 7;
    end_true(mn_session_embed(s, texts, 3, &p, vectors, 21, &err) == MN_OK);
    end_status(mn_session_embed(s, texts, 3, &p, vectors, 20, &err), 1, "room for 20");
    p.n_dim = 513;
    end_status(mn_session_embed(s, texts, 3, &p, vectors, 3 * 512, &err), 1, "n_dim");
    p.n_dim = 0;
    p.pooling = 4;
    end_status(mn_session_embed(s, texts, 3, &p, vectors, 3 * width, &err), 1, "pooling 4");
    const mn_embed_text bad[] = {{api_ids, 3, 0}, {api_ids, 0, 0}};
    end_true(mn_session_embed(s, bad, 2, NULL, vectors, 3 * width, &err) == MN_BAD_INPUT);
    end_true(err.part == 2 && strstr(err.msg, "text 2 is empty") != NULL);
    end_status(mn_seq_create(s, api_ids, 3, NULL, &seq, &err), 1, "embeds texts");
    end_status(mn_session_logits(s, api_ids, 3, api_rows, NULL, &err), 1, "embeds texts");
    mn_session_cancel(s);
    end_true(mn_session_embed(s, texts, 1, NULL, vectors, width, &err) == MN_CANCELLED);
    mn_session_free(s);
    s = open_session(0);
    end_status(mn_session_embed(s, texts, 1, NULL, vectors, width, &err), 1,
               "expected one that embeds");
    mn_session_free(s);
}

/* What is to be filled says how much room there is, and then how much was filled. */
static void call_sized(void) {
    union {
        mn_model_info it;
        char room[sizeof(mn_model_info) + 64];
    } info;
    memset(&info, 0x5a, sizeof info);
    info.it.size = sizeof info;
    begin("a struct that is larger than the library's");
    end_true(mn_model_get_info(api_model, &info.it) == MN_OK);
    end_true(info.it.size == sizeof info.it && info.room[sizeof info.it] == 0x5a);
    memset(&info, 0x5a, sizeof info);
    info.it.size = 0;
    begin("a struct without a size");
    end_true(mn_model_get_info(api_model, &info.it) == MN_INVALID &&
             info.it.n_tensors == 0x5a5a5a5a);
}

/* Macros of the headers as functions, for languages that have no macros. */
static void call_status(void) {
    mn_error err;
    memset(&err, 0xff, sizeof err);
    begin("mn_error_init");
    mn_error_init(&err);
    end_true(err.size == sizeof err && err.status == MN_OK && err.node == ~0u && !err.msg[0]);
    mn_error_init(NULL);
    begin("mn_status_class, mn_status_name");
    end_true(mn_status_class(MN_BAD_FILE) == MN_CLASS_INPUT && mn_status_class(MN_OK) == 0);
    end_true(strcmp(mn_status_name(MN_OK), "OK") == 0);
    end_true(strcmp(mn_status_name(MN_IO_ERROR), "IO_ERROR") == 0);
    end_true(strcmp(mn_status_name(MN_STATUS(MN_CLASS_LOST, 77)), "LOST") == 0);
    end_true(strcmp(mn_status_name(-1), "UNKNOWN") == 0 &&
             strcmp(mn_status_name(3), "UNKNOWN") == 0);
}

/* A runtime of loaders: text works, and nothing can be computed. */
static void call_without_backends(void) {
    const mn_runtime_params p = {.size = sizeof p, .flags = MN_RUNTIME_NO_BACKENDS};
    mn_runtime *rt = NULL;
    mn_model *model = NULL;
    mn_device_item device;
    begin("MN_RUNTIME_NO_BACKENDS");
    end_status(mn_runtime_create(&p, &rt, &err), 0, NULL);
    end_true(mn_runtime_device(rt, 0, &device) == MN_END);
    mn_plugin_item plugin;
    int n_backends = 0;
    for (uint32_t i = 0; mn_runtime_plugin(rt, i, &plugin) == MN_OK; i++)
        n_backends += strstr(plugin.kind, "backend") && !strcmp(plugin.status, "ok");
    end_true(n_backends == 0);
    end_true(mn_model_open(rt, NULL, &model, &err) == MN_OK);
    int32_t *ids = NULL;
    uint32_t n = 0;
    end_true(mn_model_tokenize(model, api_strings[0], 0, &ids, &n, &err) == MN_OK && n > 0);
    mn_ids_free(ids);
    mn_session *s = NULL;
    end_true(mn_exit_code(mn_session_create(model, NULL, &s, &err)) == 3);
    mn_model_free(model);
    mn_runtime_free(rt);
}

int main(void) {
    static const mn_setting settings[] = {{"device", api_device}, {"threads", "2"}};
    const mn_runtime_params p = {.size = sizeof p, .n_settings = 2, .settings = settings};
    begin("start");
    if (mn_runtime_create(&p, &api_runtime, &err) ||
        mn_model_open(api_runtime, NULL, &api_model, &err)) {
        printf("%s\n", err.msg);
        return 1;
    }
    call_all();
    call_others();
    call_without_sampling();
    call_embed();
    call_sampling();
    call_sized();
    call_without_backends();
    call_status();
    unlink(api_output());
    mn_stream_free(last_stream);
    mn_session_free(last_session);
    mn_model_free(api_model);
    mn_runtime_free(api_runtime);
    return bad != 0;
}
