/* access_log.c -- a line on standard error for each request that ends (-v): who asked for what,
 * what came of it, how long it took. No texts of prompts or answers, and no keys: their names. */
#include "serve/serve.h"
#include <time.h>
#include <unistd.h>

enum { CLIENT_LEFT = 499 }; /* nginx's status of a request without an answer */

/* "2026-11-28T08:41:26.123Z" */
static void put_time(mn_text *out) {
    struct timespec now = {0};
    struct tm utc = {0};
    char day[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    mn_text_printf(out, "%s.%03ldZ", day, now.tv_nsec / 1000000);
}

/* The name of the key, else its number from 1; NULL: it came without one. */
static const char *access_log_key_of(const serve *s, const http_request *r, char *store, size_t n) {
    if (r->key < 0)
        return NULL;
    if (s->access.names[r->key][0])
        return s->access.names[r->key];
    snprintf(store, n, "%d", r->key + 1);
    return store;
}

static void put_z(mn_text *out, int as_json, const char *name, const char *value) {
    if (!value || !*value)
        return;
    mn_text_printf(out, as_json ? ",\"%s\":" : " %s=", name);
    json_stringz(out, value);
}

static void access_log_put_number(mn_text *out, int as_json, const char *name, double value) {
    mn_text_printf(out, as_json ? ",\"%s\":%.6g" : " %s=%.6g", name, value);
}

void access_log_write(const serve *s, const http_request *r) {
    const int as_json = s->flags->log_format == 1;
    const double now = seconds();
    char key[24];
    mn_text out = {0};
    if (!s->app_flags->verbose)
        return;
    mn_text_puts(&out, as_json ? "{\"time\":\"" : "minerva: ");
    put_time(&out);
    mn_text_puts(&out, as_json ? "\"" : "");
    put_z(&out, as_json, "id", r->id);
    put_z(&out, as_json, "key", access_log_key_of(s, r, key, sizeof key));
    put_z(&out, as_json, "method", r->method);
    put_z(&out, as_json, "path", r->path);
    put_z(&out, as_json, "model", r->model);
    access_log_put_number(&out, as_json, "status", r->status ? r->status : CLIENT_LEFT);
    if (r->n_prompt) {
        access_log_put_number(&out, as_json, "prompt_tokens", (double)r->n_prompt);
        access_log_put_number(&out, as_json, "completion_tokens", (double)r->n_new);
    }
    if (r->first_at > 0)
        access_log_put_number(&out, as_json, "first_s", r->first_at - r->since);
    access_log_put_number(&out, as_json, "total_s", r->since > 0 ? now - r->since : 0);
    mn_text_puts(&out, as_json ? "}\n" : "\n");
    if (!out.failed && write(STDERR_FILENO, out.ptr, out.len) < 0)
        s = NULL; /* it is not read again */
    mn_text_free(&out);
}
