/* meet.c -- rank 0 while the ranks meet: it listens, and hears all callers at the same time, so
 * that connections that say nothing keep no rank out. handshake.c has the messages.
 *
 * A caller is a connection that has proved nothing yet. It has MN_RANK_CALLER_MS for its hello, and
 * where MAX_CALLERS wait, the oldest makes room. A caller that proves the token becomes a link, or
 * ends the meeting if it is another version or has another model; any other is turned away, which
 * does not end the wait. Callers belong to the meeting, which ends with mn_ranks_hear_all. */
#include "ranks/ranks_impl.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_CALLERS = 256,
    TICK_MS = 100,                                  /* how often links are looked at */
    HEAD = MN_RANK_MAGIC + MN_NONCE + MN_PROOF + 4, /* up to the length of the hello */
};

typedef struct {
    int fd; /* -1: turned away, or a link now */
    uint64_t until_ns;
    char host[64];
    uint8_t nonces[2 * MN_NONCE]; /* rank 0's, then the caller's */
    size_t got;
    uint8_t in[HEAD + MN_RANK_MAX_HELLO]; /* what it said so far */
} caller;

typedef struct {
    mn_ranks *r;
    int listener;
    uint64_t until_ns;
    caller *callers[MAX_CALLERS]; /* oldest first */
    uint32_t n_callers;
    char refused[400]; /* the last one turned away, and why */
} meeting;

/* ---- listening ------------------------------------------------------------------------------- */
/* On one address; -1: errno. */
static int meet_listen_on(const struct addrinfo *a) {
    const int on = 1;
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, MAX_CALLERS)) {
        const int e = errno;
        close(fd);
        errno = e;
        return -1;
    }
    return fd;
}

/* On the address of rank 0 alone; the socket does not block. -1: err. */
static int listen_at(const mn_rank_place *at, mn_error *err) {
    const char *why;
    int fd = -1;
    struct addrinfo *list = mn_rank_look_up(at, true, &why);
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = meet_listen_on(a);
        if (fd < 0)
            why = strerror(errno);
    }
    if (list)
        freeaddrinfo(list);
    if (fd < 0)
        mn_fail(err, MN_IO_ERROR,
                "rank 0 cannot listen on %s port %u (MASTER_ADDR, MASTER_PORT): %s", at->host,
                at->port, why);
    return fd;
}

/* ---- verdicts -------------------------------------------------------------------------------- */
static bool meet_send_verdict(const caller *c, const mn_ranks_params *p, mn_status st,
                              const char *why) {
    mn_text t = {0};
    uint8_t proof[MN_PROOF];
    mn_rank_proof(p->token, 0, c->nonces, why, strlen(why), proof);
    mn_put_u32(&t, (uint32_t)st);
    mn_put(&t, proof, sizeof proof);
    mn_put_u32(&t, (uint32_t)strlen(why));
    mn_put(&t, why, strlen(why));
    const bool sent = mn_rank_transmit(c->fd, &t);
    mn_text_free(&t);
    return sent;
}

static void caller_end(caller *c) {
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static void turn_away(meeting *m, caller *c, const char *why) {
    snprintf(m->refused, sizeof m->refused, "; %.200s was refused: %s", c->host, why);
    mn_log(MN_LOG_WARN, "rank 0: a connection from %s was refused: %s", c->host, why);
    caller_end(c);
}

/* The device of a rank that has come, against rank 0's and those of the ranks that are here. */
static mn_status compare_seats(const mn_ranks *r, uint32_t rank, const mn_rank_seat *seat,
                               mn_error *err) {
    const uint32_t n = r->params.place.n_ranks;
    mn_status st = mn_check_seats(rank, seat, 0, &r->params.seat, n, err);
    for (uint32_t i = 0; i < r->n_links && !st; i++)
        if (r->links[i].fd >= 0)
            st = mn_check_seats(rank, seat, i + 1, &r->links[i].seat, n, err);
    return st;
}

/* A caller that proved the token becomes a link. An error ends the meeting, and the caller is told
 * why. */
static mn_status caller_to_link(meeting *m, caller *c, mn_str hello, mn_error *err) {
    mn_ranks *r = m->r;
    mn_rank_seat seat;
    uint32_t rank = 0;
    mn_status st = mn_check_hello(hello, &r->params, &rank, &seat, err);
    if (!st && r->links[rank - 1].fd >= 0)
        st = mn_fail(err, MN_BAD_INPUT, "there are two ranks %u", rank);
    if (!st)
        st = compare_seats(r, rank, &seat, err);
    if (st)
        mn_fail_in(err, st, "%s", c->host);
    if (!meet_send_verdict(c, &r->params, st, st ? err->msg : "") && !st) {
        turn_away(m, c, "it ended");
        return MN_OK;
    }
    if (st)
        return st;
    mn_rank_link_set(&r->links[rank - 1], c->fd, rank, c->host);
    r->links[rank - 1].seat = seat;
    c->fd = -1;
    return MN_OK;
}

/* A whole message. */
static mn_status meet_judge(meeting *m, caller *c, mn_error *err) {
    const mn_ranks_params *p = &m->r->params;
    const uint8_t *said = c->in + MN_RANK_MAGIC + MN_NONCE;
    const mn_str hello = {(const char *)c->in + HEAD, c->got - HEAD};
    uint8_t proof[MN_PROOF];
    memcpy(c->nonces + MN_NONCE, c->in + MN_RANK_MAGIC, MN_NONCE);
    mn_rank_proof(p->token, 1, c->nonces, hello.ptr, hello.len, proof);
    if (mn_rank_is_proof(proof, said))
        return caller_to_link(m, c, hello, err);
    meet_send_verdict(c, p, MN_BAD_INPUT, "its token is not rank 0's");
    turn_away(m, c, "its token is not rank 0's");
    return MN_OK;
}

/* ---- callers --------------------------------------------------------------------------------- */
/* How many bytes the message has, as far as it says so. 0: it is no message of a rank. */
static size_t message_bytes(const caller *c) {
    uint32_t n;
    if (memcmp(c->in, mn_rank_magic, MN_MIN(c->got, (size_t)MN_RANK_MAGIC)) != 0)
        return 0;
    if (c->got < HEAD)
        return HEAD;
    memcpy(&n, c->in + HEAD - sizeof n, sizeof n);
    return n <= MN_RANK_MAX_HELLO ? HEAD + n : 0;
}

/* Reads what a caller says; never blocks. */
static mn_status hear(meeting *m, caller *c, mn_error *err) {
    for (;;) {
        const size_t want = message_bytes(c);
        if (want && c->got == want && want > HEAD)
            return meet_judge(m, c, err);
        if (!want || c->got == want)
            break;
        const ssize_t k = recv(c->fd, c->in + c->got, want - c->got, MSG_DONTWAIT);
        if (k < 0 && (errno == EAGAIN || errno == EINTR))
            return MN_OK;
        if (k <= 0)
            break;
        c->got += (size_t)k;
    }
    turn_away(m, c, "it is no rank of Minerva");
    return MN_OK;
}

/* Takes the callers out that ended. */
static void drop_ended(meeting *m) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_callers; i++) {
        caller *c = m->callers[i];
        if (c->fd >= 0)
            m->callers[n++] = c;
        else
            mn_free(c);
    }
    m->n_callers = n;
}

static void drop_late(meeting *m) {
    for (uint32_t i = 0; i < m->n_callers; i++)
        if (!mn_rank_left_ms(m->callers[i]->until_ns))
            turn_away(m, m->callers[i], "it is no rank of Minerva");
    drop_ended(m);
}

/* Greets a connection: rank 0's nonce. fd is the caller's, or closed. */
static void greet(meeting *m, int fd, const struct sockaddr_storage *from, socklen_t size) {
    mn_text first = {0};
    caller *c = mn_calloc(1, sizeof *c);
    if (!c) { /* it may call again */
        close(fd);
        return;
    }
    if (m->n_callers == MAX_CALLERS) {
        turn_away(m, m->callers[0], "too many connections that prove nothing");
        drop_ended(m);
    }
    *c = (caller){.fd = fd, .until_ns = mn_now_ns() + MN_RANK_CALLER_MS * UINT64_C(1000000)};
    if (getnameinfo((const struct sockaddr *)from, size, c->host, sizeof c->host, NULL, 0,
                    NI_NUMERICHOST))
        snprintf(c->host, sizeof c->host, "?");
    m->callers[m->n_callers++] = c;
    const bool random = mn_rank_nonce(c->nonces);
    mn_put(&first, mn_rank_magic, MN_RANK_MAGIC);
    mn_put(&first, c->nonces, MN_NONCE);
    if (!random || !mn_rank_transmit(fd, &first))
        turn_away(m, c, "it ended");
    mn_text_free(&first);
}

/* All connections that wait. */
static void greet_waiting(meeting *m) {
    for (uint32_t i = 0; i < MAX_CALLERS; i++) {
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        const int fd = accept4(m->listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC);
        if (fd < 0)
            return;
        greet(m, fd, &from, size);
    }
}

/* One round: waits until somebody calls or speaks, TICK_MS at the most. */
static mn_status hear_round(meeting *m, mn_error *err) {
    struct pollfd p[1 + MAX_CALLERS] = {{.fd = m->listener, .events = POLLIN}};
    mn_status st = MN_OK;
    const uint32_t n = m->n_callers;
    for (uint32_t i = 0; i < n; i++)
        p[1 + i] = (struct pollfd){.fd = m->callers[i]->fd, .events = POLLIN};
    if (poll(p, 1 + n, MN_MIN(mn_rank_left_ms(m->until_ns), TICK_MS)) > 0) {
        for (uint32_t i = 0; i < n && !st; i++)
            if (p[1 + i].revents)
                st = hear(m, m->callers[i], err);
        drop_ended(m);
        if (!st && p[0].revents)
            greet_waiting(m);
    }
    drop_late(m);
    return st;
}

/* ---- the meeting ----------------------------------------------------------------------------- */
/* "1, 3" */
static void name_missing(const mn_ranks *r, char *out, size_t cap) {
    size_t n = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < r->n_links && n + 16 < cap; i++)
        if (r->links[i].fd < 0)
            n += (size_t)snprintf(out + n, cap - n, "%s%u", n ? ", " : "", i + 1);
}

static uint32_t n_missing(const mn_ranks *r) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_links; i++)
        n += r->links[i].fd < 0;
    return n;
}

/* A rank that was here and ended while others were waited for. */
static void forget_ended(mn_ranks *r) {
    char byte;
    for (uint32_t i = 0; i < r->n_links; i++) {
        mn_link *l = &r->links[i];
        if (l->fd >= 0 && !recv(l->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK)) {
            close(l->fd);
            l->fd = -1;
        }
    }
}

static mn_status fail_missing(const meeting *m, mn_error *err) {
    char who[200];
    name_missing(m->r, who, sizeof who);
    return mn_fail(err, MN_TIMEOUT, "rank %s of %u did not come within %.0f s%s", who,
                   m->r->params.place.n_ranks, (double)m->r->params.timeout_ns * 1e-9, m->refused);
}

mn_status mn_ranks_hear_all(mn_ranks *r, mn_error *err) {
    meeting m = {.r = r, .until_ns = mn_now_ns() + r->params.timeout_ns};
    mn_status st = MN_OK;
    m.listener = listen_at(&r->params.place, err);
    if (m.listener < 0)
        return MN_IO_ERROR;
    while (!st && n_missing(r)) {
        forget_ended(r);
        st = mn_rank_left_ms(m.until_ns) ? hear_round(&m, err) : fail_missing(&m, err);
    }
    for (uint32_t i = 0; i < m.n_callers; i++)
        caller_end(m.callers[i]);
    drop_ended(&m);
    close(m.listener);
    return st;
}
