/* fuzz_hub.c -- what a hub answers. Parts: "listing", the files of a revision; "head", the lines of
 * an answer's head; "url" and "location", a redirect. Whatever it says, names stay inside a
 * snapshot, hashes are hashes, and no redirect leads to another protocol or from https to http. */
#include "fuzz.h"
#include "hub/client.h"
#include <stdlib.h>
#include <string.h>

static void check_listing(mn_str text) {
    hub_listing list;
    char why[200] = "";
    const int code = hub_listing_parse(text.ptr, (size_t)text.len, &list, why, sizeof why);
    if (code) {
        FUZZ_CHECK(why[0] && (code == EXIT_FAILED || code == EXIT_NO_MEMORY));
        fuzz_well(code == EXIT_NO_MEMORY ? MN_OUT_OF_MEMORY : MN_BAD_FILE);
        return;
    }
    FUZZ_CHECK(hub_is_hex(list.commit, 40) && list.n <= HUB_FILES_MAX);
    for (uint32_t i = 0; i < list.n; i++) {
        const hub_file *f = &list.files[i];
        FUZZ_CHECK(hub_is_inner_path(f->name) && f->name[0] != '/');
        FUZZ_CHECK(!strstr(f->name, "/../") && strncmp(f->name, "../", 3) != 0);
        FUZZ_CHECK(!f->hash[0] || hub_is_hex(f->hash, 40) || hub_is_hex(f->hash, 64));
        fuzz_accepted = true;
        fuzz_answered(f->name, strlen(f->name));
    }
    hub_listing_free(&list);
}

static void check_head(mn_str text) {
    static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    hub_head h = {0};
    hub_head_reset(&h);
    while (text.len) {
        const char *end = memchr(text.ptr, '\n', (size_t)text.len);
        const size_t line = end ? (size_t)(end - text.ptr) + 1 : (size_t)text.len;
        char *copy = malloc(line + 1);
        FUZZ_CHECK(copy);
        memcpy(copy, text.ptr, line);
        copy[line] = 0;
        hub_head_line(&h, copy, line);
        free(copy);
        text.ptr += line;
        text.len -= line;
    }
    FUZZ_CHECK(h.etag[strspn(h.etag, safe)] == 0);
    FUZZ_CHECK(h.linked_etag[strspn(h.linked_etag, safe)] == 0);
    FUZZ_CHECK(h.retry_after >= -1);
    fuzz_answered(h.etag, strlen(h.etag));
    hub_head_reset(&h);
}

static void check_redirect(mn_str url, mn_str location) {
    hub_origin from;
    hub_origin to;
    char *a = strndup(url.ptr, (size_t)url.len);
    char *b = strndup(location.ptr, (size_t)location.len);
    FUZZ_CHECK(a && b);
    char *next = hub_follow(a, b);
    fuzz_refused += !next && mn_alloc_failed();
    if (next) {
        FUZZ_CHECK(hub_origin_of(a, &from) && hub_origin_of(next, &to));
        FUZZ_CHECK(!strcmp(to.scheme, "http") || !strcmp(to.scheme, "https"));
        FUZZ_CHECK(strcmp(from.scheme, "https") != 0 || !strcmp(to.scheme, "https"));
        FUZZ_CHECK(!strchr(to.host, '@') && to.host[0]);
        FUZZ_CHECK(hub_same_origin(a, next) == hub_same_origin(next, a));
        fuzz_answered(next, strlen(next));
    }
    free(next);
    free(a);
    free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    fuzz_parts parts;
    if (n > 1 << 20)
        return 0;
    fuzz_split(data, n, "listing", &parts);
    check_listing(fuzz_text(&parts, "listing", ""));
    check_head(fuzz_text(&parts, "head", ""));
    check_redirect(fuzz_text(&parts, "url", "https://a.example/x"),
                   fuzz_text(&parts, "location", "/y"));
    fuzz_free(&parts);
    return 0;
}
