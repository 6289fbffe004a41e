/* handshake.c -- how the ranks meet. Rank 0 listens on its address until all are here, and no
 * longer:
 *
 *   0 -> r   "MNRANKS1", nonce [16]
 *   r -> 0   "MNRANKS1", nonce [16], proof [16], u32 n, hello [n]
 *   0 -> r   u32 status, proof [16], u32 n, sentence [n]
 *
 * A proof is SipHash-2-4 of 128 bits over both nonces and the message, with a key made of the
 * token: neither the token nor anything that could be sent again crosses the net. A stranger is
 * turned away and does not end the wait; a rank that proves the token and is another version, or
 * has another model, ends it on both sides. A stranger has 2 s. What follows is not encrypted. */
#include "ranks/ranks_impl.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static const char magic[8] = "MNRANKS1";
enum { MAGIC = 8, MAX_HELLO = 8192, STRANGER_MS = 2000, RETRY_MS = 100, SEND_S = 4 };

/* ---- proofs and facts ------------------------------------------------------------------------ */
void mn_rank_proof(mn_str token, uint64_t from, const uint8_t nonces[2 * MN_NONCE],
                   const void *data, size_t n, uint8_t out[MN_PROOF]) {
    static const uint64_t to_key[2] = {0x4d696e6572766120, 0x72616e6b20746f6b};
    const uint64_t begin[2] = {0, token.len};
    const uint64_t side[2] = {from, n};
    uint64_t key[2];
    uint64_t h[2];
    mn_hash_keyed(to_key, begin, token.ptr, (size_t)token.len, key);
    mn_hash_keyed(key, side, nonces, 2 * MN_NONCE, h);
    mn_hash_keyed(key, h, data, n, h);
    memcpy(out, h, MN_PROOF);
}

/* In the same time wherever they differ. */
static bool is_proof(const uint8_t *a, const uint8_t *b) {
    uint8_t differ = 0;
    for (int i = 0; i < MN_PROOF; i++)
        differ |= a[i] ^ b[i];
    return !differ;
}

void mn_put_hello(mn_text *to, const mn_ranks_params *p) {
    mn_put_u32(to, p->place.rank);
    mn_put_u32(to, p->place.n_ranks);
    mn_put_u32(to, p->n_facts);
    for (uint32_t i = 0; i < p->n_facts; i++) {
        mn_put_bytes(to, p->facts[i].name, strlen(p->facts[i].name));
        mn_put_bytes(to, p->facts[i].value, strlen(p->facts[i].value));
    }
}

mn_status mn_check_hello(mn_str hello, const mn_ranks_params *p, uint32_t *rank, mn_error *err) {
    const uint8_t *at = (const uint8_t *)hello.ptr;
    mn_reader in = {at, at + hello.len, false};
    *rank = mn_take_u32(&in);
    const uint32_t n_ranks = mn_take_u32(&in);
    const uint32_t n_facts = mn_take_u32(&in);
    if (in.bad || !*rank || *rank >= p->place.n_ranks || n_ranks != p->place.n_ranks)
        return mn_fail(err, MN_BAD_INPUT, "found rank %u of %u, expected 1 to %u of %u", *rank,
                       n_ranks, p->place.n_ranks - 1, p->place.n_ranks);
    for (uint32_t i = 0; i < p->n_facts; i++) {
        const mn_str name = mn_take_bytes(&in);
        const mn_str found = mn_take_bytes(&in);
        const mn_rank_fact *f = &p->facts[i];
        if (in.bad || n_facts != p->n_facts || !mn_str_is(name, f->name))
            return mn_fail(err, MN_BAD_INPUT, "rank %u says nothing of its %s", *rank, f->name);
        if (!mn_str_is(found, f->value))
            return mn_fail(err, MN_BAD_INPUT,
                           "rank %u has another %s than rank 0: found %.*s, expected %s", *rank,
                           f->name, MN_STR_ARG(found), f->value);
    }
    return MN_OK;
}

/* ---- bytes with a limit of time -------------------------------------------------------------- */
static int left_ms(uint64_t until_ns) {
    const uint64_t now = mn_now_ns();
    return now < until_ns ? (int)MN_MIN((until_ns - now) / 1000000 + 1, 60000) : 0;
}

/* All n bytes; false: the other side ended, or it took too long. */
static bool receive(int fd, void *to, size_t n, uint64_t until_ns) {
    size_t got = 0;
    while (got < n) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const int ready = poll(&p, 1, left_ms(until_ns));
        if (ready < 0 && errno == EINTR)
            continue;
        const ssize_t k = ready > 0 ? recv(fd, (char *)to + got, n - got, 0) : 0;
        if (k <= 0)
            return false;
        got += (size_t)k;
    }
    return true;
}

static bool transmit(int fd, const mn_text *t) {
    size_t sent = 0;
    while (!t->failed && sent < t->len) {
        const ssize_t k = send(fd, t->ptr + sent, t->len - sent, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        sent += (size_t)k;
    }
    return !t->failed;
}

/* u32 n and n bytes behind it. */
static bool receive_text(int fd, mn_text *to, uint64_t until_ns) {
    char bytes[MAX_HELLO];
    uint32_t n = 0;
    if (!receive(fd, &n, sizeof n, until_ns) || n > sizeof bytes ||
        !receive(fd, bytes, n, until_ns))
        return false;
    mn_text_put(to, bytes, n);
    return !to->failed;
}

static bool make_nonce(uint8_t *out) {
    return getrandom(out, MN_NONCE, 0) == MN_NONCE;
}

/* Small messages at once; a send that gets nowhere for SEND_S fails. */
static void set_link(mn_link *l, int fd, uint32_t rank, const char *host) {
    const int on = 1;
    const struct timeval limit = {.tv_sec = SEND_S};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    l->fd = fd;
    l->rank = rank;
    snprintf(l->name, sizeof l->name, "rank %u (%.250s)", rank, host);
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */
typedef struct {
    mn_ranks *r;
    uint64_t until_ns;
    char refused[400]; /* the last stranger, and why */
} meeting;

static bool send_verdict(int fd, const mn_ranks_params *p, const uint8_t *nonces, mn_status st,
                         const char *why) {
    mn_text t = {0};
    uint8_t proof[MN_PROOF];
    mn_rank_proof(p->token, 0, nonces, why, strlen(why), proof);
    mn_put_u32(&t, (uint32_t)st);
    mn_put(&t, proof, sizeof proof);
    mn_put_u32(&t, (uint32_t)strlen(why));
    mn_put(&t, why, strlen(why));
    const bool sent = transmit(fd, &t);
    mn_text_free(&t);
    return sent;
}

static void turn_away(meeting *m, const char *host, const char *why) {
    snprintf(m->refused, sizeof m->refused, "; %.200s was refused: %s", host, why);
    mn_log(MN_LOG_WARN, "rank 0: a connection from %s was refused: %s", host, why);
}

/* Who proved the token. */
static mn_status take_rank(meeting *m, int *fd, const char *host, const uint8_t *nonces,
                           mn_str hello, mn_error *err) {
    mn_ranks *r = m->r;
    uint32_t rank = 0;
    mn_status st = mn_check_hello(hello, &r->params, &rank, err);
    if (!st && r->links[rank - 1].fd >= 0)
        st = mn_fail(err, MN_BAD_INPUT, "there are two ranks %u", rank);
    if (st)
        mn_fail_in(err, st, "%s", host);
    if (!send_verdict(*fd, &r->params, nonces, st, st ? err->msg : "") && !st) {
        turn_away(m, host, "it ended");
        return MN_OK;
    }
    if (st)
        return st;
    set_link(&r->links[rank - 1], *fd, rank, host);
    *fd = -1;
    return MN_OK;
}

/* One connection, whoever it is; fd is closed or taken. */
static mn_status hear(meeting *m, int fd, const char *host, mn_error *err) {
    const mn_ranks_params *p = &m->r->params;
    const uint64_t until = mn_now_ns() + STRANGER_MS * UINT64_C(1000000);
    uint8_t nonces[2 * MN_NONCE];
    uint8_t head[MAGIC + MN_NONCE + MN_PROOF];
    uint8_t proof[MN_PROOF];
    mn_text hello = {0};
    mn_text first = {0};
    mn_status st = MN_OK;
    const bool random = make_nonce(nonces);
    mn_put(&first, magic, MAGIC);
    mn_put(&first, nonces, MN_NONCE);
    const bool whole = random && transmit(fd, &first) && receive(fd, head, sizeof head, until) &&
                       receive_text(fd, &hello, until);
    if (!whole || memcmp(head, magic, MAGIC) != 0)
        turn_away(m, host, "it is no rank of Minerva");
    else {
        memcpy(nonces + MN_NONCE, head + MAGIC, MN_NONCE);
        mn_rank_proof(p->token, 1, nonces, hello.ptr, hello.len, proof);
        if (is_proof(proof, head + MAGIC + MN_NONCE))
            st = take_rank(m, &fd, host, nonces, (mn_str){hello.ptr, hello.len}, err);
        else {
            send_verdict(fd, p, nonces, MN_BAD_INPUT, "its token is not rank 0's");
            turn_away(m, host, "its token is not rank 0's");
        }
    }
    if (fd >= 0)
        close(fd);
    mn_text_free(&first);
    mn_text_free(&hello);
    return st;
}

/* Addresses of rank 0; freeaddrinfo. */
static struct addrinfo *look_up(const mn_rank_place *at, bool passive, const char **why) {
    char port[8];
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = passive ? AI_PASSIVE : 0};
    snprintf(port, sizeof port, "%u", at->port);
    const int e = getaddrinfo(at->host, port, &hints, &list);
    *why = e ? gai_strerror(e) : "";
    return e ? NULL : list;
}

/* On the address of rank 0 alone. -1: why. */
static int listen_at(const mn_rank_place *at, mn_error *err) {
    const char *why;
    const int on = 1;
    int fd = -1;
    struct addrinfo *list = look_up(at, true, &why);
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0)
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (fd >= 0 && !bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, 64))
            break;
        why = strerror(errno);
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    if (list)
        freeaddrinfo(list);
    if (fd < 0)
        mn_fail(err, MN_IO_ERROR,
                "rank 0 cannot listen on %s port %u (MASTER_ADDR, MASTER_PORT): %s", at->host,
                at->port, why);
    return fd;
}

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

/* Rank 0, until all are here or the time is over. */
static mn_status meet_all(mn_ranks *r, mn_error *err) {
    meeting m = {.r = r, .until_ns = mn_now_ns() + r->params.timeout_ns};
    mn_status st = MN_OK;
    const int listener = listen_at(&r->params.place, err);
    if (listener < 0)
        return MN_IO_ERROR;
    while (!st && n_missing(r)) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        char host[64] = "?";
        if (!left_ms(m.until_ns)) {
            char who[200];
            name_missing(r, who, sizeof who);
            st = mn_fail(err, MN_TIMEOUT, "rank %s of %u did not come within %.0f s%s", who,
                         r->params.place.n_ranks, (double)r->params.timeout_ns * 1e-9, m.refused);
            break;
        }
        forget_ended(r);
        if (poll(&p, 1, MN_MIN(left_ms(m.until_ns), RETRY_MS)) <= 0)
            continue;
        const int fd = accept4(listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        getnameinfo((struct sockaddr *)&from, size, host, sizeof host, NULL, 0, NI_NUMERICHOST);
        st = hear(&m, fd, host, err);
    }
    close(listener);
    return st;
}

/* ---- the others ------------------------------------------------------------------------------ */
/* Until rank 0 is there. */
static int connect_to(const mn_ranks_params *p, mn_error *err) {
    const uint64_t until = mn_now_ns() + p->timeout_ns;
    const char *why = "";
    do {
        struct addrinfo *list = look_up(&p->place, false, &why);
        int fd = -1;
        for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
            fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen))
                break;
            why = strerror(errno);
            if (fd >= 0)
                close(fd);
            fd = -1;
        }
        if (list)
            freeaddrinfo(list);
        if (fd >= 0)
            return fd;
        poll(NULL, 0, RETRY_MS);
    } while (left_ms(until));
    mn_fail(err, MN_TIMEOUT, "rank %u: rank 0 at %s port %u is not there after %.0f s: %s",
            p->place.rank, p->place.host, p->place.port, (double)p->timeout_ns * 1e-9, why);
    return -1;
}

static mn_status fail_stranger(const mn_ranks_params *p, mn_error *err) {
    return mn_fail(err, MN_BAD_INPUT, "rank %u: found no rank 0 of Minerva at %s port %u",
                   p->place.rank, p->place.host, p->place.port);
}

/* This rank's nonce, its hello, and the proof that it knows the token. nonces: rank 0's, then its
 * own. */
static bool send_hello(const mn_ranks_params *p, int fd, const uint8_t nonces[2 * MN_NONCE]) {
    uint8_t proof[MN_PROOF];
    mn_text hello = {0};
    mn_text t = {0};
    mn_put_hello(&hello, p);
    mn_rank_proof(p->token, 1, nonces, hello.ptr, hello.len, proof);
    mn_put(&t, magic, MAGIC);
    mn_put(&t, nonces + MN_NONCE, MN_NONCE);
    mn_put(&t, proof, sizeof proof);
    mn_put_u32(&t, (uint32_t)hello.len);
    mn_put(&t, hello.ptr, hello.len);
    const bool sent = !hello.failed && transmit(fd, &t);
    mn_text_free(&hello);
    mn_text_free(&t);
    return sent;
}

/* Rank 0's answer to the hello: a status, its own proof, and why it refuses. */
static mn_status hear_verdict(const mn_ranks_params *p, int fd, const uint8_t nonces[2 * MN_NONCE],
                              uint64_t until, mn_error *err) {
    uint8_t proof[MN_PROOF];
    uint8_t expected[MN_PROOF];
    uint32_t status = 0;
    mn_text why = {0};
    mn_status st = MN_OK;
    const bool answered = receive(fd, &status, sizeof status, until) &&
                          receive(fd, proof, sizeof proof, until) && receive_text(fd, &why, until);
    mn_rank_proof(p->token, 0, nonces, why.ptr, why.len, expected);
    if (!answered)
        st = fail_stranger(p, err);
    else if (!is_proof(proof, expected))
        st = mn_fail(err, MN_BAD_INPUT,
                     "rank %u: rank 0 at %s has another token (rank_token_file, "
                     "MINERVA_RANK_TOKEN)",
                     p->place.rank, p->place.host);
    else if (status)
        st = mn_fail(err, MN_BAD_INPUT, "rank %u: rank 0 at %s refused it: %.*s", p->place.rank,
                     p->place.host, (int)why.len, why.ptr ? why.ptr : "");
    mn_text_free(&why);
    return st;
}

/* Once; *again: rank 0 ended before it said anything, as one that ends does. */
static mn_status introduce(const mn_ranks_params *p, int fd, bool *again, mn_error *err) {
    const uint64_t until = mn_now_ns() + p->timeout_ns;
    uint8_t nonces[2 * MN_NONCE];
    uint8_t head[MAGIC + MN_NONCE];
    *again = !receive(fd, head, sizeof head, until);
    if (*again)
        return fail_stranger(p, err);
    if (memcmp(head, magic, MAGIC) != 0 || !make_nonce(nonces + MN_NONCE))
        return fail_stranger(p, err);
    memcpy(nonces, head + MAGIC, MN_NONCE);
    if (!send_hello(p, fd, nonces))
        return fail_stranger(p, err);
    return hear_verdict(p, fd, nonces, until, err);
}

mn_status mn_ranks_meet(mn_ranks *r, mn_error *err) {
    const mn_ranks_params *p = &r->params;
    const uint64_t until = mn_now_ns() + p->timeout_ns;
    mn_status st = MN_OK;
    bool again = true;
    if (!p->place.rank)
        return meet_all(r, err);
    while (again) {
        const int fd = connect_to(p, err);
        if (fd < 0)
            return MN_TIMEOUT;
        st = introduce(p, fd, &again, err);
        again = again && left_ms(until);
        if (st)
            close(fd);
        else
            set_link(&r->links[0], fd, 0, p->place.host);
        if (again)
            poll(NULL, 0, RETRY_MS);
    }
    return st;
}
