/* adapters.c -- see adapters.h. The table is behind one lock; what an adapter holds does not change
 * while it has holders, so that the thread that steps reads it without. */
#include "opened/adapters.h"
#include "opened/opened.h"
#include <stdio.h>
#include <string.h>

enum { MAX_ADAPTERS = 4096, USUAL_RANK = 16 };

struct mn_adapters {
    pthread_mutex_t lock;
    mn_adapter **at; /* [n] by slot; NULL: the place is free */
    uint32_t n;
    size_t cap;
    uint64_t n_loaded;   /* so far */
    mn_lora_room wanted; /* n 0: as many as are loaded */
    mn_lora_room room;
    uint8_t *sites; /* room.sites */
    bool decided;
};

mn_adapters *mn_adapters_create(void) {
    mn_adapters *x = mn_calloc(1, sizeof *x);
    if (x)
        pthread_mutex_init(&x->lock, NULL);
    return x;
}

static void adapter_files_free(mn_adapter_file *files, uint32_t n) {
    for (uint32_t i = 0; files && i < n; i++) {
        mn_lora_close(&files[i].lora);
        mn_free(files[i].by_site);
    }
    mn_free(files);
}

static void adapter_free(mn_adapter *a) {
    if (!a)
        return;
    adapter_files_free(a->files, a->n_files);
    mn_free(a->name);
    mn_free(a);
}

void mn_adapters_free(mn_adapters *x) {
    if (!x)
        return;
    for (uint32_t i = 0; i < x->n; i++)
        adapter_free(x->at[i]);
    mn_free(x->at);
    mn_free(x->sites);
    pthread_mutex_destroy(&x->lock);
    mn_free(x);
}

/* ---- room ------------------------------------------------------------------------------------ */
mn_status mn_adapters_want(mn_adapters *x, const mn_lora_room *room, mn_error *err) {
    mn_status st = MN_OK;
    pthread_mutex_lock(&x->lock);
    if (x->decided)
        st = mn_fail(err, MN_INVALID,
                     "mn_model_set_adapter_room: the model has a session already, whose room for "
                     "adapters stands");
    else if (room->n > MAX_ADAPTERS || room->rank > MN_LORA_MAX_RANK)
        st =
            mn_fail(err, MN_INVALID,
                    "mn_adapter_room: found %u adapters of rank %u, expected at most %d of rank %d",
                    room->n, room->rank, MAX_ADAPTERS, MN_LORA_MAX_RANK);
    else
        x->wanted = *room;
    pthread_mutex_unlock(&x->lock);
    return st;
}

/* The products that the loaded adapters have; false: out of memory. */
static bool adapters_mark_sites(mn_adapters *x) {
    const uint32_t n_sites = x->at[0]->n_sites;
    x->sites = mn_calloc(n_sites / 8 + 1, 1);
    if (!x->sites)
        return false;
    for (uint32_t i = 0; i < x->n; i++)
        for (uint32_t f = 0; f < x->at[i]->n_files; f++)
            for (uint32_t k = 0; k < n_sites; k++)
                if (x->at[i]->files[f].by_site[k])
                    x->sites[k / 8] |= (uint8_t)(1u << k % 8);
    x->room.sites = x->sites;
    return true;
}

static mn_status adapters_decide(mn_adapters *x, mn_error *err) {
    uint32_t rank = 0;
    for (uint32_t i = 0; i < x->n; i++)
        rank = MN_MAX(rank, x->at[i]->rank);
    x->room = x->wanted;
    if (!x->room.dtype)
        x->room.dtype = MN_F32;
    if (!x->room.n && x->n && !adapters_mark_sites(x))
        return mn_fail_memory(err, x->at[0]->n_sites);
    if (!x->room.n)
        x->room.n = x->n;
    if (!x->room.rank && x->wanted.n)
        x->room.rank = USUAL_RANK;
    x->room.rank = MN_MAX(x->room.rank, rank);
    for (uint32_t i = 0; i < x->n; i++)
        x->at[i]->room_rank = x->room.rank;
    x->decided = true;
    return MN_OK;
}

mn_status mn_adapters_decide(mn_adapters *x, const mn_lora_room **out, mn_error *err) {
    mn_status st = MN_OK;
    pthread_mutex_lock(&x->lock);
    if (!x->decided)
        st = adapters_decide(x, err);
    *out = !st && x->room.n ? &x->room : NULL;
    pthread_mutex_unlock(&x->lock);
    return st;
}

/* ---- loading --------------------------------------------------------------------------------- */
/* The products of a file by site of the graph; each has to have one. */
static mn_status adapter_map_file(const mn_model_graph *all, mn_adapter_file *f, mn_error *err) {
    f->by_site = mn_calloc(all->n_sites + 1u, sizeof *f->by_site);
    if (!f->by_site)
        return mn_fail_memory(err, all->n_sites * sizeof *f->by_site);
    for (size_t i = 0; i < f->lora.n; i++) {
        const mn_lora_product *p = &f->lora.at[i];
        bool found = false;
        for (uint32_t k = 0; k < all->n_sites; k++) {
            const mn_graph_site *s = &all->sites[k];
            if (s->whole != p->base || s->head != p->head)
                continue;
            f->by_site[k] = p;
            found = true;
        }
        if (!found)
            return mn_fail(err, MN_UNSUPPORTED,
                           "%s adapts %s, which is read by no product that can be adapted here",
                           f->lora.path, p->target);
    }
    return MN_OK;
}

/* Ranks of files add up where several adapt one product. */
static uint32_t adapter_rank(const mn_adapter *a) {
    uint32_t most = 0;
    for (uint32_t k = 0; k < a->n_sites; k++) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < a->n_files; i++)
            if (a->files[i].by_site[k])
                sum += (uint32_t)a->files[i].by_site[k]->rank;
        most = MN_MAX(most, sum);
    }
    return most;
}

static mn_adapter *adapters_named(const mn_adapters *x, const char *name) {
    for (uint32_t i = 0; i < x->n; i++)
        if (x->at[i] && x->at[i]->listed && !strcmp(x->at[i]->name, name))
            return x->at[i];
    return NULL;
}

/* Whether the products that the room has are enough for the adapter. */
static mn_status adapters_check_sites(const mn_adapters *x, const mn_adapter *a, mn_error *err) {
    const uint8_t *sites = x->room.sites;
    for (uint32_t i = 0; sites && i < a->n_files; i++)
        for (uint32_t k = 0; k < a->n_sites; k++)
            if (a->files[i].by_site[k] && !(sites[k / 8] >> k % 8 & 1))
                return mn_fail(err, MN_UNSUPPORTED,
                               "%s adapts %s, for which the model was opened without room: it has "
                               "room for the matrices of the adapters that were loaded before the "
                               "first session (state the room: --max-loras)",
                               a->files[i].lora.path, a->files[i].by_site[k]->target);
    return MN_OK;
}

static mn_status adapters_check_room(const mn_adapters *x, const mn_adapter *a, mn_error *err) {
    const mn_lora_room *room = x->decided ? &x->room : &x->wanted;
    const bool stated = x->decided || room->n;
    if (x->decided && !room->n)
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s: the model was opened without room for adapters (--max-loras)", a->name);
    const uint32_t rank = room->rank ? room->rank : USUAL_RANK;
    if (stated && a->rank > rank)
        return mn_fail(err, MN_BAD_INPUT,
                       "%s: an adapter of rank %u, the model has room for rank %u "
                       "(--max-lora-rank)",
                       a->name, a->rank, rank);
    return adapters_check_sites(x, a, err);
}

/* A free place; MN_BAD_INPUT: there is none. */
static mn_status adapters_place(mn_adapters *x, mn_adapter *a, mn_error *err) {
    const mn_lora_room *room = x->decided ? &x->room : &x->wanted;
    const uint32_t most = x->decided || room->n ? room->n : MAX_ADAPTERS;
    void *list = x->at;
    uint32_t slot = 0;
    while (slot < x->n && x->at[slot])
        slot++;
    if (slot >= most)
        return mn_fail(err, MN_BAD_INPUT, "%s: all %u places for adapters are in use (--max-loras)",
                       a->name, most);
    if (!mn_grow(&list, &x->cap, slot + 1u, sizeof *x->at))
        return mn_fail_memory(err, (slot + 1u) * sizeof *x->at);
    x->at = list;
    x->n = MN_MAX(x->n, slot + 1);
    x->at[slot] = a;
    a->slot = slot;
    a->order = ++x->n_loaded;
    a->room_rank = x->room.rank;
    a->listed = true;
    return MN_OK;
}

static mn_status adapters_add(mn_adapters *x, mn_adapter *a, mn_error *err) {
    mn_status st = MN_OK;
    if (adapters_named(x, a->name))
        st = mn_fail(err, MN_BAD_INPUT, "an adapter \"%s\" is loaded already", a->name);
    if (!st)
        st = adapters_check_room(x, a, err);
    return st ? st : adapters_place(x, a, err);
}

/* a->files are a's from here on. */
static mn_status adapter_make(mn_adapter *a, const mn_model_graph *all, const char *name,
                              mn_error *err) {
    mn_status st = MN_OK;
    a->name = mn_strndup(name, strlen(name));
    a->n_sites = all->n_sites;
    if (!a->name)
        return mn_fail_memory(err, strlen(name));
    for (uint32_t i = 0; i < a->n_files && !st; i++) {
        const mn_adapter_file *f = &a->files[i];
        st = adapter_map_file(all, &a->files[i], err);
        a->digest = mn_hash(&f->factor, sizeof f->factor, a->digest ^ f->lora.digest);
    }
    a->digest |= 1;
    if (!st)
        a->rank = adapter_rank(a);
    return st;
}

mn_status mn_adapters_load(mn_adapters *x, const mn_model_graph *all, const char *name,
                           mn_adapter_file *files, uint32_t n, mn_error *err) {
    mn_adapter *a = mn_calloc(1, sizeof *a);
    if (!a) {
        adapter_files_free(files, n);
        return mn_fail_memory(err, sizeof *a);
    }
    a->files = files;
    a->n_files = n;
    mn_status st = adapter_make(a, all, name, err);
    if (!st) {
        pthread_mutex_lock(&x->lock);
        st = adapters_add(x, a, err);
        pthread_mutex_unlock(&x->lock);
    }
    if (st)
        adapter_free(a);
    return st;
}

/* ---- names and holders ----------------------------------------------------------------------- */
static mn_status adapters_unknown(const mn_adapters *x, const char *name, mn_error *err) {
    mn_text known = {0};
    for (uint32_t i = 0; i < x->n; i++)
        if (x->at[i] && x->at[i]->listed)
            mn_text_printf(&known, "%s%s", known.len ? ", " : "", x->at[i]->name);
    const mn_status st = mn_fail(err, MN_BAD_INPUT, "there is no adapter \"%.120s\"; loaded: %s",
                                 name, known.len ? known.ptr : "none");
    mn_text_free(&known);
    return st;
}

/* Under the lock: nobody finds it, and nobody holds it. */
static void adapters_settle(mn_adapters *x, mn_adapter *a) {
    if (a->listed || a->refs)
        return;
    if (x->decided) {
        x->at[a->slot] = NULL;
    } else { /* places are given out anew: those behind it move up */
        x->n--;
        memmove(x->at + a->slot, x->at + a->slot + 1, (x->n - a->slot) * sizeof *x->at);
        for (uint32_t i = a->slot; i < x->n; i++)
            x->at[i]->slot = i;
    }
    adapter_free(a);
}

mn_status mn_adapters_unload(mn_adapters *x, const char *name, mn_error *err) {
    mn_status st = MN_OK;
    pthread_mutex_lock(&x->lock);
    mn_adapter *a = adapters_named(x, name);
    if (a) {
        a->listed = false;
        adapters_settle(x, a);
    } else {
        st = adapters_unknown(x, name, err);
    }
    pthread_mutex_unlock(&x->lock);
    return st;
}

mn_status mn_adapters_get(mn_adapters *x, uint32_t i, mn_adapter_item *out) {
    mn_adapter_item item = {.size = sizeof item};
    mn_status st = MN_END;
    pthread_mutex_lock(&x->lock);
    for (uint32_t k = 0; k < x->n && st; k++) {
        const mn_adapter *a = x->at[k];
        if (!a || !a->listed || i--)
            continue;
        item.rank = a->rank;
        item.n_files = a->n_files;
        item.n_users = a->refs;
        snprintf(item.name, sizeof item.name, "%s", a->name);
        snprintf(item.path, sizeof item.path, "%s", a->files[0].lora.path);
        st = MN_OK;
    }
    pthread_mutex_unlock(&x->lock);
    return st ? st : mn_args_give(MN_SIZED_ADAPTER_ITEM, out, &item);
}

mn_status mn_adapter_find(mn_adapters *x, const char *name, const mn_adapter **out, mn_error *err) {
    mn_status st = MN_OK;
    pthread_mutex_lock(&x->lock);
    mn_adapter *a = adapters_named(x, name);
    if (a)
        a->refs++;
    else
        st = adapters_unknown(x, name, err);
    pthread_mutex_unlock(&x->lock);
    *out = a;
    return st;
}

void mn_adapter_hold(mn_adapters *x, const mn_adapter *a) {
    if (!a)
        return;
    pthread_mutex_lock(&x->lock);
    x->at[a->slot]->refs++;
    pthread_mutex_unlock(&x->lock);
}

void mn_adapter_release(mn_adapters *x, const mn_adapter *a) {
    if (!a)
        return;
    pthread_mutex_lock(&x->lock);
    mn_adapter *own = x->at[a->slot];
    own->refs--;
    adapters_settle(x, own);
    pthread_mutex_unlock(&x->lock);
}

/* ---- for the devices ------------------------------------------------------------------------- */
void mn_adapter_fill(const void *adapter, const mn_graph_site *site, float *a, float *b) {
    const mn_adapter *x = adapter;
    const int64_t room = x->room_rank;
    int64_t at = 0; /* first of the room's ranks that the file has */
    for (uint32_t i = 0; i < x->n_files; i++) {
        const mn_lora_product *p = x->files[i].by_site[site->index];
        if (!p)
            continue;
        const double factor = x->files[i].factor * p->scale;
        memcpy(a + at * site->cols, p->a, (size_t)(p->rank * p->n_in) * sizeof *a);
        for (int64_t r = 0; r < site->rows; r++) {
            const uint64_t row = mn_row_of(p->order, (uint64_t)(site->row_lo + r));
            for (int64_t j = 0; j < p->rank; j++)
                b[r * room + at + j] =
                    (float)(factor * p->b[row * (uint64_t)p->rank + (uint64_t)j]);
        }
        at += p->rank;
    }
}
