/* address.c -- URLs of the hub: its endpoint, whether two URLs have one origin, where a redirect
 * leads. The token depends on it: it goes to the endpoint's origin alone. */
#include "hub.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define USUAL "https://huggingface.co"
enum { URL_MAX = 8192 };

static int is_plain(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text <= 32 || *text == 127 || *text == '\\')
            return 0;
    return 1;
}

int hub_origin_of(const char *url, hub_origin *out) {
    const char *rest = strstr(url, "://");
    const size_t n_scheme = rest ? (size_t)(rest - url) : 0;
    if ((n_scheme != 4 && n_scheme != 5) || strlen(url) > URL_MAX || !is_plain(url))
        return 0;
    for (size_t i = 0; i < n_scheme; i++)
        out->scheme[i] = (char)tolower((unsigned char)url[i]);
    out->scheme[n_scheme] = 0;
    if (strcmp(out->scheme, "http") != 0 && strcmp(out->scheme, "https") != 0)
        return 0;
    rest += 3;
    const size_t n = strcspn(rest, "/?#");
    if (!n || n >= sizeof out->host || memchr(rest, '@', n))
        return 0;
    for (size_t i = 0; i < n; i++)
        out->host[i] = (char)tolower((unsigned char)rest[i]);
    out->host[n] = 0;
    const char *port = !strcmp(out->scheme, "http") ? ":80" : ":443";
    const size_t n_port = strlen(port);
    if (n > n_port && !strcmp(out->host + n - n_port, port))
        out->host[n - n_port] = 0;
    return 1;
}

int hub_same_origin(const char *a, const char *b) {
    hub_origin x;
    hub_origin y;
    return hub_origin_of(a, &x) && hub_origin_of(b, &y) && !strcmp(x.scheme, y.scheme) &&
           !strcmp(x.host, y.host);
}

const char *hub_endpoint(void) {
    static char endpoint[1024];
    hub_origin origin;
    const char *said = getenv("HF_ENDPOINT");
    if (!said || !*said)
        return USUAL;
    snprintf(endpoint, sizeof endpoint, "%s", said);
    for (size_t n = strlen(endpoint); n && endpoint[n - 1] == '/'; n--)
        endpoint[n - 1] = 0;
    if (hub_origin_of(endpoint, &origin) && !strpbrk(endpoint, "?#"))
        return endpoint;
    complain(EXIT_USAGE, "HF_ENDPOINT: found \"%.100s\", expected http:// or https:// with a host",
             said);
    return NULL;
}

char *hub_follow(const char *url, const char *location) {
    hub_origin from;
    hub_origin to;
    mn_text b = {0};
    if (!hub_origin_of(url, &from) || !is_plain(location) || !*location)
        return NULL;
    if (location[0] == '/' && location[1] == '/') {
        mn_text_puts(&b, from.scheme);
        mn_text_puts(&b, ":");
    } else if (location[0] == '/') {
        const char *host = strstr(url, "://") + 3;
        mn_text_put(&b, url, (size_t)(host - url) + strcspn(host, "/?#"));
    } else if (!strstr(location, "://"))
        return NULL;
    mn_text_puts(&b, location);
    char *followed = mn_text_take(&b);
    if (followed && hub_origin_of(followed, &to) &&
        (strcmp(from.scheme, "https") != 0 || !strcmp(to.scheme, "https")))
        return followed;
    free(followed);
    return NULL;
}

void hub_put_escaped(mn_text *to, const char *text, int slashes) {
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        char escape[4];
        if (isalnum(c) || strchr("-._~", c) || (slashes && c == '/')) {
            mn_text_put(to, text, 1);
            continue;
        }
        snprintf(escape, sizeof escape, "%%%02X", c);
        mn_text_puts(to, escape);
    }
}

int hub_is_offline(const app_flags *flags) {
    const char *said = getenv("HF_HUB_OFFLINE");
    static const char *const words[] = {"1", "on", "yes", "true"};
    if (flags && flags->offline)
        return 1;
    for (size_t i = 0; said && i < MN_COUNT(words); i++)
        if (!strcasecmp(said, words[i]))
            return 1;
    return 0;
}
