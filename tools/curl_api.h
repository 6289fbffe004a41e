/* curl_api.h -- the functions of libcurl that the command calls, opened when they are needed. */
#ifndef MINERVA_CURL_API_H
#define MINERVA_CURL_API_H
#define CURL_DISABLE_TYPECHECK /* its macros name the functions themselves */
#include <curl/curl.h>

#define CURL_FUNCTIONS(X)                                                                          \
    X(global_init)                                                                                 \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(easy_init)                                                                                   \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_perform)                                                                                \
    X(easy_strerror)                                                                               \
    X(easy_cleanup)                                                                                \
    X(multi_init)                                                                                  \
    X(multi_setopt)                                                                                \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_socket_action)                                                                         \
    X(multi_perform)                                                                               \
    X(multi_poll)                                                                                  \
    X(multi_info_read)                                                                             \
    X(multi_strerror)                                                                              \
    X(multi_cleanup)

typedef struct {
#define MEMBER(name) __typeof__(&curl_##name) name;
    CURL_FUNCTIONS(MEMBER)
#undef MEMBER
} curl_api;

/* The library, the same at every call; NULL with the error printed: `what` needs it. One thread. */
const curl_api *curl_open(const char *what);

/* Which authorities' certificates a new handle believes: those of the file SSL_CERT_FILE, else the
 * library's own choice, and where that file is not there, those of the system, wherever it has
 * them: a library may be another system's. */
void curl_trust(const curl_api *api, CURL *easy);
#endif
