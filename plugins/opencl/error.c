/* error.c -- what OpenCL's codes mean for the host, the plugin's log lines and options. Holds
 * nothing. */
#include "opencl.h"
#include <stdarg.h>
#include <stdlib.h>

/* A code, its name without CL_, and what the host is to do. */
typedef struct {
    cl_int code;
    const char *name;
    mn_status status;
} meaning;

#define ROW(name, status)                                                                          \
    { CL_##name, #name, status }
static const meaning meanings[] = {
    ROW(DEVICE_NOT_FOUND, MN_NO_DEVICE),
    ROW(DEVICE_NOT_AVAILABLE, MN_DEVICE_LOST),
    ROW(COMPILER_NOT_AVAILABLE, MN_NO_DEVICE),
    ROW(MEM_OBJECT_ALLOCATION_FAILURE, MN_OUT_OF_MEMORY),
    ROW(OUT_OF_RESOURCES, MN_DEVICE_LOST),
    ROW(OUT_OF_HOST_MEMORY, MN_OUT_OF_MEMORY),
    ROW(BUILD_PROGRAM_FAILURE, MN_UNSUPPORTED),
    ROW(EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, MN_DEVICE_LOST),
    ROW(INVALID_VALUE, MN_DEVICE_LOST),
    ROW(INVALID_BUFFER_SIZE, MN_OUT_OF_MEMORY),
    ROW(INVALID_COMMAND_QUEUE, MN_DEVICE_LOST),
    ROW(INVALID_KERNEL_ARGS, MN_DEVICE_LOST),
    ROW(INVALID_KERNEL_NAME, MN_UNSUPPORTED),
    ROW(INVALID_WORK_GROUP_SIZE, MN_UNSUPPORTED),
    ROW(INVALID_BINARY, MN_UNSUPPORTED),
};
#undef ROW
enum { N_MEANINGS = sizeof meanings / sizeof *meanings };

static const meaning *meaning_of(cl_int code) {
    for (int i = 0; i < N_MEANINGS; i++)
        if (meanings[i].code == code)
            return &meanings[i];
    return NULL;
}

const char *ocl_code_name(cl_int code) {
    const meaning *m = meaning_of(code);
    if (m)
        return m->name;
    return "error";
}

static mn_status fail(cl_int code, mn_status status, mn_error *err, const char *text) {
    const char *after = "";
    if (status == MN_DEVICE_LOST)
        after = "; the device is lost to this process";
    const mn_status st = mnp_fail(err, status, ~0u, "%s: %s (OpenCL error %d)%s", text,
                                  ocl_code_name(code), (int)code, after);
    if (err && err->size >= offsetof(mn_error, node))
        err->vendor_code = code;
    return st;
}

mn_status ocl_check(cl_int code, mn_error *err, const char *what) {
    if (code == CL_SUCCESS)
        return MN_OK;
    const meaning *m = meaning_of(code);
    return fail(code, m ? m->status : MN_DEVICE_LOST, err, what);
}

mn_status ocl_check_room(cl_int code, uint64_t bytes, mn_error *err, const char *what) {
    char text[160];
    if (code != CL_OUT_OF_RESOURCES && code != CL_MEM_OBJECT_ALLOCATION_FAILURE)
        return ocl_check(code, err, what);
    snprintf(text, sizeof text, "%s: %.1f MiB asked for", what, (double)bytes / 1048576);
    return fail(code, MN_OUT_OF_MEMORY, err, text);
}

void ocl_log(const ocl_plugin *p, int32_t level, const char *fmt, ...) {
    char line[512];
    va_list args;
    if (!MN_HAS(mn_host, p->host, log))
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    p->host->log(p->host->self, level, mnp_str(line));
}

int64_t ocl_option(const mn_host *h, const char *key, int64_t otherwise) {
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
    if (*end)
        return otherwise;
    return n;
}
