/* build.c -- programs from the embedded sources. A program is the shared head, the file of a weight
 * type where it has one, and one source; it is built when a kernel of it is first needed, and lives
 * as long as its device. */
#include "step_text.h"
#include "types.h"
#include <ctype.h>
#include <time.h>

#define TEXT(name) [OCL_SOURCE_##name] = ocl_text_##name,
static const char *const texts[OCL_N_SOURCES] = {OCL_SOURCES(TEXT)};
#define NAME(name) [OCL_SOURCE_##name] = #name,
static const char *const names[OCL_N_SOURCES] = {OCL_SOURCES(NAME)};

/* A log without its line breaks, for a later report, with the day: it is kept until another build
 * fails, whatever driver there is by then. */
static void keep_log(const mn_device *d, const ocl_source *s, char *log) {
    enum { MOST = 8192 };
    const time_t now = time(NULL);
    struct tm utc;
    char day[16] = "";
    if (gmtime_r(&now, &utc))
        strftime(day, sizeof day, "%Y-%m-%d", &utc);
    for (char *c = log; *c; c++)
        if (isspace((unsigned char)*c))
            *c = ' ';
    char *text = mng_new(d, MOST);
    if (!text)
        return;
    snprintf(text, MOST, "%s.cl on %s (%s), %s, %s: %s", s->name, d->base.name, d->base.driver, day,
             s->options, log);
    ocl_describe_failure(d->plugin, text);
    mng_delete(d, text);
}

/* The compiler's first words, on one line; all of them are kept for a report. */
static void read_log(const mn_device *d, const ocl_source *s, cl_program program, char *to,
                     size_t room) {
    size_t n = 0;
    const ocl_icd *cl = d->cl;
    to[0] = 0;
    if (cl->GetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) != CL_SUCCESS)
        return;
    char *log = mng_new(d, n + 1);
    if (!log)
        return;
    if (cl->GetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, n, log, NULL) == CL_SUCCESS)
        keep_log(d, s, log);
    snprintf(to, room, "%s", log);
    mng_delete(d, log);
}

/* Registers of an item, on NVIDIA: groups have 65,536. */
static const char *registers_of(const mn_device *d, uint32_t source) {
    if (d->ptx && source == OCL_SOURCE_sample)
        return " -cl-nv-maxrregcount=64";
    if (d->ptx && source == OCL_SOURCE_step)
        return " -cl-nv-maxrregcount=128";
    return "";
}

/* What a program is made of; variant: of step.cl, else the row of a type. */
static void source_of(const mn_device *d, uint32_t source, uint32_t variant, ocl_source *s) {
    const mng_type *type = ocl_type_at(variant);
    const bool samples = source == OCL_SOURCE_sample;
    s->name = names[source];
    s->variant = variant;
    s->n_texts = 0;
    if (source == OCL_SOURCE_step)
        ocl_step_texts(d, variant, s);
    else {
        s->texts[s->n_texts++] = ocl_text_args;
        s->texts[s->n_texts++] = ocl_text_common;
        if (type) {
            s->texts[s->n_texts++] = type->text;
            s->texts[s->n_texts++] = ocl_text_weight;
        }
        if (source == OCL_SOURCE_pieces) {
            s->texts[s->n_texts++] = "\n#define PIECES\n";
            s->texts[s->n_texts++] = ocl_text_mma;
        }
        if (source == OCL_SOURCE_distance) {
            s->texts[s->n_texts++] = "\n#define KV_SPLIT\n#define DISTANCES\n";
            s->texts[s->n_texts++] = ocl_text_cache;
        }
        s->texts[s->n_texts++] = texts[source];
        if (source == OCL_SOURCE_cache_split)
            s->texts[s->n_texts++] = ocl_text_cache;
    }
    const bool has_halves = source == OCL_SOURCE_mad && type && ocl_has_halves(type);
    snprintf(s->options, sizeof s->options, "%s -DLANES=%u%s%s%s%s%s", d->options,
             samples ? d->sample_lanes : d->lanes, registers_of(d, source), type ? " -DTYPE=" : "",
             type ? type->name : "", type ? type->options : "", has_halves ? " -DHAS_HALVES" : "");
}

/* The same of linear.cl, with groups that are not the default. */
static void source_of_shape(const mn_device *d, uint32_t variant, ocl_shape shape, ocl_source *s) {
    source_of(d, OCL_SOURCE_linear, variant, s);
    const size_t used = strlen(s->options);
    snprintf(s->options + used, sizeof s->options - used, " -DSHAPE_LANES=%u -DSHAPE_OUTPUTS=%u",
             shape.lanes, shape.outputs);
}

/* One line on a terminal, by the host; the user may stop here. */
static mn_status source_announce(const mn_device *d, const char *what, mn_error *err) {
    const mn_host *h = d->base.host;
    char text[96];
    snprintf(text, sizeof text, "compiling %s", what);
    if (MN_HAS(mn_host, h, progress) && h->progress(h->self, -1, mnp_str(text)))
        return mnp_fail(err, MN_CANCELLED, ~0u, "cancelled while %s", text);
    return MN_OK;
}

static mn_status source_compile(mn_device *d, const ocl_source *s, cl_program program,
                                mn_error *err) {
    char log[300];
    const cl_int code = d->cl->BuildProgram(program, 1, &d->id, s->options, NULL, NULL);
    if (code == CL_SUCCESS)
        return MN_OK;
    read_log(d, s, program, log, sizeof log);
    const mn_status st = ocl_check(code, NULL, "");
    mnp_fail(err, st, ~0u, "%s: the driver's compiler refuses %s.cl: %s (OpenCL error %d): %s",
             d->base.name, s->name, ocl_code_name(code), (int)code, log);
    return st;
}

/* what: the program, for the user. */
static mn_status from_source(mn_device *d, const ocl_source *s, const char *what, cl_program *out,
                             mn_error *err) {
    cl_int code;
    mn_status st = source_announce(d, what, err);
    if (st)
        return st;
    cl_program program = d->cl->CreateProgramWithSource(d->context, s->n_texts,
                                                        (const char **)s->texts, NULL, &code);
    if (!program)
        return ocl_check(code, err, "a program");
    st = source_compile(d, s, program, err);
    if (st) {
        d->cl->ReleaseProgram(program);
        return st;
    }
    ocl_binary_keep(d, s, program);
    *out = program;
    return MN_OK;
}

/* From the cache, else by the driver's compiler, whose handlers of signals go again. */
static mn_status make_of(mn_device *d, const ocl_source *s, cl_program *out, mn_error *err) {
    const mng_type *type = ocl_type_at(s->variant);
    const mn_host *h = d->base.host;
    const uint64_t from = h->now_ns(h->self);
    char what[64];
    snprintf(what, sizeof what, "%s.cl%s%s", s->name, type ? " for " : "", type ? type->name : "");
    mn_status st = MN_OK;
    ocl_signals signals;
    ocl_signals_keep(&signals);
    *out = ocl_binary_find(d, s);
    const bool found = *out != NULL;
    if (!found)
        st = from_source(d, s, what, out, err);
    ocl_signals_restore(&signals);
    if (!st)
        mng_log(d->base.host, MN_LOG_DEBUG, "%s %s in %.1f ms", what,
                found ? "from the cache" : "compiled", (double)(h->now_ns(h->self) - from) / 1e6);
    return st;
}

static mn_status built_make(mn_device *d, uint32_t source, uint32_t variant, const ocl_shape *shape,
                            cl_program *out, mn_error *err) {
    ocl_source s;
    if (shape)
        source_of_shape(d, variant, *shape, &s);
    else
        source_of(d, source, variant, &s);
    return make_of(d, &s, out, err);
}

mn_status ocl_build_shape(mn_device *d, const mng_type *type, ocl_shape shape, cl_program *out,
                          mn_error *err) {
    ocl_source s;
    source_of_shape(d, type->index, shape, &s);
    return make_of(d, &s, out, err);
}

static const ocl_built *built_find(const mn_device *d, uint32_t source, uint32_t type) {
    for (const ocl_built *b = d->built; b; b = b->next)
        if (b->source == source && b->type == type)
            return b;
    return NULL;
}

/* Under the lock: whoever comes second for a program waits for it. */
static mn_status find_or_make(mn_device *d, uint32_t source, uint32_t type, const ocl_shape *shape,
                              cl_program *out, mn_error *err) {
    const ocl_built *there = built_find(d, source, type);
    if (there) {
        *out = there->program;
        return MN_OK;
    }
    ocl_built *b = mng_new(d, sizeof *b);
    if (!b)
        return mnp_fail_memory(err, sizeof *b, "a program");
    const mn_status st = built_make(d, source, type, shape, &b->program, err);
    if (st) {
        mng_delete(d, b);
        return st;
    }
    b->source = source;
    b->type = type;
    b->next = d->built;
    d->built = b;
    *out = b->program;
    return MN_OK;
}

mn_status ocl_build(mn_device *d, uint32_t source, uint32_t type, const ocl_shape *shape,
                    cl_program *out, mn_error *err) {
    mn_status st = ocl_start(d, err);
    if (st)
        return st;
    pthread_mutex_lock(&d->base.lock);
    st = find_or_make(d, source, type, shape, out, err);
    pthread_mutex_unlock(&d->base.lock);
    return st;
}

void ocl_drop_built(mn_device *d) {
    for (ocl_built *b = d->built; b;) {
        ocl_built *next = b->next;
        d->cl->ReleaseProgram(b->program);
        mng_delete(d, b);
        b = next;
    }
    d->built = NULL;
}
