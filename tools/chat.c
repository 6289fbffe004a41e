/* chat.c -- minerva chat: reads turns, generates answers, ends the conversation.
 *
 * The chat owns everything: app, messages, sequence, line reader, history (close_chat). The
 * sequence of the earlier turns stays in the session's KV cache and is extended if the template
 * allows it; if the conversation changes in another way (a command, a full context), the next
 * turn is computed from all messages. Messages: chat_messages.c; commands: chat_commands.c;
 * lines: line.c. */
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

/* ---- answers --------------------------------------------------------------------------------- */
/* Adds the arguments of a call: JSON as it is, any other text as a string. 0: out of memory. */
static int chat_add_arguments(cJSON *function, const char *args) {
    size_t length = 0;
    json_bad_number(args, strlen(args), &length);
    cJSON *read = length ? NULL : cJSON_ParseWithOpts(args, NULL, 1);
    const cJSON *added = read ? cJSON_AddRawToObject(function, "arguments", args)
                              : cJSON_AddStringToObject(function, "arguments", args);
    cJSON_Delete(read);
    return added != NULL;
}

/* Some templates insist on ids of 9 letters and digits. */
#define CALL_ID "call%05u"

/* Adds {"type": "function", "id": ..., "function": {name, arguments}} to the list. 0: out of
 * memory. */
static int add_call(cJSON *calls, const gen_call *made, uint32_t number) {
    char id[32];
    snprintf(id, sizeof id, CALL_ID, number % 100000);
    cJSON *call = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(calls, call)) {
        cJSON_Delete(call);
        return 0;
    }
    const cJSON *type = cJSON_AddStringToObject(call, "type", "function");
    const cJSON *named = cJSON_AddStringToObject(call, "id", id);
    cJSON *function = cJSON_AddObjectToObject(call, "function");
    const cJSON *name = cJSON_AddStringToObject(function, "name", made->name);
    return type && named && name && chat_add_arguments(function, made->args ? made->args : "");
}

/* The tool calls of an answer and the thinking before it as mn_message.more, malloc'ed; NULL: out
 * of memory. */
static char *call_more(chat *c) {
    const gen *g = &c->g;
    char *thought = strndup(g->thinking ? g->thinking : "", g->n_thinking);
    cJSON *more = cJSON_CreateObject();
    cJSON *calls = cJSON_AddArrayToObject(more, "tool_calls");
    char *text = NULL;
    int ok = thought && calls;
    for (size_t i = 0; ok && i < g->n_calls; i++)
        ok = add_call(calls, &g->calls[i], c->n_calls++);
    if (ok && g->n_thinking)
        ok = cJSON_AddStringToObject(more, "thinking", thought) != NULL;
    if (ok)
        text = cJSON_PrintUnformatted(more);
    cJSON_Delete(more);
    free(thought);
    return text;
}

/* Appends the answer to the conversation; tool calls are in more, not in the content. */
static int push_answer(chat *c) {
    const gen *g = &c->g;
    const mn_str text = {g->text ? g->text : "", g->n_calls ? g->n_content : g->n_text};
    c->n_results = c->n_calls;
    char *more = g->n_calls ? call_more(c) : NULL;
    if (g->n_calls && !more)
        return no_memory();
    return messages_push(c, "assistant", text, more);
}

void chat_forget_sequence(chat *c) {
    if (c->has_seq)
        mn_seq_free(c->a.session, c->g.seq);
    c->has_seq = 0;
    c->n_known = 0;
    c->turn_length = 0;
}

/* The sequence holds what it held before the last turn, if it can. */
static void chat_rewind(chat *c) {
    const int can = c->has_seq && c->turn_length;
    if (!can || mn_seq_truncate(c->a.session, c->g.seq, c->turn_length, &c->a.err) != MN_OK) {
        chat_forget_sequence(c);
        return;
    }
    c->n_known = c->turn_known;
    c->turn_length = 0;
}

void chat_apply_settings(chat *c) {
    sampling_flags sampling = c->sampling;
    if (!sampling.seed.given && c->sample.size) // the random one of the first turn
        sampling.seed = (arg_seed){c->sample.seed, 1};
    sampling_resolve(&c->a, &sampling, &c->sample);
    c->sample.constraint = c->constraint;
    c->sample.max_new = c->flags.n < 0 ? 0 : (uint32_t)c->flags.n;
    c->g.max_new = c->flags.n;
    c->g.stop = c->sampling.stop;
    c->g.show_thinking = c->flags.show_thinking;
    c->g.tools = c->talk.tools;
    c->g.markdown = c->markdown;
    c->g.plain = c->flags.plain;
}

/* ---- the prompt of a turn -------------------------------------------------------------------- */
/* The ids of the conversation without the n_dropped messages after the system messages, and without
 * the first n_known of all messages, which the sequence holds. *ids: the library's, mn_ids_free. */
static int ids_without(chat *c, uint32_t n_dropped, uint32_t n_known, int32_t **ids, uint32_t *n) {
    const uint32_t n_system = messages_system(c), n_shown = c->n - n_dropped;
    if (n_dropped == 0)
        return talk_ids(&c->a, &c->talk, c->messages, c->n, n_known, ids, n);
    mn_message *shown = malloc(n_shown * sizeof *shown);
    if (!shown)
        return no_memory();
    memcpy(shown, c->messages, n_system * sizeof *shown);
    memcpy(shown + n_system, c->messages + n_system + n_dropped,
           (n_shown - n_system) * sizeof *shown);
    int code = talk_ids(&c->a, &c->talk, shown, n_shown, n_known ? n_known - n_dropped : 0, ids, n);
    free(shown);
    return code;
}

/* The number of dropped messages after one more turn is dropped. A turn begins with a user's
 * message; the newest is never dropped. 0: no older turn is left. */
static uint32_t drop_turn(const chat *c, uint32_t n_dropped) {
    const uint32_t n_system = messages_system(c);
    for (uint32_t i = n_system + n_dropped + 1; i < c->n; i++)
        if (strcmp(c->messages[i].role.ptr, "user") == 0)
            return i - n_system;
    return 0;
}

/* Positions of the context that are kept free for the answer. */
static uint32_t room_for_answer(const chat *c) {
    const uint32_t quarter = c->a.session_info.n_ctx / 4;
    return c->flags.n < 0 || c->flags.n > quarter ? quarter : (uint32_t)c->flags.n;
}

static int chat_fits(const chat *c, uint32_t n, uint32_t room) {
    return (uint64_t)n + room <= c->a.session_info.n_ctx;
}

/* Drops the oldest turns until twice the positions of an answer are free: with less, every later
 * turn would drop one, and compute all others again. If the ids do not fit then, the library
 * reports it. */
static int drop_turns(chat *c, int32_t **ids, uint32_t *n) {
    const uint32_t room = room_for_answer(c), before = c->n_dropped;
    uint32_t n_turns = 0;
    int code = 0;
    if (chat_fits(c, *n, room))
        return 0;
    while (code == 0 && !chat_fits(c, *n, 2 * room)) {
        const uint32_t more = drop_turn(c, c->n_dropped);
        if (more == 0)
            break;
        mn_ids_free(*ids);
        *ids = NULL;
        c->n_dropped = more;
        n_turns++;
        code = ids_without(c, more, 0, ids, n);
    }
    if (code || !chat_fits(c, *n, 0))
        c->n_dropped = before;
    else if (n_turns == 1)
        app_remark(&c->a, "the context of %u tokens is full: the oldest turn is omitted",
                   c->a.session_info.n_ctx);
    else if (n_turns)
        app_remark(&c->a, "the context of %u tokens is full: the %u oldest turns are omitted",
                   c->a.session_info.n_ctx, n_turns);
    return code;
}

/* The ids of the turn: those that the sequence does not hold yet (c->has_seq), or all. */
static int prompt_of_turn(chat *c, int32_t **ids, uint32_t *n) {
    const int drop = c->flags.context_full == CONTEXT_DROP;
    int code = TALK_ANEW;
    if (c->has_seq)
        code = ids_without(c, c->n_dropped, c->n_known, ids, n);
    if (code == 0) {
        const uint32_t length = mn_seq_length(c->a.session, c->g.seq);
        if (!drop || chat_fits(c, length + *n, room_for_answer(c)))
            return 0;
        mn_ids_free(*ids);
        *ids = NULL;
        code = TALK_ANEW;
    }
    if (code != TALK_ANEW)
        return code;
    chat_forget_sequence(c);
    code = ids_without(c, c->n_dropped, 0, ids, n);
    return code == 0 && drop ? drop_turns(c, ids, n) : code;
}

/* ---- one turn -------------------------------------------------------------------------------- */
/* Extends or creates the sequence. 0, or the exit code with the error printed. */
static int begin_turn(chat *c) {
    app *a = &c->a;
    int32_t *ids = NULL;
    uint32_t n = 0;
    mn_status st = MN_OK;
    int code = prompt_of_turn(c, &ids, &n);
    if (code == 0)
        code = gen_restart(a, &c->g, ids, n);
    c->turn_ids = n;
    c->turn_length = code == 0 && c->has_seq ? mn_seq_length(a->session, c->g.seq) : 0;
    c->turn_known = c->n_known;
    if (code == 0 && c->has_seq) {
        st = mn_seq_extend(a->session, c->g.seq, ids, n, &c->sample, &a->err);
    } else if (code == 0) {
        st = mn_seq_create(a->session, ids, n, &c->sample, &c->g.seq, &a->err);
        c->has_seq = st == MN_OK;
    }
    mn_ids_free(ids);
    return st == MN_OK ? code : app_fail(a, st);
}

/* Why the answer is not complete, if it is not. */
static void print_end(const chat *c) {
    if (c->g.finish != MN_FINISH_LENGTH)
        return;
    if (c->flags.n >= 0 && c->g.n_ids >= (size_t)c->flags.n)
        app_remark(&c->a, "the answer was cut at the limit of %" PRId64 " tokens (-n, /set n)",
                   c->flags.n);
    else
        app_remark(&c->a, "the answer was cut: the context of %u tokens is full",
                   c->a.session_info.n_ctx);
}

void chat_print_timings(const chat *c) {
    const gen *g = &c->g;
    const double prompt_s = g->first - g->begin, answer_s = g->last - g->first;
    char rate[48] = "";
    if (g->n_ids == 0 || !(prompt_s >= 0)) {
        note("there is no answer yet");
        return;
    }
    if (g->n_ids > 1 && answer_s > 0)
        snprintf(rate, sizeof rate, ", %.1f t/s", (double)(g->n_ids - 1) / answer_s);
    note("prompt: %u tokens in %.2f s, %.1f t/s; answer: %zu tokens in %.2f s%s; context: %u of %u",
         c->turn_ids, prompt_s, prompt_s > 0 ? c->turn_ids / prompt_s : 0, g->n_ids, answer_s, rate,
         c->turn_total, c->a.session_info.n_ctx);
}

/* Answers the last message. The next turn can extend the sequence if this one ended with a stop
 * token and without thinking: other ends lack the token, and templates omit the thinking of
 * earlier turns. *answered: 0 if the answer failed or is empty, and none was added. */
static int chat_turn(chat *c, int *answered) {
    int code = begin_turn(c);
    *answered = 0;
    if (code) {
        chat_forget_sequence(c);
        return code;
    }
    code = gen_run(&c->a, &c->g, 1, &c->out);
    const int ended = c->g.n_text && c->g.text[c->g.n_text - 1] == '\n';
    if (!ended && code != EXIT_INTERRUPTED)
        out_put(&c->out, "\n", 1);
    out_flush(&c->out);
    if (c->out.error)
        return EXIT_FAILED;
    print_end(c);
    c->turn_total = mn_seq_length(c->a.session, c->g.seq);
    if (c->g.finish != MN_FINISH_STOP || c->g.n_thinking)
        chat_forget_sequence(c);
    const int nothing = code == EXIT_INTERRUPTED && c->g.n_ids == 0;
    if (nothing || (code && code != EXIT_INTERRUPTED))
        return code;
    int failed = push_answer(c);
    *answered = !failed;
    if (c->has_seq)
        c->n_known = c->n;
    if (c->timings)
        chat_print_timings(c);
    return failed ? failed : code;
}

/* Answers the message that was added last; without an answer it is removed. */
static int answer_message(chat *c) {
    int answered = 0;
    c->n_again = 0;
    const int code = chat_turn(c, &answered);
    if (!answered)
        messages_pop(c);
    return code;
}

int chat_say(chat *c, const char *role, const char *text, size_t n) {
    int code = messages_push(c, role, (mn_str){text, n}, NULL);
    return code ? code : answer_message(c);
}

/* The seed is another one for this answer, and as before for the next. */
int chat_answer_again(chat *c) {
    int answered = 0;
    if (c->n == 0 || strcmp(c->messages[c->n - 1].role.ptr, "assistant") != 0)
        return complain(EXIT_USAGE, "/regen: found no answer, expected one to make again");
    if (c->sample.temp <= 0)
        app_remark(&c->a, "at temperature 0 the answer stays the same (/set temp 0.8)");
    const uint64_t seed = c->sample.seed;
    const uint32_t n_calls = c->n_calls;
    const mn_message old = c->messages[--c->n];
    chat_rewind(c);
    c->n_results = c->n_calls;
    c->sample.seed += ++c->n_again;
    const int code = chat_turn(c, &answered);
    c->sample.seed = seed;
    if (answered) {
        messages_free(&old);
        return code;
    }
    c->messages[c->n++] = old; // its place is still there
    c->n_calls = n_calls;
    chat_forget_sequence(c);
    return code;
}

int chat_undo(chat *c) {
    const uint32_t keep = messages_before_turn(c), n_dropped = c->n_dropped;
    if (keep == c->n)
        return complain(EXIT_USAGE, "/undo: found no turn, expected one to remove");
    chat_rewind(c);
    if (c->n_known > keep)
        chat_forget_sequence(c);
    messages_clear(c, keep);
    if (messages_system(c) + n_dropped < keep)
        c->n_dropped = n_dropped;
    c->n_results = c->n_calls;
    app_remark(&c->a, "the last turn is gone, %u messages remain", c->n);
    return 0;
}

int chat_say_result(chat *c, const char *text) {
    char *more = NULL;
    if (c->n_results < c->n_calls) {
        const uint32_t number = c->n_results++;
        if (asprintf(&more, "{\"tool_call_id\": \"" CALL_ID "\"}", number % 100000) < 0)
            return no_memory();
    }
    const int code = messages_push(c, "tool", (mn_str){text, strlen(text)}, more);
    return code ? code : answer_message(c);
}

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
        {"", app_draft_rows, APP_DRAFT_ROWS, &flags},
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
    return close_chat(&c, code);
}
