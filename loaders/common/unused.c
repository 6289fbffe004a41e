/* unused.c -- tensors of files that no graph reads, for all formats: the list of those that no text
 * model misses, each with its reason, and what becomes of tensors whose values cannot be read.
 *
 * A loader drops what the list has before it looks at layouts and names: such tensors may be of any
 * type and shape. What else no graph reads goes to the host, which says so. */
#include "common.h"
#include <stdio.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

mn_str mnl_inner_name(mn_str native) {
    static const char *const prefixes[] = {"language_model.model.",
                                           "model.language_model.",
                                           "language_model.",
                                           "model.text_model.",
                                           "model.backbone.",
                                           "backbone.",
                                           "model.",
                                           "transformer.",
                                           "gpt_neox.",
                                           "bert.",
                                           "roberta.",
                                           "distilbert.",
                                           "electra.",
                                           "mpnet.",
                                           "deberta."};
    for (size_t i = 0; i < MN_COUNT(prefixes); i++) {
        const uint64_t n = strlen(prefixes[i]);
        if (mn_str_begins(native, prefixes[i]))
            return (mn_str){native.ptr + n, native.len - n};
    }
    return native;
}

typedef enum {
    ANGLES,
    MASKS,
    ACTIVATIONS,
    NUMBERS,
    OF_ACTS,
    TOWERS,
    AHEAD,
    TRAINING,
    HEADS,
    N_REASONS
} unused_reason;

static const char *const reasons[N_REASONS] = {
    [ANGLES] = "angles of the rotary embedding, which follow from the hyper-parameters",
    [MASKS] = "masks of attention, which follow from the architecture",
    [ACTIVATIONS] = "scales for activations and caches of 8 bits or fewer, which are not used here",
    [NUMBERS] = "numbers of positions and token types, which are counted here",
    [OF_ACTS] = "numbers of activations, which are among the keys",
    [TOWERS] = "parts for images and sound: the model runs as a text model",
    [AHEAD] = "heads that guess several tokens ahead, which the model runs without",
    [TRAINING] = "heads of its training, which generate no text",
    [HEADS] = "heads on top of an encoder, which embeddings do not need",
};

/* How the text of a row is found in a name. */
typedef enum { BEGINS, ENDS } match;

static const struct {
    match how;
    unused_reason why;
    const char *text; /* BEGINS: behind the prefix of a text model inside of another */
} rows[] = {
    {ENDS, ANGLES, "rotary_emb.inv_freq"},
    {ENDS, ANGLES, "rotary_pos_emb.inv_freq"},
    {ENDS, ANGLES, "rotary_emb.cos_cached"},
    {ENDS, ANGLES, "rotary_emb.sin_cached"},
    {ENDS, ANGLES, ".attn_rot_embd"}, /* GGUF */
    {ENDS, ANGLES, ".attn_rot_embd.weight"},
    {BEGINS, ANGLES, "rope.freqs"},
    {ENDS, MASKS, ".attn.bias"},
    {ENDS, MASKS, ".attn.masked_bias"},
    {ENDS, MASKS, ".attention.bias"},
    {ENDS, MASKS, ".attention.masked_bias"},
    {ENDS, ACTIVATIONS, ".input_scale"},
    {ENDS, ACTIVATIONS, ".input_scale.weight"},
    {ENDS, ACTIVATIONS, ".input_global_scale"},
    {ENDS, ACTIVATIONS, ".input_zero_point"},
    {ENDS, ACTIVATIONS, ".activation_scale"},
    {ENDS, ACTIVATIONS, "_activation_scale"},
    {ENDS, ACTIVATIONS, ".output_scale"},
    {ENDS, ACTIVATIONS, ".q_scale"},
    {ENDS, ACTIVATIONS, ".k_scale"},
    {ENDS, ACTIVATIONS, ".v_scale"},
    {ENDS, ACTIVATIONS, ".kv_scale"},
    {ENDS, ACTIVATIONS, ".prob_scale"},
    {ENDS, NUMBERS, "embeddings.position_ids"},
    {ENDS, NUMBERS, "embeddings.token_type_ids"},
    {ENDS, OF_ACTS, ".act_fn.alpha_p"}, /* Apertus */
    {ENDS, OF_ACTS, ".act_fn.alpha_n"},
    {ENDS, OF_ACTS, ".act_fn.beta"},
    {ENDS, OF_ACTS, ".act_fn.eps"},
    {BEGINS, TOWERS, "vision_tower."},
    {BEGINS, TOWERS, "vision_model."},
    {BEGINS, TOWERS, "vision_encoder."},
    {BEGINS, TOWERS, "visual."},
    {BEGINS, TOWERS, "image_newline"},
    {BEGINS, TOWERS, "multi_modal_projector."},
    {BEGINS, TOWERS, "mm_projector."},
    {BEGINS, TOWERS, "connector."},
    {BEGINS, TOWERS, "embed_vision."},
    {BEGINS, TOWERS, "audio_tower."},
    {BEGINS, TOWERS, "embed_audio."},
    {BEGINS, TOWERS, "v."}, /* GGUF files with both parts */
    {BEGINS, TOWERS, "a.blk."},
    {BEGINS, TOWERS, "a.conv1d."},
    {BEGINS, TOWERS, "a.position_embd."},
    {BEGINS, TOWERS, "a.post_ln."},
    {BEGINS, TOWERS, "mm."},
    {BEGINS, AHEAD, "mtp."},
    {BEGINS, AHEAD, "mtp_layers."},
    {BEGINS, AHEAD, "medusa_head."},
    {BEGINS, TRAINING, "v_head."},
    {BEGINS, TRAINING, "value_head."},
    {BEGINS, HEADS, "pooler."},
    {BEGINS, HEADS, "cls."},
    {BEGINS, HEADS, "lm_head."},
    {BEGINS, HEADS, "vocab_"},
    {BEGINS, HEADS, "classifier."},
    {BEGINS, HEADS, "pre_classifier."},
    {BEGINS, HEADS, "head."},
    {BEGINS, HEADS, "decoder."},
    {BEGINS, HEADS, "discriminator_predictions."},
    {BEGINS, HEADS, "generator_predictions."},
    {BEGINS, HEADS, "generator_lm_head."},
    {BEGINS, HEADS, "lm_predictions."},
    {BEGINS, HEADS, "mask_predictions."},
};

/* The reason of the first row that fits; N_REASONS: none does. */
static unused_reason unused_reason_of(mn_str native, bool heads) {
    const mn_str inner = mnl_inner_name(native);
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        if (rows[i].why == HEADS && !heads)
            continue;
        if (rows[i].how == ENDS && mn_str_ends(native, rows[i].text))
            return rows[i].why;
        if (rows[i].how == BEGINS && mn_str_begins(inner, rows[i].text))
            return rows[i].why;
    }
    return N_REASONS;
}

/* One line for each reason; a model that lacks a sense says so to everybody. */
static void unused_tell(const mn_host *h, const uint64_t *counts, const mn_str *first) {
    char text[400];
    for (int i = 0; i < N_REASONS; i++) {
        int32_t level = MN_LOG_DEBUG;
        if (i == TOWERS)
            level = MN_LOG_WARN;
        if (!counts[i] || !MN_HAS(mn_host, h, log))
            continue;
        snprintf(text, sizeof text, "%llu tensors (%.*s, ...) are not used: %s",
                 (unsigned long long)counts[i], MN_STR_ARG(first[i]), reasons[i]);
        h->log(h->self, level, mn_str_of(text));
    }
}

void mn_parsed_drop_unused(mn_parsed *p, bool heads) {
    uint64_t counts[N_REASONS] = {0};
    mn_str first[N_REASONS] = {{0}};
    uint64_t kept = 0;
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        const unused_reason why = unused_reason_of(p->tensors[i].native, heads);
        if (why == N_REASONS) {
            p->tensors[kept++] = p->tensors[i];
            continue;
        }
        if (!counts[why]++)
            first[why] = p->tensors[i].native;
    }
    p->n_tensors = kept;
    unused_tell(p->host, counts, first);
}

/* ---- values that cannot be read -------------------------------------------------------------- */

/* Up to the first dot. */
static bool first_part_is(mn_str s, const char *part) {
    const uint64_t n = strlen(part);
    return s.len > n && s.ptr[n] == '.' && !memcmp(s.ptr, part, (size_t)n);
}

/* Whether some architecture reads a tensor of this canonical name. */
static bool is_read(mn_str name) {
    static const char *const top[] = {
        "token_embd",  "token_embd_norm", "token_types",       "position_embd",      "output",
        "output_norm", "rope_freqs",      "rope_factors_long", "rope_factors_short", "cls"};
    static const char *const in_layer[] = {"attn_norm",
                                           "attn_q",
                                           "attn_k",
                                           "attn_v",
                                           "attn_qkv",
                                           "attn_output",
                                           "attn_q_norm",
                                           "attn_k_norm",
                                           "attn_sinks",
                                           "ffn_norm",
                                           "ffn_gate",
                                           "ffn_up",
                                           "ffn_down",
                                           "ffn_gate_inp",
                                           "ffn_gate_exps",
                                           "ffn_gate_up_exps",
                                           "ffn_up_exps",
                                           "ffn_down_exps",
                                           "ffn_gate_inp_shexp",
                                           "ffn_gate_shexp",
                                           "ffn_up_shexp",
                                           "ffn_down_shexp",
                                           "exp_probs_b",
                                           "pre_ffw_norm_2",
                                           "post_ffw_norm_1",
                                           "post_ffw_norm_2",
                                           "post_ffw_norm",
                                           "post_attention_norm",
                                           "attn_output_norm",
                                           "layer_output_norm",
                                           "layer_output_scale"};
    if (!mn_str_begins(name, "blk.")) {
        for (size_t i = 0; i < MN_COUNT(top); i++)
            if (first_part_is(name, top[i]))
                return true;
        return false;
    }
    uint64_t at = 4;
    while (at < name.len && name.ptr[at] >= '0' && name.ptr[at] <= '9')
        at++;
    if (at >= name.len || name.ptr[at] != '.')
        return false;
    const mn_str rest = {name.ptr + at + 1, name.len - at - 1};
    for (size_t i = 0; i < MN_COUNT(in_layer); i++)
        if (first_part_is(rest, in_layer[i]))
            return true;
    return false;
}

bool mn_tensor_is_empty(const mn_parsed_tensor *t) {
    for (uint32_t i = 0; i < t->n_dim; i++)
        if (!t->dim[i])
            return true;
    return false;
}

void mn_tensor_place_bytes(mn_parsed_tensor *t, uint64_t bytes) {
    mn_dtype_by_id(MN_U8, &t->dtype);
    memset(t->dim, 0, sizeof t->dim);
    t->n_dim = 1;
    t->dim[0] = (int64_t)bytes;
    t->plane = (mn_plane){
        .ptr = (const char *)t->file->map + t->offset,
        .bytes = bytes,
        .kind = MN_PLANE_DATA,
        .dtype = MN_U8,
    };
    t->plane.dim[0] = (int64_t)bytes;
    t->plane.stride[0] = 1;
}

mn_status mn_parsed_settle_unreadable(mn_parsed *p, mn_error *err) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        const mn_parsed_tensor *t = &p->tensors[i];
        const bool empty = t->problem && !t->plane.bytes;
        if (t->problem && is_read(t->name))
            return mnl_fail(err, empty ? MN_BAD_FILE : MN_UNSUPPORTED, "%.*s: tensor '%.*s'%s",
                            MN_STR_ARG(t->file->name), MN_STR_ARG(t->native), t->problem);
        if (!empty)
            p->tensors[kept++] = *t;
    }
    p->n_tensors = kept;
    return MN_OK;
}
