/* form.c -- the form of answers (form.h): read from a request by the front, which passes kind and
 * source on, and compiled by the engine, whose refusal names the place in the source. */
#include "serve/form.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    uint32_t kind;
} form_row;

static const form_row rows[] = {
#define FORM(name, of, at, constraint, doc) {name, constraint},
#include "serve/fields.def"
};

/* Keys of structured_outputs. */
static const form_row inner[] = {
    {"json", MN_CONSTRAINT_SCHEMA},      {"regex", MN_CONSTRAINT_REGEX},
    {"choice", MN_CONSTRAINT_CHOICES},   {"grammar", MN_CONSTRAINT_GRAMMAR},
    {"json_object", MN_CONSTRAINT_JSON},
};

/* One form for a request. param: static. 0: the error is set. */
static int answer_form_begin(ask_form *f, uint32_t kind, const char *param, json_error *e) {
    if (f->kind)
        return json_fail(e, param, "%s: found beside %s, expected one of them", param, f->param);
    f->kind = kind;
    f->param = param;
    return 1;
}

static int answer_form_finish(ask_form *f, json_error *e) {
    if (f->text.failed)
        return json_no_memory(e);
    if (f->text.len > FORM_MAX_SOURCE)
        return json_fail(e, f->param, "%s: found %zu bytes, expected at most %u", f->param,
                         f->text.len, FORM_MAX_SOURCE);
    f->source = (mn_str){f->text.ptr ? f->text.ptr : "", f->text.len};
    return 1;
}

/* A schema as an object, or as its text. */
static int set_schema(ask_form *f, const cJSON *schema, json_error *e) {
    if (cJSON_IsString(schema)) {
        mn_text_puts(&f->text, schema->valuestring);
        return answer_form_finish(f, e);
    }
    if (!cJSON_IsObject(schema) && !cJSON_IsBool(schema))
        return json_fail(e, f->param, "%s: expected a JSON schema", f->param);
    char *text = cJSON_PrintUnformatted(schema);
    mn_text_puts(&f->text, text ? text : "");
    f->text.failed |= !text;
    cJSON_free(text);
    return answer_form_finish(f, e);
}

static int set_choices(ask_form *f, const cJSON *list, json_error *e) {
    const cJSON *item = NULL;
    if (!cJSON_IsArray(list) || !list->child)
        return json_fail(e, f->param, "%s: expected a list of strings", f->param);
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsString(item))
            return json_fail(e, f->param, "%s: expected a list of strings", f->param);
        mn_text_put(&f->text, "", item != list->child); /* the NUL between two */
        mn_text_puts(&f->text, item->valuestring);
    }
    return answer_form_finish(f, e);
}

/* json_object: an object, as with OpenAI, vLLM and llama-server; MN_CONSTRAINT_JSON takes lists. */
static int set_object(ask_form *f, json_error *e) {
    f->kind = MN_CONSTRAINT_SCHEMA;
    mn_text_puts(&f->text, "{\"type\":\"object\"}");
    return answer_form_finish(f, e);
}

static int set_value(ask_form *f, const cJSON *v, json_error *e) {
    if (f->kind == MN_CONSTRAINT_JSON)
        return set_object(f, e);
    if (f->kind == MN_CONSTRAINT_SCHEMA)
        return set_schema(f, v, e);
    if (f->kind == MN_CONSTRAINT_CHOICES)
        return set_choices(f, v, e);
    if (!cJSON_IsString(v))
        return json_fail(e, f->param, "%s: expected a string", f->param);
    mn_text_puts(&f->text, v->valuestring);
    return answer_form_finish(f, e);
}

/* response_format: text, json_object, or json_schema. llama-server has a schema beside json_object,
 * and SGLang beside json_schema. */
static int read_format(const cJSON *body, ask_form *f, json_error *e) {
    static const char param[] = "response_format";
    const cJSON *format = json_field(body, param);
    const char *type = NULL;
    if (!format)
        return 1;
    if (!cJSON_IsObject(format) || !json_read_string(format, "type", &type, e) || !type)
        return json_fail(e, param, "response_format: expected an object with a type");
    if (!strcmp(type, "text"))
        return 1;
    const int is_object = !strcmp(type, "json_object");
    if (!is_object && strcmp(type, "json_schema") != 0)
        return json_fail(e, param,
                         "response_format: found type \"%.40s\", expected \"text\", "
                         "\"json_object\" or \"json_schema\"",
                         type);
    const cJSON *schema = json_field(json_field(format, "json_schema"), "schema");
    if (!schema || is_object)
        schema = json_field(format, "schema");
    if (!answer_form_begin(f, MN_CONSTRAINT_SCHEMA, param, e))
        return 0;
    if (is_object && !schema)
        return set_object(f, e);
    if (!schema)
        return json_fail(e, param, "response_format: json_schema: found no schema");
    return set_schema(f, schema, e);
}

/* The row of a key of structured_outputs; NULL: it is none of them. */
static const form_row *find_inner(const char *key) {
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if (!strcmp(inner[i].name, key))
            return &inner[i];
    return NULL;
}

/* vLLM's newer field, with the forms inside; every other key would change the answer, too. */
static int read_structured(const cJSON *body, ask_form *f, json_error *e) {
    static const char param[] = "structured_outputs";
    const cJSON *all = json_field(body, param);
    const cJSON *v = NULL;
    if (all && !cJSON_IsObject(all))
        return json_fail(e, param, "structured_outputs: expected an object");
    cJSON_ArrayForEach(v, all) {
        const form_row *row = find_inner(v->string);
        const int is_off =
            cJSON_IsNull(v) || (cJSON_IsFalse(v) && (!row || row->kind == MN_CONSTRAINT_JSON));
        if (is_off || *v->string == '_')
            continue;
        if (!row)
            return json_fail(e, param,
                             "structured_outputs: found \"%.40s\", expected json, regex, choice, "
                             "grammar or json_object",
                             v->string);
        if (!answer_form_begin(f, row->kind, param, e) || !set_value(f, v, e))
            return 0;
    }
    return 1;
}

int form_read(const cJSON *body, ask_form *out, json_error *e) {
    if (!read_format(body, out, e) || !read_structured(body, out, e))
        return 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const cJSON *v = json_field(body, rows[i].name);
        if (v && (!answer_form_begin(out, rows[i].kind, rows[i].name, e) || !set_value(out, v, e)))
            return 0;
    }
    return 1;
}

/* ---- calls of tools -------------------------------------------------------------------------- */

static const char *answer_form_name_of(const cJSON *tool) {
    return cJSON_GetStringValue(json_field(json_field(tool, "function"), "name"));
}

static int is_strict(const cJSON *tools) {
    const cJSON *tool = NULL;
    cJSON_ArrayForEach(tool, tools) {
        if (cJSON_IsTrue(json_field(json_field(tool, "function"), "strict")))
            return 1;
    }
    return 0;
}

/* The list as text, without the tools that have another name; name NULL: all. */
static void put_tools(mn_text *out, const cJSON *tools, const char *name) {
    const cJSON *tool = NULL;
    mn_text_puts(out, "[");
    cJSON_ArrayForEach(tool, tools) {
        const char *own = answer_form_name_of(tool);
        if (name && (!own || strcmp(own, name) != 0))
            continue;
        char *text = cJSON_PrintUnformatted(tool);
        mn_text_puts(out, out->len > 1 ? "," : "");
        mn_text_puts(out, text ? text : "");
        out->failed |= !text;
        cJSON_free(text);
    }
    mn_text_puts(out, "]");
}

/* tool_choice: *forced, and *name of the function that is (NULL: any). 0: the error is set. */
static int read_choice(const cJSON *body, int *forced, const char **name, json_error *e) {
    const cJSON *choice = json_field(body, "tool_choice");
    const char *word = cJSON_GetStringValue(choice);
    *name = NULL;
    *forced = word && !strcmp(word, "required");
    if (!choice || *forced || (word && (!strcmp(word, "none") || !strcmp(word, "auto"))))
        return 1;
    *name = cJSON_IsObject(choice) ? answer_form_name_of(choice) : NULL;
    *forced = 1;
    if (*name)
        return 1;
    return json_fail(e, "tool_choice",
                     "tool_choice: found %.40s, expected \"auto\", \"none\", \"required\" or a "
                     "function with its name",
                     word ? word : "no name of a function");
}

static int has_tool(const cJSON *tools, const char *name) {
    const cJSON *tool = NULL;
    cJSON_ArrayForEach(tool, tools) {
        const char *own = answer_form_name_of(tool);
        if (own && !strcmp(own, name))
            return 1;
    }
    return 0;
}

/* A list of functions: custom tools take text, which no form of calls has. */
static int check_tools(const cJSON *tools, json_error *e) {
    const cJSON *tool = NULL;
    int i = 0;
    if (tools && !cJSON_IsArray(tools))
        return json_fail(e, "tools", "tools: expected a list");
    cJSON_ArrayForEach(tool, tools) {
        const cJSON *type = json_field(tool, "type");
        const char *word = cJSON_GetStringValue(type);
        if (type && (!word || strcmp(word, "function") != 0))
            return json_fail(e, "tools", "tools[%d].type: found \"%.40s\", expected \"function\"",
                             i, word ? word : "no text");
        if (!answer_form_name_of(tool))
            return json_fail(e, "tools", "tools[%d]: expected a function with its name", i);
        const cJSON *parameters = json_field(json_field(tool, "function"), "parameters");
        char found[80];
        if (parameters && !cJSON_IsObject(parameters))
            return json_fail(e, "tools",
                             "tools[%d].function.parameters: found %s, expected a JSON schema as "
                             "an object",
                             i, json_found(parameters, found, sizeof found));
        i++;
    }
    return 1;
}

int form_calls(const cJSON *body, ask_form *out, int *has_tools, json_error *e) {
    const cJSON *tools = json_field(body, "tools");
    const char *word = cJSON_GetStringValue(json_field(body, "tool_choice"));
    const char *name = NULL;
    int forced = 0;
    int parallel = 1;
    if (!check_tools(tools, e))
        return 0;
    if (!read_choice(body, &forced, &name, e) ||
        !json_read_bool(body, "parallel_tool_calls", &parallel, e))
        return 0;
    out->one_call = !parallel;
    *has_tools = tools && tools->child && !(word && !strcmp(word, "none"));
    if (forced && !*has_tools)
        return json_fail(e, "tool_choice",
                         "tool_choice: a call is required, and there are no tools");
    if (name && !has_tool(tools, name))
        return json_fail(e, "tool_choice", "tool_choice: found %.60s, which is none of the tools",
                         name);
    if (!*has_tools || (!forced && (out->kind || !is_strict(tools))))
        return 1;
    mn_text_clear(&out->text);
    out->kind = MN_CONSTRAINT_CALLS;
    out->param = forced ? "tool_choice" : "tools";
    out->flags = forced ? MN_CONSTRAINT_CALLS_ONLY : 0;
    if (name || !parallel)
        out->flags |= MN_CONSTRAINT_ONE_CALL;
    put_tools(&out->text, tools, name);
    return answer_form_finish(out, e);
}

void form_free(ask_form *f) {
    mn_text_free(&f->text);
}

/* ---- compiling ------------------------------------------------------------------------------- */

/* The texts between NULs; malloc'ed, NULL: out of memory. */
static mn_str *answer_form_split(mn_str source, uint32_t *n) {
    *n = 1;
    for (uint64_t i = 0; i < source.len; i++)
        *n += !source.ptr[i];
    mn_str *list = malloc(*n * sizeof *list);
    const char *at = source.ptr;
    const char *end = at + source.len;
    for (uint32_t i = 0; list && i < *n; i++) {
        const char *nul = memchr(at, 0, (size_t)(end - at));
        const char *to = nul ? nul : end;
        list[i] = (mn_str){at, (uint64_t)(to - at)};
        at = nul ? nul + 1 : end;
    }
    return list;
}

mn_status form_compile(mn_model *m, uint32_t kind, uint32_t flags, mn_str source,
                       mn_constraint **out, mn_error *err) {
    mn_constraint_params p = {.size = sizeof p, .kind = kind, .flags = flags, .source = source};
    mn_str *list = NULL;
    if (kind == MN_CONSTRAINT_CHOICES) {
        list = answer_form_split(source, &p.n_choices);
        if (!list)
            return MN_OUT_OF_MEMORY;
        p.choices = list;
    }
    const mn_status st = mn_constraint_create(m, &p, out, err);
    free(list);
    return st;
}
