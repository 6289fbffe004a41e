/* reload.c -- what is read from files of secrets, at the start and again at SIGHUP: keys, and the
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
    if (f->key_file && access_read_keys(&s->access, f->key_file) != 0)
        note("warning: --api-key %s: the keys stay as they were", f->key_file);
    else if (f->key_file)
        app_remark(&s->a, "--api-key %s: read again", f->key_file);
    if (f->tls_cert && !reload_tls(s))
        note("warning: --tls-cert %s: the certificate stays as it was", f->tls_cert);
    else if (f->tls_cert)
        app_remark(&s->a, "--tls-cert %s: read again", f->tls_cert);
    if (!f->key_file && !f->tls_cert)
        app_remark(&s->a, "SIGHUP: there is neither --api-key nor --tls-cert to read again");
    notify_send("READY=1");
}
