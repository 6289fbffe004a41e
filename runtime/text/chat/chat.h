/* chat.h -- a model's own chat template: finding it, and turning messages into marked text for the
 * tokeniser. */
#ifndef MN_CHAT_H
#define MN_CHAT_H
#include "model/meta.h"
#include "text/jinja/jinja.h"
#include <minerva/minerva.h>

typedef struct {
    /* more: a JSON object of further keys, which override role and content; empty = none */
    mn_str role, content, more;
} mn_chat_message;

typedef struct { /* JSON texts; empty = not given; all strings in them are user data */
    const mn_chat_message *messages;
    uint32_t n;
    mn_str history;  /* JSON: a list of messages, which come before those */
    mn_str tools;    /* JSON: a list of objects */
    mn_str vars;     /* JSON: an object, further variables of the template */
    mn_str bos, eos; /* a NULL pointer: not defined */
} mn_chat;

/* The source of the template with this name, appended. "default": meta key tokenizer.chat_template,
 * else the companion file chat_template.jinja, else chat_template of tokenizer_config.json (a
 * string, or a list of {name, template}). Another name, such as "tool_use" in models for tools:
 * meta key tokenizer.chat_template.NAME, else that list. MN_END = none of them; MN_BAD_FILE names
 * the file whose entry cannot be used. meta and files may be NULL. Any thread. */
mn_status mn_chat_template_find(const mn_meta *meta, const mn_file *files, uint32_t n_files,
                                const char *name, mn_text *source, mn_error *err);

/* The source of a template that many models share, as "chatml"; NULL = not known. */
const char *mn_chat_known(const char *name);
void mn_chat_known_names(mn_text *out); /* appended, with commas */

/* Renders history, the first n messages, and with `answer` the header of the one that follows
 * (add_generation_prompt). text: appended; marks (may be NULL): one byte per byte of text, 1 = user
 * data. Contents are user data, and so are roles other than system, user, assistant, tool and
 * developer. now: Unix time for templates that print the date. MN_BAD_INPUT: the template refuses
 * the messages. MN_INVALID: history, tools, vars or a message's `more` has the wrong form; the
 * message begins with its name. err->part: MN_CHAT_PART_*. Any thread.
 *
 * Each template gets a form that it can render: null content as null and arguments of calls as
 * objects, else null content as "" and arguments as text. A template that refuses the first form,
 * or prints it as Python would, is rendered again with the next (messages.h). */
mn_status mn_chat_render(const mn_jinja *tmpl, const mn_chat *chat, uint32_t n, bool answer,
                         int64_t now, mn_text *out, mn_text *marks, mn_error *err);

/* As mn_chat_render, in the form of messages that an earlier rendering chose; MN_CHAT_ANY_FORM:
 * *form becomes the one that this rendering chooses. */
#define MN_CHAT_ANY_FORM UINT32_MAX
mn_status mn_chat_render_as(const mn_jinja *tmpl, const mn_chat *chat, uint32_t n, bool answer,
                            int64_t now, uint32_t *form, mn_text *out, mn_text *marks,
                            mn_error *err);

/* As mn_chat_render, with the variables as the text of a JSON object. If bos and eos are not empty,
 * they are used as bos_token and eos_token unless the object has these. */
mn_status mn_chat_render_json(const mn_jinja *tmpl, mn_str vars, mn_str bos, mn_str eos,
                              int64_t now, mn_text *out, mn_error *err);

#endif
