/* chat.c -- minerva chat: opens the model, reads turns, ends the conversation.
 *
 * The chat owns everything: app, messages, sequence, line reader, history (close_chat). Turns:
 * chat_turn.c; messages: chat_messages.c; commands: chat_commands.c; lines: line.c. */
#include "chat.h"
#include "codeset.h"
#include "json_strict.h"
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define F(field) offsetof(chat_flags, field)
const arg_row chat_rows[CHAT_ROWS] = {
    {"-n --n-predict", "N", ARG_INT, F(n), -1, 2147483647, NULL,
     "tokens per answer at most; -1: until the context is full (default: 512)"},
    {"--show-thinking", NULL, ARG_FLAG, F(show_thinking), 0, 0, NULL,
     "also what the model writes before its answer (<think>, analysis)"},
    {"--context-full", "WHAT", ARG_CHOICE, F(context_full), 0, 0, "drop|error",
     "drop: omit the oldest turns, never the system message (default)"},
    {"--plain", NULL, ARG_FLAG, F(plain), 0, 0, NULL,
     "on a terminal, too, answers as the model writes them: no styles for Markdown,\nno words that "
     "are wrapped"},
    {"--no-chat-history", NULL, ARG_FLAG, F(no_history), 0, 0, NULL,
     "do not store what is typed (setting chat_history)"},
};

/* ---- lines ----------------------------------------------------------------------------------- */
#define QUOTES "\"\"\""

/* 1 if the text ends with quotes that are not the ones it begins with. */
static int ends_block(const mn_text *b) {
    size_t n = b->len;
    while (n > 3 && strchr(" \t\n", b->ptr[n - 1]))
        n--;
    return n >= 6 && memcmp(b->ptr + n - 3, QUOTES, 3) == 0;
}

/* Removes the quotes, and the line ends beside them. */
static void unquote(mn_text *b) {
    while (b->len > 3 && strchr(" \t\n", b->ptr[b->len - 1]))
        mn_text_remove(b, b->len - 1, b->len);
    mn_text_remove(b, b->len - 3, b->len);
    mn_text_remove(b, 0, b->len > 3 && b->ptr[3] == '\n' ? 4 : 3);
    if (b->len && b->ptr[b->len - 1] == '\n')
        mn_text_remove(b, b->len - 1, b->len);
}

/* Reads one line, or (*quoted) the lines from one that begins with quotes to one that ends with
 * them. */
static line_event read_turn(chat *c, mn_text *b, int *quoted) {
    line_event event = LINE_TEXT;
    *quoted = 0;
    do {
        char *line = NULL;
        size_t n = 0;
        event = line_read(c->lines, *quoted ? ". " : "> ", &line, &n);
        if (event != LINE_TEXT)
            break;
        mn_text_puts(b, *quoted ? "\n" : "");
        mn_text_put(b, line, n);
        free(line);
        if (b->failed)
            return LINE_NO_MEMORY;
        if (b->len > READ_MAX)
            return LINE_TOO_LONG;
        *quoted = b->len >= 3 && memcmp(b->ptr, QUOTES, 3) == 0;
    } while (*quoted && !ends_block(b));
    if (*quoted && event == LINE_TEXT)
        unquote(b);
    return event;
}

static int chat_is_blank(const mn_text *b) {
    return b->len == 0 || strspn(b->ptr, " \t\n") == b->len;
}

/* Runs a command or a turn. 0: the conversation continues; else CHAT_END or the exit code. */
static int answer_line(chat *c, const mn_text *b, int quoted) {
    int code = CHAT_TURN;
    if (chat_is_blank(b))
        return 0;
    if (!quoted)
        code = chat_command(c, b->ptr, b->len);
    if (code == CHAT_TURN)
        code = chat_say(c, "user", b->ptr, b->len);
    if (code == CHAT_END || c->out.error || code == EXIT_NO_MEMORY || !c->a.model)
        return code;
    if (code && c->a.err.status == MN_IO_ERROR) // the model's file has changed
        return code;
    return line_is_typed(c->lines) ? 0 : code; // errors end a script, not a dialogue
}

/* Prints why no line could be read. 0 at the end of the input. */
static int end_of_lines(const chat *c, line_event event, const mn_text *b) {
    switch (event) {
    case LINE_END:
        if (line_is_typed(c->lines) && !line_is_edited(c->lines))
            fputc('\n', stderr);
        if (b->len)
            return complain(EXIT_FAILED,
                            "standard input: found its end in a text that begins with %s, expected "
                            "the same at the end of the text",
                            QUOTES);
        return 0;
    case LINE_TOO_LONG:
        return complain(EXIT_FAILED,
                        "standard input: found a turn of more than %zu MiB, expected "
                        "at most that",
                        READ_MAX >> 20);
    case LINE_FAILED:
        return complain(EXIT_FAILED, "cannot read standard input: %s", strerror(errno));
    default:
        return no_memory();
    }
}

/* Forgets a Ctrl-C that came after the end of the answer, which must not end the next one. */
static void forget_interrupt(chat *c) {
    mn_token token;
    uint32_t n;
    if (interrupt_seen())
        mn_session_step(c->a.session, &token, 1, &n, &c->a.err);
    interrupt_again();
}

/* Turns until the end of the input, Ctrl-D or a second Ctrl-C; the exit code. */
static int converse(chat *c) {
    int code = 0, clears = 0;
    while (code == 0) {
        mn_text b = {0};
        int quoted = 0;
        if (!line_is_typed(c->lines))
            interrupt_watch(NULL); // while a pipe is read, Ctrl-C ends the program
        line_event event = read_turn(c, &b, &quoted);
        interrupt_watch(c->a.session);
        clears = event == LINE_CLEARED ? clears + 1 : 0;
        if (clears == 2) {
            code = CHAT_END;
        } else if (clears) {
            app_remark(&c->a, "Ctrl-C again, or Ctrl-D, ends the conversation");
        } else if (event == LINE_TEXT) {
            code = answer_line(c, &b, quoted);
            forget_interrupt(c);
        } else {
            code = end_of_lines(c, event, &b);
            code = code ? code : CHAT_END;
        }
        mn_text_free(&b);
    }
    if (code == CHAT_END)
        code = 0;
    return out_finish(&c->out, code == EXIT_FAILED && c->out.error ? 0 : code);
}

/* ---- the command ----------------------------------------------------------------------------- */
/* 1 unless --no-chat-history or the setting chat_history says no. */
static int keeps_history(const chat *c) {
    static const char *const no[] = {"0", "false", "no", "off"};
    const char *setting = mn_runtime_setting(c->a.rt, "chat_history");
    for (size_t i = 0; i < MN_COUNT(no); i++)
        if (strcasecmp(setting, no[i]) == 0)
            return 0;
    return !c->flags.no_history;
}

static int open_lines(chat *c) {
    c->lines = line_open();
    if (c->lines && line_is_edited(c->lines)) {
        c->history = history_open(keeps_history(c));
        line_use_history(c->lines, c->history);
    }
    return c->lines ? 0 : complain(EXIT_NO_MEMORY, "out of memory");
}

/* The messages of --history and --system. */
static int first_messages(chat *c) {
    const char *system = c->talk.flags->system;
    int code = 0;
    if (c->talk.history)
        code = messages_from_json(c, c->talk.history);
    free(c->talk.history);
    c->talk.history = NULL;
    if (code == 0 && system)
        code = messages_push(c, "system", (mn_str){system, strlen(system)}, NULL);
    return code;
}

/* Opens the model of the flags with its form, template and session. */
static int chat_open_model(chat *c) {
    mn_session_params params = {0};
    int code = app_open_ranked(&c->a, c->app_flags);
    if (code)
        return code;
    code = app_need_tokenizer(&c->a, EXIT_FAILED, ", expected a model with one");
    if (code)
        return code;
    if (c->a.info.is_encoder)
        return complain(EXIT_FAILED, "%s is an encoder (%s): it makes embeddings (minerva embed)",
                        c->a.info.path, c->a.info.arch);
    if (!talk_has_template(&c->a, &c->talk))
        return complain(
            EXIT_FAILED,
            "%s has no chat template, expected --chat-template (or minerva run --raw, which "
            "continues a text)",
            c->a.info.path);
    code = talk_use(&c->a, &c->talk);
    if (code == 0)
        code = talk_check(&c->a, &c->talk);
    if (code == 0)
        code = form_open(&c->a, &c->form, &c->constraint);
    return code ? code : app_open_session(&c->a, &params);
}

static void chat_close_model(chat *c) {
    chat_forget_sequence(c);
    mn_stream_free(c->g.stream);
    c->g.stream = NULL;
    mn_constraint_free(c->constraint);
    c->constraint = NULL;
    app_close_model(&c->a);
}

/* The seed stays; what the flags left open is the new model's. */
int chat_use_model(chat *c, const char *name) {
    char *copy = strdup(name), *old = c->model;
    const char *old_name = c->app_flags->model;
    if (!copy)
        return no_memory();
    chat_close_model(c);
    c->app_flags->model = copy;
    int code = chat_open_model(c);
    if (code) {
        chat_close_model(c);
        c->app_flags->model = old_name;
        old = copy;
        if (chat_open_model(c) == 0)
            app_remark(&c->a, "the conversation goes on with %s", app_model_name(&c->a));
        else
            chat_close_model(c);
    } else {
        c->model = copy;
        app_remark(&c->a, "the conversation goes on with %s", app_model_name(&c->a));
    }
    free(old);
    c->n_dropped = 0; // the new model's context may hold them
    if (c->a.model) {
        c->a.err = (mn_error)MN_ERROR; // that name's error is not this model's
        chat_apply_settings(c);
    }
    interrupt_watch(c->a.session);
    return code;
}

static void chat_write(void *to, const char *bytes, size_t n) {
    out_put(to, bytes, n);
}

static int chat_columns(void *to) {
    struct winsize size = {0};
    (void)to;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* Answers on a terminal are shown as Markdown. */
static int open_markdown(chat *c) {
    const int flags =
        (has_color(stdout) ? MARKDOWN_STYLED : 0) | (codeset_is_other() ? MARKDOWN_ASCII : 0);
    const markdown_params params = {flags, &c->out, chat_write, chat_columns};
    if (!isatty(STDOUT_FILENO))
        return 0;
    c->markdown = markdown_open(&params);
    return c->markdown ? 0 : no_memory();
}

/* Opens the model and the line reader, and holds the conversation. */
static int chat_start(chat *c) {
    int code = talk_open(&c->talk);
    if (code == 0)
        code = chat_open_model(c);
    if (code == 0)
        code = first_messages(c);
    if (code == 0)
        code = open_lines(c);
    c->out = out_stdout();
    if (code == 0)
        code = open_markdown(c);
    if (code)
        return code;
    chat_apply_settings(c);
    if (line_is_typed(c->lines))
        app_remark(&c->a, "/help lists the commands, Ctrl-D ends the conversation");
    return converse(c);
}

static int close_chat(chat *c, int code) {
    messages_clear(c, 0);
    free(c->messages);
    free(c->file);
    line_close(c->lines);
    history_close(c->history);
    talk_close(&c->talk);
    sampling_free(&c->sampling);
    args_free_texts(&c->form.choices);
    mn_constraint_free(c->constraint);
    markdown_close(c->markdown);
    free(c->model);
    gen_free(&c->g);
    return app_end(&c->a, code);
}

int cmd_chat(int argc, char **argv) {
    app_flags flags = {0};
    talk_flags tf = {0};
    chat c = {
        .app_flags = &flags, .talk.flags = &tf, .flags.n = 512, .sampling = sampling_defaults()};
    const arg_group groups[] = {
        {"Conversation", chat_rows, CHAT_ROWS, &c.flags},
        {"Form of the answers", form_rows, FORM_ROWS, &c.form},
        {"Chat template", talk_rows, TALK_ROWS, &tf},
        {"Sampling", sampling_rows, SAMPLING_ROWS, &c.sampling},
        {"Model and device", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_session_rows, APP_SESSION_ROWS, &flags},
        {"", app_lora_rows, APP_LORA_ROWS, &flags},
        {"", app_draft_rows, APP_DRAFT_ROWS, &flags},
        {"", app_cache_rows, APP_CACHE_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {"chat", "[-m MODEL] [flags]",
                           "A conversation: one line of standard input is one turn.", groups,
                           MN_COUNT(groups)};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK && c.flags.n == 0)
        code = complain(EXIT_USAGE, CHAT_BAD_N, "-n");
    if (code == ARGS_OK && (form_check(&c.form) || sampling_check(&c.sampling)))
        code = EXIT_USAGE;
    if (code == ARGS_OK && flags.list_devices)
        code = cmd_devices(1, argv);
    else if (code == ARGS_OK)
        code = chat_start(&c);
    code = close_chat(&c, code);
    args_free_texts(&flags.lora);
    return code;
}
