/* main.c -- the minerva command: the table of subcommands, and the commands that need the whole
 * table: help, completion, version and the man page of the program.
 *
 * Each subcommand is a function cmd_* of its own file, called with argv[0] = its name; it parses
 * its flags by its own tables and returns the exit code. */
#include "app.h"
#include <string.h>

typedef struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} subcommand;

static int cmd_help(int argc, char **argv);
static int cmd_completion(int argc, char **argv);

static const subcommand subcommands[] = {
    {"run", cmd_run, "answer one prompt"},
    {"chat", cmd_chat, "hold a conversation"},
    {"serve", cmd_serve, "serve a model over HTTP, with a web page"},
    {"pull", cmd_pull, "download a model from a hub"},
    {"list", cmd_list, "list the models that have names here"},
    {"show", cmd_show, "print what a model's name means"},
    {"rm", cmd_rm, "remove a downloaded model"},
    {"alias", cmd_alias, "give a model a short name"},
    {"bench", cmd_bench, "measure prompt and generation speed"},
    {"devices", cmd_devices, "list the devices that models can run on"},
    {"plugins", cmd_plugins, "list the plugins, and why one is not used"},
    {"inspect", cmd_inspect, "print a model's metadata and tensors"},
    {"convert", cmd_convert, "write a model as one GGUF file"},
    {"perplexity", cmd_perplexity, "measure how well a model predicts a text"},
    {"imatrix", cmd_imatrix, "measure which weights matter, for convert --imatrix"},
    {"embed", cmd_embed, "print the embeddings of texts"},
    {"rerank", cmd_rerank, "sort texts by how well they answer a query"},
    {"tokenize", cmd_tokenize, "print the token ids of a text"},
    {"detokenize", cmd_detokenize, "print the text of token ids"},
    {"template", cmd_template, "render a chat template with given variables"},
    {"logits", cmd_logits, "write the logits of every position"},
    {"config", cmd_config, "print each setting and its origin"},
    {"completion", cmd_completion, "print the completion script of bash, zsh or fish"},
    {"help", cmd_help, "print the flags of a command"},
};

static int print_help(out_file out) {
    out_puts(&out, "Usage: minerva COMMAND [flags]\n\nRuns transformer language models on the "
                   "devices of this machine.\n\nCommands\n");
    for (size_t i = 0; i < MN_COUNT(subcommands); i++)
        out_printf(&out, "  %-10s %s\n", subcommands[i].name, subcommands[i].about);
    out_printf(&out,
               "\n  minerva COMMAND --help   its flags\n"
               "  minerva --version        the version\n"
               "  minerva --list-devices   the same as minerva devices\n\nExit codes: %s\n",
               EXIT_CODES);
    return out_finish(&out, 0);
}

/* The man page of the program; those of the commands are printed from their tables (document.c). */
static int man_page(void) {
    out_file out = out_stdout();
    out_printf(
        &out,
        ".TH \"minerva\" 1 \"\" \"Minerva %s\" \"Minerva\"\n"
        ".SH NAME\nminerva \\- runs transformer language models\n"
        ".SH SYNOPSIS\n\\fBminerva\\fR \\fICOMMAND\\fR [\\fIflags\\fR]\n"
        ".SH DESCRIPTION\n"
        "Runs transformer language models on the devices of this machine: GGUF files and folders "
        "in Hugging Face or MLX layout. Each command has a page of its own, as "
        "minerva\\-run(1), and \\fB\\-\\-help\\fR.\n.SH COMMANDS\n",
        mn_version());
    for (size_t i = 0; i < MN_COUNT(subcommands); i++)
        out_printf(&out, ".TP\n\\fB%s\\fR\n%s\n", subcommands[i].name, subcommands[i].about);
    out_printf(&out,
               ".SH EXIT STATUS\n%s\n.SH FILES\n"
               ".TP\n\\fI~/.config/minerva/minerva.ini\\fR\n"
               "settings; \\fBminerva config\\fR shows each with its origin\n"
               ".TP\n\\fI~/.cache/minerva\\fR\nresults of probes and measurements; in "
               "\\fIcrashes\\fR, the crashes of plugins: delete the file to use them again\n"
               ".TP\n\\fI~/.local/share/minerva/plugins\\fR\nplugins of the user\n"
               ".SH ENVIRONMENT\n.TP\n\\fBMINERVA_DEVICE\\fR, \\fBMINERVA_THREADS\\fR, "
               "\\fBMINERVA_MODEL\\fR, ...\nsettings: configuration.md in the documents lists all\n"
               ".SH SEE ALSO\n",
               EXIT_CODES);
    for (size_t i = 0; i < MN_COUNT(subcommands); i++)
        if (subcommands[i].run != cmd_help && subcommands[i].run != cmd_completion)
            out_printf(&out, ".BR minerva\\-%s (1)%s\n", subcommands[i].name,
                       i + 3 < MN_COUNT(subcommands) ? "," : "");
    return out_finish(&out, 0);
}

static int version(void) {
    out_file out = out_stdout();
    out_printf(&out, "minerva %s\n", mn_version());
    return out_finish(&out, 0);
}

/* Nothing here replaces the program: docs/install.md. */
#define UPGRADE                                                                                    \
    "minerva does not replace itself; it is upgraded as it was installed: apt-get upgrade, pip "   \
    "install -U minerva-runtime, or a newer archive beside the old one (docs/install.md)"

/* What other tools have as commands. */
static const char *const foreign_commands[][2] = {
    {"download", "minerva pull NAME"},
    {"models", "minerva list"},
    {"ls", "minerva list"},
    {"ps", "a server runs in its own terminal; its /health and /metrics tell what it does"},
    {"quantize", "minerva convert IN -o OUT.gguf --type q4_k_m"},
    {"remove", "minerva rm NAME"},
    {"create", "a system message is minerva run --system TEXT, sampling has flags of its own"},
    {"server", "minerva serve"},
    {"cli", "minerva run, or minerva chat"},
    {"generate", "minerva run"},
    {"update", UPGRADE},
    {"upgrade", UPGRADE},
};

/* Prints the error for a word that is no command, with the closest name. */
static int unknown(const char *word) {
    for (size_t i = 0; i < MN_COUNT(foreign_commands); i++)
        if (!strcmp(word, foreign_commands[i][0]))
            return complain(EXIT_USAGE, "unknown command %s: %s", word, foreign_commands[i][1]);
    const char *names[MN_COUNT(subcommands)];
    for (size_t i = 0; i < MN_COUNT(subcommands); i++)
        names[i] = subcommands[i].name;
    const char *near = closest(word, names, MN_COUNT(names));
    const char *what = word[0] == '-' ? "flag" : "command";
    if (near)
        return complain(EXIT_USAGE, "unknown %s %s; did you mean minerva %s?", what, word, near);
    return complain(EXIT_USAGE, "unknown %s %s; minerva --help lists the commands", what, word);
}

static const subcommand *find_subcommand(const char *word) {
    for (size_t i = 0; i < MN_COUNT(subcommands); i++)
        if (!strcmp(word, subcommands[i].name))
            return &subcommands[i];
    return NULL;
}

/* minerva help [COMMAND [check]] is COMMAND [check] --help. */
static int cmd_help(int argc, char **argv) {
    static char flag[] = "--help";
    if (argc < 2 || !strcmp(argv[1], flag) || !strcmp(argv[1], "-h"))
        return print_help(out_stdout());
    if (!strcmp(argv[1], "--help=man"))
        return man_page();
    const subcommand *s = find_subcommand(argv[1]);
    if (!s)
        return unknown(argv[1]);
    const int inner = argc > 2 && s->run == cmd_plugins && !strcmp(argv[2], "check");
    if (argc > 2 + inner)
        return complain(EXIT_USAGE, "help: found \"%s\" after the command, expected nothing",
                        argv[2 + inner]);
    if (s->run == cmd_help)
        return print_help(out_stdout());
    char *words[] = {argv[1], inner ? argv[2] : flag, flag, NULL};
    return s->run(2 + inner, words);
}

/* Calls every command with --help=SHELL, which prints the commands' part of the script from its own
 * tables; the beginning and the end are printed here. */
static int cmd_completion(int argc, char **argv) {
    const char *names[MN_COUNT(subcommands)], *abouts[MN_COUNT(subcommands)];
    static char check[] = "check";
    char form[16];
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        out_file out = out_stdout();
        out_puts(
            &out,
            "Usage: minerva completion (bash | zsh | fish)\n\nPrints the script by which a shell "
            "completes commands and flags:\n  source <(minerva completion bash)\n");
        return out_finish(&out, 0);
    }
    if (argc != 2)
        return complain(EXIT_USAGE,
                        "completion: found %d words, expected one of bash, zsh and fish", argc - 1);
    for (size_t i = 0; i < MN_COUNT(subcommands); i++) {
        names[i] = subcommands[i].name;
        abouts[i] = subcommands[i].about;
    }
    int code = args_completion_begin(argv[1], names, abouts, MN_COUNT(subcommands));
    if (code)
        return code;
    snprintf(form, sizeof form, "--help=%.8s", argv[1]);
    for (size_t i = 0; i < MN_COUNT(subcommands) && code == 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s", names[i]);
        char *words[] = {name, form, NULL};
        if (subcommands[i].run != cmd_help && subcommands[i].run != cmd_completion)
            code = subcommands[i].run(2, words);
    }
    char *words[] = {check, form, NULL};
    if (code == 0)
        code = cmd_plugins_check(2, words);
    if (code == 0)
        args_completion_end(argv[1]);
    return code;
}

static int run_command(int argc, char **argv) {
    if (argc < 2) {
        print_help((out_file){.f = stderr, .name = "standard error"});
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (!strcmp(word, "--help") || !strcmp(word, "-h"))
        return cmd_help(argc - 1, argv + 1);
    if (argc > 2 && (!strcmp(word, "--version") || !strcmp(word, "version")))
        return complain(EXIT_USAGE, "%s: found \"%s\", expected nothing after it", word, argv[2]);
    if (!strcmp(word, "--version") || !strcmp(word, "version"))
        return version();
    if (!strcmp(word, "--list-devices"))
        return cmd_devices(argc - 1, argv + 1);
    const subcommand *s = find_subcommand(word);
    return s ? s->run(argc - 1, argv + 1) : unknown(word);
}

int main(int argc, char **argv) {
    hub_hide_token();
    out_begin_program();
    const int code = run_command(argc, argv);
    contain_over();
    return code;
}
