/* reload.c -- what is read from files at the start and again at SIGHUP: settings, keys, and the
 * certificate with its key. A file that cannot be used leaves everything as it was. */
#include "serve/notify.h"
#include "serve/serve.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A file in PEM, which has a block of this kind. *text: malloc'ed. 0, or the exit code with the
 * error printed. */
static int read_pem(const char *flag, const char *path, const char *kind, char **text) {
    size_t n = 0;
    const int code = read_all_text(path, text, &n);
    if (code)
        return code;
    const char *begin = strstr(*text, "-----BEGIN ");
    if (begin && strstr(begin, kind))
        return 0;
    return complain(EXIT_FAILED, "%s %s: found no block \"-----BEGIN ...%s\", expected a PEM file",
                    flag, path, kind);
}

int serve_read_tls(const serve_flags *f, char **cert, char **key) {
    int code = 0;
    if (f->tls_cert)
        code = read_pem("--tls-cert", f->tls_cert, "CERTIFICATE-----", cert);
    if (code == 0 && f->tls_key)
        code = read_pem("--tls-key", f->tls_key, "PRIVATE KEY-----", key);
    return code;
}

/* "max-queue = 100" into flags. 0, or the exit code with the error printed. */
static int read_setting(const char *path, unsigned number, char *line, serve_flags *flags) {
    static const char blank[] = " \t\r";
    char where[300];
    char *name = line + strspn(line, blank);
    if (!*name || *name == '#')
        return 0;
    char *value = name + strcspn(name, "=");
    const int has_value = *value == '=';
    *value = 0;
    value += has_value;
    name[strcspn(name, blank)] = 0;
    value += strspn(value, blank);
    for (size_t n = strlen(value); n && strchr(blank, value[n - 1]); n--)
        value[n - 1] = 0;
    const arg_row *row = has_value ? serve_setting(name) : NULL;
    snprintf(where, sizeof where, "%.200s:%u: %.40s", path, number, name);
    if (!row)
        return complain(EXIT_FAILED,
                        "%s: expected NAME = VALUE, and of names max-queue, max-per-key, ping, "
                        "drain or engine-timeout",
                        where);
    return args_store(row, (char *)flags + row->offset, where, value) ? EXIT_FAILED : 0;
}

int serve_read_settings(serve *s) {
    const char *path = s->given.settings;
    serve_flags flags = s->given;
    char *text = NULL;
    size_t n = 0;
    unsigned number = 0;
    int code = path ? read_all_text(path, &text, &n) : 0;
    for (char *line = text; line && *line && code == 0;) {
        char *next = line + strcspn(line, "\n");
        const int is_last = !*next;
        *next = 0;
        code = read_setting(path, ++number, line, &flags);
        line = is_last ? next : next + 1;
    }
    free(text);
    if (code)
        return code;
    *s->flags = flags;
    for (unsigned i = 0; i < s->models.n; i++)
        for (unsigned k = 0; k < s->models.v[i]->n_links; k++)
            s->models.v[i]->links[k].most_silent_s = (double)flags.engine_timeout;
    return 0;
}

/* 1 if new connections have the certificate of the files. */
static int reload_tls(const serve *s) {
    char *cert = NULL;
    char *key = NULL;
    const int ok =
        serve_read_tls(s->flags, &cert, &key) == 0 && http_use_certificate(s->http, cert, key);
    free(cert);
    free(key);
    return ok;
}

void serve_reload(serve *s) {
    const serve_flags *f = s->flags;
    struct timespec now = {0};
    char state[64];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    notify_send(state);
    if (f->settings && serve_read_settings(s) != 0)
        note("warning: --settings %s: they stay as they were", f->settings);
    else if (f->settings)
        app_remark(&s->a, "--settings %s: read again", f->settings);
    if (f->key_file && access_read_keys(&s->access, f->key_file) != 0)
        note("warning: --api-key %s: the keys stay as they were", f->key_file);
    else if (f->key_file)
        app_remark(&s->a, "--api-key %s: read again", f->key_file);
    if (f->tls_cert && !reload_tls(s))
        note("warning: --tls-cert %s: the certificate stays as it was", f->tls_cert);
    else if (f->tls_cert)
        app_remark(&s->a, "--tls-cert %s: read again", f->tls_cert);
    if (!f->settings && !f->key_file && !f->tls_cert)
        app_remark(&s->a, "SIGHUP: found none of --settings, --api-key, --tls-cert to read again");
    notify_send("READY=1");
}
