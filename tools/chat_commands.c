/* chat_commands.c -- the commands of minerva chat (/help, /set, /save, ...).
 *
 * One table has all commands: /help, the parser and the error for an unknown command use it. /set
 * uses the tables of the command line's flags, so that a setting has the same name and limits. The
 * chat is changed in place; output that is not of the conversation goes to standard error. */
#include "chat.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_MS = 60000 }; /* that /save waits for files of --cache-dir */

typedef struct {
    const char *name, *argument;
    int must;                                  /* 1: without an argument it is an error */
    int (*run)(chat *c, const char *argument); /* argument: without blanks at its ends */
    const char *about;
} command;

static int do_help(chat *c, const char *argument);

/* One row of a list. */
static void chat_command_print_row(const char *what, const char *about) {
    fprintf(stderr, "  %-20s %s\n", what, about);
}

static int do_end(chat *c, const char *argument) {
    (void)c;
    (void)argument;
    return CHAT_END;
}

static int do_clear(chat *c, const char *argument) {
    (void)argument;
    chat_forget_sequence(c);
    messages_clear(c, messages_system(c));
    app_remark(&c->a, "a new conversation");
    return 0;
}

static int do_tool(chat *c, const char *argument) {
    return chat_say_result(c, argument);
}

/* Without an argument: to the file that was loaded or saved last. */
static int do_save(chat *c, const char *argument) {
    const char *path = argument[0] ? argument : c->file;
    if (!path)
        return complain(EXIT_USAGE, "/save: found no file, expected its name");
    int code = messages_save(c, path);
    if (code)
        return code;
    app_remark(&c->a, "%u messages are in %s", c->n, c->file);
    const mn_status st = mn_session_keep(c->a.session, KEEP_MS, &c->a.err);
    if (st) // the conversation is saved; what it has computed is a convenience
        note("%s", c->a.err.msg);
    return 0;
}

static int do_load(chat *c, const char *argument) {
    int code = messages_load(c, argument);
    if (code)
        return code;
    chat_forget_sequence(c);
    app_remark(&c->a, "%u messages from %s", c->n, argument);
    return 0;
}

/* Without an argument the system message is printed; "" removes it. */
static int do_system(chat *c, const char *argument) {
    if (!argument[0]) {
        const uint32_t n = messages_system(c);
        for (uint32_t i = 0; i < n; i++)
            fprintf(stderr, "%s\n", c->messages[i].content.ptr);
        if (n == 0)
            note("there is no system message");
        return 0;
    }
    chat_forget_sequence(c);
    return messages_set_system(c, strcmp(argument, "\"\"") == 0 ? "" : argument);
}

static int do_regen(chat *c, const char *argument) {
    (void)argument;
    return chat_answer_again(c);
}

static int do_undo(chat *c, const char *argument) {
    (void)argument;
    return chat_undo(c);
}

/* Without an argument the model is printed. */
static int do_model(chat *c, const char *argument) {
    if (argument[0])
        return chat_use_model(c, argument);
    note("%s (%s)", app_model_name(&c->a), c->a.info.path);
    return 0;
}

/* Without an argument: of the last answer. */
static int do_timings(chat *c, const char *argument) {
    const int on = strcmp(argument, "on") == 0;
    if (!argument[0]) {
        chat_print_timings(c);
        return 0;
    }
    if (!on && strcmp(argument, "off") != 0)
        return complain(EXIT_USAGE, "/timings: found \"%s\", expected on, off or nothing",
                        argument);
    c->timings = on;
    return 0;
}

/* ---- /set ------------------------------------------------------------------------------------ */
#define N_GROUPS 2
/* Not texts such as those of --stop, which point into the command line. */
static int is_settable(const arg_row *row) {
    return row->kind != ARG_TEXTS && row->kind != ARG_TEXT;
}

static void settings(chat *c, arg_group groups[N_GROUPS]) {
    groups[0] = (arg_group){"", chat_rows, CHAT_SETTINGS, &c->flags};
    groups[1] = (arg_group){"", sampling_rows, SAMPLING_ROWS, &c->sampling};
}

/* The long name of a flag with _ for -. */
static void chat_command_name_of(const arg_row *row, char *name, size_t n) {
    const char *flag = strstr(row->flags, "--");
    snprintf(name, n, "%.*s", (int)strcspn(flag + 2, " "), flag + 2);
    for (char *s = name; *s; s++)
        if (*s == '-')
            *s = '_';
}

static void put_choice(const arg_row *row, int choice, char *value, size_t n) {
    const char *word = row->choices;
    for (int i = 0; i < choice; i++)
        word += strcspn(word, "|") + 1;
    snprintf(value, n, "%.*s", (int)strcspn(word, "|"), word);
}

/* The value as text; "default": not set, sampling_resolve chooses it. */
static void put_value(const arg_row *row, const void *field, char *value, size_t n) {
    snprintf(value, n, "default");
    if (row->kind == ARG_FLAG)
        snprintf(value, n, "%s", *(const int *)field ? "on" : "off");
    if (row->kind == ARG_CHOICE)
        put_choice(row, *(const int *)field, value, n);
    if (row->kind == ARG_INT && (double)*(const int64_t *)field >= row->lo)
        snprintf(value, n, "%" PRId64, *(const int64_t *)field);
    if (row->kind == ARG_FLOAT && !isnan(*(const double *)field))
        snprintf(value, n, "%g", *(const double *)field);
    if (row->kind == ARG_SEED && ((const arg_seed *)field)->given)
        snprintf(value, n, "%" PRIu64, ((const arg_seed *)field)->v);
}

static void list_settings(const arg_group *groups, size_t n) {
    char name[40], value[40];
    for (size_t g = 0; g < n; g++)
        for (size_t r = 0; r < groups[g].n; r++) {
            const arg_row *row = &groups[g].rows[r];
            if (!is_settable(row))
                continue;
            chat_command_name_of(row, name, sizeof name);
            put_value(row, (const char *)groups[g].values + row->offset, value, sizeof value);
            chat_command_print_row(name, value);
        }
}

/* 1 if the n bytes of name are the flag, with _ or - between words. */
static int is_flag(const char *flag, const char *name, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (name[i] != flag[i] && !(name[i] == '_' && flag[i] == '-'))
            return 0;
    return 1;
}

/* 1 if the row has a flag of this name, without its dashes. */
static int has_flag(const arg_row *row, const char *name, size_t n) {
    for (const char *s = row->flags; *s; s += strspn(s, " ")) {
        const char *word = s + strspn(s, "-");
        s += strcspn(s, " ");
        if ((size_t)(s - word) == n && is_flag(word, name, n))
            return 1;
    }
    return 0;
}

/* The row of a setting, and in *field the address of its value; NULL: unknown. */
static const arg_row *chat_command_row_of(const arg_group *groups, size_t n, const char *name,
                                          size_t n_name, char **field) {
    for (size_t g = 0; g < n; g++)
        for (size_t r = 0; r < groups[g].n; r++) {
            const arg_row *row = &groups[g].rows[r];
            *field = (char *)groups[g].values + row->offset;
            if (is_settable(row) && has_flag(row, name, n_name))
                return row;
        }
    return NULL;
}

/* The error lists the settings. */
static int unknown_setting(const arg_group *groups, size_t n, const char *name, size_t n_name) {
    mn_text list = {0};
    char one[40];
    for (size_t g = 0; g < n; g++)
        for (size_t r = 0; r < groups[g].n; r++) {
            if (!is_settable(&groups[g].rows[r]))
                continue;
            chat_command_name_of(&groups[g].rows[r], one, sizeof one);
            mn_text_puts(&list, list.len ? ", " : "");
            mn_text_puts(&list, one);
        }
    int code = complain(EXIT_USAGE, "/set: found \"%.*s\", expected one of %s", (int)n_name, name,
                        list.ptr ? list.ptr : "");
    mn_text_free(&list);
    return code;
}

static int set_flag(int *field, const char *value) {
    const int on = strcmp(value, "on") == 0;
    if (!on && strcmp(value, "off") != 0)
        return complain(EXIT_USAGE, "/set: found \"%s\", expected on or off", value);
    *field = on;
    return 0;
}

/* Stores a value. n must not be 0, which the limits of its row cannot express. */
static int chat_command_set_value(chat *c, const arg_row *row, void *field, const char *value) {
    const int64_t n_before = c->flags.n;
    int code = args_store(row, field, "/set", value);
    if (code || c->flags.n)
        return code;
    c->flags.n = n_before;
    return complain(EXIT_USAGE, CHAT_BAD_N, "/set");
}

/* NAME VALUE or NAME=VALUE */
static int do_set(chat *c, const char *argument) {
    arg_group groups[N_GROUPS];
    settings(c, groups);
    if (!argument[0]) {
        list_settings(groups, N_GROUPS);
        return 0;
    }
    const char *name = argument + strspn(argument, "-");
    const size_t n_name = strcspn(name, " \t=");
    const char *value = name + n_name + strspn(name + n_name, " \t=");
    char *field = NULL;
    const arg_row *row = chat_command_row_of(groups, N_GROUPS, name, n_name, &field);
    if (!row)
        return unknown_setting(groups, N_GROUPS, name, n_name);
    int code = 0;
    if (row->kind == ARG_FLAG)
        code = set_flag((int *)(void *)field, value);
    else
        code = chat_command_set_value(c, row, field, value);
    if (code == 0)
        chat_apply_settings(c);
    return code;
}

/* ---- the table ------------------------------------------------------------------------------- */
static const command commands[] = {
    {"help", "", 0, do_help, "print this list"},
    {"bye", "", 0, do_end, "end the conversation, as /exit, /quit, Ctrl-D, or Ctrl-C twice"},
    {"exit", "", 0, do_end, NULL},
    {"quit", "", 0, do_end, NULL},
    {"clear", "", 0, do_clear, "begin a new conversation with the same system message"},
    {"system", "[TEXT]", 0, do_system, "set the system message (\"\": none), or print it"},
    {"set", "[NAME VALUE]", 0, do_set, "change a setting, as /set temp 0.5; or print all"},
    {"save", "[FILE]", 0, do_save, "write the conversation, as --history and /load read it"},
    {"load", "FILE", 1, do_load, "continue the conversation of a file"},
    {"tool", "TEXT", 1, do_tool, "the result of a tool that the model called"},
    {"regen", "", 0, do_regen, "another answer in place of the last one"},
    {"undo", "", 0, do_undo, "remove the last turn and its answer"},
    {"model", "[NAME]", 0, do_model, "go on with another model, or print which one it is"},
    {"timings", "[on|off]", 0, do_timings, "rates of the last answer, or after each one"},
};

static int do_help(chat *c, const char *argument) {
    char usage[40];
    (void)c;
    (void)argument;
    for (size_t i = 0; i < MN_COUNT(commands); i++) {
        snprintf(usage, sizeof usage, "/%s %s", commands[i].name, commands[i].argument);
        if (commands[i].about)
            chat_command_print_row(usage, commands[i].about);
    }
    chat_command_print_row(
        "\"\"\"", "begins a text of several lines, and ends it; a pasted block is one text, too");
    chat_command_print_row("Ctrl-C", "ends an answer, or clears the line");
    return 0;
}

/* The error lists the commands, and the closest one. */
static int unknown_command(const char *word, size_t n) {
    const char *names[MN_COUNT(commands)];
    char typed[40];
    mn_text list = {0};
    for (size_t i = 0; i < MN_COUNT(commands); i++) {
        names[i] = commands[i].name;
        mn_text_puts(&list, i ? ", /" : "/");
        mn_text_puts(&list, names[i]);
    }
    snprintf(typed, sizeof typed, "%.*s", (int)n, word);
    const char *near = closest(typed, names, MN_COUNT(names));
    char hint[64] = "";
    if (near)
        snprintf(hint, sizeof hint, ", did you mean /%s?", near);
    int code = complain(EXIT_USAGE, "unknown command /%s%s; the commands are %s", typed, hint,
                        list.ptr ? list.ptr : "");
    mn_text_free(&list);
    return code;
}

/* Runs a command with its argument of n bytes, without the blanks at its ends. */
static int chat_command_run_command(chat *c, const command *which, const char *argument, size_t n) {
    while (n && strchr(" \t\n", argument[n - 1]))
        n--;
    char *text = strndup(argument, n);
    int code = 0;
    if (!text)
        return no_memory();
    if (text[0] && !which->argument[0])
        code =
            complain(EXIT_USAGE, "/%s: found \"%s\", expected nothing after it", which->name, text);
    else if (!text[0] && which->must)
        code = complain(EXIT_USAGE, "/%s: found no argument, expected %s", which->name,
                        which->argument);
    else
        code = which->run(c, text);
    free(text);
    return code;
}

/* A command is a slash and letters. Other text, such as a path, is a turn; so is an unknown word
 * that more lines follow: a pasted text. */
int chat_command(chat *c, const char *line, size_t n) {
    if (n < 2 || line[0] != '/')
        return CHAT_TURN;
    const char *word = line + 1;
    const size_t n_word = strspn(word, "abcdefghijklmnopqrstuvwxyz?_-");
    const char *rest = word + n_word;
    if (n_word == 0 || (*rest && !strchr(" \t\n", *rest)))
        return CHAT_TURN;
    rest += strspn(rest, " \t");
    for (size_t i = 0; i < MN_COUNT(commands); i++)
        if (strlen(commands[i].name) == n_word && memcmp(commands[i].name, word, n_word) == 0)
            return chat_command_run_command(c, &commands[i], rest, n - (size_t)(rest - line));
    return memchr(line, '\n', n) ? CHAT_TURN : unknown_command(word, n_word);
}
