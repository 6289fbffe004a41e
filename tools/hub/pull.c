/* pull.c -- the model of a name from the hub into the cache; and the offer to do so before a model
 * is opened that is not on this machine. */
#include "hub.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is loaded: the listing, and which of its files. */
typedef struct {
    hub_client *client;
    hub_listing list;
    hub_wanted *wanted;
    uint32_t n;
    mn_hub_choice choice;
    mn_hub_name name;
    hub_store store;
    mn_found *found;
} plan;

static void free_plan(plan *p) {
    hub_listing_free(&p->list);
    free(p->wanted);
    hub_client_free(p->client);
    mn_found_free(p->found);
    memset(p, 0, sizeof *p);
}

static int is_commit(const char *text) {
    return hub_is_hex(text, 40);
}

/* The repository that a name means. */
static int find_repo(app *a, const char *name, plan *p) {
    const mn_status st = mn_model_find(a->rt, name, &p->found, &a->err);
    mn_found_item item = {.size = sizeof item};
    p->name.size = sizeof p->name;
    if (st != MN_OK)
        return app_fail(a, st);
    if (mn_found_hub(p->found, &p->name) == MN_OK)
        return 0;
    if (mn_found_get(p->found, 0, &item) == MN_OK)
        return complain(EXIT_USAGE, "%s is on this machine and of no hub: %s", name, item.path);
    return complain(EXIT_USAGE,
                    "%s: found no name of a repository, expected org/repo, org/repo:QUANT or a URL "
                    "of a hub",
                    name);
}

/* Which files; no name leads out of the snapshot, for the listing has none that does. */
static int choose(app *a, plan *p, const char *name) {
    mn_hub_file *files = calloc(p->list.n + 1u, sizeof *files);
    uint8_t *chosen = calloc(p->list.n + 1u, 1);
    p->wanted = calloc(p->list.n + 1u, sizeof *p->wanted);
    p->choice.size = sizeof p->choice;
    int code = files && chosen && p->wanted ? 0 : no_memory();
    for (uint32_t i = 0; i < p->list.n && !code; i++)
        files[i] = (mn_hub_file){{p->list.files[i].name, strlen(p->list.files[i].name)},
                                 p->list.files[i].bytes};
    if (!code) {
        const mn_status st =
            mn_hub_choose(a->rt, files, p->list.n, p->name.what, 0, chosen, &p->choice, &a->err);
        if (st != MN_OK)
            code = complain(mn_exit_code(st) ? mn_exit_code(st) : EXIT_FAILED, "%s: %s%s", name,
                            a->err.msg,
                            strstr(a->err.msg, "no files of a model")
                                ? ", expected a GGUF file, or config.json with .safetensors files"
                                : "");
    }
    for (uint32_t i = 0; i < p->list.n && !code; i++)
        if (chosen[i])
            p->wanted[p->n++].file = &p->list.files[i];
    free(files);
    free(chosen);
    return code;
}

static int by_size(const void *a, const void *b) {
    const hub_wanted *x = a;
    const hub_wanted *y = b;
    const uint64_t m = x->file->bytes;
    const uint64_t n = y->file->bytes;
    return m == n ? strcmp(x->file->name, y->file->name) : (m > n) - (m < n);
}

/* Asks the hub what there is. */
static int make_plan(app *a, const char *name, plan *p) {
    if (hub_is_offline(a->flags))
        return complain(EXIT_USAGE,
                        "%s: found --offline or HF_HUB_OFFLINE, and nothing is downloaded", name);
    int code = p->found ? 0 : find_repo(a, name, p);
    if (!code && !p->name.cache)
        code =
            complain(EXIT_FAILED, "there is no home folder for the cache; HF_HUB_CACHE names one");
    if (!code)
        p->client = hub_client_new("minerva pull");
    if (!code && !p->client)
        code = EXIT_FAILED;
    if (!code)
        code = hub_client_list(p->client, p->name.repo, p->name.revision, &p->list);
    if (!code)
        code = choose(a, p, name);
    if (code)
        return code;
    qsort(p->wanted, p->n, sizeof *p->wanted, by_size); // weights come last
    p->store = (hub_store){.cache = p->name.cache, .folder = p->name.folder};
    memcpy(p->store.commit, p->list.commit, sizeof p->store.commit);
    if (!is_commit(p->name.revision))
        p->store.revision = p->name.revision[0] ? p->name.revision : "main";
    return 0;
}

/* Bytes that are not on the disk yet. */
static uint64_t missing_bytes(const plan *p) {
    uint64_t need = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const hub_file *f = p->wanted[i].file;
        if (!f->hash[0] || !hub_blob_is_there(&p->store, f->hash, f->bytes))
            need += f->bytes - hub_blob_left(&p->store, f->hash, f->bytes);
    }
    return need;
}

/* Links of all files, then the ref: from here on the model is found. */
static int put_snapshot(const plan *p) {
    int code = 0;
    for (uint32_t i = 0; i < p->n && !code; i++)
        code = hub_store_link(&p->store, p->wanted[i].file->name, p->wanted[i].etag);
    return code ? code : hub_store_ref(&p->store);
}

/* progress NULL: a bar. */
static int load(app *a, plan *p, hub_progress progress, void *arg) {
    char size[32];
    char rate[32];
    hub_bar bar;
    const double begin = seconds();
    const uint64_t need = missing_bytes(p);
    int code = hub_store_room(&p->store, need);
    if (code)
        return code;
    if (p->choice.remark[0])
        app_remark(a, "%s: %s", p->name.repo, p->choice.remark);
    hub_bar_begin(&bar, p->name.repo, progress || a->flags->quiet);
    hub_transfer t = {.repo = p->name.repo,
                      .revision = p->store.revision ? p->store.revision : p->store.commit,
                      .progress = progress ? progress : hub_bar_draw,
                      .arg = progress ? arg : &bar};
    if (!progress)
        interrupt_catch();
    code = hub_client_load(p->client, &p->store, p->wanted, p->n, &t);
    if (!progress) {
        interrupt_again();
        interrupt_release();
    }
    hub_bar_end(&bar);
    if (code == EXIT_INTERRUPTED)
        note("%s: what was loaded is kept: minerva pull goes on from there", p->name.repo);
    if (!code)
        code = put_snapshot(p);
    if (code)
        return code;
    const double s = seconds() - begin;
    human_bytes(p->choice.bytes, size);
    human_bytes((uint64_t)((double)need / (s > 0.001 ? s : 0.001)), rate);
    if (need)
        app_remark(a, "%s: %u files, %s, in %.0f s (%s/s)", p->name.repo, p->n, size, s, rate);
    else
        app_remark(a, "%s: %u files, %s, were here already", p->name.repo, p->n, size);
    return 0;
}

int hub_pull(app *a, const char *name, hub_progress progress, void *arg) {
    plan p = {0};
    int code = make_plan(a, name, &p);
    if (!code)
        code = load(a, &p, progress, arg);
    free_plan(&p);
    return code;
}

/* ---- the offer ------------------------------------------------------------------------------- */
/* 1 if the answer on the terminal is yes, or just the line's end. */
static int says_yes(void) {
    char line[16] = "";
    if (!fgets(line, sizeof line, stdin))
        return 0;
    return strchr("yYjJ\n", line[0]) != NULL;
}

static int offer(app *a, const char *name, plan *p) {
    char size[32];
    int code = make_plan(a, name, p);
    if (code)
        return code;
    fprintf(stderr, "minerva: %s is not on this machine. Download %s%s%s? [Y/n] ", name,
            human_bytes(p->choice.bytes, size), p->choice.what[0] ? " of " : "", p->choice.what);
    fflush(stderr);
    return says_yes() ? load(a, p, NULL, NULL) : 0;
}

int hub_offer(app *a, const char *given) {
    plan p = {0};
    const char *set = mn_runtime_setting(a->rt, "model");
    const char *name = given ? given : set;
    if (!name || !*name)
        return 0; // the demo model
    mn_found_item item = {.size = sizeof item};
    const mn_status st = mn_model_find(a->rt, name, &p.found, &a->err);
    int code = 0;
    p.name.size = sizeof p.name;
    if (st == MN_OK && mn_found_get(p.found, 0, &item) == MN_OK) {
        if (item.remark[0])
            app_remark(a, "%s: %s", name, item.remark);
    } else if (st == MN_OK && mn_found_hub(p.found, &p.name) == MN_OK &&
               !hub_is_offline(a->flags) && isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
        code = offer(a, name, &p);
    free_plan(&p);
    return code;
}
