/* find.c -- names of models as minerva.h has them: what the hub's part finds, with the loaders and
 * the settings of a runtime. An mn_found is the caller's and needs no runtime any more. */
#include "hub/names.h"
#include "opened/opened.h"
#include <string.h>
#include <unistd.h>

/* What a model may take: the memory of the machine, or of its largest device. */
static uint64_t memory_of(mn_runtime *rt) {
    mn_device_item d;
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    uint64_t most = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    for (uint32_t i = 0; mn_runtime_device(rt, i, &d) == MN_OK; i++)
        if (d.usable)
            most = MN_MAX(most, d.mem_total);
    return most;
}

#define NO_CHOICE UINT64_MAX /* nothing is chosen by size: no device is asked for its memory */

/* memory: 0 = this machine's. how->loaders: mn_free by the caller. */
static mn_status make_how(mn_runtime *rt, uint64_t memory, mn_choose_how *how, mn_error *err) {
    mn_loader_ref *refs = NULL;
    const mn_status st = mn_loader_refs(rt, &refs, &how->n_loaders, err);
    how->loaders = refs;
    how->memory = memory ? memory : memory_of(rt);
    return st;
}

static void free_how(mn_choose_how *how) {
    mn_free((void *)(uintptr_t)how->loaders);
}

static mn_status need(mn_error *err, const char *function, mn_runtime *rt, const mn_arg *args) {
    mn_status st = mn_args_need(err, function, args);
    return st ? st : mn_args_same_process(err, function, rt);
}

/* What a model is called that nobody names: the setting, or the demo model. */
static mn_status default_name(const mn_runtime *rt, const char *name, char **out, mn_error *err) {
    if (!name || !*name)
        name = mn_config_get_str(rt->config, "model");
    if (!name || !*name)
        return mn_model_demo_path(out, err);
    *out = mn_strndup(name, strlen(name));
    return *out ? MN_OK : mn_fail_memory(err, strlen(name));
}

mn_status mn_model_find(mn_runtime *rt, const char *name, mn_found **out, mn_error *err) {
    mn_choose_how how = {0};
    char *text = NULL;
    mn_status st = need(err, "mn_model_find", rt, (mn_arg[]){{"rt", rt}, {"out", out}, {0}});
    if (!st)
        st = default_name(rt, name, &text, err);
    if (!st)
        st = make_how(rt, mn_path_exists(text) ? NO_CHOICE : 0, &how, err);
    if (!st)
        st = mn_find_model(&how, mn_config_get_str(rt->config, "model_path"), text, out, err);
    if (!st) {
        mn_log(MN_LOG_DEBUG, "model %s: %s", text, (*out)->n ? (*out)->at[0].path : "not found");
        if ((*out)->n && (*out)->at[0].remark[0])
            mn_log(MN_LOG_INFO, "model %s: %s", text, (*out)->at[0].remark);
    }
    free_how(&how);
    mn_free(text);
    return st;
}

mn_status mn_model_list(mn_runtime *rt, mn_found **out, mn_error *err) {
    mn_choose_how how = {0};
    mn_status st = need(err, "mn_model_list", rt, (mn_arg[]){{"rt", rt}, {"out", out}, {0}});
    if (!st)
        st = make_how(rt, NO_CHOICE, &how, err);
    if (!st)
        st = mn_find_all(&how, mn_config_get_str(rt->config, "model_path"), out, err);
    free_how(&how);
    return st;
}

mn_status mn_model_aliases(mn_runtime *rt, mn_found **out, mn_error *err) {
    mn_aliases a = {0};
    mn_status st = need(err, "mn_model_aliases", rt, (mn_arg[]){{"rt", rt}, {"out", out}, {0}});
    if (st)
        return st;
    mn_found *found = mn_calloc(1, sizeof *found);
    st = found ? mn_aliases_read(&a, err) : mn_fail_memory(err, sizeof *found);
    for (uint32_t i = 0; i < a.n && !st; i++) {
        const mn_found_entry e = {.name = a.names[i], .path = a.targets[i], .place = "alias"};
        st = mn_found_add(found, &e, err);
    }
    mn_aliases_free(&a);
    if (st)
        mn_found_free(found);
    else
        *out = found;
    return st;
}

mn_status mn_model_set_alias(mn_runtime *rt, const char *alias, const char *target, mn_error *err) {
    const mn_status st = need(err, "mn_model_set_alias", rt,
                              (mn_arg[]){{"rt", rt}, {"alias", alias}, {"target", target}, {0}});
    if (st)
        return st;
    return mn_aliases_set(alias, *target ? target : NULL, err);
}

/* The model is the user's own file, or another program's. */
static mn_status fail_foreign(const mn_found_entry *e, mn_error *err) {
    const bool is_ollama = !strcmp(e->place, "ollama");
    if (is_ollama || !strcmp(e->place, "lmstudio"))
        return mn_fail(err, MN_UNSUPPORTED, "%s: the model belongs to %s, which removes it",
                       e->name, is_ollama ? "ollama" : "LM Studio");
    return mn_fail(err, MN_UNSUPPORTED,
                   "%s: %s is a file or folder of yours, which is removed as any other", e->name,
                   e->path);
}

mn_status mn_model_remove(mn_runtime *rt, const char *name, uint32_t flags, uint64_t *bytes,
                          mn_error *err) {
    mn_choose_how how = {0};
    mn_found *found = NULL;
    mn_status st = need(err, "mn_model_remove", rt,
                        (mn_arg[]){{"rt", rt}, {"name", name}, {"bytes", bytes}, {0}});
    if (!st)
        st = mn_args_flags(err, "mn_model_remove: flags", flags, MN_REMOVE_ASK);
    if (!st)
        st = make_how(rt, 0, &how, err);
    if (!st)
        st = mn_find_model(&how, mn_config_get_str(rt->config, "model_path"), name, &found, err);
    if (!st && !found->n && !(found->folder && mn_path_is_dir(found->folder)))
        st = mn_fail(err, MN_IO_ERROR, "%s", found->missing.ptr);
    if (!st && found->n && strcmp(found->at[0].place, "huggingface") != 0)
        st = fail_foreign(&found->at[0], err);
    if (!st)
        st = mn_hf_remove_model(&how, found, flags & MN_REMOVE_ASK, bytes, err);
    mn_found_free(found);
    free_how(&how);
    return st == MN_END ? MN_IO_ERROR : st;
}

mn_status mn_found_get(const mn_found *f, uint32_t i, mn_found_item *out) {
    mn_status st = mn_args_need(NULL, "mn_found_get", (mn_arg[]){{"f", f}, {"out", out}, {0}});
    if (st)
        return st;
    if (i >= f->n)
        return MN_END;
    const mn_found_entry *e = &f->at[i];
    const mn_found_item own = {.flags = e->flags,
                               .name = e->name,
                               .path = e->path,
                               .place = e->place,
                               .remark = e->remark,
                               .bytes = e->bytes,
                               .used = e->used};
    return mn_args_give(MN_SIZED_FOUND_ITEM, out, &own);
}

const char *mn_found_explain(const mn_found *f) {
    return f && f->explain.ptr ? f->explain.ptr : "";
}

const char *mn_found_missing(const mn_found *f) {
    return f && f->missing.ptr ? f->missing.ptr : "";
}

mn_status mn_found_hub(const mn_found *f, mn_hub_name *out) {
    mn_status st = mn_args_need(NULL, "mn_found_hub", (mn_arg[]){{"f", f}, {"out", out}, {0}});
    if (st)
        return st;
    const mn_hub_name own = {.repo = f->name.repo,
                             .revision = f->name.revision,
                             .what = f->name.what,
                             .cache = f->cache,
                             .folder = f->folder};
    st = mn_args_give(MN_SIZED_HUB_NAME, out, &own);
    return st || f->folder ? st : MN_END;
}

mn_status mn_hub_choose(mn_runtime *rt, const mn_hub_file *files, uint32_t n, const char *what,
                        uint64_t memory, uint8_t *chosen, mn_hub_choice *out, mn_error *err) {
    mn_choose_how how = {0};
    mn_hub_choice own = {.size = sizeof own};
    mn_status st = need(
        err, "mn_hub_choose", rt,
        (mn_arg[]){
            {"rt", rt}, {"files", files}, {"what", what}, {"chosen", chosen}, {"out", out}, {0}});
    if (!st)
        st = mn_args_take(MN_SIZED_HUB_CHOICE, &own, out, err);
    if (!st)
        st = make_how(rt, memory, &how, err);
    if (!st)
        st = mn_choose_files(&how, files, n, what, chosen, &own, NULL, err);
    free_how(&how);
    return st ? st : mn_args_give(MN_SIZED_HUB_CHOICE, out, &own);
}
