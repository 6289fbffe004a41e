/* files.c -- which files make up the model that a path names, and their maps.
 *
 * No format is known here: the patterns of the loaders say which names are models, shards of one,
 * marks of a folder, and companions (plugin.h says how they are read), and mn_is_companion which
 * files the runtime reads itself. All loaders get the same set, in the order of names. The set owns
 * the maps and is part of the canonical model. */
#include "model/model.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KIND(name) (1u << MN_PATTERN_##name)
#define KIND_MODEL_FILE (KIND(MODEL) | KIND(SHARD))

/* What the path names, and by that which of the folder's files belong to it. */
typedef struct {
    const mn_loader_ref *loaders;
    uint32_t n_loaders;
    const char *named; /* base name of the file; NULL = the path is a folder */
    bool folder;       /* the whole folder is the model: it, or one of its companions, was named */
    bool unknown;      /* no pattern names the file */
    bool whole;        /* and what does says that the runtime's companion files are not its own */
} choice;

/* Bits of KIND of a name, by all loaders. */
static uint32_t model_files_kinds_of(const choice *c, const char *name) {
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < c->n_loaders; i++)
        kinds |= mn_patterns_kinds(c->loaders[i].patterns, name);
    return kinds;
}

/* The next pattern of kind that names the file itself, from *at on, which counts through all
 * loaders; NULL = no more. */
static const mn_name_pattern *pattern_of_named(const choice *c, uint32_t kind, uint32_t *at,
                                               mn_name_hit *hit) {
    uint32_t k = 0;
    for (uint32_t i = 0; i < c->n_loaders; i++) {
        const mn_patterns *list = c->loaders[i].patterns;
        for (uint32_t j = 0; j < list->n; j++, k++)
            if (k >= *at && list->at[j].kind == kind &&
                mn_name_match(&list->at[j], c->named, hit)) {
                *at = k + 1;
                return &list->at[j];
            }
    }
    return NULL;
}

/* Whether a pattern of this kind that names the file says that it comes without companions. */
static bool model_files_is_whole(const choice *c, uint32_t kind) {
    const mn_name_pattern *p;
    uint32_t at = 0;
    do {
        p = pattern_of_named(c, kind, &at, NULL);
        if (p && p->flags & MN_PATTERN_WHOLE)
            return true;
    } while (p);
    return false;
}

/* named: a file of the folder; NULL = the folder itself. */
static void model_files_choose(choice *c, const char *named) {
    c->named = named;
    uint32_t kinds = 0;
    if (named)
        kinds = model_files_kinds_of(c, named);
    c->folder = !named || (!(kinds & KIND_MODEL_FILE) && (kinds || mn_is_companion(named)));
    if (c->folder)
        return;
    c->unknown = !kinds;
    c->whole =
        model_files_is_whole(c, MN_PATTERN_SHARD) || model_files_is_whole(c, MN_PATTERN_MODEL);
}

/* Two names of shards of one model. */
static bool same_model(const mn_name_hit *a, const mn_name_hit *b) {
    return mn_str_eq(a->star[0], b->star[0]) && mn_str_eq(a->star[1], b->star[1]) &&
           mn_str_eq(a->number[1], b->number[1]);
}

/* Another shard of the model that the named file is a shard of. */
static bool is_sibling(const choice *c, const char *name) {
    mn_name_hit own;
    mn_name_hit other;
    const mn_name_pattern *p;
    uint32_t at = 0;
    do {
        p = pattern_of_named(c, MN_PATTERN_SHARD, &at, &own);
        if (p && mn_name_match(p, name, &other) && same_model(&own, &other))
            return true;
    } while (p);
    return false;
}

/* By a format that names the file the user named; if none does, by any. */
static bool is_format_companion(const choice *c, const char *name) {
    for (uint32_t i = 0; i < c->n_loaders; i++) {
        const mn_patterns *list = c->loaders[i].patterns;
        if ((c->unknown || (mn_patterns_kinds(list, c->named) & KIND_MODEL_FILE)) &&
            (mn_patterns_kinds(list, name) & (KIND(FOLDER) | KIND(COMPANION))))
            return true;
    }
    return false;
}

/* Whether a file of the folder is part of the model. */
static bool belongs(const choice *c, const char *name) {
    if (c->named && !strcmp(name, c->named))
        return true;
    if (name[0] == '.')
        return false;
    const uint32_t kinds = model_files_kinds_of(c, name);
    if (c->folder)
        return kinds || mn_is_companion(name);
    if (kinds & KIND_MODEL_FILE)
        return is_sibling(c, name);
    return (!c->whole && mn_is_companion(name)) || is_format_companion(c, name);
}

/* Whether the named file comes without any other, so that its folder need not be listed. */
static bool is_alone(const choice *c) {
    if (c->folder || !c->whole || (model_files_kinds_of(c, c->named) & KIND(SHARD)))
        return false;
    for (uint32_t i = 0; i < c->n_loaders; i++) {
        const mn_patterns *list = c->loaders[i].patterns;
        if (!(mn_patterns_kinds(list, c->named) & KIND_MODEL_FILE))
            continue;
        for (uint32_t j = 0; j < list->n; j++)
            if (list->at[j].kind == MN_PATTERN_FOLDER || list->at[j].kind == MN_PATTERN_COMPANION)
                return false;
    }
    return true;
}

static mn_status model_files_add_file(mn_file_set *set, const char *dir, const char *name,
                                      bool named, mn_error *err) {
    size_t n = set->n + 1u;
    mn_file *files = mn_realloc(set->files, n, sizeof *files);
    if (files)
        set->files = files;
    mn_map *maps = NULL;
    if (files)
        maps = mn_realloc(set->maps, n, sizeof *maps);
    if (maps)
        set->maps = maps;
    char **names = maps ? mn_realloc(set->names, n, sizeof *names) : NULL;
    if (names)
        set->names = names;
    bool *weights = names ? mn_realloc(set->has_weights, n, sizeof *weights) : NULL;
    if (weights)
        set->has_weights = weights;
    char *copy = weights ? mn_strndup(name, strlen(name)) : NULL;
    char *path = copy ? mn_path_join(dir, name) : NULL;
    mn_status st = path ? mn_map_file(path, set->flags, &set->maps[set->n], err)
                        : mn_fail_memory(err, strlen(name) + 1);
    mn_free(path);
    if (st) {
        mn_free(copy);
        return st;
    }
    set->names[set->n] = copy;
    set->has_weights[set->n] = false;
    set->files[set->n] = (mn_file){
        .name = mn_str_of(copy),
        .map = set->maps[set->n].ptr,
        .bytes = set->maps[set->n].bytes,
        .flags = named ? MN_FILE_NAMED : 0,
    };
    set->n++;
    return MN_OK;
}

static int model_files_by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static mn_status model_files_add_folder(mn_file_set *set, const char *dir, const choice *c,
                                        mn_error *err) {
    struct dirent **list = NULL;
    int n = scandir(dir, &list, NULL, model_files_by_name);
    if (n < 0)
        return mn_fail_errno(err, dir, "cannot list the folder");
    mn_status st = MN_OK;
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        if (!st && belongs(c, name)) {
            char *path = mn_path_join(dir, name);
            if (!path)
                st = mn_fail_memory(err, strlen(name));
            else if (!mn_path_is_dir(path))
                st = model_files_add_file(set, dir, name, c->named && !strcmp(name, c->named), err);
            mn_free(path);
        }
        free(list[i]); /* scandir's own */
    }
    free(list);
    return st;
}

/* ---- are all shards there? ------------------------------------------------------------------- */
/* UINT64_MAX: more than can be counted. */
static uint64_t model_files_value_of(mn_str digits) {
    int64_t v = 0;
    if (mn_parse_i64(digits, &v))
        return (uint64_t)v;
    return UINT64_MAX;
}

/* Whether shard no of the model that hit is a shard of is in the set; *width: digits of the
 * shortest number there. */
static bool has_shard(const mn_file_set *set, const mn_name_pattern *p, const mn_name_hit *hit,
                      uint64_t no, int *width) {
    bool found = false;
    for (uint32_t i = 0; i < set->n; i++) {
        mn_name_hit own;
        if (!mn_name_match(p, set->names[i], &own) || !same_model(hit, &own))
            continue;
        found |= model_files_value_of(own.number[0]) == no;
        *width = MN_MIN(*width, (int)own.number[0].len);
    }
    return found;
}

static void put_part(mn_text *name, mn_str part) {
    mn_text_put(name, part.ptr, (size_t)part.len);
}

static mn_status fail_shard(const char *dir, const mn_name_pattern *p, const mn_name_hit *hit,
                            uint64_t no, int width, mn_error *err) {
    mn_text name = {0};
    uint32_t stars = 0;
    uint32_t numbers = 0;
    for (const char *c = p->text; *c; c++) {
        if (*c == '*')
            put_part(&name, hit->star[stars++]);
        else if (*c == '#' && !numbers++)
            mn_text_printf(&name, "%0*llu", width, (unsigned long long)no);
        else if (*c == '#')
            put_part(&name, hit->number[1]);
        else
            mn_text_put(&name, c, 1);
    }
    mn_status st = mn_fail(err, MN_BAD_FILE,
                           "%s/%s is missing: shard %llu of the %.*s that make "
                           "this model",
                           dir, name.ptr ? name.ptr : p->text, (unsigned long long)no,
                           MN_STR_ARG(hit->number[1]));
    mn_text_free(&name);
    return st;
}

/* Numbers run from 1, or from 0 where there is a shard 0. Of n files one of the first n + 1 numbers
 * is missing, if one is: time does not depend on the count in the name. */
static mn_status check_shards(const mn_file_set *set, const char *dir, const choice *c,
                              mn_error *err) {
    mn_name_hit hit;
    const mn_name_pattern *p;
    uint32_t at = 0;
    for (;;) {
        p = pattern_of_named(c, MN_PATTERN_SHARD, &at, &hit);
        if (!p)
            return MN_OK;
        const uint64_t count = MN_MIN(model_files_value_of(hit.number[1]), set->n + (uint64_t)1);
        int width = (int)hit.number[0].len;
        uint64_t first = 1;
        if (has_shard(set, p, &hit, 0, &width))
            first = 0;
        for (uint64_t no = first; no < first + count; no++)
            if (!has_shard(set, p, &hit, no, &width))
                return fail_shard(dir, p, &hit, no, width, err);
    }
}

/* ---- what was expected ----------------------------------------------------------------------- */
/* Whether an earlier pattern has the same kind and text: several loaders read one layout. */
static bool was_said(const choice *c, uint32_t loader, uint32_t pattern) {
    const mn_name_pattern *p = &c->loaders[loader].patterns->at[pattern];
    for (uint32_t i = 0; i <= loader; i++) {
        const mn_patterns *list = c->loaders[i].patterns;
        for (uint32_t j = 0; j < (i == loader ? pattern : list->n); j++)
            if (list->at[j].kind == p->kind && !strcmp(list->at[j].text, p->text))
                return true;
    }
    return false;
}

static void put_patterns(const choice *c, uint32_t kinds, mn_text *out) {
    const char *comma = "";
    for (uint32_t i = 0; i < c->n_loaders; i++) {
        const mn_patterns *list = c->loaders[i].patterns;
        for (uint32_t j = 0; j < list->n; j++) {
            if (list->at[j].kind > MN_PATTERN_COMPANION || !(kinds & (1u << list->at[j].kind)) ||
                was_said(c, i, j))
                continue;
            mn_text_printf(out, "%s%s", comma, list->at[j].text);
            comma = ", ";
        }
    }
}

/* "a file of *.gguf, ..., or a folder with one of these or of config.json, ...": every pattern
 * known. */
static void put_expected(const choice *c, mn_text *out) {
    mn_text folders = {0};
    mn_text_puts(out, "a file of ");
    put_patterns(c, KIND_MODEL_FILE, out);
    put_patterns(c, KIND(FOLDER), &folders);
    mn_text_puts(out, ", or a folder with one of these");
    if (folders.len)
        mn_text_printf(out, " or of %s", folders.ptr);
    mn_text_free(&folders);
}

static mn_status fail_empty(const char *path, const choice *c, mn_error *err) {
    mn_text expected = {0};
    put_expected(c, &expected);
    mn_status st = mn_fail(err, MN_BAD_FILE, "%s: the folder holds no model; expected %s", path,
                           expected.ptr ? expected.ptr : "one");
    mn_text_free(&expected);
    return st;
}

static const char *model_files_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    if (slash)
        return slash + 1;
    return path;
}

static mn_status model_files_fail_missing(const char *path, int code, mn_error *err) {
    if (code == EACCES)
        return mn_fail(err, MN_IO_ERROR,
                       "%s: permission denied: a folder on the way to it may not be entered", path);
    if (code != ENOENT && code != ENOTDIR)
        return mn_fail(err, MN_IO_ERROR, "%s: %s", path, strerror(code));
    return mn_fail(err, MN_IO_ERROR, "%s: no such file or folder", path);
}

/* ---- the set --------------------------------------------------------------------------------- */
/* Whether one of the files tells a model by its name. */
static bool model_files_has_model(const mn_file_set *set, const choice *c) {
    for (uint32_t i = 0; i < set->n; i++)
        if (model_files_kinds_of(c, set->names[i]) & (KIND_MODEL_FILE | KIND(FOLDER)))
            return true;
    return false;
}

/* The files of the model in dir, all of them there. */
static mn_status model_files_collect(mn_file_set *set, const char *dir, const choice *c,
                                     mn_error *err) {
    mn_status st = is_alone(c) ? model_files_add_file(set, dir, c->named, true, err)
                               : model_files_add_folder(set, dir, c, err);
    if (!st && c->folder && !model_files_has_model(set, c))
        return fail_empty(dir, c, err);
    if (st || c->folder || c->unknown)
        return st;
    return check_shards(set, dir, c, err);
}

mn_status mn_file_set_open(const char *path, uint32_t flags, const mn_loader_ref *loaders,
                           uint32_t n_loaders, mn_file_set *out, mn_error *err) {
    mn_file_set set = {.flags = flags};
    choice c = {
        .loaders = loaders,
        .n_loaders = n_loaders,
    };
    struct stat at;
    if (stat(path, &at))
        return model_files_fail_missing(path, errno, err);
    if (!n_loaders)
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s: no loader plugin can be used (`minerva plugins` says why)", path);
    const char *name = S_ISDIR(at.st_mode) ? NULL : model_files_base_name(path);
    const size_t n = name ? (size_t)(name - path) : strlen(path);
    const size_t n_dir = name && n > 1 ? n - 1 : n; /* without the slash, but for the root's */
    char *dir = n ? mn_strndup(path, n_dir) : mn_strndup(".", 1);
    if (!dir)
        return mn_fail_memory(err, strlen(path));
    model_files_choose(&c, name);
    mn_status st = model_files_collect(&set, dir, &c, err);
    mn_free(dir);
    if (st)
        mn_file_set_close(&set);
    else
        *out = set;
    return st;
}

void mn_file_set_close(mn_file_set *set) {
    for (uint32_t i = 0; i < set->n; i++) {
        mn_unmap(&set->maps[i]);
        mn_free(set->names[i]);
    }
    mn_free(set->files);
    mn_free(set->maps);
    mn_free(set->names);
    mn_free(set->has_weights);
    *set = (mn_file_set){0};
}
