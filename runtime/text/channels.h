/* channels.h -- which part of a model's output is the answer. Two ways of saying so, both in tokens of their own:
 *   Harmony (gpt-oss): <|start|>role<|channel|>NAME<|message|>text<|end|>; the channel "final" is the answer, and so is a
 *   message without a channel (https://github.com/openai/harmony, docs/format.md);
 *   a pair such as <think> ... </think> around what is not.
 * A text that merely spells such a token switches nothing. */
#ifndef MN_CHANNELS_H
#define MN_CHANNELS_H
#include "text/tokenizer.h"

typedef enum {
    MN_PART_ANSWER,
    MN_PART_THINKING,
    MN_PART_HEADER
} mn_part; /* HEADER: marks, roles and names: nobody's text */

typedef struct {
    const mn_tokenizer *tok;
    int32_t start, channel, message, end, think, end_think; /* ids; -1 = the vocabulary has none */
    mn_part part;
    bool named;    /* the name of a channel is being read */
    char name[16]; /* NUL-terminated; cut */
} mn_channels;     /* plain data, one thread at a time; tok outlives it */

mn_channels mn_channels_of(const mn_tokenizer *tok);
mn_part mn_channels_push(mn_channels *c, int32_t id); /* what id is part of, in the order of the text */
/* Ids of a prompt: what they leave open is where the output begins. */
void mn_channels_prompt(mn_channels *c, const int32_t *ids, size_t n);

#endif
