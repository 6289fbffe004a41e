/* devices.c -- minerva devices: what there is to run on. */
#include "app.h"
#include <string.h>

static void as_json(const app *a, out_file *out) {
    json_out j = {out, 0, 0, {0}};
    mn_device_item d;
    json_open(&j, '[');
    for (uint32_t i = 0; mn_runtime_device(a->rt, i, &d) == MN_OK; i++) {
        json_open(&j, '{');
        json_key(&j, "name"), json_z(&j, d.name);
        json_key(&j, "plugin"), json_z(&j, d.plugin);
        json_key(&j, "description"), json_z(&j, d.description);
        json_key(&j, "uid"), json_z(&j, d.uid);
        json_key(&j, "mem_total"), json_uint(&j, d.mem_total);
        json_key(&j, "mem_free"), json_uint(&j, d.mem_free);
        json_key(&j, "usable"), json_bool(&j, d.usable);
        json_key(&j, "reason"), json_z(&j, d.reason);
        json_close(&j);
    }
    json_close(&j);
    json_line(&j);
}

static void as_table(const app *a, out_file *out) {
    static const char *const columns[] = {"device", "memory", "free", "description", "usable", NULL};
    table t;
    mn_device_item d;
    char total[32], unused[32];
    table_begin(&t, columns, 6);
    for (uint32_t i = 0; mn_runtime_device(a->rt, i, &d) == MN_OK; i++) {
        table_cell(&t, "%s", d.name);
        table_cell(&t, "%s", human_bytes(d.mem_total, total));
        table_cell(&t, "%s", human_bytes(d.mem_free, unused));
        table_cell(&t, "%s", d.description);
        table_cell(&t, "%s%s%s", d.usable ? "yes" : "no", d.reason[0] ? ": " : "", d.reason);
    }
    table_print(&t, TABLE_PLAIN, out);
    table_free(&t);
}

int cmd_devices(int argc, char **argv) {
    app_flags flags = {0};
    const arg_group groups[] = {{"Output", app_json_rows, APP_JSON_ROWS, &flags}};
    const arg_page page = {"devices", "[--json]", "Lists the devices of all plugins, and why one is not usable.",
                           groups, COUNT(groups)};
    return app_list(&page, &flags, argc, argv, as_json, as_table);
}
