/* wrap_rules.c -- rule call.wrap: memory that two processes share is host memory like any other. A
 * memfd is mapped twice: one mapping is wrapped, the other one is that of another process, which a
 * child is for the time of a write. */
#include "wrong.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRAP_BYTES = 1 << 16 };

typedef struct {
    uint8_t *here, *there; /* of the same pages */
    mn_buffer *wrapped, *dev, *pin;
    uint8_t *back; /* of pin */
} shared_memory;

static int shared_map(shared_memory *m) {
    const int fd = memfd_create("minerva-check", MFD_CLOEXEC);
    if (fd < 0)
        return 0;
    if (ftruncate(fd, WRAP_BYTES)) {
        close(fd);
        return 0;
    }
    m->here = mmap(NULL, WRAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    m->there = mmap(NULL, WRAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return m->here != MAP_FAILED && m->there != MAP_FAILED;
}

/* Another process writes n bytes from `at` on. 0: there is none. */
static int write_there(const shared_memory *m, uint64_t at, const void *bytes, uint64_t n) {
    int status = 0;
    const pid_t child = fork();
    if (!child) {
        memcpy(m->there + at, bytes, n);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && !status;
}

static void wrap_pattern(uint8_t *to, uint8_t seed) {
    for (uint32_t i = 0; i < WRAP_BYTES; i++)
        to[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

/* What the other process has written goes through the device and back. */
static void wrap_reads(check *c, stage *s, shared_memory *m, const uint8_t *bytes) {
    const mn_backend *be = s->p.be;
    mn_error *err = &s->p.err;
    mn_event *ev = NULL;
    CHECK(c, write_there(m, 0, bytes, WRAP_BYTES), "no process to write the shared memory");
    check_doing(c, "the device copied memory that another process has written");
    mn_status st = be->copy(s->p.queue, m->dev, 0, m->wrapped, 0, WRAP_BYTES, NULL, err);
    if (!st)
        st = be->read(s->p.queue, m->dev, 0, m->pin, 0, WRAP_BYTES, &ev, err);
    CHECK_OK(c, case_wait(be, st, &ev, err), err, "copy from memory that is wrapped");
    CHECK(c, !memcmp(m->back, bytes, WRAP_BYTES),
          "copy from memory that is wrapped: found other bytes than another process wrote there, "
          "expected them");
}

/* The other way. */
static void wrap_writes(check *c, stage *s, shared_memory *m, const uint8_t *bytes) {
    const mn_backend *be = s->p.be;
    mn_error *err = &s->p.err;
    mn_event *ev = NULL;
    check_doing(c, "the device wrote memory that is wrapped");
    mn_status st = be->write(s->p.queue, m->dev, 0, bytes, WRAP_BYTES, err);
    if (!st)
        st = be->copy(s->p.queue, m->wrapped, 0, m->dev, 0, WRAP_BYTES, &ev, err);
    CHECK_OK(c, case_wait(be, st, &ev, err), err, "copy to memory that is wrapped");
    CHECK(c, !memcmp(m->there, bytes, WRAP_BYTES),
          "copy to memory that is wrapped: another mapping of it shows other bytes, expected those "
          "that were copied");
}

/* An input of a step lies there, and where it was bound before are zeros. */
static void wrap_binds(check *c, stage *s, shared_memory *m) {
    case_plan *p = s->plan;
    op_case *o = s->o;
    mn_error *err = &s->p.err;
    static uint8_t want[WRAP_BYTES];
    uint32_t at = 0;
    uint32_t out = 0;
    CHECK_OK(c, case_step(p, o, err), err, "a step");
    while (at < p->n_bindings && o->t[p->binding[at].tensor].role != MN_ROLE_INPUT)
        at++;
    while (out < o->g.n_tensors && o->t[out].role != MN_ROLE_OUTPUT)
        out++;
    if (at == p->n_bindings || out == o->g.n_tensors || o->bytes[out] > WRAP_BYTES)
        return;
    mn_binding *b = &p->binding[at];
    if (b->bytes > WRAP_BYTES)
        return;
    memcpy(want, o->result[out], o->bytes[out]);
    CHECK(c, write_there(m, 0, o->data[b->tensor], o->bytes[b->tensor]),
          "no process to write an input");
    memset(o->data[b->tensor], 0, o->bytes[b->tensor]);
    b->buffer = m->wrapped;
    b->offset = 0;
    check_doing(c, "a step read an input that another process has written");
    mn_status st =
        s->p.be->context_bind(p->contexts[0], 0, p->binding, p->n_bindings, sizeof *b, err);
    if (!st)
        st = case_step(p, o, err);
    CHECK_OK(c, st, err, "a step with an input in memory that is wrapped");
    CHECK(c, !memcmp(o->result[out], want, o->bytes[out]),
          "a step with an input in memory that another process has written: found other results, "
          "expected those of the same input elsewhere");
}

static mn_status wrap_open(stage *s, shared_memory *m) {
    const mn_backend *be = s->p.be;
    mn_error *err = &s->p.err;
    mn_status st = be->wrap(s->p.dev, m->here, WRAP_BYTES, &m->wrapped, err);
    if (!st)
        st = mn_usual_alloc(be, s->p.dev, WRAP_BYTES, MN_MEM_DEVICE, &m->dev, err);
    if (!st)
        st = mn_usual_alloc(be, s->p.dev, WRAP_BYTES, MN_MEM_HOST_PINNED, &m->pin, err);
    if (!st)
        st = be->map(m->pin, (void **)&m->back, err);
    return st;
}

/* The memory stays the host's. */
static void wrap_close(check *c, stage *s, shared_memory *m) {
    const mn_backend *be = s->p.be;
    case_close(s->plan);
    s->plan = NULL;
    check_doing(c, "memory was used whose buffer was freed");
    be->buffer_free(m->wrapped);
    m->here[0] = 1;
    m->here[WRAP_BYTES - 1] = 2;
    CHECK(c, m->there[0] == 1 && m->there[WRAP_BYTES - 1] == 2,
          "buffer_free of memory that is wrapped: the mapping has changed");
    be->buffer_free(m->dev);
    be->buffer_free(m->pin);
    munmap(m->here, WRAP_BYTES);
    munmap(m->there, WRAP_BYTES);
    stage_close(c, s);
}

void check_call_wrap(check *c) {
    stage s;
    shared_memory m = {0};
    static uint8_t bytes[WRAP_BYTES];
    mn_device_info info = {.size = sizeof info};
    if (!stage_plan(c, &s))
        return;
    CHECK_OK(c, s.p.be->device_info(s.p.api->self, 0, &info, &s.p.err), &s.p.err, "device_info");
    if (!(info.flags & MN_DEVICE_WRAPS)) {
        stage_close(c, &s);
        check_skip(c, "the device has no MN_DEVICE_WRAPS");
        return;
    }
    CHECK(c, shared_map(&m), "no memory to share between processes (memfd_create)");
    check_doing(c, "memory of a memfd was wrapped");
    CHECK_OK(c, wrap_open(&s, &m), &s.p.err, "wrap of a mapping of a memfd");
    wrap_pattern(bytes, 1);
    wrap_reads(c, &s, &m, bytes);
    wrap_pattern(bytes, 101);
    if (!check_over(c))
        wrap_writes(c, &s, &m, bytes);
    if (!check_over(c))
        wrap_binds(c, &s, &m);
    if (!check_over(c))
        wrap_close(c, &s, &m);
}
