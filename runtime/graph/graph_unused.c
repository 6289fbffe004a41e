/* graph_unused.c -- tensors of the file that the graph has not asked for.
 *
 * Those of a layer that is computed, and those of the ends of the model that GGUF names, change
 * what the model says: without them it is another model, which is an error unless the user wants
 * it (mn_canonical.ignore_unused). Others are unknown, and only told. What no model misses was
 * taken out by the loader (loaders/common/unused.c). Names are shown as the file has them, one for
 * all layers: blk.*.attn_sub_norm.weight. */
#include "graph/build.h"
#include <string.h>

/* ---- which layer ----------------------------------------------------------------------------- */

/* Bytes up to the next dot, or all. */
static uint64_t part_length(mn_str s) {
    uint64_t n = 0;
    while (n < s.len && s.ptr[n] != '.')
        n++;
    return n;
}

static mn_str unused_behind(mn_str s, uint64_t n) {
    if (n >= s.len)
        return (mn_str){"", 0};
    return (mn_str){s.ptr + n + 1, s.len - n - 1};
}

static bool unused_is_one_of(mn_str part, const char *const *words) {
    for (; *words; words++)
        if (mn_str_is(part, *words))
            return true;
    return false;
}

static bool unused_is_number(mn_str part) {
    for (uint64_t i = 0; i < part.len; i++)
        if (part.ptr[i] < '0' || part.ptr[i] > '9')
            return false;
    return part.len > 0;
}

/* The layer of the text model that a canonical or native name says; -1 = none: the layers of
 * another part are not the model's. */
static int64_t unused_layer_of(mn_str name) {
    static const char *const layers[] = {"blk", "layers", "layer", "h", "block", "blocks", NULL};
    static const char *const model[] = {"model",      "language_model",
                                        "text_model", "transformer",
                                        "base_model", "bert",
                                        "roberta",    "distilbert",
                                        "electra",    "encoder",
                                        "decoder",    "enc",
                                        "dec",        NULL};
    while (name.len) {
        const uint64_t n = part_length(name);
        const mn_str part = {name.ptr, n};
        name = unused_behind(name, n);
        if (unused_is_one_of(part, layers)) {
            int64_t layer;
            const mn_str number = {name.ptr, part_length(name)};
            if (unused_is_number(number) && mn_parse_i64(number, &layer))
                return layer;
            return -1;
        }
        if (!unused_is_one_of(part, model))
            return -1;
    }
    return -1;
}

/* ---- kinds of names -------------------------------------------------------------------------- */

/* Do the names differ in their numbers alone? */
static bool same_kind(mn_str a, mn_str b) {
    while (a.len && b.len) {
        const uint64_t n = part_length(a);
        const uint64_t k = part_length(b);
        const mn_str x = {a.ptr, n};
        const mn_str y = {b.ptr, k};
        if (!mn_str_eq(x, y) && !(unused_is_number(x) && unused_is_number(y)))
            return false;
        a = unused_behind(a, n);
        b = unused_behind(b, k);
    }
    return a.len == b.len;
}

/* The name with "*" for its numbers. */
static void put_kind(mn_text *out, mn_str name) {
    const char *dot = "";
    while (name.len) {
        const uint64_t n = part_length(name);
        const mn_str part = {name.ptr, n};
        if (unused_is_number(part))
            mn_text_printf(out, "%s*", dot);
        else
            mn_text_printf(out, "%s%.*s", dot, MN_STR_ARG(part));
        name = unused_behind(name, n);
        dot = ".";
    }
}

enum { MAX_KINDS = 6 };
typedef struct {
    mn_str first[MAX_KINDS];
    uint64_t n[MAX_KINDS];
    uint32_t n_kinds;
    uint64_t more; /* tensors of further kinds */
} kinds;

static void unused_add(kinds *k, mn_str name) {
    uint32_t i = 0;
    while (i < k->n_kinds && !same_kind(k->first[i], name))
        i++;
    if (i == MAX_KINDS) {
        k->more++;
        return;
    }
    if (i == k->n_kinds) {
        k->first[i] = name;
        k->n_kinds++;
    }
    k->n[i]++;
}

/* "blk.*.a.weight (30), b.weight (1) and 2 more" */
static void put_kinds(mn_text *out, const kinds *k) {
    for (uint32_t i = 0; i < k->n_kinds; i++) {
        if (i)
            mn_text_puts(out, ", ");
        put_kind(out, k->first[i]);
        mn_text_printf(out, " (%llu)", (unsigned long long)k->n[i]);
    }
    if (k->more)
        mn_text_printf(out, " and %llu more", (unsigned long long)k->more);
}

/* ---- what they are to the model -------------------------------------------------------------- */

static bool unused_begins(mn_str s, const char *z) {
    return s.len >= strlen(z) && !memcmp(s.ptr, z, strlen(z));
}

/* A tensor outside of layers that GGUF's readers compute with. A graph that embeds has no output
 * matrix, one that draws does not read what is made of embeddings. */
static bool is_of_ends(const mn_model_graph *g, mn_str name) {
    static const char *const stems[] = {"token_embd.",      "token_embd_norm.", "token_types.",
                                        "position_embd.",   "output_norm.",     "per_layer_",
                                        "token_embd_proj.", "attn_rel_b.",      "rope_freqs."};
    for (size_t i = 0; i < MN_COUNT(stems); i++)
        if (unused_begins(name, stems[i]))
            return true;
    return !g->embeds && unused_begins(name, "output.");
}

typedef enum { SPARE, UNKNOWN, MISSED } use;

static use unused_use_of(const mn_model_graph *g, const mn_tensor_info *t) {
    int64_t layer = unused_layer_of(t->name);
    if (layer < 0)
        layer = unused_layer_of(t->native);
    if (layer >= g->hp.n_layer)
        return SPARE; /* told when the model was opened */
    if (layer >= 0 || is_of_ends(g, t->name))
        return MISSED;
    if (unused_begins(t->name, "rope_factors_")) /* the other set of the two */
        return SPARE;
    /* the host's, behind the pooling (runtime/opened/head.c, dense.c) */
    if (unused_begins(t->name, "cls.") || unused_begins(t->name, "dense_"))
        return SPARE;
    return UNKNOWN;
}

static void graph_unused_tell(mn_model_graph *g, const kinds *missed, const kinds *unknown) {
    mn_text text = {0};
    if (missed->n_kinds) {
        mn_text_puts(&text, "without tensors that its architecture does not use it is another "
                            "model: ");
        put_kinds(&text, missed);
    }
    if (unknown->n_kinds) {
        if (text.len)
            mn_text_puts(&text, "; ");
        mn_text_puts(&text, "tensors that are not known are not used: ");
        put_kinds(&text, unknown);
    }
    if (text.len && !text.failed)
        g->remark = mn_arena_strndup(&g->arena, text.ptr, text.len);
    if (text.failed || (text.len && !g->remark))
        mn_gb_no_memory(g);
    mn_text_free(&text);
}

void mn_gb_check_unused(mn_model_graph *g) {
    const mn_canonical *m = g->model;
    kinds missed = {0};
    kinds unknown = {0};
    for (size_t i = 0; i < m->n_tensors; i++) {
        const mn_tensor_info *t = &m->tensors[i].info;
        if (g->asked[i])
            continue;
        const use u = unused_use_of(g, t);
        if (u == MISSED)
            unused_add(&missed, t->native);
        if (u == UNKNOWN)
            unused_add(&unknown, t->native);
    }
    if (!missed.n_kinds || m->ignore_unused) {
        graph_unused_tell(g, &missed, &unknown);
        return;
    }
    mn_text list = {0};
    put_kinds(&list, &missed);
    mn_status st = mn_fail(g->err, MN_UNSUPPORTED,
                           "%s: the architecture %s does not use %s: without these tensors it is "
                           "another model; expected none of them (--ignore-unused runs it so)",
                           m->path, g->hp.arch, list.ptr ? list.ptr : "");
    if (list.failed)
        st = mn_fail_memory(g->err, list.len);
    mn_text_free(&list);
    mn_gb_fail(g, st);
}
