/* llama_parts.c -- parts of answers in llama-server's form: settings of a generation, its times,
 * texts of ids, and the choice of members that response_fields is. */
#include "serve/dialect_llama.h"
#include <math.h>
#include <string.h>

/* ---- settings -------------------------------------------------------------------------------- */

/* A number of the samplers by the name that a request has for it; 0 as what the library takes it
 * for. */
static void put_setting(mn_text *out, const char *name, double v) {
    static const struct {
        const char *name;
        double zero;
    } zeros[] = {{"repeat_penalty", 1},     {"typical_p", 1},       {"dry_base", 1.75},
                 {"dry_allowed_length", 2}, {"xtc_threshold", 0.1}, {"dynatemp_exponent", 1},
                 {"mirostat_tau", 5},       {"mirostat_eta", 0.1},  {"dry_penalty_last_n", -1}};
    const char *own = strcmp(name, "repetition_penalty") ? name : "repeat_penalty";
    double shown = v;
    for (size_t i = 0; i < MN_COUNT(zeros) && v == 0; i++)
        if (!strcmp(zeros[i].name, own))
            shown = zeros[i].zero;
    mn_text_printf(out, "\"%s\":", own);
    json_float(out, shown, "null");
    mn_text_puts(out, ",");
}

static void put_stops(const answer *a, mn_text *out) {
    mn_text_puts(out, "\"stop\":[");
    for (uint32_t i = 0; a && i < a->ask.n_stop; i++) {
        mn_text_puts(out, i ? "," : "");
        mn_text_json(out, a->ask.stop[i]);
    }
    mn_text_puts(out, "],");
}

/* With ignore_eos the ids that end answers have no chance. */
static void put_bias(const served *m, const answer *a, mn_text *out) {
    int n = 0;
    mn_text_puts(out, "\"logit_bias\":[");
    for (int32_t id = 0; a && a->sample.ignore_stop && id < m->a.info.n_vocab; id++)
        if (mn_model_is_stop(m->a.model, id))
            mn_text_printf(out, "%s{\"bias\":null,\"token\":%d}", n++ ? "," : "", id);
    for (uint32_t i = 0; a && i < a->ask.n_bias; i++) {
        mn_text_printf(out, "%s{\"bias\":", n++ ? "," : "");
        json_float(out, a->ask.bias[i], "null");
        mn_text_printf(out, ",\"token\":%d}", a->ask.bias_ids[i]);
    }
    mn_text_puts(out, "],");
}

/* The order of samplers as a list of names. */
static void put_samplers(const mn_sample_params *p, mn_text *out) {
    static const char usual[] = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature";
    const char *at = p->samplers ? p->samplers : usual;
    mn_text_puts(out, "\"samplers\":[");
    for (int n = 0; *at; n++) {
        const size_t len = strcspn(at, ";");
        mn_text_puts(out, n ? "," : "");
        mn_text_json(out, (mn_str){at, len});
        at += len + (at[len] == ';');
    }
    mn_text_puts(out, "],");
}

void llama_put_settings(const served *m, const answer *a, mn_text *out) {
    const mn_sample_params *p = a ? &a->sample : &m->sample;
    const int64_t limit = a ? a->ask.max_tokens : -1;
    const int64_t n_predict = limit >= INT32_MAX ? -1 : limit;
    mn_text_printf(out, "{\"seed\":%llu,", (unsigned long long)p->seed);
#define MN_SAMPLE_F32(member, zero, top, flags, v, low, high, help, name, of, least, most, doc)    \
    put_setting(out, name, (double)p->member);
#define MN_SAMPLE_I32(member, zero, top, flags, v, low, high, help, name, of, least, most, doc)    \
    put_setting(out, name, (double)p->member);
#include "samplers.def"
    put_stops(a, out);
    put_bias(m, a, out);
    put_samplers(p, out);
    mn_text_printf(out,
                   "\"max_tokens\":%lld,\"n_predict\":%lld,\"n_keep\":0,\"n_discard\":0,"
                   "\"ignore_eos\":%s,\"stream\":%s,\"n_probs\":%lld,\"min_keep\":0,",
                   (long long)n_predict, (long long)n_predict, p->ignore_stop ? "true" : "false",
                   a && a->ask.stream ? "true" : "false",
                   a && a->ask.logprobs ? (long long)a->ask.n_top : 0);
    mn_text_puts(out, "\"grammar\":");
    if (a && a->ask.form.kind == MN_CONSTRAINT_GRAMMAR)
        mn_text_json(out, a->ask.form.source);
    else
        mn_text_puts(out, "\"\"");
    mn_text_puts(out, ",\"adaptive_target\":-1,\"adaptive_decay\":0,\"lora\":[]}");
}

/* ---- times ----------------------------------------------------------------------------------- */

/* n things in `s` seconds: the four members of "prompt" or "predicted". */
static void put_rate(mn_text *out, const char *what, uint32_t n, double s) {
    const double ms = s > 0 ? s * 1e3 : 0;
    mn_text_printf(out, "\"%s_n\":%u,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.4f,", what, n, what, ms,
                   what, n ? ms / n : 0.0);
    mn_text_printf(out, "\"%s_per_second\":%.3f", what, ms > 0 ? n * 1e3 / ms : 0.0);
}

void llama_put_timings(const generation *g, mn_text *out) {
    const uint32_t n_cached = g->n_cached < g->n_prompt ? g->n_cached : g->n_prompt;
    const double now = seconds();
    const double first = g->first > 0 ? g->first : now;
    mn_text_printf(out, "{\"cache_n\":%u,", n_cached);
    put_rate(out, "prompt", g->n_prompt - n_cached, first - g->begin);
    mn_text_puts(out, ",");
    put_rate(out, "predicted", g->n_ids - g->n_prompt, now - first);
    if (g->n_drafted)
        mn_text_printf(out, ",\"draft_n\":%llu,\"draft_n_accepted\":%llu",
                       (unsigned long long)g->n_drafted, (unsigned long long)g->n_accepted);
    mn_text_puts(out, "}");
}

/* ---- texts ----------------------------------------------------------------------------------- */

void llama_put_text_of(const served *m, const int32_t *ids, uint32_t n, mn_text *out) {
    mn_stream *stream = NULL;
    const mn_stream_event *events = NULL;
    uint32_t n_events = 0;
    mn_text_puts(out, "\"");
    if (mn_stream_create(m->a.model, MN_STREAM_PLAIN | MN_STREAM_SPECIAL, &stream, NULL)) {
        out->failed = 1;
        return;
    }
    for (uint32_t i = 0; i <= n; i++) {
        const mn_status st = i < n ? mn_stream_push(stream, ids[i], &events, &n_events, NULL)
                                   : mn_stream_finish(stream, &events, &n_events, NULL);
        out->failed |= st != MN_OK;
        for (uint32_t k = 0; !st && k < n_events; k++)
            mn_text_json_inner(out, events[k].text.ptr, events[k].text.len);
    }
    mn_stream_free(stream);
    mn_text_puts(out, "\"");
}

/* ---- response_fields ------------------------------------------------------------------------- */

/* The value at "a/b"; NULL: there is none. */
static const cJSON *value_at(const cJSON *object, const char *path) {
    char name[64];
    while (object && *path) {
        const size_t n = strcspn(path, "/");
        if (n >= sizeof name)
            return NULL;
        memcpy(name, path, n);
        name[n] = 0;
        object = cJSON_GetObjectItemCaseSensitive(object, name);
        path += n + (path[n] == '/');
    }
    return object;
}

void llama_choose_fields(const cJSON *fields, mn_text *answer) {
    const cJSON *field = NULL;
    if (!cJSON_IsArray(fields) || !fields->child || answer->failed)
        return;
    cJSON *all = cJSON_ParseWithLength(answer->ptr, answer->len);
    cJSON *chosen = cJSON_CreateObject();
    int ok = all && chosen;
    cJSON_ArrayForEach(field, fields) {
        const cJSON *v = cJSON_IsString(field) ? value_at(all, field->valuestring) : NULL;
        ok = ok && (!v || cJSON_HasObjectItem(chosen, field->valuestring) ||
                    dialect_copy(chosen, field->valuestring, v));
    }
    char *text = ok ? cJSON_PrintUnformatted(chosen) : NULL;
    mn_text_clear(answer);
    answer->failed |= !text;
    mn_text_puts(answer, text ? text : "");
    cJSON_free(text);
    cJSON_Delete(all);
    cJSON_Delete(chosen);
}
