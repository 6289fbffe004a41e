/* run.c -- minerva run: one answer on standard output, everything else on standard error; or the
 * answers to a file of prompts, one object per line as each is finished. */
#include "prompts.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PARALLEL = 32 };

typedef struct {
    const char *prompt, *file, *prompts;
    arg_texts words;
    arg_ints ids;
    int raw, parse_special, ignore_eos, show_thinking;
    int64_t n, parallel;
} run_flags;

#define F(field) offsetof(run_flags, field)
static const arg_row prompt_rows[] = {
    {"PROMPT...", "the prompt", ARG_TEXTS, F(words), 0, 0, NULL,
     "the same as -p, in one word or several; - = standard input"},
    {"-p --prompt", "TEXT", ARG_TEXT, F(prompt), 0, 0, NULL,
     "the prompt: a user's turn if the model has a chat template; - = standard\ninput, without its "
     "last line end "
     "(default: "
     "Tell me a story.;\nwith --history: nothing)"},
    {"-f --file", "F", ARG_FILE, F(file), 0, 0, NULL,
     "the prompt is in this file, without its last line end"},
    {"--prompt-ids", "IDS", ARG_INTS, F(ids), 0, 2147483647, NULL, "token ids as they are: 1,2,3"},
    {"--prompts", "F.jsonl", ARG_FILE, F(prompts), 0, 0, NULL,
     "one object per line: \"prompt\" or \"prompt_ids\", and any of \"max_tokens\",\n\"seed\", "
     "\"temp\", \"stop\", \"system\"; prints one object per line as it is\nfinished, with the "
     "number of its \"line\""},
    {"--parallel", "N", ARG_INT, F(parallel), 1, 4096, NULL,
     "of --prompts: lines that are computed at once (default: 32)"},
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

static int ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* `minerva run model.gguf` would tell the demo model a file's name. */
static int is_model(const char *word) {
    return (ends_with(word, ".gguf") || ends_with(word, ".safetensors")) && access(word, F_OK) == 0;
}

static int check(const run_flags *f, const talk_flags *t, const char *model) {
    const char *given = talk_given(t), *without = f->raw         ? "--raw"
                                                  : f->ids.given ? "--prompt-ids"
                                                                 : NULL;
    if (given && without)
        return complain(EXIT_USAGE, "%s: found %s, which uses no chat template", given, without);
    if (t->history && f->prompts)
        return complain(EXIT_USAGE, "found --history and --prompts, expected one of them");
    int n = (f->prompt != NULL) + f->ids.given + (f->prompts != NULL) + (f->file != NULL) +
            (f->words.n > 0);
    if (n > 1)
        return complain(EXIT_USAGE,
                        "found %d of -p, -f, --prompt-ids, --prompts and a prompt as words, "
                        "expected one of them",
                        n);
    if (f->words.n == 1 && !model && is_model(f->words.v[0]))
        return complain(EXIT_USAGE, "found \"%s\" as the prompt, expected -m before a model",
                        f->words.v[0]);
    if (f->parse_special && !f->raw)
        return complain(EXIT_USAGE, "--parse-special: expected --raw with it");
    if (f->parallel && !f->prompts)
        return complain(EXIT_USAGE, "--parallel: expected --prompts with it");
    if (f->n == 0)
        return complain(EXIT_USAGE,
                        "-n: found \"0\", expected a whole number from 1 to 2147483647, or -1");
    return 0;
}

/* Without its last line end, which editors and echo add. */
static int read_prompt(const char *path, char **text, size_t *n) {
    int code = read_all_text(path, text, n);
    if (code == 0 && *n && (*text)[*n - 1] == '\n')
        *n -= 1 + (*n > 1 && (*text)[*n - 2] == '\r');
    return code;
}

static int join_words(const arg_texts *words, char **text, size_t *n) {
    size_t bytes = 1;
    for (size_t i = 0; i < words->n; i++)
        bytes += strlen(words->v[i]) + 1;
    *text = malloc(bytes);
    if (!*text)
        return complain(EXIT_NO_MEMORY, "out of memory");
    char *to = *text;
    for (size_t i = 0; i < words->n; i++)
        to += sprintf(to, "%s%s", i ? " " : "", words->v[i]);
    *n = (size_t)(to - *text);
    return 0;
}

static int one_prompt(app *a, gen *g, const run_flags *f, const prompt_flags *how) {
    const char *typed = f->prompt;
    char *text = NULL;
    size_t n = 0;
    int code = 0;
    g->max_new = f->n;
    g->sample = how->sample;
    g->stop = *how->stop;
    if (f->ids.given)
        return prompt_from_ids(g, &f->ids);
    if (!typed && !f->file && !f->words.n && how->talk->flags->history)
        return prompt_from_history(a, g, how);
    if (!a->info.has_tokenizer && !typed && !f->file && !f->words.n)
        return complain(EXIT_USAGE, "%s has no tokeniser: expected --prompt-ids", a->info.path);
    /* a pipe that nobody writes to must not stop a script: standard input is read when
     * asked for */
    const int dash = f->words.n == 1 && !strcmp(f->words.v[0], "-");
    if (f->words.n && !dash)
        code = join_words(&f->words, &text, &n);
    else if (f->file)
        code = read_prompt(f->file, &text, &n);
    else if (dash || (typed && strcmp(typed, "-") == 0))
        code = read_prompt("-", &text, &n);
    else if (!typed)
        typed = "Tell me a story.";
    if (!text && typed)
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
        if (g[i].error)
            continue;
        int64_t want = g[i].max_new < 0 ? cap : (int64_t)g[i].n_prompt + g[i].max_new;
        if (want > most)
            most = want;
    }
    return most >= cap ? 0 : (uint32_t)most;
}

static void say_rate(const app *a, const gen *g) {
    double decode = g->last - g->first;
    if (g->n_ids > 1 && decode > 0)
        app_remark(a, "%u prompt tokens, first token after %.3f s, %zu tokens at %.1f t/s",
                   g->n_prompt, g->tokenize_s + g->first - g->begin, g->n_ids,
                   (double)(g->n_ids - 1) / decode);
}

/* The answer to one prompt: live text, or one object. */
static int answer(app *a, gen *g, int json) {
    out_file out = out_stdout();
    json_out j = {&out, 0, 0, {0}};
    int code = gen_restart(a, g, g->prompt, g->n_prompt);
    mn_status status = code ? MN_OK : gen_begin(a, g);
    if (status != MN_OK)
        code = app_fail(a, status);
    if (code)
        return code;
    code = gen_run(a, g, 1, json ? NULL : &out);
    if (json && (code == 0 || code == EXIT_INTERRUPTED))
        gen_json(a, g, &j);
    if (json)
        return out_finish(&out, code);
    if (!g->stream && !out.error) { // no tokeniser: the ids are the answer
        for (size_t i = 0; i < g->n_ids; i++)
            out_printf(&out, "%s%d", i ? " " : "", g->ids[i]);
        out_put(&out, "\n", g->n_ids > 0);
    } else if (g->n_text && g->text[g->n_text - 1] != '\n' && code != EXIT_INTERRUPTED)
        out_put(&out, "\n", 1);
    out_flush(&out); // before the statistics, which may go to the same place
    if (!g->n_text && g->n_thinking && g->finish == MN_FINISH_LENGTH)
        note(
            "the answer had not begun after %zu tokens: -n allows more, --show-thinking shows them",
            g->n_ids);
    if (!g->n_text && g->n_thinking && g->finish == MN_FINISH_STOP)
        note("the model ended without an answer: --show-thinking shows its %zu tokens", g->n_ids);
    if (!out.error)
        say_rate(a, g);
    return out_finish(&out, code == EXIT_FAILED && out.error ? 0 : code);
}

typedef struct {
    app *a;
    const char *path;
    out_file out;
    size_t n_bad;
} answers;

/* One object per line of the file; an error is said on standard error, too. */
static int on_done(void *arg, gen *g) {
    answers *w = arg;
    json_out j = {&w->out, 0, 0, {0}};
    if (g->error) {
        w->n_bad++;
        complain(EXIT_FAILED, "%s:%zu: %s", strcmp(w->path, "-") ? w->path : "standard input",
                 g->line, g->error);
    }
    gen_json(w->a, g, &j);
    out_flush(&w->out);
    return w->out.error ? EXIT_FAILED : 0;
}

static int answer_all(app *a, gen *g, size_t n, const run_flags *f) {
    mn_session_params params = {.n_ctx = context_for(a, g, n)};
    answers w = {a, f->prompts, out_stdout(), 0};
    size_t n_good = 0;
    for (size_t i = 0; i < n; i++)
        n_good += !g[i].error;
    const uint32_t most = f->parallel ? (uint32_t)f->parallel : PARALLEL;
    params.n_seq = n_good < most ? (uint32_t)n_good : most;
    int code = n_good ? app_open_session(a, &params) : 0;
    if (code == 0)
        code = gen_batch(a, g, n, params.n_seq ? params.n_seq : 1, on_done, &w);
    if (code == 0 && w.n_bad)
        code = EXIT_FAILED;
    return out_finish(&w.out, code == EXIT_FAILED && w.out.error ? 0 : code);
}

static int run(app *a, const app_flags *flags, const run_flags *f, const talk *t,
               const sampling_flags *sampling, gen **g, size_t *n) {
    prompt_flags how = {.raw = f->raw,
                        .parse_special = f->parse_special,
                        .max_new = f->n,
                        .talk = t,
                        .system = t->flags->system,
                        .own_seeds = !sampling->seed.given,
                        .stop = &sampling->stop};
    mn_session_params params = {.n_seq = 1};
    int code = talk_check(a, t);
    if (code)
        return code;
    sampling_values(a, sampling, &how.sample);
    how.sample.ignore_stop = f->ignore_eos;
    if (f->prompts) {
        code = prompts_from_file(a, f->prompts, &how, g, n);
        return code ? code : answer_all(a, *g, *n, f);
    }
    *g = calloc(1, sizeof **g);
    if (!*g)
        return complain(EXIT_NO_MEMORY, "out of memory");
    *n = 1;
    (*g)->show_thinking = f->show_thinking;
    code = one_prompt(a, *g, f, &how);
    params.n_ctx = context_for(a, *g, 1);
    if (code == 0)
        code = app_open_session(a, &params);
    if (code)
        return code;
    sampling_say_seed(a, sampling, &how.sample);
    return answer(a, *g, flags->json);
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
        "run", "[-m MODEL] [PROMPT... | -p TEXT | -f F] [flags]",
        "Answers one prompt (or a file of them). Standard output holds the answer only.", groups,
        COUNT(groups)};
    app a = {0};
    gen *g = NULL;
    size_t n = 0;
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK && flags.list_devices)
        code = cmd_devices(1, argv);
    else if (code == ARGS_OK && (code = check(&f, &tf, flags.model)) == 0 &&
             (code = talk_open(&t)) == 0 && (code = app_open_model(&a, &flags)) == 0)
        code = run(&a, &flags, &f, &t, &sampling, &g, &n);
    for (size_t i = 0; i < n; i++)
        gen_free(&g[i]);
    free(g);
    args_free_ints(&f.ids);
    args_free_texts(&f.words);
    args_free_texts(&sampling.stop);
    talk_close(&t);
    app_close(&a);
    return code;
}
