/* names.c -- tables: the names of checkpoints against the canonical ones (GGUF's), and the format's
 * types. */
#include "families.h"
#include <string.h>

static const name_pair top[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"norm.bias", "output_norm.bias"},
    {"final_layernorm.weight", "output_norm.weight"},
    {"final_layernorm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"lm_head.bias", "output.bias"},
    {"shared.weight", "token_embd.weight"},
    {"encoder.final_layer_norm.weight", "enc.output_norm.weight"},
    {"decoder.final_layer_norm.weight", "dec.output_norm.weight"},
    {"embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {"per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
    {"norm_f.weight", "output_norm.weight"},
    {"embeddings.weight", "token_embd.weight"},
    {"embedding.weight", "token_embd.weight"},
    {"embedding_norm.weight", "token_embd_norm.weight"}, /* LFM2's last norm, by GGUF's name */
    {"embed_in.weight", "token_embd.weight"},
    {"embed_out.weight", "output.weight"},
    {"final_layer_norm.weight", "output_norm.weight"},
    {"final_layer_norm.bias", "output_norm.bias"},
    {"word_embeddings.weight", "token_embd.weight"},
    {"word_embeddings_layernorm.weight", "token_embd_norm.weight"},
    {"word_embeddings_layernorm.bias", "token_embd_norm.bias"},
    {"wte.weight", "token_embd.weight"},
    {"wpe.weight", "position_embd.weight"},
    {"ln_f.weight", "output_norm.weight"},
    {"ln_f.bias", "output_norm.bias"},
    {"embeddings.word_embeddings.weight", "token_embd.weight"},
    {"embeddings.position_embeddings.weight", "position_embd.weight"},
    {"embeddings.token_type_embeddings.weight", "token_types.weight"},
    {"embeddings.LayerNorm.weight", "token_embd_norm.weight"},
    {"embeddings.LayerNorm.bias", "token_embd_norm.bias"},
    {"embeddings.tok_embeddings.weight", "token_embd.weight"},
    {"embeddings_project.weight", "token_embd_proj.weight"},
    {"embeddings_project.bias", "token_embd_proj.bias"},
    {"encoder.relative_attention_bias.weight", "attn_rel_b.weight"},
    {"encoder.rel_embeddings.weight", "rel_embd.weight"},
    {"encoder.LayerNorm.weight", "rel_embd_norm.weight"},
    {"encoder.LayerNorm.bias", "rel_embd_norm.bias"},
    {"encoder.conv.conv.weight", "text_conv.weight"},
    {"encoder.conv.conv.bias", "text_conv.bias"},
    {"encoder.conv.LayerNorm.weight", "text_conv_norm.weight"},
    {"encoder.conv.LayerNorm.bias", "text_conv_norm.bias"},
    {"embeddings.norm.weight", "token_embd_norm.weight"},
    {"embeddings.norm.bias", "token_embd_norm.bias"},
    {"final_norm.weight", "output_norm.weight"},
    {"final_norm.bias", "output_norm.bias"},
    {"emb_ln.weight", "token_embd_norm.weight"},
    {"emb_ln.bias", "token_embd_norm.bias"},
    /* heads that score a text: dense, activation, projection */
    {"pooler.dense.weight", "cls.weight"},
    {"pooler.dense.bias", "cls.bias"},
    {"classifier.dense.weight", "cls.weight"},
    {"classifier.dense.bias", "cls.bias"},
    {"pre_classifier.weight", "cls.weight"},
    {"pre_classifier.bias", "cls.bias"},
    {"head.dense.weight", "cls.weight"},
    {"head.dense.bias", "cls.bias"},
    {"head.norm.weight", "cls.norm.weight"},
    {"head.norm.bias", "cls.norm.bias"},
    {"classifier.out_proj.weight", "cls.output.weight"},
    {"classifier.out_proj.bias", "cls.output.bias"},
    {"classifier.weight", "cls.output.weight"},
    {"classifier.bias", "cls.output.bias"},
    {"score.weight", "cls.output.weight"},
    {"score.bias", "cls.output.bias"},
    {"embeddings.LayerNorm.gamma", "token_embd_norm.weight"},
    {"embeddings.LayerNorm.beta", "token_embd_norm.bias"},
};
/* Of a model that has them one by one. */
static const name_pair top_numbered[] = {
    {"altup_projections.#.weight", "altup_proj.#.weight"},
    {"altup_unembed_projections.#.weight", "altup_unembd_proj.#.weight"},
    {0},
};
/* Between "layers.N." and ".weight" or ".bias", where the family has no name of its own. */
static const name_pair in_layer[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},       {0},
};

/* Of T5, behind "encoder.block.N.layer." and "decoder.block.N.layer."; the decoder's feed-forward
 * part is one further on. */
static const name_pair in_half[] = {
    {"0.layer_norm", "attn_norm"},
    {"0.SelfAttention.q", "attn_q"},
    {"0.SelfAttention.k", "attn_k"},
    {"0.SelfAttention.v", "attn_v"},
    {"0.SelfAttention.o", "attn_o"},
    {"0.SelfAttention.relative_attention_bias", "attn_rel_b"},
    {"1.EncDecAttention.q", "cross_attn_q"},
    {"1.EncDecAttention.k", "cross_attn_k"},
    {"1.EncDecAttention.v", "cross_attn_v"},
    {"1.EncDecAttention.o", "cross_attn_o"},
    {"1.EncDecAttention.relative_attention_bias", "cross_attn_rel_b"},
    {"#.DenseReluDense.wi", "ffn_up"},
    {"#.DenseReluDense.wi_0", "ffn_gate"},
    {"#.DenseReluDense.wi_1", "ffn_up"},
    {"#.DenseReluDense.wo", "ffn_down"},
    {"2.layer_norm", "ffn_norm"},
    {0},
};

/* s without its first n bytes. */
static mn_str hf_name_skip(mn_str s, uint64_t n) {
    return (mn_str){s.ptr + n, s.len - n};
}

/* stem against a pattern whose "#" is a number: *number gets it. */
static bool hf_name_matches(mn_str stem, const char *pattern, mn_str *number) {
    uint64_t at = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (at >= stem.len)
                return false;
            if (stem.ptr[at++] != *pattern)
                return false;
            continue;
        }
        const uint64_t from = at;
        while (at < stem.len && stem.ptr[at] >= '0' && stem.ptr[at] <= '9')
            at++;
        *number = (mn_str){stem.ptr + from, at - from};
        if (at == from)
            return false;
        if (at - from > 6)
            return false;
        if (at - from > 1 && stem.ptr[from] == '0')
            return false;
    }
    return at == stem.len;
}

/* The canonical name of the first pair that matches; pairs end with {0}, NULL: none are there. */
static const char *hf_name_pair_of(const name_pair *pairs, mn_str stem, mn_str *number) {
    for (; pairs && pairs->native; pairs++)
        if (hf_name_matches(stem, pairs->native, number))
            return pairs->canonical;
    return NULL;
}

/* What GGUF gives no ending: factors, and the numbers of Mamba's heads. */
static bool has_no_ending(const char *canonical) {
    return mn_str_ends(mn_str_of(canonical), ".scale") || !strcmp(canonical, "ssm_d") ||
           !strcmp(canonical, "ssm_a_log");
}

/* "12.self_attn.q_proj.weight" behind "layers." A name without an ending is a weight's, unless GGUF
 * has none either. */
static mn_str layer_name(mn_parsed *p, const name_pair *own, mn_str native, mn_str rest) {
    static const char *const kinds[] = {".weight", ".bias", ".gamma", ".beta", "_bias", ""};
    static const char *const canonical[] = {".weight", ".bias", ".weight",
                                            ".bias",   ".bias", ".weight"};
    uint32_t layer = 0;
    uint32_t digits = 0;
    while (digits < rest.len && digits < 6 && rest.ptr[digits] >= '0' && rest.ptr[digits] <= '9')
        layer = layer * 10 + (uint32_t)(rest.ptr[digits++] - '0');
    if (!digits || digits >= rest.len || rest.ptr[digits] != '.' ||
        (digits > 1 && rest.ptr[0] == '0'))
        return native;
    rest = hf_name_skip(rest, digits + 1);
    for (size_t k = 0; k < MN_COUNT(kinds); k++) {
        if (!mn_str_ends(rest, kinds[k]))
            continue;
        mn_str stem = {rest.ptr, rest.len - strlen(kinds[k])};
        mn_str number = {0};
        const char *name = hf_name_pair_of(own, stem, &number);
        if (!name)
            name = hf_name_pair_of(in_layer, stem, &number);
        if (!name)
            continue;
        const char *mark = strchr(name, '#');
        const char *ending = has_no_ending(name) ? "" : canonical[k];
        if (!mark)
            return mn_parsed_printf(p, "blk.%u.%s%s", layer, name, ending);
        return mn_parsed_printf(p, "blk.%u.%.*s%.*s%s", layer, (int)(mark - name), name,
                                MN_STR_ARG(number), canonical[k]);
    }
    return native;
}

/* "3.layer.0.SelfAttention.q.weight" behind "encoder.block." */
static mn_str half_name(mn_parsed *p, const char *half, mn_str native, mn_str rest) {
    mn_str number = {0};
    uint64_t digits = 0;
    while (digits < rest.len && digits < 6 && rest.ptr[digits] >= '0' && rest.ptr[digits] <= '9')
        digits++;
    const mn_str layer = {rest.ptr, digits};
    const mn_str behind = hf_name_skip(rest, digits);
    if (!digits || behind.len < 15 || !mn_str_begins(behind, ".layer.") ||
        !mn_str_ends(behind, ".weight"))
        return native;
    const mn_str stem = {behind.ptr + 7, behind.len - 14};
    const char *name = hf_name_pair_of(in_half, stem, &number);
    if (!name && mn_str_is(stem, "1.layer_norm"))
        name = strcmp(half, "enc") ? "cross_attn_norm" : "ffn_norm";
    if (!name)
        return native;
    return mn_parsed_printf(p, "%s.blk.%.*s.%s.weight", half, MN_STR_ARG(layer), name);
}

/* "altup_projections.0.weight" */
static mn_str numbered_name(mn_parsed *p, mn_str native, mn_str rest) {
    mn_str number = {0};
    const char *name = hf_name_pair_of(top_numbered, rest, &number);
    const char *mark = name ? strchr(name, '#') : NULL;
    if (!mark)
        return native;
    return mn_parsed_printf(p, "%.*s%.*s%s", (int)(mark - name), name, MN_STR_ARG(number),
                            mark + 1);
}

/* The canonical name, static or in p's memory; the native one where no table knows it. */
mn_str tensor_canonical_name(mn_parsed *p, const name_pair *own, mn_str native) {
    mn_str rest = mnl_inner_name(native);
    if (mn_str_begins(rest, "layers."))
        return layer_name(p, own, native, hf_name_skip(rest, 7));
    if (mn_str_begins(rest, "h."))
        return layer_name(p, own, native, hf_name_skip(rest, 2));
    if (mn_str_begins(rest, "blocks."))
        return layer_name(p, own, native, hf_name_skip(rest, 7));
    if (mn_str_begins(rest, "encoder.layer."))
        return layer_name(p, own, native, hf_name_skip(rest, 14));
    if (mn_str_begins(rest, "encoder.layers."))
        return layer_name(p, own, native, hf_name_skip(rest, 15));
    if (mn_str_begins(rest, "transformer.layer."))
        return layer_name(p, own, native, hf_name_skip(rest, 18));
    if (mn_str_begins(rest, "encoder.block."))
        return half_name(p, "enc", native, hf_name_skip(rest, 14));
    if (mn_str_begins(rest, "decoder.block."))
        return half_name(p, "dec", native, hf_name_skip(rest, 14));
    if (mn_str_begins(rest, "layer.")) /* the same without its prefix */
        return layer_name(p, own, native, hf_name_skip(rest, 6));
    for (size_t i = 0; i < MN_COUNT(top); i++)
        if (mn_str_is(rest, top[i].native))
            return mn_str_of(top[i].canonical);
    return numbered_name(p, native, rest);
}

static const struct {
    const char *name;
    uint32_t id;
} types[] = {
    {"F32", MN_F32},
    {"F16", MN_F16},
    {"BF16", MN_BF16},
    {"F64", MN_F64},
    {"I8", MN_I8},
    {"I16", MN_I16},
    {"I32", MN_I32},
    {"I64", MN_I64},
    /* MLX: words of packed bits */
    {"U8", MN_U8},
    {"U32", MN_I32},
    /* masks and counters, which no graph reads */
    {"BOOL", MN_U8},
    {"U16", MN_U16},
    {"U64", MN_I64},
    {"F8_E4M3", MN_F8_E4M3},
    {"F8_E5M2", MN_F8_E5M2},
    /* scales of groups: powers of two */
    {"F8_E8M0", MN_U8},
};

const char safetensors_known_types[] =
    "F64 F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0 I64 I32 I16 I8 U64 U32 U16 U8 BOOL";

bool dtype_by_safetensors_name(const char *name, mn_dtype *out) {
    for (size_t i = 0; i < MN_COUNT(types); i++)
        if (!strcmp(types[i].name, name))
            return mn_dtype_by_id(types[i].id, out);
    return false;
}
