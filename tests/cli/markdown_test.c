/* Markdown on a terminal (markdown.h): what is written, the same for all pieces of a text. */
#include "markdown.h"
#include "text_buffer.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mn_text out;
static int columns = 20;
static int n_failed;

static void test_write(void *to, const char *bytes, size_t n) {
    mn_text_put(to, bytes, n);
}

static int test_columns(void *to) {
    (void)to;
    return columns;
}

/* The output of text in pieces of at most `piece` bytes. */
static const char *written(const char *text, size_t n, size_t piece, int flags) {
    const markdown_params params = {flags, &out, test_write, test_columns};
    markdown *m = markdown_open(&params);
    mn_text_clear(&out);
    mn_text_puts(&out, "");
    if (!m)
        exit(1);
    for (size_t at = 0; at < n; at += piece)
        markdown_put(m, text + at, n - at < piece ? n - at : piece);
    markdown_end(m);
    markdown_close(m);
    return out.ptr ? out.ptr : "";
}

/* Styles as <bdius...>, for tables that are read. */
static void spell(const char *text, char *to, size_t cap) {
    size_t n = 0;
    static const char names[] = "01234_6789", letters[] = "/bdiu____s";
    while (*text && n + 24 < cap) {
        if (*text != '\033') {
            to[n++] = *text++;
            continue;
        }
        to[n++] = '<';
        for (text += 2; *text && *text != 'm'; text++) {
            const char *at = strchr(names, *text);
            if (text[0] == '3' && text[1] >= '0' && text[1] <= '9')
                to[n++] = *++text == '6' ? 'c' : 'h';
            else if (at && *text != '0')
                to[n++] = letters[at - names];
        }
        text++;
        if (to[n - 1] == '<')
            to[n++] = '/';
        to[n++] = '>';
    }
    to[n] = 0;
}

static void expect(const char *text, int flags, const char *want) {
    char found[4096];
    const size_t n = strlen(text);
    for (size_t piece = 1; piece <= n + 1; piece += 1 + (piece > 8) * piece) {
        spell(written(text, n, piece, flags), found, sizeof found);
        if (strcmp(found, want) == 0)
            continue;
        printf("pieces of %zu bytes of\n%s\n--- found\n%s\n--- expected\n%s\n", piece, text, found,
               want);
        n_failed++;
        return;
    }
}

static const struct {
    const char *text, *want;
} styled[] = {
    {"plain\n", "plain\n"},
    {"", ""},
    {"\n\n", "\n\n"},
    {"a **b** c", "a <b>b</> c"},
    {"**b**", "<b>b</>"},
    {"a *b* _c_ __d__ ***e*** ~~f~~", "a <i>b</> <i>c</> <b>d</> <bi>e</> <s>f</>"},
    {"**a *b* c**", "<b>a <bi>b<b> c</>"},
    {"2 * 3 * 4", "2 * 3 * 4"},
    {"snake_case_name", "snake_case_name"},
    {"**open", "**open"},
    {"* a **open\nb**", "<h>\xe2\x80\xa2 </>a **open\nb**"},
    {"`a*b*c` d", "<c>a*b*c</> d"},
    {"`` a`b `` `open", "<c>a`b</> `open"},
    {"\\*a\\* 1\\. \\q", "*a* 1. \\q"},
    {"\\(a_b*c*\\) $x_1$", "\\(a_b*c*\\) $x_1$"},
    {"costs $5 and $10", "costs $5 and $10"},
    {"[a b](http://x/y) z", "<u>a</> <u>b<d> (http://x/y)</> z"},
    {"[1] and [x", "[1] and [x"},
    {"# T *i*\n## U\n#x\n", "<buh>T <biuh>i</>\n<bh>U</>\n#x\n"},
    {"####### x\n#\n", "####### x\n#\n"},
    {"- a\n  - b\n1. c\n10) d\n-e\n1.5\n",
     "<h>\xe2\x80\xa2 </>a\n  <h>\xe2\x80\xa2 </>b\n<h>1. </>c\n<h>10) </>d\n-e\n1.5\n"},
    {"- one two three four five\n", "<h>\xe2\x80\xa2 </>one two three four\n  five\n"},
    {"one two three four five six\n", "one two three four\nfive six\n"},
    {"**one two three four five**\n", "<b>one two three four</>\n<b>five</>\n"},
    {"> one two three four five\n> > b\n", "<d>\xe2\x94\x82 </>one two three four\n<d>\xe2\x94\x82 "
                                           "</>five\n<d>\xe2\x94\x82 </><d>\xe2\x94\x82 </>b\n"},
    {"```py\nx = 1  # **no** one two three\n\n  y `z`\n```\n**b**\n",
     "<d>```py</>\n<c>x = 1  # **no** one two three</>\n\n<c>  y `z`</>\n<d>```</>\n<b>b</>\n"},
    {"````\n```\n````\nx", "<d>````</>\n<c>```</>\n<d>````</>\nx"},
    {"~~~\n```\n~~~ \nx", "<d>~~~</>\n<c>```</>\n<d>~~~ </>\nx"},
    {"```a`b\n", "```a`b\n"},
    {"  ```\n  a\n  ```\nb", "<d>  ```</>\n<c>  a</>\n<d>  ```</>\nb"},
    {"> ```\n> a\n", "<d>\xe2\x94\x82 </>```\n<d>\xe2\x94\x82 </>a\n"},
    {"| a | **b** | one two three |\n|---|\n", "| a | **b** | one two three |\n|---|\n"},
    {"$$\na_1*b*c_2 + one two three four\n$$\n*i*\n",
     "$$\na_1*b*c_2 + one two three four\n$$\n<i>i</>\n"},
    {"\\[ a_b_ \\]\n_i_\n", "\\[ a_b_ \\]\n<i>i</>\n"},
    {"$$ x\n\n*i*\n", "$$ x\n\n<i>i</>\n"},
    {"averyveryveryverylongword b", "averyveryveryverylongword b"},
    {"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe6\x97\xa5\xe6\x9c"
     "\xac\xe8\xaa\x9e\xe6\x97\xa5\xe6\x9c\xac",
     "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe6\x97\xa5\xe6\x9c"
     "\xac\xe8\xaa\x9e\xe6\x97\xa5\n\xe6\x9c\xac"},
    {"a\033[31mb\x07"
     "c\x7f\r\n",
     "a^[[31mb^Gc^?\n"},
    {"`\033]0;x\x07`\n```\n\033[2J\tx\n", "<c>^[]0;x^G</>\n<d>```</>\n<c>^[[2J\tx</>\n"},
    {"a\xc2\x9b"
     "31m \xff \xe6\x97",
     "a\xef\xbf\xbd"
     "31m \xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd"},
};

/* 1 if the text has no control character but line ends, tabs and styles. */
static int is_harmless(const char *text) {
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == 0xc2 && (unsigned char)text[1] < 0xa0)
            return 0;
        if (c == '\033' && text[1] == '[')
            for (text += 2; (*text >= '0' && *text <= '9') || *text == ';';)
                text++;
        else if ((c < ' ' && c != '\n' && c != '\t') || c == 127)
            return 0;
        if (c == '\033' && *text != 'm')
            return 0;
    }
    return 1;
}

/* Texts of marks at random: the same for any pieces, and nothing that a terminal obeys. */
static void expect_random(unsigned n_texts) {
    static const char *const parts[] = {
        "*",  "**",   "_",   "`",       "```",  "\n",       "\n\n",         " ",
        "a",  "word", "[",   "](",      ")",    "> ",       "- ",           "1. ",
        "# ", "$",    "$$",  "\\(",     "\\)",  "\\[",      "\\]",          "\\",
        "~~", "|",    "---", "\033[2J", "\x07", "\xc2\x9b", "\xe6\x97\xa5", "\xe6",
        "\t", "\r",   "2",   "    "};
    static char text[2000], first[40000];
    uint32_t dice = 1;
    for (unsigned i = 0; i < n_texts && !n_failed; i++) {
        size_t n = 0;
        for (dice = dice * 1664525u + 1013904223u; n < 8 + (dice >> 22) % 900;) {
            dice = dice * 1664525u + 1013904223u;
            const char *part = parts[(dice >> 16) % MN_COUNT(parts)];
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        }
        snprintf(first, sizeof first, "%s", written(text, n, n, MARKDOWN_STYLED));
        const char *second = written(text, n, 1 + (dice >> 20) % 5, MARKDOWN_STYLED);
        if (strcmp(first, second) == 0 && is_harmless(first))
            continue;
        printf("random text %u:\n%.*s\n--- whole\n%s\n--- in pieces\n%s\n", i, (int)n, text, first,
               second);
        n_failed++;
    }
}

int main(int argc, char **argv) {
    expect_random(argc > 1 ? (unsigned)atoi(argv[1]) : 300);
    for (size_t i = 0; i < MN_COUNT(styled); i++)
        expect(styled[i].text, MARKDOWN_STYLED, styled[i].want);
    expect("**b** one two three four\n# T\n- `a` one two three four\n", 0,
           "**b** one two three\nfour\n# T\n- `a` one two three\n  four\n");
    expect("- a\n> b\n---\n", MARKDOWN_STYLED | MARKDOWN_ASCII,
           "<h>- </>a\n<d>| </>b\n<d>--------------------</>\n");
    columns = 0;
    expect("one two three four five six", MARKDOWN_STYLED, "one two three four five six");
    return n_failed != 0;
}
