/* transfer.c -- files of a snapshot into blobs, four at a time, on one thread (libcurl's multi
 * interface).
 *
 * A job is one file. Its phases:
 *
 *   IDLE -> HEAD            ETag, size and commit; redirects inside the hub are followed
 *   HEAD -> DONE            the blob is there
 *   HEAD -> LOCK            another program loads it: asked again twice a second
 *   LOCK -> SUM -> GET      what an earlier load left is summed, and the rest is asked for
 *   GET  -> WAIT -> GET     cut, silent, refused for now: from where it ended
 *   GET  -> DONE            all bytes, and their hash is right
 *
 * A try that brought bytes makes the next five free; a wrong hash is tried once more from the
 * beginning. Everything of a job is freed by end_job. */
#include "client.h"
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 4, TRIES = 5, HOPS = 8, SUM_STEP = 8 << 20, POLL_MS = 100, IGNORED_MAX = 1 << 20 };
#define LOCK_S 0.5
#define WAIT_MAX 300.0

typedef enum { IDLE, HEAD, LOCK, SUM, GET, WAIT, DONE } phase;

typedef struct {
    struct run *run;
    hub_wanted *wanted;
    phase at;
    hub_request request;
    char *url; /* of the request */
    char hash[65];
    uint64_t size;
    hub_blob blob;
    int is_open, has_body, hops, tries, rejected;
    uint64_t ignored; /* bytes of an answer that is no file */
    uint64_t before;  /* bytes of the blob when the try began */
    double until;     /* of LOCK and WAIT */
    phase behind;     /* of WAIT */
    int code;         /* of a write that failed; -1: too many bytes */
    int whole;        /* counted as done */
} job;

typedef struct run {
    hub_client *c;
    const hub_store *store;
    hub_transfer *t;
    job *jobs;
    uint32_t n, n_begun;
    int code;
} run;

/* ---- requests -------------------------------------------------------------------------------- */
static size_t on_body(char *bytes, size_t size, size_t n, void *arg) {
    job *j = arg;
    const size_t all = size * n;
    const long status = j->request.head.status;
    if (status != 200 && status != 206) { // an error's text, or a redirect's
        j->ignored += all;
        return j->ignored > IGNORED_MAX ? 0 : all;
    }
    if (!j->has_body) {
        j->has_body = 1;
        const int from_here = status == 206 && j->request.head.has_range &&
                              j->request.head.range_from == j->blob.have;
        if (!from_here && j->blob.have) {
            j->code = status == 206 ? -1 : hub_blob_restart(&j->blob);
            j->before = 0;
        } else if (status == 206 && !from_here)
            j->code = -1;
    }
    if (!j->code && all > j->size - j->blob.have)
        j->code = -1;
    if (!j->code)
        j->code = hub_blob_write(&j->blob, bytes, all);
    return j->code ? 0 : all;
}

static int start_request(job *j, int head) {
    const hub_client *c = j->run->c;
    const curl_api *api = c->api;
    int code = hub_request_begin(c, &j->request, j->url, head);
    if (code)
        return code;
    j->has_body = 0;
    j->ignored = 0;
    j->code = 0;
    j->before = j->is_open ? j->blob.have : 0;
    api->easy_setopt(j->request.easy, CURLOPT_WRITEFUNCTION, on_body);
    api->easy_setopt(j->request.easy, CURLOPT_WRITEDATA, j);
    api->easy_setopt(j->request.easy, CURLOPT_PRIVATE, j);
    if (!head && j->blob.have) {
        char range[40];
        snprintf(range, sizeof range, "%llu-", (unsigned long long)j->blob.have);
        api->easy_setopt(j->request.easy, CURLOPT_RANGE, range);
    }
    if (api->multi_add_handle(c->multi, j->request.easy) != CURLM_OK)
        return no_memory();
    return 0;
}

static void stop_request(job *j) {
    if (j->request.easy)
        j->run->c->api->multi_remove_handle(j->run->c->multi, j->request.easy);
    hub_request_end(j->run->c, &j->request);
}

static void end_job(job *j) {
    stop_request(j);
    if (j->is_open)
        hub_blob_close(&j->blob);
    j->is_open = 0;
    free(j->url);
    j->url = NULL;
}

/* The URL of the file in the snapshot. */
static int set_url(job *j) {
    mn_text url = {0};
    mn_text_puts(&url, j->run->c->endpoint);
    mn_text_puts(&url, "/");
    hub_put_escaped(&url, j->run->t->repo, 1);
    mn_text_puts(&url, "/resolve/");
    mn_text_puts(&url, j->run->store->commit);
    mn_text_puts(&url, "/");
    hub_put_escaped(&url, j->wanted->file->name, 1);
    free(j->url);
    j->url = mn_text_take(&url);
    j->hops = 0;
    return j->url ? 0 : no_memory();
}

static int begin(job *j, phase at) {
    const int code = set_url(j);
    j->at = at;
    return code ? code : start_request(j, at == HEAD);
}

/* ---- failures -------------------------------------------------------------------------------- */
static const char *name_of(const job *j) {
    return j->wanted->file->name;
}

/* Tries once more after a while, or gives up by calling the error's sentence (complained: it was
 * printed with code). */
static int try_again(job *j, double wait, phase behind) {
    j->at = WAIT;
    j->behind = behind;
    j->until = seconds() + (wait < WAIT_MAX ? wait : WAIT_MAX);
    stop_request(j);
    return 0;
}

static double backoff(const job *j) {
    const double asked = j->request.head.retry_after;
    return asked >= 0 ? asked : 0.5 * (double)(1 << (j->tries - 1));
}

/* A transfer that broke, or a status that may pass. */
static int on_trouble(job *j, CURLcode result) {
    const hub_head *h = &j->request.head;
    const phase behind = j->at;
    if (j->is_open && j->blob.have > j->before)
        j->tries = 0;
    if (++j->tries < TRIES)
        return try_again(j, backoff(j), behind);
    if (result != CURLE_OK && j->is_open && j->blob.have)
        return complain(EXIT_FAILED,
                        "%s: the connection broke after %llu of %llu bytes (%s); minerva pull goes "
                        "on from there",
                        name_of(j), (unsigned long long)j->blob.have, (unsigned long long)j->size,
                        j->run->c->api->easy_strerror(result));
    if (result != CURLE_OK)
        return hub_complain_network(j->run->c, j->url, result, j->request.error);
    return hub_complain_status(j->run->t->repo, j->run->t->revision, name_of(j), h->status,
                               h->error_code, h->message);
}

/* ---- HEAD ------------------------------------------------------------------------------------ */
/* What the hub says of the file, against what its listing said. */
static int check_head(job *j) {
    const hub_head *h = &j->request.head;
    const hub_file *f = j->wanted->file;
    const char *etag = h->linked_etag[0] ? h->linked_etag : h->etag;
    const int is_hash = hub_is_hex(etag, 64) || hub_is_hex(etag, 40);
    if (h->commit[0] && strcmp(h->commit, j->run->store->commit) != 0)
        return complain(EXIT_FAILED, "%s: the hub answers with commit %.47s, expected %s", f->name,
                        h->commit, j->run->store->commit);
    if (!etag[0])
        return complain(EXIT_FAILED, "%s: the hub sends no ETag that can name a file", f->name);
    if (is_hash && f->hash[0] && strcmp(f->hash, etag) != 0)
        return complain(EXIT_FAILED, "%s: the hub says hash %s, and ETag %s", f->name, f->hash,
                        etag);
    if (!is_hash && !f->hash[0])
        return complain(EXIT_FAILED,
                        "%s: the hub sends no hash by which the file can be verified (ETag %s)",
                        f->name, etag);
    j->size = f->bytes;
    if (h->has_linked_size)
        j->size = h->linked_size;
    else if (h->has_length && h->status == 200) // a redirect's length is its own
        j->size = h->length;
    if (j->size != f->bytes)
        return complain(EXIT_FAILED,
                        "%s: the hub says %llu bytes in its list, and %llu of the file", f->name,
                        (unsigned long long)f->bytes, (unsigned long long)j->size);
    snprintf(j->hash, sizeof j->hash, "%.64s", f->hash[0] ? f->hash : etag);
    snprintf(j->wanted->etag, sizeof j->wanted->etag, "%s", etag);
    return 0;
}

static int follow(job *j) {
    char *next = j->request.head.location ? hub_follow(j->url, j->request.head.location) : NULL;
    if (!next || ++j->hops > HOPS) {
        free(next);
        return complain(EXIT_FAILED, "%s: the hub leads to an address that is not followed",
                        name_of(j));
    }
    stop_request(j);
    free(j->url);
    j->url = next;
    return start_request(j, j->at == HEAD);
}

/* 1: the redirect leads to the hub itself, which says what the file is. */
static int leads_inside(const job *j) {
    char *next = hub_follow(j->url, j->request.head.location);
    const int inside = next && hub_same_origin(next, j->url);
    free(next);
    return inside;
}

static int on_head(job *j) {
    const hub_head *h = &j->request.head;
    const int redirect = h->status >= 300 && h->status < 400 && h->location;
    if (redirect && (!h->linked_etag[0] || leads_inside(j)))
        return follow(j); // a repository under a new name, a file in the hub's own store
    if (!redirect && h->status != 200) {
        if (hub_may_retry(h->status))
            return on_trouble(j, CURLE_OK);
        return hub_complain_status(j->run->t->repo, j->run->t->revision, name_of(j), h->status,
                                   h->error_code, h->message);
    }
    const int code = check_head(j);
    stop_request(j);
    j->at = LOCK;
    j->until = 0;
    j->tries = 0;
    return code;
}

/* ---- the blob -------------------------------------------------------------------------------- */
static void be_done(job *j) {
    j->run->t->n_done++;
    j->at = DONE;
    j->whole = 1;
    end_job(j);
}

static int open_blob(job *j) {
    const digest_kind kind = strlen(j->hash) == 64 ? DIGEST_SHA256 : DIGEST_SHA1;
    if (hub_blob_is_there(j->run->store, j->wanted->etag, j->size)) {
        be_done(j);
        return 0;
    }
    const int code = hub_blob_open(j->run->store, j->wanted->etag, j->size, kind, &j->blob);
    if (code == -1) {
        j->until = seconds() + LOCK_S;
        j->run->t->says = "another program loads it";
        return 0;
    }
    j->is_open = !code;
    j->at = SUM;
    j->run->t->says = NULL;
    if (!code && hub_blob_is_there(j->run->store, j->wanted->etag, j->size)) {
        hub_blob_drop(&j->blob); // the one that had the lock was done in the meantime
        be_done(j);
    }
    return code;
}

/* All bytes are there. */
static int finish(job *j) {
    char hex[65];
    const int code = hub_blob_finish(&j->blob, j->hash, hex);
    if (code == 0)
        be_done(j);
    if (code >= 0)
        return code;
    const int again = hub_blob_restart(&j->blob);
    if (again)
        return again;
    if (!j->rejected++)
        return try_again(j, 0, GET);
    return complain(EXIT_FAILED,
                    "%s: the hash of what was loaded is %s, expected %s: nothing of it is kept",
                    name_of(j), hex, j->hash);
}

static int sum_some(job *j) {
    const int more = hub_blob_sum(&j->blob, SUM_STEP);
    if (more)
        return more < 0 ? EXIT_FAILED : 0;
    return j->blob.have == j->size ? finish(j) : begin(j, GET);
}

static int on_get(job *j, CURLcode result) {
    const hub_head *h = &j->request.head;
    if (j->code > 0)
        return j->code;
    if (j->code < 0) {
        const int code = hub_blob_restart(&j->blob);
        if (code || j->rejected++)
            return code ? code
                        : complain(
                              EXIT_FAILED,
                              "%s: the hub sends other bytes than asked for, or more than %llu: "
                              "nothing of it is kept",
                              name_of(j), (unsigned long long)j->size);
        return try_again(j, 0, GET);
    }
    if (result == CURLE_OK && h->status >= 300 && h->status < 400 && h->location)
        return follow(j);
    if (result == CURLE_OK && h->status == 416) { // what is here is not the beginning of it
        const int code = hub_blob_restart(&j->blob);
        return code ? code : on_trouble(j, CURLE_OK);
    }
    if (j->blob.have == j->size && (h->status == 200 || h->status == 206))
        return finish(j);
    if (result != CURLE_OK || h->status == 200 || h->status == 206)
        return on_trouble(j, result == CURLE_OK ? CURLE_PARTIAL_FILE : result);
    if (hub_may_retry(h->status) ||
        (h->status == 403 && !hub_same_origin(j->url, j->run->c->endpoint)))
        return on_trouble(j, CURLE_OK); // a signed address that is too old, too
    return hub_complain_status(j->run->t->repo, j->run->t->revision, name_of(j), h->status,
                               h->error_code, h->message);
}

/* ---- all of them ----------------------------------------------------------------------------- */
static int on_ended(job *j, CURLcode result) {
    if (j->at == GET)
        return on_get(j, result);
    return result == CURLE_OK ? on_head(j) : on_trouble(j, result);
}

static int take_results(run *r) {
    const curl_api *api = r->c->api;
    int left = 0;
    int code = 0;
    for (CURLMsg *m = api->multi_info_read(r->c->multi, &left); m && !code;
         m = code ? NULL : api->multi_info_read(r->c->multi, &left)) {
        char *arg = NULL;
        const CURLcode result = m->data.result;
        if (m->msg != CURLMSG_DONE)
            continue;
        api->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &arg);
        code = on_ended((job *)(void *)arg, result);
    }
    return code;
}

/* What a job does without the network. */
static int advance(job *j, double now) {
    switch (j->at) {
    case LOCK:
        return now < j->until ? 0 : open_blob(j);
    case SUM:
        return sum_some(j);
    case WAIT:
        return now < j->until ? 0 : begin(j, j->behind);
    case IDLE:
    case HEAD:
    case GET:
    case DONE:
        break;
    }
    return 0;
}

static uint64_t bytes_of(const job *j) {
    if (j->whole)
        return j->wanted->file->bytes;
    return j->is_open ? j->blob.have : 0;
}

static int report(run *r) {
    hub_transfer *t = r->t;
    t->done = 0;
    for (uint32_t i = 0; i < r->n; i++)
        t->done += bytes_of(&r->jobs[i]);
    if (!t->progress)
        return 0;
    return t->progress(t->arg, t->done, t->total, t->n_done, t->n, t->says);
}

/* Starts jobs up to AT_ONCE; *active: how many are on their way. */
static int start_jobs(run *r, uint32_t *active) {
    int code = 0;
    *active = 0;
    for (uint32_t i = 0; i < r->n_begun; i++)
        *active += r->jobs[i].at != DONE;
    while (r->n_begun < r->n && *active < AT_ONCE && !code) {
        ++*active;
        code = begin(&r->jobs[r->n_begun++], HEAD);
    }
    return code;
}

static int turn(run *r, uint32_t *active) {
    const curl_api *api = r->c->api;
    int running = 0;
    int busy = 0;
    int code = start_jobs(r, active);
    if (!code && api->multi_perform(r->c->multi, &running) != CURLM_OK)
        code = no_memory();
    if (!code)
        code = take_results(r);
    const double now = seconds();
    for (uint32_t i = 0; i < r->n_begun && !code; i++) {
        code = advance(&r->jobs[i], now);
        busy |= r->jobs[i].at == SUM;
    }
    const int ends = report(r);
    if (!code && (ends || interrupt_seen()))
        code = EXIT_INTERRUPTED;
    if (!code && !busy && *active)
        api->multi_poll(r->c->multi, NULL, 0, POLL_MS, NULL);
    return code;
}

int hub_client_load(hub_client *c, const hub_store *s, hub_wanted *wanted, uint32_t n,
                    hub_transfer *t) {
    run r = {.c = c, .store = s, .t = t, .n = n};
    uint32_t active = 1;
    r.jobs = calloc(n + 1u, sizeof *r.jobs);
    if (!r.jobs)
        return no_memory();
    t->n = n;
    t->n_done = 0;
    t->total = 0;
    for (uint32_t i = 0; i < n; i++) {
        r.jobs[i] = (job){.run = &r, .wanted = &wanted[i], .blob = {.fd = -1, .lock_fd = -1}};
        t->total += wanted[i].file->bytes;
    }
    int code = 0;
    while (!code && active)
        code = turn(&r, &active);
    for (uint32_t i = 0; i < n; i++)
        end_job(&r.jobs[i]);
    free(r.jobs);
    return code;
}
