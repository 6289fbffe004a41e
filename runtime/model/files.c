/* files.c -- which files make up the model that a path names, and their maps. */
#include "model/model.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Files of a model folder that a loader or runtime/text may want to see; everything else stays
 * closed. */
static bool wanted(const char *name) {
    static const char *const endings[] = {".safetensors", ".gguf",  ".json",
                                          ".jinja",       ".model", ".txt"};
    mn_str s = mn_str_of(name);
    if (name[0] == '.')
        return false;
    for (size_t i = 0; i < MN_COUNT(endings); i++)
        if (mn_str_ends(s, endings[i]))
            return true;
    return false;
}

static mn_status add_file(mn_file_set *set, const char *dir, const char *name, mn_error *err) {
    size_t n = set->n + 1u;
    mn_file *files = mn_realloc(set->files, n, sizeof *files);
    if (files)
        set->files = files;
    mn_map *maps = files ? mn_realloc(set->maps, n, sizeof *maps) : NULL;
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
    set->files[set->n] =
        (mn_file){mn_str_of(copy), set->maps[set->n].ptr, set->maps[set->n].bytes, 0, 0};
    set->n++;
    return MN_OK;
}

/* "name-00002-of-00005.gguf": length of the part before "-00002", or 0 if the name has no such
 * number. */
static size_t shard_stem(const char *name) {
    size_t n = strlen(name);
    const char *dot = strrchr(name, '.');
    size_t end = dot ? (size_t)(dot - name) : n;
    if (end < 15)
        return 0;
    const char *tail = name + end - 15; /* -00002-of-00005 */
    if (tail[0] != '-' || memcmp(tail + 6, "-of-", 4))
        return 0;
    for (int i = 1; i < 15; i++)
        if ((i < 6 || i > 9) && (tail[i] < '0' || tail[i] > '9'))
            return 0;
    return end - 15;
}

/* With a single GGUF given, other models in its folder are not its business: only its own shards
 * are. */
static bool belongs(const char *given, const char *name) {
    if (!given)
        return true;
    if (!strcmp(given, name))
        return true;
    bool gguf = mn_str_ends(mn_str_of(given), ".gguf");
    if (mn_str_ends(mn_str_of(name), ".gguf")) {
        size_t stem = shard_stem(given);
        return gguf && stem && shard_stem(name) == stem && !memcmp(given, name, stem);
    }
    return !gguf;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static mn_status add_folder(mn_file_set *set, const char *dir, const char *given, mn_error *err) {
    struct dirent **list = NULL;
    int n = scandir(dir, &list, NULL, by_name);
    if (n < 0)
        return mn_fail_errno(err, dir, "cannot list the folder");
    mn_status st = MN_OK;
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        if (!st && (wanted(name) || (given && !strcmp(name, given))) && belongs(given, name)) {
            char *path = mn_path_join(dir, name);
            if (!path)
                st = mn_fail_memory(err, strlen(name));
            else if (!mn_path_is_dir(path))
                st = add_file(set, dir, name, err);
            mn_free(path);
        }
        free(list[i]); /* scandir's own */
    }
    free(list);
    return st;
}

/* "org/name" or "name:tag", as models are called on hubs, where no such folder is at hand. */
static bool is_hub_name(const char *path) {
    const char *slash = strchr(path, '/');
    const size_t n = strspn(path, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "-_.:/");
    if (path[n] || *path == '.' || *path == '/' || mn_str_ends(mn_str_of(path), ".gguf"))
        return false;
    if (!slash)
        return strchr(path, ':') != NULL;
    char *org = mn_strndup(path, (size_t)(slash - path));
    const bool here = !org || mn_path_is_dir(org);
    mn_free(org);
    return !here && slash[1] && !strchr(slash + 1, '/');
}

/* Says what is expected where the path was meant as something else. */
static mn_status fail_missing(const char *path, int code, mn_error *err) {
    static const char expected[] = "models are not downloaded: expected the path of a GGUF file, a "
                                   ".safetensors file or a folder in Hugging Face layout";
    if (code != ENOENT && code != ENOTDIR)
        return mn_fail(err, MN_IO_ERROR, "%s: %s", path,
                       code == EACCES ? "permission denied: a folder on the way to it may not be "
                                        "entered"
                                      : strerror(code));
    if (strstr(path, "://"))
        return mn_fail(err, MN_IO_ERROR, "%s: this is a URL, and %s", path, expected);
    if (is_hub_name(path))
        return mn_fail(err, MN_IO_ERROR,
                       "%s: no such file or folder; if this is a name on a model hub, %s", path,
                       expected);
    return mn_fail(err, MN_IO_ERROR, "%s: no such file or folder", path);
}

mn_status mn_file_set_open(const char *path, uint32_t flags, mn_file_set *out, mn_error *err) {
    mn_file_set set = {.flags = flags};
    mn_status st;
    struct stat at;
    if (stat(path, &at))
        return fail_missing(path, errno, err);
    if (mn_path_is_dir(path)) {
        st = add_folder(&set, path, NULL, err);
        if (!st && !set.n)
            st = mn_fail(err, MN_BAD_FILE,
                         "%s: the folder holds no model files (.gguf, .safetensors, .json)", path);
    } else {
        const char *slash = strrchr(path, '/');
        char *dir = slash ? mn_strndup(path, slash == path ? 1 : (size_t)(slash - path))
                          : mn_strndup(".", 1);
        const char *name = slash ? slash + 1 : path;
        bool alone = mn_str_ends(mn_str_of(name), ".gguf") && !shard_stem(name);
        if (!dir)
            st = mn_fail_memory(err, strlen(path));
        else
            st = alone ? add_file(&set, dir, name, err) : add_folder(&set, dir, name, err);
        mn_free(dir);
    }
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
