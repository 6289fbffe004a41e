/* Templates made to break the engine: each must end with text or an error, soon. */
#include "text/jinja.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    "{{ 'a b c'.split()[::-1] }}{{ {'a': [1, (2,)]} }}{{ messages | groupby('role') | length }}{{ "
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

static void must_fail(const char *what, mn_str source, mn_str vars) {
    mn_text out = {0};
    mn_error err = MN_ERROR_INIT;
    uint64_t start = mn_now_ns();
    if (render(source, vars, &out, &err) == MN_OK)
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
        "{{ 'x'|center(1000000000) }}",
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
        "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set x = s|wordcount %}{% set y = "
        "s == s %}{% endfor "
        "%}",
        "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{{ s[-1] }}{% set y = s.isdigit() "
        "or s.find('b') or "
        "s.count('a') %}{% endfor %}",
        "{{ 9**99999999 }}",
        "{{ 2**-1 < 'a' }}",
        "{{ 1|round(999999999999) < 'x' }}",
        "{{ 'x'|indent(999999999) }}",
        "{{ [1]|batch(999999999, 1)|list }}",
        "{{ [1]|slice(999999999)|list }}",
        "{{ d|tojson(indent=99999999999) }}",
        "{{ [[1]]|tojson(indent=99999999) }}",
        "{{ 'aaa'|replace('', 'x' * 30000000) }}",
        "{{ -9223372036854775807 - 2 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ strftime_now('%9999999d' * 200) }}",
        "{% set ns = namespace(d={}) %}{% for i in range(99999) %}{% set ns.d = dict(ns.d, **{'k' "
        "~ i: i}) %}{% endfor "
        "%}",
    };
    (void)state;
    for (size_t i = 0; i < MN_COUNT(sources); i++)
        must_fail(sources[i], mn_str_of(sources[i]), mn_str_of("{}"));
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(deep_nesting), cmocka_unit_test(endless),
                                       cmocka_unit_test(prefixes), cmocka_unit_test(mutations),
                                       cmocka_unit_test(allocation_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
