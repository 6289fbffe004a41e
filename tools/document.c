/* document.c -- the options of a page in other forms than --help: man pages in roff, and completion
 * for bash, zsh and fish.
 *
 * All forms are written from the arg_rows that parse the command line, so that they cannot
 * differ from the program. A completion file is a head, one part per command and an end:
 * `minerva completion SHELL` calls every command with `--help=SHELL` for its part. The build
 * writes the installed files (tools/pages). Nothing is stored; errors of write are the
 * out_file's. */
#include "app.h"
#include <string.h>

#define MAX_FLAGS 8 /* names of one row */

typedef struct {
    char text[MAX_FLAGS][48];
    size_t n; /* 0: an operand */
} flag_names;

/* The names of a row, in the order of the table. */
static flag_names names_of(const arg_row *row) {
    flag_names names = {.n = 0};
    for (const char *s = row->flags; *s == '-' && names.n < MAX_FLAGS; s += strspn(s, " ")) {
        const size_t len = strcspn(s, " ");
        snprintf(names.text[names.n++], sizeof names.text[0], "%.*s", (int)len, s);
        s += len;
    }
    return names;
}

static int takes_value(const arg_row *row) {
    return row->kind != ARG_FLAG;
}

/* 1: the shell completes names of files. */
static int is_file(const arg_row *row) {
    return row->kind == ARG_FILE || row->kind == ARG_FILES;
}

/* Writes one row; first: the row begins a group with a title. */
typedef void (*row_fn)(out_file *out, const arg_page *page, const arg_group *group,
                       const arg_row *row, int first);

static void each_row(out_file *out, const arg_page *page, row_fn each) {
    for (size_t g = 0; g < page->n_groups; g++)
        for (size_t r = 0; r < page->groups[g].n; r++)
            each(out, page, &page->groups[g], &page->groups[g].rows[r],
                 r == 0 && page->groups[g].title[0]);
}

/* The words of an ARG_CHOICE with blanks between them, between before and after. */
static void document_put_choices(out_file *out, const char *before, const arg_row *row,
                                 const char *after) {
    out_puts(out, before);
    for (const char *s = row->choices; *s; s++)
        out_put(out, *s == '|' ? " " : s, 1);
    out_puts(out, after);
}

/* ---- man ------------------------------------------------------------------------------------- */
/* Escapes text for roff: a hyphen of a flag is \-; a line must not begin with a dot or a quote,
 * which would be a request. */
static void roff(out_file *out, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const int begins = i == 0 || s[i - 1] == '\n';
        if (begins && (s[i] == '.' || s[i] == '\''))
            out_puts(out, "\\&");
        if (s[i] == '\\')
            out_puts(out, "\\e");
        else if (s[i] == '-')
            out_puts(out, "\\-");
        else
            out_put(out, s + i, 1);
    }
}

static void roff_z(out_file *out, const char *z) {
    roff(out, z, strlen(z));
}

static void man_row(out_file *out, const arg_page *page, const arg_group *group, const arg_row *row,
                    int first) {
    const flag_names names = names_of(row);
    (void)page;
    if (first) {
        out_puts(out, ".SS ");
        roff_z(out, group->title);
        out_puts(out, "\n");
    }
    out_puts(out, ".TP\n");
    for (size_t i = 0; i < names.n; i++) {
        out_puts(out, i ? ", \\fB" : "\\fB");
        roff_z(out, names.text[i]);
        out_puts(out, "\\fR");
    }
    if (!names.n || (takes_value(row) && row->value)) {
        out_puts(out, names.n ? " \\fI" : "\\fI");
        roff_z(out, names.n ? row->value : row->flags);
        out_puts(out, "\\fR");
    }
    out_puts(out, "\n");
    roff_z(out, row->help);
    if (row->kind == ARG_CHOICE) {
        out_puts(out, " (");
        roff_z(out, row->choices);
        out_puts(out, ")");
    }
    out_puts(out, "\n");
}

static void document_man_page(out_file *out, const arg_page *page) {
    char name[64];
    snprintf(name, sizeof name, "minerva-%s", page->name);
    for (char *c = name; *c; c++)
        if (*c == ' ')
            *c = '-';
    out_printf(out, ".TH \"%s\" 1 \"\" \"Minerva %s\" \"Minerva\"\n.SH NAME\n", name, mn_version());
    roff_z(out, name);
    /* the first sentence on one line, which man -k shows */
    const char *about = page->about;
    out_puts(out, " \\- ");
    for (const char *s = about; *s && !(*s == '.' && strchr(" \n", s[1])); s++)
        roff(out, *s == '\n' ? " " : s, 1);
    out_printf(out, "\n.SH SYNOPSIS\n\\fBminerva %s\\fR ", page->name);
    roff_z(out, page->usage);
    out_puts(out, "\n.SH DESCRIPTION\n");
    roff_z(out, about);
    out_puts(out, "\n.SH OPTIONS\n");
    each_row(out, page, man_row);
    out_puts(out, ".SH EXIT STATUS\n" EXIT_CODES "\n.SH SEE ALSO\n.BR minerva (1)\n");
}

/* ---- bash ------------------------------------------------------------------------------------ */
/* The case of the word before the cursor: which values the flag has. */
static void bash_values(out_file *out, const arg_page *page, const arg_group *group,
                        const arg_row *row, int first) {
    const flag_names names = names_of(row);
    (void)page;
    (void)group;
    (void)first;
    if (!names.n || !takes_value(row))
        return;
    out_puts(out, "        ");
    for (size_t i = 0; i < names.n; i++)
        out_printf(out, "%s%s", i ? "|" : "", names.text[i]);
    out_puts(out, ") ");
    if (row->kind == ARG_CHOICE)
        document_put_choices(out, "values='", row, "'");
    else
        out_puts(out, is_file(row) ? "values=FILE" : "values=-");
    out_puts(out, " ;;\n");
}

static void bash_flags(out_file *out, const arg_page *page, const arg_group *group,
                       const arg_row *row, int first) {
    const flag_names names = names_of(row);
    (void)page;
    (void)group;
    (void)first;
    for (size_t i = 0; i < names.n; i++)
        out_printf(out, "%s ", names.text[i]);
}

static void bash_page(out_file *out, const arg_page *page) {
    out_printf(out, "    '%s')\n        case $prev in\n", page->name);
    each_row(out, page, bash_values);
    out_puts(out, "        esac\n        flags='");
    each_row(out, page, bash_flags);
    out_puts(out, "--help' ;;\n");
}

static const char bash_head[] = "\n"
                                "_minerva() {\n"
                                "    local cur=${COMP_WORDS[COMP_CWORD]} "
                                "prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
                                "    local flags= values=\n"
                                "    COMPREPLY=()\n"
                                "    if ((COMP_CWORD == 1)); then\n"
                                "        mapfile -t COMPREPLY < <(compgen -W \"$_minerva_commands "
                                "--help --version\" -- \"$cur\")\n"
                                "        return\n"
                                "    fi\n"
                                "    if [[ $command == plugins && ${COMP_WORDS[2]} == check ]] && "
                                "((COMP_CWORD > 2)); then command='plugins check'; fi\n"
                                "    case $command in\n"
                                "    help) flags=$_minerva_commands ;;\n"
                                "    completion) flags='bash zsh fish' ;;\n";
static const char bash_end[] =
    "    esac\n"
    "    if [[ $command == plugins ]] && ((COMP_CWORD == 2)); then flags+=' check'; fi\n"
    "    case $values in\n"
    "    -) ;;\n"
    "    FILE) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
    "    ?*) mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$cur\") ;;\n"
    "    *)\n"
    "        if [[ $cur == -* || $command == help || $command == completion ]] ||\n"
    "            [[ $command == plugins && $cur != */* ]]; then\n"
    "            mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\")\n"
    "        else\n"
    "            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "        fi ;;\n"
    "    esac\n"
    "}\n"
    "complete -o filenames -F _minerva minerva\n";

/* The length of the part of a help text that is shown beside a flag: the first line without the
 * default. */
static size_t short_length(const char *help) {
    size_t n = strcspn(help, "\n");
    const char *end = strstr(help, " (default");
    if (end && (size_t)(end - help) < n)
        n = (size_t)(end - help);
    while (n && strchr(" ,;(", help[n - 1]))
        n--;
    return n;
}

/* ---- zsh ------------------------------------------------------------------------------------- */
/* Escapes text inside '...[here]...', where quotes, brackets and colons are syntax. */
static void zsh_text(out_file *out, const char *s, size_t n) {
    for (const char *end = s + n; s < end; s++) {
        if (*s == '\'')
            out_puts(out, "'\\''");
        else if (strchr("[]:\\", *s))
            out_printf(out, "\\%c", *s);
        else
            out_put(out, *s == '\n' ? " " : s, 1);
    }
}

/* The part of a specification that completes the value. */
static void zsh_action(out_file *out, const arg_row *row) {
    out_puts(out, ":");
    const char *value = row->value ? row->value : "value";
    zsh_text(out, value, strlen(value));
    if (is_file(row))
        out_puts(out, ":_files");
    else if (row->kind == ARG_CHOICE)
        document_put_choices(out, ":(", row, ")");
    else
        out_puts(out, ": ");
}

static void zsh_row(out_file *out, const arg_page *page, const arg_group *group, const arg_row *row,
                    int first) {
    const flag_names names = names_of(row);
    (void)page;
    (void)group;
    (void)first;
    for (size_t i = 0; i < names.n; i++) { /* each name excludes the others */
        out_puts(out, " \\\n            '");
        if (row->kind == ARG_TEXTS || row->kind == ARG_FILES || row->kind == ARG_PAIRS ||
            row->kind == ARG_LIST)
            out_puts(out, "*");
        else if (names.n > 1) {
            out_puts(out, "(");
            for (size_t k = 0; k < names.n; k++)
                out_printf(out, "%s%s", k ? " " : "", names.text[k]);
            out_puts(out, ")");
        }
        out_printf(out, "%s[", names.text[i]);
        zsh_text(out, row->help, short_length(row->help));
        out_puts(out, "]");
        if (takes_value(row))
            zsh_action(out, row);
        out_puts(out, "'");
    }
    if (!names.n) {
        out_printf(out, " \\\n            '%s:", row->kind == ARG_TEXTS ? "*" : "1");
        zsh_text(out, row->flags, strlen(row->flags));
        out_puts(out, is_file(row) ? ":_files'" : ": '");
    }
}

static void zsh_page(out_file *out, const arg_page *page) {
    const char *space = strchr(page->name, ' ');
    const int n = space ? (int)(space - page->name) : (int)strlen(page->name);
    out_printf(out, "    (%.*s%s%s)\n        _arguments", n, page->name, space ? "\\ " : "",
               space ? space + 1 : "");
    each_row(out, page, zsh_row);
    if (!strcmp(page->name, "plugins"))
        out_puts(out, " \\\n            '1:command:(check)' '*:file:_files'");
    out_puts(out, " \\\n            '--help[the flags]' ;;\n");
}

static const char zsh_head[] = "    )\n"
                               "    if ((CURRENT == 2)); then\n"
                               "        _describe command commands\n"
                               "        return\n"
                               "    fi\n"
                               "    local command=$words[2]\n"
                               "    shift words\n"
                               "    ((CURRENT--))\n"
                               "    if [[ $words[1] == plugins && $words[2] == check ]] &&\n"
                               "        ((CURRENT > 2)); then\n"
                               "        command='plugins check'\n"
                               "        shift words\n"
                               "        ((CURRENT--))\n"
                               "    fi\n"
                               "    case $command in\n"
                               "    (help) _describe command commands ;;\n"
                               "    (completion) _arguments '1:shell:(bash zsh fish)' ;;\n";
static const char zsh_end[] = "    esac\n}\n\n_minerva \"$@\"\n";

/* ---- fish ------------------------------------------------------------------------------------ */
static void fish_text(out_file *out, const char *s, size_t n) {
    for (const char *end = s + n; s < end; s++) {
        if (*s == '\'' || *s == '\\')
            out_printf(out, "\\%c", *s);
        else
            out_put(out, *s == '\n' ? " " : s, 1);
    }
}

static void fish_row(out_file *out, const arg_page *page, const arg_group *group,
                     const arg_row *row, int first) {
    const flag_names names = names_of(row);
    const char *space = strchr(page->name, ' ');
    (void)group;
    (void)first;
    if (!names.n)
        return;
    out_printf(out, "complete -c minerva -n '__fish_seen_subcommand_from %s'",
               space ? space + 1 : page->name);
    for (size_t i = 0; i < names.n; i++) {
        const char *name = names.text[i];
        if (name[1] == '-')
            out_printf(out, " -l %s", name + 2);
        else
            out_printf(out, " %s %s", name[2] ? "-o" : "-s", name + 1);
    }
    if (row->kind == ARG_CHOICE)
        document_put_choices(out, " -x -a '", row, "'");
    else if (takes_value(row))
        out_puts(out, is_file(row) ? " -r -F" : " -x");
    out_puts(out, " -d '");
    fish_text(out, row->help, short_length(row->help));
    out_puts(out, "'\n");
}

/* ---- heads and ends -------------------------------------------------------------------------- */
int args_completion_begin(const char *shell, const char *const *names, const char *const *abouts,
                          size_t n) {
    out_file out = out_stdout();
    const int bash = !strcmp(shell, "bash"), zsh = !strcmp(shell, "zsh");
    if (!bash && !zsh && strcmp(shell, "fish") != 0)
        return complain(EXIT_USAGE, "completion: found \"%s\", expected one of bash, zsh and fish",
                        shell);
    out_puts(&out, zsh ? "#compdef minerva\n" : "");
    out_printf(&out, "# Completion of minerva for %s, written by minerva completion %s.\n", shell,
               shell);
    if (bash)
        out_puts(&out, "_minerva_commands='");
    if (zsh)
        out_puts(&out, "_minerva() {\n    local -a commands=(\n");
    for (size_t i = 0; i < n; i++) {
        if (bash)
            out_printf(&out, "%s%s", i ? " " : "", names[i]);
        else if (zsh) {
            out_printf(&out, "        '%s:", names[i]);
            zsh_text(&out, abouts[i], strlen(abouts[i]));
            out_puts(&out, "'\n");
        } else {
            out_printf(&out, "complete -c minerva -n __fish_use_subcommand -f -a %s -d '",
                       names[i]);
            fish_text(&out, abouts[i], strlen(abouts[i]));
            out_puts(&out, "'\n");
        }
    }
    if (bash)
        out_printf(&out, "'\n%s", bash_head);
    else if (zsh)
        out_puts(&out, zsh_head);
    else
        out_puts(&out, "complete -c minerva -n '__fish_seen_subcommand_from completion' -f -a "
                       "'bash zsh fish'\n"
                       "complete -c minerva -n '__fish_seen_subcommand_from plugins' -a check -d "
                       "'try a plugin file'\n");
    return out_finish(&out, 0);
}

int args_document(const arg_page *page, const char *form) {
    out_file out = out_stdout();
    if (!strcmp(form, "man"))
        document_man_page(&out, page);
    else if (!strcmp(form, "bash"))
        bash_page(&out, page);
    else if (!strcmp(form, "zsh"))
        zsh_page(&out, page);
    else if (!strcmp(form, "fish"))
        each_row(&out, page, fish_row);
    else
        return complain(EXIT_USAGE, "--help: found \"%s\", expected one of man, bash, zsh and fish",
                        form);
    return out_finish(&out, 0);
}

void args_completion_end(const char *shell) {
    out_file out = out_stdout();
    if (!strcmp(shell, "bash"))
        out_puts(&out, bash_end);
    else if (!strcmp(shell, "zsh"))
        out_puts(&out, zsh_end);
    out_finish(&out, 0);
}
