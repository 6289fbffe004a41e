/* test_ranks.c -- who a process is by the variables of its launcher, and what of a rank is refused:
 * proofs, facts, messages that are cut or none. */
#include "dtype.h"
#include "graph/build.h"
#include "ranks/ranks_impl.h"
#include "unit.h"
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- place ----------------------------------------------------------------------------------- */
static const char *const *variables; /* name, value, ..., NULL */
static const char *get(const char *name) {
    for (size_t i = 0; variables[i]; i += 2)
        if (!strcmp(variables[i], name))
            return variables[i + 1];
    return NULL;
}
#define V(...) ((const char *const[]){__VA_ARGS__, NULL})

static void place_is(const char *const *v, uint32_t rank, uint32_t n, uint32_t local,
                     const char *host, uint32_t port) {
    mn_rank_place p;
    mn_error err = MN_ERROR_INIT;
    variables = v;
    if (mn_rank_place_read(get, &p, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(p.rank, rank);
    assert_int_equal(p.n_ranks, n);
    if (n < 2)
        return;
    assert_int_equal(p.local_rank, local);
    assert_string_equal(p.host, host);
    assert_int_equal(p.port, port);
}

static void place_fails(const char *const *v, const char *words) {
    mn_rank_place p;
    mn_error err = MN_ERROR_INIT;
    variables = v;
    assert_int_equal(mn_rank_place_read(get, &p, &err), MN_BAD_INPUT);
    if (!strstr(err.msg, words))
        fail_msg("found \"%s\", expected \"%s\" in it", err.msg, words);
}

static void places(void **state) {
    (void)state;
    place_is(V("HOME", "/"), 0, 1, 0, "", 0);
    place_is(V("RANK", "0", "WORLD_SIZE", "1"), 0, 1, 0, "", 0);
    place_is(V("RANK", "1", "WORLD_SIZE", "4", "LOCAL_RANK", "0", "MASTER_ADDR", "10.0.0.1",
               "MASTER_PORT", "7"),
             1, 4, 0, "10.0.0.1", 7);
    place_is(V("RANK", "1", "WORLD_SIZE", "2", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "2"), 1, 2, 1,
             "127.0.0.1", 29500);
    place_is(V("OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "3",
               "OMPI_COMM_WORLD_LOCAL_RANK", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "3", "PMIX_RANK",
               "2"),
             2, 3, 2, "127.0.0.1", 29500);
    place_is(V("SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "8", "SLURM_LOCALID", "1",
               "SLURM_STEP_NODELIST", "node[03-07,9],other"),
             5, 8, 1, "node03", 29500);
    place_is(V("SLURM_PROCID", "0", "SLURM_NTASKS", "8"), 0, 1, 0, "", 0); /* a batch script */
    place_is(V("LWS_WORKER_INDEX", "1", "LWS_GROUP_SIZE", "2", "LWS_LEADER_ADDRESS", "a.b"), 1, 2,
             0, "a.b", 29500);
}

/* ---- graphs ---------------------------------------------------------------------------------- */
/* y = x + x, with two blobs that no operation of ours has. */
typedef struct {
    mn_graph g;
    mn_tensor tensors[2];
    mn_node node;
    int32_t operands[3];
    mn_str blobs[2];
    char bytes[6];
} little;

static void little_make(little *l) {
    *l = (little){.node = {.op = MN_OP_ADD, .contract = 1, .n_in = 2, .out_off = 2, .n_out = 1},
                  .operands = {0, 0, 1},
                  .bytes = "bytes"};
    for (int i = 0; i < 2; i++) {
        mn_tensor *t = &l->tensors[i];
        *t = (mn_tensor){.role = i ? MN_ROLE_OUTPUT : MN_ROLE_INPUT, .alias_of = -1, .n_dim = 1};
        t->dim[0] = 4;
        mn_dtype_by_id(MN_F32, &t->dtype);
    }
    l->blobs[0] = (mn_str){l->bytes, 5};
    l->blobs[1] = (mn_str){"", 0};
    l->g = (mn_graph){.size = sizeof l->g,
                      .n_nodes = 1,
                      .n_tensors = 2,
                      .n_operands = 3,
                      .node_stride = sizeof(mn_node),
                      .tensor_stride = sizeof(mn_tensor),
                      .symbol_stride = sizeof(mn_symbol),
                      .nodes = &l->node,
                      .tensors = l->tensors,
                      .operands = l->operands,
                      .step = -1,
                      .n_blobs = 2,
                      .blobs = l->blobs};
}

/* They are part of the digest and travel with a graph. */
static void blobs(void **state) {
    little l;
    mn_error err = MN_ERROR_INIT;
    mn_text text = {0};
    mn_arena arena = {0};
    mn_compile c = {0};
    const int64_t none = 0;
    (void)state;
    little_make(&l);
    mn_gb_digest(&l.g);
    const uint64_t digest = l.g.digest[0];
    l.bytes[1]++;
    mn_gb_digest(&l.g);
    assert_true(l.g.digest[0] != digest);
    const mn_compile ask = {.size = sizeof ask, .graph = &l.g, .node_hi = 1, .symbol_max = &none};
    mn_put_compile(&text, &ask);
    const uint8_t *at = (const uint8_t *)text.ptr;
    mn_reader r = {.at = at, .end = at + text.len};
    assert_int_equal(mn_take_compile(&r, &arena, &c, &err), MN_OK);
    assert_int_equal(c.graph->n_blobs, 2);
    assert_int_equal(c.graph->blobs[0].len, 5);
    assert_memory_equal(c.graph->blobs[0].ptr, l.bytes, 5);
    assert_int_equal(c.graph->blobs[1].len, 0);
    for (size_t n = 0; n < text.len; n += 3) { /* no end of it is read beyond */
        mn_reader cut = {.at = at, .end = at + n};
        assert_true(mn_take_compile(&cut, &arena, &c, &err) != MN_OK);
    }
    mn_arena_free(&arena);
    mn_text_free(&text);
}

/* Bytes that are not there are none of the host's. */
static void bad_blobs(void **state) {
    little l;
    mn_error err = MN_ERROR_INIT;
    (void)state;
    little_make(&l);
    assert_int_equal(mn_graph_check(&l.g, &err), MN_OK);
    l.blobs[1] = (mn_str){NULL, 1};
    assert_int_equal(mn_graph_check(&l.g, &err), MN_INVALID);
    assert_non_null(strstr(err.msg, "blob 1"));
    l.g.blobs = NULL;
    assert_int_equal(mn_graph_check(&l.g, &err), MN_INVALID);
}

static void bad_places(void **state) {
    (void)state;
    place_fails(V("RANK", "1"), "found RANK without WORLD_SIZE");
    place_fails(V("WORLD_SIZE", "2"), "found WORLD_SIZE without RANK");
    place_fails(V("RANK", "x", "WORLD_SIZE", "2"), "RANK: found \"x\"");
    place_fails(V("RANK", "2", "WORLD_SIZE", "2"), "expected a rank below");
    place_fails(V("RANK", "0", "WORLD_SIZE", "2"), "found no MASTER_ADDR");
    place_fails(V("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "a", "MASTER_PORT", "70000"),
                "MASTER_PORT: found \"70000\"");
    place_fails(V("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "a", "OMPI_COMM_WORLD_RANK", "1",
                  "OMPI_COMM_WORLD_SIZE", "2"),
                "expected the same");
}

/* ---- handshake ------------------------------------------------------------------------------- */
static mn_ranks_params params_of(uint32_t rank, const char *version) {
    mn_ranks_params p = {.place = {.rank = rank, .n_ranks = 3}, .n_facts = 2};
    p.facts[0].name = "version";
    p.facts[1].name = "model";
    snprintf(p.facts[0].value, sizeof p.facts[0].value, "%s", version);
    snprintf(p.facts[1].value, sizeof p.facts[1].value, "storyteller");
    return p;
}

static void facts(void **state) {
    const mn_ranks_params zero = params_of(0, "Minerva 1");
    const mn_ranks_params same = params_of(2, "Minerva 1");
    const mn_ranks_params other = params_of(1, "Minerva 2");
    mn_error err = MN_ERROR_INIT;
    mn_rank_seat seat;
    uint32_t rank = 0;
    mn_text t = {0};
    (void)state;
    mn_put_hello(&t, &same);
    assert_int_equal(mn_check_hello((mn_str){t.ptr, t.len}, &zero, &rank, &seat, &err), MN_OK);
    assert_int_equal(rank, 2);
    for (size_t n = 0; n < t.len; n++)
        assert_int_equal(mn_check_hello((mn_str){t.ptr, n}, &zero, &rank, &seat, &err),
                         MN_BAD_INPUT);
    mn_text_free(&t);
    mn_put_hello(&t, &other);
    assert_int_equal(mn_check_hello((mn_str){t.ptr, t.len}, &zero, &rank, &seat, &err),
                     MN_BAD_INPUT);
    assert_string_equal(err.msg, "rank 1 has another version than rank 0: found Minerva 2, "
                                 "expected Minerva 1");
    mn_text_free(&t);
}

/* Two ranks use one device only on different machines, or where it is not known. */
static void seats(void **state) {
    const mn_rank_seat a = {"here", "pci-1", "cuda:0", 2};
    const mn_rank_seat other = {"here", "pci-2", "cuda:1", 2};
    const mn_rank_seat far = {"there", "pci-1", "cuda:0", 2};
    const mn_rank_seat unknown = {"here", "", "other", 1};
    mn_error err = MN_ERROR_INIT;
    (void)state;
    assert_int_equal(mn_check_seats(1, &a, 0, &other, 3, &err), MN_OK);
    assert_int_equal(mn_check_seats(1, &a, 0, &far, 3, &err), MN_OK);
    assert_int_equal(mn_check_seats(1, &unknown, 0, &unknown, 3, &err), MN_OK);
    assert_int_equal(mn_check_seats(2, &a, 0, &a, 3, &err), MN_BAD_INPUT);
    assert_string_equal(err.msg,
                        "ranks 0 and 2 would use one device, cuda:0 (pci-1): found 3 ranks "
                        "and 2 devices there, expected a device for each rank");
}

/* A proof depends on the token, the side, both nonces and what is said. */
static void proofs(void **state) {
    uint8_t nonces[2 * MN_NONCE] = {1};
    uint8_t first[MN_PROOF];
    uint8_t other[MN_PROOF];
    const mn_str token = mn_str_of("secret");
    (void)state;
    mn_rank_proof(token, 0, nonces, "hello", 5, first);
    mn_rank_proof(token, 0, nonces, "hello", 5, other);
    assert_memory_equal(first, other, MN_PROOF);
    mn_rank_proof(mn_str_of("secreT"), 0, nonces, "hello", 5, other);
    assert_memory_not_equal(first, other, MN_PROOF);
    mn_rank_proof(token, 1, nonces, "hello", 5, other);
    assert_memory_not_equal(first, other, MN_PROOF);
    mn_rank_proof(token, 0, nonces, "hellO", 5, other);
    assert_memory_not_equal(first, other, MN_PROOF);
    nonces[2 * MN_NONCE - 1] ^= 1;
    mn_rank_proof(token, 0, nonces, "hello", 5, other);
    assert_memory_not_equal(first, other, MN_PROOF);
}

/* ---- meeting --------------------------------------------------------------------------------- */
enum { N_STRANGERS = 300, MEETING_S = 20 };

static mn_ranks_params meeting_of(uint32_t rank, uint32_t port) {
    mn_ranks_params p = params_of(rank, "Minerva 1");
    p.place.n_ranks = 2;
    p.place.port = port;
    p.timeout_ns = MEETING_S * UINT64_C(1000000000);
    p.token = mn_str_of("secret");
    snprintf(p.place.host, sizeof p.place.host, "127.0.0.1");
    return p;
}

/* A free port of the loopback address. */
static struct sockaddr_in free_address(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    close(fd);
    return at;
}

typedef struct {
    mn_ranks_params params;
    mn_ranks *ranks;
    mn_status st;
    mn_error err;
} opening;

static void *open_rank(void *arg) {
    opening *o = arg;
    o->st = mn_ranks_open(&o->params, &o->ranks, &o->err);
    return NULL;
}

/* Connects as soon as rank 0 listens, and stays. */
static int connect_stranger(const struct sockaddr_in *at) {
    for (int i = 0; i < MEETING_S * 100; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(fd, (const struct sockaddr *)at, sizeof *at))
            return fd;
        close(fd);
        poll(NULL, 0, 10);
    }
    return -1;
}

/* Connections that say nothing, begin a message, say something else, or announce too much; more
 * than rank 0 hears at a time. One after the other they would take ten minutes. */
static void strangers_keep_no_rank_out(void **state) {
    static const char *const said[] = {"", "MNRANKS1", "GET / HTTP/1.1\r\n\r\n",
                                       "MNRANKS1 a nonce of 16b a proof of 16b \xff\xff\xff\x7f"};
    const struct sockaddr_in at = free_address();
    opening zero = {.params = meeting_of(0, ntohs(at.sin_port)), .err = MN_ERROR_INIT};
    opening one = {.params = meeting_of(1, ntohs(at.sin_port)), .err = MN_ERROR_INIT};
    pthread_t thread;
    int strangers[N_STRANGERS];
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, open_rank, &zero), 0);
    for (int i = 0; i < N_STRANGERS; i++) {
        const char *words = said[i % MN_COUNT(said)];
        strangers[i] = connect_stranger(&at);
        assert_true(strangers[i] >= 0);
        send(strangers[i], words, strlen(words), MSG_NOSIGNAL);
    }
    open_rank(&one);
    pthread_join(thread, NULL);
    if (zero.st || one.st)
        fail_msg("rank 0: %s; rank 1: %s", zero.err.msg, one.err.msg);
    mn_ranks_free(zero.ranks);
    mn_ranks_free(one.ranks);
    for (int i = 0; i < N_STRANGERS; i++)
        close(strangers[i]);
}

/* ---- frames ---------------------------------------------------------------------------------- */
static void frames(void **state) {
    const mn_frame_head good = {MN_SAY_WRITE, MN_FRAME_MAGIC, 24};
    const mn_frame_head bad[] = {{MN_SAY_COUNT, MN_FRAME_MAGIC, 24},
                                 {MN_SAY_WRITE, MN_FRAME_MAGIC + 1, 24},
                                 {MN_SAY_WRITE, MN_FRAME_MAGIC, MN_MAX_FRAME + 1}};
    (void)state;
    mn_frame *f = mn_frame_new(&good);
    assert_non_null(f);
    assert_int_equal(f->n, 24);
    mn_free(f);
    for (size_t i = 0; i < MN_COUNT(bad); i++)
        assert_null(mn_frame_new(&bad[i]));
    for (uint32_t i = 0; i < MN_SAY_COUNT; i++)
        assert_string_not_equal(mn_say_name(i), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places), cmocka_unit_test(bad_places),
        cmocka_unit_test(blobs),  cmocka_unit_test(bad_blobs),
        cmocka_unit_test(facts),  cmocka_unit_test(seats),
        cmocka_unit_test(proofs), cmocka_unit_test(strangers_keep_no_rank_out),
        cmocka_unit_test(frames)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
