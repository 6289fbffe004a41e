/* rank_place.c -- who this process is among those that a launcher started: one row per launcher.
 * The first row whose variables are set counts; what a user sets by hand (RANK, WORLD_SIZE) must
 * agree with the launcher's, for one of the two would be ignored. */
#include "ranks/ranks.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_PORT = 29500, MAX_RANKS = 1024 };

/* Names of variables; NULL = it has none. here: how many of the processes are on this machine.
 * hosts: a list "node[03-07,9],other", whose first has rank 0. */
typedef struct {
    const char *launcher;
    const char *rank;
    const char *size;
    const char *local_rank;
    const char *here;
    const char *address;
    const char *hosts;
} launcher_row;
/* Slurm sets SLURM_PROCID in batch scripts, too, where one process runs: only the size of a step
 * says that srun started this one. */
static const launcher_row launchers[] = {
    {"the environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL, NULL},
    {"PMIx", "PMIX_RANK", "WORLD_SIZE", "LOCAL_RANK", NULL, NULL, NULL},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL},
    {"LeaderWorkerSet", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE", NULL, NULL, "LWS_LEADER_ADDRESS",
     NULL},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, NULL,
     "SLURM_STEP_NODELIST"},
};
enum { BY_HAND = 0, PMIX = 1 };

typedef const char *(*get_fn)(const char *name);

/* An empty variable is one that is not set. */
static const char *rank_place_value_of(get_fn get, const char *name) {
    const char *value = name ? get(name) : NULL;
    return value && *value ? value : NULL;
}

static mn_status rank_place_read_number(get_fn get, const char *name, uint32_t most, uint32_t *out,
                                        mn_error *err) {
    const char *value = rank_place_value_of(get, name);
    int64_t n = 0;
    if (!value)
        return MN_OK;
    if (!mn_parse_i64(mn_str_of(value), &n) || n < 0 || n > most)
        return mn_fail(err, MN_BAD_INPUT, "%s: found \"%s\", expected a number from 0 to %u", name,
                       value, most);
    *out = (uint32_t)n;
    return MN_OK;
}

/* Rank and size of a row. *set: whether it has them. */
static mn_status read_row(get_fn get, size_t i, mn_rank_place *out, bool *set, mn_error *err) {
    const launcher_row *row = &launchers[i];
    const char *rank = rank_place_value_of(get, row->rank);
    const char *size = rank_place_value_of(get, row->size);
    mn_rank_place p = {.launcher = row->launcher, .port = DEFAULT_PORT};
    *set = rank && size;
    if (i == BY_HAND && !rank != !size && !rank_place_value_of(get, launchers[PMIX].rank))
        return mn_fail(err, MN_BAD_INPUT, "found %s without %s, expected both",
                       rank ? row->rank : row->size, rank ? row->size : row->rank);
    if (i > PMIX && size && !rank)
        return mn_fail(err, MN_BAD_INPUT, "found %s without %s, expected both", row->size,
                       row->rank);
    if (!*set)
        return MN_OK;
    mn_status st = rank_place_read_number(get, row->size, MAX_RANKS, &p.n_ranks, err);
    if (!st)
        st = rank_place_read_number(get, row->rank, MAX_RANKS, &p.rank, err);
    p.local_rank = p.rank;
    if (!row->local_rank) /* one process a machine */
        p.local_rank = 0;
    if (!st)
        st = rank_place_read_number(get, row->local_rank, MAX_RANKS, &p.local_rank, err);
    if (!st && p.rank >= p.n_ranks)
        return mn_fail(err, MN_BAD_INPUT, "%s is %u, %s is %u: expected a rank below the number",
                       row->rank, p.rank, row->size, p.n_ranks);
    *out = p;
    return st;
}

/* The first host of "node[03-07,9],other". */
static void first_host(const char *list, char *out, size_t cap) {
    const size_t plain = strcspn(list, "[,");
    size_t digits = 0;
    if (list[plain] == '[')
        digits = strcspn(list + plain + 1, "-,]");
    snprintf(out, cap, "%.*s%.*s", (int)plain, list, (int)digits, list + plain + 1);
}

static mn_status read_address(get_fn get, const launcher_row *row, mn_rank_place *out,
                              mn_error *err) {
    const char *given = rank_place_value_of(get, "MASTER_ADDR");
    const char *own = rank_place_value_of(get, row->address);
    const char *hosts = rank_place_value_of(get, row->hosts);
    uint32_t here = 0;
    mn_status st = rank_place_read_number(get, "MASTER_PORT", UINT16_MAX, &out->port, err);
    if (!st)
        st = rank_place_read_number(get, row->here, MAX_RANKS, &here, err);
    if (st)
        return st;
    if (given || own)
        snprintf(out->host, sizeof out->host, "%s", given ? given : own);
    else if (here == out->n_ranks)
        snprintf(out->host, sizeof out->host, "127.0.0.1");
    else if (hosts)
        first_host(hosts, out->host, sizeof out->host);
    else
        return mn_fail(err, MN_BAD_INPUT,
                       "rank %u of %u (%s): found no MASTER_ADDR, expected the address of rank 0",
                       out->rank, out->n_ranks, out->launcher);
    return MN_OK;
}

mn_status mn_rank_place_read(get_fn get, mn_rank_place *out, mn_error *err) {
    const launcher_row *row = NULL;
    *out = (mn_rank_place){.n_ranks = 1, .launcher = ""};
    for (size_t i = 0; i < MN_COUNT(launchers); i++) {
        mn_rank_place p;
        bool set = false;
        const mn_status st = read_row(get, i, &p, &set, err);
        if (st)
            return st;
        if (!set)
            continue;
        if (row && (p.rank != out->rank || p.n_ranks != out->n_ranks))
            return mn_fail(err, MN_BAD_INPUT,
                           "%s and %s say rank %u of %u, %s and %s say %u of %u: expected the same",
                           row->rank, row->size, out->rank, out->n_ranks, launchers[i].rank,
                           launchers[i].size, p.rank, p.n_ranks);
        if (!row)
            *out = p;
        const bool is_launcher = row || i > PMIX; /* inner launchers hide outer ones */
        row = row ? row : &launchers[i];
        if (is_launcher)
            break;
    }
    if (!row || out->n_ranks < 2) {
        *out = (mn_rank_place){.n_ranks = 1, .launcher = ""};
        return MN_OK;
    }
    return read_address(get, row, out, err);
}
