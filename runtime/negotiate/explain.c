/* explain.c -- the record of a negotiation as JSON. docs/negotiation.md names the fields. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */
typedef struct {
    mn_text *t;
    bool comma;
} json;

static void key(json *j, const char *name) {
    if (j->comma)
        mn_text_puts(j->t, ",");
    if (name)
        mn_text_printf(j->t, "\"%s\":", name);
    j->comma = true;
}
static void begin(json *j, const char *name, const char *bracket) {
    key(j, name);
    mn_text_puts(j->t, bracket);
    j->comma = false;
}
static void end(json *j, const char *bracket) {
    mn_text_puts(j->t, bracket);
    j->comma = true;
}
static void put_str(json *j, const char *name, const char *z) {
    key(j, name);
    mn_text_json(j->t, mn_str_of(z ? z : ""));
}
static void put_u64(json *j, const char *name, uint64_t v) {
    key(j, name);
    mn_text_printf(j->t, "%llu", (unsigned long long)v);
}
/* 0 = unknown. */
static void put_known(json *j, const char *name, uint64_t v) {
    if (v) {
        put_u64(j, name, v);
        return;
    }
    key(j, name);
    mn_text_puts(j->t, "null");
}
static void put_num(json *j, const char *name, double v) {
    key(j, name);
    if (v > -1e300 && v < 1e300)
        mn_text_printf(j->t, "%.6g", v);
    else
        mn_text_puts(j->t, "null");
}
static void put_bool(json *j, const char *name, bool v) {
    key(j, name);
    mn_text_puts(j->t, v ? "true" : "false");
}
static void put_abi(json *j, const char *name, uint32_t abi) {
    key(j, name);
    mn_text_printf(j->t, "\"%u.%u\"", abi >> 16, abi & 0xFFFF);
}

static void step(json *j, const char *name, bool ok, const char *text) {
    begin(j, NULL, "{");
    put_str(j, "step", name);
    put_bool(j, "ok", ok);
    put_str(j, "text", text);
}

/* ---- a plugin file's way --------------------------------------------------------------------- */
/* The step at which a file that is not ok ended. */
static const char *failed_step(const mn_plugin_record *r) {
    switch (r->status) {
    case MN_RECORD_REFUSED:
        return "file";
    case MN_RECORD_INCOMPATIBLE:
        return "abi";
    case MN_RECORD_CRASHED:
    case MN_RECORD_HUNG:
        return "probe";
    case MN_RECORD_SET_ASIDE:
        return "load";
    case MN_RECORD_FAILED:
        return r->probe.done && !r->probe.ok ? "probe" : "load";
    case MN_RECORD_SHADOWED:
        return "id";
    default:
        return "";
    }
}

static void plugin_steps(json *j, const mn_plugin_record *r) {
    static const char *const names[] = {"file", "note", "probe", "abi", "load", "id"};
    static const char *const good[] = {"safe to open, for this machine",
                                       "",
                                       "",
                                       "",
                                       "opened; its tables are complete",
                                       "the first of its id"};
    const char *stop = failed_step(r);
    step(j, "path", true, r->path);
    end(j, "}");
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        bool fails = !strcmp(stop, names[i]), note = !strcmp(names[i], "note"),
             probe = !strcmp(names[i], "probe"), abi = !strcmp(names[i], "abi");
        if (note && !r->has_note && !r->abi)
            continue;
        if (probe && !r->probe.done && !fails)
            continue;
        if (abi && !r->abi && !fails)
            continue;
        step(j, names[i], !fails,
             fails                  ? r->reason
             : probe                ? r->probe.text
             : note && !r->has_note ? "none"
                                    : good[i]);
        if (note && r->has_note)
            put_abi(j, "abi", r->note_abi), put_abi(j, "abi_oldest", r->note_abi_oldest);
        if (probe && r->probe.done)
            put_u64(j, "ms", r->probe.ms), put_bool(j, "cached", r->probe.cached);
        if (abi && r->abi)
            put_abi(j, "abi", r->abi);
        if (abi)
            put_abi(j, "host", MN_ABI_VERSION);
        end(j, "}");
        if (fails)
            return;
    }
}

/* ---- a device's way -------------------------------------------------------------------------- */
static const char *kind_name(uint32_t kind) {
    static const char *const names[] = {"unknown", "cpu", "gpu", "npu", "other"};
    return kind < MN_COUNT(names) ? names[kind] : "unknown";
}

static const char *class_name(uint32_t precision) {
    static const char *const names[] = {"auto", "exact", "a16", "a8"};
    return precision < MN_COUNT(names) ? names[precision] : "unknown";
}

const char *mn_outcome_name(mn_outcome outcome) {
    static const char *const names[] = {
        [MN_OUTCOME_CHOSEN] = "chosen",
        [MN_OUTCOME_QUARANTINED] = "quarantined",
        [MN_OUTCOME_LEFT_OUT] = "left out: share",
        [MN_OUTCOME_OUT_OF_MEMORY] = "out of memory",
        [MN_OUTCOME_FAILED] = "failed",
        [MN_OUTCOME_PARTIAL] = "partial",
        [MN_OUTCOME_UNSUPPORTED] = "unsupported",
        [MN_OUTCOME_NOT_NAMED] = "not named",
        [MN_OUTCOME_ORACLE] = "oracle",
        [MN_OUTCOME_SLOWER] = "slower",
    };
    return names[outcome];
}

const char *mn_rates_source_name(mn_rates_source source) {
    static const char *const names[] = {
        [MN_RATES_NONE] = "",
        [MN_RATES_CLAIMED] = "claimed",
        [MN_RATES_CACHED] = "cached",
        [MN_RATES_MEASURED] = "measured",
    };
    return names[source];
}

/* Per op and weight types: how many nodes got which verdict, and why the first that was refused
 * was. */
static void verdict_kind(json *j, const mn_offer *o, const mn_graph *g, uint32_t first) {
    uint32_t count[4] = {0}, no = UINT32_MAX; /* ASK, NO, SLOW, NATIVE */
    char why[200], types[MN_TYPES_CAP];
    for (uint32_t i = first; i < g->n_nodes; i++) {
        if (!mn_node_same_kind(g, first, i))
            continue;
        count[o->verdicts[i].verdict + 1]++;
        if (o->verdicts[i].verdict == MN_VERDICT_NO && no == UINT32_MAX)
            no = i;
    }
    const mn_op_info *op = mn_op_find(g->nodes[first].op);
    begin(j, NULL, "{");
    put_str(j, "op", op ? op->name : "?");
    mn_node_weight_types(g, first, types, sizeof types);
    put_str(j, "type", types);
    put_u64(j, "native", count[3]);
    put_u64(j, "slow", count[2]);
    put_u64(j, "ask", count[0]);
    put_u64(j, "no", count[1]);
    if (no != UINT32_MAX) {
        mn_offer_node_reason(o, no, why, sizeof why);
        put_str(j, "reason", why);
    }
    end(j, "}");
}

static void verdicts(json *j, const mn_offer *o, const mn_graph *g) {
    uint32_t yes = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        yes += o->verdicts[i].verdict != MN_VERDICT_NO;
    bool all = yes == g->n_nodes;
    step(j, "verdicts", all, all ? "" : o->reason);
    put_u64(j, "nodes", g->n_nodes);
    put_u64(j, "supported", yes);
    put_u64(j, "placeable", o->n_can);
    begin(j, "ops", "[");
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        bool first = true;
        for (uint32_t k = 0; k < i && first; k++)
            first = !mn_node_same_kind(g, k, i);
        if (first)
            verdict_kind(j, o, g, i);
    }
    end(j, "]");
    end(j, "}");
}

/* none: what stands for MN_DTYPE_NONE */
static void put_kv_types(json *j, uint32_t k_dtype, uint32_t v_dtype, const char *none) {
    put_str(j, "k_type", k_dtype ? mn_dtype_name(k_dtype) : none);
    put_str(j, "v_type", v_dtype ? mn_dtype_name(v_dtype) : none);
}

static void memory(json *j, const mn_offer *o, const mn_model_graph *g) {
    bool part = o->n_can && o->n_can < g->abi.n_nodes, ok = part || !o->status;
    step(j, "memory", ok, part ? "not asked for the whole graph" : ok ? "" : o->reason);
    put_str(j, "class", class_name(o->precision));
    put_kv_types(j, o->k_dtype, o->v_dtype, "");
    if (!part) {
        put_u64(j, "weights", o->estimate.weights);
        put_u64(j, "kv", o->kv_bytes);
        put_u64(j, "scratch", o->estimate.scratch);
        put_u64(j, "need", o->need);
    }
    put_u64(j, "free", o->free_bytes);
    end(j, "}");
}

/* The note of the rates, and which claims are too high to count. */
static void rates_text(const mn_offer *o, char *text, size_t cap) {
    const mn_device_info *info = &o->record->info;
    const struct {
        const char *what;
        double claim, most;
    } claims[] = {
        {"of memory", info->mem_gbps, MN_MOST_MEM_GBPS},
        {"from the host", info->h2d_gbps, MN_MOST_BUS_GBPS},
    };
    size_t len = (size_t)snprintf(text, cap, "%s", o->rates.note);
    for (size_t i = 0; i < MN_COUNT(claims) && len < cap; i++)
        if (claims[i].claim > claims[i].most)
            len +=
                (size_t)snprintf(text + len, cap - len,
                                 "%sclaims %.3g GB/s %s, counted as %g at most: no known device "
                                 "has more",
                                 len ? "; " : "", claims[i].claim, claims[i].what, claims[i].most);
}

static void rates(json *j, const mn_offer *o) {
    const mn_rates *r = &o->rates;
    char text[sizeof r->note + 300];
    rates_text(o, text, sizeof text);
    step(j, "rates", true, text);
    put_str(j, "source", mn_rates_source_name(r->source));
    put_num(j, "measured_ms", r->measured_ms);
    put_num(j, "node_us", r->node_us);
    put_num(j, "step_us", r->step_us);
    put_num(j, "copy_us", r->copy_us);
    put_num(j, "copy_gbps", r->copy_gbps);
    begin(j, "types", "[");
    for (uint32_t i = 0; i < r->n_types; i++) {
        begin(j, NULL, "{");
        put_str(j, "type", mn_dtype_name(r->type[i].dtype));
        put_num(j, "decode_gbps", r->type[i].decode_gbps);
        put_num(j, "prefill_tflops", r->type[i].prefill_tflops);
        end(j, "}");
    }
    end(j, "]");
    begin(j, "claims", "{");
    put_num(j, "decode_us", o->estimate.decode_us);
    put_num(j, "prefill_us", o->estimate.prefill_us);
    put_num(j, "mem_gbps", mn_capped(o->record->info.mem_gbps, MN_MOST_MEM_GBPS));
    end(j, "}");
    end(j, "}");
}

static void split(json *j, const mn_trial *t) {
    step(j, "split", !*t->reason, *t->reason ? t->reason : "auto would take it");
    put_num(j, "us_per_token", t->score);
    put_num(j, "share", t->share);
    put_u64(j, "segments", t->n_segments);
    put_u64(j, "copies", t->n_copies);
    put_num(j, "copy_us", t->copy_us);
    end(j, "}");
}

static void device(json *j, const mn_offer *o) {
    const mn_device_info *info = &o->record->info;
    const bool usable = o->stage > MN_STAGE_DEVICE;
    step(j, "device", usable, usable ? "" : o->reason);
    put_str(j, "description", info->name);
    put_str(j, "kind", kind_name(info->kind));
    put_str(j, "uid", info->uid);
    put_str(j, "driver", info->driver);
    put_str(j, "mem_pool", info->mem_pool);
    put_u64(j, "mem_total", info->mem_total);
    put_known(j, "mem_free", info->mem_free);
    end(j, "}");
}

static void device_steps(json *j, const mn_offer *o, const mn_model_graph *g) {
    device(j, o);
    if (o->stage < MN_STAGE_OPEN)
        return;
    step(j, "open", o->device != NULL, o->device ? "" : o->reason);
    end(j, "}");
    if (o->stage < MN_STAGE_CONTRACTS)
        return;
    const bool listed = o->stage > MN_STAGE_CONTRACTS;
    step(j, "contracts", listed, listed ? "" : o->reason);
    end(j, "}");
    if (o->stage < MN_STAGE_VERDICTS)
        return;
    verdicts(j, o, &g->abi);
    if (o->stage < MN_STAGE_MEMORY)
        return;
    memory(j, o, g);
    if (o->rates.source)
        rates(j, o);
    if (o->rates.source && o->n_can == g->abi.n_nodes) {
        step(j, "score", true, "128 tokens after a prompt of 512");
        put_num(j, "us_per_token", o->score);
        end(j, "}");
    }
    if (o->trial.result)
        split(j, &o->trial);
}

/* ---- candidates ------------------------------------------------------------------------------ */
/* o: the offer of one of the plugin's devices; NULL = it has none. */
static const char *outcome_of(const mn_plugin_record *r, const mn_offer *o) {
    if (o)
        return mn_outcome_name(o->outcome);
    if (r->status != MN_RECORD_OK)
        return mn_record_status_name(r->status);
    return r->loader ? "loader" : "failed";
}

static void candidate(json *j, const mn_plugin_record *r, const mn_offer *o,
                      const mn_model_graph *g) {
    begin(j, NULL, "{");
    put_str(j, "device", o ? o->record->name : "");
    put_str(j, "plugin", r->id.ptr);
    put_str(j, "path", r->path);
    put_str(j, "kind", r->kind);
    put_str(j, "outcome", outcome_of(r, o));
    put_str(j, "reason", o ? o->reason : r->reason);
    if (o)
        put_num(j, "share", o->share);
    begin(j, "steps", "[");
    plugin_steps(j, r);
    if (o)
        device_steps(j, o, g);
    end(j, "]");
    end(j, "}");
}

static void candidates(json *j, const mn_placement *p, const mn_registry *reg,
                       const mn_model_graph *g) {
    size_t n;
    const mn_plugin_record *all = mn_registry_plugins(reg, &n);
    begin(j, "candidates", "[");
    for (size_t k = 0; k < n; k++) {
        bool any = false;
        for (uint32_t i = 0; i < p->n_offers; i++) {
            if (p->offers[i].record->plugin != &all[k])
                continue;
            candidate(j, &all[k], &p->offers[i], g);
            any = true;
        }
        if (!any)
            candidate(j, &all[k], NULL, g);
    }
    end(j, "]");
}

/* ---- the placement --------------------------------------------------------------------------- */
static void put_groups(json *j, const mn_model_graph *g, const mn_segment *s) {
    begin(j, "kv_groups", "[");
    for (uint32_t i = 0; i < g->hp.n_kv; i++) {
        const mn_kv_layout *l = &s->kv[i];
        if (!l->page_tokens)
            continue;
        begin(j, NULL, "{");
        put_u64(j, "window", (uint64_t)g->hp.kv[i].window);
        put_u64(j, "page_tokens", l->page_tokens);
        put_u64(j, "pages", s->n_pages[i]);
        put_u64(j, "bytes", s->n_pages[i] * l->page_bytes);
        end(j, "}");
    }
    end(j, "]");
}

static void segment(json *j, const mn_placement *p, const mn_model_graph *model,
                    const mn_segment *s) {
    const mn_graph *g = &model->abi;
    int32_t lo = INT32_MAX, hi = -1;
    for (uint32_t i = s->node_lo; i < s->node_hi; i++) {
        int32_t layer = g->nodes[i].layer;
        if (layer >= 0)
            lo = MN_MIN(lo, layer), hi = MN_MAX(hi, layer);
    }
    begin(j, NULL, "{");
    put_str(j, "device", p->offers[s->offer].record->name);
    key(j, "nodes");
    mn_text_printf(j->t, "[%u,%u]", s->node_lo, s->node_hi);
    key(j, "layers");
    if (hi < 0)
        mn_text_puts(j->t, "null");
    else
        mn_text_printf(j->t, "[%d,%d]", lo, hi);
    put_u64(j, "weights", s->estimate.weights);
    put_u64(j, "kv", s->kv_bytes);
    put_groups(j, model, s);
    put_u64(j, "scratch", s->estimate.scratch);
    put_u64(j, "boundary", s->boundary_bytes);
    put_u64(j, "need", s->need);
    put_num(j, "decode_us", s->decode_us);
    put_num(j, "prefill_us", s->prefill_us);
    end(j, "}");
}

static void placement(json *j, const mn_placement *p, const mn_model_graph *g) {
    if (!p->n_segments) {
        key(j, "placement");
        mn_text_puts(j->t, "null");
        return;
    }
    begin(j, "placement", "{");
    put_str(j, "device", p->offers[p->chosen].record->name);
    put_str(j, "why", p->why);
    put_bool(j, "fallback", p->fallback);
    put_str(j, "class", class_name(p->offers[p->chosen].precision));
    put_num(j, "us_per_token", p->score);
    put_u64(j, "copies", p->n_copies);
    put_num(j, "copy_us", p->copy_us);
    begin(j, "segments", "[");
    for (uint32_t i = 0; i < p->n_segments; i++)
        segment(j, p, g, &p->segments[i]);
    end(j, "]");
    end(j, "}");
}

static void request(json *j, const mn_request *r) {
    begin(j, "request", "{");
    put_str(j, "device", r->devices);
    put_str(j, "class", class_name(r->precision));
    put_kv_types(j, r->k_dtype, r->v_dtype, "auto");
    put_u64(j, "context", r->n_ctx);
    put_u64(j, "sequences", r->n_seq);
    put_u64(j, "batch", r->n_batch);
    put_u64(j, "threads", r->threads);
    end(j, "}");
}

void mn_placement_explain(const mn_placement *p, const mn_registry *reg, const mn_model_graph *g,
                          const mn_request *r, const mn_error *error, mn_text *out) {
    json j = {out, false};
    request(&j, r);
    candidates(&j, p, reg, g);
    placement(&j, p, g);
    if (error && error->status) {
        begin(&j, "error", "{");
        put_str(&j, "status",
                error->status == MN_NO_DEVICE                        ? "no device"
                : MN_STATUS_CLASS(error->status) == MN_CLASS_SMALLER ? "out of memory"
                                                                     : "failed");
        put_str(&j, "message", error->msg);
        end(&j, "}");
    } else {
        key(&j, "error");
        mn_text_puts(out, "null");
    }
}
