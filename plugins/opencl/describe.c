/* describe.c -- what drivers say of themselves, into the host's log at level debug when devices are
 * searched, and the last build that failed: `minerva devices --report` gathers both for whoever has
 * to find out why a driver fails. Holds nothing; allocates nothing on a device. */
#include "opencl.h"

#define LAST_FAILURE "build that failed"

enum { MOST_WORDS = 16384, MOST_LINE = 440 };

/* Characters of a text's first line: up to the last space that fits, else all that fit. */
static size_t line_of(const char *text) {
    size_t n = strlen(text);
    if (n <= MOST_LINE)
        return n;
    n = MOST_LINE;
    while (n && text[n] != ' ')
        n--;
    return n ? n : MOST_LINE;
}

static void log_words(const ocl_plugin *p, const char *what, const char *text) {
    while (*text) {
        const size_t n = line_of(text);
        mng_log(p->base.host, MN_LOG_DEBUG, "%s: %.*s", what, (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
}

static void log_text(const ocl_plugin *p, cl_device_id id, cl_device_info what, const char *name) {
    char text[MOST_WORDS] = "";
    if (p->icd.GetDeviceInfo(id, what, sizeof text - 1, text, NULL) == CL_SUCCESS)
        log_words(p, name, text);
}

static void log_numbers(const ocl_plugin *p, cl_device_id id) {
    static const struct {
        cl_device_info what;
        const char *name;
    } numbers[] = {{CL_DEVICE_TYPE, "type"},
                   {CL_DEVICE_MAX_COMPUTE_UNITS, "compute units"},
                   {CL_DEVICE_MAX_WORK_GROUP_SIZE, "group size"},
                   {CL_DEVICE_GLOBAL_MEM_SIZE, "memory"},
                   {CL_DEVICE_MAX_MEM_ALLOC_SIZE, "largest buffer"},
                   {CL_DEVICE_LOCAL_MEM_SIZE, "local memory"},
                   {CL_DEVICE_MEM_BASE_ADDR_ALIGN, "alignment in bits"},
                   {CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT, "floats of a vector"},
                   {CL_DEVICE_HOST_UNIFIED_MEMORY, "shares the host's memory"}};
    char line[MOST_LINE] = "limits";
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        cl_ulong v = 0;
        const size_t used = strlen(line);
        if (p->icd.GetDeviceInfo(id, numbers[i].what, sizeof v, &v, NULL) == CL_SUCCESS)
            snprintf(line + used, sizeof line - used, "%s %s %llu", i ? "," : ":", numbers[i].name,
                     (unsigned long long)v);
    }
    mng_log(p->base.host, MN_LOG_DEBUG, "%s", line);
}

static void log_platform(const ocl_plugin *p, cl_platform_id id) {
    static const cl_platform_info whats[] = {CL_PLATFORM_NAME, CL_PLATFORM_VENDOR,
                                             CL_PLATFORM_VERSION};
    char text[3][200] = {"", "", ""};
    for (int i = 0; i < 3; i++)
        p->icd.GetPlatformInfo(id, whats[i], sizeof text[i] - 1, text[i], NULL);
    mng_log(p->base.host, MN_LOG_DEBUG, "platform: %s; %s; %s", text[0], text[1], text[2]);
}

const mn_cache *ocl_cache_of_host(const ocl_plugin *p) {
    const mn_host *h = p->base.host;
    if (!MN_HAS(mn_host, h, query))
        return NULL;
    return h->query(h->self, MN_CACHE_ID);
}

static void log_last_failure(const ocl_plugin *p) {
    const mn_host *h = p->base.host;
    const mn_cache *cache = ocl_cache_of_host(p);
    void *data;
    uint64_t bytes;
    char text[MOST_WORDS];
    if (!cache || cache->read(h->self, mnp_str(LAST_FAILURE), mnp_str(""), &data, &bytes))
        return;
    snprintf(text, sizeof text, "%.*s", (int)bytes, (const char *)data);
    h->release(h->self, data);
    log_words(p, LAST_FAILURE, text);
}

void ocl_describe_failure(const ocl_plugin *p, const char *text) {
    const mn_host *h = p->base.host;
    const mn_cache *cache = ocl_cache_of_host(p);
    if (cache)
        cache->write(h->self, mnp_str(LAST_FAILURE), mnp_str(""), text, strlen(text));
}

void ocl_describe(const ocl_plugin *p) {
    cl_platform_id last = NULL;
    for (uint32_t i = 0; i < p->n_found; i++) {
        const cl_device_id id = p->found[i].id;
        if (p->found[i].platform != last)
            log_platform(p, p->found[i].platform);
        last = p->found[i].platform;
        log_text(p, id, CL_DEVICE_NAME, "device");
        log_text(p, id, CL_DEVICE_VENDOR, "vendor");
        log_text(p, id, CL_DEVICE_VERSION, "version");
        log_text(p, id, CL_DEVICE_OPENCL_C_VERSION, "compiler");
        log_text(p, id, CL_DRIVER_VERSION, "driver");
        log_numbers(p, id);
        log_text(p, id, CL_DEVICE_EXTENSIONS, "extensions");
    }
    log_last_failure(p);
}
