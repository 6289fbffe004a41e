/* tokenize.c -- minerva tokenize and detokenize: text to token ids, and ids to text.
 *
 * Weights are not read, so that a file with the vocabulary alone is enough. Ids belong to the
 * library (mn_ids_free), texts to this file. Text of ids comes from a stream, which keeps the
 * bytes of incomplete characters until the next id. */
#include "app.h"
#include "text_buffer.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECES_AUTO, PIECES_ALWAYS, PIECES_NEVER };

typedef struct {
    const char *text, *file;
    int no_bos, parse_special, pieces;
} tokenize_flags;

#define F(field) offsetof(tokenize_flags, field)
static const arg_row rows[] = {
    {"-p --prompt", "TEXT", ARG_TEXT, F(text), 0, 0, NULL, "the text, as it is; -: standard input"},
    {"-f --file", "F", ARG_FILE, F(file), 0, 0, NULL,
     "a file's bytes, all of them; -: standard input"},
    {"--no-bos", NULL, ARG_FLAG, F(no_bos), 0, 0, NULL,
     "add nothing (default: what the tokeniser adds)"},
    {"--parse-special", NULL, ARG_FLAG, F(parse_special), 0, 0, NULL,
     "special tokens written in the text become ids (default: plain text)"},
    {"--pieces", "WHEN", ARG_CHOICE, F(pieces), 0, 0, "auto|always|never",
     "one line per id with its text beside it; auto: on a terminal"},
};

/* The text of a plain stream's events: there is at most one. */
static mn_str tokenize_text_of(const mn_stream_event *events, uint32_t n) {
    return n ? events->text : (mn_str){"", 0};
}

/* The text that each id adds as a JSON string, special tokens by their names; the bytes of an
 * incomplete character come with the id that completes it. lines: where j writes,
 * one line per id; NULL: elements of an array. */
static int print_pieces(app *a, json_out *j, const int32_t *ids, uint32_t n, out_file *lines) {
    mn_stream *s = NULL;
    const mn_stream_event *events = NULL;
    uint32_t n_events = 0;
    mn_status st = mn_stream_create(a->model, MN_STREAM_CONTINUE | MN_STREAM_SPECIAL, &s, &a->err);
    for (uint32_t i = 0; st == MN_OK && i < n; i++) {
        st = mn_stream_push(s, ids[i], &events, &n_events, &a->err);
        const mn_str text = tokenize_text_of(events, n_events);
        if (lines)
            out_printf(lines, "%8" PRId32 "  ", ids[i]);
        json_str(j, text.ptr, text.len);
        if (lines)
            json_line(j);
    }
    if (st == MN_OK)
        st = mn_stream_finish(s, &events, &n_events, &a->err);
    if (st == MN_OK && n_events && lines)
        out_puts(lines, "          (the text ends inside a character)\n");
    mn_stream_free(s);
    return st == MN_OK ? 0 : app_fail(a, st);
}

/* One line of ids, JSON, or (pieces) one line per id with its text. */
static int print(app *a, const int32_t *ids, uint32_t n, int json, int pieces) {
    out_file out = out_stdout();
    json_out j = out_json(&out);
    int code = 0;
    if (json) {
        json_open(&j, '{');
        json_key(&j, "ids");
        json_ids(&j, ids, n);
        if (pieces == PIECES_ALWAYS) {
            json_put_array(&j, "pieces");
            code = print_pieces(a, &j, ids, n, NULL);
            json_close(&j);
        }
        json_close(&j);
        json_line(&j);
    } else if (pieces == PIECES_ALWAYS || (pieces == PIECES_AUTO && isatty(STDOUT_FILENO))) {
        code = print_pieces(a, &j, ids, n, &out);
    } else {
        for (uint32_t i = 0; i < n; i++)
            out_printf(&out, "%s%d", i ? " " : "", ids[i]);
        out_put(&out, "\n", 1);
    }
    return out_finish(&out, code);
}

/* The text of -p, --file or standard input (-, or no flag and no terminal), to ids. */
static int tokenize_texts(app *a, const app_flags *flags, const tokenize_flags *f) {
    const uint32_t how =
        (f->no_bos ? 0 : MN_TEXT_ADD_SPECIAL) | (f->parse_special ? MN_TEXT_PARSE_SPECIAL : 0);
    const char *file = f->file;
    char *data = NULL;
    size_t bytes = f->text ? strlen(f->text) : 0;
    int32_t *ids = NULL;
    uint32_t n = 0;
    if (f->text && f->file)
        return complain(EXIT_USAGE, "found -p and --file, expected one of them");
    const int dash = f->text && !strcmp(f->text, "-");
    if (dash || (!f->text && !file && !isatty(STDIN_FILENO)))
        file = "-";
    if (!f->text && !file)
        return complain(EXIT_USAGE, "found no text, expected -p TEXT or --file F");
    int code = app_open_text(a, flags);
    if (code == 0 && file)
        code = read_all_text(file, &data, &bytes);
    if (code == 0) {
        const mn_str text = {file ? data : f->text, bytes};
        mn_status st = mn_model_tokenize(a->model, text, how, &ids, &n, &a->err);
        code = st == MN_OK ? print(a, ids, n, flags->json, f->pieces) : app_fail(a, st);
    }
    mn_ids_free(ids);
    free(data);
    return code;
}

int cmd_tokenize(int argc, char **argv) {
    app_flags flags = {0};
    tokenize_flags f = {0};
    const arg_group groups[] = {
        {"Text", rows, MN_COUNT(rows), &f},
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
        {"Model", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {"tokenize", "[-m MODEL] (-p TEXT | --file F) [flags]",
                           "Prints the token ids of a text. The model needs no weights.", groups,
                           MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = tokenize_texts(&a, &flags, &f);
    return app_end(&a, code);
}
#undef F

/* ---- detokenize ------------------------------------------------------------------------------ */
typedef struct {
    arg_texts words;
    const char *file;
    int special;
} detokenize_flags;

#define F(field) offsetof(detokenize_flags, field)
static const arg_row detokenize_rows[] = {
    {"IDS", "IDS", ARG_TEXTS, F(words), 0, 0, NULL,
     "token ids with blanks or commas between them; -: standard input"},
    {"-f --file", "F", ARG_FILE, F(file), 0, 0, NULL,
     "a file of token ids, also the output of minerva tokenize; -: standard input"},
    {"--special", NULL, ARG_FLAG, F(special), 0, 0, NULL,
     "special tokens by their names (default: they have no text)"},
};

/* An id outside the vocabulary is an error: its text would be missing without a message. */
static int check_ids(const app *a, const int32_t *ids, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (a->info.n_vocab > 0 && ids[i] >= a->info.n_vocab)
            return complain(EXIT_FAILED,
                            "found token id %" PRId32 " at index %u, expected one below %" PRId64
                            ", the size of the vocabulary",
                            ids[i], i, a->info.n_vocab);
    return 0;
}

/* Appends the text of the ids. 0, or the exit code with the error printed. */
static int text_of_ids(app *a, uint32_t how, const int32_t *ids, uint32_t n, mn_text *text) {
    mn_stream *s = NULL;
    const mn_stream_event *events = NULL;
    uint32_t n_events = 0;
    mn_status st = mn_stream_create(a->model, how, &s, &a->err);
    for (uint32_t i = 0; st == MN_OK && i <= n; i++) {
        st = i < n ? mn_stream_push(s, ids[i], &events, &n_events, &a->err)
                   : mn_stream_finish(s, &events, &n_events, &a->err);
        const mn_str piece = tokenize_text_of(events, n_events);
        mn_text_put(text, piece.ptr, piece.len);
    }
    mn_stream_free(s);
    if (st != MN_OK)
        return app_fail(a, st);
    return text->failed ? no_memory() : 0;
}

/* Prints the exact bytes; on a terminal with a line end behind them. */
static int tokenize_print_text(app *a, const app_flags *flags, const detokenize_flags *f,
                               const int32_t *ids, uint32_t n) {
    const uint32_t how = MN_STREAM_PLAIN | (f->special ? MN_STREAM_SPECIAL : 0);
    out_file out = out_stdout();
    json_out j = out_json(&out);
    mn_text text = {0};
    const int code = text_of_ids(a, how, ids, n, &text);
    if (code == 0 && flags->json) {
        json_open(&j, '{');
        json_key(&j, "text");
        json_str(&j, text.ptr, text.len);
        json_close(&j);
        json_line(&j);
    } else if (code == 0) {
        out_put(&out, text.ptr, text.len);
        if (isatty(STDOUT_FILENO) && text.len && text.ptr[text.len - 1] != '\n')
            out_put(&out, "\n", 1);
    }
    mn_text_free(&text);
    return out_finish(&out, code);
}

/* The ids of the operands. */
static int add_words(const detokenize_flags *f, arg_ids *ids) {
    int code = 0;
    for (size_t i = 0; i < f->words.n && code == 0; i++)
        code = parse_ids(f->words.v[i], strlen(f->words.v[i]), "IDS", ids);
    return code;
}

/* The ids of the operands, --file or standard input, to text. */
static int tokenize_detokenize(app *a, const app_flags *flags, const detokenize_flags *f) {
    arg_ids ids = {0};
    const int dash = f->words.n == 1 && !strcmp(f->words.v[0], "-");
    const char *file = f->file;
    if (f->file && f->words.n)
        return complain(EXIT_USAGE, "found --file and ids, expected one of them");
    if (dash || (!file && !f->words.n && !isatty(STDIN_FILENO)))
        file = "-";
    if (!file && !f->words.n)
        return complain(EXIT_USAGE, "found no ids, expected some, as in minerva detokenize 1 2 3");
    int code = file ? 0 : add_words(f, &ids);
    if (code == 0)
        code = app_open_text(a, flags);
    if (code == 0 && file)
        code = read_ids(file, &ids);
    if (code == 0)
        code = check_ids(a, ids.v, ids.n);
    if (code == 0)
        code = tokenize_print_text(a, flags, f, ids.v, ids.n);
    free(ids.v);
    return code;
}

int cmd_detokenize(int argc, char **argv) {
    app_flags flags = {0};
    detokenize_flags f = {0};
    const arg_group groups[] = {
        {"Ids", detokenize_rows, MN_COUNT(detokenize_rows), &f},
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
        {"Model", app_model_rows, APP_MODEL_ROWS, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {
        "detokenize", "[-m MODEL] (IDS... | --file F) [flags]",
        "Prints the text of token ids, byte by byte. The model needs no weights.", groups,
        MN_COUNT(groups)};
    app a = {0};
    int code = args_parse(&page, argc, argv);
    if (code == ARGS_OK)
        code = tokenize_detokenize(&a, &flags, &f);
    args_free_texts(&f.words);
    return app_end(&a, code);
}
