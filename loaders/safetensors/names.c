/* names.c -- tables: the names of checkpoints against the canonical ones (GGUF's), and the format's types. */
#include "safetensors.h"
#include <string.h>

typedef struct {
    const char *native, *canonical;
} name_pair;

static const name_pair top[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};
/* Between "layers.N." and ".weight" or ".bias". */
static const name_pair in_layer[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

static mn_str skip(mn_str s, uint64_t n) { return (mn_str){s.ptr + n, s.len - n}; }

/* "12.self_attn.q_proj.weight" behind "layers." */
static mn_str layer_name(mn_parsed *p, mn_str native, mn_str rest) {
    static const char *const kinds[] = {".weight", ".bias"};
    uint32_t layer = 0, digits = 0;
    while (digits < rest.len && digits < 6 && rest.ptr[digits] >= '0' && rest.ptr[digits] <= '9')
        layer = layer * 10 + (uint32_t)(rest.ptr[digits++] - '0');
    if (!digits || digits >= rest.len || rest.ptr[digits] != '.' || (digits > 1 && rest.ptr[0] == '0')) return native;
    rest = skip(rest, digits + 1);
    for (size_t k = 0; k < MN_COUNT(kinds); k++) {
        if (!mn_str_ends(rest, kinds[k])) continue;
        mn_str stem = {rest.ptr, rest.len - strlen(kinds[k])};
        for (size_t i = 0; i < MN_COUNT(in_layer); i++)
            if (mn_str_is(stem, in_layer[i].native))
                return mn_parsed_printf(p, "blk.%u.%s%s", layer, in_layer[i].canonical, kinds[k]);
    }
    return native;
}

mn_str tensor_canonical_name(mn_parsed *p, mn_str native) {
    mn_str rest = mn_str_begins(native, "model.") ? skip(native, 6) : native;
    if (mn_str_begins(rest, "layers.")) return layer_name(p, native, skip(rest, 7));
    for (size_t i = 0; i < MN_COUNT(top); i++)
        if (mn_str_is(rest, top[i].native)) return mn_str_of(top[i].canonical);
    return native;
}

bool tensor_is_ignored(mn_str native) { return mn_str_ends(native, "rotary_emb.inv_freq"); }

static const struct {
    const char *name;
    uint32_t id;
} types[] = {
    {"F32", MN_F32}, {"F16", MN_F16},         {"BF16", MN_BF16},       {"F64", MN_F64},
    {"I8", MN_I8},   {"I16", MN_I16},         {"I32", MN_I32},         {"I64", MN_I64},
    {"U8", MN_U8},   {"F8_E4M3", MN_F8_E4M3}, {"F8_E5M2", MN_F8_E5M2},
};

bool dtype_by_safetensors_name(const char *name, mn_dtype *out) {
    for (size_t i = 0; i < MN_COUNT(types); i++)
        if (!strcmp(types[i].name, name)) return mn_dtype_by_id(types[i].id, out);
    return false;
}
