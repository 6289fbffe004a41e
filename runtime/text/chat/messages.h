/* messages.h -- messages as variables of a chat template: the one place where the conversations of
 * callers (the command's --history, the server's "messages", mn_message) take the form that
 * templates render.
 *
 * Templates disagree about two things: whether the arguments of a call are an object or its text,
 * and whether an assistant that only calls says null or nothing. A rendering tries the forms in
 * order (mn_chat_render) and takes the first that the template neither refuses nor prints as
 * Python would ("None", "{'a': 1}"). */
#ifndef MN_MESSAGES_H
#define MN_MESSAGES_H
#include "text/chat/chat.h"
#include "text/jinja/value.h"

typedef enum {
    MN_MESSAGES_NULL = 1, /* content that is null or missing becomes none, else "" */
    MN_MESSAGES_TEXT = 2  /* arguments are the text of their object, else the object */
} mn_message_form;
/* form: MN_MESSAGES_*. has: the forms that would change the messages are added to it. */
typedef struct {
    uint32_t form, has;
} mn_message_style;

/* Both append to a list of messages. false: failed through c; the message begins with the place
 * ("history[2]: ..."). All strings are user data, except for roles that every template knows. */
/* json: a list of messages. Text parts are joined by line breaks. */
bool mn_messages_history(mn_jctx *c, mn_str json, mn_message_style *style, mn_jlist *messages);
/* Message number i of the caller's. */
bool mn_messages_add(mn_jctx *c, const mn_chat_message *m, size_t i, mn_message_style *style,
                     mn_jlist *messages);

/* ---- for the other variables of a template (chat.c) ------------------------------------------ */
bool mn_messages_set(mn_jctx *c, mn_jdict *d, const char *name, mn_jval v);
/* mark: 1 = user data */
bool mn_messages_set_str(mn_jctx *c, mn_jdict *d, const char *name, mn_str s, uint8_t mark);
/* false, with an error in JSON's words: "WHAT: found a list, expected EXPECTED" */
bool mn_messages_wrong_type(mn_jctx *c, const char *what, mn_jval v, const char *expected);

#endif
