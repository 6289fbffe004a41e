/* json_string.c -- strings of JSON (text_buffer.h): which bytes need an escape, and which. Texts
 * come from model files, plugins and requests, and may hold any byte; what is written is valid
 * UTF-8. Also what Python writes beyond JSON. */
#include "text_buffer.h"
#include "utf8.h"
#include <stdio.h>

size_t mn_json_escape(uint32_t code, char out[8]) {
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* pairs: byte, letter */
    for (size_t i = 0; i + 1 < sizeof named; i += 2)
        if ((uint32_t)named[i] == code)
            return (size_t)snprintf(out, 8, "\\%c", named[i + 1]);
    return code < 0x20 ? (size_t)snprintf(out, 8, "\\u%04x", (unsigned)code & 0xff) : 0;
}

size_t mn_json_plain(const char *s, size_t n) {
    size_t at = 0;
    while (at < n) {
        const unsigned char c = (unsigned char)s[at];
        const bool is_ascii = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
        const int length = is_ascii ? 1 : mn_utf8_length(s + at, n - at);
        if (!is_ascii && (c < 0x80 || !length))
            break;
        at += (size_t)length;
    }
    return at;
}

void mn_text_json_inner(mn_text *t, const char *bytes, size_t n) {
    char escape[8];
    for (size_t at = 0; at < n; at++) {
        const size_t plain = mn_json_plain(bytes + at, n - at);
        mn_text_put(t, bytes + at, plain);
        at += plain;
        if (at == n)
            break;
        const size_t length = mn_json_escape((unsigned char)bytes[at], escape);
        mn_text_put(t, length ? escape : "\xEF\xBF\xBD", length ? length : 3);
    }
}

void mn_text_json(mn_text *t, mn_str s) {
    mn_text_put(t, "\"", 1);
    mn_text_json_inner(t, s.ptr, s.len);
    mn_text_put(t, "\"", 1);
}

void mn_json_spell_infinity(char *z) {
    static const char word[] = "Infinity";
    static const char number[] = "1e999   "; /* as long */
    if (!strstr(z, word))
        return;
    for (bool quoted = false; *z; z++) {
        if (*z == '"')
            quoted = !quoted;
        else if (quoted && *z == '\\' && z[1])
            z++;
        else if (!quoted && !strncmp(z, word, sizeof word - 1))
            memcpy(z, number, sizeof number - 1);
    }
}
