/* name.c -- what a name of a model says: prefix or host, repository, revision, and what of it.
 *
 * Only the text is looked at. Names of repositories are those that huggingface_hub accepts; names
 * of ollama may have a host and any number of parts. The texts are the caller's, mn_name_free. */
#include "hub/names.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_BYTES = 1200, PART_MAX = 96 };
static const char part_chars[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";

bool mn_is_inner_path(const char *path, size_t n) {
    size_t part = 0;
    if (!n || n > 1024 || mn_utf8_check(path, n) < n)
        return false;
    for (size_t i = 0; i <= n; i++) {
        const char c = i < n ? path[i] : '/';
        if ((unsigned char)c < 32 || c == '\\' || c == 127)
            return false;
        if (c != '/') {
            part++;
            continue;
        }
        const char *begin = path + i - part;
        if (!part || part > 255 || (part == 1 && *begin == '.') ||
            (part == 2 && !memcmp(begin, "..", 2)))
            return false;
        part = 0;
    }
    return true;
}

bool mn_is_commit(const char *text) {
    enum { DIGITS = 40 };
    return strspn(text, "0123456789abcdef") == DIGITS && !text[DIGITS];
}

void mn_name_free(mn_model_name *name) {
    mn_free(name->plain);
    mn_free(name->repo);
    mn_free(name->revision);
    mn_free(name->what);
    *name = (mn_model_name){0};
}

static bool starts(const char *text, const char *with) {
    return !strncasecmp(text, with, strlen(with));
}

/* One half of "org/repo", as huggingface_hub accepts it. */
static bool is_part(mn_str s) {
    if (!s.len || s.len > PART_MAX || strchr("-.", s.ptr[0]) || strchr("-.", s.ptr[s.len - 1]))
        return false;
    for (uint64_t i = 0; i < s.len; i++)
        if (!strchr(part_chars, s.ptr[i]) || !s.ptr[i] ||
            (i && s.ptr[i] == s.ptr[i - 1] && strchr("-.", s.ptr[i])))
            return false;
    return true;
}

static bool is_repo(const char *text) {
    const char *slash = strchr(text, '/');
    return slash && is_part((mn_str){text, (uint64_t)(slash - text)}) &&
           is_part(mn_str_of(slash + 1));
}

static bool set(char **to, const char *text, size_t n) {
    mn_free(*to);
    *to = mn_strndup(text, n);
    return *to != NULL;
}

/* ---- hosts ----------------------------------------------------------------------------------- */
/* Where the path of a URL begins, if its host is the one of the hub; NULL: it is not. */
static const char *behind_host(const char *url, const char *host, size_t n) {
    if (strncasecmp(url, host, n) != 0 || (url[n] != '/' && url[n]))
        return NULL;
    return url[n] ? url + n + 1 : url + n;
}

/* The same for each that is one: the hub's, and what HF_ENDPOINT says in its place. */
static const char *behind_hub(const char *url) {
    static const char *const hosts[] = {"huggingface.co", "hf.co", "www.huggingface.co"};
    const char *path = NULL;
    for (size_t i = 0; i < MN_COUNT(hosts) && !path; i++)
        path = behind_host(url, hosts[i], strlen(hosts[i]));
    const char *endpoint = secure_getenv("HF_ENDPOINT");
    const char *host = endpoint ? strstr(endpoint, "://") : NULL;
    if (path || !host)
        return path;
    size_t n = strlen(host + 3);
    while (n && host[2 + n] == '/')
        n--;
    return n ? behind_host(url, host + 3, n) : NULL;
}

/* Takes prefix or host off; *url: what is left is the path of a URL. NULL: an unknown host. */
static const char *strip_place(const char *text, mn_model_name *out, bool *url) {
    static const struct {
        const char *prefix;
        mn_store store;
    } prefixes[] = {{"hf:", MN_STORE_HUB},
                    {"hf://", MN_STORE_HUB},
                    {"lmstudio:", MN_STORE_LMSTUDIO},
                    {"ollama:", MN_STORE_OLLAMA}};
    const char *rest = NULL;
    for (size_t i = 0; i < MN_COUNT(prefixes); i++)
        if (starts(text, prefixes[i].prefix)) {
            rest = text + strlen(prefixes[i].prefix);
            out->only = prefixes[i].store;
        }
    if (rest) {
        *url = out->only == MN_STORE_HUB;
        return rest;
    }
    const bool scheme = starts(text, "https://") || starts(text, "http://");
    rest = behind_hub(scheme ? strstr(text, "://") + 3 : text);
    *url = rest != NULL;
    if (rest)
        out->only = MN_STORE_HUB;
    return rest || scheme ? rest : text;
}

/* ---- the rest -------------------------------------------------------------------------------- */
static bool is_revision(mn_str s) {
    return s.len && s.len < 256 && mn_is_inner_path(s.ptr, (size_t)s.len) && s.ptr[0] != '-' &&
           !memchr(s.ptr, ' ', (size_t)s.len);
}

/* "tree/REV", "blob/REV/FILE", "resolve/REV/FILE", "raw/REV/FILE", or a file's path, else false. */
static bool read_inside(const char *text, mn_model_name *out) {
    static const char *const words[] = {"tree/", "blob/", "resolve/", "raw/"};
    const char *rest = text;
    for (size_t i = 0; i < MN_COUNT(words) && rest == text; i++)
        if (!strncmp(text, words[i], strlen(words[i])))
            rest += strlen(words[i]);
    if (rest != text) {
        const size_t n = strcspn(rest, "/");
        if (!is_revision((mn_str){rest, n}) || !set(&out->revision, rest, n))
            return false;
        rest += n + (rest[n] == '/');
    }
    const size_t n = strlen(rest);
    return !n || (mn_is_inner_path(rest, n) && set(&out->what, rest, n));
}

/* "org/repo", "org/repo@rev:what" or "org/repo/inside". false: it is none of these. */
static bool read_repo(const char *text, bool url, mn_model_name *out) {
    const char *slash = strchr(text, '/');
    if (!slash)
        return false;
    const size_t n = (size_t)(slash + 1 - text) + strcspn(slash + 1, "/@:");
    const char *rest = text + n;
    if (!set(&out->repo, text, n) || !is_repo(out->repo) || !set(&out->plain, text, n))
        return false;
    if (*rest == '/')
        return url ? rest[1] == 0 || read_inside(rest + 1, out) : false;
    if (*rest == '@') {
        const size_t n_rev = strcspn(rest + 1, ":");
        if (!is_revision((mn_str){rest + 1, n_rev}) || !set(&out->revision, rest + 1, n_rev))
            return false;
        rest += 1 + n_rev;
    }
    if (!*rest)
        return true;
    rest++;
    return *rest && mn_is_inner_path(rest, strlen(rest)) && set(&out->what, rest, strlen(rest));
}

/* "name:tag" of local places, with any number of parts. */
static bool read_plain(const char *text, mn_model_name *out) {
    const char *last = strrchr(text, '/');
    const char *colon = strchr(last ? last : text, ':');
    const size_t n = colon ? (size_t)(colon - text) : strlen(text);
    if (!mn_is_inner_path(text, n) || strspn(text, part_chars) == 0 || !set(&out->plain, text, n))
        return false;
    return !colon || (colon[1] && mn_is_inner_path(colon + 1, strlen(colon + 1)) &&
                      !strchr(colon + 1, '/') && set(&out->what, colon + 1, strlen(colon + 1)));
}

static mn_status fail_hub(const char *text, mn_error *err) {
    if (strstr(text, "datasets/") || strstr(text, "spaces/"))
        return mn_fail(err, MN_BAD_INPUT,
                       "%s: found a data set or a space, expected the repository of a model", text);
    return mn_fail(err, MN_BAD_INPUT,
                   "%s: expected org/repo, org/repo:QUANT, or the URL of a repository or of a file "
                   "in it",
                   text);
}

static mn_status fail_host(const char *text, mn_error *err) {
    return mn_fail(err, MN_BAD_INPUT,
                   "%s: no hub is known at this host; HF_ENDPOINT names another one than "
                   "https://huggingface.co, and files from elsewhere are downloaded by other "
                   "programs",
                   text);
}

/* Without the query and the fragment of a URL, and the slashes at its end; NULL: out of memory. */
static char *trimmed(const char *text, bool url) {
    size_t n = url ? strcspn(text, "?#") : strlen(text);
    while (url && n && text[n - 1] == '/')
        n--;
    return mn_strndup(text, n);
}

/* copy: behind prefix and host. errno is ENOMEM where memory was short. */
static bool read_name(const char *copy, bool url, mn_model_name *out) {
    const mn_store only = out->only;
    const bool foreign = starts(copy, "datasets/") || starts(copy, "spaces/");
    if (only == MN_STORE_HUB)
        return !foreign && read_repo(copy, url, out);
    if (only != MN_STORE_OLLAMA && read_repo(copy, url, out))
        return true;
    if (errno == ENOMEM)
        return false;
    mn_name_free(out);
    out->only = only;
    return read_plain(copy, out);
}

/* What is not said is "". */
static bool fill(mn_model_name *name) {
    char **texts[] = {&name->repo, &name->revision, &name->what};
    for (size_t i = 0; i < MN_COUNT(texts); i++)
        if (!*texts[i] && !set(texts[i], "", 0))
            return false;
    return true;
}

mn_status mn_name_parse(const char *text, mn_model_name *out, mn_error *err) {
    mn_model_name name = {0};
    bool url = false;
    if (!*text || strlen(text) > NAME_MAX_BYTES || strchr("/.~", text[0]))
        return MN_END;
    const char *rest = strip_place(text, &name, &url);
    if (!rest)
        return fail_host(text, err);
    errno = 0;
    char *copy = trimmed(rest, url);
    const bool done = copy && read_name(copy, url, &name) && fill(&name);
    const bool no_memory = !done && errno == ENOMEM;
    mn_free(copy);
    if (done) {
        *out = name;
        return MN_OK;
    }
    const mn_store only = name.only;
    mn_name_free(&name);
    if (no_memory)
        return mn_fail_memory(err, strlen(text));
    return only == MN_STORE_ANY ? MN_END : fail_hub(text, err);
}
