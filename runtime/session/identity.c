/* identity.c -- what the bytes of a session's pages depend on, as text, and the files of cache_dir
 * that go by it. Two sessions with equal texts compute the same pages from the same tokens;
 * anything else is another folder: other weights, another build of a plugin, another device, class
 * or type.
 *
 * Weights are told apart by size and time of last modification of their files, by all metadata, and
 * by samples of their bytes, since reading all of a large model takes longer than most prompts. */
#include "ranks/ranks.h"
#include "session/session.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 64, SAMPLE_BYTES = 4096 };

/* Samples that are spread over the whole file. */
static uint64_t samples_of(const mn_file *f) {
    const char *map = f->map;
    uint64_t h = f->bytes;
    if (f->bytes <= (uint64_t)SAMPLES * SAMPLE_BYTES)
        return mn_hash(map, (size_t)f->bytes, h);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        const uint64_t at = (f->bytes - SAMPLE_BYTES) / (SAMPLES - 1) * i;
        h = mn_hash(map + at, SAMPLE_BYTES, h);
    }
    return h;
}

static void put_model(const mn_session *s, mn_text *to) {
    const mn_canonical *m = s->model->canonical;
    const mn_hparams *hp = &s->steps.graph->hp;
    char digest[33];
    mn_rank_model_digest(m, digest);
    mn_text_printf(to, "model %s %s\n", hp->arch, digest);
    for (uint32_t i = 0; i < m->files.n; i++) {
        const mn_file *f = &m->files.files[i];
        if (m->files.has_weights[i])
            mn_text_printf(to, "  file of %llu bytes, modified %llu, samples %016llx\n",
                           (unsigned long long)f->bytes,
                           (unsigned long long)mn_map_modified(&m->files.maps[i]),
                           (unsigned long long)samples_of(f));
    }
    /* angles by the context, which no digest of the graph has */
    if (hp->rope_scaling >= MN_ROPE_SCALING_LONGROPE)
        mn_text_printf(to, "  angles for %s contexts\n",
                       s->steps.n_ctx > hp->rope_orig_ctx ? "long" : "short");
}

/* The settings of a plugin that is used: its instruction set, for one. */
static void put_plugin_settings(const mn_session *s, const mn_plugin_record *p, mn_text *to) {
    char prefix[128];
    const char *name;
    const char *value;
    const char *origin;
    const int n = snprintf(prefix, sizeof prefix, "plugin.%.*s.", MN_STR_ARG(p->id));
    for (size_t i = 0; mn_config_at(s->model->rt->config, i, &name, &value, &origin); i++)
        if (!strncmp(name, prefix, (size_t)n) && *value)
            mn_text_printf(to, "  %s = %s\n", name, value);
}

/* The instruction sets of the processor, which a CPU plugin chooses among. */
static void put_processor(mn_text *to) {
    char *line = NULL;
    size_t cap = 0;
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && getline(&line, &cap, f) > 0) {
        if (strncmp(line, "flags", 5) && strncmp(line, "Features", 8))
            continue;
        mn_text_printf(to, "processor %016llx\n",
                       (unsigned long long)mn_hash(line, strlen(line), 1));
        break;
    }
    free(line);
    if (f)
        fclose(f);
}

static void put_identity(const mn_session *s, mn_text *to) {
    const mn_placement *p = &s->placement;
    mn_text_puts(to, "Minerva pages 1\n");
    put_model(s, to);
    put_processor(to);
    mn_engine_describe_pages(s->steps.engine, to);
    for (uint32_t i = 0; i < p->n_segments; i++)
        put_plugin_settings(s, p->offers[p->segments[i].offer].record->plugin, to);
}

mn_status mn_session_open_files(mn_session *s, mn_error *err) {
    mn_text about = {0};
    if (!s->cache_dir || s->steps.kv.no_cache || !s->draws)
        return MN_OK;
    if (s->model->rt->ranks)
        return mn_fail(err, MN_UNSUPPORTED, "several processes compute together");
    put_identity(s, &about);
    mn_status st = MN_OUT_OF_MEMORY;
    if (about.failed)
        mn_fail_memory(err, about.len);
    else
        st = mn_files_open(&s->steps.kv, s->cache_dir, s->cache_disk,
                           (mn_str){about.ptr, about.len}, err);
    mn_text_free(&about);
    return st;
}
