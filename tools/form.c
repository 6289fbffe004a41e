/* form.c -- an answer's form by flags (form.h). A schema or a grammar is read from a file, a schema
 * also from the flag itself, as talk.c's JSON is. What the library enforces more strictly than it
 * is written becomes a remark on standard error. */
#include "form.h"
#include "talk.h"
#include <stdlib.h>
#include <string.h>

#define F(field) offsetof(form_flags, field)
const arg_row form_rows[FORM_ROWS] = {
    {"--json-schema", "F", ARG_FILE, F(schema), 0, 0, NULL,
     "the answer is JSON that this schema accepts; a file, or the schema itself\n(\"{}\": any "
     "JSON)"},
    {"--regex", "R", ARG_TEXT, F(regex), 1, 0, NULL,
     "the whole answer matches this regular expression"},
    {"--grammar", "F", ARG_FILE, F(grammar), 0, 0, NULL,
     "the answer follows this grammar, a file in GBNF; its rule \"root\""},
    {"--choices", "A,B", ARG_TEXTS, F(choices), 1, 0, NULL,
     "the answer is one of these texts; may be given several times"},
};

/* An empty choice, mostly a comma too many, would accept an answer without text. */
static int check_choices(const arg_texts *given) {
    for (size_t i = 0; i < given->n; i++) {
        const char *text = given->v[i];
        const size_t n = strlen(text);
        if (n && *text != ',' && !strstr(text, ",,") && text[n - 1] != ',')
            continue;
        return complain(EXIT_USAGE,
                        "--choices: found \"%s\", expected texts with commas between them, none of "
                        "them empty",
                        text);
    }
    return 0;
}

int form_check(const form_flags *f) {
    const int n =
        (f->schema != NULL) + (f->regex != NULL) + (f->grammar != NULL) + (f->choices.n > 0);
    if (n <= 1)
        return check_choices(&f->choices);
    return complain(EXIT_USAGE,
                    "found %d of --json-schema, --regex, --grammar and --choices, expected one of "
                    "them",
                    n);
}

/* How many texts the flags hold, between commas. */
static size_t count_choices(const arg_texts *given) {
    size_t n = given->n;
    for (size_t i = 0; i < given->n; i++)
        for (const char *at = given->v[i]; *at; at++)
            n += *at == ',';
    return n;
}

/* *list: malloc'ed, pointing into the flags; NULL: there are none, or no memory. */
static uint32_t split_choices(const arg_texts *given, mn_str **list) {
    const size_t n = count_choices(given);
    mn_str *to = n ? malloc(n * sizeof *to) : NULL;
    *list = to;
    for (size_t i = 0; to && i < given->n; i++) {
        const char *at = given->v[i];
        for (size_t len = strcspn(at, ",");; len = strcspn(at, ",")) {
            *to++ = (mn_str){at, len};
            at += len;
            if (!*at)
                break;
            at++;
        }
    }
    return (uint32_t)n;
}

/* One line per warning. */
static void remark(const app *a, const mn_constraint *c) {
    const char *at = mn_constraint_warnings(c);
    while (*at) {
        const size_t n = strcspn(at, "\n");
        app_remark(a, "%.*s", (int)n, at);
        at += n + (at[n] == '\n');
    }
}

/* The flag that is given, its value for messages, and what the library compiles. text: what was
 * read, malloc'ed. */
typedef struct {
    const char *flag, *value;
    mn_constraint_params params;
    char *text;
    mn_str *choices;
} source;

static int read_source(const form_flags *f, source *s) {
    mn_constraint_params *p = &s->params;
    size_t n = 0;
    int code = 0;
    if (f->schema) {
        *s = (source){.flag = "--json-schema", .value = f->schema};
        p->kind = MN_CONSTRAINT_SCHEMA;
        code = talk_read(f->schema, &s->text);
        n = s->text ? strlen(s->text) : 0;
    } else if (f->grammar) {
        *s = (source){.flag = "--grammar", .value = f->grammar};
        p->kind = MN_CONSTRAINT_GRAMMAR;
        code = read_all_text(f->grammar, &s->text, &n);
    } else if (f->regex) {
        *s = (source){.flag = "--regex", .value = f->regex};
        p->kind = MN_CONSTRAINT_REGEX;
        p->source = (mn_str){f->regex, strlen(f->regex)};
    } else {
        *s = (source){.flag = "--choices", .value = f->choices.v[0]};
        p->kind = MN_CONSTRAINT_CHOICES;
        p->n_choices = split_choices(&f->choices, &s->choices);
        p->choices = s->choices;
        code = s->choices ? 0 : no_memory();
    }
    if (s->text)
        p->source = (mn_str){s->text, n};
    p->size = sizeof *p;
    return code;
}

int form_open(app *a, const form_flags *f, mn_constraint **out) {
    source s = {0};
    *out = NULL;
    if (!f->schema && !f->regex && !f->grammar && !f->choices.n)
        return 0;
    int code = read_source(f, &s);
    const mn_status st = code ? MN_OK : mn_constraint_create(a->model, &s.params, out, &a->err);
    if (st == MN_BAD_INPUT || st == MN_BAD_FILE || st == MN_UNSUPPORTED)
        code = complain(EXIT_USAGE, "%s: found \"%s\": %s", s.flag, s.value, a->err.msg);
    else if (st)
        code = app_fail(a, st);
    if (*out)
        remark(a, *out);
    free(s.text);
    free(s.choices);
    return code;
}
