/* constraint_texts N [MODEL [DEVICE]] -- for each JSON schema on standard input, one a line, N
 * answers of the model (default: the demo model) at temperature 1.5, a batch at once: a line
 * "SCHEMA FINISH TEXT" each, the text as a JSON string; SCHEMA counts from 0. For
 * constraint_schemas.py. */
#include <minerva/minerva.h>
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMAS = 512, LINE = 1 << 20, TEXT = 1 << 16, MOST_NEW = 1000, DEMO_NEW = 300 };

typedef struct {
    int schema;
    size_t n;
    char text[TEXT];
} answer;

static mn_model *model;
static uint32_t most_new = DEMO_NEW;
static mn_constraint *constraint[SCHEMAS];
static mn_error err = MN_ERROR;

static void check(mn_status st) {
    if (!st)
        return;
    fprintf(stderr, "%s\n", err.msg);
    exit(1);
}

static int read_schemas(void) {
    static char line[LINE];
    int n = 0;
    while (n < SCHEMAS && fgets(line, sizeof line, stdin)) {
        const mn_constraint_params p = {
            .size = sizeof p, .kind = MN_CONSTRAINT_SCHEMA, .source = {line, strcspn(line, "\n")}};
        check(mn_constraint_create(model, &p, &constraint[n], &err));
        n++;
    }
    return n;
}

static void submit(mn_session *s, int schema, uint64_t seed) {
    const int32_t ids[] = {0, 300 + (int32_t)(seed % 1000)};
    const mn_sample_params p = {.size = sizeof p,
                                .max_new = most_new,
                                .temp = 1.5f,
                                .seed = seed,
                                .constraint = constraint[schema]};
    answer *a = calloc(1, sizeof *a);
    uint64_t id;
    if (!a)
        exit(1);
    a->schema = schema;
    const mn_request_params r = {.size = sizeof r, .sample = &p, .ids = ids, .n_ids = 2, .user = a};
    check(mn_session_submit(s, &r, &id, &err));
}

static void print(const answer *a, int finish) {
    cJSON *text = cJSON_CreateString(a->text);
    char *json = cJSON_PrintUnformatted(text);
    printf("%d %d %s\n", a->schema, finish, json);
    cJSON_free(json);
    cJSON_Delete(text);
}

/* One event; 1: an answer has ended. */
static int take(const mn_request_event *e) {
    answer *a = e->user;
    if (e->kind == MN_REQUEST_FINISH) {
        print(a, e->finish);
        if (e->finish == MN_FINISH_FAILED)
            fprintf(stderr, "%s\n", e->message);
        free(a);
        return 1;
    }
    if (e->kind != MN_REQUEST_TOKEN || e->finish == MN_FINISH_STOP)
        return 0;
    const mn_str piece = mn_model_token_text(model, e->id);
    if (a->n + piece.len < TEXT) {
        memcpy(a->text + a->n, piece.ptr, piece.len);
        a->n += piece.len;
    }
    return 0;
}

static void run(mn_session *s, int left) {
    while (left) {
        mn_request_events got = {.size = sizeof got};
        check(mn_session_next(s, 10000, &got, &err));
        for (uint32_t i = 0; i < got.n; i++)
            left -= take((const void *)((const char *)got.events + (size_t)i * got.stride));
    }
}

int main(int argc, char **argv) {
    mn_runtime *rt = NULL;
    mn_session *s = NULL;
    const mn_session_params p = {.size = sizeof p,
                                 .device = argc > 3 ? argv[3] : "cpu_simd",
                                 .precision = MN_PRECISION_EXACT,
                                 .n_seq = 16,
                                 .n_ctx = MOST_NEW + 8};
    const int n_each = argc > 1 ? atoi(argv[1]) : 1;
    if (argc > 2)
        most_new = MOST_NEW; /* random weights find no end */
    check(mn_runtime_create(NULL, &rt, &err));
    check(mn_model_open(rt, argc > 2 ? argv[2] : NULL, &model, &err));
    check(mn_session_create(model, &p, &s, &err));
    const int n = read_schemas();
    for (int k = 0; k < n_each; k++) {
        for (int i = 0; i < n; i++)
            submit(s, i, (uint64_t)k * SCHEMAS + (uint64_t)i);
        run(s, n);
    }
    mn_session_free(s);
    for (int i = 0; i < n; i++)
        mn_constraint_free(constraint[i]);
    mn_model_free(model);
    mn_runtime_free(rt);
    return 0;
}
