/* explain.c -- the record of a negotiation as JSON. docs/negotiation.md names the fields.
 *
 * A candidate is a plugin's file or one of its devices, with the steps that it took; the first step
 * that is not ok is where its way ended. What is written here was all found before: the one
 * question to a plugin is the reason of a verdict. */
#include "negotiate/offer.h"
#include <stdio.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

static void explain_put_str(json_out *j, const char *name, const char *z) {
    json_put_z(j, name, z ? z : "");
}
/* 0 = unknown. */
static void put_known(json_out *j, const char *name, uint64_t v) {
    if (v)
        json_put_uint(j, name, v);
    else
        json_put_z(j, name, NULL);
}
static void put_num(json_out *j, const char *name, double v) {
    json_put_rounded(j, name, v, 6);
}
static void put_abi(json_out *j, const char *name, uint32_t abi) {
    char text[32];
    snprintf(text, sizeof text, "%u.%u", abi >> 16, abi & 0xFFFF);
    json_put_z(j, name, text);
}
/* The first and the last of a range. */
static void put_range(json_out *j, const char *name, int64_t lo, int64_t hi) {
    json_put_array(j, name);
    json_int(j, lo);
    json_int(j, hi);
    json_close(j);
}

/* Begins a step; the caller adds its facts and ends it. */
static void explain_step(json_out *j, const char *name, bool ok, const char *text) {
    json_open(j, '{');
    explain_put_str(j, "step", name);
    json_put_bool(j, "ok", ok);
    explain_put_str(j, "text", text);
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

/* What a file's way consists of; each with what is added to the step. */
typedef struct {
    const char *name;
    const char *good; /* the text of a step that went well */
    void (*facts)(json_out *, const mn_plugin_record *);
} file_step;

static void note_facts(json_out *j, const mn_plugin_record *r) {
    if (!r->has_note)
        return;
    put_abi(j, "abi", r->note_abi);
    put_abi(j, "abi_oldest", r->note_abi_oldest);
}

static void probe_facts(json_out *j, const mn_plugin_record *r) {
    if (!r->probe.done)
        return;
    json_put_uint(j, "ms", r->probe.ms);
    json_put_bool(j, "cached", r->probe.cached);
}

static void abi_facts(json_out *j, const mn_plugin_record *r) {
    if (r->abi)
        put_abi(j, "abi", r->abi);
    put_abi(j, "host", MN_ABI_VERSION);
}

/* Whether a file came to that step, or the host has anything to say of it. */
static bool was_taken(const file_step *s, const mn_plugin_record *r) {
    if (s->facts == note_facts)
        return r->has_note || r->abi;
    if (s->facts == probe_facts)
        return r->probe.done;
    return s->facts != abi_facts || r->abi;
}

static const char *good_text(const file_step *s, const mn_plugin_record *r) {
    if (s->facts == probe_facts)
        return r->probe.text;
    return s->facts == note_facts && !r->has_note ? "none" : s->good;
}

/* The steps up to the one that failed. */
static void plugin_steps(json_out *j, const mn_plugin_record *r) {
    static const file_step steps[] = {
        {"file", "safe to open, for this machine", NULL},
        {"note", "", note_facts},
        {"probe", "", probe_facts},
        {"abi", "", abi_facts},
        {"load", "opened; its tables are complete", NULL},
        {"id", "the first of its id", NULL},
    };
    const char *stop = failed_step(r);
    explain_step(j, "path", true, r->path);
    json_close(j);
    for (size_t i = 0; i < MN_COUNT(steps); i++) {
        const file_step *s = &steps[i];
        const bool fails = !strcmp(stop, s->name);
        if (!fails && !was_taken(s, r))
            continue;
        explain_step(j, s->name, !fails, fails ? r->reason : good_text(s, r));
        if (s->facts)
            s->facts(j, r);
        json_close(j);
        if (fails)
            return;
    }
}

/* ---- a device's way -------------------------------------------------------------------------- */
static const char *explain_kind_name(uint32_t kind) {
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
        [MN_OUTCOME_SAME_CARD] = "same card",
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

/* Of the kind of node `first`, op and weight types: how many nodes got which verdict, and why the
 * first that was refused was. */
static void verdict_kind(json_out *j, const mn_offer *o, const mn_graph *g, uint32_t first) {
    uint32_t count[4] = {0}; /* ASK, NO, SLOW, NATIVE */
    uint32_t no = UINT32_MAX;
    char why[200];
    char types[MN_TYPES_CAP];
    for (uint32_t i = first; i < g->n_nodes; i++) {
        if (!mn_node_same_kind(g, first, i))
            continue;
        count[o->verdicts[i].verdict + 1]++;
        if (o->verdicts[i].verdict == MN_VERDICT_NO && no == UINT32_MAX)
            no = i;
    }
    const mn_op_info *op = mn_op_find(g->nodes[first].op);
    json_open(j, '{');
    explain_put_str(j, "op", op ? op->name : "?");
    mn_node_weight_types(g, first, types, sizeof types);
    explain_put_str(j, "type", types);
    json_put_uint(j, "native", count[3]);
    json_put_uint(j, "slow", count[2]);
    json_put_uint(j, "ask", count[0]);
    json_put_uint(j, "no", count[1]);
    if (no != UINT32_MAX) {
        mn_offer_node_reason(o, no, why, sizeof why);
        explain_put_str(j, "reason", why);
    }
    json_close(j);
}

static bool is_first_of_kind(const mn_graph *g, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (mn_node_same_kind(g, k, i))
            return false;
    return true;
}

static void verdicts(json_out *j, const mn_offer *o, const mn_graph *g) {
    uint32_t yes = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        yes += o->verdicts[i].verdict != MN_VERDICT_NO;
    const bool all = yes == g->n_nodes;
    explain_step(j, "verdicts", all, all ? "" : o->reason);
    json_put_uint(j, "nodes", g->n_nodes);
    json_put_uint(j, "supported", yes);
    json_put_uint(j, "placeable", o->n_can);
    json_put_array(j, "ops");
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (is_first_of_kind(g, i))
            verdict_kind(j, o, g, i);
    json_close(j);
    json_close(j);
}

/* none: what stands for MN_DTYPE_NONE */
static void put_kv_types(json_out *j, uint32_t k_dtype, uint32_t v_dtype, const char *none) {
    explain_put_str(j, "k_type", k_dtype ? mn_dtype_name(k_dtype) : none);
    explain_put_str(j, "v_type", v_dtype ? mn_dtype_name(v_dtype) : none);
}

static void explain_memory(json_out *j, const mn_offer *o, const mn_model_graph *g) {
    const bool part = o->n_can && o->n_can < g->abi.n_nodes;
    char unpacked[200] = "";
    const char *text = o->status ? o->reason : unpacked;
    if (o->given)
        mn_graph_unpacked(g, o->given, unpacked, sizeof unpacked);
    explain_step(j, "memory", part || !o->status, part ? "not asked for the whole graph" : text);
    explain_put_str(j, "class", class_name(o->precision));
    put_kv_types(j, o->k_dtype, o->v_dtype, "");
    if (!part) {
        json_put_uint(j, "weights", o->estimate.weights);
        json_put_uint(j, "kv", o->kv_bytes);
        json_put_uint(j, "scratch", o->estimate.scratch);
        json_put_uint(j, "need", o->need);
    }
    json_put_uint(j, "free", o->free_bytes);
    json_close(j);
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
    for (size_t i = 0; i < MN_COUNT(claims) && len < cap; i++) {
        if (claims[i].claim <= claims[i].most)
            continue;
        const int n =
            snprintf(text + len, cap - len,
                     "%sclaims %.3g GB/s %s, counted as %g at most: no known device has more",
                     len ? "; " : "", claims[i].claim, claims[i].what, claims[i].most);
        len += (size_t)n;
    }
}

static void rate_types(json_out *j, const mn_rates *r) {
    json_put_array(j, "types");
    for (uint32_t i = 0; i < r->n_types; i++) {
        json_open(j, '{');
        explain_put_str(j, "type", mn_dtype_name(r->type[i].dtype));
        put_num(j, "decode_gbps", r->type[i].decode_gbps);
        put_num(j, "prefill_tflops", r->type[i].prefill_tflops);
        if (r->type[i].experts_gbps > 0) {
            put_num(j, "experts_gbps", r->type[i].experts_gbps);
            put_num(j, "experts_tflops", r->type[i].experts_tflops);
        }
        json_close(j);
    }
    json_close(j);
}

static void rates(json_out *j, const mn_offer *o) {
    const mn_rates *r = &o->rates;
    char text[sizeof r->note + 300];
    rates_text(o, text, sizeof text);
    explain_step(j, "rates", true, text);
    explain_put_str(j, "source", mn_rates_source_name(r->source));
    put_num(j, "measured_ms", r->measured_ms);
    put_num(j, "node_us", r->node_us);
    if (r->exchange_us > 0)
        put_num(j, "exchange_us", r->exchange_us);
    put_num(j, "step_us", r->step_us);
    put_num(j, "copy_us", r->copy_us);
    put_num(j, "copy_gbps", r->copy_gbps);
    rate_types(j, r);
    json_put_object(j, "claims");
    put_num(j, "decode_us", o->estimate.decode_us);
    put_num(j, "prefill_us", o->estimate.prefill_us);
    put_num(j, "mem_gbps", mn_capped(o->record->info.mem_gbps, MN_MOST_MEM_GBPS));
    json_close(j);
    json_close(j);
}

/* What auto thought of giving it a part. */
static void explain_split(json_out *j, const mn_trial *t) {
    explain_step(j, "split", !*t->reason, *t->reason ? t->reason : "auto would take it");
    put_num(j, "us_per_token", t->score);
    put_num(j, "share", t->share);
    json_put_uint(j, "segments", t->n_segments);
    json_put_uint(j, "copies", t->n_copies);
    put_num(j, "copy_us", t->copy_us);
    json_close(j);
}

static void device(json_out *j, const mn_offer *o) {
    const mn_device_info *info = &o->record->info;
    const bool usable = o->stage > MN_STAGE_DEVICE;
    explain_step(j, "device", usable, usable ? "" : o->reason);
    explain_put_str(j, "description", info->name);
    explain_put_str(j, "kind", explain_kind_name(info->kind));
    explain_put_str(j, "uid", info->uid);
    explain_put_str(j, "driver", info->driver);
    explain_put_str(j, "mem_pool", info->mem_pool);
    json_put_uint(j, "mem_total", info->mem_total);
    put_known(j, "mem_free", info->mem_free);
    if (o->record->n_members)
        json_put_uint(j, "members", o->record->n_members);
    json_close(j);
}

/* As far as the offer came. */
static void device_steps(json_out *j, const mn_offer *o, const mn_model_graph *g) {
    device(j, o);
    if (o->stage < MN_STAGE_OPEN)
        return;
    explain_step(j, "open", o->device != NULL, o->device ? "" : o->reason);
    json_close(j);
    if (o->stage < MN_STAGE_CONTRACTS)
        return;
    const bool listed = o->stage > MN_STAGE_CONTRACTS;
    explain_step(j, "contracts", listed, listed ? "" : o->reason);
    json_close(j);
    if (o->stage < MN_STAGE_VERDICTS)
        return;
    verdicts(j, o, &g->abi);
    if (o->stage < MN_STAGE_MEMORY)
        return;
    explain_memory(j, o, g);
    if (o->rates.source)
        rates(j, o);
    if (o->rates.source && o->n_can == g->abi.n_nodes) {
        explain_step(j, "score", true, "128 tokens after a prompt of 512");
        put_num(j, "us_per_token", o->score);
        json_close(j);
    }
    if (o->trial.result)
        explain_split(j, &o->trial);
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

static void candidate(json_out *j, const mn_plugin_record *r, const mn_offer *o,
                      const mn_model_graph *g) {
    json_open(j, '{');
    explain_put_str(j, "device", o ? o->record->name : "");
    explain_put_str(j, "plugin", r->id.ptr);
    explain_put_str(j, "path", r->path);
    explain_put_str(j, "kind", r->kind);
    explain_put_str(j, "outcome", outcome_of(r, o));
    explain_put_str(j, "reason", o ? o->reason : r->reason);
    if (o)
        put_num(j, "share", o->share);
    json_put_array(j, "steps");
    plugin_steps(j, r);
    if (o)
        device_steps(j, o, g);
    json_close(j);
    json_close(j);
}

static void candidates(json_out *j, const mn_placement *p, const mn_registry *reg,
                       const mn_model_graph *g) {
    size_t n;
    const mn_plugin_record *all = mn_registry_plugins(reg, &n);
    json_put_array(j, "candidates");
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
    json_close(j);
}

/* ---- the placement --------------------------------------------------------------------------- */
/* The pages of the KV groups that have layers here. */
static void explain_put_groups(json_out *j, const mn_model_graph *g, const mn_segment *s) {
    json_put_array(j, "kv_groups");
    for (uint32_t i = 0; i < g->hp.n_kv; i++) {
        const mn_memory_layout *l = &s->kv[i];
        if (!l->page_bytes)
            continue;
        json_open(j, '{');
        json_put_uint(j, "window", (uint64_t)g->hp.kv[i].window);
        json_put_uint(j, "page_tokens", l->page_tokens);
        json_put_uint(j, "pages", s->n_pages[i]);
        json_put_uint(j, "bytes", s->n_pages[i] * l->page_bytes);
        json_close(j);
    }
    json_close(j);
}

/* The first and the last layer; null of nodes outside of layers. */
static void explain_put_layers(json_out *j, const mn_graph *g, const mn_segment *s) {
    int32_t lo = INT32_MAX;
    int32_t hi = -1;
    for (uint32_t i = s->node_lo; i < s->node_hi; i++) {
        const int32_t layer = g->nodes[i].layer;
        if (layer < 0)
            continue;
        lo = MN_MIN(lo, layer);
        hi = MN_MAX(hi, layer);
    }
    if (hi < 0)
        json_put_z(j, "layers", NULL);
    else
        put_range(j, "layers", lo, hi);
}

static void segment(json_out *j, const mn_placement *p, const mn_model_graph *model,
                    const mn_segment *s) {
    json_open(j, '{');
    explain_put_str(j, "device", p->offers[s->offer].record->name);
    put_range(j, "nodes", s->node_lo, s->node_hi);
    explain_put_layers(j, &model->abi, s);
    json_put_uint(j, "weights", s->estimate.weights);
    json_put_uint(j, "kv", s->kv_bytes);
    explain_put_groups(j, model, s);
    json_put_uint(j, "scratch", s->estimate.scratch);
    json_put_uint(j, "boundary", s->boundary_bytes);
    json_put_uint(j, "need", s->need);
    put_num(j, "decode_us", s->decode_us);
    put_num(j, "prefill_us", s->prefill_us);
    json_close(j);
}

static void put_speeds(json_out *j, double decode_us, double prefill_us) {
    put_num(j, "decode_tokens_per_s", 1e6 / MN_MAX(decode_us, 1e-3));
    put_num(j, "prompt_tokens_per_s", MN_PROMPT_ROWS * 1e6 / MN_MAX(prefill_us, 1e-3));
}

static void explain_option(json_out *j, const mn_option *o) {
    json_open(j, '{');
    json_put_uint(j, "experts_on_cpu", o->n_layers);
    json_put_bool(j, "divided", o->divided);
    json_put_uint(j, "experts_on_card", o->n_first);
    json_put_bool(j, "whole_layers", o->spills);
    json_put_bool(j, "chosen", o->chosen);
    if (!*o->reason) {
        put_speeds(j, o->decode_us, o->prefill_us);
        put_num(j, "us_per_token", o->score);
    }
    json_put_uint(j, "segments", o->n_segments);
    json_put_uint(j, "copies", o->n_copies);
    json_put_uint(j, "need", o->need);
    put_known(j, "free", o->room);
    explain_put_str(j, "reason", o->reason);
    json_close(j);
}

/* What a device has of all its segments. */
static void explain_total(json_out *j, const mn_placement *p, uint32_t offer) {
    mn_segment sum = {.offer = offer};
    mn_need_sum need = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_segments; i++) {
        const mn_segment *s = &p->segments[i];
        if (s->offer != offer)
            continue;
        n++;
        sum.estimate.weights += s->estimate.weights;
        sum.kv_bytes += s->kv_bytes;
        mn_need_add(&p->offers[offer], s, &need);
        sum.boundary_bytes += s->boundary_bytes;
        sum.decode_us += s->decode_us;
        sum.prefill_us += s->prefill_us;
    }
    if (!n)
        return;
    json_open(j, '{');
    explain_put_str(j, "device", p->offers[offer].record->name);
    json_put_uint(j, "segments", n);
    json_put_uint(j, "weights", sum.estimate.weights);
    json_put_uint(j, "kv", sum.kv_bytes);
    json_put_uint(j, "scratch", need.scratch);
    json_put_uint(j, "boundary", sum.boundary_bytes);
    json_put_uint(j, "need", mn_need_total(&need));
    put_known(j, "free", p->offers[offer].free_bytes);
    put_num(j, "decode_us", sum.decode_us);
    put_num(j, "prefill_us", sum.prefill_us);
    json_close(j);
}

/* Prompts whose experts a card computes; null: the CPU has none that could be. */
static void explain_stream(json_out *j, const mn_placement *p) {
    const mn_stream_plan *s = &p->stream;
    if (!s->record) {
        json_put_z(j, "streamed", NULL);
        return;
    }
    json_put_object(j, "streamed");
    explain_put_str(j, "device", s->record->name);
    put_known(j, "rows", s->rows);
    explain_put_str(j, "reason", s->why);
    if (s->faster_from > 0 && s->faster_from < MN_STREAM_NEVER)
        put_num(j, "faster_from", s->faster_from);
    else
        json_put_z(j, "faster_from", NULL);
    json_put_uint(j, "layers", s->n_layers);
    json_put_uint(j, "experts", s->group);
    json_put_uint(j, "rooms", (uint64_t)s->n_rooms * s->n_kinds);
    json_put_uint(j, "room_bytes", s->room_bytes);
    json_put_uint(j, "need", s->need);
    json_put_uint(j, "pinned", s->pinned);
    if (s->rows)
        put_num(j, "prompt_tokens_per_s", MN_PROMPT_ROWS * 1e6 / MN_MAX(s->prefill_us, 1e-3));
    json_close(j);
}

static void placement(json_out *j, const mn_placement *p, const mn_model_graph *g) {
    if (!p->n_segments) {
        json_put_z(j, "placement", NULL);
        return;
    }
    json_put_object(j, "placement");
    explain_put_str(j, "device", p->offers[p->chosen].record->name);
    explain_put_str(j, "why", p->why);
    json_put_bool(j, "fallback", p->fallback);
    explain_put_str(j, "class", class_name(p->offers[p->chosen].precision));
    put_num(j, "us_per_token", p->score);
    put_speeds(j, p->decode_us, p->prefill_us);
    json_put_uint(j, "rows", (uint64_t)p->symbol_max[MN_SYM_TOKENS]);
    json_put_uint(j, "copies", p->n_copies);
    put_num(j, "copy_us", p->copy_us);
    explain_stream(j, p);
    json_put_array(j, "options");
    for (uint32_t i = 0; i < p->n_options; i++)
        explain_option(j, &p->options[i]);
    json_close(j);
    json_put_array(j, "devices");
    for (uint32_t i = 0; i < p->n_offers; i++)
        explain_total(j, p, i);
    json_close(j);
    json_put_array(j, "segments");
    for (uint32_t i = 0; i < p->n_segments; i++)
        segment(j, p, g, &p->segments[i]);
    json_close(j);
    json_close(j);
}

static void request(json_out *j, const mn_request *r) {
    json_put_object(j, "request");
    explain_put_str(j, "device", r->devices);
    explain_put_str(j, "class", class_name(r->precision));
    put_kv_types(j, r->k_dtype, r->v_dtype, "auto");
    json_put_uint(j, "context", r->n_ctx);
    json_put_uint(j, "sequences", r->n_seq);
    json_put_uint(j, "batch", r->n_batch);
    json_put_uint(j, "threads", r->threads);
    json_close(j);
}

static const char *status_name(mn_status st) {
    if (st == MN_NO_DEVICE)
        return "no device";
    return MN_STATUS_CLASS(st) == MN_CLASS_SMALLER ? "out of memory" : "failed";
}

void mn_placement_explain(const mn_placement *p, const mn_registry *reg, const mn_model_graph *g,
                          const mn_request *r, const mn_error *error, json_out *j) {
    request(j, r);
    candidates(j, p, reg, g);
    placement(j, p, g);
    if (!error || !error->status) {
        json_put_z(j, "error", NULL);
        return;
    }
    json_put_object(j, "error");
    explain_put_str(j, "status", status_name(error->status));
    explain_put_str(j, "message", error->msg);
    json_close(j);
}
