/* link.c -- connections between rank 0 and the others. One thread reads them all and gives signs of
 * life; whoever wants to say something sends it himself, whole frames under the lock of the
 * connection. Readers never stop to read, so that senders are not stopped for long, and signs of
 * life are not held up by work. */
#include "ranks/ranks_impl.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BEAT_MS = 500 };
#define SILENT_NS UINT64_C(4000000000)
#define GRACE_NS UINT64_C(3000000000)

mn_frame *mn_frame_new(const mn_frame_head *head) {
    if (head->magic != MN_FRAME_MAGIC || head->say >= MN_SAY_COUNT || head->n > MN_MAX_FRAME)
        return NULL;
    mn_frame *f = mn_alloc(1, sizeof *f + (size_t)head->n);
    if (f)
        *f = (mn_frame){NULL, head->say, head->n};
    return f;
}

/* ---- the end --------------------------------------------------------------------------------- */
/* Without waiting for anybody: a rank that reads no more is given up. */
static void tell_broken(mn_ranks *r) {
    const size_t n = strlen(r->why);
    char bytes[sizeof(mn_frame_head) + sizeof(uint64_t) + sizeof r->why];
    const uint64_t n_text = n;
    const mn_frame_head head = {MN_SAY_BROKEN, MN_FRAME_MAGIC, sizeof n_text + n};
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, &n_text, sizeof n_text);
    memcpy(bytes + sizeof head + sizeof n_text, r->why, n);
    for (uint32_t i = 0; i < r->n_links; i++) {
        mn_link *l = &r->links[i];
        if (l->fd < 0 || pthread_mutex_trylock(&l->send_lock))
            continue;
        const ssize_t sent = send(l->fd, bytes, sizeof head + head.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)sent;
        pthread_mutex_unlock(&l->send_lock);
    }
}

void mn_ranks_break(mn_ranks *r, const char *fmt, ...) {
    va_list args;
    pthread_mutex_lock(&r->wait_lock);
    const bool first = !r->broken && !r->over;
    if (first) {
        va_start(args, fmt);
        vsnprintf(r->why, sizeof r->why, fmt, args);
        va_end(args);
        r->broken = true;
    }
    pthread_cond_broadcast(&r->came);
    pthread_mutex_unlock(&r->wait_lock);
    if (!first)
        return;
    tell_broken(r);
    mn_log(MN_LOG_DEBUG, "ranks: %s", r->why);
    if (r->params.broken)
        r->params.broken(r->params.arg, r->why);
}

/* ---- sending --------------------------------------------------------------------------------- */
/* The lock of the connection is held; 0, or errno. A send that gets nowhere for 4 s fails: the
 * other side reads all the time. */
static int send_all(const mn_link *l, const void *bytes, size_t n) {
    const char *at = bytes;
    if (l->fd < 0)
        return EPIPE;
    while (n) {
        const ssize_t sent = send(l->fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return errno;
        at += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

void mn_link_send(mn_ranks *r, mn_link *l, const void *bytes, size_t n) {
    pthread_mutex_lock(&l->send_lock);
    const int e = send_all(l, bytes, n);
    pthread_mutex_unlock(&l->send_lock);
    if (e)
        mn_ranks_break(r, "%s has ended: %s", l->name, strerror(e));
}

void mn_link_say(mn_ranks *r, mn_link *l, uint32_t say, const void *data, size_t n) {
    const mn_frame_head head = {say, MN_FRAME_MAGIC, n};
    mn_text all = {0};
    mn_put(&all, &head, sizeof head);
    mn_put(&all, data, n);
    if (all.failed)
        mn_ranks_break(r, "rank %u: out of memory", r->params.place.rank);
    else
        mn_link_send(r, l, all.ptr, all.len);
    mn_text_free(&all);
}

/* ---- reading: the thread --------------------------------------------------------------------- */
static void take_broken(mn_ranks *r, const mn_frame *f) {
    mn_reader in = {f->data, f->data + f->n, false};
    const mn_str why = mn_take_bytes(&in);
    char text[600];
    mn_plain(text, sizeof text, why);
    mn_ranks_break(r, "%s", text);
}

/* A frame is whole. */
static void deliver(mn_ranks *r, mn_link *l) {
    mn_frame *f = l->frame;
    l->frame = NULL;
    l->got_head = 0;
    l->got = 0;
    if (f->say == MN_SAY_BROKEN)
        take_broken(r, f);
    if (f->say == MN_SAY_BEAT || f->say == MN_SAY_BROKEN) {
        mn_free(f);
        return;
    }
    pthread_mutex_lock(&r->wait_lock);
    l->said_bye |= f->say == MN_SAY_BYE;
    if (l->last)
        l->last->next = f;
    else
        l->first = f;
    l->last = f;
    pthread_cond_broadcast(&r->came);
    pthread_mutex_unlock(&r->wait_lock);
}

/* Some bytes into the head or the data. 1: there may be more; 0: none now; -1: the connection has
 * ended. */
static int read_some(mn_ranks *r, mn_link *l) {
    const bool in_head = l->got_head < sizeof l->head;
    void *to = in_head ? (uint8_t *)&l->head + l->got_head : l->frame->data + l->got;
    const size_t want = in_head ? sizeof l->head - l->got_head : (size_t)(l->frame->n - l->got);
    const ssize_t n = want ? recv(l->fd, to, want, MSG_DONTWAIT) : 0;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (!n && want)
        return -1;
    l->heard_ns = mn_now_ns();
    if (!in_head)
        l->got += (uint64_t)n;
    else {
        l->got_head += (size_t)n;
        if (l->got_head < sizeof l->head)
            return 1;
        l->frame = mn_frame_new(&l->head);
        if (!l->frame) {
            mn_ranks_break(r, "%s sent what is no message", l->name);
            return -1;
        }
    }
    if (l->got == l->frame->n)
        deliver(r, l);
    return 1;
}

static void read_link(mn_ranks *r, mn_link *l) {
    int more = 1;
    while (more > 0)
        more = read_some(r, l);
    if (more == 0)
        return;
    if (!r->over && !l->said_bye) /* an end behind BYE is one in order */
        mn_ranks_break(r, "%s has ended", l->name);
    l->heard_ns = mn_now_ns();
    pthread_mutex_lock(&l->send_lock);
    close(l->fd);
    l->fd = -1;
    pthread_mutex_unlock(&l->send_lock);
}

/* Rank 0 ended in order while this rank computes a step that can have no end. */
static void rank_link_give_up(mn_ranks *r, uint64_t now) {
    const mn_link *l = &r->links[0];
    if (r->params.place.rank && l->said_bye && l->fd < 0 && now - l->heard_ns > GRACE_NS)
        mn_ranks_break(r, "%s has ended in the middle of a step", l->name);
}

/* A sign of life to all, and who gave none. */
static void beat(mn_ranks *r, uint64_t now) {
    for (uint32_t i = 0; i < r->n_links; i++) {
        mn_link *l = &r->links[i];
        if (l->fd < 0)
            continue;
        if (now - l->heard_ns > SILENT_NS)
            mn_ranks_break(r, "%s has not been heard of for %.1f s", l->name,
                           (double)(now - l->heard_ns) * 1e-9);
        const mn_frame_head head = {MN_SAY_BEAT, MN_FRAME_MAGIC, 0};
        if (pthread_mutex_trylock(&l->send_lock))
            continue; /* what is being sent is a sign of life */
        const ssize_t sent = send(l->fd, &head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0)
            send_all(l, (const char *)&head + sent, sizeof head - (size_t)sent);
        pthread_mutex_unlock(&l->send_lock);
    }
}

/* The thread: reads, tells that this rank lives, and notices who does not. */
static void *rank_link_live(void *arg) {
    mn_ranks *r = arg;
    struct pollfd *fds = mn_calloc(r->n_links + 1, sizeof *fds);
    uint64_t beaten = 0;
    if (!fds)
        mn_ranks_break(r, "rank %u: out of memory", r->params.place.rank);
    while (fds && !r->over && !r->broken) {
        for (uint32_t i = 0; i < r->n_links; i++)
            fds[i] = (struct pollfd){.fd = r->links[i].fd, .events = POLLIN};
        fds[r->n_links] = (struct pollfd){.fd = r->wake[0], .events = POLLIN};
        poll(fds, r->n_links + 1, BEAT_MS / 2);
        for (uint32_t i = 0; i < r->n_links; i++)
            if (fds[i].revents)
                read_link(r, &r->links[i]);
        const uint64_t now = mn_now_ns();
        if (now - beaten > BEAT_MS * UINT64_C(1000000)) {
            beaten = now;
            beat(r, now);
            rank_link_give_up(r, now);
        }
    }
    mn_free(fds);
    return NULL;
}

mn_status mn_links_start(mn_ranks *r, mn_error *err) {
    const uint64_t now = mn_now_ns();
    for (uint32_t i = 0; i < r->n_links; i++)
        r->links[i].heard_ns = now;
    if (pipe(r->wake) || pthread_create(&r->thread, NULL, rank_link_live, r))
        return mn_fail(err, MN_IO_ERROR, "ranks: cannot start a thread: %s", strerror(errno));
    r->has_thread = true;
    return MN_OK;
}

void mn_links_stop(mn_ranks *r) {
    r->over = true;
    if (!r->has_thread)
        return;
    const ssize_t woke = write(r->wake[1], "", 1);
    (void)woke;
    pthread_join(r->thread, NULL);
    close(r->wake[0]);
    close(r->wake[1]);
}

mn_frame *mn_link_next(mn_ranks *r, mn_link *l) {
    pthread_mutex_lock(&r->wait_lock);
    while (!l->first && !r->broken && !r->over)
        pthread_cond_wait(&r->came, &r->wait_lock);
    mn_frame *f = r->broken ? NULL : l->first;
    if (f) {
        l->first = f->next;
        if (!l->first)
            l->last = NULL;
    }
    pthread_mutex_unlock(&r->wait_lock);
    return f;
}
