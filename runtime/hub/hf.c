/* hf.c -- the cache of Hugging Face, as huggingface_hub lays it out and shares it with every
 * program that uses it:
 *
 *   models--org--repo/refs/main                 the commit that the branch was when it was loaded
 *   models--org--repo/snapshots/COMMIT/a.gguf   a link to ../../blobs/ETAG, or the file itself
 *   models--org--repo/blobs/ETAG                the contents; ETAG.incomplete while they are loaded
 *   .locks/models--org--repo/ETAG.lock          held (flock) by the program that loads it
 *
 * A snapshot may hold some of a repository's files only, and a program may have ended in the
 * middle: a model is here if all its files are. */
#include "hub/names.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char place[] = "huggingface";
enum { REF_MAX = 256 };

mn_status mn_hf_folder(char **out, mn_error *err) {
    static const struct {
        const char *variable, *tail;
    } said[] = {{"HF_HUB_CACHE", NULL},
                {"HUGGINGFACE_HUB_CACHE", NULL},
                {"HF_HOME", "hub"},
                {"XDG_CACHE_HOME", "huggingface/hub"}};
    mn_status st = MN_OK;
    *out = NULL;
    for (size_t i = 0; i < MN_COUNT(said) && !st && !*out; i++)
        st = mn_user_path(said[i].variable, NULL, said[i].tail, out, err);
    if (!st && !*out)
        st = mn_user_path(NULL, "~/.cache", "huggingface/hub", out, err);
    return st;
}

char *mn_hf_repo_folder(const char *cache, const char *repo) {
    mn_text t = {0};
    mn_text_printf(&t, "%s/models--", cache);
    for (const char *c = repo; *c; c++)
        mn_text_put(&t, *c == '/' ? "--" : c, *c == '/' ? 2 : 1);
    return mn_text_take(&t);
}

/* "org/repo" of the name of a folder; *out NULL: it is none of a model. */
static mn_status repo_of(const char *folder, char **out, mn_error *err) {
    static const char prefix[] = "models--";
    *out = NULL;
    if (strncmp(folder, prefix, sizeof prefix - 1) != 0 || !folder[sizeof prefix - 1])
        return MN_OK;
    const char *name = folder + sizeof prefix - 1;
    const char *dashes = strstr(name, "--");
    mn_text t = {0};
    mn_text_put(&t, name, dashes ? (size_t)(dashes - name) : strlen(name));
    if (dashes)
        mn_text_printf(&t, "/%s", dashes + 2);
    *out = mn_text_take(&t);
    return *out ? MN_OK : mn_fail_memory(err, strlen(folder));
}

/* The commit in refs/NAME. MN_END: none. */
static mn_status read_ref(const char *repo_folder, const char *name, char commit[48],
                          mn_error *err) {
    mn_text path = {0};
    mn_text text = {0};
    mn_text_printf(&path, "%s/refs/%s", repo_folder, name);
    mn_status st = path.failed ? mn_fail_memory(err, strlen(name))
                               : mn_small_file(path.ptr, REF_MAX, &text, err);
    mn_text_free(&path);
    if (st)
        return st;
    const size_t n = strcspn(text.ptr, " \t\r\n");
    snprintf(commit, 48, "%.*s", (int)MN_MIN(n, (size_t)47), text.ptr);
    mn_text_free(&text);
    return mn_is_commit(commit) ? MN_OK : MN_END;
}

/* The only snapshot where no branch was loaded, as by a commit's number alone. */
static mn_status only_snapshot(const char *repo_folder, char commit[48], mn_error *err) {
    mn_names names = {0};
    char *folder = mn_path_join(repo_folder, "snapshots");
    mn_status st =
        folder ? mn_names_read(folder, &names, err) : mn_fail_memory(err, strlen(repo_folder));
    mn_free(folder);
    if (!st && names.n == 1 && mn_is_commit(names.at[0]))
        snprintf(commit, 48, "%s", names.at[0]);
    else if (!st)
        st = MN_END;
    mn_names_free(&names);
    return st;
}

mn_status mn_hf_snapshot(const char *repo_folder, const char *revision, char **out, mn_text *why,
                         mn_error *err) {
    char commit[48] = "";
    mn_status st = MN_OK;
    if (!mn_path_is_dir(repo_folder)) {
        mn_text_puts(why, "not there");
        return MN_END;
    }
    if (mn_is_commit(revision))
        snprintf(commit, sizeof commit, "%s", revision);
    else
        st = read_ref(repo_folder, *revision ? revision : "main", commit, err);
    if (st == MN_END && !*revision)
        st = only_snapshot(repo_folder, commit, err);
    if (st == MN_END)
        mn_text_printf(why, "nothing of revision %s", *revision ? revision : "main");
    if (st)
        return st;
    mn_text path = {0};
    mn_text_printf(&path, "%s/snapshots/%s", repo_folder, commit);
    *out = mn_text_take(&path);
    if (!*out)
        return mn_fail_memory(err, strlen(repo_folder));
    if (mn_path_is_dir(*out))
        return MN_OK;
    mn_text_printf(why, "no snapshot of commit %.12s", commit);
    mn_free(*out);
    *out = NULL;
    return MN_END;
}

/* The model of one repository; name: "org/repo". */
static mn_status find_repo(mn_find *f, const char *folder, const char *name, mn_error *err) {
    mn_text why = {0};
    char *snapshot = NULL;
    mn_status st = mn_hf_snapshot(folder, f->name->revision, &snapshot, &why, err);
    if (!st)
        st = mn_find_in_folder(f, place, snapshot, MN_HF_DEPTH, name, err);
    else if (st == MN_END)
        mn_find_says(f, place, "%s: %s", folder, why.ptr ? why.ptr : "not there");
    mn_free(snapshot);
    mn_text_free(&why);
    return st;
}

/* Whether repo, "org/repo" or "repo", is called by name, which has no organisation. */
static bool is_called(const char *repo, const char *name) {
    const char *slash = strchr(repo, '/');
    return !strcasecmp(slash ? slash + 1 : repo, name);
}

static mn_status fail_several(const mn_find *f, const mn_names *hits, mn_error *err) {
    mn_text list = {0};
    for (uint32_t i = 0; i < hits->n; i++)
        mn_text_printf(&list, "%s%s", i ? ", " : "", hits->at[i]);
    const mn_status st = mn_fail(err, MN_BAD_INPUT, "%s may be %s: name one of them", f->text,
                                 list.ptr ? list.ptr : "several models");
    mn_text_free(&list);
    return st;
}

/* A name without an organisation: the only repository with it. hits: "org/repo", the caller's. */
static mn_status find_called(const mn_find *f, const char *cache, mn_names *hits, mn_error *err) {
    mn_names names = {0};
    mn_status st = mn_names_read(cache, &names, err);
    for (uint32_t i = 0; i < names.n && !st; i++) {
        char *repo = NULL;
        st = repo_of(names.at[i], &repo, err);
        void *grown = hits->at;
        if (!st && repo && is_called(repo, f->name->plain)) {
            if (mn_grow(&grown, &hits->cap, hits->n + 1u, sizeof *hits->at)) {
                hits->at = grown;
                hits->at[hits->n++] = repo;
                repo = NULL;
            } else
                st = mn_fail_memory(err, sizeof *hits->at);
        }
        mn_free(repo);
    }
    mn_names_free(&names);
    if (!st && hits->n > 1)
        return fail_several(f, hits, err);
    return st;
}

mn_status mn_hf_find(mn_find *f, mn_error *err) {
    const char *cache = f->found->cache;
    mn_names hits = {0};
    mn_status st = MN_OK;
    if (!cache) {
        mn_find_says(f, place, "there is no home folder");
        return MN_END;
    }
    const char *repo = f->name->repo;
    if (!*repo && !strchr(f->name->plain, '/'))
        st = find_called(f, cache, &hits, err);
    if (!st && hits.n) {
        mn_free(f->found->name.repo); /* so that the hub's name of it is known */
        f->found->name.repo = mn_strndup(hits.at[0], strlen(hits.at[0]));
        repo = hits.at[0];
        st = f->found->name.repo ? MN_OK : mn_fail_memory(err, strlen(repo));
    }
    char *folder = st || !*repo ? NULL : mn_hf_repo_folder(cache, repo);
    if (!st && *repo && !folder)
        st = mn_fail_memory(err, strlen(repo));
    else if (!st && folder)
        st = find_repo(f, folder, repo, err);
    else if (!st) {
        mn_find_says(f, place, "%s: nothing of that name", cache);
        st = MN_END;
    }
    mn_free(folder);
    mn_names_free(&hits);
    return st;
}

mn_status mn_hf_list(mn_find *f, mn_error *err) {
    const char *cache = f->found->cache;
    mn_names names = {0};
    mn_status st = cache ? mn_names_read(cache, &names, err) : MN_OK;
    for (uint32_t i = 0; i < names.n && !st; i++) {
        mn_text why = {0};
        char *repo = NULL;
        char *snapshot = NULL;
        st = repo_of(names.at[i], &repo, err);
        char *folder = st || !repo ? NULL : mn_path_join(cache, names.at[i]);
        if (!st && repo && !folder)
            st = mn_fail_memory(err, strlen(cache));
        if (folder)
            st = mn_hf_snapshot(folder, "", &snapshot, &why, err);
        if (!st && snapshot)
            st = mn_list_folder(f, place, snapshot, MN_HF_DEPTH, repo, err);
        if (st == MN_END)
            st = MN_OK;
        mn_free(folder);
        mn_free(repo);
        mn_free(snapshot);
        mn_text_free(&why);
    }
    mn_names_free(&names);
    return st;
}
