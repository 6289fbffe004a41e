/* channels.c -- see channels.h. */
#include "text/channels.h"
#include <string.h>

static const char *const pairs[][2] = {{"<think>", "</think>"},
                                       {"[THINK]", "[/THINK]"},
                                       {"<seed:think>", "</seed:think>"},
                                       {"<|START_THINKING|>", "<|END_THINKING|>"}};

static int32_t find(const mn_tokenizer *tok, const char *piece) { return mn_tokenizer_find(tok, mn_str_of(piece)); }

mn_channels mn_channels_of(const mn_tokenizer *tok) {
    mn_channels c = {tok, -1, -1, -1, -1, -1, -1, MN_PART_ANSWER, false, ""};
    if (find(tok, "<|channel|>") >= 0 && find(tok, "<|message|>") >= 0) {
        c.start = find(tok, "<|start|>");
        c.channel = find(tok, "<|channel|>");
        c.message = find(tok, "<|message|>");
        c.end = find(tok, "<|end|>");
    }
    for (size_t i = 0; c.think < 0 && i < MN_COUNT(pairs); i++) {
        c.think = find(tok, pairs[i][0]);
        c.end_think = find(tok, pairs[i][1]);
        if (c.end_think < 0) c.think = -1; /* both or neither */
    }
    if (c.think < 0) c.end_think = -1;
    return c;
}

/* A name is one or two tokens of letters; "final" and "analysis" are ASCII, which byte-level BPE leaves as it is. */
static void add_name(mn_channels *c, int32_t id) {
    mn_str piece = mn_tokenizer_piece(c->tok, id);
    size_t n = strlen(c->name), room = sizeof c->name - 1 - n;
    memcpy(c->name + n, piece.ptr, MN_MIN((size_t)piece.len, room));
    c->name[n + MN_MIN((size_t)piece.len, room)] = 0;
}

/* "commentary to=functions.f": a blank ends the name. */
static bool goes_on(const mn_tokenizer *tok, int32_t id) {
    mn_str piece = mn_tokenizer_piece(tok, id);
    bool blank = !piece.len || piece.ptr[0] == ' ' || (piece.len > 1 && !memcmp(piece.ptr, "\xc4\xa0", 2)); /* U+0120 */
    return !blank && !mn_tokenizer_is_special(tok, id);
}

static mn_part header(mn_channels *c, bool named) {
    c->named = named;
    c->name[0] = 0;
    return c->part = MN_PART_HEADER;
}

mn_part mn_channels_push(mn_channels *c, int32_t id) {
    if (id < 0) return c->part;
    if (id == c->start || id == c->end) return header(c, false);
    if (id == c->channel) return header(c, true);
    if (id == c->message) {
        c->part = !c->name[0] || !strcmp(c->name, "final") ? MN_PART_ANSWER : MN_PART_THINKING;
        return MN_PART_HEADER;
    }
    if (id == c->think || id == c->end_think) {
        c->part = id == c->think ? MN_PART_THINKING : MN_PART_ANSWER;
        return MN_PART_HEADER;
    }
    if (c->part == MN_PART_HEADER && c->named) {
        c->named = goes_on(c->tok, id);
        if (c->named) add_name(c, id);
    }
    return c->part;
}

/* Control tokens begin a turn: what somebody typed into an earlier one opens nothing. */
void mn_channels_prompt(mn_channels *c, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        mn_part part = mn_channels_push(c, ids[i]);
        bool mark = ids[i] == c->think || ids[i] == c->end_think;
        if (part == MN_PART_THINKING && c->channel < 0 && !mark && mn_tokenizer_is_special(c->tok, ids[i]))
            c->part = MN_PART_ANSWER;
    }
}
