/* main.c -- the minerva command: a table of subcommands. */
#include "app.h"
#include <signal.h>
#include <string.h>

typedef struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} subcommand;

static const subcommand subcommands[] = {
    {"run", cmd_run, "answer one prompt"},
    {"chat", cmd_chat, "hold a conversation"},
    {"bench", cmd_bench, "measure prompt and generation speed"},
    {"devices", cmd_devices, "list what there is to run on"},
    {"plugins", cmd_plugins, "list the plugins, and why one was refused"},
    {"inspect", cmd_inspect, "print a model's metadata and tensors"},
    {"convert", cmd_convert, "write a model as one GGUF file"},
    {"perplexity", cmd_perplexity, "measure how well a model predicts a text"},
    {"tokenize", cmd_tokenize, "print the token ids of a text"},
    {"template", cmd_template, "print what a chat template makes of its variables"},
    {"logits", cmd_logits, "write the logits of every position"},
    {"config", cmd_config, "print each setting and where it came from"},
};

static int help(out_file out) {
    out_puts(&out, "Usage: minerva COMMAND [flags]\n\nRuns transformer language models on what "
                   "this machine has.\n\nCommands\n");
    for (size_t i = 0; i < COUNT(subcommands); i++)
        out_printf(&out, "  %-10s %s\n", subcommands[i].name, subcommands[i].about);
    out_puts(
        &out,
        "\n  minerva COMMAND --help   its flags\n  minerva --version        the version\n  minerva "
        "--list-devices   the same as minerva devices\n\n"
        "Exit codes: 0, 1 failure, 2 usage, 3 no usable device, 4 out of memory, 130 "
        "interrupted, 141 the reader of the output left.\n");
    return out_finish(&out, 0);
}

static int version(void) {
    out_file out = out_stdout();
    out_printf(&out, "minerva %s\n", mn_version());
    return out_finish(&out, 0);
}

static int unknown(const char *word) {
    const char *names[COUNT(subcommands)];
    for (size_t i = 0; i < COUNT(subcommands); i++)
        names[i] = subcommands[i].name;
    const char *near = closest(word, names, COUNT(names));
    const char *what = word[0] == '-' ? "flag" : "command";
    if (near)
        return complain(EXIT_USAGE, "unknown %s %s; did you mean minerva %s?", what, word, near);
    return complain(EXIT_USAGE, "unknown %s %s; minerva --help lists the commands", what, word);
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); // a closed pipe is an error of write: see out.h
    if (argc < 2) {
        help((out_file){stderr, "standard error", 0});
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help"))
        return help(out_stdout());
    if (!strcmp(word, "--version") || !strcmp(word, "version"))
        return version();
    if (!strcmp(word, "--list-devices"))
        return cmd_devices(argc - 1, argv + 1);
    for (size_t i = 0; i < COUNT(subcommands); i++)
        if (!strcmp(word, subcommands[i].name))
            return subcommands[i].run(argc - 1, argv + 1);
    return unknown(word);
}
