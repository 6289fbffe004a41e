/* json_test.c -- bodies of requests: numbers that cJSON accepts and JSON does not, and members with
 * one name, of which the last counts, at all levels. */
#include "json_strict.h"
#include "serve/json.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cJSON *parse(const char *text, json_error *e) {
    memset(e, 0, sizeof *e);
    return json_parse(text, strlen(text), e);
}

static void check_numbers(void) {
    static const char *const good[] = {"0",   "-0",    "1",     "10",   "-12",    "0.5",  "1.25",
                                       "1e5", "1E+05", "1e-07", "-0e0", "1.0e10", "1e999"};
    static const char *const bad[] = {"01",  "-01", "00",    "1.",  "-1.", "1.e5", "-.5",
                                      ".5",  "+1",  "-",     "1e",  "1e+", "1E-",  "1.5e",
                                      "1-2", "1+",  "1.2.3", "--1", "-e1", "0e",   "007.5"};
    static const char *const around[] = {"{\"a\":%s}", "{\"a\": %s }", "{\"a\":[1,%s]}",
                                         "{\"a\\\"\":\"01\",\"b\":{\"c\":[%s,2]}}"};
    char text[80];
    json_error e;
    for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
        for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
            snprintf(text, sizeof text, around[k], good[i]);
            cJSON *body = parse(text, &e);
            assert(body && !e.failed);
            cJSON_Delete(body);
        }
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            snprintf(text, sizeof text, around[k], bad[i]);
            assert(!parse(text, &e) && e.status == 400 && strstr(e.message, "not JSON"));
            assert(strstr(e.message, bad[i]));
        }
    }
    cJSON *body =
        parse("{\"a 01 1. \\\" 1e\":\"00 -.5 \\\\\",\"b\":1}", &e); // texts stay as they are
    assert(body && json_field(body, "b"));
    cJSON_Delete(body);
}

/* Python's json.loads makes `out` of `in`. */
static void check_members(void) {
    static const char *const cases[][2] = {
        {"{\"a\":1,\"a\":2}", "{\"a\":2}"},
        {"{\"a\":1,\"b\":2,\"a\":3,\"c\":4,\"a\":5}", "{\"a\":5,\"b\":2,\"c\":4}"},
        {"{\"x\":{\"a\":1,\"a\":{\"b\":1,\"b\":2}}}", "{\"x\":{\"a\":{\"b\":2}}}"},
        {"{\"x\":[[{\"a\":1,\"A\":2,\"a\":3}]]}", "{\"x\":[[{\"a\":3,\"A\":2}]]}"},
        {"{\"a\":[1],\"a\":null}", "{\"a\":null}"},
        {"{\"\":1,\"\":2,\"b\":0}", "{\"\":2,\"b\":0}"},
        {"{\"a\":1,\"\\u0061\":2}", "{\"a\":2}"},
    };
    json_error e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cJSON *body = parse(cases[i][0], &e);
        char *text = cJSON_PrintUnformatted(body);
        assert(text && !strcmp(text, cases[i][1]));
        cJSON_free(text);
        cJSON_Delete(body);
    }
    uint64_t seed = 0; // the digits are those of the member that stays
    cJSON *body = parse("{\"seed\":9007199254740993,\"n\":1,\"seed\":18446744073709551615}", &e);
    assert(json_read_u64(body, "seed", &seed, &e) && seed == UINT64_MAX);
    cJSON_Delete(body);
}

/* 300,000 members of one name, and as many of different ones: by sorting, not by searching. */
static void check_many(void) {
    enum { N = 300000 };
    char *text = malloc(N * 32);
    json_error e;
    assert(text);
    for (int same = 0; same < 2; same++) {
        char *at = text + sprintf(text, "{\"x\":{\"k0\":0");
        for (int i = 1; i <= N; i++)
            at += sprintf(at, ",\"k%d\":%d", same ? 0 : i % (N / 2), i);
        strcpy(at, "}}");
        cJSON *body = parse(text, &e);
        const cJSON *x = json_field(body, "x");
        assert(x && json_field(x, "k0")->valueint == N);
        assert(cJSON_GetArraySize(x) == (same ? 1 : N / 2));
        cJSON_Delete(body);
    }
    free(text);
}

int main(void) {
    check_numbers();
    check_members();
    check_many();
    return 0;
}
