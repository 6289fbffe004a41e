/* facts.c -- which devices the installed drivers show, and what they say of them. Devices are
 * numbered over all platforms in the loader's order; a device that two platforms show is listed
 * once. Nothing is allocated on a device here. */
#include "opencl.h"

/* What headers of 1.2 lack; a device without the extension answers with an error. */
enum {
    UUID_KHR = 0x106A,
    PCI_BUS_INFO_KHR = 0x410F,
    PCI_BUS_NV = 0x4008,
    PCI_SLOT_NV = 0x4009,
    PCI_DOMAIN_NV = 0x400A,
    TOPOLOGY_AMD = 0x4037
};
typedef struct {
    cl_uint domain;
    cl_uint bus;
    cl_uint device;
    cl_uint function;
} pci_place;

static bool fact_get(const ocl_icd *cl, cl_device_id id, cl_device_info what, void *to,
                     size_t bytes) {
    return cl->GetDeviceInfo(id, what, bytes, to, NULL) == CL_SUCCESS;
}

static uint64_t get_u64(const ocl_icd *cl, cl_device_id id, cl_device_info what) {
    cl_ulong v = 0;
    if (fact_get(cl, id, what, &v, sizeof v))
        return v;
    return 0;
}

static cl_uint get_u32(const ocl_icd *cl, cl_device_id id, cl_device_info what) {
    cl_uint v = 0;
    if (fact_get(cl, id, what, &v, sizeof v))
        return v;
    return 0;
}

/* A text of the device, cut to the room, without line breaks. */
static void get_text(const ocl_icd *cl, cl_device_id id, cl_device_info what, char *to,
                     size_t room) {
    char text[1024] = "";
    if (!fact_get(cl, id, what, text, sizeof text - 1))
        text[0] = 0;
    snprintf(to, room, "%.*s", (int)room - 1, text);
    for (char *c = to; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = ' ';
}

/* cl_nv_device_attribute_query: a slot is a device of eight functions. */
static bool place_of_nvidia(const ocl_icd *cl, cl_device_id id, pci_place *p) {
    cl_uint slot = 0;
    if (!fact_get(cl, id, PCI_BUS_NV, &p->bus, sizeof p->bus))
        return false;
    if (!fact_get(cl, id, PCI_SLOT_NV, &slot, sizeof slot))
        return false;
    p->domain = get_u32(cl, id, PCI_DOMAIN_NV);
    p->device = slot >> 3;
    return true;
}

/* cl_amd_device_attribute_query. */
static bool place_of_amd(const ocl_icd *cl, cl_device_id id, pci_place *p) {
    enum { PCIE = 1 };
    struct {
        cl_uint type;
        unsigned char unused[17];
        unsigned char bus;
        unsigned char device;
        unsigned char function;
    } topology;
    if (!fact_get(cl, id, TOPOLOGY_AMD, &topology, sizeof topology) || topology.type != PCIE)
        return false;
    p->bus = topology.bus;
    p->device = topology.device;
    return true;
}

/* Where the device sits on the bus, as the CUDA plugin writes it; false: it does not tell. */
static bool pci_uid(const ocl_icd *cl, cl_device_id id, char *to, size_t room) {
    pci_place p = {0};
    if (!fact_get(cl, id, PCI_BUS_INFO_KHR, &p, sizeof p) && !place_of_nvidia(cl, id, &p) &&
        !place_of_amd(cl, id, &p))
        return false;
    snprintf(to, room, "pci-%04x:%02x:%02x", p.domain, p.bus, p.device);
    return true;
}

/* cl_khr_device_uuid; false: it has none, or one of zeros. */
static bool uuid_uid(const ocl_icd *cl, cl_device_id id, char *to, size_t room) {
    unsigned char uuid[16] = {0};
    unsigned any = 0;
    if (!fact_get(cl, id, UUID_KHR, uuid, sizeof uuid))
        return false;
    size_t n = (size_t)snprintf(to, room, "uuid-");
    for (size_t i = 0; i < sizeof uuid && n + 2 < room; i++) {
        n += (size_t)snprintf(to + n, room - n, "%02x", uuid[i]);
        any |= uuid[i];
    }
    return any != 0;
}

/* The same after every start of the machine: the bus, else the UUID, else platform, name and
 * number. */
static void uid_of(const ocl_plugin *p, uint32_t i, char *to, size_t room) {
    char platform[32] = "";
    char name[32] = "";
    const ocl_found *f = &p->found[i];
    if (pci_uid(&p->icd, f->id, to, room) || uuid_uid(&p->icd, f->id, to, room))
        return;
    p->icd.GetPlatformInfo(f->platform, CL_PLATFORM_NAME, sizeof platform - 1, platform, NULL);
    get_text(&p->icd, f->id, CL_DEVICE_NAME, name, sizeof name);
    uint32_t nth = 0;
    for (uint32_t k = 0; k < i; k++)
        nth += p->found[k].platform == f->platform;
    snprintf(to, room, "opencl-%.20s-%.31s-%u", platform, name, nth);
    for (char *c = to; *c; c++)
        if (*c == ' ')
            *c = '_';
}

typedef bool (*uid_fn)(const ocl_icd *cl, cl_device_id id, char *to, size_t room);

/* Whether an earlier device of the list has the same answer. */
static bool is_known_by(const ocl_plugin *p, cl_device_id id, uid_fn uid) {
    char mine[64];
    char other[64];
    if (!uid(&p->icd, id, mine, sizeof mine))
        return false;
    for (uint32_t i = 0; i < p->n_found; i++)
        if (uid(&p->icd, p->found[i].id, other, sizeof other) && !strcmp(mine, other))
            return true;
    return false;
}

/* Whether another platform has shown the device: by its place on the bus or by its UUID. */
static bool is_duplicate(const ocl_plugin *p, cl_device_id id) {
    return is_known_by(p, id, pci_uid) || is_known_by(p, id, uuid_uid);
}

/* Devices that can compile, of one platform. */
static void search_platform(ocl_plugin *p, cl_platform_id platform) {
    cl_device_id ids[OCL_MAX_FOUND];
    cl_uint n = 0;
    const cl_int code = p->icd.GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, OCL_MAX_FOUND, ids, &n);
    if (code != CL_SUCCESS)
        return;
    for (cl_uint i = 0; i < n && i < OCL_MAX_FOUND && p->n_found < OCL_MAX_FOUND; i++) {
        const bool usable = get_u32(&p->icd, ids[i], CL_DEVICE_AVAILABLE) &&
                            get_u32(&p->icd, ids[i], CL_DEVICE_COMPILER_AVAILABLE) &&
                            get_u32(&p->icd, ids[i], CL_DEVICE_ENDIAN_LITTLE);
        if (usable && !is_duplicate(p, ids[i]))
            p->found[p->n_found++] = (ocl_found){platform, ids[i]};
    }
}

/* Fills p->found once, under the lock. */
static mn_status search(ocl_plugin *p, mn_error *err) {
    cl_platform_id platforms[OCL_MAX_FOUND];
    cl_uint n = 0;
    if (p->searched)
        return MN_OK;
    const mn_status st = ocl_icd_open(&p->icd, err);
    if (st)
        return st;
    /* a loader without drivers answers with an error of its own */
    if (p->icd.GetPlatformIDs(OCL_MAX_FOUND, platforms, &n) != CL_SUCCESS || !n)
        return mnp_fail(err, MN_NO_DEVICE, ~0u,
                        "the OpenCL loader finds no driver (/etc/OpenCL/vendors)");
    for (cl_uint i = 0; i < n && i < OCL_MAX_FOUND; i++)
        search_platform(p, platforms[i]);
    if (!p->n_found)
        return mnp_fail(err, MN_NO_DEVICE, ~0u, "%u OpenCL platforms show no usable device", n);
    p->searched = true;
    ocl_describe(p);
    return MN_OK;
}

static mn_status find_devices(ocl_plugin *p, mn_error *err) {
    ocl_signals signals;
    pthread_mutex_lock(&p->lock);
    ocl_signals_keep(&signals);
    const mn_status st = search(p, err);
    ocl_signals_restore(&signals);
    pthread_mutex_unlock(&p->lock);
    return st;
}

mn_status ocl_device_count(mng_plugin *base, uint32_t *n, mn_error *err) {
    ocl_plugin *p = (ocl_plugin *)base;
    const mn_status st = find_devices(p, err);
    if (!st)
        *n = p->n_found;
    return st;
}

static uint32_t kind_of(cl_device_type type) {
    if (type & CL_DEVICE_TYPE_CPU)
        return MN_DEVICE_CPU;
    if (type & CL_DEVICE_TYPE_GPU)
        return MN_DEVICE_GPU;
    return MN_DEVICE_OTHER;
}

bool ocl_shares_host(const ocl_plugin *p, cl_device_id id) {
    return get_u32(&p->icd, id, CL_DEVICE_HOST_UNIFIED_MEMORY) &&
           mng_option(p->base.host, "unified", 1) != 0;
}

mn_status ocl_device_info(mng_plugin *base, uint32_t i, mn_device_info *info, mn_error *err) {
    const ocl_plugin *p = (const ocl_plugin *)base;
    const ocl_icd *cl = &p->icd;
    const cl_device_id id = p->found[i].id;
    char version[32];
    (void)err;
    info->kind = kind_of(get_u64(cl, id, CL_DEVICE_TYPE));
    get_text(cl, id, CL_DEVICE_NAME, info->name, sizeof info->name);
    get_text(cl, id, CL_DRIVER_VERSION, version, sizeof version);
    snprintf(info->driver, sizeof info->driver, "OpenCL %s", version);
    uid_of(p, i, info->uid, sizeof info->uid);
    const bool shares_host = get_u32(cl, id, CL_DEVICE_HOST_UNIFIED_MEMORY);
    snprintf(info->mem_pool, sizeof info->mem_pool, "%s", shares_host ? "host" : info->uid);
    info->mem_total = get_u64(cl, id, CL_DEVICE_GLOBAL_MEM_SIZE);
    info->max_alloc = get_u64(cl, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    info->flags = MN_DEVICE_ASYNC | MN_DEVICE_PARALLEL_PUT;
    if (ocl_shares_host(p, id))
        info->flags |= MN_DEVICE_WRAPS;
    info->launch_us = 6;
    return MN_OK;
}
