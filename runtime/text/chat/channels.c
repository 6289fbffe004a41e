/* channels.c -- follows the ids of an output and says which channel each belongs to (channels.h).
 * The state is a few ids and the header that is being read: plain data, no memory of its own. */
#include "text/chat/channels.h"
#include <stdio.h>
#include <string.h>

/* Tokens that models put around what they think. */
static const char *const pairs[][2] = {{"<|channel>", "<channel|>"}, /* a name follows the first */
                                       {"<think>", "</think>"},
                                       {"[THINK]", "[/THINK]"},
                                       {"<seed:think>", "</seed:think>"},
                                       {"<|START_THINKING|>", "<|END_THINKING|>"},
                                       {"<|inner_prefix|>", "<|inner_suffix|>"}};

static int32_t channels_find(const mn_tokenizer *tok, const char *piece) {
    return mn_tokenizer_find(tok, mn_str_of(piece));
}

mn_channels mn_channels_of(const mn_tokenizer *tok) {
    mn_channels c = {.tok = tok, .start = -1, .channel = -1, .message = -1, .end = -1, .call = -1};
    c.think = -1;
    c.end_think = -1;
    c.part = MN_CHANNEL_ANSWER;
    if (channels_find(tok, "<|channel|>") >= 0 && channels_find(tok, "<|message|>") >= 0) {
        c.start = channels_find(tok, "<|start|>");
        c.channel = channels_find(tok, "<|channel|>");
        c.message = channels_find(tok, "<|message|>");
        c.end = channels_find(tok, "<|end|>");
        c.call = channels_find(tok, "<|call|>");
    }
    for (size_t i = 0; c.think < 0 && i < MN_COUNT(pairs); i++) {
        const int32_t begin = channels_find(tok, pairs[i][0]);
        const int32_t end = channels_find(tok, pairs[i][1]);
        if (begin < 0 || end < 0)
            continue;
        c.think = begin;
        c.end_think = end;
    }
    return c;
}

/* ---- Harmony's headers ----------------------------------------------------------------------- */

static mn_channel begin_header(mn_channels *c) {
    c->header[0] = 0;
    c->tool[0] = 0;
    c->part = MN_CHANNEL_HEADER;
    return c->part;
}

/* false: the header is too long to be one */
static bool channels_add_text(mn_channels *c, const char *text, size_t n) {
    const size_t have = strlen(c->header);
    if (n >= sizeof c->header - have)
        return false;
    memcpy(c->header + have, text, n);
    c->header[have + n] = 0;
    return true;
}

/* Roles, names and tools are ASCII, which byte-level BPE leaves as it is, but for the space
 * (U+0120). */
static bool channels_add_piece(mn_channels *c, int32_t id) {
    const mn_str piece = mn_tokenizer_piece(c->tok, id);
    if (id == c->channel)
        return channels_add_text(c, "|", 1);
    if (mn_tokenizer_is_special(c->tok, id))
        return channels_add_text(c, " ", 1);
    for (size_t i = 0; i < piece.len; i++) {
        const char *at = piece.ptr + i;
        const bool space = i + 1 < piece.len && !memcmp(at, "\xc4\xa0", 2);
        if (!channels_add_text(c, space ? " " : at, 1))
            return false;
        i += space;
    }
    return true;
}

/* Is the word at `at`, which ends at a blank or mark, this one? */
static bool word_is(const char *at, const char *word) {
    return strcspn(at, " |") == strlen(word) && !strncmp(at, word, strlen(word));
}

/* Bytes of a tool's name, which is ASCII. */
static int channels_name_length(const char *s) {
    int n = 0;
    while (s[n] > ' ' && s[n] < 0x7f && s[n] != '|')
        n++;
    return n;
}

/* Whom a header addresses, "" = nobody: the word after "to=". */
static const char *addressee(const char *header) {
    const char *to = strstr(header, "to=");
    if (!to)
        return "";
    const bool begins = to == header || strchr(" |", to[-1]);
    const char *name = to + 3;
    return begins && channels_name_length(name) ? name : "";
}

/* "assistant|commentary to=functions.f json": the channel is the word after the mark, the tool that
 * after "to=". */
static mn_channel end_header(mn_channels *c) {
    const char *mark = strrchr(c->header, '|');
    const char *name = mark ? mark + 1 : "";
    const char *tool = addressee(c->header);
    name += strspn(name, " ");
    const bool final = word_is(name, "final");
    if (*tool && !final) {
        snprintf(c->tool, sizeof c->tool, "%.*s", channels_name_length(tool), tool);
        c->part = MN_CHANNEL_CALL;
    } else if (final || !*name || word_is(name, "commentary")) {
        c->part = MN_CHANNEL_ANSWER;
    } else {
        c->part = MN_CHANNEL_THINKING;
    }
    c->header[0] = 0;
    return MN_CHANNEL_HEADER;
}

static mn_channel in_header(mn_channels *c, int32_t id) {
    if (id == c->message)
        return end_header(c);
    if (!channels_add_piece(c, id))
        c->part = MN_CHANNEL_ANSWER; // no end in sight
    return c->part;
}

mn_channel mn_channels_break(mn_channels *c) {
    if (c->part == MN_CHANNEL_HEADER)
        end_header(c);
    return c->part;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static void begin_thinking(mn_channels *c, int32_t id) {
    const bool named = mn_str_is(mn_tokenizer_piece(c->tok, id), pairs[0][0]);
    c->name = named ? "thought\n" : NULL;
    c->part = MN_CHANNEL_THINKING;
}

/* Whether the id is the next of the name of Gemma's channel; a line break may be written as
 * byte-level BPE does. */
static bool is_name(mn_channels *c, int32_t id) {
    const char *name = c->name;
    const mn_str piece = mn_tokenizer_piece(c->tok, id);
    const bool breaks = mn_str_is(piece, "\xc4\x8a");
    const mn_str text = breaks ? mn_str_of("\n") : piece;
    c->name = NULL;
    if (!name || !text.len || text.len > strlen(name) || memcmp(name, text.ptr, text.len) != 0)
        return false;
    c->name = name[text.len] ? name + text.len : NULL;
    return true;
}

mn_channel mn_channels_push(mn_channels *c, int32_t id) {
    if (id < 0)
        return c->part;
    if (is_name(c, id))
        return MN_CHANNEL_HEADER;
    if (id == c->start || id == c->end || id == c->call)
        return begin_header(c);
    if (id == c->channel && c->part != MN_CHANNEL_HEADER)
        begin_header(c);
    if (c->part == MN_CHANNEL_HEADER)
        return in_header(c, id);
    if (id == c->think || id == c->end_think) {
        c->part = MN_CHANNEL_ANSWER;
        if (id == c->think)
            begin_thinking(c, id);
        return MN_CHANNEL_HEADER;
    }
    return c->part;
}

/* Control tokens begin a turn: what somebody typed into an earlier one opens nothing. */
void mn_channels_prompt(mn_channels *c, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const int32_t id = ids[i];
        const mn_channel part = mn_channels_push(c, id);
        const bool mark = id == c->think || id == c->end_think;
        if (part != MN_CHANNEL_THINKING || c->channel >= 0 || mark)
            continue;
        if (mn_tokenizer_is_special(c->tok, id))
            c->part = MN_CHANNEL_ANSWER;
    }
}

bool mn_channels_shows(const mn_channels *c, int32_t id) {
    static const char *const parts[] = {"tool_call",
                                        "TOOL_CALL",
                                        ("tool\xe2\x96\x81"
                                         "call"),
                                        "python_tag",
                                        "_ACTION|>",
                                        "[ARGS]",
                                        "[CALL_ID]"};
    const mn_str piece = mn_tokenizer_piece(c->tok, id);
    if (!piece.ptr || !mn_tokenizer_is_special(c->tok, id))
        return false;
    for (size_t i = 0; i < MN_COUNT(parts); i++)
        if (memmem(piece.ptr, piece.len, parts[i], strlen(parts[i])))
            return true;
    return false;
}
