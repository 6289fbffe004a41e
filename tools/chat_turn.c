/* chat_turn.c -- the turns of minerva chat: the prompt, the answer, and both taken back (chat.h).
 *
 * The sequence of the earlier turns stays in the session's KV cache and is extended if the template
 * allows it; if the conversation changes in another way (a command, a full context), the next turn
 * is computed from all messages. */
#include "chat.h"
#include "json_strict.h"
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
