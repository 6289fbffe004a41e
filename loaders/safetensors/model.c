/* model.c -- which files of a folder make the model, and do they agree with each other. */
#include "families.h"
#include <stdio.h>
#include <string.h>

#define INDEX_NAME "model.safetensors.index.json"

/* An index may name any file as a shard. */
const mn_file_pattern model_patterns[MODEL_PATTERNS] = {
    MN_FILE_PATTERN(MODEL, "model.safetensors", 0),
    MN_FILE_PATTERN(SHARD, "model*-#-of-#.safetensors", 0),
    MN_FILE_PATTERN(FOLDER, "config.json", 0),
    MN_FILE_PATTERN(FOLDER, INDEX_NAME, 0),
    MN_FILE_PATTERN(COMPANION, "*.safetensors", 0),
    MN_FILE_PATTERN(MODEL, "adapter_model.safetensors", 0),
    MN_FILE_PATTERN(FOLDER, "adapter_config.json", 0),
};

/* What the index names may have any other name, too. */
static bool is_weights(const mn_file *f) {
    if (!mn_str_begins(f->name, "model"))
        return false;
    return mn_str_ends(f->name, ".safetensors");
}

/* By its whole name; NULL if it is not among the files that were given. */
static const mn_file *find_file(const mn_file *files, uint32_t n, uint32_t stride, mn_str name) {
    for (uint32_t i = 0; i < n; i++)
        if (mn_str_eq(mnl_file_at(files, i, stride)->name, name))
            return mnl_file_at(files, i, stride);
    return NULL;
}

const mn_file *model_file(const mn_file *files, uint32_t n, uint32_t stride, const char *name) {
    return find_file(files, n, stride, mn_str_of(name));
}

/* A named file must be one of this format; then one file of weights or the index is enough, so
 * that open can say what is missing beside it. */
bool model_is_ours(const mn_file *files, uint32_t n, uint32_t stride) {
    const mn_file *named = mnl_file_named(files, n, stride);
    if (named && !mn_str_ends(named->name, ".safetensors") && !mn_str_ends(named->name, ".json"))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (is_weights(mnl_file_at(files, i, stride)))
            return true;
    return find_file(files, n, stride, mn_str_of(INDEX_NAME)) != NULL;
}

/* ---- with an index: tensor name -> file ------------------------------------------------------ */

/* Grouped by shard, in the order of tensor names. */
static int by_shard(const void *a, const void *b) {
    const cJSON *x = a;
    const cJSON *y = b;
    int c = strcmp(x->valuestring, y->valuestring);
    if (c)
        return c;
    return strcmp(x->string, y->string);
}

static int by_native(const void *a, const void *b) {
    return mn_str_cmp(((const mn_parsed_tensor *)a)->native, ((const mn_parsed_tensor *)b)->native);
}

/* By native name among n tensors that are sorted by it; NULL: there is none. */
static const mn_parsed_tensor *find_tensor(const void **sorted, uint64_t n, mn_str native) {
    uint64_t lo = 0;
    uint64_t hi = n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (mn_str_cmp(((const mn_parsed_tensor *)sorted[mid])->native, native) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < n && mn_str_eq(((const mn_parsed_tensor *)sorted[lo])->native, native))
        return sorted[lo];
    return NULL;
}

/* A shard's entries of the index, [0, n), against the tensors that its file brought, from `first`
 * on. */
static mn_status check_shard(mn_parsed *p, const mn_file *index, const mn_file *shard,
                             const void **entries, uint64_t n, uint64_t first, mn_error *err) {
    uint64_t n_held = p->n_tensors - first;
    const void **held = p->host->alloc(p->host->self, (n_held + 1) * sizeof *held, 16);
    if (!held)
        return mnl_fail_memory(err);
    for (uint64_t i = 0; i < n_held; i++)
        held[i] = &p->tensors[first + i];
    mnl_sort(held, n_held, by_native);
    mn_status status = MN_OK;
    for (uint64_t i = 0; i < n && !status; i++) {
        const cJSON *entry = entries[i];
        if (!find_tensor(held, n_held, mn_str_of(entry->string)))
            status = mnl_fail(err, MN_BAD_FILE,
                              "%.*s: tensor '%.120s' is missing, %.*s says that it is there",
                              MN_STR_ARG(shard->name), entry->string, MN_STR_ARG(index->name));
    }
    p->host->release(p->host->self, (void *)held);
    return status;
}

typedef struct {
    const mn_file *files;
    uint32_t n;
    uint32_t stride;
} folder;

/* order: the index's entries by shard. */
static mn_status read_shards(mn_parsed *p, folder dir, const mn_file *index, const void **order,
                             uint64_t n, mn_error *err) {
    for (uint64_t i = 0, end; i < n; i = end) {
        mn_str name = mn_str_of(((const cJSON *)order[i])->valuestring);
        for (end = i + 1; end < n && mn_str_is(name, ((const cJSON *)order[end])->valuestring);)
            end++;
        const mn_file *shard = find_file(dir.files, dir.n, dir.stride, name);
        if (!shard)
            return mnl_fail(err, MN_BAD_FILE,
                            "%.*s is missing: %.*s says that it holds %llu tensors of this model",
                            MN_STR_ARG(name), MN_STR_ARG(index->name),
                            (unsigned long long)(end - i));
        uint64_t first = p->n_tensors;
        mn_status status = header_read(p, shard, err);
        if (!status)
            status = check_shard(p, index, shard, order + i, end - i, first, err);
        if (status)
            return status;
    }
    return MN_OK;
}

/* map: tensor name -> file name. Read shard by shard, so that each file's header is parsed once. */
static mn_status read_map(mn_parsed *p, folder dir, const mn_file *index, const cJSON *map,
                          mn_error *err) {
    uint64_t n = 0;
    if (!cJSON_IsObject(map) || !map->child)
        return mnl_fail(
            err, MN_BAD_FILE,
            "%.*s: key 'weight_map' is %s, expected an object that names a file per tensor",
            MN_STR_ARG(index->name), json_describe(map).s);
    for (const cJSON *m = map->child; m; m = m->next, n++)
        if (!cJSON_IsString(m))
            return mnl_fail(err, MN_BAD_FILE,
                            "%.*s: weight_map: '%.120s' is %s, expected a file name",
                            MN_STR_ARG(index->name), m->string, json_describe(m).s);
    mn_status status = json_unique(p->host, index, map, err);
    if (status)
        return status;
    const void **order = p->host->alloc(p->host->self, n * sizeof *order, 16);
    if (!order)
        return mnl_fail_memory(err);
    n = 0;
    for (const cJSON *m = map->child; m; m = m->next)
        order[n++] = m;
    mnl_sort(order, n, by_shard);
    status = read_shards(p, dir, index, order, n, err);
    p->host->release(p->host->self, (void *)order);
    return status;
}

/* The index decides which files are shards: others in the folder are left alone. */
static mn_status read_indexed(mn_parsed *p, folder dir, const mn_file *index, mn_error *err) {
    cJSON *root;
    mn_status status = json_parse(p->host, index, 0, index->bytes, JSON_MAX, &root, err);
    if (status)
        return status;
    status = json_unique(p->host, index, root, err);
    if (!status)
        status = read_map(p, dir, index, json_get(root, "weight_map"), err);
    cJSON_Delete(root);
    return status;
}

/* ---- without an index: one file, or the numbers in the names --------------------------------- */

/* no, count: as in the names, from 1 on. */
static mn_status missing_shard(mn_str prefix, uint32_t no, uint32_t count, mn_error *err) {
    return mnl_fail(
        err, MN_BAD_FILE,
        "%.*s-%05u-of-%05u.safetensors is missing: shard %u of the %u that make this model",
        MN_STR_ARG(prefix), no, count, no, count);
}

/* prefix, count: of the first file's name, which all have to share. */
static mn_status read_numbered(mn_parsed *p, folder dir, const mn_file *first, mn_str prefix,
                               uint32_t count, mn_error *err) {
    for (uint32_t i = 0; i < dir.n; i++) {
        const mn_file *f = mnl_file_at(dir.files, i, dir.stride);
        mn_str own;
        uint32_t no;
        uint32_t of;
        if (!is_weights(f))
            continue;
        bool numbered = mnl_shard_name(f->name, ".safetensors", &own, &no, &of);
        if (f == first && !numbered)
            continue; /* then the next one is what does not fit */
        if (!numbered || of != count || !mn_str_eq(own, prefix))
            return mnl_fail(err, MN_BAD_FILE,
                            "%.*s and %.*s are not shards of one model, expected one "
                            "model.safetensors, numbered "
                            "shards, or " INDEX_NAME,
                            MN_STR_ARG(first->name), MN_STR_ARG(f->name));
        if (no < 1 || no > of)
            return mnl_fail(err, MN_BAD_FILE, "%.*s: shard number %u, expected 1 to %u",
                            MN_STR_ARG(f->name), no, of);
    }
    for (uint32_t no = 1; no <= count; no++) {
        mn_str name =
            mn_parsed_printf(p, "%.*s-%05u-of-%05u.safetensors", MN_STR_ARG(prefix), no, count);
        if (!name.ptr)
            return mnl_fail_memory(err);
        const mn_file *f = find_file(dir.files, dir.n, dir.stride, name);
        if (!f)
            return missing_shard(prefix, no, count, err);
        mn_status status = header_read(p, f, err);
        if (status)
            return status;
    }
    return MN_OK;
}

/* model.safetensors, or numbered shards; anything else beside them would be a second model. */
static mn_status read_unindexed(mn_parsed *p, folder dir, mn_error *err) {
    const mn_file *first = NULL;
    uint32_t n_weights = 0;
    uint32_t no;
    uint32_t count = 1;
    mn_str prefix = {0};
    const mn_file *named = mnl_file_named(dir.files, dir.n, dir.stride);
    if (named && is_weights(named) &&
        !mnl_shard_name(named->name, ".safetensors", &prefix, &no, &count))
        return header_read(p, named, err);
    for (uint32_t i = 0; i < dir.n; i++) {
        const mn_file *f = mnl_file_at(dir.files, i, dir.stride);
        if (is_weights(f) && !n_weights++)
            first = f;
    }
    if (!first)
        return mnl_fail(err, MN_BAD_FILE,
                        "no weights: there is no model.safetensors and no " INDEX_NAME
                        " among the %u files",
                        dir.n);
    bool numbered = mnl_shard_name(first->name, ".safetensors", &prefix, &no, &count);
    if (n_weights == 1 && !numbered)
        return header_read(p, first, err);
    if (!numbered)
        prefix = (mn_str){0};
    return read_numbered(p, dir, first, prefix, count, err);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A name that is not in the tables stays as it is: the host says what it does not know. */
static mn_status name_tensors(mn_parsed *p, const name_pair *own, mn_error *err) {
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        p->tensors[i].name = tensor_canonical_name(p, own, p->tensors[i].native);
        if (!p->tensors[i].name.ptr)
            return mnl_fail_memory(err);
    }
    return MN_OK;
}

/* Tensors whose values cannot be read, under their canonical names. */
static mn_status settle_unreadable(mn_parsed *p, const name_pair *own, mn_error *err) {
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        mn_parsed_tensor *t = &p->tensors[i];
        if (!t->problem)
            continue;
        t->name = tensor_canonical_name(p, own, t->native);
        if (!t->name.ptr)
            return mnl_fail_memory(err);
    }
    return mn_parsed_settle_unreadable(p, err);
}

/* ---- an output matrix beside tied embeddings ------------------------------------------------- */

static const mn_plane *checkpoint_plane_at(const mn_parsed_tensor *t, uint32_t i) {
    return t->planes ? &t->planes[i] : &t->plane;
}

/* The same numbers, stored in the same way; unequal matrices are unequal in their first bytes. */
static bool same_values(const mn_parsed_tensor *a, const mn_parsed_tensor *b) {
    const uint32_t n = a->planes ? a->n_parts * a->n_planes : 1;
    const uint32_t n_b = b->planes ? b->n_parts * b->n_planes : 1;
    if (a->dtype.id != b->dtype.id || n != n_b || memcmp(a->dim, b->dim, sizeof a->dim))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const mn_plane *x = checkpoint_plane_at(a, i);
        const mn_plane *y = checkpoint_plane_at(b, i);
        if (x->bytes != y->bytes || memcmp(x->ptr, y->ptr, x->bytes))
            return false;
    }
    return true;
}

static mn_parsed_tensor *checkpoint_named(const mn_parsed *p, const char *name) {
    for (uint64_t i = 0; i < p->n_tensors; i++)
        if (mn_str_is(p->tensors[i].name, name))
            return &p->tensors[i];
    return NULL;
}

/* Takes the tensor out; the order of the others stays. */
static void take_out(mn_parsed *p, const mn_parsed_tensor *t) {
    const uint64_t at = (uint64_t)(t - p->tensors);
    for (uint64_t i = at + 1; i < p->n_tensors; i++)
        p->tensors[i - 1] = p->tensors[i];
    p->n_tensors--;
}

/* config.json says that the output matrix is the embedding, and there is one of its own. A copy is
 * taken out; another matrix is the model's: that of its training, whatever the key says. */
static void checkpoint_settle_output(mn_parsed *p) {
    const mn_host *h = p->host;
    const mn_parsed_tensor *output = checkpoint_named(p, "output.weight");
    const mn_parsed_tensor *embedding = checkpoint_named(p, "token_embd.weight");
    char text[400];
    if (!output || !embedding)
        return;
    if (same_values(output, embedding)) {
        take_out(p, output);
        return;
    }
    for (uint64_t i = 0; i < p->n_meta; i++)
        if (mn_str_is(p->meta[i].key, "minerva.tie_word_embeddings"))
            p->meta[i].value.i = false;
    snprintf(text, sizeof text,
             "config.json: key 'tie_word_embeddings' is true, and tensor '%.*s' differs from "
             "'%.*s': the stored output matrix is used",
             MN_STR_ARG(output->native), MN_STR_ARG(embedding->native));
    if (MN_HAS(mn_host, h, log))
        h->log(h->self, MN_LOG_WARN, mn_str_of(text));
}

/* A file of weights that the user named is one of those that were read: another model in its place
 * would be passed off as it. */
static mn_status check_named(const mn_parsed *p, folder dir, mn_error *err) {
    const mn_file *named = mnl_file_named(dir.files, dir.n, dir.stride);
    if (!named)
        return MN_OK;
    if (!mn_str_ends(named->name, ".safetensors"))
        return MN_OK;
    for (uint64_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].file == named)
            return MN_OK;
    return mnl_fail(err, MN_BAD_FILE,
                    "%.*s: holds no tensor of the model in its folder, expected the folder, "
                    "model.safetensors, one of its numbered shards or of those in " INDEX_NAME,
                    MN_STR_ARG(named->name));
}

/* All tensors under their own names, as stored. */
static mn_status checkpoint_read_tensors(mn_parsed *p, folder dir, mn_error *err) {
    const mn_file *index = find_file(dir.files, dir.n, dir.stride, mn_str_of(INDEX_NAME));
    mn_status status;
    if (index)
        status = read_indexed(p, dir, index, err);
    else
        status = read_unindexed(p, dir, err);
    if (!status)
        status = check_named(p, dir, err);
    if (status)
        return status;
    return mn_parsed_check_tensors(p, err);
}

/* Old classes of RoBERTa kept a pooler beside the head, which reads the hidden states itself. */
static void drop_spare_pooler(mn_parsed *p) {
    bool spare = false;
    uint64_t kept = 0;
    for (uint64_t i = 0; i < p->n_tensors; i++)
        spare = spare || mn_str_is(mnl_inner_name(p->tensors[i].native), "classifier.dense.weight");
    for (uint64_t i = 0; i < p->n_tensors; i++)
        if (!spare || !mn_str_begins(mnl_inner_name(p->tensors[i].native), "pooler."))
            p->tensors[kept++] = p->tensors[i];
    p->n_tensors = kept;
}

/* From the checkpoint's tensors to the canonical ones. */
static mn_status make_canonical(mn_parsed *p, model_join join, const model_facts *facts,
                                mn_error *err) {
    mn_status status = ahead_read(p, facts, err);
    mn_parsed_drop_unused(p, facts->family->encoder && !facts->classifies);
    if (facts->classifies)
        drop_spare_pooler(p);
    if (!status)
        status = settle_unreadable(p, facts->own, err);
    if (!status && join)
        status = join(p, facts, err);
    if (!status)
        status = layout_read(p, facts, err);
    if (!status)
        status = name_tensors(p, facts->own, err);
    if (!status)
        status = mn_parsed_join(p, err);
    if (!status)
        status = mn_parsed_check_names(p, err);
    if (!status && facts->tied)
        checkpoint_settle_output(p);
    return status;
}

/* Tensors first: config.json is held against some of their shapes. */
static mn_status checkpoint_read_model(mn_parsed *p, folder dir, model_join join, mn_error *err) {
    const mn_file *config = find_file(dir.files, dir.n, dir.stride, mn_str_of("config.json"));
    model_facts facts = {0};
    if (!config && model_is_ours(dir.files, dir.n, dir.stride))
        return mnl_fail(err, MN_BAD_FILE,
                        "config.json is missing: weights alone do not say what model this is; "
                        "expected it beside them");
    mn_status status = checkpoint_read_tensors(p, dir, err);
    if (!status)
        status = config_read(p, config, &facts, err);
    if (!status && !facts.is_module)
        status = make_canonical(p, join, &facts, err);
    cJSON_Delete(facts.config);
    return status;
}

/* join: what a format on top of this one (MLX) makes of the tensors before they get their names. */
mn_status model_open(const mn_host *host, const mn_file *files, uint32_t n, uint32_t stride,
                     model_join join, mn_parsed **out, mn_error *err) {
    mn_parsed *p = mn_parsed_new(host);
    if (!p)
        return mnl_fail_memory(err);
    mn_status status = checkpoint_read_model(p, (folder){files, n, stride}, join, err);
    if (status)
        mn_parsed_free(p);
    else
        *out = p;
    return status;
}
