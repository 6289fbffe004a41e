/* client.c -- requests of the hub by libcurl, which is opened when it is needed (curl_api.h).
 *
 * Redirects are followed here and not by libcurl: each is a request of its own, and the token goes
 * along only where scheme, host and port are the endpoint's. libcurl reads the variables of
 * proxies. */
#include "client.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { HOPS = 8, TRIES = 5 };
#define CONNECT_S 30L

hub_client *hub_client_new(const char *what) {
    const char *endpoint = hub_endpoint();
    const curl_api *api = endpoint ? curl_open(what) : NULL;
    hub_client *c = api ? calloc(1, sizeof *c) : NULL;
    if (!api)
        return NULL;
    if (c)
        c->multi = api->multi_init();
    if (!c || !c->multi) {
        no_memory();
        free(c);
        return NULL;
    }
    c->api = api;
    c->endpoint = endpoint;
    snprintf(c->agent, sizeof c->agent, "minerva/%.40s", mn_version());
    return c;
}

void hub_client_free(hub_client *c) {
    if (!c)
        return;
    c->api->multi_cleanup(c->multi);
    free(c);
}

/* ---- heads ----------------------------------------------------------------------------------- */
void hub_head_reset(hub_head *h) {
    free(h->location);
    memset(h, 0, sizeof *h);
    h->retry_after = -1;
}

static void put_text(char *dst, size_t n_dst, const char *text, size_t n) {
    size_t k = 0;
    for (size_t i = 0; i < n && k + 1 < n_dst; i++)
        if ((unsigned char)text[i] >= 32 && text[i] != 127)
            dst[k++] = text[i];
    dst[k] = 0;
}

/* Without W/ and quotes. What is no name of a file is none. */
static void put_etag(char *dst, size_t n_dst, const char *text, size_t n) {
    if (n > 2 && !strncmp(text, "W/", 2)) {
        text += 2;
        n -= 2;
    }
    if (n > 1 && text[0] == '"' && text[n - 1] == '"') {
        text++;
        n -= 2;
    }
    int good = n && n < n_dst;
    for (size_t i = 0; i < n && good; i++)
        good = isalnum((unsigned char)text[i]) || text[i] == '-' || text[i] == '_';
    if (good)
        put_text(dst, n_dst, text, n);
}

static int put_number(uint64_t *dst, const char *text, size_t n) {
    int64_t v = 0;
    if (!parse_int(text, n, &v) || v < 0)
        return 0;
    *dst = (uint64_t)v;
    return 1;
}

/* Seconds, or a date. */
static double wait_of(const char *text) {
    struct tm t = {0};
    int64_t v = 0;
    if (parse_int(text, strlen(text), &v) && v >= 0)
        return (double)v;
    if (!strptime(text, "%a, %d %b %Y %H:%M:%S", &t))
        return -1;
    const double left = difftime(timegm(&t), time(NULL));
    return left > 0 ? left : 0;
}

static void put_field(hub_head *h, const char *name, const char *value, size_t n) {
    char text[200];
    put_text(text, sizeof text, value, n);
    if (!strcasecmp(name, "etag"))
        put_etag(h->etag, sizeof h->etag, value, n);
    else if (!strcasecmp(name, "x-linked-etag"))
        put_etag(h->linked_etag, sizeof h->linked_etag, value, n);
    else if (!strcasecmp(name, "x-repo-commit"))
        snprintf(h->commit, sizeof h->commit, "%.47s", text);
    else if (!strcasecmp(name, "x-error-code"))
        snprintf(h->error_code, sizeof h->error_code, "%.47s", text);
    else if (!strcasecmp(name, "x-error-message"))
        snprintf(h->message, sizeof h->message, "%s", text);
    else if (!strcasecmp(name, "content-length"))
        h->has_length = put_number(&h->length, value, n);
    else if (!strcasecmp(name, "x-linked-size"))
        h->has_linked_size = put_number(&h->linked_size, value, n);
    else if (!strcasecmp(name, "retry-after"))
        h->retry_after = wait_of(text);
    else if (!strcasecmp(name, "content-range") && !strncasecmp(text, "bytes ", 6))
        h->has_range = put_number(&h->range_from, text + 6, strspn(text + 6, "0123456789"));
    else if (!strcasecmp(name, "location") && n < 8192) {
        free(h->location);
        h->location = strndup(value, n);
    }
}

void hub_head_line(hub_head *h, const char *line, size_t n) {
    const char *colon = memchr(line, ':', n);
    char name[40];
    if (n > 5 && !strncmp(line, "HTTP/", 5)) {
        const char *blank = memchr(line, ' ', n);
        hub_head_reset(h);
        h->status = blank ? strtol(blank + 1, NULL, 10) : 0;
        return;
    }
    if (!colon || (size_t)(colon - line) >= sizeof name)
        return;
    snprintf(name, sizeof name, "%.*s", (int)(colon - line), line);
    const char *value = colon + 1;
    size_t left = n - (size_t)(value - line);
    while (left && isspace((unsigned char)*value)) {
        value++;
        left--;
    }
    while (left && isspace((unsigned char)value[left - 1]))
        left--;
    put_field(h, name, value, left);
}

/* ---- requests -------------------------------------------------------------------------------- */
static size_t on_head(char *line, size_t size, size_t n, void *arg) {
    char copy[9000]; // its end is a NUL: strtol and strptime read so far
    const size_t bytes = size * n < sizeof copy - 1 ? size * n : sizeof copy - 1;
    memcpy(copy, line, bytes);
    copy[bytes] = 0;
    hub_head_line(arg, copy, bytes);
    return size * n;
}

static int add_header(const hub_client *c, hub_request *r, const char *line) {
    struct curl_slist *grown = c->api->slist_append(r->headers, line);
    if (grown)
        r->headers = grown;
    return grown != NULL;
}

/* The token, to the hub itself alone. */
static int add_token(const hub_client *c, hub_request *r, const char *url) {
    char line[1100];
    const char *token = hub_token();
    if (!token || !hub_same_origin(url, c->endpoint))
        return 1;
    snprintf(line, sizeof line, "Authorization: Bearer %s", token);
    const int done = add_header(c, r, line);
    memset(line, 0, sizeof line);
    return done;
}

/* Seconds without a byte after which a server counts as silent. */
static long silence_s(void) {
    const char *said = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    const long v = said ? strtol(said, NULL, 10) : 0;
    return v > 0 && v < 3600 ? v : 30;
}

int hub_request_begin(const hub_client *c, hub_request *r, const char *url, int head) {
    const curl_api *api = c->api;
    memset(r, 0, sizeof *r);
    hub_head_reset(&r->head);
    r->easy = api->easy_init();
    if (!r->easy || !add_header(c, r, "Accept-Encoding: identity") || !add_token(c, r, url) ||
        api->easy_setopt(r->easy, CURLOPT_URL, url) != CURLE_OK) {
        hub_request_end(c, r);
        return no_memory();
    }
    api->easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
    api->easy_setopt(r->easy, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE); // none to a proxy
    curl_trust(api, r->easy);
    api->easy_setopt(r->easy, CURLOPT_NOSIGNAL, 1L);
    api->easy_setopt(r->easy, CURLOPT_NOBODY, (long)head);
    api->easy_setopt(r->easy, CURLOPT_FOLLOWLOCATION, 0L);
    api->easy_setopt(r->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    api->easy_setopt(r->easy, CURLOPT_USERAGENT, c->agent);
    api->easy_setopt(r->easy, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    api->easy_setopt(r->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    api->easy_setopt(r->easy, CURLOPT_LOW_SPEED_TIME, silence_s());
    api->easy_setopt(r->easy, CURLOPT_HEADERFUNCTION, on_head);
    api->easy_setopt(r->easy, CURLOPT_HEADERDATA, &r->head);
    api->easy_setopt(r->easy, CURLOPT_ERRORBUFFER, r->error);
    return 0;
}

void hub_request_end(const hub_client *c, hub_request *r) {
    if (r->easy)
        c->api->easy_cleanup(r->easy);
    c->api->slist_free_all(r->headers);
    hub_head_reset(&r->head);
    memset(r, 0, sizeof *r);
}

/* ---- what failed ----------------------------------------------------------------------------- */
int hub_is_unreachable(CURLcode result) {
    return result == CURLE_COULDNT_RESOLVE_HOST || result == CURLE_COULDNT_RESOLVE_PROXY ||
           result == CURLE_COULDNT_CONNECT;
}

int hub_complain_network(const hub_client *c, const char *url, CURLcode result,
                         const char *detail) {
    hub_origin o = {"", ""};
    const char *why = detail && *detail ? detail : c->api->easy_strerror(result);
    hub_origin_of(url, &o);
    if (hub_is_unreachable(result))
        return complain(
            EXIT_FAILED,
            "no network: %s cannot be reached (%s); models that are on this machine run "
            "without it",
            o.host, why);
    return complain(EXIT_FAILED, "%s: the connection failed: %s", o.host, why);
}

int hub_may_retry(long status) {
    return status == 408 || status == 429 || status >= 500;
}

int hub_complain_status(const char *repo, const char *revision, const char *file, long status,
                        const char *error_code, const char *message) {
    hub_origin o = {"", ""};
    const char *endpoint = hub_endpoint();
    const int has_token = hub_token() != NULL;
    hub_origin_of(endpoint, &o);
    if (!strcmp(error_code, "GatedRepo"))
        return complain(EXIT_FAILED, "%s is gated: %s%s/%s", repo,
                        has_token
                            ? "the account of this token has no access yet; ask for it at "
                            : "HF_TOKEN needs a token of an account that accepted the terms at ",
                        endpoint, repo);
    if (!strcmp(error_code, "RevisionNotFound"))
        return complain(EXIT_FAILED, "%s: revision %s not found on %s", repo, revision, o.host);
    if (!strcmp(error_code, "EntryNotFound"))
        return complain(EXIT_FAILED, "%s: file %s not found on %s", repo, file, o.host);
    if (status == 404 || !strcmp(error_code, "RepoNotFound") || (status == 401 && !has_token))
        return complain(EXIT_FAILED, "%s: not found on %s%s", repo, o.host,
                        has_token ? "" : " (private repositories need HF_TOKEN)");
    if (status == 401)
        return complain(EXIT_FAILED, "%s: %s refuses the token of HF_TOKEN%s%s", repo, o.host,
                        *message ? ": " : "", message);
    if (status == 429)
        return complain(EXIT_FAILED, "%s: %s asks for fewer requests (status 429): try again later",
                        repo, o.host);
    return complain(EXIT_FAILED, "%s: found HTTP status %ld of %s%s%s", repo, status, o.host,
                    *message ? ": " : "", message);
}

/* ---- the listing ----------------------------------------------------------------------------- */
static size_t keep_answer(char *bytes, size_t size, size_t n, void *arg) {
    mn_text *text = arg;
    if (text->len + size * n > HUB_ANSWER_MAX)
        return 0;
    mn_text_put(text, bytes, size * n);
    return text->failed ? 0 : size * n;
}

static void wait_s(double s) {
    const struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

/* GET of *url, which changes with redirects, malloc'ed. 0: text has an answer with *head's status;
 * CURLcode otherwise. */
static int get_once(hub_client *c, char **url, hub_request *r, mn_text *text, CURLcode *result) {
    for (int hop = 0; hop <= HOPS; hop++) {
        int code = hub_request_begin(c, r, *url, 0);
        if (code)
            return code;
        mn_text_clear(text);
        c->api->easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, keep_answer);
        c->api->easy_setopt(r->easy, CURLOPT_WRITEDATA, text);
        *result = c->api->easy_perform(r->easy);
        if (*result != CURLE_OK || r->head.status < 300 || r->head.status > 399)
            return 0;
        char *next = r->head.location ? hub_follow(*url, r->head.location) : NULL;
        hub_request_end(c, r);
        if (!next)
            return complain(EXIT_FAILED, "%s: the hub leads to an address that is not followed",
                            c->endpoint);
        free(*url);
        *url = next;
    }
    return complain(EXIT_FAILED, "%s: the hub leads in circles", c->endpoint);
}

/* The same, with waits where the hub asks for them or is not well. */
static int get_text(hub_client *c, const char *url, hub_request *r, mn_text *text) {
    CURLcode result = CURLE_OK;
    for (int i = 0;; i++) {
        char *at = strdup(url);
        const int code = at ? get_once(c, &at, r, text, &result) : no_memory();
        free(at);
        if (code)
            return code;
        if (text->failed)
            return no_memory();
        if (text->len >= HUB_ANSWER_MAX || (result == CURLE_WRITE_ERROR && !text->failed))
            return complain(EXIT_FAILED, "%s: found an answer of more than %zu MiB", c->endpoint,
                            HUB_ANSWER_MAX >> 20);
        const int again =
            result != CURLE_OK ? !hub_is_unreachable(result) : hub_may_retry(r->head.status);
        if (!again || i + 1 == TRIES)
            break;
        const double wait = r->head.retry_after >= 0 ? r->head.retry_after : 0.5 * (1 << i);
        hub_request_end(c, r);
        wait_s(wait < 300 ? wait : 300);
    }
    return result == CURLE_OK ? 0 : hub_complain_network(c, url, result, r->error);
}

int hub_client_list(hub_client *c, const char *repo, const char *revision, hub_listing *out) {
    mn_text url = {0};
    mn_text text = {0};
    hub_request r = {0};
    char why[200];
    const char *rev = *revision ? revision : "main";
    mn_text_puts(&url, c->endpoint);
    mn_text_puts(&url, "/api/models/");
    hub_put_escaped(&url, repo, 1);
    mn_text_puts(&url, "/revision/");
    hub_put_escaped(&url, rev, 0);
    mn_text_puts(&url, "?blobs=true");
    int code = url.failed ? no_memory() : get_text(c, url.ptr, &r, &text);
    if (!code && r.head.status != 200)
        code = hub_complain_status(repo, rev, "", r.head.status, r.head.error_code, r.head.message);
    else if (!code) {
        code = hub_listing_parse(text.len ? text.ptr : "", text.len, out, why, sizeof why);
        if (code)
            complain(code, "%s/api/models/%s: %s", c->endpoint, repo, why);
    }
    hub_request_end(c, &r);
    mn_text_free(&url);
    mn_text_free(&text);
    return code;
}
