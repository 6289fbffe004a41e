/* pattern.c -- the file names of a loader's format, as it states them: copied once when the plugin
 * is opened, checked, and matched against the names of a folder. runtime/registry owns the copies,
 * one list per loader; runtime/model/files.c asks them. Nothing here knows a format. */
#include "base/base.h"
#include <string.h>

enum { MAX_TEXT = 255, MAX_EACH = 2 };

/* Why text is no pattern, as the end of a sentence; NULL = it is one. */
static const char *pattern_fault_of_text(mn_str text) {
    uint32_t stars = 0;
    uint32_t numbers = 0;
    uint32_t others = 0;
    if (!text.ptr || !text.len || text.len > MAX_TEXT)
        return "is not of 1 to 255 bytes";
    if (mn_utf8_check(text.ptr, (size_t)text.len) < text.len)
        return "is not UTF-8";
    for (uint64_t i = 0; i < text.len; i++) {
        const char c = text.ptr[i];
        const char next = i + 1 < text.len ? text.ptr[i + 1] : 0;
        if (c == '/' || (unsigned char)c < 32)
            return "is not a base name";
        if (c == '#' && (next == '#' || mn_is_digit(next)))
            return "has a '#' before a digit or another '#'";
        stars += c == '*';
        numbers += c == '#';
        others += c != '*' && c != '#' && c != '.';
    }
    if (stars > MAX_EACH || numbers > MAX_EACH)
        return "has more than two '*' or two '#'";
    return others ? NULL : "names every file";
}

static const char *pattern_fault_of(const mn_file_pattern *p) {
    uint32_t numbers = 0;
    const char *why = pattern_fault_of_text(p->text);
    if (why)
        return why;
    for (uint64_t i = 0; i < p->text.len; i++)
        numbers += p->text.ptr[i] == '#';
    if (!p->kind)
        return "is of no kind";
    if (p->kind == MN_PATTERN_SHARD && numbers != 2)
        return "is of kind SHARD and has not two '#', number and count";
    return NULL;
}

static mn_status pattern_add(mn_patterns *list, const mn_file_pattern *p, mn_error *err) {
    mn_name_pattern *at = mn_realloc(list->at, list->n + 1u, sizeof *at);
    if (!at)
        return mn_fail_memory(err, (list->n + 1u) * sizeof *at);
    list->at = at;
    char *text = mn_strndup(p->text.ptr, (size_t)p->text.len);
    if (!text)
        return mn_fail_memory(err, (size_t)p->text.len);
    list->at[list->n++] = (mn_name_pattern){p->kind, p->flags, text};
    return MN_OK;
}

/* Some pattern tells a model by its name, else no file would ever reach the loader. */
static bool names_models(const mn_patterns *list) {
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i].kind >= MN_PATTERN_MODEL && list->at[i].kind <= MN_PATTERN_FOLDER)
            return true;
    return false;
}

static mn_status pattern_read_all(const mn_loader *loader, void *self, mn_patterns *list,
                                  mn_error *err) {
    for (uint32_t i = 0; i <= MN_MAX_PATTERN; i++) {
        mn_file_pattern p = {.size = sizeof p};
        mn_status st = loader->patterns(self, i, &p);
        if (st == MN_END)
            return MN_OK;
        if (st)
            return mn_fail(err, MN_BAD_INPUT,
                           "its file pattern %u gave status 0x%x, expected "
                           "MN_OK or MN_END",
                           i, (unsigned)st);
        const char *why = pattern_fault_of(&p);
        if (why)
            return mn_fail(err, MN_BAD_INPUT, "its file pattern %u (\"%.*s\") %s", i,
                           p.text.ptr ? (int)MN_MIN(p.text.len, (uint64_t)80) : 0,
                           p.text.ptr ? p.text.ptr : "", why);
        st = pattern_add(list, &p, err);
        if (st)
            return st;
    }
    return mn_fail(err, MN_BAD_INPUT, "its file patterns do not end, expected at most %d",
                   MN_MAX_PATTERN);
}

mn_status mn_patterns_read(const mn_loader *loader, void *self, mn_patterns *out, mn_error *err) {
    mn_patterns list = {0};
    mn_status st = pattern_read_all(loader, self, &list, err);
    if (!st && !names_models(&list))
        st = mn_fail(err, MN_BAD_INPUT,
                     "its loader states no file pattern of kind MODEL, SHARD or "
                     "FOLDER, expected at least one: without it no file is its own");
    if (st)
        mn_patterns_free(&list);
    else
        *out = list;
    return st;
}

void mn_patterns_free(mn_patterns *p) {
    for (uint32_t i = 0; i < p->n; i++)
        mn_free(p->at[i].text);
    mn_free(p->at);
    *p = (mn_patterns){0};
}

/* The rest of a pattern on the rest of a name; stars, numbers: how many of each came before. There
 * are at most two '*', so that going back costs the square of a name's length at most. */
static bool pattern_match(const char *p, const char *s, uint32_t stars, uint32_t numbers,
                          mn_name_hit *hit) {
    for (; *p; p++) {
        if (*p == '*' && stars < MAX_EACH) {
            for (const char *end = s;; end++) {
                hit->star[stars] = (mn_str){s, (uint64_t)(end - s)};
                if (pattern_match(p + 1, end, stars + 1, numbers, hit))
                    return true;
                if (!*end)
                    return false;
            }
        }
        if (*p == '#' && numbers < MAX_EACH) {
            const char *from = s;
            while (mn_is_digit(*s))
                s++;
            if (s == from)
                return false;
            hit->number[numbers++] = (mn_str){from, (uint64_t)(s - from)};
        } else if (*p != *s++) {
            return false;
        }
    }
    return !*s;
}

bool mn_name_match(const mn_name_pattern *p, const char *name, mn_name_hit *hit) {
    mn_name_hit own = {0};
    if (strlen(name) > MAX_TEXT || !pattern_match(p->text, name, 0, 0, &own))
        return false;
    if (hit)
        *hit = own;
    return true;
}

uint32_t mn_patterns_kinds(const mn_patterns *p, const char *name) {
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->at[i].kind <= MN_PATTERN_COMPANION && mn_name_match(&p->at[i], name, NULL))
            kinds |= 1u << p->at[i].kind;
    return kinds;
}
