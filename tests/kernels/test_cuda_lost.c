/* test_cuda_lost.c -- a kernel traps in the plugin's own context: from then on every call says that
 * the device is lost, waits stay bounded, and everything can still be freed. In a process of its
 * own, since nothing cures the context. Run by tools/gpu_tests.sh on a machine with a GPU. */
#include "harness.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char trap_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry boom()\n{\n  trap;\n}\n";

/* The driver's own interface: the primary context is the one that the plugin's runtime uses. */
static void break_context(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    void *context = NULL;
    void *module = NULL;
    void *function = NULL;
    int device = 0;
    assert_non_null(cuda);
#define CALL(name, types, args)                                                                    \
    do {                                                                                           \
        int(*fn) types;                                                                            \
        *(void **)&fn = dlsym(cuda, name);                                                         \
        assert_non_null(fn);                                                                       \
        int code = fn args;                                                                        \
        if (code)                                                                                  \
            fail_msg("%s: CUDA error %d", name, code);                                             \
    } while (0)
    CALL("cuDeviceGet", (int *, int), (&device, 0));
    CALL("cuDevicePrimaryCtxRetain", (void **, int), (&context, device));
    CALL("cuCtxSetCurrent", (void *), (context));
    CALL("cuModuleLoadData", (void **, const void *), (&module, trap_ptx));
    CALL("cuModuleGetFunction", (void **, void *, const char *), (&function, module, "boom"));
    CALL("cuLaunchKernel",
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
          void **, void **),
         (function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
#undef CALL
}

static void is_lost(mn_status st, const mn_error *err, const char *what) {
    print_message("%s: %s\n", what, st ? err->msg : "ok");
    assert_int_equal(MN_STATUS_CLASS(st), MN_CLASS_LOST);
    assert_true(err->msg[0]);
}

static void lost(void **state) {
    h_plugin p;
    mn_error err = {sizeof err, 0, 0, ~0u, 0, {0}};
    mn_buffer *device = NULL;
    mn_buffer *pinned = NULL;
    mn_buffer *more = NULL;
    mn_event *event = NULL;
    uint64_t left = 0;
    uint64_t total = 0;
    float x[64] = {0};
    (void)state;
    if (!h_open(&p, "cuda"))
        skip();
    assert_int_equal(p.be->device_memory(p.dev, &left, &total, &err), MN_OK);
    assert_true(left > 0 && left <= total);
    assert_int_equal(mn_usual_alloc(p.be, p.dev, sizeof x, MN_MEM_DEVICE, &device, &err), MN_OK);
    assert_int_equal(mn_usual_alloc(p.be, p.dev, sizeof x, MN_MEM_HOST_PINNED, &pinned, &err),
                     MN_OK);
    assert_int_equal(p.be->self_test(p.dev, &err), MN_OK);
    break_context();
    mn_status st = p.be->read(p.queue, device, 0, pinned, 0, sizeof x, &event, &err);
    for (int i = 0; i < 100 && !st; i++) {
        /* the queue does not wait for the kernel: ask until the error is there */
        st = p.be->wait(event, 100000000, &err);
        if (st == MN_TIMEOUT || st == MN_OK)
            st = p.be->self_test(p.dev, &err);
    }
    is_lost(st, &err, "first sight");
    is_lost(p.be->write(p.queue, device, 0, x, sizeof x, &err), &err, "write");
    is_lost(mn_usual_alloc(p.be, p.dev, 4096, MN_MEM_DEVICE, &more, &err), &err, "alloc");
    is_lost(p.be->self_test(p.dev, &err), &err, "self_test");
    if (event) {
        st = p.be->wait(event, 1000000000, &err);
        if (st)
            is_lost(st, &err, "wait"); /* its own work may have been over before */
        p.be->event_free(event);
    }
    p.be->buffer_free(device);
    p.be->buffer_free(pinned);
    h_close(&p);
    assert_int_equal(h_host_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
