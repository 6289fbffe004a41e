/* markdown.h -- Markdown on a terminal while it arrives: styles, lists, words that are wrapped. */
#ifndef MINERVA_MARKDOWN_H
#define MINERVA_MARKDOWN_H
#include <stddef.h>

/* A text that arrives in pieces. Nothing that was written is changed later: what may still become
 * part of a span, such as **bold**, is held back until it is decided, at most to the end of its
 * line. Blocks of code are written as they are, byte for byte, so that they are copied whole.
 * Control characters, which a terminal would obey, become visible ones. */
typedef struct markdown markdown;

enum {
    MARKDOWN_STYLED = 1, /* styles take the place of markers; else words are wrapped alone */
    MARKDOWN_ASCII = 2   /* lines and bullets of ASCII */
};
typedef struct {
    int flags;
    void *to;
    void (*write)(void *to, const char *bytes, size_t n);
    int (*columns)(void *to); /* of the terminal, asked for every word; 0: unknown, no wrapping */
} markdown_params;

/* NULL: out of memory. */
markdown *markdown_open(const markdown_params *params);
/* n bytes of UTF-8; the pieces may end anywhere. 0: out of memory, and the text is incomplete. */
int markdown_put(markdown *m, const char *bytes, size_t n);
/* The same for text that is no Markdown: written at once, behind what was held. */
int markdown_plain(markdown *m, const char *bytes, size_t n);
/* The text is complete: writes what is held, and ends styles and blocks. The next piece begins
 * another text. */
int markdown_end(markdown *m);
void markdown_close(markdown *m); /* NULL: nothing */
#endif
