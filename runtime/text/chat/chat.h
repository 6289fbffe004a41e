/* chat.h -- a model's own chat template: finding it, and turning messages into marked text for the
 * tokeniser. */
#ifndef MN_CHAT_H
#define MN_CHAT_H
#include "model/meta.h"
#include "text/jinja/jinja.h"
#include <minerva/minerva.h>

typedef struct {
    /* more: a JSON object of further keys, which win over these; empty = none */
    mn_str role, content, more;
} mn_chat_message;

typedef struct { /* the JSON texts: empty = not given; all that stands in them is the user's */
    const mn_chat_message *messages;
    uint32_t n;
    mn_str history;  /* JSON: a list of messages, which come before those */
    mn_str tools;    /* JSON: a list of objects */
    mn_str vars;     /* JSON: an object, further variables of the template */
    mn_str bos, eos; /* a NULL pointer: not defined */
} mn_chat;

/* The source of the template with this name, appended. "default": meta key tokenizer.chat_template,
 * else the companion file chat_template.jinja, else chat_template of tokenizer_config.json (a
 * string, or a list of {name, template}). Another, such as "tool_use", which models made for tools
 * have beside it: meta key tokenizer.chat_template.NAME, else that list. MN_END = none of them;
 * MN_BAD_FILE names the file whose entry cannot be used. meta and files may be NULL. Any thread. */
mn_status mn_chat_template_find(const mn_meta *meta, const mn_file *files, uint32_t n_files,
                                const char *name, mn_text *source, mn_error *err);

/* The source of a template that many models share, as "chatml"; NULL = not known. */
const char *mn_chat_known(const char *name);
void mn_chat_known_names(mn_text *out); /* appended, with commas */

/* Renders history, the first n messages, and with `answer` the header of the one that follows
 * (add_generation_prompt). text: appended; marks (may be NULL): one byte per byte of text, 1 = the
 * user's. Content is the user's, and so is a role other than system, user, assistant, tool and
 * developer. now: Unix time for templates that print the date. MN_BAD_INPUT: the template refuses
 * the messages. MN_INVALID: history, tools, vars or a message's `more` is not what it must be; the
 * message begins with its name. err->part: MN_CHAT_PART_*. Any thread.
 *
 * Each template gets what it can render: null content as null, and arguments of calls as objects,
 * else as "" and as text. A template that refuses the first form, or prints it as Python would, is
 * rendered again with the next (messages.h). */
mn_status mn_chat_render(const mn_jinja *tmpl, const mn_chat *chat, uint32_t n, bool answer,
                         int64_t now, mn_text *out, mn_text *marks, mn_error *err);

/* The same in the form of messages that an earlier rendering chose; MN_CHAT_ANY_FORM: *form becomes
 * the one that this rendering chooses. */
#define MN_CHAT_ANY_FORM UINT32_MAX
mn_status mn_chat_render_as(const mn_jinja *tmpl, const mn_chat *chat, uint32_t n, bool answer,
                            int64_t now, uint32_t *form, mn_text *out, mn_text *marks,
                            mn_error *err);

/* The same with variables as JSON text, an object; bos and eos stand in for bos_token and eos_token
 * where they are not empty and the object does not name them. */
mn_status mn_chat_render_json(const mn_jinja *tmpl, mn_str vars, mn_str bos, mn_str eos,
                              int64_t now, mn_text *out, mn_error *err);

#endif
