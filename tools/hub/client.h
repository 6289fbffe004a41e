/* client.h -- requests of the hub: what client.c and transfer.c share. */
#ifndef MINERVA_HUB_CLIENT_H
#define MINERVA_HUB_CLIENT_H
#include "curl_api.h"
#include "hub.h"

struct hub_client {
    const curl_api *api;
    const char *endpoint;
    CURLM *multi;
    char agent[64];
};

/* The headers of an answer that count; each "" where it was not sent. */
typedef struct {
    long status;
    char etag[80], linked_etag[80], commit[48], error_code[48], message[200];
    char *location; /* malloc'ed */
    uint64_t length, linked_size, range_from;
    int has_length, has_linked_size, has_range;
    double retry_after; /* seconds; -1 = not said */
} hub_head;
void hub_head_reset(hub_head *h);
/* One line of a head, as libcurl gives it; a status line begins the head anew. */
void hub_head_line(hub_head *h, const char *line, size_t n);

/* One request: the handle, its headers, and what was answered. */
typedef struct {
    CURL *easy;
    struct curl_slist *headers;
    hub_head head;
    char error[CURL_ERROR_SIZE];
} hub_request;
/* A request of url, malloc'ed by others; the token goes along if url is the endpoint's. 0, or the
 * exit code. head: HEAD instead of GET. */
int hub_request_begin(const hub_client *c, hub_request *r, const char *url, int head);
void hub_request_end(const hub_client *c, hub_request *r);
/* 1: the failure is one of the network before any answer: no route, no name, refused. */
int hub_is_unreachable(CURLcode result);
/* The sentence for it. */
int hub_complain_network(const hub_client *c, const char *url, CURLcode result, const char *detail);
/* 1: another try may help: statuses 408, 429 and 5xx, and what breaks on the way. */
int hub_may_retry(long status);
#endif
