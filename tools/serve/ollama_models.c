/* ollama_models.c -- what Ollama's clients ask about models: /api/tags, /api/show, /api/ps,
 * /api/version. */
#include "model_facts.h"
#include "serve/dialect_ollama.h"
#include "serve/infill.h"
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Clients refuse versions of Ollama below those whose interface they need. */
#define OLLAMA_VERSION "0.12.6"
#define FOREVER (100.0 * 365 * 86400) /* seconds: of a model that stays */

/* ---- one model ------------------------------------------------------------------------------- */

/* "8.0B", "134.52M", "752.00K" */
static void put_size_of(uint64_t n, mn_text *out) {
    static const struct {
        double each;
        const char *form;
    } units[] = {{1e9, "\"%.1fB\""}, {1e6, "\"%.2fM\""}, {1e3, "\"%.2fK\""}, {1, "\"%.0f\""}};
    size_t i = 0;
    while (i + 1 < MN_COUNT(units) && (double)n < units[i].each)
        i++;
    mn_text_printf(out, units[i].form, (double)n / units[i].each);
}

/* Of a model that is not open its name alone is known. */
static void put_details(const served *m, mn_text *out) {
    static const mn_model_info closed = {.format = "", .arch = ""};
    const mn_model_info *info = m->is_open ? &m->a.info : &closed;
    char type[32] = "";
    if (m->is_open)
        model_main_type(m->a.model, type);
    for (char *c = type; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    mn_text_puts(out, "\"details\":{\"parent_model\":\"\",\"format\":");
    json_stringz(out, info->format);
    mn_text_puts(out, ",\"family\":");
    json_stringz(out, info->arch);
    mn_text_puts(out, ",\"families\":[");
    json_stringz(out, info->arch);
    mn_text_puts(out, "],\"parameter_size\":");
    put_size_of(info->n_params, out);
    mn_text_puts(out, ",\"quantization_level\":");
    json_stringz(out, type);
    mn_text_puts(out, "}");
}

/* 64 digits that are the same for the same model: clients look at whether they change. */
static void put_digest(const served *m, mn_text *out) {
    uint64_t h = mn_fnv_z(MN_FNV_BASIS, m->name);
    mn_text_puts(out, "\"digest\":\"");
    for (uint32_t i = 0; i < 4; i++) {
        h = mn_fnv_word(h, i);
        mn_text_printf(out, "%016llx", (unsigned long long)h);
    }
    mn_text_puts(out, "\"");
}

static void put_modified(const served *m, mn_text *out) {
    struct stat st;
    const int known = m->is_open && m->a.info.path && !stat(m->a.info.path, &st);
    mn_text_puts(out, "\"modified_at\":");
    ollama_put_time(out, known ? (double)st.st_mtime : (double)m->s->created);
}

/* What every list has of a model. */
static void put_listed(const served *m, const char *name, mn_text *out) {
    mn_text_puts(out, "{\"name\":");
    ollama_put_name(out, name);
    mn_text_puts(out, ",\"model\":");
    ollama_put_name(out, name);
    mn_text_printf(out, ",\"size\":%llu,", m->is_open ? (unsigned long long)m->a.info.n_bytes : 0);
    put_digest(m, out);
    mn_text_puts(out, ",");
    put_details(m, out);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void put_tag(const served *m, const char *name, mn_text *out) {
    put_listed(m, name, out);
    mn_text_puts(out, ",");
    put_modified(m, out);
    mn_text_puts(out, "}");
}

/* A model by its name and by its aliases. */
static void put_tags(const served *m, mn_text *out) {
    const arg_texts *aliases = &m->own.aliases;
    put_tag(m, m->name, out);
    for (size_t i = 0; i < aliases->n; i++) {
        const char *name = aliases->v[i];
        if (!strcmp(name, m->name) || !strcmp(name, "*"))
            continue;
        mn_text_puts(out, ",");
        put_tag(m, name, out);
    }
}

void route_ollama_tags(serve *s, http_request *r) {
    mn_text out = {0};
    mn_text_puts(&out, "{\"models\":[");
    for (unsigned i = 0; i < s->models.n; i++) {
        mn_text_puts(&out, i ? "," : "");
        put_tags(s->models.v[i], &out);
    }
    mn_text_puts(&out, "]}\n");
    serve_json(s, r, &out);
}

/* Weights are in the memory of a device that is no CPU. */
static int is_on_card(const served *m) {
    const char *device = m->n_links ? m->links[0].info_texts[0] : NULL;
    return device && strncmp(device, "cpu", 3) != 0 && strncmp(device, "reference", 9) != 0;
}

/* A model that is loaded; it stays until its time without requests is over. */
static void put_running(const served *m, mn_text *out) {
    const double now = (double)time(NULL);
    const double left =
        m->stay < 0 || !m->s->models.lazy ? FOREVER : m->used_at + m->stay - seconds();
    put_listed(m, m->name, out);
    mn_text_puts(out, ",\"expires_at\":");
    ollama_put_time(out, now + (left > 0 ? left : 0));
    mn_text_printf(out, ",\"size_vram\":%llu,\"context_length\":%u}",
                   is_on_card(m) ? (unsigned long long)models_bytes(m) : 0, m->n_ctx);
}

void route_ollama_ps(serve *s, http_request *r) {
    mn_text out = {0};
    int n = 0;
    mn_text_puts(&out, "{\"models\":[");
    for (unsigned i = 0; i < s->models.n; i++) {
        if (strcmp(models_state(s->models.v[i]), "loaded") != 0)
            continue;
        mn_text_puts(&out, n++ ? "," : "");
        put_running(s->models.v[i], &out);
    }
    mn_text_puts(&out, "]}\n");
    serve_json(s, r, &out);
}

void route_ollama_version(serve *s, http_request *r) {
    mn_text out = {0};
    mn_text_printf(&out, "{\"version\":\"" OLLAMA_VERSION "\",\"minerva\":\"%s\"}\n", mn_version());
    serve_json(s, r, &out);
}

/* ---- show ------------------------------------------------------------------------------------ */

/* Rendered with thinking switched on or off; malloc'ed by the library. NULL: it cannot be. */
static char *rendered(const served *m, int thinks) {
    char vars[200];
    char *text = NULL;
    uint64_t n = 0;
    snprintf(vars, sizeof vars,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":true,"
             "\"enable_thinking\":%s,\"thinking\":%s}",
             thinks ? "true" : "false", thinks ? "true" : "false");
    if (mn_template_render(m->a.model, NULL, mn_str_of(vars), &text, &n, NULL))
        return NULL;
    return text;
}

/* 1 if the template's prompt depends on the switch, or the vocabulary has a mark of thinking. */
static int can_think(const served *m) {
    static const char *const marks[] = {"<think>", "<|channel|>", "[THINK]"};
    char *with = rendered(m, 1);
    char *without = rendered(m, 0);
    int can = with && without && strcmp(with, without) != 0;
    mn_json_free(with);
    mn_json_free(without);
    for (size_t i = 0; i < MN_COUNT(marks) && !can; i++)
        can = infill_token(m->a.model, marks[i]) >= 0;
    return can;
}

/* 1 if the form in which the model writes calls is known. */
static int can_call(const served *m) {
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                                "\"parameters\":{\"type\":\"object\"}}}]";
    mn_constraint *c = NULL;
    const mn_status st = form_compile(m->a.model, MN_CONSTRAINT_CALLS, MN_CONSTRAINT_CALLS_ONLY,
                                      mn_str_of(tools), &c, NULL);
    mn_constraint_free(c);
    return st == MN_OK;
}

static void put_capabilities(const served *m, mn_text *out) {
    infill_marks marks;
    const struct {
        const char *name;
        int has;
    } all[] = {
        {"completion", !m->a.info.is_encoder},
        {"tools", m->a.info.has_chat_template && can_call(m)},
        {"thinking", m->a.info.has_chat_template && can_think(m)},
        {"insert", infill_find(m->a.model, &marks)},
        {"embedding", m->a.info.is_encoder || m->own.embeddings},
    };
    int n = 0;
    mn_text_puts(out, "\"capabilities\":[");
    for (size_t i = 0; i < MN_COUNT(all); i++)
        if (all[i].has)
            mn_text_printf(out, "%s\"%s\"", n++ ? "," : "", all[i].name);
    mn_text_puts(out, "]");
}

static void put_value(mn_text *out, const mn_value *v) {
    if (v->type == MN_VALUE_STR)
        mn_text_json(out, v->s);
    else if (v->type == MN_VALUE_FLOAT)
        json_float(out, v->f, "null");
    else if (v->type == MN_VALUE_BOOL)
        mn_text_puts(out, v->i ? "true" : "false");
    else if (v->type == MN_VALUE_INT)
        mn_text_printf(out, "%lld", (long long)v->i);
    else
        mn_text_puts(out, "null"); /* lists are long, as with Ollama */
}

/* The model's own keys, but for its template, which is "template", and what Minerva adds. */
static void put_keys(const served *m, mn_text *out) {
    static const char *const left_out[] = {"tokenizer.chat_template", "general.architecture",
                                           "general.parameter_count"};
    mn_value v = {.size = sizeof v};
    mn_str key;
    for (uint32_t i = 0; mn_model_meta(m->a.model, i, &key, &v) == MN_OK; i++) {
        size_t k = 0;
        while (k < MN_COUNT(left_out) && !mn_str_is(key, left_out[k]))
            k++;
        if (k < MN_COUNT(left_out) || (key.len > 8 && !memcmp(key.ptr, "minerva.", 8)))
            continue;
        mn_text_puts(out, ",");
        mn_text_json(out, key);
        mn_text_puts(out, ":");
        put_value(out, &v);
    }
}

static void put_model_info(const served *m, mn_text *out) {
    mn_text_puts(out, "\"model_info\":{\"general.architecture\":");
    json_stringz(out, m->a.info.arch);
    mn_text_printf(out, ",\"general.parameter_count\":%llu",
                   (unsigned long long)m->a.info.n_params);
    put_keys(m, out);
    mn_text_puts(out, "}");
}

/* Lines of parameters, as a file of Ollama has them. */
static void put_parameters(const served *m, mn_text *out) {
    const mn_sample_params *p = &m->sample;
    char text[300];
    snprintf(text, sizeof text,
             "temperature                    %.4g\ntop_k                          %d\n"
             "top_p                          %.4g\nmin_p                          %.4g\n"
             "repeat_penalty                 %.4g\nnum_ctx                        %u",
             (double)p->temp, p->top_k, (double)p->top_p, (double)p->min_p,
             p->repeat_penalty > 0 ? (double)p->repeat_penalty : 1.0, m->n_ctx);
    mn_text_puts(out, "\"parameters\":");
    json_stringz(out, text);
}

static int ollama_show(reading *x) {
    const served *m = x->m;
    mn_text *out = reading_out(x);
    const char *name = NULL;
    if (!ollama_model(x->body, &name, &x->e))
        return 0;
    if (models_find(x->s, name) != m) /* "name" is older than servers of several models */
        return json_fail(&x->e, "name", "name: found \"%.100s\", expected it as model", name);
    mn_text_puts(out, "{\"modelfile\":\"# by minerva serve\\nFROM ");
    mn_text_json_inner(out, m->name, strlen(m->name));
    mn_text_puts(out, "\\n\",");
    put_parameters(m, out);
    mn_text_puts(out, ",\"template\":");
    mn_text_json(out, mn_model_chat_template(m->a.model));
    mn_text_puts(out, ",");
    put_details(m, out);
    mn_text_puts(out, ",");
    put_model_info(m, out);
    mn_text_puts(out, ",");
    put_capabilities(m, out);
    mn_text_puts(out, ",");
    put_modified(m, out);
    mn_text_puts(out, "}\n");
    return 1;
}

void route_ollama_show(serve *s, http_request *r) {
    reading_serve(s, r, ollama_show);
}
