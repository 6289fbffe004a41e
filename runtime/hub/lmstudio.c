/* lmstudio.c -- the models of LM Studio: its home is named by ~/.lmstudio-home-pointer, else it is
 * ~/.lmstudio or ~/.cache/lm-studio; the folder of models by "downloadsFolder" in settings.json
 * there. Below it lie publisher/repo/FILES. What its catalogue calls owner/name has a
 * hub/models/owner/name/manifest.json, whose dependencies name the repositories that it may be. */
#include "hub/names.h"
#include "text/json/json.h"
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static const char place[] = "lmstudio";
enum { TEXT_MAX = 1 << 20, DEPTH = 1 };

/* The home of LM Studio; *out NULL: there is none. */
static mn_status find_home(char **out, mn_error *err) {
    static const char *const usual[] = {"~/.lmstudio", "~/.cache/lm-studio"};
    mn_text text = {0};
    char *pointer = NULL;
    *out = NULL;
    mn_status st = mn_user_path(NULL, "~/.lmstudio-home-pointer", NULL, &pointer, err);
    if (!st && pointer)
        st = mn_small_file(pointer, PATH_MAX, &text, err);
    mn_free(pointer);
    if (!st && text.len && text.ptr[0] == '/') {
        text.ptr[strcspn(text.ptr, "\r\n")] = 0;
        *out = mn_text_take(&text);
        return *out ? MN_OK : mn_fail_memory(err, PATH_MAX);
    }
    mn_text_free(&text);
    st = st == MN_END ? MN_OK : st;
    for (size_t i = 0; i < MN_COUNT(usual) && !st && !*out; i++) {
        st = mn_user_path(NULL, usual[i], NULL, out, err);
        if (!st && *out && !mn_path_is_dir(*out)) {
            mn_free(*out);
            *out = NULL;
        }
    }
    return st;
}

/* A file of JSON below a folder. MN_END: it is not there, or no object. */
static mn_status read_json(const char *folder, const char *name, cJSON **out, mn_error *err) {
    mn_text text = {0};
    mn_error why = MN_ERROR_INIT;
    char *path = mn_path_join(folder, name);
    mn_status st = path ? mn_small_file(path, TEXT_MAX, &text, err) : mn_fail_memory(err, 64);
    if (!st)
        st = mn_json_parse((mn_str){text.ptr, text.len}, path, out, &why);
    if (st && st != MN_OUT_OF_MEMORY)
        st = MN_END;
    mn_free(path);
    mn_text_free(&text);
    return st == MN_OUT_OF_MEMORY ? mn_fail_memory(err, TEXT_MAX) : st;
}

/* The folder of models below home. */
static mn_status models_folder(const char *home, char **out, mn_error *err) {
    cJSON *settings = NULL;
    mn_status st = read_json(home, "settings.json", &settings, err);
    if (st && st != MN_END)
        return st;
    const char *said = mn_json_text(settings, "downloadsFolder", "");
    *out = *said == '/' ? mn_strndup(said, strlen(said)) : mn_path_join(home, "models");
    cJSON_Delete(settings);
    return *out ? MN_OK : mn_fail_memory(err, strlen(home));
}

static mn_status find_repo(mn_find *f, const char *models, const char *repo, mn_error *err) {
    char *folder = mn_path_join(models, repo);
    mn_status st = folder ? MN_OK : mn_fail_memory(err, strlen(repo));
    if (!st && !mn_path_is_dir(folder)) {
        mn_find_says(f, place, "%s: not there", folder);
        st = MN_END;
    } else if (!st)
        st = mn_find_in_folder(f, place, folder, DEPTH, repo, err);
    mn_free(folder);
    return st;
}

/* The first repository of a source {"type": "huggingface", "user": ..., "repo": ...} that is
 * here. */
static mn_status find_sources(mn_find *f, const char *models, const cJSON *sources, mn_error *err) {
    const cJSON *source = NULL;
    mn_status st = MN_END;
    cJSON_ArrayForEach(source, sources) {
        mn_text repo = {0};
        mn_text_printf(&repo, "%s/%s", mn_json_text(source, "user", ""),
                       mn_json_text(source, "repo", ""));
        if (repo.failed)
            st = mn_fail_memory(err, 64);
        else if (mn_is_inner_path(repo.ptr, repo.len))
            st = find_repo(f, models, repo.ptr, err);
        mn_text_free(&repo);
        if (st != MN_END)
            return st;
    }
    return st;
}

/* owner/name of its catalogue. */
static mn_status find_in_catalogue(mn_find *f, const char *home, const char *models,
                                   mn_error *err) {
    mn_text name = {0};
    cJSON *manifest = NULL;
    const cJSON *needs = NULL;
    mn_text_printf(&name, "hub/models/%s/manifest.json", f->name->repo);
    mn_status st =
        name.failed ? mn_fail_memory(err, 64) : read_json(home, name.ptr, &manifest, err);
    if (!st) {
        mn_find_says(f, place, "%s/%s names the repositories", home, name.ptr);
        st = MN_END;
        cJSON_ArrayForEach(needs, mn_json_item(manifest, "dependencies")) {
            if (st == MN_END && !strcmp(mn_json_text(needs, "type", ""), "model"))
                st = find_sources(f, models, mn_json_item(needs, "sources"), err);
        }
    }
    cJSON_Delete(manifest);
    mn_text_free(&name);
    return st;
}

/* Calls fn(arg) for each publisher/repo. */
typedef mn_status (*repo_fn)(void *arg, const char *folder, const char *repo, mn_error *err);
static mn_status each_repo(const char *models, repo_fn fn, void *arg, mn_error *err) {
    mn_names users = {0};
    mn_status st = mn_names_read(models, &users, err);
    for (uint32_t i = 0; i < users.n && !st; i++) {
        mn_names repos = {0};
        char *user = mn_path_join(models, users.at[i]);
        st = user ? mn_names_read(user, &repos, err) : mn_fail_memory(err, 64);
        for (uint32_t k = 0; k < repos.n && !st; k++) {
            mn_text name = {0};
            mn_text_printf(&name, "%s/%s", users.at[i], repos.at[k]);
            char *folder = mn_path_join(user, repos.at[k]);
            st = folder && !name.failed ? fn(arg, folder, name.ptr, err) : mn_fail_memory(err, 64);
            mn_free(folder);
            mn_text_free(&name);
        }
        mn_free(user);
        mn_names_free(&repos);
    }
    mn_names_free(&users);
    return st;
}

typedef struct {
    const char *name;
    char *hit;
    mn_text several;
    uint32_t n;
} search;
static mn_status note_called(void *arg, const char *folder, const char *repo, mn_error *err) {
    search *s = arg;
    const char *slash = strchr(repo, '/');
    (void)folder;
    if (strcasecmp(slash + 1, s->name) != 0)
        return MN_OK;
    mn_text_printf(&s->several, "%s%s", s->n++ ? ", " : "", repo);
    if (!s->hit)
        s->hit = mn_strndup(repo, strlen(repo));
    return s->hit && !s->several.failed ? MN_OK : mn_fail_memory(err, strlen(repo));
}

/* A name without a publisher. */
static mn_status find_called(mn_find *f, const char *models, mn_error *err) {
    search s = {.name = f->name->plain};
    mn_status st = each_repo(models, note_called, &s, err);
    if (!st && s.n > 1)
        st = mn_fail(err, MN_BAD_INPUT, "%s may be %s: name one of them", f->text, s.several.ptr);
    else if (!st && s.n)
        st = find_repo(f, models, s.hit, err);
    else if (!st) {
        mn_find_says(f, place, "%s: nothing of that name", models);
        st = MN_END;
    }
    mn_free(s.hit);
    mn_text_free(&s.several);
    return st;
}

mn_status mn_lmstudio_find(mn_find *f, mn_error *err) {
    char *home = NULL;
    char *models = NULL;
    mn_status st = find_home(&home, err);
    if (!st && !home) {
        mn_find_says(f, place, "~/.lmstudio is not there");
        st = MN_END;
    }
    if (!st)
        st = models_folder(home, &models, err);
    if (!st && *f->name->repo) {
        st = find_repo(f, models, f->name->repo, err);
        if (st == MN_END)
            st = find_in_catalogue(f, home, models, err);
    } else if (!st)
        st = strchr(f->name->plain, '/') ? MN_END : find_called(f, models, err);
    mn_free(home);
    mn_free(models);
    return st;
}

static mn_status list_repo(void *arg, const char *folder, const char *repo, mn_error *err) {
    const mn_status st = mn_list_folder(arg, place, folder, DEPTH, repo, err);
    return st == MN_END ? MN_OK : st;
}

mn_status mn_lmstudio_list(mn_find *f, mn_error *err) {
    char *home = NULL;
    char *models = NULL;
    mn_status st = find_home(&home, err);
    if (!st && home)
        st = models_folder(home, &models, err);
    if (!st && models)
        st = each_repo(models, list_repo, f, err);
    mn_free(home);
    mn_free(models);
    return st;
}
