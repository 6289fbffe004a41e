/* loader_patterns.c -- the file names that a loader states: whether they are valid, which names they
 * match, and which files of a folder belong to the one that was named. Written anew beside the
 * host's own (runtime/base/pattern.c, runtime/model/files.c): the command knows plugin.h alone. */
#include "loader.h"
#include <string.h>

/* ---- one pattern ----------------------------------------------------------------------------- */
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static uint32_t count_of(mn_str text, char c) {
    uint32_t n = 0;
    for (uint64_t i = 0; i < text.len; i++)
        n += text.ptr[i] == c;
    return n;
}

/* What is wrong with a text, as "found ..., expected ..."; NULL = nothing. */
static const char *fault_of_text(mn_str t) {
    if (!t.ptr || !t.len || t.len > 255)
        return "expected 1 to 255 bytes";
    if (count_of(t, '*') > 2 || count_of(t, '#') > 2)
        return "expected at most two '*' and two '#'";
    if (count_of(t, '*') + count_of(t, '#') + count_of(t, '.') == t.len)
        return "expected something other than '*', '#' and '.': this names every file";
    for (uint64_t i = 0; i < t.len; i++) {
        if (t.ptr[i] == '/' || (unsigned char)t.ptr[i] < 32)
            return "expected a base name, without '/' and control characters";
        if (t.ptr[i] == '#' && i + 1 < t.len && (is_digit(t.ptr[i + 1]) || t.ptr[i + 1] == '#'))
            return "expected no digit or '#' after a '#', which takes all digits";
    }
    return NULL;
}

static const char *fault_of(const mn_file_pattern *p) {
    if (p->kind < MN_PATTERN_MODEL || p->kind > MN_PATTERN_COMPANION)
        return "expected a kind of MN_PATTERN_MODEL to MN_PATTERN_COMPANION";
    if (p->kind == MN_PATTERN_SHARD && count_of(p->text, '#') != 2)
        return "of kind MN_PATTERN_SHARD: expected two '#', the shard's number and the count";
    if ((p->flags & ~MN_PATTERN_WHOLE) || p->pad)
        return "expected flags of MN_PATTERN_WHOLE or 0, and pad 0";
    if (p->size < offsetof(mn_file_pattern, flags))
        return "expected its size to be set to what was filled";
    return fault_of_text(p->text);
}

/* parts: [2] what stands for '*' first, [2] for '#'. */
static bool match(const char *p, const char *end, const char *s, uint32_t stars, uint32_t numbers,
                  mn_str *parts) {
    if (p == end)
        return !*s;
    if (*p == '*') {
        const uint64_t rest = strlen(s);
        for (uint64_t n = 0; n <= rest; n++) {
            parts[stars] = (mn_str){s, n};
            if (match(p + 1, end, s + n, stars + 1, numbers, parts))
                return true;
        }
        return false;
    }
    if (*p == '#') {
        uint64_t n = 0;
        while (is_digit(s[n]))
            n++;
        parts[2 + numbers] = (mn_str){s, n};
        return n && match(p + 1, end, s + n, stars, numbers + 1, parts);
    }
    return *p == *s && match(p + 1, end, s + 1, stars, numbers, parts);
}

static bool matches(const mn_file_pattern *p, const char *name, mn_str parts[4]) {
    memset(parts, 0, 4 * sizeof *parts);
    return match(p->text.ptr, p->text.ptr + p->text.len, name, 0, 0, parts);
}

/* ---- all of them ----------------------------------------------------------------------------- */
bool patterns_read(check *c, const check_plugin *plugin, loader_patterns *out) {
    uint32_t models = 0;
    out->n = 0;
    for (uint32_t i = 0;; i++) {
        mn_file_pattern p = {.size = sizeof p};
        check_doing(c, "patterns(%u) ran", i);
        mn_status st = plugin->ld->patterns(plugin->api->self, i, &p);
        if (st == MN_END)
            break;
        if (st || i == LOADER_PATTERNS) {
            check_fail(c,
                       "patterns(%u): found status 0x%x, expected MN_OK, or MN_END past the last "
                       "of at most %d",
                       i, (unsigned)st, LOADER_PATTERNS);
            return false;
        }
        const char *why = fault_of(&p);
        if (why) {
            check_fail(c, "patterns(%u): found kind %u, flags 0x%x, \"%.*s\", %s", i, p.kind,
                       p.flags, (int)(p.text.ptr && p.text.len < 99 ? p.text.len : 0), p.text.ptr,
                       why);
            return false;
        }
        out->at[out->n++] = p;
        models += p.kind != MN_PATTERN_COMPANION;
    }
    if (!models)
        check_fail(c, "patterns: found none of kind MODEL, SHARD or FOLDER, expected at least one: "
                      "no file would ever reach the loader");
    return models > 0;
}

uint32_t patterns_kinds(const loader_patterns *p, const char *name) {
    uint32_t kinds = 0;
    mn_str parts[4];
    for (uint32_t i = 0; i < p->n; i++)
        if (matches(&p->at[i], name, parts))
            kinds |= 1u << p->at[i].kind;
    return kinds;
}

static bool same(mn_str a, mn_str b) {
    return a.len == b.len && (!a.len || !memcmp(a.ptr, b.ptr, a.len));
}

static bool siblings(const loader_patterns *p, const char *a, const char *b) {
    mn_str x[4], y[4];
    for (uint32_t i = 0; i < p->n; i++)
        if (p->at[i].kind == MN_PATTERN_SHARD && matches(&p->at[i], a, x) &&
            matches(&p->at[i], b, y) && same(x[0], y[0]) && same(x[1], y[1]) && same(x[3], y[3]))
            return true;
    return false;
}

bool patterns_take(const loader_patterns *p, const char *named, const char *name) {
    const uint32_t kinds = patterns_kinds(p, name);
    if (!named || !(patterns_kinds(p, named) & PATTERNS_FILE))
        return kinds != 0;
    if (!strcmp(named, name))
        return true;
    return kinds & PATTERNS_FILE ? siblings(p, named, name) : kinds != 0;
}

/* ---- the rule -------------------------------------------------------------------------------- */
/* The struct's size says how much may be written. */
static void check_size(check *c, const check_plugin *plugin) {
    mn_file_pattern p;
    const uint32_t room = offsetof(mn_file_pattern, text);
    memset(&p, 0xA5, sizeof p);
    p.size = room;
    plugin->ld->patterns(plugin->api->self, 0, &p);
    for (size_t i = room; i < sizeof p; i++)
        if (((const uint8_t *)&p)[i] != 0xA5) {
            check_fail(c, "patterns(0) with size %u: byte %zu was written", room, i);
            return;
        }
    if (p.size > room)
        check_fail(c, "patterns(0) with size %u: found size %u, expected at most that", room,
                   p.size);
}

static void check_again(check *c, const check_plugin *plugin, const loader_patterns *first) {
    static loader_patterns again;
    mn_file_pattern past = {.size = sizeof past};
    bool equal = patterns_read(c, plugin, &again) && again.n == first->n;
    for (uint32_t i = 0; equal && i < first->n; i++)
        equal = again.at[i].kind == first->at[i].kind && again.at[i].flags == first->at[i].flags &&
                same(again.at[i].text, first->at[i].text);
    if (!equal)
        check_fail(c, "patterns: found other answers when asked again, expected the same");
    if (!check_over(c) && plugin->ld->patterns(plugin->api->self, UINT32_MAX, &past) != MN_END)
        check_fail(c, "patterns(%u): expected MN_END", UINT32_MAX);
}

/* Some file of a model of its format would lead a host to it. */
static void check_names(loader *l) {
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < l->model.n; i++)
        kinds |= patterns_kinds(&l->patterns, l->model.file[i].name);
    if (!(kinds & (PATTERNS_FILE | 1u << MN_PATTERN_FOLDER)))
        check_fail(l->c,
                   "the model %s (%s) is claimed, and none of its names is matched by a pattern of "
                   "kind MODEL, SHARD or FOLDER: no host would find it",
                   l->model.format, l->model.n ? l->model.file[0].name : "no file");
    model_free(&l->model);
}

/* By guess alone: whether they open is the next rule's. */
static void check_models(loader *l) {
    for (uint32_t i = 0; i < LOADER_MODELS && !check_over(l->c); i++) {
        mapped_files m;
        model_make(&l->model, i);
        const bool claimed = mapped_make(&m, &l->model, MAP_BEGIN) && loader_guess(l, &m) > 0;
        mapped_free(&m);
        if (claimed)
            check_names(l);
        model_free(&l->model);
    }
}

void check_model_patterns(check *c) {
    static loader l;
    memset(&l, 0, sizeof l);
    l.c = c;
    check_host_init(&l.host);
    if (check_open(c, &l.plugin, &l.host) && l.plugin.ld &&
        patterns_read(c, &l.plugin, &l.patterns)) {
        check_again(c, &l.plugin, &l.patterns);
        if (!check_over(c))
            check_size(c, &l.plugin);
        if (c->model && !check_over(c) && !model_read(&l.model, c->model, &l.patterns))
            check_names(&l);
        else if (!c->model)
            check_models(&l);
        check_found(c, "%u patterns", l.patterns.n);
    }
    loader_close(&l);
}
