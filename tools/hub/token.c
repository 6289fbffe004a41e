/* token.c -- the user's token for the hub. It is read from the environment once, before anything
 * else runs, and taken out of it: the processes that this one starts, and the plugins in it, do not
 * find it. /proc/PID/environ shows the bytes that the process began with: they are overwritten. */
#include "hub.h"
#include <stdlib.h>
#include <string.h>

enum { TOKEN_MAX = 1024 };
static char held[TOKEN_MAX + 1];

/* Letters, digits and marks of one word: what may stand in a header. */
static int is_token(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (text[i] < 33 || text[i] > 126)
            return 0;
    return n > 0 && n <= TOKEN_MAX;
}

void hub_hide_token(void) {
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        char *value = getenv(names[i]);
        if (!value)
            continue;
        const size_t n = strlen(value);
        if (!held[0] && is_token(value, n))
            memcpy(held, value, n + 1);
        memset(value, 0, n);
        unsetenv(names[i]);
    }
}

/* "FOLDER/TAIL" of the first variable that is set, else below the home; "" = none. */
static void token_path(char *path, size_t n) {
    const char *file = getenv("HF_TOKEN_PATH");
    const char *home = getenv("HF_HOME");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *user = getenv("HOME");
    path[0] = 0;
    if (file && *file)
        snprintf(path, n, "%s", file);
    else if (home && *home)
        snprintf(path, n, "%s/token", home);
    else if (cache && *cache)
        snprintf(path, n, "%s/huggingface/token", cache);
    else if (user && *user)
        snprintf(path, n, "%s/.cache/huggingface/token", user);
}

void hub_use_token(const char *text) {
    const size_t n = strlen(text);
    if (is_token(text, n))
        memcpy(held, text, n + 1);
}

const char *hub_token(void) {
    char path[4096];
    char text[TOKEN_MAX + 2] = "";
    const char *no = getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN");
    if (held[0])
        return held;
    if (no && *no && strcmp(no, "0") != 0)
        return NULL;
    token_path(path, sizeof path);
    FILE *f = path[0] ? fopen(path, "re") : NULL;
    if (!f)
        return NULL;
    if (!fgets(text, sizeof text, f))
        text[0] = 0;
    fclose(f);
    const size_t n = strcspn(text, " \t\r\n");
    text[n] = 0;
    if (!is_token(text, n))
        return NULL;
    memcpy(held, text, n + 1);
    return held;
}
