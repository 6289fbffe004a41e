/* talk.c -- the conversation that the chat template renders: flags for system message, history,
 * tools, template and its variables, their files, and the call of the library that makes token ids
 * of them.
 *
 * A talk owns the texts of the files (talk_close); messages are the caller's. Used by run, chat
 * and, for reading JSON, template. Errors of the library name a part of the conversation, which
 * is translated to the flag's file here. Interface: talk.h. */
#include "talk.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define F(field) offsetof(talk_flags, field)
const arg_row talk_rows[TALK_ROWS] = {
    {"--system", "TEXT", ARG_TEXT, F(system), 0, 0, NULL, "a system message before the first turn"},
    {"--history", "F.json", ARG_FILE, F(history), 0, 0, NULL,
     "the conversation so far: a list of messages {\"role\", \"content\",\n\"tool_calls\", "
     "\"tool_call_id\", \"name\", "
     "...}"},
    {"--tools", "F.json", ARG_FILE, F(tools), 0, 0, NULL,
     "tools that the model may call: a list of {\"type\": \"function\",\n\"function\": {\"name\", "
     "\"description\", "
     "\"parameters\"}}"},
    {"--vars", "V.json", ARG_FILE, F(vars), 0, 0, NULL,
     "more variables of the chat template: {\"enable_thinking\": false},\n{\"reasoning_effort\": "
     "\"low\"}, ... Each of "
     "these files may be the\nJSON text itself"},
    {"--chat-template", "F|NAME", ARG_FILE, F(chat_template), 0, 0, NULL,
     "instead of the model's own: a file, the name of another one in the model,\nor chatml gemma "
     "llama2 llama3 mistral phi3 zephyr"},
};

int talk_has_template(const app *a, const talk *t) {
    return a->info.has_chat_template || t->flags->chat_template;
}

const char *talk_given(const talk_flags *f) {
    const struct {
        const char *value, *flag;
    } all[] = {{f->system, "--system"},
               {f->history, "--history"},
               {f->tools, "--tools"},
               {f->vars, "--vars"},
               {f->chat_template, "--chat-template"}};
    for (size_t i = 0; i < MN_COUNT(all); i++)
        if (all[i].value)
            return all[i].flag;
    return NULL;
}

/* 1 if the flag's value is JSON itself, not the name of a file. */
static int is_json(const char *s) {
    s += strspn(s, " \t\r\n");
    return *s == '{' || *s == '[';
}

int talk_read(const char *flag, char **text) {
    size_t n;
    if (!flag)
        return 0;
    if (!is_json(flag)) {
        int code = read_all(flag, text, &n);
        if (code == 0 && (n == 0 || strlen(*text) != n))
            code = complain(EXIT_FAILED, "%s: found %s at byte %zu, expected JSON", flag,
                            n ? "a NUL" : "the end", strlen(*text));
        return code;
    }
    *text = strdup(flag);
    return *text ? 0 : no_memory();
}

static mn_str talk_str_of(const char *z) {
    mn_str s = {z, z ? strlen(z) : 0};
    return s;
}

static mn_chat_params talk_params(const talk *t, const mn_message *messages, uint32_t n,
                                  uint32_t n_known) {
    mn_chat_params params = {.size = sizeof params,
                             .n_messages = n,
                             .n_known = n_known,
                             .messages = messages,
                             .history = talk_str_of(t->history),
                             .tools = talk_str_of(t->tools),
                             .vars = talk_str_of(t->vars)};
    return params;
}

/* Prints the library's error, which names the part and the place in it, with the flag's file. */
static int talk_fail(app *a, const talk *t, mn_status status) {
    const talk_flags *f = t->flags;
    const char *const flags[] = {
        [MN_CHAT_PART_HISTORY] = f->history,
        [MN_CHAT_PART_TOOLS] = f->tools,
        [MN_CHAT_PART_VARS] = f->vars,
        [MN_CHAT_PART_TEMPLATE] = t->chat_template ? f->chat_template : NULL,
    };
    const char *flag = a->err.part < MN_COUNT(flags) ? flags[a->err.part] : NULL;
    if (!flag)
        return app_fail(a, status);
    if (is_json(flag) && a->err.part != MN_CHAT_PART_TEMPLATE)
        return complain(EXIT_FAILED, "--%s", a->err.msg);
    return complain(EXIT_FAILED, "%s: %s", flag, a->err.msg);
}

/* Reads the value of --chat-template if it is a file: one that exists, or a path; else it is the
 * name of a template, and *text stays NULL. */
static int read_template(const char *flag, char **text) {
    size_t n = 0;
    if (!flag || (access(flag, F_OK) != 0 && !strpbrk(flag, "/.") && strcmp(flag, "-") != 0))
        return 0;
    int code = read_all(flag, text, &n);
    if (code == 0 && strlen(*text) != n)
        code = complain(EXIT_FAILED, "%s: found a NUL at byte %zu, expected text", flag,
                        strlen(*text));
    return code;
}

int talk_open(talk *t) {
    const talk_flags *f = t->flags;
    if (f->system && f->history)
        return complain(EXIT_USAGE,
                        "found --system and --history, expected the system message in the history");
    int code = talk_read(f->history, &t->history);
    if (code == 0)
        code = talk_read(f->tools, &t->tools);
    if (code == 0)
        code = talk_read(f->vars, &t->vars);
    return code ? code : read_template(f->chat_template, &t->chat_template);
}

int talk_use(app *a, const talk *t) {
    const char *name = t->chat_template ? t->chat_template : t->flags->chat_template;
    if (!name || !a->info.has_tokenizer)
        return 0;
    const uint32_t flags = t->chat_template ? 0 : MN_CHAT_NAMED;
    const mn_status status = mn_model_set_template(a->model, name, flags, &a->err);
    return status == MN_OK ? 0 : talk_fail(a, t, status);
}

/* Renders without messages, which finds errors in the files early. An error that the template
 * itself raises is no error yet: it may need a message. */
int talk_check(app *a, const talk *t) {
    const char *given = talk_given(t->flags);
    mn_chat_params params = talk_params(t, NULL, 0, 0);
    int32_t *ids = NULL;
    uint32_t n = 0;
    if (!given)
        return 0;
    if (!talk_has_template(a, t))
        return complain(EXIT_FAILED,
                        "%s has no chat template: found %s, expected --chat-template with it",
                        a->info.path, given);
    mn_status status = mn_model_chat_with(a->model, &params, &ids, &n, &a->err);
    if (status == MN_OK)
        mn_ids_free(ids);
    return status == MN_INVALID ? talk_fail(a, t, status) : 0;
}

int talk_ids(app *a, const talk *t, const mn_message *messages, uint32_t n, uint32_t n_known,
             int32_t **ids, uint32_t *n_ids) {
    mn_chat_params params = talk_params(t, messages, n, n_known);
    mn_status status = mn_model_chat_with(a->model, &params, ids, n_ids, &a->err);
    if (status == MN_UNSUPPORTED && n_known)
        return TALK_ANEW;
    return status == MN_OK ? 0 : talk_fail(a, t, status);
}

void talk_close(talk *t) {
    free(t->history);
    free(t->tools);
    free(t->vars);
    free(t->chat_template);
}
