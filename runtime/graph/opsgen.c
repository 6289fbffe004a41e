/* opsgen -- prints what other files hold of ops.def: `opsgen header` the constants between
 * plugin.h's OPS markers, `opsgen docs` the contract pages docs/ops.md. Run by `ninja ops-update`;
 * a test compares. */
#include <stdio.h>
#include <string.h>

enum kind { OP, IN, OUT, ATTR, TEXT };
typedef struct {
    enum kind kind;
    const char *op;
    const char *name;
    const char *type;
    const char *shape;
    const char *need;
    const char *doc;
    int id;
    int contract;
} row;
static const row rows[] = {
#define MN_OP(n, i, c, s) {OP, #n, 0, 0, 0, 0, s, i, c},
#define MN_IN(n, o, t, s, need, d) {IN, #n, #o, #t, s, #need, d, 0, 0},
#define MN_OUT(n, o, t, s, need, d) {OUT, #n, #o, #t, s, #need, d, 0, 0},
#define MN_ATTR(n, a, t, d) {ATTR, #n, #a, #t, 0, 0, d, 0, 0},
#define MN_TEXT(n, t) {TEXT, #n, 0, 0, 0, 0, t, 0, 0},
#include "ops.def"
};
enum { N = sizeof rows / sizeof rows[0] };

static int opsgen_is(const row *r, const char *op, enum kind k) {
    return r->kind == k && !strcmp(r->op, op);
}

/* One enum of the operands, outputs or attributes of an operation, wrapped at 100 columns. */
static void opsgen_list(const char *op, enum kind k, const char *middle) {
    int n = 0;
    int column = 0;
    for (int i = 0; i < N; i++) {
        if (!opsgen_is(&rows[i], op, k))
            continue;
        char item[96];
        int length = snprintf(item, sizeof item, "MN_%s_%s%s = %d", op, middle, rows[i].name, n);
        if (n && column + 2 + length > 97)
            column = printf(",\n    %s", item) - 2;
        else
            column += printf("%s%s", n ? ", " : "enum { ", item);
        n++;
    }
    if (n)
        printf(" };\n");
}

/* Names and ids, for whoever wants a table of them. */
static void opsgen_ids(void) {
    int column = 0;
    printf("#define MN_OPS(X)%*s\\\n", 82, "");
    for (int i = 0; i < N; i++) {
        char item[64];
        if (rows[i].kind != OP)
            continue;
        int length = snprintf(item, sizeof item, " X(%s, %d)", rows[i].op, rows[i].id);
        if (column + length > 96) {
            printf("%*s\\\n", 99 - column, "");
            column = 0;
        }
        if (!column)
            column = printf("   ");
        column += printf("%s", item);
    }
    printf("\n");
}

/* Between the OPS markers of plugin.h. */
static void header(void) {
    opsgen_ids();
    for (int i = 0; i < N; i++)
        if (rows[i].kind == OP) {
            opsgen_list(rows[i].op, IN, "");
            opsgen_list(rows[i].op, OUT, "OUT_");
            opsgen_list(rows[i].op, ATTR, "ATTR_");
        }
}

/* Whether a line of Markdown that begins with this word would be an item or a heading. */
static int opsgen_is_mark(const char *word, size_t n) {
    const size_t digits = strspn(word, "0123456789");
    return strchr("-+*#>|=", word[0]) || (digits && digits + 1 == n && word[digits] == '.');
}

/* Prints a text whose first line begins at a column, broken at 100 columns; further lines begin
 * with `indent` blanks, two more within an item. Line ends of the text stay. */
static void wrap(const char *text, int column, int indent) {
    enum { COLUMNS = 100 };
    int inner = indent;
    while (*text) {
        if (*text == '\n') {
            putchar(*text++);
            column = 0;
            inner = strncmp(text, "- ", 2) ? indent : indent + 2;
            continue;
        }
        const size_t blanks = strspn(text, " ");
        const char *word = text + blanks;
        const size_t n = strcspn(word, " \n");
        const int length = (int)(blanks + n);
        if (blanks && column + length > COLUMNS && !opsgen_is_mark(word, n))
            column = printf("\n%*s%.*s", inner, "", (int)n, word) - 1;
        else
            column += printf("%.*s", length, text);
        text = word + n;
    }
    putchar('\n');
}

/* One list of a contract page, numbered as plugins count. */
static void table(const char *op, enum kind k, const char *title) {
    int n = 0;
    for (int i = 0; i < N; i++) {
        if (!opsgen_is(&rows[i], op, k))
            continue;
        if (!n)
            printf("\n%s\n\n", title);
        const row *r = &rows[i];
        const int required = !strcmp(r->need ? r->need : "", "REQUIRED");
        if (k == ATTR)
            wrap(r->doc, printf("%d. `%s` (%s) ", n, r->name, r->type), 3);
        else if (required)
            printf("%d. `%s` %s %s\n", n, r->name, r->type, r->shape);
        else
            printf("%d. `%s` %s %s %s\n", n, r->name, r->type, r->shape, r->need);
        if (k != ATTR && *r->doc)
            wrap(r->doc, printf("   -- "), 3);
        n++;
    }
}

/* The part of docs/ops.md that does not come from the table. */
static const char introduction[] =
    "# Operations\n\n"
    "Made from `runtime/graph/ops.def`; do not edit. Counting starts at 0.\n\n"
    "Sizes: T n_tokens, O n_outputs, Q n_seqs, S n_slots, P n_pages, C n_ctx, V vocabulary. FLOAT\n"
    "is f32 at segment boundaries; WEIGHT is any type for which the plugin says yes. Rows whose\n"
    "`row_pos` is -1 are padding or belong to a done slot: their outputs are undefined and they\n"
    "touch no state. NaN and infinity go through: no operation replaces them by a number, unless\n"
    "its formula does (GLU's LIMIT, SOFTCAP, and MOE_ROUTE's sigmoid bound an infinity). REPEATED\n"
    "operands come in groups, one group per output; operands that are added to such an operation\n"
    "later follow the groups. A node states the lowest contract that describes it.\n\n"
    "State tensors: SLOTS is I32 [S, W], a row of W words holds an `mn_slot`; PARAMS is I32 [S, "
    "W'],\n"
    "W' even, a row holds an `mn_slot_params`; HISTORY is I32 [S, C]; KV is U8 [1] and as large "
    "as\n"
    "its binding. Rows of SLOTS and PARAMS are 4 W and 4 W' bytes apart, whatever the structs'\n"
    "size. HISTORY holds 0 where an id outside the vocabulary was given.\n\n"
    "Tolerance against `reference`, relative L2 of an output: exact 1e-5, a16 5e-3, a8 3e-2.\n"
    "In class a8 a plugin may round packed weights to 8 bits, too, if it stays within that.\n\n";
static const char node_order[] =
    "## Order of nodes\n\n"
    "Builders emit this order, and test `units` holds them to it; a backend may rely on it\n"
    "for speed, never for results. Brackets: where the architecture has it.\n\n"
    "- begin: EMBED [norm] [SCALE]; [for each layer (Gemma 4 E) LINEAR, norm, LOOKUP, ADD, "
    "SCALE];\n"
    "  [LOOKUP of how queries grow (Llama 4)]; [LINEAR to the width of layers (small ELECTRA)]\n"
    "- attention: norm, LINEAR q k v, [norms of q, k, v], [ROPE q, ROPE k], [norms of q, k],\n"
    "  KV_STORE, ATTENTION, LINEAR out, [norm] [SCALE] ADD; of a layer that reads another one's "
    "cache\n"
    "  q alone, without KV_STORE; where queries grow norm, MUL, LINEAR q, LINEAR k v\n"
    "- feed-forward: norm, LINEAR gate up, GLU (or LINEAR up, ACT), LINEAR down, [norm] [SCALE] "
    "ADD\n"
    "- experts: norm, LINEAR router, MOE_ROUTE, MOE_LINEAR gate up, GLU, [factors of the chosen:\n"
    "  MOE_ROUTE, MOE_LINEAR, MUL], MOE_LINEAR down, MOE_COMBINE, [shared experts: LINEAR gate "
    "up,\n"
    "  GLU, LINEAR down, [LINEAR, MOE_ROUTE, MOE_COMBINE], ADD], [norm] [SCALE] ADD\n"
    "- experts beside a feed-forward part (Gemma 4): behind LINEAR down norm; norm, LINEAR "
    "router,\n"
    "  SCALE, norm, MOE_ROUTE and so on up to MOE_COMBINE; norm, ADD, norm, ADD\n"
    "- embeddings of the layer (Gemma 4 E): LINEAR, GLU, LINEAR, norm, ADD behind the ADD\n"
    "- n streams (Gemma 3n): behind the begin norm, MUL, LINEAR, for each but one LINEAR, norm,\n"
    "  MOE_COMBINE; in a layer norm, SCALE, LINEAR, SOFTCAP, for each LINEAR n times, MUL, (MUL, "
    "ADD)\n"
    "  n - 1 times; norm, LINEAR, LINEAR, norm, ADD beside attention, ADD, ADD, SCALE; "
    "feed-forward,\n"
    "  whose gate may be cut: LINEAR gate up, LAYER_NORM, LAYER_NORM, MUL, LINEAR, ACT, "
    "MOE_COMBINE,\n"
    "  GLU, LINEAR down; norm, SCALE, LINEAR, SOFTCAP, SCALE, ADD, LINEAR n times, for each MUL, "
    "ADD;\n"
    "  [LINEAR, MUL], LINEAR, GLU, LINEAR, norm, ADD n - 1 times; in front of the end norm, MUL,\n"
    "  LINEAR, for each but one LINEAR, norm, ADD but for the first, MOE_COMBINE, ADD, SCALE\n"
    "- layers with a state, in the place of attention: norm, then of Mamba-2 [SCALE] LINEAR z xbc "
    "dt,\n"
    "  [SCALE z] CONV_STATE, ACT, [SCALE dt] SSM_SCAN, GLU, [norm] (or norm, GLU), LINEAR out, "
    "[SCALE];\n"
    "  of the delta rule LINEAR qkv z beta alpha, CONV_STATE, ACT, GATED_DELTA, norm, GLU, LINEAR "
    "out;\n"
    "  of Kimi's LINEAR qkv decay gate beta, CONV_STATE, ACT, LINEAR decay, LINEAR gate, "
    "GATED_DELTA,\n"
    "  norm, GLU, LINEAR out; of LFM2 LINEAR b c x, MUL, CONV_STATE, MUL, LINEAR out; then [SCALE] "
    "ADD.\n"
    "  Attention with a gate: GLU between ATTENTION and LINEAR out\n"
    "- latent attention (DeepSeek): norm, LINEAR q kv, [norm of q, LINEAR q], [ROPE q], LINEAR of "
    "heads,\n"
    "  norm of kv, [ROPE kv], KV_STORE, ATTENTION, LINEAR of heads, LINEAR out, ADD\n"
    "- attention beside Mamba-2 (Falcon-H1): norm, the mixer, attention without a norm, ADD, ADD\n"
    "- layers of one block (Nemotron-H): norm, a mixer, attention, LINEAR up, ACT, LINEAR down, "
    "or\n"
    "  experts: LINEAR router, [LINEAR], MOE_ROUTE, MOE_LINEAR up, ACT, MOE_LINEAR down, "
    "MOE_COMBINE,\n"
    "  [LINEAR], [LINEAR up, ACT, LINEAR down, ADD]; ADD\n"
    "- end: GATHER_ROWS, norm, LINEAR logits, [SCALE] [SOFTCAP], SAMPLE; of a graph that embeds\n"
    "  GATHER_ROWS, norm, which writes the output; where hidden states are an output, too, norm,\n"
    "  which writes it, GATHER_ROWS, LINEAR\n"
    "- draft heads: EMBED, norm, norm of hidden states, LINEAR, LINEAR, ADD, one layer, the end\n"
    "- encoders: EMBED norm; in a layer LINEAR q k v, [ROPE q, ROPE k], KV_STORE, ATTENTION,\n"
    "  LINEAR out, ADD, norm, LINEAR up, ACT (or LINEAR gate up, GLU), LINEAR down, ADD, norm; at\n"
    "  the end GATHER_ROWS, which writes the output\n"
    "  [DeBERTa's convolution: LINEAR, (KV_STORE, ATTENTION, ADD)+, ACT, ADD]\n"
    "- an encoder and a decoder (T5): EMBED of texts, EMBED; layers of texts, norm; in a layer of\n"
    "  the decoder, behind the ADD of its attention, LINEAR k v of texts, norm, LINEAR q, "
    "KV_STORE,\n"
    "  ATTENTION, LINEAR out, ADD\n\n"
    "Layers do not overlap: `mn_node.layer` never falls, -1 before the first and after the last.\n"
    "Where attention and feed-forward read the same input (parallel blocks), attention comes "
    "first\n"
    "and both ADDs come last. A LINEAR names all weights that share its input and its place.\n";

static void docs(void) {
    fputs(introduction, stdout);
    fputs(node_order, stdout);
    for (int i = 0; i < N; i++) {
        if (rows[i].kind != OP)
            continue;
        printf("\n## %s (op %d, contract %d)\n\n%s.\n", rows[i].op, rows[i].id, rows[i].contract,
               rows[i].doc);
        table(rows[i].op, IN, "Inputs:");
        table(rows[i].op, OUT, "Outputs:");
        table(rows[i].op, ATTR, "Attributes:");
        for (int j = 0; j < N; j++)
            if (opsgen_is(&rows[j], rows[i].op, TEXT)) {
                putchar('\n');
                wrap(rows[j].doc, 0, 0);
            }
    }
}

int main(int argc, char **argv) {
    const char *what = "";
    if (argc == 2)
        what = argv[1];
    if (!strcmp(what, "header")) {
        header();
        return 0;
    }
    if (!strcmp(what, "docs")) {
        docs();
        return 0;
    }
    fprintf(stderr, "usage: opsgen header|docs\n");
    return 2;
}
