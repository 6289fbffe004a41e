/* gguf_names.c -- how GGUF's tokenizer.ggml.pre cuts a text before BPE: a table, each expression
 * isolating its matches in the pieces that the one before left. The expressions are those of the
 * models' own tokenizer.json. */
#include "text/pretokenizer/stages.h"
#include <string.h>

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_OF(upper, lower, tail)                                                               \
    "[^\\r\\n\\p{L}\\p{N}]?(?:" upper ")*(?:" lower ")+" tail "|[^\\r\\n\\p{L}\\p{N}]?(?:" upper   \
    ")+(?:" lower ")"                                                                              \
    "*" tail
#define CASED(tail) CASED_OF(UPPER, LOWER, tail)
#define NOT_HAN "(?!\\p{Han})"
#define LINES "[^\\n]+|\\n+"
#define LLAMA3 CONTRACTION "|" WORD "|\\p{N}{1,3}|" SYMBOLS "|" SPACES
#define QWEN2 CONTRACTION "|" WORD "|\\p{N}|" SYMBOLS "|" SPACES
#define GPT4O CASED(CONTRACTION "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define BLOOM                                                                                      \
    " ?[^(\\s|.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c)]+"
#define DEEPSEEK_PUNCTUATED                                                                        \
    "[!\"#$%&'()*+,\\-./"                                                                          \
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
#define DEEPSEEK_WORD DEEPSEEK_PUNCTUATED " ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES
#define CJK "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
/* DeepSeek LLM lists its letters: of the scripts that have two cases, those that have a case. */
#define DEEPSEEK_LETTERS                                                                           \
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-"   \
    "\\x{293}\\x{295}-\\x{"                                                                        \
    "2af}"                                                                                         \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}"  \
    "\\x{38e}-\\x{3a1}"                                                                            \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{"  \
    "13a0}-\\x{13f5}"                                                                              \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{"   \
    "1d77}\\x{1d79}-\\x{"                                                                          \
    "1d9a}"                                                                                        \
    "\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{"   \
    "1f57}\\x{1f59}\\x{"                                                                           \
    "1f5b}"                                                                                        \
    "\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{"    \
    "1fc4}\\x{1fc6}-\\x{"                                                                          \
    "1fcc}"                                                                                        \
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{"   \
    "1ffc}\\x{2102}\\x{"                                                                           \
    "2107}"                                                                                        \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{"     \
    "212d}\\x{212f}-\\x{2134}"                                                                     \
    "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{"     \
    "2c7b}\\x{2c7e}-\\x{2ce4}"                                                                     \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{"    \
    "a76f}\\x{a771}-\\x{"                                                                          \
    "a787}"                                                                                        \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{"   \
    "ff3a}\\x{ff41}-\\x{"                                                                          \
    "ff5a}"                                                                                        \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{"     \
    "10cc0}-\\x{10cf2}"                                                                            \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

static const mn_pre_row rows[] = {
    {"default", 0, {"[\\p{P}\\$\\+<=>\\^~\\|]+", MN_REGEX_GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2 gpt2 phi-2 mpt olmo jais jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum "
     "modern-bert "
     "trillion granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe",
     0,
     {MN_REGEX_GPT2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     MN_PRE_IGNORE_MERGES | MN_PRE_ADD_BOS,
     {LLAMA3}},
    {"dbrx smaug-bpe chatglm-bpe", 0, {LLAMA3}},
    {"glm4 glm5", MN_PRE_IGNORE_MERGES, {LLAMA3}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", 0, {QWEN2}},
    {"qwen35",
     0,
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                  "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, {GPT4O}},
    {"granite-embed-multi-97m", MN_PRE_IGNORE_MERGES, {GPT4O}},
    {"kimi-k2",
     0,
     {"\\p{Han}+|" CASED_OF(NOT_HAN UPPER, NOT_HAN LOWER, CONTRACTION "?") "|\\p{N}{1,3}|" SYMBOLS
                                                                           "|" SPACES}},
    {"minicpm5",
     MN_PRE_IGNORE_MERGES,
     {"\\p{N}{1,3}", CONTRACTION "|" WORD "|\\p{N}+|" SYMBOLS "|" SPACES}},
    {"ufakzeka", 0, {WORD "|\\p{N}|" SYMBOLS "|" SPACES}},
    {"laguna", 0, {LINES, QWEN2}},
    {"jais-2",
     0,
     {CONTRACTION
      "|" WORD "|\\p{N}{1,3}|" SYMBOLS
      "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}"
      "(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s"}},
    {"exaone-moe",
     0,
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| "
                  "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"youtu",
     MN_PRE_IGNORE_MERGES,
     {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{"
      "2019}\\x{2014}\\x{"
      "ff1a}\\x{"
      "ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" CJK,
      CASED(CONTRACTION "?") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES}},
    {"chameleon",
     MN_PRE_ADD_BOS,
     {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
      "[\\p{P}!-/:-@\\[-`{-~]", MN_REGEX_GPT2}},
    {"gemma4 granite-embed-multi-311m sarvam-moe",
     MN_PRE_IGNORE_MERGES | MN_PRE_ADD_BOS | MN_PRE_RAW,
     {LINES}},
    {"tekken",
     MN_PRE_IGNORE_MERGES | MN_PRE_ADD_BOS,
     {CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES}},
    {"tiny_aya cohere2moe", 0, {"\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O}},
    {"deepseek-llm",
     0,
     {"[\\r\\n]", DEEPSEEK_LETTERS,
      "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
      "\\s+$", DEEPSEEK_CJK, "\\p{N}+"}},
    {"deepseek-coder", 0, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", 0, {"\\p{N}{1,3}", CJK, DEEPSEEK_WORD}},
    {"spark2_5",
     0,
     {"\\p{N}{1,3}", CJK, DEEPSEEK_PUNCTUATED " ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+",
      "\\p{N}"}},
    {"afmoe",
     0,
     {"\\p{N}{1,2}(?=(?:\\p{N}{3})*(?!\\p{N}))|\\p{N}{3}",
      "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}\\x{30a0}-\\x{"
      "30ff}\\x{ff65}-\\x{"
      "ff9f}\\x{2f00}"
      "-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-"
      "\\x{aa7f}\\x{a9e0}-"
      "\\x{a9ff}"
      "\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+",
      DEEPSEEK_WORD}},
    {"falcon", 0, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", MN_REGEX_GPT2, "[0-9][0-9][0-9]"}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
     0,
     {"\\p{N}", MN_REGEX_GPT2}},
    {"poro-chat bloom gpt3-finnish", 0, {BLOOM}},
    {"viking", 0, {BLOOM, "\\p{N}"}},
    {"bailingmoe bailingmoe2 llada-moe",
     0,
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
      "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"seed-coder", 0, {CONTRACTION "|" WORD "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {"superbpe", 0, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
};

/* Moves s to the next name and returns its length; 0 at the end. */
static size_t name_length(const char **s) {
    while (**s == ' ')
        ++*s;
    return strcspn(*s, " ");
}

const mn_pre_row *mn_pre_find(mn_str name) {
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        const char *s = rows[i].names;
        for (size_t n; (n = name_length(&s)) > 0; s += n)
            if (n == name.len && !memcmp(s, name.ptr, n))
                return &rows[i];
    }
    return NULL;
}

void mn_pre_list(mn_text *out) {
    for (size_t i = 0; i < MN_COUNT(rows); i++) {
        if (i)
            mn_text_puts(out, " ");
        mn_text_puts(out, rows[i].names);
    }
}

mn_status mn_pre_add(mn_stages *out, const mn_pre_row *row, const char *where, mn_error *err) {
    mn_status st = MN_OK;
    for (size_t i = 0; !st && i < MN_COUNT(row->split); i++)
        if (row->split[i])
            st = mn_stages_add_split(out, row->split[i], MN_SPLIT_ISOLATED, false, where, err);
    return st;
}
