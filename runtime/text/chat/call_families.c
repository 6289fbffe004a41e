/* call_families.c -- the table of families (call_families.h), which of them a model belongs to, and
 * how a grammar spells their calls. All of it is constant. */
#include "text/chat/call_families.h"
#include <string.h>

/* A mark of DeepSeek's: <｜a▁b▁c｜>, and the token in those of V3.2: ｜DSML｜. */
#define DEEPSEEK_BAR "\xef\xbd\x9c"
#define DEEPSEEK_GAP "\xe2\x96\x81"
#define DEEPSEEK(a, b, c) "<" DEEPSEEK_BAR a DEEPSEEK_GAP b DEEPSEEK_GAP c DEEPSEEK_BAR ">"
#define DSML DEEPSEEK_BAR "DSML" DEEPSEEK_BAR

/* Qwen3-Coder and its successors, functionary, Llama 3.1 */
static const mn_call_words function_words = {.function = "<function=",
                                             .function_end = "</function>",
                                             .parameter = "<parameter=",
                                             .key_end = ">",
                                             .value_end = "</parameter>",
                                             .lines = true};
static const mn_call_words invoke_words = {.function = "<invoke name=",
                                           .function_end = "</invoke>",
                                           .parameter = "<parameter name=",
                                           .key_end = ">",
                                           .value_end = "</parameter>"};
static const mn_call_words dsml_words = {.function = "<" DSML "invoke name=",
                                         .function_end = "</" DSML "invoke>",
                                         .parameter = "<" DSML "parameter name=",
                                         .key_end = ">",
                                         .value_end = "</" DSML "parameter>",
                                         .typed = true};
static const mn_call_words arg_words = {.parameter = "<arg_key>",
                                        .key_end = "</arg_key>",
                                        .value = "<arg_value>",
                                        .value_end = "</arg_value>"};

/* The first whose mark is in the template, else in the vocabulary: models that were tuned with
 * another template keep the vocabulary of their parents. */
static const mn_call_family families[] = {
    /* Mistral: [TOOL_CALLS][{...}], later [TOOL_CALLS]name[ARGS]{...} */
    {.opens = {"[TOOL_CALLS]"}, .named = true, .lists = true},
    /* Kimi K2, Kimi Linear: ...<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}
     */
    {.opens = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
     .closes = {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
     .args = "<|tool_call_argument_begin|>",
     .named = true,
     .nested = true,
     .numbered = true},
    /* DeepSeek V3.2: tags, several calls in one mark; later <...tool_calls>. Where a grammar asks
     * for calls, an object is in the tag of the function */
    {.opens = {"<" DSML "function_calls>", "<" DSML "tool_calls>"},
     .closes = {"</" DSML "function_calls>", "</" DSML "tool_calls>"},
     .hint = DSML,
     .hinted = true,
     .tokens = {DSML},
     .words = &dsml_words},
    /* Gemma 4: <|tool_call>call:NAME{key:<|"|>text<|"|>,key:1}<tool_call|>; where a grammar asks
     * for calls, the object is JSON, here and below */
    {.opens = {"<|tool_call>"},
     .closes = {"<tool_call|>"},
     .before = "call:",
     .quote = "<|\"|>",
     .named = true},
    /* FunctionGemma */
    {.opens = {"<start_function_call>"},
     .closes = {"<end_function_call>"},
     .before = "call:",
     .quote = "<escape>",
     .named = true},
    /* InternLM 2.5 and 3: <|action_start|><|plugin|>{"name": ..., "parameters": ...} and
     * <|action_end|> */
    {.opens = {"<|action_start|><|plugin|>"},
     .closes = {"<|action_end|>"},
     .hint = "<|action_start|>",
     .hinted = true,
     .tokens = {"<|action_start|>", "<|plugin|>"},
     .parameters = true},
    /* DeepSeek V3, R1: function<sep>NAME, a line break, {...} fenced as code; V3.1: NAME<sep>{...}
     */
    {.opens = {DEEPSEEK("tool", "calls", "begin"), DEEPSEEK("tool", "call", "begin")},
     .closes = {DEEPSEEK("tool", "call", "end"), DEEPSEEK("tool", "calls", "end")},
     .args = "<" DEEPSEEK_BAR "tool" DEEPSEEK_GAP "sep" DEEPSEEK_BAR ">",
     .named = true,
     .nested = true,
     .typed = true},
    /* LFM2: <|tool_call_start|>[NAME(key=value)]<|tool_call_end|>; where a grammar asks for calls,
     * JSON is in the mark, here and below */
    {.opens = {"<|tool_call_start|>"},
     .closes = {"<|tool_call_end|>"},
     .python = true,
     .lists = true},
    /* OLMo 3: <function_calls>, lines of NAME(key=value), </function_calls> */
    {.opens = {"<function_calls>"}, .closes = {"</function_calls>"}, .python = true, .lists = true},
    /* Nemotron Nano 2, Llama Nemotron: <TOOLCALL>[{...}]</TOOLCALL> */
    {.opens = {"<TOOLCALL>"}, .closes = {"</TOOLCALL>"}, .lists = true},
    /* Phi-4-mini, Granite 3: <|tool_call|>[{...}]<|/tool_call|>, later <tool_call>[{...}] */
    {.opens = {"<|tool_call|>", "<tool_call>"},
     .closes = {"<|/tool_call|>", "</tool_call>"},
     .lists = true},
    /* Command R7B: <|START_ACTION|>[{"tool_name": ..., "parameters": ...}]<|END_ACTION|> */
    {.opens = {"<|START_ACTION|>"}, .closes = {"<|END_ACTION|>"}, .lists = true, .actions = true},
    /* Apertus: <|tools_prefix|>[{"name": {...}}]<|tools_suffix|> */
    {.opens = {"<|tools_prefix|>"}, .closes = {"<|tools_suffix|>"}, .lists = true, .keyed = true},
    /* Hunyuan A13B: <tool_calls>[{...}]</tool_calls> */
    {.opens = {"<tool_calls>"}, .closes = {"</tool_calls>"}, .lists = true},
    /* MiniMax-M2: tags, several calls in one mark */
    {.opens = {"<minimax:tool_call>"}, .closes = {"</minimax:tool_call>"}, .words = &invoke_words},
    /* Seed-OSS: the tags of Qwen3-Coder */
    {.opens = {"<seed:tool_call>"}, .closes = {"</seed:tool_call>"}, .words = &function_words},
    /* GLM-4.5: <tool_call>name, then <arg_key>key</arg_key> <arg_value>value</arg_value> */
    {.opens = {"<tool_call>"},
     .closes = {"</tool_call>"},
     .hint = "<arg_key>",
     .hinted = true,
     .words = &arg_words},
    /* Hermes, Qwen, Granite 4, EXAONE 4, Ernie 4.5: <tool_call>{...}</tool_call>; Qwen3-Coder: tags
     * in it */
    {.opens = {"<tool_call>"}, .closes = {"</tool_call>"}, .words = &function_words},
    /* functionary 3.1, Llama 3.1 with tools of one's own: <function=name>{...}</function> */
    {.opens = {"<function="},
     .closes = {"</function>"},
     .words = &function_words,
     .functions = true},
    /* functionary 3.2: >>>name, a line break, {...}; >>>all: text */
    {.opens = {">>>"}, .hint = ">>>all", .prompt = ">>>", .named = true, .lines = true},
    /* functionary 2: <|recipient|>name, a line break, <|content|>{...} */
    {.opens = {"<|recipient|>", "<|from|>assistant\n<|recipient|>"},
     .content = "<|content|>",
     .prompt = "<|recipient|>",
     .named = true,
     .lines = true},
    /* Llama 3: {"name": ..., "parameters": ...} and nothing else, or behind <|python_tag|> */
    {.opens = {"<|python_tag|>"},
     .hint = "{\"name\": function name, \"parameters\":",
     .separator = ';',
     .bare = true},
    /* Llama 4: [NAME(key=value)] and nothing else */
    {.opens = {"<|python_start|>"},
     .closes = {"<|python_end|>"},
     .hint = "[func_name1(params_name1=params_value1",
     .bare = true,
     .python = true}};

static bool call_families_has(mn_str text, const char *part) {
    return part && memmem(text.ptr, (size_t)text.len, part, strlen(part));
}

/* A mark that may stand in any text, or that other families have, tells nothing: the hint does. */
static bool is_common(const mn_call_family *f) {
    return f->hinted || (f->prompt && f->hint);
}

const mn_call_family *mn_call_family_in(mn_str chat_template) {
    for (size_t i = 0; i < MN_COUNT(families); i++)
        if (call_families_has(chat_template, families[i].hint) ||
            (call_families_has(chat_template, families[i].opens[0]) && !is_common(&families[i])))
            return &families[i];
    return NULL;
}

const mn_call_family *mn_call_family_of(const mn_tokenizer *tok) {
    for (size_t i = 0; i < MN_COUNT(families); i++) {
        const mn_call_family *f = &families[i];
        const char *mark = f->hinted ? f->hint : f->opens[0];
        if (!f->prompt && mn_tokenizer_find(tok, mn_str_of(mark)) >= 0)
            return f;
    }
    return NULL;
}

/* The first of the marks that the template has; without a template the first. */
static const char *mark_in(const char *const marks[2], mn_str chat_template) {
    for (int i = 0; i < 2 && chat_template.len; i++)
        if (call_families_has(chat_template, marks[i]))
            return marks[i];
    return chat_template.len ? NULL : marks[0];
}

/* Hermes and Qwen3-Coder have one mark: the template tells them apart. */
static void style_tags(const mn_call_family *family, mn_str chat_template, mn_call_style *y) {
    const mn_call_words *w = family->words;
    if (w == &function_words && call_families_has(chat_template, w->function)) {
        y->tags = MN_CALL_FUNCTION_TAGS;
        y->before = "\n<function=";
        y->name_end = ">\n";
        y->behind = "</function>\n";
    } else if (w == &invoke_words) {
        y->tags = MN_CALL_INVOKE_TAGS;
        y->before = "\n<invoke name=\"";
        y->name_end = "\">\n";
        y->behind = "</invoke>\n";
    } else if (w == &arg_words) {
        y->tags = MN_CALL_ARG_TAGS;
        y->before = "";
        y->name_end = "\n";
        y->behind = "";
    }
}

/* Each call in a section of its own. */
static void style_nested(const mn_call_family *family, mn_call_style *y) {
    y->section = family->opens[0];
    y->section_end = family->closes[1];
    y->open = family->opens[1];
    y->close = family->closes[0];
    y->args_mark = family->args;
    y->between = "";
    if (family->numbered) {
        y->name_before = "functions.";
        y->name_behind = ":0";
    }
}

/* Calls in one mark, and in the tag of each an object. */
static void style_dsml(const mn_call_family *family, mn_str chat_template, mn_call_style *y) {
    y->section = mark_in(family->opens, chat_template);
    y->section_end = mark_in(family->closes, chat_template);
    if (!y->section || !y->section_end) {
        y->section = family->opens[0];
        y->section_end = family->closes[0];
    }
    y->open = "\n<" DSML "invoke name=\"";
    y->args_mark = "\">\n";
    y->close = "\n</" DSML "invoke>\n";
    y->between = "";
}

mn_call_style mn_call_style_of(const mn_call_family *family, mn_str chat_template) {
    mn_call_style y = {.key = "arguments", .before = "\n{\"name\": \"", .behind = "}\n"};
    if (!family)
        return y;
    y.known = true;
    y.keyed = family->keyed;
    y.tokens = family->tokens;
    y.between = "";
    if (family->bare) {
        y.before = "";
        y.key = "parameters";
        y.behind = "}";
        y.between = "; ";
        return y;
    }
    const bool functions = family->functions;
    if (functions || family->lines)
        y.args_mark = functions ? ">" : "\n";
    if (family->lines) {
        y.content = family->content;
        y.prompted = true;
    }
    if (!functions)
        style_tags(family, chat_template, &y);
    y.open = mark_in(family->opens, chat_template);
    y.close = mark_in(family->closes, chat_template);
    if (!y.open)
        y.open = family->opens[0];
    if (family->named && call_families_has(chat_template, "[ARGS]"))
        y.args_mark = "[ARGS]";
    if (family->lists) {
        y.before = family->keyed ? "[{\"" : "[{\"name\": \"";
        y.behind = "}]";
        if (family->actions) {
            y.before = "[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"";
            y.key = "parameters";
            y.behind = "}\n]";
        }
    } else {
        y.between = "\n";
    }
    if (family->words && !family->words->function_end && !y.close)
        y.close = family->closes[0]; /* nothing else ends the call */
    if (family->parameters) {
        y.key = "parameters";
        y.behind = "}";
    }
    if (family->before) {
        y.name_before = family->before;
        y.args_mark = "";
        y.between = "";
    }
    if (family->words == &dsml_words)
        style_dsml(family, chat_template, &y);
    if (family->nested)
        style_nested(family, &y);
    return y;
}

const char *mn_call_family_prompt(const mn_call_family *family) {
    return family ? family->prompt : NULL;
}

/* Whether the text is one of the tags, as some vocabularies have them as tokens. */
static bool is_word(const mn_call_words *w, mn_str text) {
    const char *const all[] = {w ? w->parameter : NULL, w ? w->key_end : NULL, w ? w->value : NULL,
                               w ? w->value_end : NULL};
    bool found = false;
    for (size_t i = 0; i < MN_COUNT(all); i++)
        found = found || (all[i] && mn_str_is(text, all[i]));
    return found;
}

bool mn_call_family_has_mark(const mn_call_family *f, mn_str text) {
    bool found = false;
    for (int i = 0; f && text.len && i < 2; i++)
        found |= (f->opens[i] && mn_str_is(text, f->opens[i])) ||
                 (f->closes[i] && mn_str_is(text, f->closes[i]));
    for (int i = 0; f && i < 2; i++)
        found |= f->tokens[i] && mn_str_is(text, f->tokens[i]);
    if (f && f->args)
        found |= mn_str_is(text, f->args);
    if (f && f->quote)
        found |= mn_str_is(text, f->quote);
    if (f && f->content && f->opens[0])
        found |= mn_str_is(text, f->content) || mn_str_is(text, "<|from|>");
    return found || (f && is_word(f->words, text));
}
