/* run.c -- minerva run: one answer on standard output, everything else on standard error. */
#include "prompts.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *prompt, *prompts;
    arg_ints ids;
    int raw, parse_special, ignore_eos, show_thinking;
    int64_t n;
} run_flags;

#define F(field) offsetof(run_flags, field)
static const arg_row prompt_rows[] = {
    {"-p --prompt", "TEXT", ARG_TEXT, F(prompt), 0, 0, NULL,
     "the prompt: a user's turn if the model has a chat template; - = standard\ninput, without its "
     "last line end "
     "(default: "
     "Tell me a story.;\nwith --history: nothing)"},
    {"--prompt-ids", "IDS", ARG_INTS, F(ids), 0, 2147483647, NULL, "token ids as they are: 1,2,3"},
    {"--prompts", "F.jsonl", ARG_FILE, F(prompts), 0, 0, NULL,
     "one {\"prompt\" or \"prompt_ids\", \"n\"} per line, all in one batch;\nprints one object per "
     "line, in order"},
    {"--raw", NULL, ARG_FLAG, F(raw), 0, 0, NULL,
     "no chat template: the tokeniser's own BOS and the text"},
    {"--parse-special", NULL, ARG_FLAG, F(parse_special), 0, 0, NULL,
     "with --raw: special tokens written in the text become ids"},
    {"-n --n-predict", "N", ARG_INT, F(n), -1, 2147483647, NULL,
     "tokens to generate at most; -1: until the context is full (default: 512)"},
    {"--show-thinking", NULL, ARG_FLAG, F(show_thinking), 0, 0, NULL,
     "also what the model writes before its answer (<think>, analysis)"},
    {"--ignore-eos", NULL, ARG_FLAG, F(ignore_eos), 0, 0, NULL, "end tokens do not end the answer"},
};

static int check(const run_flags *f, const talk_flags *t) {
    const char *given = talk_given(t), *without = f->raw         ? "--raw"
                                                  : f->ids.given ? "--prompt-ids"
                                                                 : NULL;
    if (given && without)
        return complain(EXIT_USAGE, "%s: found %s, which uses no chat template", given, without);
    if (t->history && f->prompts)
        return complain(EXIT_USAGE, "found --history and --prompts, expected one of them");
    int n = (f->prompt != NULL) + f->ids.given + (f->prompts != NULL);
    if (n > 1)
        return complain(EXIT_USAGE,
                        "found %d of -p, --prompt-ids and --prompts, expected one of them", n);
    if (f->parse_special && !f->raw)
        return complain(EXIT_USAGE, "--parse-special: expected --raw with it");
    if (f->n == 0)
        return complain(EXIT_USAGE,
                        "-n: found \"0\", expected a whole number from 1 to 2147483647, or -1");
    return 0;
}

static int read_stdin(char **text, size_t *n) {
    int code = read_all("-", text, n);
    if (code == 0 && *n && (*text)[*n - 1] == '\n')
        *n -= 1 + (*n > 1 && (*text)[*n - 2] == '\r');
    return code;
}

static int one_prompt(app *a, gen *g, const run_flags *f, const prompt_flags *how) {
    const char *typed = f->prompt;
    char *text = NULL;
    size_t n = 0;
    int code = 0;
    g->max_new = f->n;
    if (f->ids.given)
        return prompt_from_ids(g, &f->ids);
    if (!typed && how->talk->history)
        return prompt_from_history(a, g, how);
    if (!a->info.has_tokenizer && !typed)
        return complain(EXIT_USAGE, "%s has no tokeniser: expected --prompt-ids", a->info.path);
    /* a pipe that nobody writes to must not stop a script: standard input is read when
             * asked for */
    if (!typed)
        typed = "Tell me a story.";
    if (strcmp(typed, "-") == 0)
        code = read_stdin(&text, &n);
    else
        n = strlen(typed);
    if (code == 0)
        code = prompt_from_text(a, g, (mn_str){text ? text : typed, n}, how);
    free(text);
    return code;
}

/* No more positions than the longest answer can reach: less memory, and longrope chooses its
 * factors by them. */
static uint32_t context_for(const app *a, const gen *g, size_t n) {
    int64_t most = 0, cap = a->info.n_ctx_train > 0 && a->info.n_ctx_train < 4096
                                ? a->info.n_ctx_train
                                : 4096;
    for (size_t i = 0; i < n; i++) {
        int64_t want = g[i].max_new < 0 ? cap : (int64_t)g[i].n_prompt + g[i].max_new;
        if (want > most)
            most = want;
    }
    return most >= cap ? 0 : (uint32_t)most;
}

static int begin_all(app *a, gen *g, size_t n, const sampling_flags *sampling, const run_flags *f) {
    mn_sample_params sample;
    sampling_resolve(a, sampling, &sample);
    sample.ignore_stop = f->ignore_eos;
    for (size_t i = 0; i < n; i++) {
        g[i].show_thinking = f->show_thinking;
        int code = gen_begin(a, &g[i], &sample);
        if (code && f->prompts)
            return complain(code, "%s: prompt %zu of %zu cannot be used", f->prompts, i + 1, n);
        if (code)
            return code;
    }
    return 0;
}

static void say_rate(const app *a, const gen *g) {
    double decode = g->last - g->first;
    if (g->n_ids > 1 && decode > 0)
        app_remark(a, "%u prompt tokens, first token after %.3f s, %zu tokens at %.1f t/s",
                   g->n_prompt, g->tokenize_s + g->first - g->begin, g->n_ids,
                   (double)(g->n_ids - 1) / decode);
}

static int answer(app *a, gen *g, size_t n, const run_flags *f, int json) {
    out_file out = out_stdout();
    json_out j = {&out, 0, 0, {0}};
    const int live = !json && !f->prompts;
    int code = gen_run(a, g, n, live ? &out : NULL);
    if (!live && (code == 0 || code == EXIT_INTERRUPTED))
        for (size_t i = 0; i < n; i++)
            gen_json(a, &g[i], &j);
    if (live && !g->stream && !out.error) { // no tokeniser: the ids are the answer
        for (size_t i = 0; i < g->n_ids; i++)
            out_printf(&out, "%s%d", i ? " " : "", g->ids[i]);
        out_put(&out, "\n", g->n_ids > 0);
    } else if (live && g->n_text && g->text[g->n_text - 1] != '\n' && code != EXIT_INTERRUPTED)
        out_put(&out, "\n", 1);
    out_flush(&out); // before the statistics, which may go to the same place
    if (live && !g->n_text && g->n_thinking && g->finish == MN_FINISH_LENGTH)
        note(
            "the answer had not begun after %zu tokens: -n allows more, --show-thinking shows them",
            g->n_ids);
    if (live && !g->n_text && g->n_thinking && g->finish == MN_FINISH_STOP)
        note("the model ended without an answer: --show-thinking shows its %zu tokens", g->n_ids);
    if (live && !out.error)
        say_rate(a, g);
    return out_finish(&out, code == EXIT_FAILED && out.error ? 0 : code);
}

static int run(app *a, const app_flags *flags, const run_flags *f, const talk *t,
               const sampling_flags *sampling, gen **g, size_t *n) {
    const prompt_flags how = {f->raw, f->parse_special, f->n, t};
    mn_session_params params = {0};
    int code = talk_check(a, t);
    if (code == 0 && f->prompts)
        code = prompts_from_file(a, f->prompts, &how, g, n);
    else if (code == 0 && (*g = calloc(1, sizeof **g)))
        *n = 1, code = one_prompt(a, *g, f, &how);
    else if (code == 0)
        code = complain(EXIT_NO_MEMORY, "out of memory");
    if (code)
        return code;
    params.n_seq = (uint32_t)*n;
    params.n_ctx = context_for(a, *g, *n);
    code = app_open_session(a, &params);
    if (code == 0)
        code = begin_all(a, *g, *n, sampling, f);
    return code ? code : answer(a, *g, *n, f, flags->json);
}

int cmd_run(int argc, char **argv) {
    app_flags flags = {0};
    run_flags f = {.n = 512};
    talk_flags tf = {0};
    talk t = {.flags = &tf};
    sampling_flags sampling = sampling_defaults();
    const arg_group groups[] = {
        {"Prompt and answer", prompt_rows, COUNT(prompt_rows), &f},
        {"Chat template", talk_rows, TALK_ROWS, &tf},
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
        {"Sampling", sampling_rows, SAMPLING_ROWS, &sampling},
        {"Model and device", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_device_rows, APP_DEVICE_ROWS, &flags},
        {"", app_session_rows, APP_SESSION_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {
        "run", "[-m MODEL] [-p TEXT] [flags]",
        "Answers one prompt (or a file of them). Standard output holds the answer only.", groups,
        COUNT(groups)};
    app a = {0};
    gen *g = NULL;
    size_t n = 0;
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK && flags.list_devices)
        code = cmd_devices(1, argv);
    else if (code == ARGS_OK && (code = check(&f, &tf)) == 0 && (code = talk_open(&t)) == 0 &&
             (code = app_open_model(&a, &flags)) == 0)
        code = run(&a, &flags, &f, &t, &sampling, &g, &n);
    for (size_t i = 0; i < n; i++)
        gen_free(&g[i]);
    free(g);
    args_free_ints(&f.ids);
    talk_close(&t);
    app_close(&a);
    return code;
}
