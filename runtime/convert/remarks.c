/* remarks.c -- what a user should know of a converted file before it is written: what other
 * programs that read GGUF lack for it, which types are not those that were asked for, and what is
 * quantised twice. Each is one warning; the plan is only read. The tables hold what the readers of
 * the field (llama.cpp of 2026) load for each architecture; they refuse a file with a tensor more
 * or less. */
#include "convert/convert.h"
#include <string.h>

static bool remarks_begins(mn_str s, const char *z) {
    return s.len >= strlen(z) && !memcmp(s.ptr, z, strlen(z));
}

/* "attn_q" of "blk.3.attn_q.bias"; outside of layers all but the ending. */
static mn_str stem_of(mn_str name) {
    mn_str s = name;
    if (remarks_begins(name, "blk.")) {
        const char *dot = memchr(name.ptr + 4, '.', name.len - 4);
        if (dot)
            s = (mn_str){dot + 1, name.len - (uint64_t)(dot + 1 - name.ptr)};
    }
    while (s.len && s.ptr[s.len - 1] != '.')
        s.len--;
    if (s.len)
        s.len--;
    return s;
}

static bool listed(const char *const *list, mn_str stem) {
    for (; *list; list++)
        if (mn_str_is(stem, *list))
            return true;
    return false;
}

static bool remarks_has(const mn_convert_plan *p, const char *name) {
    for (size_t i = 0; i < p->n_tensors; i++)
        if (mn_str_is(p->tensors[i].name, name))
            return true;
    return false;
}

/* ---- what readers lack ----------------------------------------------------------------------- */

static const char *const no_biases[] = {NULL};
static const char *const of_inputs[] = {"attn_q", "attn_k", "attn_v", "attn_qkv", "output", NULL};
static const char *const of_llama[] = {"attn_q",   "attn_k", "attn_v",   "attn_qkv", "attn_output",
                                       "ffn_gate", "ffn_up", "ffn_down", NULL};
static const char *const of_stablelm[] = {"attn_q",    "attn_k",   "attn_v",      "attn_qkv",
                                          "attn_norm", "ffn_norm", "output_norm", NULL};

static const struct {
    const char *arch;
    const char *const *biases; /* NULL: all that the architecture has */
    bool needs_output;         /* the output matrix is never the embedding */
    bool needs_tied;           /* and never another one */
} readers[] = {
    {"cohere2", no_biases, false, true},  {"command-r", no_biases, false, true},
    {"gemma", no_biases, false, true},    {"gemma2", no_biases, false, true},
    {"gemma3", no_biases, false, false},  {"gemma3n", no_biases, false, true},
    {"gemma4", no_biases, false, false},  {"gpt-oss", NULL, true, false},
    {"granite", of_llama, false, false},  {"llama", of_llama, false, false},
    {"olmo2", no_biases, true, false},    {"phi2", NULL, true, false},
    {"phi3", no_biases, false, false},    {"qwen2", of_inputs, false, false},
    {"qwen3", no_biases, false, false},   {"qwen3moe", no_biases, false, false},
    {"smollm3", no_biases, false, false}, {"stablelm", of_stablelm, true, false},
};

static void remark_biases(const mn_convert_plan *p, const char *const *biases) {
    const mn_out_tensor *first = NULL;
    unsigned n = 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        const mn_out_tensor *t = &p->tensors[i];
        if (!mn_str_ends(t->name, ".bias") || listed(biases, stem_of(t->name)))
            continue;
        if (!n++)
            first = t;
    }
    if (n)
        mn_log(MN_LOG_WARN,
               "%s: %u biases (%.*s, ...) that other programs do not have in %s: some refuse the "
               "file, some leave them out",
               p->model->path, n, MN_STR_ARG(first->name), p->hp.arch);
}

static void remark_output(const mn_convert_plan *p, bool needs_output, bool needs_tied) {
    const bool own = remarks_has(p, "output.weight");
    if (needs_output && !own)
        mn_log(MN_LOG_WARN,
               "%s: the output matrix is the embedding; other programs refuse %s without "
               "output.weight",
               p->model->path, p->hp.arch);
    if (needs_tied && own)
        mn_log(MN_LOG_WARN,
               "%s: output.weight is not the embedding; other programs have no other one in %s and "
               "refuse the file",
               p->model->path, p->hp.arch);
}

/* Readers assume 32 and 1 and do not read the keys. */
static void remark_yarn(const mn_convert_plan *p) {
    const mn_hparams *h = &p->hp;
    const bool usual = !(h->rope_beta_fast < 32 || h->rope_beta_fast > 32) &&
                       !(h->rope_beta_slow < 1 || h->rope_beta_slow > 1);
    if (h->rope_scaling == MN_ROPE_SCALING_YARN && h->n_rope && !usual)
        mn_log(MN_LOG_WARN,
               "%s: YaRN with beta_fast %g and beta_slow %g: other programs have 32 and 1 and "
               "compute other angles",
               p->model->path, h->rope_beta_fast, h->rope_beta_slow);
}

/* What stands in keys of our own because the weights are stored as they are. */
static void remark_states(const mn_convert_plan *p) {
    const mn_ssm *s = &p->hp.ssm;
    const char *what = NULL;
    if (!strcmp(p->hp.arch, "olmo_hybrid"))
        what = "other programs do not know this architecture";
    const bool in_turn = !strncmp(p->hp.arch, "qwen35", 6); /* in other programs */
    if (in_turn && !p->plain.ssm.heads_in_turn && s->n_head > s->n_group)
        what = "heads of v stand as in the checkpoint; other programs expect them in another order";
    if (what)
        mn_log(MN_LOG_WARN, "%s: %s: %s", p->model->path, p->hp.arch, what);
}

static void remark_readers(const mn_convert_plan *p) {
    for (size_t i = 0; i < MN_COUNT(readers); i++) {
        if (strcmp(readers[i].arch, p->hp.arch))
            continue;
        if (readers[i].biases)
            remark_biases(p, readers[i].biases);
        remark_output(p, readers[i].needs_output, readers[i].needs_tied);
    }
    remark_yarn(p);
    remark_states(p);
}

/* ---- types ----------------------------------------------------------------------------------- */

/* Blocks of rounded numbers, or rounded ones with scales. */
static bool is_rounded(mn_dtype t) {
    return t.id != MN_F32 && t.id != MN_F16 && t.id != MN_BF16 && t.id != MN_F64;
}

/* Its values are rounded a second time: neither copied nor the same codes in another order. */
static bool is_rounded_again(const mn_out_tensor *t) {
    if (!t->src || !is_rounded(t->src->dtype) || !is_rounded(t->type))
        return false;
    if (t->src->dtype.id == t->type.id || t->codes)
        return false;
    return !(t->src->dtype.id == MN_MXFP4_SPLIT && t->type.id == MN_MXFP4);
}

static void remark_rounded(const mn_convert_plan *p) {
    const mn_out_tensor *first = NULL;
    unsigned n = 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        if (!is_rounded_again(&p->tensors[i]))
            continue;
        if (!n++)
            first = &p->tensors[i];
    }
    if (n)
        mn_log(MN_LOG_WARN,
               "%s: %u tensors are quantised already (%.*s is %s) and are quantised again (to %s): "
               "both errors add up; the original weights give a better file",
               p->model->path, n, MN_STR_ARG(first->src->native),
               mn_vendor_dtype_name(p->model->types, first->src->dtype.id),
               mn_dtype_name(first->type.id));
}

enum { MAX_SWAPS = 8 };
typedef struct {
    uint32_t wanted, taken;
    unsigned n;
} swap;

/* Counts one swap; those beyond MAX_SWAPS kinds cannot be: there are so few types with a next
 * one. */
static void add_swap(swap *swaps, uint32_t wanted, uint32_t taken) {
    for (int i = 0; i < MAX_SWAPS; i++) {
        if (swaps[i].n && (swaps[i].wanted != wanted || swaps[i].taken != taken))
            continue;
        swaps[i] = (swap){wanted, taken, swaps[i].n + 1};
        return;
    }
}

static void remark_widths(const mn_convert_plan *p) {
    swap swaps[MAX_SWAPS] = {{0}};
    const mn_out_tensor *first = NULL;
    mn_text list = {0};
    for (size_t i = 0; i < p->n_tensors; i++) {
        const mn_out_tensor *t = &p->tensors[i];
        if (!t->wanted || t->wanted == t->type.id)
            continue;
        if (!first)
            first = t;
        add_swap(swaps, t->wanted, t->type.id);
    }
    for (int i = 0; i < MAX_SWAPS && swaps[i].n; i++)
        mn_text_printf(&list, "%s%s instead of %s (%u tensors)", i ? ", " : "",
                       mn_dtype_name(swaps[i].taken), mn_dtype_name(swaps[i].wanted), swaps[i].n);
    if (first && !list.failed)
        mn_log(MN_LOG_WARN,
               "%s: rows that are no multiple of a block (%.*s has rows of %llu) have a larger "
               "type: %s",
               p->model->path, MN_STR_ARG(first->name), (unsigned long long)first->cols, list.ptr);
    mn_text_free(&list);
}

/* The embedding's rows are looked up, so that no matrix has anything for it. */
static void remark_imatrix(const mn_convert_plan *p) {
    const mn_out_tensor *first = NULL;
    unsigned n = 0;
    for (size_t i = 0; i < p->n_tensors && p->imatrix.n; i++) {
        const mn_out_tensor *t = &p->tensors[i];
        if (!t->src || t->weights || !is_rounded(t->type) || t->src->dtype.id == t->type.id ||
            mn_str_ends(t->name, "token_embd.weight") || mn_str_is(t->name, "output.weight"))
            continue;
        if (!n++)
            first = t;
    }
    if (n)
        mn_log(MN_LOG_WARN, "%s: has nothing for %u of the matrices (%.*s, ...)", p->imatrix_path,
               n, MN_STR_ARG(first->name));
}

void mn_convert_remark(const mn_convert_plan *p) {
    remark_imatrix(p);
    remark_readers(p);
    remark_rounded(p);
    remark_widths(p);
    if (p->n_left_out)
        mn_log(MN_LOG_WARN, "%s: %u tensors have no name in GGUF and are left out", p->model->path,
               p->n_left_out);
}
