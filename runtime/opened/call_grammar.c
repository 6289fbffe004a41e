/* call_grammar.c -- the grammar of an answer with tool calls (MN_CONSTRAINT_CALLS): the marks of
 * the model's own form of calls (mn_call_style), the names of the tools, and their schemas. Texts
 * live in an arena until the grammar is made.
 *
 * Marks that are control tokens are spelled by a byte that no text has and their name
 * (MN_CONTROL_BYTE), as in the model's vocabulary for grammars: so that text cannot spell them, and
 * strings of arguments cannot contain them. */
#include "opened/opened.h"
#include "text/chat/channels.h"
#include "text/json/json.h"
#include <cjson/cJSON.h>
#include <string.h>

enum { MOST_CALLS = 64, HARMONY_HEADS = 4 };

typedef struct {
    const mn_model *m;
    const mn_call_style *style;
    uint32_t flags; /* MN_CONSTRAINT_* */
    mn_arena arena;
    mn_grammar_tag *tag;
    uint32_t n;
    mn_text *warnings;
    mn_error *err;
    bool harmony;
    uint64_t states, work; /* left for the arguments of tools */
    uint32_t n_heads;      /* tags for each tool: ways in which Harmony may begin a call, else 1 */
} builder;

static bool is_control(const builder *b, const char *piece) {
    const int32_t id = mn_tokenizer_find(b->m->tokenizer, mn_str_of(piece));
    return id >= 0 && mn_tokenizer_is_special(b->m->tokenizer, id);
}

/* A mark as the vocabulary spells it, appended: it may be a control token, or have some. */
static void put_mark(const builder *b, mn_text *out, const char *mark) {
    const char *const *tokens = b->style->tokens;
    const bool whole = is_control(b, mark);
    if (whole)
        mn_text_put(out, MN_CONTROL_BYTE, 1);
    for (const char *at = mark; *at; at++) {
        for (int i = 0; i < 2 && tokens && tokens[i] && !whole; i++)
            if (!strncmp(at, tokens[i], strlen(tokens[i])) && is_control(b, tokens[i]))
                mn_text_put(out, MN_CONTROL_BYTE, 1);
        mn_text_put(out, at, 1);
    }
}

/* The text, kept; out is empty again. */
static bool keep_text(builder *b, mn_text *text, mn_str *out) {
    const char *copy = text->failed ? NULL : mn_arena_strndup(&b->arena, text->ptr, text->len);
    *out = (mn_str){copy ? copy : "", copy ? text->len : 0};
    mn_text_free(text);
    return copy != NULL;
}

/* What stands around the arguments of a call of the function. */
static mn_status put_marks(builder *b, mn_grammar_tag *to, const char *name) {
    const mn_call_style *y = b->style;
    mn_text begin = {0};
    mn_text lead = {0};
    mn_text end = {0};
    if (y->prompted)
        mn_text_puts(&begin, name);
    else if (y->section)
        put_mark(b, &begin, y->section);
    else if (y->open)
        put_mark(b, &begin, y->open);
    else
        mn_text_puts(&begin, "{\"name\": \"");
    if (y->section)
        put_mark(b, &lead, y->open);
    if (y->args_mark) {
        mn_text_puts(&lead, y->name_before ? y->name_before : "");
        mn_text_puts(&lead, y->prompted ? "" : name);
        mn_text_puts(&lead, y->name_behind ? y->name_behind : "");
        put_mark(b, &lead, y->args_mark);
        if (y->content)
            put_mark(b, &lead, y->content);
    } else if (y->tags) {
        mn_text_printf(&lead, "%s%s%s", y->before, name, y->name_end);
        mn_text_puts(&end, y->behind);
    } else {
        mn_text_printf(&lead, "%s%s\"", y->before, name);
        if (!y->keyed)
            mn_text_printf(&lead, ", \"%s\"", y->key);
        mn_text_puts(&lead, ": ");
        mn_text_puts(&end, y->behind);
    }
    if (y->close)
        put_mark(b, &end, y->close);
    if (y->section)
        put_mark(b, &end, y->section_end);
    mn_text_put(&begin, "", 0);
    mn_text_put(&lead, "", 0);
    mn_text_put(&end, "", 0);
    const bool ok[] = {keep_text(b, &begin, &to->begin), keep_text(b, &lead, &to->lead),
                       keep_text(b, &end, &to->end)};
    to->first = !y->open;
    return ok[0] && ok[1] && ok[2] ? MN_OK : mn_fail_memory(b->err, 64);
}

/* ---- Harmony (channels.h) -------------------------------------------------------------------- */
/* Headers of messages to a tool, up to its name; channel: it stands behind the name. What a prompt
 * leaves open is a header, too, that of a first message. */
static const struct {
    const char *mark, *text;
    bool channel, first;
} heads[HARMONY_HEADS] = {
    {"<|channel|>", "commentary to=functions.", false, false},
    {"<|channel|>", "analysis to=functions.", false, false},
    {"<|start|>", "assistant to=functions.", true, false},
    {NULL, " to=functions.", true, true},
};

/* A message ends by a stop id, and so does the text. */
static mn_status put_header(builder *b, mn_grammar_tag *to, uint32_t head, const char *name) {
    mn_text begin = {0};
    mn_text lead = {0};
    if (heads[head].mark)
        put_mark(b, &begin, heads[head].mark);
    mn_text_puts(&begin, heads[head].text);
    mn_text_puts(&lead, name);
    if (heads[head].channel) {
        put_mark(b, &lead, "<|channel|>");
        mn_text_puts(&lead, "commentary");
    }
    mn_text_puts(&lead, " ");
    if (mn_tokenizer_find(b->m->tokenizer, mn_str_of("<|constrain|>")) >= 0)
        put_mark(b, &lead, "<|constrain|>");
    mn_text_puts(&lead, "json");
    put_mark(b, &lead, "<|message|>");
    to->first = heads[head].first;
    to->end = mn_str_of("");
    const bool ok[] = {keep_text(b, &begin, &to->begin), keep_text(b, &lead, &to->lead)};
    return ok[0] && ok[1] ? MN_OK : mn_fail_memory(b->err, 64);
}

/* One message of analysis may come before a call that is forced. */
static mn_status put_thinking(builder *b, mn_place place, mn_grammar_thinking *to) {
    static const char *const marks[] = {"<|channel|>", "<|message|>", "<|start|>", "<|call|>"};
    mn_str *never = mn_arena_alloc(&b->arena, MN_COUNT(marks), sizeof *never);
    mn_text begin = {0};
    mn_text end = {0};
    mn_text next = {0};
    bool ok = never != NULL;
    for (uint32_t i = 0; ok && i < MN_COUNT(marks); i++) {
        mn_text mark = {0};
        put_mark(b, &mark, marks[i]);
        ok = keep_text(b, &mark, &never[i]);
    }
    mn_text_put(&begin, "", 0);
    if (place == MN_PLACE_HEADER) {
        put_mark(b, &begin, "<|channel|>");
        mn_text_puts(&begin, "analysis");
        put_mark(b, &begin, "<|message|>");
    }
    put_mark(b, &end, "<|end|>");
    put_mark(b, &next, "<|start|>");
    mn_text_puts(&next, "assistant");
    const bool kept[] = {keep_text(b, &begin, &to->begin), keep_text(b, &end, &to->end),
                         keep_text(b, &next, &to->next)};
    to->never = never;
    to->n_never = MN_COUNT(marks);
    return ok && kept[0] && kept[1] && kept[2] ? MN_OK : mn_fail_memory(b->err, 64);
}

/* ---- tools ----------------------------------------------------------------------------------- */
/* The schema of the arguments, which are an object. */
static mn_status put_schema(builder *b, mn_grammar_tag *to, const cJSON *parameters) {
    static const mn_grammar_kind kinds[] = {[MN_CALL_NO_TAGS] = MN_GRAMMAR_SCHEMA,
                                            [MN_CALL_FUNCTION_TAGS] = MN_GRAMMAR_PARAMETERS,
                                            [MN_CALL_INVOKE_TAGS] = MN_GRAMMAR_INVOKES,
                                            [MN_CALL_ARG_TAGS] = MN_GRAMMAR_ARGS};
    cJSON *own = NULL;
    if (cJSON_IsObject(parameters))
        own = cJSON_Duplicate(parameters, true);
    else
        own = cJSON_CreateObject();
    const bool typed =
        cJSON_HasObjectItem(own, "type") || cJSON_AddStringToObject(own, "type", "object") != NULL;
    char *text = typed ? cJSON_PrintUnformatted(own) : NULL;
    const char *copy = text ? mn_arena_strndup(&b->arena, text, strlen(text)) : NULL;
    cJSON_free(text);
    cJSON_Delete(own);
    to->kind = b->harmony ? MN_GRAMMAR_SCHEMA : kinds[b->style->tags];
    to->source = mn_str_of(copy ? copy : "");
    return copy ? MN_OK : mn_fail_memory(b->err, 64);
}

/* Room for the arguments of a tool, of all that is left: work to compile them, and states.
 * MN_UNSUPPORTED: they cannot be enforced, or there is none. */
static mn_status claim(builder *b, const mn_grammar_tag *to, mn_error *why) {
    uint32_t n = 0;
    mn_status st = mn_grammar_try(to->kind, to->source, b->m->grammar_vocab, &b->work, &n, why);
    const uint64_t all = (uint64_t)n * b->n_heads;
    if (!st && all > b->states)
        st = mn_fail(why, MN_UNSUPPORTED,
                     "they need %u states, more than other tools leave of the %u of a grammar", n,
                     MN_GRAMMAR_NODES);
    if (!st)
        b->states -= all;
    return st;
}

/* Tools that are strict come first. */
static mn_status claim_strict(builder *b, const cJSON *tools) {
    const cJSON *tool = NULL;
    mn_status st = MN_OK;
    b->work = MN_GRAMMAR_WORK_COMPILE;
    b->states = MN_GRAMMAR_NODES - MN_GRAMMAR_NODES / 8;
    cJSON_ArrayForEach(tool, tools) {
        const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
        mn_error why = MN_ERROR_INIT;
        mn_grammar_tag tag = {.name = {"", 0}};
        if (st || !cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(function, "strict")))
            continue;
        st = put_schema(b, &tag, cJSON_GetObjectItemCaseSensitive(function, "parameters"));
        if (!st)
            claim(b, &tag, &why); /* what is wrong is said when all is compiled */
    }
    return st;
}

/* A schema that cannot be enforced is refused where the tool is strict; else its arguments are any
 * object, and a warning says so. */
static mn_status relax(builder *b, mn_grammar_tag *to, const char *name) {
    mn_error why = MN_ERROR_INIT;
    if (claim(b, to, &why) != MN_UNSUPPORTED)
        return MN_OK; /* what else is wrong is said when all is compiled */
    if (b->warnings)
        mn_text_printf(b->warnings, "tool %s: its arguments are any object: %s\n", name, why.msg);
    return put_schema(b, to, NULL);
}

static bool is_plain(const char *name) {
    for (; *name; name++)
        if (*name <= ' ' || *name > '~' || strchr("\"\\[]{}", *name))
            return false;
    return true;
}

static mn_status add_tool(builder *b, const cJSON *tool) {
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(function, "name"));
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(function, "parameters");
    const bool strict = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(function, "strict"));
    const bool enforced = strict || b->flags & MN_CONSTRAINT_CALLS_ONLY;
    mn_grammar_tag *to = &b->tag[b->n * b->n_heads];
    if (!name || !*name || !is_plain(name))
        return mn_fail(b->err, MN_BAD_INPUT,
                       "tools[%u]: found %s, expected a function with a name of letters, digits, "
                       "hyphens and underscores",
                       b->n, name ? name : "none");
    const char *copy = mn_arena_strndup(&b->arena, name, strlen(name));
    if (!copy)
        return mn_fail_memory(b->err, strlen(name));
    mn_status st = put_schema(b, to, enforced ? parameters : NULL);
    if (!st && enforced && !strict)
        st = relax(b, to, name);
    for (uint32_t i = 0; i < b->n_heads && !st; i++) {
        to[i].kind = to->kind;
        to[i].source = to->source;
        to[i].name = mn_str_of(copy);
        st = b->harmony ? put_header(b, &to[i], i, name) : put_marks(b, &to[i], name);
    }
    b->n++;
    return st;
}

static mn_status add_tools(builder *b, const cJSON *tools) {
    const int n = cJSON_IsArray(tools) ? cJSON_GetArraySize(tools) : 0;
    const cJSON *tool = NULL;
    mn_status st = MN_OK;
    if (!n)
        return mn_fail(b->err, MN_BAD_INPUT, "tools: expected a list of functions");
    const size_t n_tags = (size_t)n * b->n_heads;
    b->tag = mn_arena_alloc(&b->arena, n_tags, sizeof *b->tag);
    if (!b->tag)
        return mn_fail_memory(b->err, n_tags * sizeof *b->tag);
    memset(b->tag, 0, n_tags * sizeof *b->tag);
    if (b->flags & MN_CONSTRAINT_CALLS_ONLY)
        st = claim_strict(b, tools);
    cJSON_ArrayForEach(tool, tools) {
        if (!st)
            st = add_tool(b, tool);
    }
    return st;
}

/* What stands between two calls of a family whose prompt ends with the first mark. */
static mn_status put_between(builder *b, mn_str *to) {
    const mn_call_style *y = b->style;
    mn_text between = {0};
    if (!y->prompted) {
        *to = mn_str_of(y->between ? y->between : "");
        return MN_OK;
    }
    if (y->content) {
        put_mark(b, &between, "<|from|>");
        mn_text_puts(&between, "assistant\n");
    }
    put_mark(b, &between, y->open);
    return keep_text(b, &between, to) ? MN_OK : mn_fail_memory(b->err, 64);
}

/* Where the form of calls is not known, or begins in the prompt, calls that are not forced are free
 * text; the schemas of strict tools are checked all the same. */
static mn_status check_alone(builder *b, const cJSON *tools) {
    const cJSON *tool = NULL;
    mn_status st = MN_OK;
    cJSON_ArrayForEach(tool, tools) {
        const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(function, "name"));
        mn_grammar_tag tag = {0};
        mn_grammar *g = NULL;
        if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(function, "strict")))
            continue;
        st = put_schema(b, &tag, cJSON_GetObjectItemCaseSensitive(function, "parameters"));
        if (!st)
            st = mn_grammar_compile(MN_GRAMMAR_SCHEMA, tag.source, b->m->grammar_vocab, &g,
                                    b->warnings, b->err);
        mn_grammar_free(g);
        if (st)
            return mn_fail_in(b->err, st, "tool %s", name ? name : "without a name");
    }
    if (b->warnings)
        mn_text_printf(b->warnings,
                       "%s: calls of tools are not enforced: its chat template has no "
                       "form of calls that is known here, or begins it in the prompt\n",
                       b->m->canonical->path);
    return MN_OK;
}

/* The grammar of the tags that were made. */
static mn_status make_grammar(builder *b, bool forced, mn_place place, mn_grammar **out) {
    const bool one = b->harmony || b->flags & MN_CONSTRAINT_ONE_CALL;
    mn_grammar_tags tags = {.tag = b->tag,
                            .n = b->n * b->n_heads,
                            .least = forced,
                            .most = one ? 1 : MOST_CALLS,
                            .only = forced && (b->harmony || place == MN_PLACE_ANSWER)};
    mn_status st = put_between(b, &tags.between);
    if (!st && b->harmony && forced && place != MN_PLACE_ANSWER)
        st = put_thinking(b, place, &tags.thinking);
    if (!st)
        st = mn_grammar_tagged(&tags, b->m->grammar_vocab, out, b->warnings, b->err);
    return st;
}

mn_status mn_call_grammar(const mn_model *m, mn_str tools, uint32_t flags, mn_place place,
                          mn_grammar **out, mn_text *warnings, mn_error *err) {
    const mn_channels channels = mn_channels_of(m->tokenizer);
    const bool forced = flags & MN_CONSTRAINT_CALLS_ONLY;
    builder b = {.m = m,
                 .style = &m->call_style,
                 .flags = flags,
                 .warnings = warnings,
                 .err = err,
                 .n_heads = 1,
                 .harmony = channels.channel >= 0 && channels.message >= 0};
    const bool free_text =
        !b.harmony && !forced && (!m->call_style.known || m->call_style.prompted);
    if (!b.harmony && !free_text && !m->call_style.known)
        return mn_fail(err, MN_UNSUPPORTED,
                       "%s: calls of tools cannot be enforced: its chat template has no form of "
                       "calls that is known here",
                       m->canonical->path);
    if (b.harmony && !forced)
        b.n_heads = HARMONY_HEADS;
    const char *end = NULL;
    bool no_memory = false;
    cJSON *list = mn_json_tree(tools.ptr, (size_t)tools.len, &end, &no_memory);
    mn_status st = no_memory ? mn_fail_memory(err, tools.len) : MN_OK;
    *out = NULL;
    if (!st && free_text)
        st = check_alone(&b, list);
    else if (!st)
        st = add_tools(&b, list);
    cJSON_Delete(list);
    if (!st && !free_text)
        st = make_grammar(&b, forced, place, out);
    mn_arena_free(&b.arena);
    return st;
}
