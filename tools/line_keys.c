/* line_keys.c -- converts bytes of a terminal to keys (line_edit.h): the sequences of xterm, VTE,
 * the Linux console, screen and tmux.
 *
 * An unknown sequence is consumed as a whole, so that no part of it becomes text. No state: the
 * caller keeps the bytes of an incomplete key. Characters are decoded by utf8proc. */
#include "line_edit.h"
#include <string.h>
#include <utf8proc.h>

#define ESCAPE 27

/* What follows ESC. */
static const struct {
    const char *sequence;
    int key;
} sequences[] = {
    {"[A", KEY_UP},
    {"OA", KEY_UP},
    {"[B", KEY_DOWN},
    {"OB", KEY_DOWN},
    {"[C", KEY_RIGHT},
    {"OC", KEY_RIGHT},
    {"[D", KEY_LEFT},
    {"OD", KEY_LEFT},
    {"[H", KEY_HOME},
    {"OH", KEY_HOME},
    {"[1~", KEY_HOME},
    {"[7~", KEY_HOME},
    {"[F", KEY_END},
    {"OF", KEY_END},
    {"[4~", KEY_END},
    {"[8~", KEY_END},
    {"[3~", KEY_DELETE},
    {"[1;5C", KEY_WORD_RIGHT},
    {"[1;3C", KEY_WORD_RIGHT},
    {"Oc", KEY_WORD_RIGHT},
    {"f", KEY_WORD_RIGHT},
    {"[1;5D", KEY_WORD_LEFT},
    {"[1;3D", KEY_WORD_LEFT},
    {"Od", KEY_WORD_LEFT},
    {"b", KEY_WORD_LEFT},
    {"d", KEY_KILL_WORD},
    {"[3;5~", KEY_KILL_WORD},
    {"\x7f", KEY_KILL_WORD_LEFT},
    {"\b", KEY_KILL_WORD_LEFT},
    {"\r", KEY_NEWLINE},
    {"\n", KEY_NEWLINE},
    {"[13;2u", KEY_NEWLINE},
    {"[200~", KEY_PASTE_BEGIN},
    {"[201~", KEY_PASTE_END},
};
#define N_SEQUENCES (sizeof sequences / sizeof sequences[0])

/* Bytes after ESC that belong to it (ECMA-48: parameters, intermediates, one final byte), or 0:
 * more are needed. */
static size_t sequence_length(const char *s, size_t n) {
    if (n == 0)
        return 0;
    if (s[0] == 'O')
        return n < 2 ? 0 : 2;
    if (s[0] != '[')
        return 1;
    for (size_t i = 1; i < n; i++)
        if (s[i] < 0x20 || s[i] > 0x3F)
            return i + 1;
    return 0;
}

/* A key that begins with ESC; no_more: what is there is the whole key. */
static size_t escape_key(const char *bytes, size_t n, int no_more, line_key *key) {
    size_t length = sequence_length(bytes + 1, n - 1);
    if (!length)
        return no_more ? n : 0;
    for (size_t i = 0; i < N_SEQUENCES; i++)
        if (strlen(sequences[i].sequence) == length &&
            memcmp(sequences[i].sequence, bytes + 1, length) == 0)
            key->kind = sequences[i].key;
    return 1 + length;
}

/* Bytes of a character with this first byte. */
static size_t expected_length(unsigned char lead) {
    if (lead < 0xC2)
        return 1;
    if (lead < 0xE0)
        return 2;
    return lead < 0xF0 ? 3 : 4;
}

/* One character. A byte that is not UTF-8 is text, too: the reader of the line reports it. */
static size_t text_key(const char *bytes, size_t n, int no_more, line_key *key) {
    utf8proc_int32_t c;
    utf8proc_ssize_t length =
        utf8proc_iterate((const utf8proc_uint8_t *)bytes, (utf8proc_ssize_t)n, &c);
    if (length <= 0 && n < expected_length((unsigned char)bytes[0]) && !no_more)
        return 0;
    *key = (line_key){KEY_TEXT, bytes, length > 0 ? (size_t)length : 1};
    return key->n;
}

/* CR, LF or CR LF as one "\n". */
static size_t pasted_line_end(const char *bytes, size_t n, int no_more, line_key *key) {
    if (bytes[0] == '\r' && n < 2 && !no_more)
        return 0;
    *key = (line_key){KEY_TEXT, "\n", 1};
    return bytes[0] == '\r' && n > 1 && bytes[1] == '\n' ? 2 : 1;
}

/* Between the marks of a paste: text, Ctrl-C, or the mark of its end. */
static size_t pasted_key(const char *bytes, size_t n, int no_more, line_key *key) {
    static const char end[] = "\033[201~";
    const size_t n_end = sizeof end - 1;
    if (bytes[0] == ESCAPE) {
        size_t same = n < n_end ? n : n_end;
        if (memcmp(bytes, end, same) != 0)
            return 1;
        if (same < n_end)
            return no_more ? n : 0;
        key->kind = KEY_PASTE_END;
        return n_end;
    }
    if (bytes[0] == '\r' || bytes[0] == '\n')
        return pasted_line_end(bytes, n, no_more, key);
    if (bytes[0] == CTRL('C'))
        key->kind = CTRL('C');
    if ((unsigned char)bytes[0] >= 0x20 && bytes[0] != 127)
        return text_key(bytes, n, no_more, key);
    if (bytes[0] == '\t')
        *key = (line_key){KEY_TEXT, bytes, 1};
    return 1;
}

size_t line_key_of(const char *bytes, size_t n, int pasting, int no_more, line_key *key) {
    *key = (line_key){KEY_NONE, NULL, 0};
    if (pasting)
        return pasted_key(bytes, n, no_more, key);
    if (bytes[0] == ESCAPE)
        return escape_key(bytes, n, no_more, key);
    if ((unsigned char)bytes[0] >= 0x20 && bytes[0] != KEY_BACKSPACE)
        return text_key(bytes, n, no_more, key);
    key->kind = bytes[0];
    return 1;
}
