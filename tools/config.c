/* config.c -- minerva config: each setting, its value and the origin of the value: command line,
 * variable, file or default. The rows are the runtime's (mn_runtime_config), so that the command
 * prints what the library uses. The settings: docs/configuration.md. */
#include "app.h"

static void config_command_as_json(const app *a, out_file *out) {
    json_out j = out_json(out);
    mn_config_item c;
    json_open(&j, '[');
    for (uint32_t i = 0; mn_runtime_config(a->rt, i, &c) == MN_OK; i++) {
        json_open(&j, '{');
        json_put_z(&j, "key", c.key);
        json_put_z(&j, "value", c.value);
        json_put_z(&j, "origin", c.origin);
        json_close(&j);
    }
    json_close(&j);
    json_line(&j);
}

static void config_command_as_table(const app *a, out_file *out) {
    static const char *const columns[] = {"key", "value", "origin", NULL};
    table t;
    mn_config_item c;
    table_begin(&t, columns, 0);
    for (uint32_t i = 0; mn_runtime_config(a->rt, i, &c) == MN_OK; i++) {
        table_cell(&t, "%s", c.key);
        table_cell(&t, "%s", c.value[0] ? c.value : "-");
        table_cell(&t, "%s", c.origin);
    }
    table_print(&t, TABLE_PLAIN, out);
    table_free(&t);
}

int cmd_config(int argc, char **argv) {
    app_flags flags = {0};
    const arg_group groups[] = {
        {"Output", app_json_rows, APP_JSON_ROWS, &flags},
        {"Settings of the command line", app_device_rows, 3, &flags},
        {"", app_runtime_rows, APP_RUNTIME_ROWS, &flags},
    };
    const arg_page page = {"config", "[--json]",
                           "Prints every setting with its origin: the command line overrides "
                           "MINERVA_* variables, these\n"
                           "minerva.ini (the user's before the system's), and that the default.",
                           groups, MN_COUNT(groups)};
    const int code = args_parse(&page, argc, argv);
    return code == ARGS_OK ? app_list(&flags, config_command_as_json, config_command_as_table)
                           : code;
}
