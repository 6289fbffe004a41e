/* channels.h -- which part of a model's output is the answer. Two ways of saying so, both in tokens
 * of their own:
 *   Harmony (gpt-oss): <|start|>role<|channel|>NAME to=TOOL<|message|>text<|end|>; the channel
 *   "final" is the answer, and so is a message without a channel, and one of "commentary" that is
 *   without a recipient: it tells the user what is called next; one that is addressed to a tool is
 *   a call (https://github.com/openai/harmony/blob/main/docs/format.md); a pair such as <think> ...
 *   </think> around the thinking; Gemma's <|channel>thought, a line break, ... <channel|>.
 * A text that only spells such a token changes nothing. think_tags.h handles models without such
 * tokens. */
#ifndef MN_CHANNELS_H
#define MN_CHANNELS_H
#include "text/tokenizer/tokenizer.h"

typedef enum {
    MN_CHANNEL_ANSWER,
    MN_CHANNEL_THINKING,
    MN_CHANNEL_CALL,
    MN_CHANNEL_HEADER
} mn_channel; /* HEADER: marks, roles and names, no text */

#define MN_HEADER_MAX 160 /* bytes; a header that is longer is none: what follows is the answer's */

typedef struct {
    const mn_tokenizer *tok;
    /* ids; -1 = the vocabulary has none */
    int32_t start, channel, message, end, call, think, end_think;
    mn_channel part;
    const char
        *name; /* what still follows of the line behind `think`, which is no text; NULL: none */
    /* since <|start|>; '|' where <|channel|> stood, ' ' for other marks */
    char header[MN_HEADER_MAX];
    char tool[MN_HEADER_MAX]; /* recipient of the last message: "functions.f" */
} mn_channels;                /* plain data, one thread at a time; tok outlives it */

mn_channels mn_channels_of(const mn_tokenizer *tok);
/* the channel of an id; call it in the order of the text */
mn_channel mn_channels_push(mn_channels *c, int32_t id);
/* Reads the ids of a prompt: the output begins in the channel that they leave open. */
void mn_channels_prompt(mn_channels *c, const int32_t *ids, size_t n);
/* Ends a header that an output broke off; MN_CHANNEL_CALL: it addresses a tool, c->tool. */
mn_channel mn_channels_break(mn_channels *c);
/* A special token that begins or divides a tool call ([TOOL_CALLS], <|python_tag|>): it is shown,
 * because the text is no call without it. */
bool mn_channels_shows(const mn_channels *c, int32_t id);

#endif
