/* Templates made to break the engine: each must end with text or an error, soon. */
#include "text/jinja/render.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#define VARS                                                                                       \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hé <|x|>\"}, {\"role\": \"assistant\", " \
    "\"content\": \"b\", "                                                                         \
    "\"l\": [1, 2.5, null, true]}], \"n\": 5}"

static const char *const feature_template =
    "{%- macro f(a, b=2) -%}<{{ a }}{{ b }}{{ kwargs }}{{ caller() if caller }}>{%- endmacro -%}\n"
    "{% set ns = namespace(x=0) %}{% for m in messages if m.role recursive %}{{ loop.index }}{% "
    "set ns.x = ns.x + 1 %}"
    "{{ m['content'] | trim | upper | replace('B', 'c') }}{{ m | tojson(indent=2) }}{% if "
    "loop.last %}{% break %}{% "
    "endif %}{% else %}-{% endfor %}"
    "{% call f(1, c=3) %}x{% endcall %}{% filter title %}ab cd{% endfilter %}{% set t %}q{{ n }}{% "
    "endset %}{{ t ~ "
    "ns.x }}"
    "{{ '%s %5.1f' % (n, 2.5) }}{{ '{:>5} {!r}'.format('a', 'b') }}{{ [3, 1, 2] | sort | join(',') "
    "}}{{ messages | "
    "map(attribute='role') | list }}"
    "{{ 'a b c'.split()[::-1] }}{{ {'a': [1, (2,)]} }}{{ messages | sort(attribute='role') | "
    "length }}{{ "
    "1 < 2 <= 2 and n is "
    "odd }}\n";

static mn_status render(mn_str source, mn_str vars, mn_text *out, mn_error *err) {
    mn_jinja *t = NULL;
    mn_text marks = {0};
    mn_status status = mn_jinja_parse(source, &t, err);
    if (status == MN_OK)
        status = mn_jinja_render(t, vars, NULL, 0, out, &marks, err);
    mn_jinja_free(t);
    mn_text_free(&marks);
    return status;
}

/* No variables, and a twentieth of the work that is allowed. */
static bool spend_most(mn_jctx *c, mn_jdict *vars, const void *arg) {
    (void)vars, (void)arg;
    return mn_jcharge(c, MN_J_PER_ITEM, MN_J_STEPS - MN_J_STEPS / 20);
}

static mn_status render_briefly(mn_str source, mn_text *out, mn_error *err) {
    mn_jinja *t = NULL;
    mn_status st = mn_jinja_parse(source, &t, err);
    if (!st)
        st = mn_jinja_render_with(t, spend_most, NULL, 0, out, NULL, err);
    mn_jinja_free(t);
    return st;
}

/* vars without text: none */
static void must_fail(const char *what, mn_str source, mn_str vars) {
    mn_text out = {0};
    mn_error err = MN_ERROR_INIT;
    uint64_t start = mn_now_ns();
    const mn_status st =
        vars.len ? render(source, vars, &out, &err) : render_briefly(source, &out, &err);
    if (st == MN_OK)
        fail_msg("%s: no error", what);
    if (!err.msg[0])
        fail_msg("%s: no message", what);
    double s = (double)(mn_now_ns() - start) * 1e-9;
    if (s > 60)
        fail_msg("%s took %.1f s", what, s);
    mn_text_free(&out);
}

static void deep_nesting(void **state) {
    static const struct {
        const char *before, *piece, *after;
    } shapes[] = {
        {"{{ ", "(", ""},
        {"{{ ", "[", ""},
        {"{{ ", "{1:", ""},
        {"{{ ", "-", "1 }}"},
        {"{{ ", "not ", "1 }}"},
        {"{{ 1", "+1", " }}"},
        {"{{ x", "|list", " }}"},
        {"{{ x", ".a", " }}"},
        {"", "{% if 1 %}", ""},
        {"", "{% for a in b %}", ""},
        {"{{ ", "a(", ""},
        {"{{ 1", " if 1 else 1", " }}"},
        {"{{ a", "[a", ""},
        {"{{ 1", " and 1", " }}"},
        {"{% set ", "(", ""},
        {"{% for ", "(", ""},
        {"{{ x is a", "(x is a", ""},
        {"", "{% macro m() %}", ""},
        {"", "{% call m() %}", ""},
        {"", "{% set a %}", ""},
        {"{{ 1", "**1", " }}"},
        {"{{ x", "[0]", " }}"},
        {"{{ x", "()", " }}"},
    };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(shapes); i++) {
        mn_text t = {0};
        mn_text_puts(&t, shapes[i].before);
        for (int k = 0; k < 20000; k++)
            mn_text_puts(&t, shapes[i].piece);
        mn_text_puts(&t, shapes[i].after);
        must_fail(shapes[i].piece, (mn_str){t.ptr, t.len}, mn_str_of("{}"));
        mn_text_free(&t);
    }
}

static void endless(void **state) {
    static const char *const sources[] = {
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ [1] * 1000000000 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:>999999999}'.format(1) }}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% "
        "endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% "
        "endfor %}{{ "
        "ns.s|tojson }}",
        "{% set a = namespace(s=[1]) %}{% set b = namespace(s=[1]) %}{% for i in range(60) %}{% "
        "set a.s = [a.s, a.s] "
        "%}{% set b.s = [b.s, b.s] %}{% endfor %}{{ a.s == b.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor "
        "%}{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = (ns.s,) %}{% "
        "endfor %}{{ {ns.s: 1} }}",
        "{% set ns = namespace() %}{% set ns.s = ns %}{{ ns }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(a=m()) %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if s.rsplit('a' * 500000 ~ 'b') "
        "== 1 %}{% endif %}{% "
        "endfor %}",
        "{% set s = 'a' * 1000000 %}{% set t = ('b' * 1000000) ~ 'a' %}{% for i in range(99999) "
        "%}{% set x = "
        "s.strip(t) %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set x = s|length %}{% set y = s "
        "in s ~ 'b' %}{% "
        "endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set x = s|capitalize %}{% set y "
        "= "
        "s == s %}{% endfor "
        "%}",
        "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{{ s[-1] }}{% set y = s.isdigit() "
        "or s.find('b') or "
        "s.count('a') %}{% endfor %}",
        "{{ 9**99999999 }}",
        "{{ 2**-1 < 'a' }}",
        "{{ 1|round(999999999999) < 'x' }}",
        "{{ 'x'|indent(999999999) }}",
        "{{ d|tojson(indent=99999999999) }}",
        "{{ [[1]]|tojson(indent=99999999) }}",
        "{{ 'aaa'|replace('', 'x' * 10000000) }}",
        "{{ -9223372036854775807 - 2 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ strftime_now('%9999999d' * 200) }}",
        "{% set ns = namespace(d={}) %}{% for i in range(99999) %}{% set ns.d = dict(ns.d, **{'k' "
        "~ i: i}) %}{% endfor "
        "%}",
    };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(sources); i++)
        must_fail(sources[i], mn_str_of(sources[i]), (mn_str){0});
    /* with all of the work allowed, the limits of text and memory come first */
    must_fail("text", mn_str_of("{{ 'x' * 100000000 }}"), mn_str_of("{}"));
    must_fail("memory",
              mn_str_of("{% set ns = namespace(l=[]) %}{% for i in range(30) %}{% set ns.l = ns.l "
                        "+ [0] * 10 ** 6 %}{% endfor %}"),
              mn_str_of("{}"));
}

/* ---- work is charged by length --------------------------------------------------------------- */

enum { LONG = 5000, KEYS = 200 }; /* elements and bytes; keys of a dict */

static bool put_text(mn_jctx *c, mn_jdict *vars, const char *name, const char *unit, size_t n) {
    mn_jval key, v;
    char *p = mn_jalloc(c, n, 1);
    const size_t len = strlen(unit);
    for (size_t i = 0; p && i < n; i++)
        p[i] = unit[i % len];
    return p && mn_j_string(c, (mn_jstr){p, NULL, n, 1}, &v) && mn_j_literal(c, name, &key) &&
           mn_jdict_set(c, vars, key, v);
}

/* l: numbers, words: strings, pairs: dicts; floats */
static bool put_lists(mn_jctx *c, mn_jdict *vars) {
    mn_jlist *l = mn_jlist_new(c, LONG), *words = mn_jlist_new(c, LONG),
             *dicts = mn_jlist_new(c, LONG), *floats = mn_jlist_new(c, LONG);
    mn_jdict *d = mn_jdict_new(c);
    mn_jval key, word;
    if (!l || !words || !dicts || !floats || !d || !mn_j_literal(c, "a", &key) ||
        !mn_j_literal(c, "b", &word) || !mn_jdict_set(c, d, key, word) ||
        !mn_j_literal(c, "n", &key) || !mn_jdict_set(c, d, key, mn_j_int(1)))
        return false;
    for (int i = 0; i < LONG; i++)
        if (!mn_jlist_add(c, l, mn_j_int(i % 7)) || !mn_jlist_add(c, words, word) ||
            !mn_jlist_add(c, dicts, mn_j_dictval(d)) || !mn_jlist_add(c, floats, mn_j_float(0.1)))
            return false;
    const struct {
        const char *name;
        mn_jval v;
    } all[] = {{"l", mn_j_listval(MN_J_LIST, l)},
               {"t", mn_j_listval(MN_J_TUPLE, l)},
               {"words", mn_j_listval(MN_J_LIST, words)},
               {"dicts", mn_j_listval(MN_J_LIST, dicts)},
               {"floats", mn_j_listval(MN_J_LIST, floats)}};
    for (size_t i = 0; i < MN_COUNT(all); i++)
        if (!mn_j_literal(c, all[i].name, &key) || !mn_jdict_set(c, vars, key, all[i].v))
            return false;
    return true;
}

/* d: keys of one length that differ at their end; n: numbers as keys */
static bool put_dicts(mn_jctx *c, mn_jdict *vars) {
    enum { LENGTH = 200 };
    mn_jdict *d = mn_jdict_new(c), *n = mn_jdict_new(c);
    mn_jval key;
    char *text = mn_jalloc(c, KEYS * (LENGTH + 1), 1);
    if (!d || !n || !text)
        return false;
    for (int i = 0; i < KEYS; i++) {
        char *one = text + (size_t)i * (LENGTH + 1);
        memset(one, 'k', LENGTH);
        one[LENGTH - 1 - i / 256] = (char)('0' + i % 256 % 10);
        one[LENGTH - 8 - i / 10 % 100] = 'x';
        if (!mn_j_literal(c, one, &key) || !mn_jdict_set(c, d, key, mn_j_int(i)) ||
            !mn_jdict_set(c, n, mn_j_int(i), mn_j_int(i)))
            return false;
    }
    return mn_j_literal(c, "d", &key) && mn_jdict_set(c, vars, key, mn_j_dictval(d)) &&
           mn_j_literal(c, "n", &key) && mn_jdict_set(c, vars, key, mn_j_dictval(n));
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct {
    uint64_t steps;
    double start; /* of the template's own work */
} allowance;

/* Long values; then all work but the allowance is spent, so that a case is soon over. */
static bool long_vars(mn_jctx *c, mn_jdict *vars, const void *arg) {
    allowance *left = *(allowance *const *)arg;
    if (!put_lists(c, vars) || !put_dicts(c, vars) || !put_text(c, vars, "s", "a", LONG) ||
        !put_text(c, vars, "s2", "a", LONG) || !put_text(c, vars, "spaces", " ", LONG) ||
        !put_text(c, vars, "lines", "ab\n", LONG) || !put_text(c, vars, "e", "\xC3\xA9", LONG) ||
        !put_text(c, vars, "digits", "7", LONG) || !put_text(c, vars, "key", "k", 200))
        return false;
    left->start = cpu_seconds();
    c->work = 0;
    return mn_jcharge(c, MN_J_PER_ITEM, MN_J_STEPS - left->steps);
}

/* An expression evaluated again and again must end with the error of a budget, before so many
 * rounds. Returns the seconds of CPU; their limit is there for a hang alone. */
static double spends(const char *expression, uint64_t steps, uint64_t rounds) {
    mn_text source = {0}, out = {0};
    mn_error err = MN_ERROR_INIT;
    mn_jinja *t = NULL;
    mn_text_printf(&source,
                   "{%% macro m(a=1) %%}{{ kwargs }}{%% endmacro %%}"
                   "{%% for i in range(9999) %%}{%% for j in range(9999) %%}"
                   "{%% if i * 9999 + j >= %llu %%}{{ raise_exception('too cheap') }}{%% endif %%}"
                   "{%% set x = %s %%}{%% endfor %%}{%% endfor %%}",
                   (unsigned long long)rounds, expression);
    mn_status st = mn_jinja_parse((mn_str){source.ptr, source.len}, &t, &err);
    if (st)
        fail_msg("%s: %s", expression, err.msg);
    allowance left = {steps, 0}, *arg = &left;
    st = mn_jinja_render_with(t, long_vars, &arg, 0, &out, NULL, &err);
    const double s = cpu_seconds() - left.start;
    if (st != MN_BAD_INPUT || (!strstr(err.msg, "runs too long") && !strstr(err.msg, " MiB")))
        fail_msg("%s: %s", expression, st ? err.msg : "no error");
    if (s > 20)
        fail_msg("%s: %.1f s of CPU", expression, s);
    mn_jinja_free(t);
    mn_text_free(&source);
    mn_text_free(&out);
    return s;
}

/* each: the least of work in 64ths of a step that a round must be charged */
static void spend_all(const char *const *expressions, size_t n, uint64_t steps, uint64_t each) {
    double most = 0;
    const char *which = "";
    for (size_t i = 0; i < n; i++) {
        const double s = spends(expressions[i], steps, steps * 64 / each);
        if (getenv("VERBOSE"))
            printf("%8.1f ms  %s\n", s * 1e3, expressions[i]);
        if (s > most)
            which = expressions[i];
        most = MN_MAX(most, s);
    }
    printf("%llu steps: at most %.1f ms: %s\n", (unsigned long long)steps, most * 1e3, which);
}

static void work_on_lists(void **state) {
    static const char *const all[] = {
        "l|min",
        "l|max",
        "words|min",
        "dicts|max(attribute='a')",
        "l|sum",
        "dicts|sum(attribute='n')",
        "floats|sum",
        "l|select",
        "l|reject",
        "l|select('odd')",
        "l|reject('odd')",
        "dicts|selectattr('a')",
        "dicts|selectattr('a', 'eq', 'c')",
        "dicts|rejectattr('a')",
        "dicts|map(attribute='a.b')",
        "words|map('upper')",
        "words|map('length')",
        "l|map('nothing') if none else l|list",
        "l == t|list",
        "l != t|list",
        "l < t|list",
        "words < words",
        "l is eq(l)",
        "l is ge(l)",
        "l is sameas(l) and l is in([1, l])",
        "9 in l",
        "9 not in t",
        "'c' in words",
        "9 is in(l)",
        "l.count(9)",
        "t.count(9)",
        "l.index(5, 5) and l.count(1.5)",
        "l|sort",
        "words|sort",
        "dicts|sort(attribute='a,b')",
        "l|unique",
        "l|join",
        "words|join(',')",
        "'-'.join(words)",
        "l|list",
        "l|reverse",
        "l|items if none else t|list",
        "l[::-1]",
        "l[:]",
        "t[1:]",
        "l + l",
        "t + t",
        "l * 2",
        "l|tojson",
        "words|tojson",
        "floats|tojson",
        "l|string",
        "l ~ ''",
        "floats ~ ''",
        "'%s' % (l,)",
        "'%r' % (words,)",
        "'{}'.format(l)",
        "'{!r}'.format(words)",
        "loop.changed(l)",
        "loop.cycle(*l)",
        "{t: 1}",
        "n.get(t)",
        "t in n",
        "l|default(l)|list",
        "l|format if none else l|upper",
        "l|random if none else l|length and l|lower",
    };
    (void)state;
    spend_all(all, MN_COUNT(all), 100000, LONG);
}

static void work_on_dicts(void **state) {
    static const char *const all[] = {
        "d[key]",
        "d[s]",
        "d.x",
        "d|attr('x') or d.get(key)",
        "d.get(key, 1)",
        "n[-1]",
        "n.get(1.5)",
        "key in d",
        "key is in(d)",
        "d == d",
        "n == n",
        "n != dict(n)",
        "d|dictsort",
        "d|dictsort(by='value')",
        "d|items",
        "d.items()",
        "d.keys()",
        "d.values()",
        "d|list",
        "d|tojson",
        "d|tojson(sort_keys=true)",
        "d ~ ''",
        "dict(d)",
        "dict(d.items())",
        "namespace(**d)",
        "m(**d)",
        "dict(**d)",
        "'{kkk}'.format(kkk=1, **d)",
        "'%(a)s' % dict(d, a=1)",
        "d|first",
        "d|join",
        "d|length and d|sort",
    };
    (void)state;
    spend_all(all, MN_COUNT(all), 100000, KEYS * MN_J_PER_SLOT);
}

static void work_on_strings(void **state) {
    static const char *const all[] = {
        "s == s2",
        "s != s2",
        "s < s2",
        "s is ge(s2)",
        "'b' in s",
        "'ab' in s",
        "('a' * 127 ~ 'b' ~ 'a' * 128) in s",
        "('a' * 1000 ~ 'b' ~ 'a' * 1000) in s",
        "'b' is in(s)",
        "s.find('b')",
        "s.find('b', 1, -1)",
        "s.rfind('b')",
        "s.rfind('a' * 500 ~ 'b')",
        "s.rfind('ba')",
        "s.count('b')",
        "s.count('a')",
        "s.count('')if none else s.count('aa', 1)",
        "s.index('a', 4999)",
        "s.rindex('a', 0, 5)",
        "s.partition('b')",
        "s.rpartition('b')",
        "s.partition('a' * 200 ~ 'b')",
        "s.split('b')",
        "s.split('a')",
        "s.split()",
        "s.rsplit()",
        "lines.split()",
        "lines.rsplit()",
        "s.rsplit('b')",
        "s.rsplit('a' * 500 ~ 'b')",
        "lines.splitlines()",
        "s.splitlines(true)",
        "s.strip('ba')",
        "s.strip('bcdefgh' ~ 'a')",
        "s.lstrip('a')",
        "s.rstrip(s)",
        "spaces.strip()",
        "spaces|trim",
        "spaces|int",
        "spaces|float",
        "s.replace('b', 'c')",
        "s.replace('a', 'c')",
        "s|replace('', '-')",
        "s.upper()",
        "e.upper()",
        "e|lower",
        "e|title",
        "e|capitalize",
        "e.title()",
        "e.isalpha()",
        "e.isalnum()",
        "digits.isdigit()",
        "spaces.isspace()",
        "s.isupper() or s.islower()",
        "s is lower",
        "e is upper",
        "s.startswith(s2)",
        "s.endswith(s2)",
        "s.startswith((s2 ~ 'b', s2))",
        "s.startswith('a', 4999)",
        "s.removeprefix(s2)",
        "s.removesuffix(s2)",
        "e[1000]",
        "e[-1]",
        "e[1:-1]",
        "e[::-1]",
        "e[::2]",
        "e|length",
        "e|list",
        "e|first",
        "e|last",
        "e|reverse",
        "e|unique",
        "lines|indent",
        "e|tojson",
        "e|tojson(ensure_ascii=true)",
        "'%r' % e",
        "'{!r}'.format(e)",
        "'%.9000s' % e",
        "s|format",
        "s % ()",
        "s.format()",
        "('{}' * 4000).format(*l)",
        "s ~ s",
        "s + s",
        "s * 2",
        "'c'.join(s)",
        "dicts|map(attribute=s)",
        "e.encode() if e[5:6] is none else e[1000:]",
    };
    (void)state;
    spend_all(all, MN_COUNT(all), 100000, LONG);
}

/* What costs much at once, and look-ups in what is long. */
static void work_on_numbers(void **state) {
    static const char *const all[] = {
        "0.1 ~ ''",
        "1.5e9|round(290)",
        "1.5|round(-200)",
        "'%.299f' % 1e300",
        "'%i' % 1e15",
        "'{:.299f}'.format(1e300)",
        "'{:+f}'.format(1e15)",
        "'1.5'|float",
        "'1_0'|int",
        "strftime_now('%c' * 500)",
        "strftime_now('%Y')",
        "(2 ** 62) ~ ''",
        "loop.index + loop.length + loop.revindex",
        "1 is greaterthan(2)",
        "1|abs",
        "1 is divisibleby(3)",
        "d|attr(s)",
        "range(99999)",
        "namespace(a=1).a",
        "m()",
        "joiner()",
    };
    (void)state;
    spend_all(all, MN_COUNT(all), 100000, 64);
}

/* The whole budget, on what was named. */
static void whole_budget(void **state) {
    static const char *const all[] = {
        "l|min", "l|sum",  "l|select",         "l == t|list",
        "d[s]",  "d[key]", "s.partition('b')", "('a' * 127 ~ 'b' ~ 'a' * 128) in s"};
    (void)state;
    spend_all(all, MN_COUNT(all), MN_J_STEPS, 64);
}

/* Thousands of names: of variables, of scopes around, of a call's keywords. */
static void work_on_names(void **state) {
    (void)state;
    mn_text vars = {0}, call = {0}, deep = {0};
    mn_text_puts(&vars, "{");
    mn_text_puts(&call, "{{ m(");
    for (int i = 0; i < 30000; i++) {
        mn_text_printf(&vars, "%s\"name%05d\": 1", i ? ", " : "", i);
        mn_text_printf(&call, "%sname%05d=1", i ? ", " : "", i);
    }
    mn_text_puts(&vars, "}");
    mn_text_puts(&call, ") }}");
    for (int i = 0; i < 150; i++)
        mn_text_printf(&deep, "{%% with a%d = 1 %%}", i);
    mn_text_puts(&deep, "{% for i in range(99999) %}{% for j in range(99999) %}{% macro f() %}"
                        "{% endmacro %}{{ nothing }}{{ f() }}{% endfor %}{% endfor %}");
    for (int i = 0; i < 150; i++)
        mn_text_puts(&deep, "{% endwith %}");
    must_fail("many variables", mn_str_of("{{ 1 }}"), (mn_str){vars.ptr, vars.len});
    must_fail("many keywords", (mn_str){call.ptr, call.len}, mn_str_of("{}"));
    must_fail("deep scopes", (mn_str){deep.ptr, deep.len}, mn_str_of("{}"));
    mn_text_free(&vars);
    mn_text_free(&call);
    mn_text_free(&deep);
}

/* Every prefix of a template: mostly unterminated things. */
static void prefixes(void **state) {
    (void)state;
    mn_str vars = mn_str_of(VARS);
    for (size_t n = 0; n <= strlen(feature_template); n++) {
        char *copy = malloc(n + 1); // exact size: reads past the end are seen
        memcpy(copy, feature_template, n);
        mn_text out = {0};
        mn_error err = MN_ERROR_INIT;
        mn_status status = render((mn_str){copy, n}, vars, &out, &err);
        if (n == strlen(feature_template) && status != MN_OK)
            fail_msg("%s", err.msg);
        mn_text_free(&out);
        free(copy);
    }
}

static uint32_t next_random(uint32_t *s) {
    return *s ^= *s << 13, *s ^= *s >> 17, *s ^= *s << 5;
}

static void mutate(char *p, size_t n, uint32_t *seed) {
    static const char *const bits[] = {"{{",   "}}", "{%", "%}", "{#", "-", "|",  "'",
                                       "\\",   "(",  ")",  "[",  "]",  ":", "**", "\xff",
                                       "\xc3", "0",  "e",  ".",  "\n", "%", "is", "in "};
    for (uint32_t k = next_random(seed) % 4 + 1; k; k--) {
        size_t at = next_random(seed) % n;
        const char *bit = bits[next_random(seed) % MN_COUNT(bits)];
        if (next_random(seed) % 3 == 0)
            p[at] = p[next_random(seed) % n];
        else
            memcpy(p + at, bit, MN_MIN(strlen(bit), n - at));
    }
}

static void fuzz(mn_str source, int rounds, mn_str vars) {
    uint32_t seed = 0x9E3779B9;
    for (int i = 0; i < rounds; i++) {
        char *copy = malloc((size_t)source.len);
        memcpy(copy, source.ptr, (size_t)source.len);
        mutate(copy, (size_t)source.len, &seed);
        mn_text out = {0};
        mn_error err = MN_ERROR_INIT;
        render((mn_str){copy, source.len}, vars, &out, &err);
        mn_text_free(&out);
        free(copy);
    }
}

static void mutations(void **state) {
    (void)state;
    mn_str vars = mn_str_of(VARS);
    fuzz(mn_str_of(feature_template), 6000, vars);
    static const char *const names[] = {"openai-gpt-oss-120b",
                                        "mistralai-Mistral-Nemo-Instruct-2407", "Qwen-Qwen3-0.6B",
                                        "meta-llama-Llama-3.1-8B-Instruct"};
    const char *shared = getenv("MINERVA_SHARED"), *root = getenv("MINERVA_SOURCE_ROOT");
    for (size_t i = 0; i < MN_COUNT(names); i++) {
        mn_text path = {0};
        char *text = NULL;
        uint64_t n;
        if (shared)
            mn_text_printf(&path, "%s/templates/%s.jinja", shared, names[i]);
        else
            mn_text_printf(&path, "%s/../shared/templates/%s.jinja", root ? root : ".", names[i]);
        if (mn_read_file(path.ptr, 1 << 20, &text, &n, NULL) == MN_OK)
            fuzz((mn_str){text, n}, 500, vars);
        else
            printf("skipped: no %s\n", path.ptr);
        mn_free(text);
        mn_text_free(&path);
    }
}

static void allocation_failures(void **state) {
    (void)state;
    mn_str vars = mn_str_of(VARS);
    mn_status status = MN_OUT_OF_MEMORY;
    int64_t k = 0;
    for (; status == MN_OUT_OF_MEMORY && k < 100000; k++) {
        mn_text out = {0};
        mn_error err = MN_ERROR_INIT;
        mn_alloc_fail_after(k);
        status = render(mn_str_of(feature_template), vars, &out, &err);
        mn_alloc_fail_after(-1);
        if (status != MN_OK)
            assert_int_equal(out.len, 0);
        mn_text_free(&out);
    }
    assert_int_equal(status, MN_OK);
    assert_true(k > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deep_nesting),       cmocka_unit_test(endless),
        cmocka_unit_test(work_on_lists),      cmocka_unit_test(work_on_dicts),
        cmocka_unit_test(work_on_strings),    cmocka_unit_test(work_on_numbers),
        cmocka_unit_test(work_on_names),      cmocka_unit_test(whole_budget),
        cmocka_unit_test(prefixes),           cmocka_unit_test(mutations),
        cmocka_unit_test(allocation_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
