/* chat.c -- minerva chat: a conversation; the cache of earlier turns is kept. */
#include "generate.h"
#include "talk.h"
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef HAVE_LIBEDIT
#include <editline/readline.h>
#include <locale.h>
#endif

typedef struct {
    int64_t n;
    int show_thinking;
} chat_flags;

#define F(field) offsetof(chat_flags, field)
static const arg_row rows[] = {
    {"-n --n-predict", "N", ARG_INT, F(n), -1, 2147483647, NULL,
     "tokens per answer at most; -1: until the context is full (default: 512)"},
    {"--show-thinking", NULL, ARG_FLAG, F(show_thinking), 0, 0, NULL,
     "also what the model writes before its answer (<think>, analysis)"},
};

typedef struct {
    app a;
    talk talk;
    mn_message *messages;
    uint32_t n, n_known; /* n_known: how many of them the sequence holds */
    int has_seq, terminal;
    gen g;
    mn_sample_params sample;
} chat;

/* ---- messages: owned copies ------------------------------------------------------------------ */
static int push(chat *c, const char *role, const char *text, size_t n) {
    mn_message *grown = realloc(c->messages, (c->n + 1) * sizeof *grown);
    char *copy = malloc(n + 1);
    if (grown)
        c->messages = grown;
    if (!grown || !copy) {
        free(copy);
        return complain(EXIT_NO_MEMORY, "out of memory");
    }
    if (n)
        memcpy(copy, text, n);
    copy[n] = 0;
    c->messages[c->n++] = (mn_message){{role, strlen(role)}, {copy, n}, {NULL, 0}};
    return 0;
}

static void pop(chat *c) {
    mn_message *m = &c->messages[--c->n];
    free((char *)m->content.ptr);
    cJSON_free((char *)m->more.ptr);
}

/* A call that the model made by tokens of its own, for a template that writes them: with its
 * arguments, and what was thought before. */
static char *call_more(const gen *g) {
    char *args = strndup(g->text + g->call, g->n_text - g->call),
         *thought = strndup(g->thinking ? g->thinking : "", g->n_thinking);
    cJSON *more = cJSON_CreateObject(), *calls = cJSON_AddArrayToObject(more, "tool_calls"),
          *call = cJSON_CreateObject(), *read = args ? cJSON_ParseWithOpts(args, NULL, 1) : NULL;
    char *text = NULL;
    int ok = args && thought && calls && cJSON_AddItemToArray(calls, call);
    if (!ok)
        cJSON_Delete(call);
    cJSON *function = ok && cJSON_AddStringToObject(call, "type", "function")
                          ? cJSON_AddObjectToObject(call, "function")
                          : NULL;
    ok = function && cJSON_AddStringToObject(function, "name", gen_tool_name(g)) &&
         (read ? cJSON_AddRawToObject(function, "arguments", args)
               : cJSON_AddStringToObject(function, "arguments", args)) &&
         (!g->n_thinking || cJSON_AddStringToObject(more, "thinking", thought));
    if (ok)
        text = cJSON_PrintUnformatted(more);
    cJSON_Delete(read);
    cJSON_Delete(more);
    free(args);
    free(thought);
    return text;
}

static int push_answer(chat *c) {
    const gen *g = &c->g;
    char *more = g->tool[0] ? call_more(g) : NULL;
    if (g->tool[0] && !more)
        return complain(EXIT_NO_MEMORY, "out of memory");
    int code = push(c, "assistant", g->text ? g->text : "", more ? 0 : g->n_text);
    if (code)
        cJSON_free(more);
    else if (more)
        c->messages[c->n - 1].more = (mn_str){more, strlen(more)};
    return code;
}

static void forget_sequence(chat *c) {
    if (c->has_seq)
        mn_seq_free(c->a.session, c->g.seq);
    c->has_seq = 0;
    c->n_known = 0;
}

/* ---- one turn -------------------------------------------------------------------------------- */
static int begin_turn(chat *c) {
    app *a = &c->a;
    int32_t *ids = NULL;
    uint32_t n = 0;
    mn_status status;
    int code = talk_ids(a, &c->talk, c->messages, c->n, c->n_known, &ids, &n);
    if (code == TALK_ANEW) {
        forget_sequence(c);
        code = talk_ids(a, &c->talk, c->messages, c->n, 0, &ids, &n);
    }
    if (code == 0)
        code = gen_restart(a, &c->g, ids, n);
    if (code)
        return mn_ids_free(ids), code;
    if (c->has_seq)
        status = mn_seq_extend(a->session, c->g.seq, ids, n, &c->sample, &a->err);
    else {
        status = mn_seq_create(a->session, ids, n, &c->sample, &c->g.seq, &a->err);
        c->has_seq = status == MN_OK;
    }
    mn_ids_free(ids);
    return status == MN_OK ? 0 : app_fail(a, status);
}

/* The last message is the user's. A turn that ends by a stop token leaves a sequence that the next
 * turn extends; any other end lacks that token, and a template leaves out what was thought in
 * earlier turns: then the next turn begins anew from the messages. */
static int turn(chat *c, out_file *out) {
    int code = begin_turn(c);
    if (code) {
        forget_sequence(c);
        pop(c);
        return code;
    }
    code = gen_run(&c->a, &c->g, 1, out);
    if (c->g.n_text == 0 || c->g.text[c->g.n_text - 1] != '\n')
        out_put(out, "\n", 1);
    out_flush(out);
    if (out->error)
        return EXIT_FAILED;
    if (c->g.finish == MN_FINISH_LENGTH)
        note("the answer was cut at its greatest length");
    if (c->g.finish != MN_FINISH_STOP || c->g.n_thinking)
        forget_sequence(c);
    if (code && code != EXIT_INTERRUPTED) {
        pop(c);
        return code;
    }
    int failed = push_answer(c);
    if (c->has_seq)
        c->n_known = c->n;
    return failed ? failed : code;
}

static void clear(chat *c) {
    forget_sequence(c);
    while (c->n && strcmp(c->messages[c->n - 1].role.ptr, "system") != 0)
        pop(c);
    free(c->talk.history);
    c->talk.history = NULL;
    note("a new conversation");
}

/* ---- lines ----------------------------------------------------------------------------------- */
/* NULL = the end, or an error: then *code is not 0. */
static char *read_line(chat *c, int *code) {
#ifdef HAVE_LIBEDIT
    char *line = c->terminal ? readline("> ") : NULL;
    if (line) {
        if (*line)
            add_history(line);
        return line;
    }
    if (c->terminal)
        return NULL;
#endif
    if (c->terminal)
        fputs(has_color(stderr) ? "\033[1m> \033[0m" : "> ", stderr);
    return read_line_of(stdin, code);
}

/* 1: the line was a command; -1: the end. */
static int command(chat *c, const char *line) {
    if (line[0] == 0)
        return 1;
    if (!strcmp(line, "/exit") || !strcmp(line, "/quit"))
        return -1;
    if (!strcmp(line, "/clear"))
        return clear(c), 1;
    if (!strcmp(line, "/help"))
        return note("/clear: a new conversation; /tool TEXT: what a tool answers; /exit or Ctrl-D: "
                    "the end; "
                    "Ctrl-C: ends an answer"),
               1;
    return 0;
}

static int converse(chat *c) {
    out_file out = out_stdout();
    int code = 0;
    for (;;) {
        interrupt_watch(NULL); // while a line is typed Ctrl-C ends the program
        char *line = read_line(c, &code);
        if (!line)
            break;
        interrupt_watch(c->a.session);
        int what = command(c, line);
        int tool = strncmp(line, "/tool ", 6) == 0;
        const char *said = tool ? line + 6 : line;
        code = what == 0 ? push(c, tool ? "tool" : "user", said, strlen(said)) : 0;
        free(line);
        if (what == 0 && code == 0)
            code = turn(c, &out);
        if (what < 0 || out.error || code == EXIT_NO_MEMORY)
            break;
        if (code && !c->terminal)
            break; // a script wants to know; a person goes on
        interrupt_again();
        code = 0;
    }
    return out_finish(&out, code == EXIT_FAILED && out.error ? 0 : code);
}

static int start(chat *c, const app_flags *flags, const chat_flags *f,
                 const sampling_flags *sampling) {
    mn_session_params params = {0};
    int code = app_open_model(&c->a, flags);
    if (code)
        return code;
    if (!c->a.info.has_tokenizer)
        return complain(EXIT_FAILED, "%s has no tokeniser: there is nothing to chat with",
                        c->a.info.path);
    if (!talk_has_template(&c->a, &c->talk))
        return complain(EXIT_FAILED, "%s has no chat template: minerva run --raw continues a text",
                        c->a.info.path);
    code = talk_check(&c->a, &c->talk);
    if (code == 0)
        code = app_open_session(&c->a, &params);
    if (code)
        return code;
    sampling_resolve(&c->a, sampling, &c->sample);
    c->sample.max_new = f->n < 0 ? 0 : (uint32_t)f->n;
    c->g.max_new = f->n;
    c->g.stop = sampling->stop;
    c->g.show_thinking = f->show_thinking;
    c->terminal = isatty(STDIN_FILENO);
    const char *system = c->talk.flags->system;
    if (system && (code = push(c, "system", system, strlen(system))))
        return code;
    if (c->terminal)
        note("/help lists the commands, Ctrl-D ends the conversation");
    return converse(c);
}

int cmd_chat(int argc, char **argv) {
    app_flags flags = {0};
    chat_flags f = {.n = 512};
    talk_flags tf = {0};
    sampling_flags sampling = sampling_defaults();
    const arg_group groups[] = {
        {"Conversation", rows, COUNT(rows), &f},
        {"Chat template", talk_rows, TALK_ROWS, &tf},
        {"Sampling", sampling_rows, SAMPLING_ROWS, &sampling},
        {"Model and device", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_session_rows, APP_SESSION_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {"chat", "[-m MODEL] [flags]",
                           "A conversation: one line of standard input is one turn.", groups,
                           COUNT(groups)};
    chat c = {.talk.flags = &tf};
    int code = args_parse(&page, argc, argv);
#ifdef HAVE_LIBEDIT
    setlocale(LC_CTYPE, ""); // for the line editor alone; numbers keep their point
#endif
    if (code == ARGS_OK && f.n == 0)
        code = complain(EXIT_USAGE,
                        "-n: found \"0\", expected a whole number from 1 to 2147483647, or -1");
    if (code == ARGS_OK && flags.list_devices)
        code = cmd_devices(1, argv);
    else if (code == ARGS_OK && (code = talk_open(&c.talk)) == 0)
        code = start(&c, &flags, &f, &sampling);
    while (c.n)
        pop(&c);
    free(c.messages);
    talk_close(&c.talk);
    args_free_texts(&sampling.stop);
    gen_free(&c.g);
    app_close(&c.a);
    return code;
}
