/* templates.c -- where the source of a chat template comes from: the model's metadata, the files
 * beside it, or for files whose makers left theirs out a table of templates that many models share.
 * The source is a copy; chat.c renders what jinja/ makes of it. */
#include "text/chat/chat.h"
#include "text/json/json.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* ---- the model's own ------------------------------------------------------------------------- */

/* name: of the key or file, for messages. A NUL would end the template for some readers. */
static mn_status put_source(mn_text *source, mn_str s, const char *name, mn_error *err) {
    mn_status st = mn_companion_text(&s, MN_COMPANION_MAX, name, err);
    if (st)
        return st;
    const char *nul = s.len ? memchr(s.ptr, 0, s.len) : NULL;
    if (nul)
        return mn_fail(err, MN_BAD_FILE, "%s: found a NUL at byte %zu, expected text", name,
                       (size_t)(nul - s.ptr));
    mn_text_put(source, s.ptr, (size_t)s.len);
    return source->failed ? mn_fail_memory(err, s.len) : MN_OK;
}

/* Of a list of {name, template}, the last with this name; NULL = none. */
static const char *template_named(const cJSON *list, const char *wanted) {
    const char *found = NULL;
    for (const cJSON *i = list->child; i; i = i->next) {
        const char *name = cJSON_GetStringValue(mn_json_item(i, "name"));
        if (name && !strcmp(name, wanted))
            found = cJSON_GetStringValue(mn_json_item(i, "template"));
    }
    return found;
}

static mn_status from_config(const mn_file *files, uint32_t n_files, const char *name,
                             mn_text *source, mn_error *err) {
    static const char file[] = "tokenizer_config.json";
    const bool plain = !strcmp(name, "default");
    const char *text = NULL;
    cJSON *json = NULL;
    mn_status st = mn_json_file(files, n_files, file, &json, err);
    if (st || !json)
        return st ? st : MN_END;
    const cJSON *entry = mn_json_item(json, "chat_template");
    if (cJSON_IsArray(entry))
        text = template_named(entry, name);
    else if (plain)
        text = cJSON_GetStringValue(entry);
    st = MN_END;
    if (text)
        st = put_source(source, mn_str_of(text), file, err);
    else if (plain && entry && !cJSON_IsNull(entry))
        st = mn_fail(
            err, MN_BAD_FILE,
            "%s: chat_template is neither a string nor a list with a template named \"default\"",
            file);
    cJSON_Delete(json);
    return st;
}

mn_status mn_chat_template_find(const mn_meta *meta, const mn_file *files, uint32_t n_files,
                                const char *name, mn_text *source, mn_error *err) {
    static const char jinja[] = "chat_template.jinja";
    const bool plain = !strcmp(name, "default");
    char key[64];
    mn_str text;
    snprintf(key, sizeof key, "tokenizer.chat_template%s%s", plain ? "" : ".", plain ? "" : name);
    mn_status st = meta ? mn_meta_str(meta, key, &text, err) : MN_END;
    if (st == MN_OK)
        return put_source(source, text, key, err);
    if (st != MN_END || !files)
        return st;
    const mn_file *file = plain ? mn_file_named(files, n_files, jinja) : NULL;
    if (file)
        return put_source(source, (mn_str){file->map, file->bytes}, jinja, err);
    return from_config(files, n_files, name, source, err);
}

/* ---- by name: each has the form of its family's own tokenizer_config.json, without tools ----- */

typedef struct {
    const char *name, *source;
} known_template;

#define EACH "{% for m in messages %}"
#define ASK "{% if add_generation_prompt %}"
static const known_template known[] = {
    {"chatml", EACH "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
                    "{% endfor %}" ASK "{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"gemma", "{{ bos_token }}" EACH
              "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else 'user') + '\\n' "
              "+ m['content'] + '<end_of_turn>\\n' }}{% endfor %}" ASK
              "{{ '<start_of_turn>model\\n' }}{% endif %}"},
    {"llama2", EACH "{% if m['role'] == 'assistant' %}{{ ' ' + m['content'] + ' ' + eos_token }}"
                    "{% elif m['role'] == 'system' %}{% else %}"
                    "{{ bos_token + '[INST] ' + ('<<SYS>>\\n' + messages[0]['content'] + "
                    "'\\n<</SYS>>\\n\\n' if loop.index0 == 1 and messages[0]['role'] == 'system' "
                    "else '') + m['content'] + ' [/INST]' }}{% endif %}{% endfor %}"},
    {"llama3",
     "{{ bos_token }}" EACH "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + "
     "m['content']|trim + '<|eot_id|>' }}{% endfor %}" ASK
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
    {"mistral", "{{ bos_token }}" EACH
                "{% if m['role'] == 'assistant' %}{{ ' ' + m['content'] + eos_token }}{% else %}"
                "{{ '[INST] ' + m['content'] + ' [/INST]' }}{% endif %}{% endfor %}"},
    {"phi3", EACH "{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}" ASK
                  "{{ '<|assistant|>\\n' }}{% endif %}"},
    {"zephyr", EACH "{{ '<|' + m['role'] + '|>\\n' + m['content'] + eos_token + '\\n' }}"
                    "{% endfor %}" ASK "{{ '<|assistant|>\\n' }}{% endif %}"},
};

const char *mn_chat_known(const char *name) {
    for (size_t i = 0; i < MN_COUNT(known); i++)
        if (!strcmp(known[i].name, name))
            return known[i].source;
    return NULL;
}

void mn_chat_known_names(mn_text *out) {
    for (size_t i = 0; i < MN_COUNT(known); i++)
        mn_text_printf(out, "%s%s", i ? ", " : "", known[i].name);
}
