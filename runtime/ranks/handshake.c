/* handshake.c -- how the ranks meet: the messages, and the side of the ranks that call. meet.c has
 * the side of rank 0, which listens on its address until all are here, and no longer:
 *
 *   0 -> r   "MNRANKS1", nonce [16]
 *   r -> 0   "MNRANKS1", nonce [16], proof [16], u32 n, hello [n]
 *   0 -> r   u32 status, proof [16], u32 n, sentence [n]
 *
 * A proof is SipHash-2-4 of 128 bits over both nonces and the message, with a key made of the
 * token: neither the token nor anything that could be sent again crosses the net. What follows is
 * not encrypted. */
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

const char mn_rank_magic[MN_RANK_MAGIC] = "MNRANKS1";
enum { RETRY_MS = 100, SEND_S = 4 };

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

bool mn_rank_is_proof(const uint8_t *a, const uint8_t *b) {
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
    mn_put(to, &p->seat, sizeof p->seat);
}

/* Texts end with NUL, also if the other side sent none. */
static void take_seat(mn_reader *in, mn_rank_seat *seat) {
    mn_take(in, seat, sizeof *seat);
    seat->machine[sizeof seat->machine - 1] = 0;
    seat->uid[sizeof seat->uid - 1] = 0;
    seat->name[sizeof seat->name - 1] = 0;
}

mn_status mn_check_seats(uint32_t a, const mn_rank_seat *of_a, uint32_t b, const mn_rank_seat *of_b,
                         uint32_t n, mn_error *err) {
    if (!*of_a->uid || strcmp(of_a->uid, of_b->uid) != 0 ||
        strcmp(of_a->machine, of_b->machine) != 0)
        return MN_OK;
    return mn_fail(err, MN_BAD_INPUT,
                   "ranks %u and %u would use one device, %s (%s): found %u ranks and %u devices "
                   "there, expected a device for each rank",
                   MN_MIN(a, b), MN_MAX(a, b), of_a->name, of_a->uid, n, of_a->n_devices);
}

mn_status mn_check_hello(mn_str hello, const mn_ranks_params *p, uint32_t *rank, mn_rank_seat *seat,
                         mn_error *err) {
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
    take_seat(&in, seat);
    if (in.bad)
        return mn_fail(err, MN_BAD_INPUT, "rank %u says nothing of its device", *rank);
    return MN_OK;
}

/* ---- bytes with a limit of time -------------------------------------------------------------- */
int mn_rank_left_ms(uint64_t until_ns) {
    const uint64_t now = mn_now_ns();
    return now < until_ns ? (int)MN_MIN((until_ns - now) / 1000000 + 1, 60000) : 0;
}

/* All n bytes; false: the other side ended, or it took too long. */
static bool handshake_receive(int fd, void *to, size_t n, uint64_t until_ns) {
    size_t got = 0;
    while (got < n) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const int ready = poll(&p, 1, mn_rank_left_ms(until_ns));
        if (ready < 0 && errno == EINTR)
            continue;
        const ssize_t k = ready > 0 ? recv(fd, (char *)to + got, n - got, 0) : 0;
        if (k <= 0)
            return false;
        got += (size_t)k;
    }
    return true;
}

bool mn_rank_transmit(int fd, const mn_text *t) {
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
    char bytes[MN_RANK_MAX_HELLO];
    uint32_t n = 0;
    if (!handshake_receive(fd, &n, sizeof n, until_ns) || n > sizeof bytes ||
        !handshake_receive(fd, bytes, n, until_ns))
        return false;
    mn_text_put(to, bytes, n);
    return !to->failed;
}

bool mn_rank_nonce(uint8_t out[MN_NONCE]) {
    return getrandom(out, MN_NONCE, 0) == MN_NONCE;
}

void mn_rank_link_set(mn_link *l, int fd, uint32_t rank, const char *host) {
    const int on = 1;
    const struct timeval limit = {.tv_sec = SEND_S};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    l->fd = fd;
    l->rank = rank;
    snprintf(l->name, sizeof l->name, "rank %u (%.250s)", rank, host);
}

struct addrinfo *mn_rank_look_up(const mn_rank_place *at, bool passive, const char **why) {
    char port[8];
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = passive ? AI_PASSIVE : 0};
    snprintf(port, sizeof port, "%u", at->port);
    const int e = getaddrinfo(at->host, port, &hints, &list);
    *why = e ? gai_strerror(e) : "";
    return e ? NULL : list;
}

/* ---- the others ------------------------------------------------------------------------------ */
/* Until rank 0 is there. */
static int connect_to(const mn_ranks_params *p, mn_error *err) {
    const uint64_t until = mn_now_ns() + p->timeout_ns;
    const char *why = "";
    do {
        struct addrinfo *list = mn_rank_look_up(&p->place, false, &why);
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
    } while (mn_rank_left_ms(until));
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
    mn_put(&t, mn_rank_magic, MN_RANK_MAGIC);
    mn_put(&t, nonces + MN_NONCE, MN_NONCE);
    mn_put(&t, proof, sizeof proof);
    mn_put_u32(&t, (uint32_t)hello.len);
    mn_put(&t, hello.ptr, hello.len);
    const bool sent = !hello.failed && mn_rank_transmit(fd, &t);
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
    const bool answered = handshake_receive(fd, &status, sizeof status, until) &&
                          handshake_receive(fd, proof, sizeof proof, until) &&
                          receive_text(fd, &why, until);
    mn_rank_proof(p->token, 0, nonces, why.ptr, why.len, expected);
    if (!answered)
        st = fail_stranger(p, err);
    else if (!mn_rank_is_proof(proof, expected))
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
    uint8_t head[MN_RANK_MAGIC + MN_NONCE];
    *again = !handshake_receive(fd, head, sizeof head, until);
    if (*again)
        return fail_stranger(p, err);
    if (memcmp(head, mn_rank_magic, MN_RANK_MAGIC) != 0 || !mn_rank_nonce(nonces + MN_NONCE))
        return fail_stranger(p, err);
    memcpy(nonces, head + MN_RANK_MAGIC, MN_NONCE);
    if (!send_hello(p, fd, nonces))
        return fail_stranger(p, err);
    return hear_verdict(p, fd, nonces, until, err);
}

/* Calls rank 0 until it answers. */
static mn_status call_rank0(mn_ranks *r, mn_error *err) {
    const mn_ranks_params *p = &r->params;
    const uint64_t until = mn_now_ns() + p->timeout_ns;
    mn_status st = MN_OK;
    bool again = true;
    while (again) {
        const int fd = connect_to(p, err);
        if (fd < 0)
            return MN_TIMEOUT;
        st = introduce(p, fd, &again, err);
        again = again && mn_rank_left_ms(until);
        if (st)
            close(fd);
        else
            mn_rank_link_set(&r->links[0], fd, 0, p->place.host);
        if (again)
            poll(NULL, 0, RETRY_MS);
    }
    return st;
}

mn_status mn_ranks_meet(mn_ranks *r, mn_error *err) {
    return r->params.place.rank ? call_rank0(r, err) : mn_ranks_hear_all(r, err);
}
