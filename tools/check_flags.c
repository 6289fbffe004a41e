/* check_flags.c -- the flags and the page of minerva plugins check, for both programs. */
#include "check_flags.h"
#include "out.h"

static const arg_row rows[] = {
    {"FILE", "a plugin file", ARG_FILE, offsetof(check_flags, file), 0, 0, NULL, "the plugin"},
    {"--json", NULL, ARG_FLAG, offsetof(check_flags, json), 0, 0, NULL,
     "one JSON object instead of a table"},
    {"--only", "ID", ARG_TEXT, offsetof(check_flags, only), 0, 0, NULL,
     "report the rules whose id begins so: static, host.options"},
    {"--model", "PATH", ARG_FILE, offsetof(check_flags, model), 0, 0, NULL,
     "a file or folder of a loader's format, to try it on\n(not needed for gguf and safetensors)"},
    {"--abi", "X.Y", ARG_TEXT, offsetof(check_flags, abi), 0, 0, NULL,
     "play a host of that version: an older one, which the\nplugin has to refuse, or a newer one, "
     "whose structs and\nstrides are longer"},
    {"--limit", "SECONDS", ARG_INT, offsetof(check_flags, limit), 3, 3600, NULL,
     "what calls that hang may take in all (60); one call a\nthird of it"},
};

int check_flags_parse(int argc, char **argv, check_flags *out) {
    *out = (check_flags){.limit = 60};
    const arg_group groups[] = {{"Check", rows, MN_COUNT(rows), out}};
    const arg_page page = {
        "plugins check",
        "FILE.so [--json] [--only ID] [--model PATH] [--abi X.Y] "
        "[--limit SECONDS]",
        "Tries every rule of docs/plugin-howto.md on a plugin. Exit code 0 only if none is\n"
        "broken and something was tried.",
        groups, MN_COUNT(groups)};
    return args_parse(&page, argc, argv);
}
