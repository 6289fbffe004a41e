/* think_tags.h -- <think> ... </think> as ordinary text, where the vocabulary has no tokens for it
 * and the chat template speaks of it: models that learned to think with the vocabulary of another
 * model. The tags mean what such tokens mean: every <think> opens a part of thinking, and a
 * </think> that closes none has no meaning. Tags may be cut anywhere between pieces; what may still
 * become one is held back. */
#ifndef MN_THINK_H
#define MN_THINK_H
#include "base/base.h"

typedef struct {
    enum { MN_THINK_OFF, MN_THINK_BEGIN, MN_THINK_INSIDE, MN_THINK_ANSWER } state;
    bool trim; /* white space after </think> is part of no text */
    mn_text held;
} mn_think_tags;

bool mn_think_tags_in(mn_str chat_template);
void mn_think_tags_prompt(mn_think_tags *s, mn_str end_of_prompt);
/* text: the new text, which is replaced by the text that can be given. All of that belongs to the
 * part that *thinking states; text of the other part comes with the next call. last: no more text
 * will come. literal: the answer is in the middle of a call, where tags are text. text->failed
 * where memory runs out. */
void mn_think_tags_push(mn_think_tags *s, mn_text *text, bool last, bool literal, bool *thinking);
/* The output was cut: text that might have become a tag is dropped, except for a single '<'. */
void mn_think_tags_cut(mn_think_tags *s);
void mn_think_tags_free(mn_think_tags *s);

#endif
