/* plugins.c -- minerva plugins: every plugin file that the registry found, in the order of the
 * search, with its status and the reason if it is not used or has no device. The rows are the
 * registry's records (mn_runtime_plugin), valid while the runtime is open. minerva plugins check is
 * a program of its own (plugins_check.c). */
#include "app.h"
#include <string.h>

/* "MAJOR.MINOR", or "" if the file has no ABI version. */
static const char *abi_text(uint32_t abi, char dst[32]) {
    snprintf(dst, 32, "%u.%u", abi >> 16, abi & 0xffff);
    return abi ? dst : "";
}

static void plugins_command_as_json(const app *a, out_file *out) {
    json_out j = out_json(out);
    mn_plugin_item p;
    char abi[32];
    json_open(&j, '[');
    for (uint32_t i = 0; mn_runtime_plugin(a->rt, i, &p) == MN_OK; i++) {
        json_open(&j, '{');
        json_put_z(&j, "path", p.path);
        json_put_z(&j, "id", p.id);
        json_put_z(&j, "kind", p.kind);
        json_put_z(&j, "abi", abi_text(p.abi, abi));
        json_put_z(&j, "status", p.status);
        json_put_z(&j, "reason", p.reason);
        json_put_z(&j, "version", p.version);
        json_put_z(&j, "vendor", p.vendor);
        json_put_z(&j, "probe", p.probe);
        json_close(&j);
    }
    json_close(&j);
    json_line(&j);
}

/* Why a plugin that is used has no device, "" where it has one or lists none: a record of no memory
 * and no name stands for it then. */
static const char *lack_of_devices(const app *a, const mn_plugin_item *p) {
    mn_device_item d;
    for (uint32_t i = 0; mn_runtime_device(a->rt, i, &d) == MN_OK; i++)
        if (!strcmp(d.plugin, p->id) && !d.usable && !d.description[0])
            return d.reason;
    return "";
}

static void plugins_command_as_table(const app *a, out_file *out) {
    static const char *const columns[] = {"plugin", "kind", "abi",    "version", "status",
                                          "probe",  "path", "reason", NULL};
    table t;
    mn_plugin_item p;
    char abi[32];
    table_begin(&t, columns, 0);
    for (uint32_t i = 0; mn_runtime_plugin(a->rt, i, &p) == MN_OK; i++) {
        table_cell(&t, "%s", p.id[0] ? p.id : "-");
        table_cell(&t, "%s", p.kind[0] ? p.kind : "-");
        table_cell(&t, "%s", p.abi ? abi_text(p.abi, abi) : "-");
        table_cell(&t, "%s", p.version[0] ? p.version : "-");
        table_cell(&t, "%s", p.status);
        table_cell(&t, "%s", p.probe[0] ? p.probe : "-");
        table_cell(&t, "%s", p.path);
        const char *reason = p.reason;
        if (!reason[0] && !strcmp(p.kind, "backend"))
            reason = lack_of_devices(a, &p);
        table_cell(&t, "%s", reason);
    }
    table_print(&t, TABLE_PLAIN, out);
    table_free(&t);
}

int cmd_plugins(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "check"))
        return cmd_plugins_check(argc - 1, argv + 1);
    app_flags flags = {0};
    const arg_group groups[] = {{"Output", app_json_rows, APP_JSON_ROWS, &flags},
                                {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags}};
    const arg_page page = {"plugins", "[--json] | check FILE.so",
                           "Lists the plugin files that were found, in the order of the search, "
                           "and why one was refused.\nminerva plugins check FILE.so tries every "
                           "rule of the ABI on one file (minerva plugins check --help).",
                           groups, MN_COUNT(groups)};
    const int code = args_parse(&page, argc, argv);
    return code == ARGS_OK ? app_list(&flags, plugins_command_as_json, plugins_command_as_table)
                           : code;
}
