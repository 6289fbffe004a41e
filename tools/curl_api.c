/* curl_api.c -- opens libcurl at the first call that needs it (curl_api.h).
 *
 * It is not linked: with it come some thirty libraries, which every start of the command would
 * wait for, and a machine without it runs all other commands. The header of the build says how the
 * functions are called; libcurl has kept its ABI, libcurl.so.4, since 2006. Debian has it with
 * OpenSSL and with GnuTLS, under two names; both export the same functions. */
#include "curl_api.h"
#include "out.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define ROW(name) {"curl_" #name, offsetof(curl_api, name)},
    CURL_FUNCTIONS(ROW)
#undef ROW
};

/* 1 if the library has every function. */
static int find_all(void *library, curl_api *api) {
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(library, functions[i].name);
        if (!address)
            return 0;
        memcpy((char *)api + functions[i].offset, &address, sizeof address);
    }
    return 1;
}

const curl_api *curl_open(const char *what) {
    static curl_api api;
    static int ready;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !ready; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        ready = library && find_all(library, &api) && api.global_init(CURL_GLOBAL_DEFAULT) == 0;
    }
    if (ready)
        return &api;
    complain(EXIT_FAILED,
             "%s needs %s of libcurl 7.66 or later, which cannot be opened: "
             "install the package libcurl4",
             what, names[0]);
    return NULL;
}

/* Files of the authorities' certificates, by system. */
static const char *const bundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch, Alpine */
    "/etc/pki/tls/certs/ca-bundle.crt",                  /* RHEL, Fedora */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* newer ones of these */
    "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
    "/etc/ssl/cert.pem",                                 /* Alpine's own, without the package */
};

void curl_trust(const curl_api *api, CURL *easy) {
    const char *file = getenv("SSL_CERT_FILE");
    const char *own = NULL;
    if (!file || !*file) {
        file = NULL;
        if (api->easy_getinfo(easy, CURLINFO_CAINFO, &own) != CURLE_OK || !own ||
            access(own, R_OK) == 0)
            return; /* a library before 7.84 does not say what it takes */
        for (size_t i = 0; i < sizeof bundles / sizeof bundles[0] && !file; i++)
            if (access(bundles[i], R_OK) == 0)
                file = bundles[i];
    }
    if (file)
        api->easy_setopt(easy, CURLOPT_CAINFO, file);
}
