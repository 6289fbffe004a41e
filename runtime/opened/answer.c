/* answer.c -- where the answer of an output begins, by the prompt in front of it: at once, or
 * behind thinking or a header that the prompt leaves open. Streams and constraints ask for it. */
#include "opened/opened.h"
#include "text/chat/channels.h"
#include "text/chat/think_tags.h"

bool mn_prompt_end(const mn_tokenizer *tok, const int32_t *ids, uint32_t n, mn_text *end) {
    const uint32_t from = n > 16 ? n - 16 : 0;
    mn_detokenizer *d = NULL;
    if (mn_detokenizer_create(tok, MN_DETOKENIZE_CONTINUE, &d, NULL))
        return false;
    bool ok = true;
    for (uint32_t i = from; i < n && ok; i++)
        ok = !mn_detokenizer_push(d, ids[i], end);
    mn_detokenizer_free(d);
    return ok;
}

/* The token's spelling in the vocabulary for grammars. */
static void put_control(const mn_model *m, int32_t id, mn_text *out) {
    const mn_str piece = mn_tokenizer_piece(m->tokenizer, id);
    if (mn_tokenizer_is_special(m->tokenizer, id))
        mn_text_put(out, MN_CONTROL_BYTE, 1);
    mn_text_put(out, piece.ptr, (size_t)piece.len);
}

/* Whether the prompt leaves thinking open that is spelled as text. */
static bool opens_tag(const mn_model *m, const int32_t *prompt, uint32_t n) {
    mn_think_tags tags = {.state = MN_THINK_BEGIN};
    mn_text end = {0};
    if (mn_prompt_end(m->tokenizer, prompt, n, &end) && end.len)
        mn_think_tags_prompt(&tags, (mn_str){end.ptr, end.len});
    mn_text_free(&end);
    return tags.state == MN_THINK_INSIDE;
}

mn_place mn_answer_mark(const mn_model *m, const int32_t *prompt, uint32_t n, mn_text *mark,
                        mn_text *lead) {
    mn_channels c = mn_channels_of(m->tokenizer);
    const bool has_channels = c.think >= 0 || c.channel >= 0;
    mn_channels_prompt(&c, prompt, n);
    const bool is_open = c.part != MN_CHANNEL_ANSWER;
    const bool harmony = is_open && c.channel >= 0 && c.message >= 0;
    const bool token = is_open && !harmony && c.end_think >= 0;
    const bool spelled = !is_open && m->spells_thinking && !has_channels && opens_tag(m, prompt, n);
    if (harmony) {
        put_control(m, c.channel, mark);
        mn_text_puts(mark, "final");
        put_control(m, c.message, lead);
    } else if (token) {
        put_control(m, c.end_think, mark);
        mn_text_puts(lead, "\n\n");
    } else if (spelled) {
        mn_text_puts(mark, "</think>");
        mn_text_puts(lead, "\n\n");
    }
    if (harmony && c.part == MN_CHANNEL_HEADER)
        return MN_PLACE_HEADER;
    return harmony || token || spelled ? MN_PLACE_THINKING : MN_PLACE_ANSWER;
}
