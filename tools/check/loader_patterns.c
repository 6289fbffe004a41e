/* loader_patterns.c -- rule model.patterns, and the file names that a loader states: whether
 * they are valid, which names they match, and which files of a folder belong to the one that the
 * user named. The host has the same in runtime/base/pattern.c and runtime/model/files.c; it is
 * written a second time, because the command depends on plugin.h alone. Patterns are copied,
 * their texts belong to the plugin. */
#include "loader.h"
#include <string.h>

/* ---- one pattern ----------------------------------------------------------------------------- */
static uint32_t loader_patterns_count_of(mn_str text, char c) {
    uint32_t n = 0;
    for (uint64_t i = 0; i < text.len; i++)
        n += text.ptr[i] == c;
    return n;
}

/* What was expected of a text; NULL = it is valid. */
static const char *fault_of_text(mn_str t) {
    if (!t.ptr || !t.len || t.len > 255)
        return "expected 1 to 255 bytes";
    const uint32_t stars = loader_patterns_count_of(t, '*');
    const uint32_t numbers = loader_patterns_count_of(t, '#');
    if (stars > 2 || numbers > 2)
        return "expected at most two '*' and two '#'";
    if (stars + numbers + loader_patterns_count_of(t, '.') == t.len)
        return "expected something other than '*', '#' and '.': this matches every file";
    for (uint64_t i = 0; i < t.len; i++) {
        const char at = t.ptr[i];
        char next = 0;
        if (i + 1 < t.len)
            next = t.ptr[i + 1];
        if (at == '/' || (unsigned char)at < 32)
            return "expected a base name, without '/' and control characters";
        if (at == '#' && (mn_is_digit(next) || next == '#'))
            return "expected no digit or '#' after a '#', which matches all digits";
    }
    return NULL;
}

static const char *fault_of(const mn_file_pattern *p) {
    if (p->kind < MN_PATTERN_MODEL || p->kind > MN_PATTERN_COMPANION)
        return "expected a kind of MN_PATTERN_MODEL to MN_PATTERN_COMPANION";
    if (p->kind == MN_PATTERN_SHARD && loader_patterns_count_of(p->text, '#') != 2)
        return "of kind MN_PATTERN_SHARD: expected two '#', the shard's number and the count";
    if ((p->flags & ~MN_PATTERN_WHOLE) || p->pad)
        return "expected flags of MN_PATTERN_WHOLE or 0, and pad 0";
    if (p->size < offsetof(mn_file_pattern, flags))
        return "expected its size to be set to what was filled";
    return fault_of_text(p->text);
}

/* Whether pattern [p, end) matches all of s. parts: [4], what the two '*' match, then the two
 * '#'. stars, numbers: how many of each came before p. */
static bool loader_patterns_match(const char *p, const char *end, const char *s, uint32_t stars,
                                  uint32_t numbers, mn_str *parts) {
    if (p == end)
        return !*s;
    if (*p == '*') {
        const uint64_t rest = strlen(s);
        for (uint64_t n = 0; n <= rest; n++) {
            parts[stars] = (mn_str){s, n};
            if (loader_patterns_match(p + 1, end, s + n, stars + 1, numbers, parts))
                return true;
        }
        return false;
    }
    if (*p == '#') {
        uint64_t n = 0;
        while (mn_is_digit(s[n]))
            n++;
        parts[2 + numbers] = (mn_str){s, n};
        return n && loader_patterns_match(p + 1, end, s + n, stars, numbers + 1, parts);
    }
    return *p == *s && loader_patterns_match(p + 1, end, s + 1, stars, numbers, parts);
}

static bool loader_patterns_matches(const mn_file_pattern *p, const char *name, mn_str parts[4]) {
    memset(parts, 0, 4 * sizeof *parts);
    return loader_patterns_match(p->text.ptr, p->text.ptr + p->text.len, name, 0, 0, parts);
}

/* ---- all of them ----------------------------------------------------------------------------- */
static void judge_pattern(check *c, uint32_t i, mn_status st, const mn_file_pattern *p) {
    CHECK(c, !st && i < LOADER_PATTERNS,
          "patterns(%u): found status 0x%x, expected MN_OK, or MN_END past the last of at most %d",
          i, (unsigned)st, LOADER_PATTERNS);
    const char *expected = fault_of(p);
    const bool printable = p->text.ptr && p->text.len < 99;
    CHECK(c, !expected, "patterns(%u): found kind %u, flags 0x%x, \"%.*s\", %s", i, p->kind,
          p->flags, printable ? (int)p->text.len : 0, p->text.ptr, expected);
}

bool patterns_read(check *c, const check_plugin *plugin, loader_patterns *out) {
    uint32_t models = 0;
    out->n = 0;
    for (uint32_t i = 0;; i++) {
        mn_file_pattern p = {.size = sizeof p};
        check_doing(c, "patterns(%u) ran", i);
        const mn_status st = plugin->ld->patterns(plugin->api->self, i, &p);
        if (st == MN_END)
            break;
        judge_pattern(c, i, st, &p);
        if (check_over(c))
            return false;
        out->at[out->n] = p;
        out->n++;
        models += p.kind != MN_PATTERN_COMPANION;
    }
    if (!models)
        check_fail(c,
                   "patterns: found none of kind MODEL, SHARD or FOLDER, expected at least one, or "
                   "no file is ever given to the loader");
    return models > 0;
}

uint32_t patterns_kinds(const loader_patterns *p, const char *name) {
    uint32_t kinds = 0;
    mn_str parts[4];
    for (uint32_t i = 0; i < p->n; i++)
        if (loader_patterns_matches(&p->at[i], name, parts))
            kinds |= 1u << p->at[i].kind;
    return kinds;
}

static bool loader_patterns_same(mn_str a, mn_str b) {
    if (a.len != b.len)
        return false;
    return !a.len || !memcmp(a.ptr, b.ptr, a.len);
}

/* Whether a and b are shards of one model by this pattern: they differ in the first number
 * alone. */
static bool are_shards(const mn_file_pattern *p, const char *a, const char *b) {
    mn_str x[4];
    mn_str y[4];
    if (p->kind != MN_PATTERN_SHARD || !loader_patterns_matches(p, a, x) ||
        !loader_patterns_matches(p, b, y))
        return false;
    return loader_patterns_same(x[0], y[0]) && loader_patterns_same(x[1], y[1]) &&
           loader_patterns_same(x[3], y[3]);
}

static bool siblings(const loader_patterns *p, const char *a, const char *b) {
    for (uint32_t i = 0; i < p->n; i++)
        if (are_shards(&p->at[i], a, b))
            return true;
    return false;
}

bool patterns_take(const loader_patterns *p, const char *named, const char *name) {
    const uint32_t kinds = patterns_kinds(p, name);
    if (!named || !(patterns_kinds(p, named) & PATTERNS_FILE))
        return kinds != 0;
    if (!strcmp(named, name))
        return true;
    if (kinds & PATTERNS_FILE)
        return siblings(p, named, name);
    return kinds != 0;
}

/* ---- the rule -------------------------------------------------------------------------------- */
/* A struct of an older version, without the text: nothing behind its size is written. */
static void loader_patterns_check_size(check *c, const check_plugin *plugin) {
    const uint32_t room = offsetof(mn_file_pattern, text);
    mn_file_pattern p;
    const uint8_t *bytes = (const uint8_t *)&p;
    memset(&p, 0xA5, sizeof p);
    p.size = room;
    plugin->ld->patterns(plugin->api->self, 0, &p);
    for (size_t i = room; i < sizeof p; i++)
        CHECK(c, bytes[i] == 0xA5, "patterns(0) with size %u: byte %zu was written", room, i);
    CHECK(c, p.size <= room, "patterns(0) with size %u: found size %u, expected at most %u", room,
          p.size, room);
}

static bool same_pattern(const mn_file_pattern *a, const mn_file_pattern *b) {
    return a->kind == b->kind && a->flags == b->flags && loader_patterns_same(a->text, b->text);
}

static void check_again(check *c, const check_plugin *plugin, const loader_patterns *first) {
    static loader_patterns again;
    mn_file_pattern past = {.size = sizeof past};
    bool equal = patterns_read(c, plugin, &again) && again.n == first->n;
    for (uint32_t i = 0; equal && i < first->n; i++)
        equal = same_pattern(&again.at[i], &first->at[i]);
    CHECK(c, equal, "patterns: found other answers when asked again, expected the same");
    const mn_status st = plugin->ld->patterns(plugin->api->self, UINT32_MAX, &past);
    CHECK(c, st == MN_END, "patterns(%u): found status 0x%x, expected MN_END", UINT32_MAX,
          (unsigned)st);
}

/* The host gives a model to the loader only if one of its file names matches. */
static void check_names(loader *l) {
    const char *first = "no file";
    if (l->model.n)
        first = l->model.file[0].name;
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < l->model.n; i++)
        kinds |= patterns_kinds(&l->patterns, l->model.file[i].name);
    CHECK(l->c, kinds & (PATTERNS_FILE | 1u << MN_PATTERN_FOLDER),
          "the model %s (%s) is claimed, and none of its names is matched by a pattern of kind "
          "MODEL, "
          "SHARD or FOLDER: no host would find it",
          l->model.format, first);
}

/* The built-in models that guess claims; whether they open is another rule. */
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

static void check_patterns(loader *l) {
    check *c = l->c;
    check_again(c, &l->plugin, &l->patterns);
    if (!check_over(c))
        loader_patterns_check_size(c, &l->plugin);
    if (check_over(c))
        return;
    if (!c->model)
        check_models(l);
    else if (!model_read(&l->model, c->model, &l->patterns))
        check_names(l);
    check_found(c, "%u patterns", l->patterns.n);
}

void check_model_patterns(check *c) {
    static loader l;
    if (loader_enter(c, &l) && patterns_read(c, &l.plugin, &l.patterns))
        check_patterns(&l);
    loader_close(&l);
}
