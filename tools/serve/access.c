/* access.c -- the decisions of access.h. The rules belong to the server; while it runs, only
 * its keys change. A key is compared with all keys, byte by byte, without an early end. */
#include "serve/access.h"
#include "app.h"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Adds a key and its name. 0: out of memory. */
static int add_key(access_rules *rules, const char *key, const char *name) {
    char **keys = realloc(rules->keys, (rules->n_keys + 1) * sizeof *keys);
    rules->keys = keys ? keys : rules->keys;
    char **names = realloc(rules->names, (rules->n_keys + 1) * sizeof *names);
    rules->names = names ? names : rules->names;
    if (!keys || !names)
        return 0;
    keys[rules->n_keys] = strdup(key);
    names[rules->n_keys] = strdup(name);
    if (keys[rules->n_keys] && names[rules->n_keys]) {
        rules->n_keys++;
        return 1;
    }
    free(keys[rules->n_keys]);
    free(names[rules->n_keys]);
    return 0;
}

/* The keys of a file, into rules without any. 0, or the exit code with the error printed. */
static int access_read_file(access_rules *rules, const char *path) {
    static const char blank[] = " \t";
    char *text = NULL;
    char *rest = NULL;
    size_t n = 0;
    int code = read_all_text(path, &text, &n);
    if (code)
        return code;
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        line += strspn(line, blank);
        char *name = line + strcspn(line, blank);
        if (*name)
            *name++ = 0;
        name += strspn(name, blank);
        name[strcspn(name, blank)] = 0;
        if (*line && *line != '#' && code == 0 && !add_key(rules, line, name))
            code = no_memory();
    }
    memset(text, 0, n);
    free(text);
    if (code == 0 && !rules->n_keys)
        code = complain(EXIT_FAILED, "%s: found no key, expected one per line", path);
    return code;
}

/* The number of a key, or n_keys. */
static size_t find_key(const access_rules *rules, const char *key) {
    size_t i = 0;
    while (i < rules->n_keys && strcmp(rules->keys[i], key) != 0)
        i++;
    return i;
}

static void free_keys(access_rules *rules) {
    for (size_t i = 0; i < rules->n_keys; i++) {
        memset(rules->keys[i], 0, strlen(rules->keys[i]));
        free(rules->keys[i]);
        free(rules->names[i]);
    }
    free(rules->keys);
    free(rules->names);
}

int access_read_keys(access_rules *rules, const char *path) {
    access_rules now = {0};
    int code = access_read_file(&now, path);
    const size_t n_before = rules->n_keys;
    for (size_t i = 0; code == 0 && i < now.n_keys; i++) {
        const size_t at = find_key(rules, now.keys[i]);
        if (at < rules->n_keys) {
            char *name = rules->names[at];
            rules->names[at] = now.names[i];
            now.names[i] = name;
        } else if (!add_key(rules, now.keys[i], now.names[i])) {
            code = no_memory();
        }
    }
    for (size_t i = 0; code == 0 && i < n_before; i++)
        if (find_key(&now, rules->keys[i]) == now.n_keys)
            memset(rules->keys[i], 0, strlen(rules->keys[i]));
    free_keys(&now);
    return code;
}

const char *access_first_key(const access_rules *rules) {
    size_t i = 0;
    while (i + 1 < rules->n_keys && !*rules->keys[i])
        i++;
    return rules->keys[i];
}

void access_free(access_rules *rules) {
    free_keys(rules);
    rules->keys = NULL;
    rules->names = NULL;
    rules->n_keys = 0;
}

/* 1 if the texts are equal; the time depends on the length of `given` alone. */
static int same_key(const char *key, const char *given) {
    const size_t n_key = strlen(key);
    const size_t n = strlen(given);
    unsigned different = n != n_key;
    for (size_t i = 0; i < n; i++)
        different |= (unsigned)(unsigned char)given[i] ^ (unsigned char)key[i < n_key ? i : 0];
    return different == 0;
}

const char *access_given(const char *authorization, const char *plain) {
    static const char scheme[] = "Bearer ";
    const int has_key = authorization && !strncasecmp(authorization, scheme, sizeof scheme - 1);
    return has_key ? authorization + sizeof scheme - 1 : plain;
}

int access_key(const access_rules *rules, const char *authorization, const char *plain) {
    const char *given = access_given(authorization, plain);
    int found = -1;
    for (size_t i = 0; given && *given && i < rules->n_keys; i++)
        if (same_key(rules->keys[i], given))
            found = (int)i;
    return found;
}

int access_is_public(const access_rules *rules, const char *path) {
    return !strcmp(path, "/") || !strcmp(path, "/health") || !strcmp(path, "/health/live") ||
           !strcmp(path, "/health/ready") || (rules->metrics_open && !strcmp(path, "/metrics"));
}

/* 1 for ":PORT", and for nothing. */
static int is_port(const char *text) {
    const size_t n = *text == ':' ? strspn(text + 1, "0123456789") : 0;
    return !*text || (n && n <= 5 && !text[1 + n]);
}

/* Copies "name", "name:port" or "[address]:port" without the port and brackets. 0: too long or
 * malformed. */
static int host_name(const char *host, char *out, size_t cap) {
    unsigned char address[16];
    const int bracket = *host == '[';
    const char *begin = host + bracket;
    const size_t n = strcspn(begin, bracket ? "]" : ":");
    if (n >= cap || (bracket && begin[n] != ']') || !is_port(begin + n + bracket))
        return 0;
    memcpy(out, begin, n);
    out[n] = 0;
    return !bracket || inet_pton(AF_INET6, out, address) == 1;
}

/* 1 for an IPv4 or IPv6 address, which no name server can point elsewhere. */
static int is_numeric(const char *host) {
    unsigned char address[16];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

int access_is_local(const char *host) {
    unsigned char v4[4];
    if (inet_pton(AF_INET, host, v4) == 1)
        return v4[0] == 127;
    return !strcasecmp(host, "localhost") || !strcmp(host, "::1");
}

int access_host(const access_rules *rules, const char *host) {
    char name[256];
    if (!host)
        return 1;
    if (!host_name(host, name, sizeof name))
        return 0;
    return access_is_local(name) || !strcasecmp(name, rules->host) ||
           (rules->insecure && is_numeric(name));
}

int access_origin(const access_rules *rules, const char *origin, const char *host) {
    for (size_t i = 0; i < rules->n_origins; i++)
        if (!strcmp(rules->origins[i], origin) || !strcmp(rules->origins[i], "*"))
            return 1;
    const char *scheme = rules->tls ? "https://" : "http://";
    const size_t n = strlen(scheme);
    return host && !strncasecmp(origin, scheme, n) && !strcasecmp(origin + n, host);
}
