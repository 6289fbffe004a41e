/* exchange.h -- kernels with which the members of a group exchange tensors through each other's
 * memory (k_group.cu). Each member launches the same exchanges in the same order, with the same
 * grids; pointers of other members are addresses of peer memory. All tensors are dense f32. One
 * kernel only adds: what NCCL has brought.
 *
 * A mailbox is memory of a member in which the others leave words for it; it is zeroed before its
 * first use. The words of an exchange carry its number, which goes up by one with each exchange of
 * a context: two slots in turns are enough, for who sends number k has all of k - 1, whose senders
 * were done with k - 2. */
#ifndef CU_EXCHANGE_H
#define CU_EXCHANGE_H
#include "kernels.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { CU_MAX_MEMBERS = 16, CU_EXCHANGE_BLOCKS = 64, CU_PATIENCE = 20 /* seconds */ };

typedef struct {
    uint32_t number; /* of the first exchange of the step that runs next */
    uint32_t pad[63];
    uint32_t arrived[CU_MAX_MEMBERS][CU_EXCHANGE_BLOCKS]; /* [sender][block] how far it is */
    /* uint64_t words[2][n][small / 4] follow: a value, and above it the exchange it belongs to */
} cu_mailbox;

/* What all exchanges of a step have. */
typedef struct {
    cu_mailbox *mail[CU_MAX_MEMBERS]; /* by rank */
    volatile uint32_t *missed;        /* of this member */
    uint32_t rank, n;
    uint32_t index; /* among the exchanges of the step */
    /* Members share a card: while one waits here, no later kernel of it is started, which would
     * take the place of what it waits for. */
    bool one_card;
    int64_t room; /* words of a sender in a slot */
} cu_exchange;

/* Every member's y becomes the sum over all members' x, with `add` of this member on top where it
 * is not NULL; y may be x. n <= room goes in one shot, by words in mailboxes; else each member
 * sums a part and hands it to all. */
typedef struct {
    cu_exchange e;
    const float *x[CU_MAX_MEMBERS];
    float *y[CU_MAX_MEMBERS];
    const float *add;
    int64_t n;
} cu_sum;
void cu_sum_words(cudaStream_t s, const cu_sum *a);
void cu_sum_parts(cudaStream_t s, const cu_sum *a);
/* This member's y alone, of rows x that are all in its own memory; of e it reads rank and n. */
void cu_sum_rows(cudaStream_t s, const cu_sum *a);

/* Columns [first, first + width) of `rows` rows of `pitch`; fewer than 2^31 elements. */
typedef struct {
    int64_t rows, width, first, pitch;
} cu_columns;
/* Rows x of this member, of its width, become columns of every member's y. */
typedef struct {
    cu_exchange e;
    const float *x;
    float *y[CU_MAX_MEMBERS];
    cu_columns c;
} cu_gather_parts;
void cu_gather_run(cudaStream_t s, const cu_gather_parts *a);

/* The columns of x become the rows y; of this member alone. */
typedef struct {
    const float *x;
    float *y;
    cu_columns c;
} cu_take;
void cu_take_run(cudaStream_t s, const cu_take *a);

/* Behind the last exchange of a step: n of them are over. */
void cu_count_exchanges(cudaStream_t s, cu_mailbox *mail, uint32_t n);
#ifdef __cplusplus
}
#endif
#endif
