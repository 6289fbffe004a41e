/* models_open.c -- opens one model for its text, starts its engines, and closes both again.
 *
 * The text is opened in any thread, since a large vocabulary takes part of a second; the rest is
 * the loop's. What memory a model will need is estimated from its files and its graph: the engine
 * itself asks its devices before it loads anything, and says if there is too little. */
#include "serve/engine.h"
#include "serve/serve.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static mn_str model_str_of(const char *z) {
    return (mn_str){z ? z : "", z ? strlen(z) : 0};
}

/* ---- text ------------------------------------------------------------------------------------ */

/* A chat template that is a file is read; else the flag is a name. It replaces the model's own. 0,
 * or the exit code with the error printed. */
static int use_template(served *m) {
    const char *flag = m->own.chat_template;
    const int named = flag && access(flag, F_OK) != 0 && !strpbrk(flag, "/.");
    size_t n = 0;
    if (!flag)
        return 0;
    const int code = named ? 0 : read_all_text(flag, &m->chat_template, &n);
    if (code)
        return code;
    const char *text = named ? flag : m->chat_template;
    const mn_status st =
        mn_model_set_template(m->a.model, text, named ? MN_CHAT_NAMED : 0, &m->a.err);
    if (st)
        return named ? app_fail(&m->a, st) : complain(EXIT_FAILED, "%s: %s", flag, m->a.err.msg);
    m->a.info.size = sizeof m->a.info;
    mn_model_get_info(m->a.model, &m->a.info);
    return 0;
}

/* The parameters of requests that say nothing, and what the length of a text says of its tokens. */
static void models_read_defaults(served *m) {
    const sampling_flags *sampling = &m->sampling;
    m->stops = sampling->stop;
    m->has_seed = sampling->seed.given;
    sampling_values(&m->a, sampling, &m->sample);
    if (sampling->numbers.penalty_last_n == SAMPLE_ABSENT)
        m->sample.penalty_last_n = -1; /* OpenAI's penalties count all tokens */
    m->longest_token = 0;
    for (int32_t id = 0; id < m->a.info.n_vocab; id++) {
        const mn_str token = mn_model_token_text(m->a.model, id);
        if (token.len > m->longest_token)
            m->longest_token = (uint32_t)token.len;
    }
}

int model_open_text(served *m) {
    app_flags text = m->flags;
    text.offline |= models_are_several(m->s); /* in a thread nothing asks */
    text.device = NULL;
    text.strict = 0;
    text.threads = (arg_count){1, 1};
    int code = app_open_text(&m->a, &text);
    m->a.flags = &m->flags;
    if (code)
        return code;
    code = app_need_tokenizer(&m->a, EXIT_FAILED, ", expected a model that reads text");
    if (code)
        return code;
    models_read_defaults(m);
    return use_template(m);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static double models_number_of(const cJSON *object, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

/* Bytes of the KV cache per position, with numbers of 16 bits; 0: not known. */
static double kv_bytes_per_position(const served *m) {
    char *json = NULL;
    mn_error err = MN_ERROR;
    double n = 0;
    if (m->a.info.is_encoder || mn_model_graph_json(m->a.model, &json, &err) != MN_OK)
        return 0;
    cJSON *graph = cJSON_Parse(json);
    const cJSON *group = NULL;
    cJSON_ArrayForEach(group, cJSON_GetObjectItemCaseSensitive(graph, "kv_groups")) {
        const cJSON *layers = cJSON_GetObjectItemCaseSensitive(group, "layers");
        n += 2 * (double)cJSON_GetArraySize(layers) * models_number_of(group, "n_head_kv") *
             (models_number_of(group, "head_dim_k") + models_number_of(group, "head_dim_v"));
    }
    cJSON_Delete(graph);
    mn_json_free(json);
    return n;
}

void model_estimate(served *m) {
    enum { USUAL_CTX = 4096, CONTEXTS = 4, LEAST = 4096 };
    const int64_t trained = m->a.info.n_ctx_train;
    int64_t n_ctx = trained > 0 && trained < USUAL_CTX ? trained : USUAL_CTX;
    if (m->flags.ctx.v)
        n_ctx = m->flags.ctx.v;
    const int64_t n = n_ctx * CONTEXTS > LEAST ? n_ctx * CONTEXTS : LEAST;
    const unsigned n_engines = m->own.replicas.n ? (unsigned)m->own.replicas.n : 1;
    m->kv_bytes = (uint64_t)(kv_bytes_per_position(m) * (double)n);
    const uint64_t kv = m->own.kv_mb ? (uint64_t)m->own.kv_mb << 20 : m->kv_bytes;
    m->estimate = n_engines * (m->a.info.n_bytes + kv);
}

/* ---- engines --------------------------------------------------------------------------------- */

/* What every engine of the model opens, from its settings. */
static void set_open(served *m) {
    const app_flags *f = &m->flags;
    const serve_flags *own = &m->own;
    wire_open *open = &m->open;
    const uint32_t bits[][2] = {{WIRE_STRICT, (uint32_t)f->strict},
                                {WIRE_IGNORE_UNUSED, (uint32_t)f->ignore_unused},
                                {WIRE_NO_PROBE_CACHE, (uint32_t)f->no_probe_cache},
                                {WIRE_QUIET, (uint32_t)f->quiet},
                                {WIRE_VERBOSE, (uint32_t)f->verbose},
                                {WIRE_EMBEDDINGS, (uint32_t)own->embeddings},
                                {WIRE_NO_CACHE, (uint32_t)own->no_cache},
                                {WIRE_CPU_MOE, (uint32_t)f->cpu_moe},
                                {WIRE_LOOKUP, (uint32_t)f->lookup}};
    *open = (wire_open){0};
    for (size_t i = 0; i < MN_COUNT(bits); i++)
        open->flags |= bits[i][1] ? bits[i][0] : 0;
    open->model = model_str_of(m->a.info.path);
    open->device = model_str_of(f->device);
    open->threads = f->threads.given ? (int32_t)f->threads.v : -1;
    open->ctx = f->ctx.given ? (int32_t)f->ctx.v : -1;
    open->n_batch = (uint32_t)f->rows;
    open->n_seq = (uint32_t)own->n_seq;
    open->precision = (uint32_t)f->precision;
    open->numa = (uint32_t)f->numa;
    open->kv_k = (uint32_t)f->kv_k;
    open->kv_v = (uint32_t)f->kv_v;
    open->kv_bytes = own->kv_mb ? (uint64_t)own->kv_mb << 20 : m->kv_bytes;
    open->draft = model_str_of(f->draft);
    open->draft_device = model_str_of(f->draft_device);
    open->n_draft = (uint32_t)f->draft_max;
    open->cache_dir = model_str_of(f->cache_dir);
    open->cache_disk = model_str_of(f->cache_disk);
    open->n_cpu_moe = f->n_cpu_moe.given ? (int32_t)f->n_cpu_moe.v : -1;
    open->n_gpu_experts = f->n_gpu_experts.given ? (int32_t)f->n_gpu_experts.v : -1;
    open->tensor_devices = model_str_of(f->tensor_devices.text);
    open->device_memory = model_str_of(f->device_memory);
    open->expert_counts = model_str_of(f->expert_counts);
    open->chat_template = model_str_of(m->chat_template ? m->chat_template : own->chat_template);
    if (own->chat_template && !m->chat_template)
        open->flags |= WIRE_TEMPLATE_NAMED;
    adapters_put_open(m);
}

int model_start(served *m) {
    const serve_flags *f = &m->own;
    engine_calls calls = serve_engine_calls;
    calls.arg = m;
    const size_t n = f->replicas.n + f->more_replicas.n;
    engine_link *links = calloc(n ? n : 1, sizeof *links);
    if (!links)
        return no_memory();
    set_open(m);
    m->links = links;
    m->n_links = n ? (unsigned)n : 1;
    for (unsigned i = 0; i < m->n_links; i++) {
        const char *device = NULL;
        if (n)
            device = i < f->replicas.n ? f->replicas.v[i] : f->more_replicas.v[i - f->replicas.n];
        link_init(&links[i], i, m->s->set, &m->open, engine_stamp(&m->a), device,
                  m->s->models.lazy ? m->name : NULL, &calls);
        links[i].most_silent_s = (double)m->s->flags->engine_timeout;
    }
    return 0;
}

void model_free_engines(served *m) {
    for (unsigned i = 0; i < m->n_links; i++)
        link_free(&m->links[i]);
    free(m->links);
    m->links = NULL;
    m->n_links = 0;
    m->n_ctx = 0;
    m->n_seq = 0;
    m->fingerprint[0] = 0;
}

void model_close_text(served *m) {
    free(m->chat_template);
    m->chat_template = NULL;
    app_close(&m->a);
}
