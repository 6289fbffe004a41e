/* choose.c -- which of a repository's files make the model: those here and those of a hub alike.
 *
 * The patterns of the loaders say what a file is. One that is a model without companions
 * (MN_PATTERN_WHOLE) is a model of its own, or a shard of one: a group. All groups of a folder are
 * the same model at different sizes, or different models; their names say which quantisation each
 * is. A folder in Hugging Face layout is one model: the shards at its top, the files that mark it,
 * the companion files that the runtime reads, and what sentence-transformers' modules have in
 * folders of their own. Nothing else is ever chosen, so that no program is. */
#include "hub/names.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KIND(name) (1u << MN_PATTERN_##name)
enum { MAX_GROUPS = 1024 };

typedef struct {
    mn_file_group g;
    mn_str folder, stem; /* of the first file: "sub/", and the name without number and ending */
} group;
typedef struct {
    const mn_choose_how *how;
    const mn_hub_file *files;
    uint32_t n_files;
    int32_t *group_of; /* [n_files]; -1: of none */
    group *groups;
    uint32_t n;
    size_t cap;
} choosing;

/* ---- names of quantisations ------------------------------------------------------------------ */
static bool is_alnum(char c) {
    return mn_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_mark(char c) {
    return c == '-' || c == '.' || c == '_';
}

/* Length of a label that begins at s: "Q4_K_M", "IQ3_XXS", "TQ1_0", "BF16", "MXFP4_MOE"; or 0. */
static size_t label_at(const char *s, size_t n) {
    static const char *const words[] = {"BF16", "FP16",  "F16",   "FP32", "F32",
                                        "F64",  "MXFP4", "NVFP4", "FP8"};
    size_t at = 0;
    for (size_t i = 0; i < MN_COUNT(words) && !at; i++)
        if (n >= strlen(words[i]) && !strncasecmp(s, words[i], strlen(words[i])))
            at = strlen(words[i]);
    if (!at) {
        const size_t lead = n && strchr("iItT", *s) ? 1 : 0;
        if (n < lead + 2 || (s[lead] != 'q' && s[lead] != 'Q') || !mn_is_digit(s[lead + 1]))
            return 0;
        at = lead + 2;
    }
    while (at < n && s[at] == '_') {
        size_t end = at + 1;
        while (end < n && is_alnum(s[end]))
            end++;
        if (end == at + 1 || end - at > 4)
            break;
        at = end;
    }
    return at == n || is_mark(s[at]) ? at : 0;
}

mn_str mn_quant_label(mn_str stem) {
    mn_str found = {stem.ptr, 0};
    for (size_t i = 0; i < stem.len; i++) {
        if (i && !is_mark(stem.ptr[i - 1]))
            continue;
        const size_t n = label_at(stem.ptr + i, (size_t)stem.len - i);
        if (!n)
            continue;
        found = (mn_str){stem.ptr + i, n};
        i += n - 1;
    }
    return found;
}

/* ---- groups ---------------------------------------------------------------------------------- */
static mn_str base_of(mn_str name) {
    mn_str base = name;
    for (uint64_t i = 0; i < name.len; i++)
        if (name.ptr[i] == '/')
            base = (mn_str){name.ptr + i + 1, name.len - i - 1};
    return base;
}

/* Whether text has the word between marks, whatever its letters' case. */
static bool has_word(mn_str text, const char *word) {
    const size_t n = strlen(word);
    for (uint64_t i = 0; i + n <= text.len; i++) {
        const bool begins = !i || is_mark(text.ptr[i - 1]);
        const bool ends = i + n == text.len || (is_mark(text.ptr[i + n]) && text.ptr[i + n] != '_');
        if (begins && ends && !strncasecmp(text.ptr + i, word, n))
            return true;
    }
    return false;
}

/* The shard pattern, else the pattern of a model, that a whole file matches; NULL: it is none. */
static const mn_name_pattern *whole_pattern(const mn_choose_how *how, const char *base,
                                            mn_name_hit *hit) {
    const mn_name_pattern *found = NULL;
    mn_name_hit own;
    for (uint32_t i = 0; i < how->n_loaders; i++)
        for (uint32_t j = 0; j < how->loaders[i].patterns->n; j++) {
            const mn_name_pattern *p = &how->loaders[i].patterns->at[j];
            const bool shard = p->kind == MN_PATTERN_SHARD;
            if (!(p->flags & MN_PATTERN_WHOLE) || (!shard && p->kind != MN_PATTERN_MODEL) ||
                (found && !shard) || !mn_name_match(p, base, &own))
                continue;
            found = p;
            *hit = own;
        }
    return found;
}

static uint32_t count_of(mn_str digits) {
    int64_t v = 0;
    return mn_parse_i64(digits, &v) && v > 0 && v < MN_HUB_MAX_FILES ? (uint32_t)v : 0;
}

static mn_status add_group(choosing *c, const group *g, uint32_t file, mn_error *err) {
    void *grown = c->groups;
    if (c->n == MAX_GROUPS)
        return mn_fail(err, MN_BAD_INPUT, "found more than %d models, expected at most that",
                       MAX_GROUPS);
    if (!mn_grow(&grown, &c->cap, c->n + 1u, sizeof *c->groups))
        return mn_fail_memory(err, (c->n + 1u) * sizeof *c->groups);
    c->groups = grown;
    c->groups[c->n] = *g;
    c->group_of[file] = (int32_t)c->n++;
    return MN_OK;
}

/* Whether the file is a projector or a table that a model comes with, and no model. */
static bool is_beside(mn_str stem) {
    return has_word(stem, "mmproj") || has_word(stem, "imatrix");
}

static void add_to(choosing *c, uint32_t k, uint32_t file, uint32_t no) {
    mn_file_group *g = &c->groups[k].g;
    c->group_of[file] = (int32_t)k;
    g->n++;
    g->bytes += c->files[file].bytes;
    if (no == 1)
        g->first = file;
}

static mn_status place_file(choosing *c, uint32_t i, mn_error *err) {
    const mn_hub_file *f = &c->files[i];
    const mn_str base = base_of(f->name);
    char name[256];
    mn_name_hit hit = {0};
    if (!base.len || base.len >= sizeof name || base.ptr[0] == '.')
        return MN_OK;
    memcpy(name, base.ptr, (size_t)base.len);
    name[base.len] = 0;
    const mn_name_pattern *p = whole_pattern(c->how, name, &hit);
    if (!p)
        return MN_OK;
    /* parts of name, as parts of the file's own text */
    const mn_str stem = {base.ptr + (hit.star[0].ptr - name), hit.star[0].len};
    const mn_str folder = {f->name.ptr, f->name.len - base.len};
    const bool shard = p->kind == MN_PATTERN_SHARD;
    const uint32_t total = shard ? count_of(hit.number[1]) : 1;
    const uint32_t no = shard ? count_of(hit.number[0]) : 1;
    if (is_beside(stem) || !total)
        return MN_OK;
    for (uint32_t k = 0; k < c->n && shard; k++)
        if (c->groups[k].g.total == total && mn_str_eq(c->groups[k].stem, stem) &&
            mn_str_eq(c->groups[k].folder, folder)) {
            add_to(c, k, i, no);
            return MN_OK;
        }
    group g = {.g = {i, 1, total, f->bytes, ""}, .folder = folder, .stem = stem};
    mn_str label = mn_quant_label(stem);
    if (!label.len && folder.len)
        label = mn_quant_label(base_of((mn_str){folder.ptr, folder.len - 1}));
    snprintf(g.g.quant, sizeof g.g.quant, "%.*s", (int)MN_MIN(label.len, (uint64_t)31), label.ptr);
    for (char *q = g.g.quant; *q; q++)
        *q = *q >= 'a' && *q <= 'z' ? (char)(*q - 32) : *q;
    return add_group(c, &g, i, err);
}

static mn_status make_groups(choosing *c, mn_error *err) {
    mn_status st = MN_OK;
    if (c->n_files > MN_HUB_MAX_FILES)
        return mn_fail(err, MN_BAD_INPUT, "found %u files, expected at most %u", c->n_files,
                       MN_HUB_MAX_FILES);
    c->group_of = mn_alloc(c->n_files + 1u, sizeof *c->group_of);
    if (!c->group_of)
        return mn_fail_memory(err, c->n_files * sizeof *c->group_of);
    for (uint32_t i = 0; i < c->n_files; i++)
        c->group_of[i] = -1;
    for (uint32_t i = 0; i < c->n_files && !st; i++)
        st = place_file(c, i, err);
    return st;
}

static bool is_complete(const group *g) {
    return g->g.n == g->g.total;
}

static void free_choosing(choosing *c) {
    mn_free(c->group_of);
    mn_free(c->groups);
}

/* ---- which group ----------------------------------------------------------------------------- */
/* Whether `what` means the group: the path or base name of one of its files, its quantisation, or a
 * word of its name. exact: by one of the first three. */
static bool means(const choosing *c, uint32_t k, const char *what, bool exact) {
    const group *g = &c->groups[k];
    for (uint32_t i = 0; i < c->n_files; i++)
        if (c->group_of[i] == (int32_t)k &&
            (mn_str_is(c->files[i].name, what) || mn_str_is(base_of(c->files[i].name), what)))
            return true;
    if (exact)
        return g->g.quant[0] && !strcasecmp(g->g.quant, what);
    return has_word(g->stem, what) || (g->folder.len && mn_str_is(g->folder, what));
}

static uint32_t count_meant(const choosing *c, const char *what, bool exact, uint32_t *last) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < c->n; k++)
        if (is_complete(&c->groups[k]) && means(c, k, what, exact)) {
            *last = k;
            n++;
        }
    return n;
}

/* "a.gguf, b.gguf" or "Q2_K, Q4_K_M": the groups that `what` means (NULL: all), up to ten. */
static void put_groups(const choosing *c, const char *what, bool names, mn_text *out) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        const group *g = &c->groups[k];
        if (!is_complete(g) || (what && !means(c, k, what, true) && !means(c, k, what, false)))
            continue;
        if (++n > 10) {
            mn_text_puts(out, ", ...");
            return;
        }
        const mn_str file = c->files[g->g.first].name;
        if (names || !g->g.quant[0])
            mn_text_printf(out, "%s%.*s", n > 1 ? ", " : "", MN_STR_ARG(file));
        else
            mn_text_printf(out, "%s%s", n > 1 ? ", " : "", g->g.quant);
    }
}

static mn_status fail_groups(const choosing *c, mn_status status, const char *before,
                             const char *what, bool names, const char *behind, mn_error *err) {
    mn_text list = {0};
    put_groups(c, what, names, &list);
    const mn_status st =
        mn_fail(err, status, "%s%s%s", before, list.ptr ? list.ptr : "no complete model", behind);
    mn_text_free(&list);
    return st;
}

static mn_status choose_named(const choosing *c, const char *what, uint32_t *k, mn_error *err) {
    char before[200];
    uint32_t n = count_meant(c, what, true, k);
    if (!n)
        n = count_meant(c, what, false, k);
    if (n == 1)
        return MN_OK;
    if (n) {
        snprintf(before, sizeof before, "%.100s may be ", what);
        return fail_groups(c, MN_BAD_INPUT, before, what, true, ": name one of these files", err);
    }
    snprintf(before, sizeof before, "found no %.100s, expected one of ", what);
    return fail_groups(c, MN_END, before, NULL, false, "", err);
}

static bool fits(const choosing *c, const group *g) {
    const uint64_t memory = c->how->memory;
    return !memory || g->g.bytes <= memory - memory / 6;
}

/* Whether a is the better choice than b: it fits; then the larger if both do, the smaller if
 * neither does. */
static bool is_better(const choosing *c, const group *a, const group *b) {
    const bool a_fits = fits(c, a);
    if (a_fits != fits(c, b))
        return a_fits;
    return a_fits ? a->g.bytes > b->g.bytes : a->g.bytes < b->g.bytes;
}

/* Whether two groups of one quantisation are there, so that it says no one model. */
static bool is_unique(const choosing *c, uint32_t k) {
    for (uint32_t i = 0; i < c->n; i++)
        if (i != k && is_complete(&c->groups[i]) &&
            !strcmp(c->groups[i].g.quant, c->groups[k].g.quant))
            return false;
    return true;
}

static mn_status choose_default(const choosing *c, uint32_t *k, mn_error *err) {
    static const char preferred[] = "Q4_K_M";
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < c->n; i++) {
        const group *g = &c->groups[i];
        const bool wanted = !strcmp(g->g.quant, preferred) && fits(c, g);
        if (!is_complete(g))
            continue;
        if (best == UINT32_MAX || wanted || is_better(c, g, &c->groups[best]))
            best = i;
        if (wanted)
            break;
    }
    if (best == UINT32_MAX)
        return fail_groups(c, MN_END, "found ", NULL, true, ": shards are missing", err);
    if (!is_unique(c, best))
        return fail_groups(c, MN_BAD_INPUT, "found ", NULL, true,
                           ": several models, expected the name of one behind a colon", err);
    *k = best;
    return MN_OK;
}

/* What was chosen where it was not said. */
static mn_status put_remark(const choosing *c, uint32_t k, mn_hub_choice *out, mn_error *err) {
    const group *g = &c->groups[k];
    mn_text list = {0};
    put_groups(c, NULL, false, &list);
    mn_status st = list.failed ? mn_fail_memory(err, list.len) : MN_OK;
    if (!st)
        snprintf(out->remark, sizeof out->remark, "%s of %.150s%s", g->g.quant, list.ptr,
                 fits(c, g) ? "" : ", which is too large for this machine's memory");
    mn_text_free(&list);
    return st;
}

static mn_status choose_group(const choosing *c, const char *what, uint8_t *chosen,
                              mn_hub_choice *out, mn_file_group *group_out, mn_error *err) {
    uint32_t k = 0;
    mn_status st = *what ? choose_named(c, what, &k, err) : choose_default(c, &k, err);
    if (st)
        return st;
    for (uint32_t i = 0; i < c->n_files; i++)
        chosen[i] = c->group_of[i] == (int32_t)k;
    const mn_file_group *g = &c->groups[k].g;
    out->n_chosen = g->n;
    out->bytes = g->bytes;
    snprintf(out->what, sizeof out->what, "%s", g->quant);
    *group_out = *g;
    return !*what && c->n > 1 ? put_remark(c, k, out, err) : MN_OK;
}

/* ---- folders --------------------------------------------------------------------------------- */
/* Bits of KIND by the patterns of files that do not come alone. */
static uint32_t folder_kinds(const mn_choose_how *how, const char *name) {
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < how->n_loaders; i++)
        for (uint32_t j = 0; j < how->loaders[i].patterns->n; j++) {
            const mn_name_pattern *p = &how->loaders[i].patterns->at[j];
            if (!(p->flags & MN_PATTERN_WHOLE) && p->kind < 32 && mn_name_match(p, name, NULL))
                kinds |= 1u << p->kind;
        }
    return kinds;
}

/* Kinds of file i, 0 if it lies in a folder of its own; with the runtime's companion files. */
static uint32_t kinds_at(const choosing *c, uint32_t i) {
    char name[256];
    const mn_str s = c->files[i].name;
    if (s.len >= sizeof name || memchr(s.ptr, '/', (size_t)s.len) || s.ptr[0] == '.')
        return 0;
    memcpy(name, s.ptr, (size_t)s.len);
    name[s.len] = 0;
    const uint32_t kinds = folder_kinds(c->how, name);
    return mn_is_companion(name) ? kinds | KIND(FOLDER) : kinds;
}

/* Whether file i belongs to one of the modules that a modules.json beside the model names:
 * "1_Pooling/config.json", and of layers "2_Dense/model.safetensors". */
static bool is_of_module(const choosing *c, uint32_t i) {
    static const char *const files[] = {"_Pooling/config.json", "_Dense/config.json",
                                        "_Dense/model.safetensors"};
    const mn_str s = c->files[i].name;
    uint64_t digits = 0;
    bool listed = false;
    bool fits = false;
    while (digits < s.len && s.ptr[digits] >= '0' && s.ptr[digits] <= '9')
        digits++;
    for (size_t k = 0; digits && k < MN_COUNT(files); k++)
        fits = fits || mn_str_is((mn_str){s.ptr + digits, s.len - digits}, files[k]);
    for (uint32_t k = 0; fits && k < c->n_files; k++)
        listed = listed || mn_str_is(c->files[k].name, "modules.json");
    return listed;
}

/* Whether all shards that the name of file i counts are there. */
static bool has_siblings(const choosing *c, uint32_t i) {
    mn_name_hit own;
    mn_name_hit other;
    char name[256];
    char next[256];
    snprintf(name, sizeof name, "%.*s", MN_STR_ARG(c->files[i].name));
    for (uint32_t l = 0; l < c->how->n_loaders; l++)
        for (uint32_t j = 0; j < c->how->loaders[l].patterns->n; j++) {
            const mn_name_pattern *p = &c->how->loaders[l].patterns->at[j];
            uint32_t n = 0;
            if (p->kind != MN_PATTERN_SHARD || !mn_name_match(p, name, &own))
                continue;
            for (uint32_t k = 0; k < c->n_files; k++) {
                snprintf(next, sizeof next, "%.*s", MN_STR_ARG(c->files[k].name));
                n += mn_name_match(p, next, &other) && mn_str_eq(own.star[0], other.star[0]) &&
                     mn_str_eq(own.number[1], other.number[1]);
            }
            if (n < count_of(own.number[1]))
                return false;
        }
    return true;
}

/* The model that the folder itself is. MN_END: it is none. */
static mn_status choose_folder(const choosing *c, uint8_t *chosen, mn_hub_choice *out,
                               mn_error *err) {
    uint32_t all = 0;
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < c->n_files; i++) {
        const uint32_t kinds = kinds_at(c, i);
        if (kinds & (KIND(MODEL) | KIND(SHARD)) && first == UINT32_MAX)
            first = i;
        all |= kinds;
    }
    const bool has_weights = all & (KIND(MODEL) | KIND(SHARD));
    if (!(all & KIND(FOLDER)) || !(all & (KIND(MODEL) | KIND(SHARD) | KIND(COMPANION))))
        return mn_fail(err, MN_END, "found no files of a model");
    if (has_weights && !has_siblings(c, first))
        return mn_fail(err, MN_END, "found %.*s, but not all shards of it",
                       MN_STR_ARG(c->files[first].name));
    out->n_chosen = 0;
    out->bytes = 0;
    for (uint32_t i = 0; i < c->n_files; i++) {
        const uint32_t kinds = kinds_at(c, i);
        chosen[i] = (kinds && (!has_weights || (kinds & ~KIND(COMPANION)))) || is_of_module(c, i);
        out->n_chosen += chosen[i];
        out->bytes += chosen[i] ? c->files[i].bytes : 0;
    }
    return MN_OK;
}

/* Whether `what` is one of the chosen files: then it is the folder that is meant. */
static bool is_chosen(const choosing *c, const uint8_t *chosen, const char *what) {
    for (uint32_t i = 0; i < c->n_files; i++)
        if (chosen[i] && mn_str_is(c->files[i].name, what))
            return true;
    return false;
}

mn_status mn_choose_files(const mn_choose_how *how, const mn_hub_file *files, uint32_t n,
                          const char *what, uint8_t *chosen, mn_hub_choice *out,
                          mn_file_group *group_out, mn_error *err) {
    choosing c = {.how = how, .files = files, .n_files = n};
    mn_file_group unused;
    mn_file_group *g = group_out ? group_out : &unused;
    out->what[0] = out->remark[0] = 0;
    memset(chosen, 0, n);
    mn_status st = make_groups(&c, err);
    if (!st && c.n) {
        st = choose_group(&c, what, chosen, out, g, err);
    } else if (!st) {
        *g = (mn_file_group){.first = MN_HUB_WHOLE_FOLDER, .n = 1, .total = 1};
        st = choose_folder(&c, chosen, out, err);
        if (!st)
            g->bytes = out->bytes;
        if (!st && *what && !is_chosen(&c, chosen, what)) {
            memset(chosen, 0, n);
            st = mn_fail(err, MN_END,
                         "found no %.100s: the repository is one model, without a choice", what);
        }
    }
    free_choosing(&c);
    return st;
}

mn_status mn_choose_all(const mn_choose_how *how, const mn_hub_file *files, uint32_t n,
                        mn_file_group **out, uint32_t *n_out, mn_error *err) {
    choosing c = {.how = how, .files = files, .n_files = n};
    mn_hub_choice choice = {.size = sizeof choice};
    mn_status st = make_groups(&c, err);
    uint8_t *chosen = st ? NULL : mn_calloc(n + 1u, 1);
    mn_file_group *list = chosen ? mn_calloc(c.n + 1u, sizeof *list) : NULL;
    uint32_t k = 0;
    if (!st && !list)
        st = mn_fail_memory(err, n);
    for (uint32_t i = 0; !st && i < c.n; i++)
        if (is_complete(&c.groups[i]))
            list[k++] = c.groups[i].g;
    if (!st && !c.n && choose_folder(&c, chosen, &choice, NULL) == MN_OK)
        list[k++] = (mn_file_group){MN_HUB_WHOLE_FOLDER, 1, 1, choice.bytes, ""};
    mn_free(chosen);
    free_choosing(&c);
    if (st) {
        mn_free(list);
        return st;
    }
    *out = list;
    *n_out = k;
    return MN_OK;
}
