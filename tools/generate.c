/* generate.c -- runs generations: sends prompts to the session, steps it, turns the tokens into
 * text, shows the text while it is generated (minerva run, chat) or hands over whole results
 * (--prompts).
 *
 * A gen is one generation; it owns its prompt, ids and texts and its sequence of the session,
 * and is freed by gen_free. All run on the main thread; a progress line has its own. Text comes
 * from a stream of the library, which separates answer, thinking and tool calls. Interface:
 * generate.h. */
#include "generate.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Space for want elements of size bytes. 0: out of memory, nothing changed. */
static int generate_grow(void **ptr, size_t *cap, size_t want, size_t size) {
    if (want <= *cap)
        return 1;
    size_t n = *cap * 2 > want ? *cap * 2 : want + 64;
    void *grown = realloc(*ptr, n * size);
    if (!grown)
        return 0;
    *ptr = grown;
    *cap = n;
    return 1;
}

/* Appends text to a buffer of *n bytes. 0, or the exit code with the error printed. */
static int generate_append(char **buffer, size_t *n, size_t *cap, mn_str text) {
    if (!generate_grow((void **)buffer, cap, *n + text.len + 1, 1))
        return no_memory();
    if (text.len)
        memcpy(*buffer + *n, text.ptr, text.len);
    *n += text.len;
    return 0;
}

typedef enum { PART_ANSWER, PART_THINKING, PART_CALL } gen_part;

/* Between thinking, which is dimmed on a terminal, and the answer, which begins a new line. */
static void switch_part(gen *g, out_file *live, int thinking) {
    if (g->dim == thinking)
        return;
    if (has_color(stdout))
        out_puts(live, thinking ? "\033[2m" : "\033[0m");
    if (g->markdown)
        markdown_end(g->markdown);
    if (!thinking && g->n_thinking && g->thinking[g->n_thinking - 1] != '\n')
        out_put(live, "\n", 1);
    g->dim = thinking;
}

/* Prints a piece; the answer alone may be Markdown. 0, or the exit code. */
static int generate_print(gen *g, mn_str text, gen_part part, out_file *live) {
    int ok = 1;
    if (!g->markdown)
        out_put(live, text.ptr, text.len);
    else if (part == PART_ANSWER && !g->plain)
        ok = markdown_put(g->markdown, text.ptr, text.len);
    else
        ok = markdown_plain(g->markdown, text.ptr, text.len);
    out_flush(live);
    if (!ok)
        return no_memory();
    return live->error ? EXIT_FAILED : 0;
}

/* Keeps a piece of thinking or answer, and prints it if live is not NULL. */
static int generate_show(gen *g, mn_str text, gen_part part, out_file *live) {
    const int thinking = part == PART_THINKING;
    int code = thinking ? generate_append(&g->thinking, &g->n_thinking, &g->cap_thinking, text)
                        : generate_append(&g->text, &g->n_text, &g->cap_text, text);
    if (code || !live || (thinking && !g->show_thinking))
        return code;
    switch_part(g, live, thinking);
    return generate_print(g, text, part, live);
}

/* ---- tool calls ------------------------------------------------------------------------------ */
static void forget_calls(gen *g) {
    for (size_t i = 0; i < g->n_calls; i++) {
        free(g->calls[i].name);
        free(g->calls[i].args);
    }
    g->n_calls = 0;
}

/* A call begins: it is shown as a line "to=NAME ARGUMENTS". */
static int generate_begin_call(gen *g, mn_str name, out_file *live) {
    if (!generate_grow((void **)&g->calls, &g->cap_calls, g->n_calls + 1, sizeof *g->calls))
        return no_memory();
    char *copy = strndup(name.ptr, name.len);
    if (!copy)
        return no_memory();
    if (!g->n_calls)
        g->n_content = g->n_text;
    g->calls[g->n_calls++] = (gen_call){.name = copy};
    const int in_line = g->n_text && g->text[g->n_text - 1] != '\n';
    const mn_str head = {"\nto=", 4};
    const mn_str line = {head.ptr + !in_line, head.len - (uint64_t)!in_line};
    int code = generate_show(g, line, PART_CALL, live);
    if (code == 0)
        code = generate_show(g, name, PART_CALL, live);
    return code ? code : generate_show(g, (mn_str){" ", 1}, PART_CALL, live);
}

static int generate_add_arguments(gen *g, mn_str text, out_file *live) {
    gen_call *call = &g->calls[g->n_calls - 1];
    int code = generate_append(&call->args, &call->n_args, &call->cap_args, text);
    if (code)
        return code;
    call->args[call->n_args] = 0;
    return generate_show(g, text, PART_CALL, live);
}

/* ---- text ------------------------------------------------------------------------------------ */
/* Text of the answer; behind a call it begins a new line. */
static int generate_add_text(gen *g, mn_str text, int after_call, out_file *live) {
    int code = 0;
    if (after_call)
        code = generate_show(g, (mn_str){"\n", 1}, PART_CALL, live);
    return code ? code : generate_show(g, text, PART_ANSWER, live);
}

static int keep_events(gen *g, const mn_stream_event *events, uint32_t n, out_file *live) {
    int code = 0;
    for (uint32_t i = 0; i < n && code == 0; i++) {
        const mn_str text = events[i].text;
        if (events[i].kind == MN_EVENT_CALL)
            code = generate_begin_call(g, text, live);
        else if (events[i].kind == MN_EVENT_ARGUMENTS)
            code = generate_add_arguments(g, text, live);
        else if (events[i].kind == MN_EVENT_THINKING)
            code = generate_show(g, text, PART_THINKING, live);
        else
            code = generate_add_text(g, text, g->in_call, live);
        g->in_call = events[i].kind == MN_EVENT_CALL || events[i].kind == MN_EVENT_ARGUMENTS;
    }
    return code;
}

/* Gives the strings of --stop to the stream. */
static int generate_set_stops(app *a, gen *g) {
    if (!g->stop.n)
        return 0;
    mn_str *list = malloc(g->stop.n * sizeof *list);
    if (!list)
        return no_memory();
    for (size_t i = 0; i < g->stop.n; i++)
        list[i] = (mn_str){g->stop.v[i], strlen(g->stop.v[i])};
    const uint32_t n = g->stop.n < UINT32_MAX ? (uint32_t)g->stop.n : UINT32_MAX;
    mn_status status = mn_stream_stop(g->stream, list, n, &a->err);
    free(list);
    return status == MN_OK ? 0 : app_fail(a, status);
}

int gen_restart(app *a, gen *g, const int32_t *ids, uint32_t n) {
    g->n_ids = 0;
    g->n_text = 0;
    g->n_thinking = 0;
    g->n_content = 0;
    g->in_call = 0;
    forget_calls(g);
    g->dim = 0;
    g->finish = MN_FINISH_NONE;
    g->begin = seconds();
    g->first = NAN;
    g->last = NAN;
    if (g->stream)
        mn_stream_free(g->stream);
    g->stream = NULL;
    if (g->stop.n && app_need_tokenizer(a, EXIT_USAGE, " for --stop"))
        return EXIT_USAGE;
    if (!a->info.has_tokenizer)
        return 0;
    const uint32_t flags = MN_STREAM_CONTINUE | (g->tools ? MN_STREAM_TOOLS : 0);
    mn_status status = mn_stream_create(a->model, flags, &g->stream, &a->err);
    if (status != MN_OK)
        return app_fail(a, status);
    if (g->tools)
        status = mn_stream_tools(g->stream, (mn_str){g->tools, strlen(g->tools)}, &a->err);
    if (status != MN_OK)
        return app_fail(a, status);
    mn_stream_prompt(g->stream, ids, n);
    return generate_set_stops(a, g);
}

mn_status gen_begin(app *a, gen *g) {
    mn_sample_params params = g->sample;
    params.max_new = g->max_new < 0 ? 0 : (uint32_t)g->max_new;
    return mn_seq_create(a->session, g->prompt, g->n_prompt, &params, &g->seq, &a->err);
}

/* The rest of the text, after the last id. */
static int generate_finish_text(app *a, gen *g, out_file *live) {
    const mn_stream_event *events = NULL;
    uint32_t n = 0;
    if (g->finish == MN_FINISH_LENGTH)
        mn_stream_cut(g->stream);
    mn_status status = mn_stream_finish(g->stream, &events, &n, &a->err);
    return status == MN_OK ? keep_events(g, events, n, live) : app_fail(a, status);
}

/* One token of g: its id, time and text; the sequence is freed if a stop string ends the answer. */
static int generate_take(app *a, gen *g, const mn_token *t, out_file *live) {
    const mn_stream_event *events = NULL;
    uint32_t n = 0;
    int code = 0;
    g->last = seconds();
    if (isnan(g->first))
        g->first = g->last;
    if (!generate_grow((void **)&g->ids, &g->cap_ids, g->n_ids + 1, sizeof *g->ids))
        return no_memory();
    g->ids[g->n_ids++] = t->id;
    g->finish = t->finish;
    if (!g->stream)
        return 0;
    if (t->finish != MN_FINISH_STOP) { // a stop token is in ids, never in text
        mn_status status = mn_stream_push(g->stream, t->id, &events, &n, &a->err);
        code = status == MN_OK ? keep_events(g, events, n, live) : app_fail(a, status);
    }
    if (code == 0 && mn_stream_stopped(g->stream)) {
        g->finish = GEN_STOPPED;
        mn_seq_free(a->session, g->seq);
        g->seq = -1; /* tokens that were computed ahead are dropped */
    } else if (code == 0 && t->finish != MN_FINISH_NONE) {
        code = generate_finish_text(a, g, live);
    }
    return code;
}

/* The generation of a sequence; NULL: it has ended. */
static gen *generate_find(gen *g, size_t n, int32_t seq) {
    for (size_t i = 0; i < n; i++)
        if (g[i].seq == seq)
            return &g[i];
    return NULL;
}

/* Ctrl-C: ends all that run; the text so far is the answer. */
static int interrupted(app *a, gen *g, size_t n, out_file *live) {
    const mn_stream_event *events = NULL;
    uint32_t n_events = 0;
    for (size_t i = 0; i < n; i++) {
        if (g[i].seq < 0 || g[i].finish != MN_FINISH_NONE)
            continue;
        g[i].finish = GEN_INTERRUPTED;
        if (!g[i].stream)
            continue;
        mn_stream_cut(g[i].stream);
        if (mn_stream_finish(g[i].stream, &events, &n_events, &a->err) == MN_OK)
            keep_events(&g[i], events, n_events, live);
    }
    if (live && g->markdown)
        markdown_end(g->markdown);
    if (live)
        out_break(live);
    return EXIT_INTERRUPTED;
}

static uint64_t count_generated(const gen *g, size_t n) {
    uint64_t n_generated = 0;
    for (size_t i = 0; i < n; i++)
        n_generated += g[i].n_ids;
    return n_generated;
}

static uint64_t count_wanted(const gen *g, size_t n) {
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        if (g[i].max_new > 0 && !g[i].error)
            total += (uint64_t)g[i].max_new;
    return total;
}

/* The logits of g are not numbers: an error of g in a batch, where the others continue, else of the
 * command. */
static int fail_one(app *a, gen *g, mn_status status) {
    g->finish = MN_FINISH_FAILED;
    if (!g->begun)
        return app_fail(a, status);
    g->error = strdup(a->err.msg);
    return g->error ? 0 : no_memory();
}

/* How far the prompt is, until its first token comes: the line is wiped before text is shown. */
static void show_prompt(app *a, const gen *g, uint32_t got) {
    mn_session_stats s = {.size = sizeof s};
    if (!a->bar)
        return;
    if (!got && !mn_session_get_stats(a->session, &s)) {
        progress_at(a->bar, s.n_prompt, g->n_prompt);
        return;
    }
    progress_end(a->bar);
    a->bar = NULL;
}

/* One step of the session; its tokens go to their generations. tokens: space for cap; *got: how
 * many came, 0 = no sequence runs. */
static int generate_step(app *a, gen *g, size_t n, mn_token *tokens, uint32_t cap, uint32_t *got,
                         out_file *live) {
    int code = 0;
    mn_status status = mn_session_step(a->session, tokens, cap, got, &a->err);
    show_prompt(a, g, *got);
    if (status == MN_CANCELLED)
        return interrupted(a, g, n, live);
    if (status != MN_OK && *got == 0)
        return app_fail(a, status);
    for (uint32_t i = 0; i < *got && code == 0; i++) {
        gen *one = generate_find(g, n, tokens[i].seq);
        if (one && tokens[i].finish == MN_FINISH_FAILED)
            code = fail_one(a, one, status);
        else if (one)
            code = generate_take(a, one, &tokens[i], live);
    }
    return code;
}

int gen_run(app *a, gen *g, size_t n, out_file *live) {
    uint32_t cap = (uint32_t)(n < 16 ? 256 : n * 16), got = 1;
    mn_token *tokens = malloc(cap * sizeof *tokens);
    int code = tokens ? 0 : no_memory();
    progress *p = live ? NULL : progress_begin("generating");
    a->bar = live && !a->flags->quiet ? progress_begin("reading the prompt") : NULL;
    while (code == 0 && got) {
        code = generate_step(a, g, n, tokens, cap, &got, live);
        progress_at(p, count_generated(g, n), count_wanted(g, n));
    }
    progress_end(p);
    progress_end(a->bar);
    a->bar = NULL;
    free(tokens);
    if (live && g->dim)
        switch_part(g, live, 0);
    if (live && g->markdown && !markdown_end(g->markdown) && code == 0)
        code = no_memory();
    return code == 0 && interrupt_seen() ? EXIT_INTERRUPTED : code;
}

/* Calls done with each generation that has ended, and frees its sequence; *running is counted
 * down. */
static int hand_on(app *a, gen *g, size_t n, uint32_t *running, gen_done done, void *arg) {
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++) {
        if (!g[i].begun || g[i].finish == MN_FINISH_NONE)
            continue;
        if (g[i].seq >= 0)
            mn_seq_free(a->session, g[i].seq);
        g[i].seq = -1;
        g[i].begun = 0;
        --*running;
        code = done(arg, &g[i]);
    }
    return code;
}

/* Begins g. If that fails, g->error has the message, and 0 is returned. */
static int begin_one(app *a, gen *g) {
    char why[600] = "";
    if (g->error)
        return 0;
    complain_into(why, sizeof why);
    int code = gen_restart(a, g, g->prompt, g->n_prompt);
    mn_status status = code ? MN_OK : gen_begin(a, g);
    if (status != MN_OK)
        code = app_fail(a, status);
    complain_into(NULL, 0);
    if (code == 0) {
        g->begun = 1;
        return 0;
    }
    g->seq = -1;
    g->error = strdup(why);
    return g->error ? 0 : no_memory();
}

int gen_batch(app *a, gen *g, size_t n, uint32_t width, gen_done done, void *arg) {
    const uint32_t cap = width < 16 ? 256 : width * 16;
    mn_token *tokens = malloc(cap * sizeof *tokens);
    size_t next = 0;
    uint32_t running = 0, got = 0;
    int code = tokens ? 0 : no_memory();
    progress *p = isatty(STDOUT_FILENO) ? NULL : progress_begin("generating");
    for (size_t i = 0; i < n; i++)
        g[i].seq = -1;
    while (code == 0 && (next < n || running)) {
        while (code == 0 && next < n && running < width) {
            gen *one = &g[next++];
            code = begin_one(a, one);
            running += one->begun != 0;
            if (code == 0 && one->error)
                code = done(arg, one);
        }
        if (code == 0 && running)
            code = generate_step(a, g, n, tokens, cap, &got, NULL);
        if (code == 0 || code == EXIT_INTERRUPTED) {
            const int failed = hand_on(a, g, n, &running, done, arg);
            if (failed)
                code = failed;
        }
        progress_at(p, count_generated(g, n), count_wanted(g, n));
    }
    progress_end(p);
    free(tokens);
    return code;
}

static double rate(double n, double time) {
    return n > 0 && time > 0 ? n / time : NAN;
}

/* The calls in the form of chat-completion APIs: the arguments are a string, which may be any
 * text. */
static void calls_json(const gen *g, json_out *j) {
    json_key(j, "tool_calls");
    json_open(j, '[');
    for (size_t i = 0; i < g->n_calls; i++) {
        const gen_call *call = &g->calls[i];
        json_open(j, '{');
        json_put_z(j, "type", "function");
        json_key(j, "function");
        json_open(j, '{');
        json_put_z(j, "name", call->name);
        json_key(j, "arguments");
        json_str(j, call->args ? call->args : "", call->n_args);
        json_close(j);
        json_close(j);
    }
    json_close(j);
}

void gen_json(const app *a, const gen *g, json_out *j) {
    static const char *const reason[] = {NULL, "stop", "length", "error", "interrupted", "stop"};
    json_open(j, '{');
    if (g->line)
        json_put_uint(j, "line", g->line);
    if (g->error) {
        json_put_z(j, "error", g->error);
        json_close(j);
        json_line(j);
        return;
    }
    json_key(j, "text");
    if (g->stream)
        json_str(j, g->text, g->n_text);
    else
        json_null(j);
    if (g->n_thinking) {
        json_key(j, "thinking");
        json_str(j, g->thinking, g->n_thinking);
    }
    if (g->n_calls)
        calls_json(g, j);
    json_key(j, "prompt_ids");
    json_ids(j, g->prompt, g->n_prompt);
    json_key(j, "ids");
    json_ids(j, g->ids, g->n_ids);
    json_put_z(j, "finish_reason", (size_t)g->finish < MN_COUNT(reason) ? reason[g->finish] : NULL);
    json_put_uint(j, "seed", g->sample.seed);
    json_put_z(j, "device", a->session_info.device);
    json_key(j, "timings");
    json_open(j, '{');
    json_put_num(j, "load_s", a->load_s);
    json_put_num(j, "ttft_s", g->tokenize_s + g->first - g->begin);
    json_put_num(j, "prompt_tps", rate(g->n_prompt, g->first - g->begin));
    json_put_num(j, "decode_tps", rate((double)g->n_ids - 1, g->last - g->first));
    json_close(j);
    json_close(j);
    json_line(j);
}

void gen_free(gen *g) {
    if (g->stream)
        mn_stream_free(g->stream);
    free(g->prompt);
    free(g->ids);
    free(g->text);
    free(g->thinking);
    forget_calls(g);
    free(g->calls);
    free(g->error);
    for (size_t i = 0; g->owns_stop && i < g->stop.n; i++)
        free((char *)g->stop.v[i]);
    if (g->owns_stop)
        args_free_texts(&g->stop);
    memset(g, 0, sizeof *g);
}
