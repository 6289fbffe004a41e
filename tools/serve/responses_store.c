/* responses_store.c -- responses by id, and in the order of their age. An entry is one allocation:
 * its texts lie behind it. */
#include "serve/responses_store.h"
#include "ground.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024 };

typedef struct entry {
    struct entry *older, *newer, *next; /* next: of the same bucket */
    int key;
    size_t n_id, n_response, n_input, n_output;
    char text[]; /* the id, then the texts */
} entry;

struct responses_store {
    pthread_mutex_t lock;
    entry *newest, *oldest;
    entry *buckets[BUCKETS];
    size_t n_bytes, most;
};

static size_t bytes_of(const entry *x) {
    return sizeof *x + x->n_id + x->n_response + x->n_input + x->n_output;
}

static entry **bucket_of(responses_store *t, const char *id) {
    return &t->buckets[mn_fnv_z(MN_FNV_BASIS, id) % BUCKETS];
}

/* Where the pointer to an entry is; *NULL: there is none. */
static entry **entry_find(responses_store *t, const char *id, int key) {
    const size_t n = strlen(id) + 1;
    entry **at = bucket_of(t, id);
    while (*at && ((*at)->key != key || (*at)->n_id != n || memcmp((*at)->text, id, n) != 0))
        at = &(*at)->next;
    return at;
}

static void entry_remove(responses_store *t, entry **at) {
    entry *x = *at;
    *at = x->next;
    if (x->newer)
        x->newer->older = x->older;
    else
        t->newest = x->older;
    if (x->older)
        x->older->newer = x->newer;
    else
        t->oldest = x->newer;
    t->n_bytes -= bytes_of(x);
    free(x);
}

static void entry_insert(responses_store *t, entry *x) {
    entry **at = bucket_of(t, x->text);
    x->next = *at;
    *at = x;
    x->older = t->newest;
    x->newer = NULL;
    if (t->newest)
        t->newest->newer = x;
    else
        t->oldest = x;
    t->newest = x;
    t->n_bytes += bytes_of(x);
}

responses_store *responses_store_open(size_t most) {
    responses_store *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->most = most;
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void responses_store_free(responses_store *t) {
    if (!t)
        return;
    while (t->oldest)
        entry_remove(t, entry_find(t, t->oldest->text, t->oldest->key));
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Copies a text to *at and moves it behind. */
static size_t copy_text(char **at, const mn_text *text) {
    if (text->len)
        memcpy(*at, text->ptr, text->len);
    *at += text->len;
    return text->len;
}

void responses_store_put(responses_store *t, const char *id, int key, const mn_text *response,
                         const mn_text *input, const mn_text *output) {
    const size_t n_id = strlen(id) + 1;
    const size_t n = n_id + response->len + input->len + output->len;
    const int is_whole = !response->failed && !input->failed && !output->failed;
    entry *x = is_whole && sizeof *x + n <= t->most ? malloc(sizeof *x + n) : NULL;
    if (!x)
        return;
    char *at = x->text;
    memcpy(at, id, n_id);
    at += n_id;
    x->key = key;
    x->n_id = n_id;
    x->n_response = copy_text(&at, response);
    x->n_input = copy_text(&at, input);
    x->n_output = copy_text(&at, output);
    pthread_mutex_lock(&t->lock);
    entry_insert(t, x);
    while (t->n_bytes > t->most)
        entry_remove(t, entry_find(t, t->oldest->text, t->oldest->key));
    pthread_mutex_unlock(&t->lock);
}

int responses_store_get(responses_store *t, const char *id, int key, mn_text *response,
                        mn_text *input, mn_text *output) {
    pthread_mutex_lock(&t->lock);
    const entry *x = *entry_find(t, id, key);
    const char *at = x ? x->text + x->n_id : NULL;
    if (x && response)
        mn_text_put(response, at, x->n_response);
    if (x && input)
        mn_text_put(input, at + x->n_response, x->n_input);
    if (x && output)
        mn_text_put(output, at + x->n_response + x->n_input, x->n_output);
    pthread_mutex_unlock(&t->lock);
    return x != NULL;
}

int responses_store_drop(responses_store *t, const char *id, int key) {
    pthread_mutex_lock(&t->lock);
    entry **at = entry_find(t, id, key);
    const int found = *at != NULL;
    if (found)
        entry_remove(t, at);
    pthread_mutex_unlock(&t->lock);
    return found;
}
