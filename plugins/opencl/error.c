/* error.c -- what OpenCL's codes mean for the host. Holds nothing. */
#include "opencl.h"

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

static mng_vendor_error vendor_error(cl_int code, mn_status status) {
    return (mng_vendor_error){"OpenCL", ocl_code_name(code), code, status};
}

mn_status ocl_check(cl_int code, mn_error *err, const char *what) {
    if (code == CL_SUCCESS)
        return MN_OK;
    const meaning *m = meaning_of(code);
    const mng_vendor_error e = vendor_error(code, m ? m->status : MN_DEVICE_LOST);
    return mng_fail_vendor(&e, err, what);
}

mn_status ocl_check_room(cl_int code, uint64_t bytes, mn_error *err, const char *what) {
    if (code != CL_OUT_OF_RESOURCES && code != CL_MEM_OBJECT_ALLOCATION_FAILURE)
        return ocl_check(code, err, what);
    const mng_vendor_error e = vendor_error(code, MN_OUT_OF_MEMORY);
    return mng_fail_room(&e, bytes, 0, 0, err, what);
}
