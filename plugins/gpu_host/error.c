/* error.c -- error codes of a vendor's interface as the host's statuses, the plugin's log lines and
 * options. Holds nothing. */
#include "gpu_objects.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

mn_status mng_fail_vendor(const mng_vendor_error *e, mn_error *err, const char *what) {
    const char *after = "";
    if (e->status == MN_DEVICE_LOST)
        after = "; the device is lost to this process";
    mnp_fail(err, e->status, ~0u, "%s: %s (%s error %d)%s", what, e->name, e->api, (int)e->code,
             after);
    if (err && err->size >= offsetof(mn_error, node))
        err->vendor_code = e->code;
    return e->status;
}

mn_status mng_fail_room(const mng_vendor_error *e, uint64_t bytes, uint64_t left, uint64_t all,
                        mn_error *err, const char *what) {
    char text[160];
    size_t n = (size_t)snprintf(text, sizeof text, "%.60s: %.1f MiB asked for", what,
                                (double)bytes / 1048576);
    if (all)
        snprintf(text + n, sizeof text - n, ", %.1f of the device's %.1f MiB are free",
                 (double)left / 1048576, (double)all / 1048576);
    return mng_fail_vendor(e, err, text);
}

void mng_log(const mn_host *h, int32_t level, const char *fmt, ...) {
    char line[512];
    va_list args;
    if (!MN_HAS(mn_host, h, log))
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    h->log(h->self, level, mnp_str(line));
}

int64_t mng_option(const mn_host *h, const char *key, int64_t otherwise) {
    char text[24];
    char *end;
    mn_str value;
    if (!MN_HAS(mn_host, h, option) || h->option(h->self, key, &value) != 1)
        return otherwise;
    if (!value.len || value.len >= sizeof text)
        return otherwise;
    memcpy(text, value.ptr, value.len);
    text[value.len] = 0;
    const int64_t n = strtoll(text, &end, 10);
    return *end ? otherwise : n;
}
