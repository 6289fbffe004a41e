/* find.c -- looks for the model that a name means, place by place (names.h has their order), and
 * lists all that have names. A mn_found owns what was found, the lines of --explain, and what the
 * name says of a hub. */
#include "hub/names.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { ALIASES_MAX = 8, DEPTH = 1 };

/* ---- what was found -------------------------------------------------------------------------- */
void mn_find_says(mn_find *f, const char *place, const char *fmt, ...) {
    char line[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    mn_text_printf(&f->found->explain, "%s: %s\n", place, line);
}

mn_status mn_found_add(struct mn_found *found, const mn_found_entry *entry, mn_error *err) {
    void *grown = found->at;
    if (!mn_grow(&grown, &found->cap, found->n + 1, sizeof *found->at))
        return mn_fail_memory(err, (found->n + 1) * sizeof *found->at);
    found->at = grown;
    mn_found_entry *e = &found->at[found->n++];
    const char *remark = entry->remark ? entry->remark : "";
    *e = *entry;
    e->name = mn_strndup(entry->name, strlen(entry->name));
    e->path = mn_strndup(entry->path, strlen(entry->path));
    e->remark = mn_strndup(remark, strlen(remark));
    if (e->name && e->path && e->remark)
        return MN_OK;
    return mn_fail_memory(err, strlen(entry->path));
}

void mn_found_free(mn_found *f) {
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++) {
        mn_free(f->at[i].name);
        mn_free(f->at[i].path);
        mn_free(f->at[i].remark);
    }
    mn_free(f->at);
    mn_text_free(&f->explain);
    mn_text_free(&f->missing);
    mn_name_free(&f->name);
    mn_free(f->cache);
    mn_free(f->folder);
    mn_free(f);
}

/* ---- the models of a folder ------------------------------------------------------------------ */
/* "name", or "name:QUANT" where the files say it. */
static void put_name(mn_text *out, const char *name, const char *quant) {
    mn_text_printf(out, "%s%s%s", name, *quant ? ":" : "", quant);
}

static mn_status add_group(mn_find *f, const char *place, const char *folder, const char *name,
                           const mn_listing *list, const mn_file_group *g, int64_t used,
                           const char *remark, mn_error *err) {
    mn_text shown = {0};
    put_name(&shown, name, g->quant);
    char *path = g->first == MN_HUB_WHOLE_FOLDER
                     ? mn_strndup(folder, strlen(folder))
                     : mn_path_join(folder, list->files[g->first].name.ptr);
    mn_status st = path && !shown.failed ? MN_OK : mn_fail_memory(err, strlen(folder));
    const mn_found_entry entry = {.name = shown.ptr,
                                  .path = path,
                                  .remark = (char *)(uintptr_t)remark,
                                  .place = place,
                                  .bytes = g->bytes,
                                  .used = used};
    if (!st)
        st = mn_found_add(f->found, &entry, err);
    mn_free(path);
    mn_text_free(&shown);
    return st;
}

/* When one of the chosen files was last read; chosen NULL: any. */
static int64_t last_used(const mn_listing *list, const uint8_t *chosen) {
    int64_t used = 0;
    for (uint32_t i = 0; i < list->n; i++)
        if (!chosen || chosen[i])
            used = MN_MAX(used, list->used[i]);
    return used;
}

mn_status mn_find_in_folder(mn_find *f, const char *place, const char *folder, uint32_t depth,
                            const char *name, mn_error *err) {
    mn_listing list = {0};
    mn_hub_choice choice = {.size = sizeof choice};
    mn_file_group g = {0};
    mn_error why = MN_ERROR_INIT;
    mn_status st = mn_listing_read(folder, depth, &list, err);
    if (st)
        return st;
    uint8_t *chosen = mn_calloc(list.n + 1u, 1);
    if (!chosen)
        st = mn_fail_memory(err, list.n);
    if (!st)
        st = mn_choose_files(f->how, list.files, list.n, f->name->what, chosen, &choice, &g, &why);
    if (st == MN_END)
        mn_find_says(f, place, "%s: %s", folder, why.msg);
    else if (st && why.msg[0])
        mn_fail(err, st, "%s: %s", f->text, why.msg);
    if (!st)
        st = add_group(f, place, folder, name, &list, &g, last_used(&list, chosen), choice.remark,
                       err);
    if (!st)
        mn_find_says(f, place, "%s%s%s", f->found->at[f->found->n - 1].path,
                     choice.remark[0] ? ": " : "", choice.remark);
    mn_free(chosen);
    mn_listing_free(&list);
    return st;
}

/* The files of a folder, and the models among them: none where the files make none. *groups:
 * mn_free by the caller, also after an error, as list. */
static mn_status read_groups(const mn_find *f, const char *folder, uint32_t depth, mn_listing *list,
                             mn_file_group **groups, uint32_t *n, mn_error *err) {
    mn_status st = mn_listing_read(folder, depth, list, err);
    if (st)
        return st;
    st = mn_choose_all(f->how, list->files, list->n, groups, n, NULL);
    return st == MN_OUT_OF_MEMORY ? mn_fail_memory(err, list->n) : MN_OK;
}

mn_status mn_list_folder(mn_find *f, const char *place, const char *folder, uint32_t depth,
                         const char *name, mn_error *err) {
    mn_listing list = {0};
    mn_file_group *groups = NULL;
    uint32_t n = 0;
    mn_status st = read_groups(f, folder, depth, &list, &groups, &n, err);
    for (uint32_t i = 0; i < n && !st; i++)
        st =
            add_group(f, place, folder, name, &list, &groups[i], last_used(&list, NULL), NULL, err);
    mn_free(groups);
    mn_listing_free(&list);
    return st;
}

/* ---- model_path ------------------------------------------------------------------------------ */
static const char in_model_path[] = "model_path";

static mn_status add_path(mn_find *f, const char *place, const char *path, mn_error *err) {
    const mn_found_entry entry = {
        .name = (char *)(uintptr_t)f->text, .path = (char *)(uintptr_t)path, .place = place};
    mn_find_says(f, place, "%s", path);
    return mn_found_add(f->found, &entry, err);
}

/* The name in one folder: a file or folder as it is; org/repo:QUANT among the files of a folder. */
static mn_status find_below(mn_find *f, const char *folder, mn_error *err) {
    const mn_model_name *n = f->name;
    char *path = mn_path_join(folder, f->text);
    char *inner = n->plain && *n->what ? mn_path_join(folder, n->plain) : NULL;
    mn_status st = MN_END;
    if (!path || (n->plain && *n->what && !inner))
        st = mn_fail_memory(err, strlen(f->text));
    else if (mn_path_exists(path))
        st = add_path(f, in_model_path, path, err);
    else if (inner && mn_path_is_dir(inner))
        st = mn_find_in_folder(f, in_model_path, inner, DEPTH, n->plain, err);
    else
        mn_find_says(f, in_model_path, "%s: not there", path);
    mn_free(path);
    mn_free(inner);
    return st;
}

/* Calls fn with each folder of the setting until one returns something else than MN_END. */
typedef mn_status (*folder_fn)(mn_find *f, const char *folder, mn_error *err);
static mn_status each_model_path(mn_find *f, folder_fn fn, mn_error *err) {
    const char *s = f->model_path ? f->model_path : "";
    mn_status st = MN_END;
    while (*s && st == MN_END) {
        const size_t n = strcspn(s, ":");
        char *folder = mn_strndup(s, n);
        if (!folder)
            st = mn_fail_memory(err, n);
        else if (n)
            st = fn(f, folder, err);
        mn_free(folder);
        s += n + (s[n] == ':');
    }
    return st;
}

/* ---- the order of places --------------------------------------------------------------------- */
typedef mn_status (*place_fn)(mn_find *f, mn_error *err);

static mn_status find_places(mn_find *f, mn_error *err) {
    static const struct {
        place_fn find;
        mn_store store;
    } places[] = {{mn_hf_find, MN_STORE_HUB},
                  {mn_lmstudio_find, MN_STORE_LMSTUDIO},
                  {mn_ollama_find, MN_STORE_OLLAMA}};
    mn_status st = MN_END;
    for (size_t i = 0; i < MN_COUNT(places) && st == MN_END; i++) {
        const bool hub = f->name->only == MN_STORE_HUB; /* any place may have it from there */
        if (f->name->only == MN_STORE_ANY || hub || f->name->only == places[i].store)
            st = places[i].find(f, err);
    }
    return st;
}

/* Follows aliases: *text is the last target, malloc'ed. MN_BAD_INPUT: too many. */
static mn_status follow_aliases(mn_find *f, char **text, mn_error *err) {
    mn_aliases a = {0};
    mn_status st = mn_aliases_read(&a, err);
    int i = 0;
    for (; !st && mn_aliases_target(&a, *text); i++) {
        const char *target = mn_aliases_target(&a, *text);
        mn_find_says(f, "alias", "%s = %s", *text, target);
        char *copy = mn_strndup(target, strlen(target));
        if (!copy)
            st = mn_fail_memory(err, strlen(target));
        else if (i == ALIASES_MAX)
            st = mn_fail(err, MN_BAD_INPUT, "%s: more than %d aliases stand for one another", *text,
                         ALIASES_MAX);
        if (st) {
            mn_free(copy);
            break;
        }
        mn_free(*text);
        *text = copy;
        if (mn_path_exists(*text))
            break;
    }
    if (!st && !i)
        mn_find_says(f, "alias", "%s: no alias of this name in %s", *text,
                     a.path ? a.path : "a list");
    mn_aliases_free(&a);
    return st;
}

/* Whether the text is a path rather than a name: by its beginning, its parts, or an ending that
 * files of models have. */
static bool is_path_like(const mn_find *f) {
    const char *slash = strrchr(f->text, '/');
    const char *base = slash ? slash + 1 : f->text;
    const uint32_t files = 1u << MN_PATTERN_MODEL | 1u << MN_PATTERN_SHARD;
    if (!f->name->plain || strchr("/.~", f->text[0]))
        return true;
    if (f->name->only != MN_STORE_ANY)
        return false;
    for (uint32_t i = 0; i < f->how->n_loaders; i++)
        if (mn_patterns_kinds(f->how->loaders[i].patterns, base) & files)
            return true;
    return slash && strchr(f->text, '/') != slash;
}

/* The sentence for a name that is nowhere. */
static void say_missing(mn_find *f) {
    mn_text *to = &f->found->missing;
    const mn_model_name *n = f->name;
    if (is_path_like(f))
        mn_text_printf(to, "%s: no such file or folder", f->text);
    else if (n->only == MN_STORE_OLLAMA)
        mn_text_printf(to, "%s: ollama has no such model on this machine (ollama pull %s)", f->text,
                       f->text + strlen("ollama:"));
    else if (n->only == MN_STORE_LMSTUDIO)
        mn_text_printf(to, "%s: LM Studio has no such model on this machine", f->text);
    else if (*n->repo)
        mn_text_printf(
            to,
            "%s: no such file or folder, and no such model is on this machine: minerva pull %s "
            "downloads it from the hub",
            f->text, f->text);
    else
        mn_text_printf(to,
                       "%s: no such file or folder, and no model of this machine has that name "
                       "(minerva list has their names); models of a hub are named org/repo",
                       f->text);
}

/* Everything behind the path itself. */
static mn_status find_name(mn_find *f, mn_error *err) {
    mn_status st = mn_name_parse(f->text, &f->found->name, err);
    if (st && st != MN_END)
        return st;
    if (f->found->name.only == MN_STORE_ANY && mn_is_inner_path(f->text, strlen(f->text)))
        st = each_model_path(f, find_below, err);
    else if (!st)
        st = MN_END;
    if (f->found->name.plain && st == MN_END)
        st = find_places(f, err);
    return st;
}

static mn_status start(struct mn_found **out, mn_error *err) {
    struct mn_found *found = mn_calloc(1, sizeof *found);
    if (!found)
        return mn_fail_memory(err, sizeof *found);
    const mn_status st = mn_hf_folder(&found->cache, err);
    if (st)
        mn_found_free(found);
    else
        *out = found;
    return st;
}

/* What a download of the name would fill; a model of another program's is none of a hub. */
static mn_status set_folder(struct mn_found *found, mn_error *err) {
    const mn_store only = found->name.only;
    if (only == MN_STORE_LMSTUDIO || only == MN_STORE_OLLAMA)
        return MN_OK;
    if (!found->name.repo || !*found->name.repo || !found->cache)
        return MN_OK;
    found->folder = mn_hf_repo_folder(found->cache, found->name.repo);
    return found->folder ? MN_OK : mn_fail_memory(err, strlen(found->cache));
}

/* Whether there is something, also where it may not be looked at: opening it says why. */
static bool is_there(const char *path) {
    struct stat at;
    return !stat(path, &at) || (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG);
}

static mn_status find_text(mn_find *f, char **text, mn_error *err) {
    if (is_there(*text))
        return add_path(f, "path", *text, err);
    mn_find_says(f, "path", "%s: no such file or folder", *text);
    mn_status st = follow_aliases(f, text, err);
    f->text = *text;
    if (!st && mn_path_exists(*text))
        return add_path(f, "path", *text, err);
    if (!st)
        st = find_name(f, err);
    if (st == MN_END) {
        say_missing(f);
        st = MN_OK;
    }
    return st ? st : set_folder(f->found, err);
}

mn_status mn_find_model(const mn_choose_how *how, const char *model_path, const char *text,
                        struct mn_found **out, mn_error *err) {
    struct mn_found *found = NULL;
    char *copy = mn_strndup(text, strlen(text));
    mn_status st = copy ? start(&found, err) : mn_fail_memory(err, strlen(text));
    if (!st) {
        mn_find f = {how, model_path, &found->name, copy, found};
        st = find_text(&f, &copy, err);
    }
    if (!st && (found->explain.failed || found->missing.failed))
        st = mn_fail_memory(err, found->explain.len);
    mn_free(copy);
    if (st)
        mn_found_free(found);
    else
        *out = found;
    return st == MN_END ? MN_IO_ERROR : st;
}

/* ---- all of them ----------------------------------------------------------------------------- */
/* A folder in a folder of model_path, if there are models in it. */
static mn_status list_inner(mn_find *f, const char *path, const char *name, mn_error *err) {
    mn_listing list = {0};
    mn_file_group *groups = NULL;
    uint32_t n = 0;
    mn_status st = read_groups(f, path, 0, &list, &groups, &n, err);
    if (!st && n) {
        const mn_file_group whole = {MN_HUB_WHOLE_FOLDER, 1, 1, groups[0].bytes, ""};
        st = add_group(f, in_model_path, path, name, &list, &whole, last_used(&list, NULL), NULL,
                       err);
    }
    mn_free(groups);
    mn_listing_free(&list);
    return st;
}

/* The models of a folder of model_path: its files, and the folders in it. */
static mn_status list_below(mn_find *f, const char *folder, mn_error *err) {
    mn_names names = {0};
    mn_status st = mn_names_read(folder, &names, err);
    for (uint32_t i = 0; i < names.n && !st; i++) {
        char *path = mn_path_join(folder, names.at[i]);
        if (!path)
            st = mn_fail_memory(err, strlen(folder));
        else if (mn_path_is_dir(path))
            st = list_inner(f, path, names.at[i], err);
        mn_free(path);
    }
    mn_names_free(&names);
    if (st)
        return st;
    st = mn_list_folder(f, in_model_path, folder, 0, "", err);
    return st ? st : MN_END; /* the next folder, too */
}

/* Files of model_path are named by their names, not by what their names say. */
static mn_status name_files(struct mn_found *found, mn_error *err) {
    for (size_t i = 0; i < found->n; i++) {
        mn_found_entry *e = &found->at[i];
        const char *slash = strrchr(e->path, '/');
        if (e->name[0] && e->name[0] != ':')
            continue;
        mn_free(e->name);
        e->name = mn_strndup(slash + 1, strlen(slash + 1));
        if (!e->name)
            return mn_fail_memory(err, strlen(e->path));
    }
    return MN_OK;
}

mn_status mn_find_all(const mn_choose_how *how, const char *model_path, struct mn_found **out,
                      mn_error *err) {
    static const place_fn places[] = {mn_hf_list, mn_lmstudio_list, mn_ollama_list};
    struct mn_found *found = NULL;
    mn_status st = start(&found, err);
    mn_find f = {how, model_path, NULL, "", found};
    if (!st)
        st = each_model_path(&f, list_below, err);
    if (st == MN_END)
        st = name_files(found, err);
    for (size_t i = 0; i < MN_COUNT(places) && !st; i++)
        st = places[i](&f, err);
    if (!st && found->explain.failed)
        st = mn_fail_memory(err, found->explain.len);
    if (st)
        mn_found_free(found);
    else
        *out = found;
    return st;
}
