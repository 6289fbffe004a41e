/* chat.h -- a model's own chat template: finding it, and turning messages into marked text for the tokeniser. */
#ifndef MN_CHAT_H
#define MN_CHAT_H
#include "model/meta.h"
#include "text/jinja.h"

typedef struct {
    mn_str role, content;
} mn_chat_message;

/* The template's source, appended: meta key tokenizer.chat_template, else the side-car chat_template.jinja, else
 * chat_template of tokenizer_config.json (a string, or a list of {name, template}: the one named "default").
 * MN_END = none of them; MN_BAD_FILE names the file whose entry cannot be used. meta and files may be NULL. Any thread. */
mn_status mn_chat_template_find(const mn_meta *meta, const mn_file *files, uint32_t n_files, mn_text *source,
                                mn_error *err);

/* Renders the messages, with bos_token, eos_token (a NULL pointer: not defined) and add_generation_prompt. text: appended; marks (may be NULL): one byte
 * per byte of text, 1 = the user's. Content is the user's, and so is a role other than system, user, assistant, tool and
 * developer. now: Unix time for templates that print the date. MN_BAD_INPUT: the template refuses the messages. Any thread. */
mn_status mn_chat_render(const mn_jinja *tmpl, const mn_chat_message *messages, uint32_t n, bool add_generation_prompt,
                         mn_str bos, mn_str eos, int64_t now, mn_text *out, mn_text *marks, mn_error *err);

/* The same with variables as JSON text, an object; bos and eos stand in for bos_token and eos_token where they are not empty and
 * the object does not name them. */
mn_status mn_chat_render_json(const mn_jinja *tmpl, mn_str vars, mn_str bos, mn_str eos, int64_t now, mn_text *out,
                              mn_error *err);

#endif
