"""Renders templates by Jinja2, set up as Transformers does, and by jinja_render; both must give the same bytes, or both refuse.

usage: jinja_oracle.py JINJA_RENDER
"""
import functools, glob, json, os, subprocess, sys, time, datetime

try:
    import jinja2, jinja2.ext, jinja2.sandbox
except ImportError:
    print("skipped: python3 has no jinja2")
    sys.exit(77)

os.environ.setdefault("TZ", "UTC")
NOW = 1767225600 + 12345


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = refuse
env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)

# ---- data ----
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city.\nNow.", "parameters": {
    "type": "object", "properties": {
        "city": {"type": "string", "description": "Städtename \"x\" <b>"},
        "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
        "days": {"type": "integer", "default": 3}, "when": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}, "nullable": True},
        "nested": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "array", "items": {"type": "object", "properties": {}}}}, "required": ["a"]},
        "any": {"oneOf": [{"type": "string", "description": "d", "default": "q"}, {"type": "number"}]},
        "flag": {"type": "boolean", "default": False}},
    "required": ["city"]}, "return": {"type": "string"}}}
TOOL2 = {"type": "function", "function": {"name": "noop", "description": "Nothing", "parameters": {"type": "object", "properties": {}}}}


def msg(role, content, **more):
    return dict(role=role, content=content, **more)


CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "x": [1, None, 2.5]}}}
CHATS = {
    "empty": [],
    "user": [msg("user", "Hello")],
    "empty content": [msg("user", "")],
    "system": [msg("system", "Be brief."), msg("user", "Hi")],
    "system only": [msg("system", "Be brief.")],
    "developer": [msg("developer", "Be brief."), msg("user", "Hi")],
    "multi": [msg("user", " a "), msg("assistant", "\n\nb\n"), msg("user", "c"), msg("assistant", "d")],
    "multi with system": [msg("system", "S /no_think "), msg("user", "a"), msg("assistant", "b"), msg("user", "c")],
    "late system": [msg("user", "a"), msg("system", "b"), msg("user", "c")],
    "wrong order": [msg("user", "a"), msg("user", "b")],
    "starts with assistant": [msg("assistant", "a"), msg("user", "b")],
    "non-ascii": [msg("system", "Überlänge"), msg("user", "日本語 🎉\u00a0\u2028é\u0301"), msg("assistant", "ßΣ\t"), msg("user", "<|eot_id|><|im_end|> {{ x }} {% if %}")],
    "thinking": [msg("user", "q"), msg("assistant", "<think>\nhm\n</think>\n\nanswer"), msg("user", "r"), msg("assistant", "<think>x</think>y")],
    "reasoning": [msg("user", "q"), msg("assistant", "a", reasoning_content="because", thinking="hm"), msg("user", "r")],
    "none content": [msg("user", "q"), msg("assistant", None)],
    "odd role": [msg("narrator", "q")],
    "call": [msg("user", "Weather?"), msg("assistant", "", tool_calls=[CALL]), msg("tool", "sunny", tool_call_id="abcdefghi"), msg("assistant", "It is sunny."), msg("user", "ok")],
    "call open": [msg("user", "Weather?"), msg("assistant", None, tool_calls=[CALL]), msg("tool", {"t": 20, "content": "x"}, tool_call_id="abcdefghi")],
    "call no content": [msg("system", "s"), msg("user", "Weather?"), dict(role="assistant", tool_calls=[CALL]), msg("tool", '{"t": 20}', name="get_weather")],
    "two calls": [msg("user", "W?"), msg("assistant", "x", tool_calls=[CALL, CALL]), msg("tool", "1"), msg("tool", "2"), msg("user", "ok")],
    "bare call": [msg("user", "W?"), msg("assistant", "", tool_calls=[CALL["function"]]), msg("tool", "1", tool_call_id="short")],
    "orphan tool": [msg("tool", "1")],
    "parts": [msg("user", [{"type": "text", "text": "hi"}])],
    "channel": [msg("user", "a"), msg("assistant", "<|channel|>final<|message|>x")],
}
EXTRA = [{}, {"tools": [TOOL, TOOL2]}, {"tools": [TOOL], "tools_in_user_message": False}, {"enable_thinking": False}, {"enable_thinking": True},
         {"builtin_tools": ["browser", "python", "code_interpreter", "get_weather"], "reasoning_effort": "high", "date_string": "1 Jan"},
         {"documents": None, "tools": None, "custom_tools": [TOOL2], "model_identity": "I."}]

# ---- templates of our own: every feature ----
INLINE = r"""
{{ name }} {{ missing }} {{ none }} {{ yes }} {{ 1.0 }} {{ 1e20 }} {{ 1e16 }} {{ 123456789012345.0 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 0.0001 }} {{ 5e-324 }} {{ 1.5e300 }}
===
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 % 2 }} {{ -7.5 // 2 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }}
===
{{ true + 1 }} {{ 'ab' * 3 }} {{ [1] * 2 }} {{ 2 * (1, 2) }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'a' ~ 1 ~ none ~ 1.5 ~ [1] }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }}
===
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 in [1] }} {{ 'b' in 'abc' }} {{ 'z' not in d }} {{ 'a' in d }} {{ not 1 in [2] }} {{ 1 != 2 }} {{ x is not defined }}
===
{{ 1 and 2 }} {{ 0 or 'x' }} {{ none or 0 }} {{ not [] }} {{ missing or 'd' }} {{ missing and 1 }} {{ 1 if 0 else 2 if 0 else 3 }} {{ 1 if 0 }} {{ [] or {} or '' or 5 }}
===
{{ 'a' in missing }} {{ missing == missing2 }} {{ missing is defined }} {{ missing|length }} {{ missing|list }} {{ missing|join }} {{ missing ~ 'x' }} {% for x in missing %}x{% else %}e{% endfor %}
===
{{ missing.x }}
===
{{ missing['x'] }}
===
{{ missing + 'x' }}
===
{{ 'x' + missing }}
===
{{ missing() }}
===
{{ d.zzz.yyy }}
===
{{ none.x }}|{{ none['x'] }}|{{ 1 .x }}|{{ d.zzz }}|{{ list[99] }}|{{ 'abc'[7] }}|{{ d['q'] }}|{{ list['x'] }}
===
{{ none.x.y }}
===
{{ 'a' + 1 }}
===
{{ 1 / 0 }}
===
{{ 1 < 'a' }}
===
{{ 1 in 1 }}
===
{{ 1 in 'a' }}
===
{{ 'abcdef'[1:4] }} {{ 'abcdef'[:-1] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[::2] }} {{ 'abcdef'[-3:] }} {{ 'abcdef'[4:1] }} {{ 'abcdef'[4:1:-1] }} {{ 'abcdef'[10:] }} {{ 'abcdef'[-100:2] }} {{ uni[1:3] }} {{ uni[::-1] }} {{ uni[2] }}
===
{{ list[1:] }} {{ list[::-1] }} {{ list[-1] }} {{ (1, 2, 3)[1:] }} {{ list[:0] }} {{ list[5:1:-2] }} {{ list[::3] }} {{ nested[0].a.b[1] }} {{ nested.0.a }} {{ list.0 }}
===
{{ [1, 'a', "it's", 'q"', 'b\'"', none, true, 1.5, (1,), (), {}, {'a': [1]}, 'é\n\t\\', '\x00\x7f\u200b'] }}
===
{{ {'a': 1, 'b': {'c': []}} }} {{ {1: 2, none: 3, (1, 2): 4, 1.5: 1} }} {{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict(d, z=1) }} {{ {'a': 1, 'a': 2} }}
===
{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d.get('a') }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.items()|list }} {{ d|items|list }} {{ missing|items|list }} {{ d.items()|length }}
===
{{ range(5) }} {{ range(5)|list }} {{ range(1, 10, 3)|list }} {{ range(5, 0, -1)|list }} {{ range(3)[1] }} {{ range(0)|list }} {{ 3 in range(5) }} {{ range(1, 10, 2) }}
===
{{ "a\tb\n\x41\u00e9\U0001f389\101\q\'\"\\" 'b' "c" }} {{ 'multi
line' }}
===
{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5 }} {{ 1e3 }} {{ 1.5E-2 }} {{ -3 }} {{ +3 }} {{ - 3 | abs }} {{ 00 }}
===
{% if n > 2 %}a{% elif n > 1 %}b{% else %}c{% endif %}{% if n == 1 %}a{% elif n == 3 %}b{% endif %}{% if not n %}x{% endif %}
===
{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 2) }}{{ loop.depth }}
{% endfor %}
===
{% for x in list if x is odd %}{{ x }}{{ loop.length }}{{ loop.last }}{{ loop.nextitem }}{% else %}none{% endfor %}{% for x in list if x > 99 %}{{ x }}{% else %}none{% endfor %}
===
{% set ns = namespace(stop=false) %}{% for x in list if not ns.stop %}{{ x }}{% if x == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}
===
{% for x in list %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
===
{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in uni %}{{ c }},{% endfor %}{% for k, v in d|dictsort(reverse=true) %}{{ k }}{% endfor %}
===
{% for a, b in [(1, 2, 3)] %}{% endfor %}
===
{% for x in 5 %}{% endfor %}
===
{% for x in none %}{% endfor %}
===
{% for i in tree recursive %}{{ i.v }}{{ loop.depth }}{% if i.c %}({{ loop(i.c) }}){% endif %}{% endfor %}
===
{% for x in [1, 2] %}{% for y in [3, 4] %}{{ loop.index }}{{ x }}{{ y }}{% endfor %}{{ loop.index }}{% endfor %}
===
{% set x = 1 %}{% for i in list %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
===
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}{% set t = 1, %}{{ t }}{% set u = 1, 2 %}{{ u }}
===
{% set x %}a {{ n }} b{% endset %}[{{ x }}]{% set y | upper | replace('B', 'Q') %}a b{% endset %}{{ y }}
===
{% set ns = namespace(a=1, b='x') %}{% set ns.c = ns.a + 1 %}{{ ns.a }}{{ ns.c }}{{ ns.zzz }}{% set ns2 = namespace({'q': 1}) %}{{ ns2.q }}{% set ns.d = [ns.a] %}{{ ns.d }}
===
{% set q = {} %}{% set q.x = 1 %}
===
{% macro m(a, b=2, c='x') %}[{{ a }}|{{ b }}|{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=4) }}{{ m(c=1, a=2) }}{{ m() }}{{ m(*[1, 2]) }}{{ m(**{'a': 5}) }}{{ m(1)|upper }}{{ m.name }}
===
{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}
===
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
===
{% macro m(a) %}{% endmacro %}{{ m(z=2) }}
===
{% macro m(t) %}<{{ t }}>{{ caller() }}{{ caller() }}</{{ t }}>{% endmacro %}{% call m('b') %}x{{ n }}{% endcall %}{% macro l(xs) %}{% for x in xs %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(i) l(list) %}({{ i }}){% endcall %}
===
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1)|int }}{% endif %}{% endmacro %}{{ fact(10) }}
===
{% set g = 'outer' %}{% macro m() %}{{ g }}{% set g = 'inner' %}{{ g }}{% endmacro %}{{ m() }}{{ g }}
===
{% filter upper %}abc {{ name }}{% endfilter %}{% filter replace('a', 'b')|upper %}aa{% endfilter %}{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}
===
{% generation %}gen {{ n }}
{% endgeneration %}
after
===
   {% if true %}
  indented
    {%- if true %}
  x
    {%- endif %}
   {% endif %}

  {{ n }}
  {# comment #}
text {# c -#}   y
  {%+ if true %}keep{% endif %}
z {% if true +%}
  w{% endif %}
===
a
{%- for x in [1, 2] -%}
  {{ x }}
{%- endfor -%}
b {{- n -}} c {{ n -}}
  d
===
{% raw %}{{ a }} {% if %}{% endraw %} {%- raw -%}  x  {%- endraw -%}  y
  {% raw %}
  z
  {% endraw %}
===
{{ '{{' }} {{ '%}' }} {{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}.a.b }}
===
{{ '  x y  '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ '  x'.lstrip() }}|{{ 'x  '.rstrip() }}|{{ 'abc'.lstrip('ab') }}|{{ '\u00a0é\u3000'.strip() }}|{{ 'ab'.strip(none) }}|{{ uni.strip('日') }}
===
{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a  b '.split() }}{{ ' a  b c '.split(none, 1) }}{{ ' a b c '.rsplit(none, 1) }}{{ ''.split() }}{{ ''.split(',') }}{{ 'abab'.split('ab') }}{{ 'a\nb\r\nc'.splitlines() }}{{ 'a\n'.splitlines(true) }}{{ 'aXbXc'.rsplit('X') }}
===
{{ 'abc'.startswith('a') }}{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith('bc') }}{{ 'abc'.endswith('') }}{{ 'aBc Dé'.upper() }}{{ 'ABCÉ'.lower() }}{{ "they're ok x1y".title() }}{{ 'hELLO wORLD'.capitalize() }}{{ 'ß ŉ ﬁ'.upper() }}{{ 'ΑΣ ΑΣΑ'.lower() }}{{ 'ǆ'.title() }}
===
{{ 'aaa'.replace('a', 'b') }}{{ 'aaa'.replace('a', 'b', 2) }}{{ 'abc'.replace('', '-') }}{{ ''.replace('', 'x') }}{{ 'abc'.replace('', '-', 2) }}{{ 'aé'.replace('é', '') }}{{ 'abc'|replace('b', 5) }}
===
{{ 'abcabc'.find('c') }}{{ 'abcabc'.rfind('c') }}{{ 'abc'.find('z') }}{{ 'éaé'.find('é', 1) }}{{ 'abc'.index('b') }}{{ 'aaaa'.count('aa') }}{{ 'abc'.count('') }}{{ 'éé'.find('') }}{{ 'abc'.find('c', 0, 2) }}{{ 'abc'.find('', 3) }}{{ 'abc'.find('', 4) }}
===
{{ 'abc'.index('z') }}
===
{{ ','.join(['a', 'b']) }}{{ ','.join('abc') }}{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ 'AB1'.isupper() }}{{ 'ab'.islower() }}{{ '1'.isupper() }}{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'a.b.c'.partition('.') }}{{ 'a.b.c'.rpartition('.') }}{{ 'abc'.partition('z') }}
===
{{ ','.join([1]) }}
===
{{ [1].append(2) }}
===
{{ d.update({'a': 1}) }}
===
{{ d.pop('a') }}
===
{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}
===
{{ '%s %d %5.2f %-5s| %05d %i %f %r %% %+d % d %+08.2f %-6d|' % ('a', 3.7, 2.345, 'b', 42, -255, 12345.678, 'q', 5, 5, -2.5, 7) }} {{ '%(a)s-%(b)s' % d }} {{ '%s' % 5 }} {{ '%s' % [1] }} {{ '%5s|%.2s' % ('é', 'abc') }} {{ '%s, %s'|format('a', 1) }} {{ '%(x)d'|format(x=3) }}
===
{{ '%s %s' % 1 }}
===
{{ '%d' % 'a' }}
===
{{ '%s' % (1, 2) }}
===
{{ '{} {} {{}}'.format(1, 'a') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x:>5}|{x:<5}|{x:^5}|{y:05.1f}|{y:.2f}|{z:d}|{z:12}|{x!r}|{z:+d}|{y}|{x:*^7}|{z:.1f}|{p:+.3f}|{z: d}|{z:<12}|{z:_^12}|{z:012}'.format(x='ab', y=3.14159, z=1234567, p=0.256) }} {{ '{0[a]} {0[b]}'.format(d) }}
===
{{ '{}'.format() }}
===
{{ -3|abs }}{{ -2.5|abs }} {{ 'x'|attr('upper')() }} {{ d|attr('a') }} {{ 'hELLO'|capitalize }} {{ list|count }} {{ missing|default('d') }}{{ ''|default('d') }}{{ ''|d('d', true) }}{{ missing|d }} {{ {'B': 1, 'a': 2}|dictsort }}{{ {'B': 1, 'a': 0}|dictsort(false, 'value') }}{{ {'B': 1, 'a': 2}|dictsort(true) }}
===
{{ '<'|safe }} {{ ('<'|safe) ~ '>' }} {{ [1,2]|first }}{{ []|first }}{{ 'abc'|first }}{{ '3.5'|float }}{{ 'x'|float }}{{ 'x'|float(1.5) }}{{ 3|float }}{{ '1e3'|float }} {{ '42'|int }}{{ '42.9'|int }}{{ 'x'|int }}{{ 'x'|int(7) }}{{ '0x1f'|int(0, 16) }}{{ 3.99|int }}{{ ' 5 '|int }}{{ -3.5|int }}{{ none|int }}{{ true|int }}{{ 'ff'|int(0, 16) }}{{ '1_0'|int }}
===
{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2) }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, false, true) }}|{{ 'a\nb'|indent('> ', first=true) }}|{{ 'a\n'|indent }}|
===
{{ [1, 'b', none]|join(', ') }}{{ 'abc'|join('-') }}{{ nested|join(',', attribute='k') }}{{ list|last }}{{ 'abc'|last }}{{ []|last }}{{ 'abc'|list }}{{ d|list }} {{ 'ABC'|lower }} {{ list|length }}{{ d|length }}{{ uni|length }}
===
{{ list|map('string')|list }}{{ nested|map(attribute='k')|list }}{{ nested|map(attribute='zz', default='q')|list }}{{ ['a ', 'b']|map('trim')|map('upper')|join }}{{ nested|map(attribute='a.b')|list }}{{ ['ab']|map('replace', 'a', 'c')|list }}{{ list|max }}{{ list|min }}{{ ['b', 'A']|min }}{{ ['b', 'A']|max }}{{ []|max }}{{ nested|max(attribute='k') }}
===
{{ list|reject('odd')|list }}{{ list|select('odd')|list }}{{ [0, 1, '']|select|list }}{{ [0, 1]|reject|list }}{{ list|select('gt', 2)|list }}{{ list|select('in', [1, 3])|list }}{{ nested|selectattr('k')|map(attribute='k')|list }}{{ nested|selectattr('k', 'equalto', 2)|list|length }}{{ nested|rejectattr('k', 'eq', 2)|list|length }}{{ nested|selectattr('zz', 'defined')|list }}{{ nested|selectattr('a.b')|list|length }}{{ list|select('divisibleby', 2)|list }}
===
{{ none|select('odd')|list }}{{ none|selectattr('type', 'equalto', 'x')|list|length }}{{ 0|reject|list }}{{ none|map('upper')|list }}{{ none|map(attribute='x')|list }}
===
{{ real }} {{ reals }} {{ reals|tojson }} {{ real == 1 }} {{ real is integer }} {{ esc }} {{ esc|tojson }} {{ esc|length }}
===
{{ 1|select('odd')|list }}
===
{% if list|select('gt', 99) %}always{% endif %}{{ list|select('gt', 99)|list|length }}{{ list|map('string') is iterable }}{{ list|map('string') is sequence }}
===
{{ list|map('string')|length }}
===
{{ list|map('string')|last }}
===
{{ list|reverse|list }}{{ 'abc'|reverse }}{{ 42.55|round }}{{ 42.55|round(1) }}{{ 42.55|round(1, 'floor') }}{{ 42.2|round(0, 'ceil') }}{{ 2.5|round }}{{ 3.5|round }}{{ 2|round }}{{ 2.675|round(2) }}
===
{{ [3, 1, 2]|sort }}{{ ['b', 'A', 'c']|sort }}{{ ['b', 'A', 'c']|sort(case_sensitive=true) }}{{ [3, 1]|sort(reverse=true) }}{{ nested|sort(attribute='k')|map(attribute='k')|list }}{{ nested|sort(attribute='k', reverse=true)|map(attribute='k')|list }}{{ [('a', 2), ('a', 1)]|sort(attribute='0,1') }} {{ 5|string ~ 1 }}{{ list|sum }}{{ nested|sum(attribute='k') }}{{ [1.5]|sum(start=1) }}{{ [[1], [2]]|sum(start=[]) }}
===
{{ [1, 'a']|sort }}
===
{{ "hello wORLD-foo (bar) it's"|title }} {{ '  x '|trim }}|{{ 'xxaxx'|trim('x') }} {{ [1, 1, 2]|unique|list }}{{ ['a', 'A', 'b']|unique|list }} {{ 'abc'|upper }} 
===
{{ d|tojson }}{{ list|tojson(indent=2) }}{{ nested|tojson(indent=1) }}{{ d|tojson(separators=(',', ':')) }}{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }}{{ 'é<>&\'"\n\x01\x7f/🎉'|tojson }}{{ 'é🎉'|tojson(ensure_ascii=true) }}{{ [1.0, 1e20, 1.5e-7, none, true]|tojson }}{{ {1: 2, none: 3, true: 4}|tojson }}{{ [] | tojson(indent=2) }}{{ {}|tojson(indent=2) }}{{ (1, 2)|tojson }}{{ {'a': [], 'b': [1]}|tojson(indent='\t') }}{{ [1, [2]]|tojson(indent=0) }}
===
{{ missing|tojson }}
===
{{ range(3)|tojson }}
===
{{ {(1, 2): 3}|tojson }}
===
{{ 1 is odd }}{{ 2 is even }}{{ 6 is divisibleby 3 }}{{ 6 is divisibleby(4) }}{{ none is none }}{{ true is boolean }}{{ 1 is boolean }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 'a' is string }}{{ 1 is number }}{{ true is number }}{{ 1 is integer }}{{ true is integer }}{{ 1.5 is float }}{{ d is mapping }}{{ list is mapping }}{{ list is sequence }}{{ 'a' is sequence }}{{ d is sequence }}{{ 1 is sequence }}{{ list is iterable }}{{ 1 is iterable }}{{ none is iterable }}{{ range is callable }}{{ 1 is callable }}{{ 'a'.upper is callable }}
===
{{ 1 is eq 1 }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is gt 1 }}{{ 1 is le 1 }}{{ 1 is ge 2 }}{{ 1 is equalto 1 }}{{ 1 is sameas 1 }}{{ none is sameas none }}{{ 1 is in [1] }}{{ 'a' is lower }}{{ 'A' is upper }}{{ 'a' is not upper }}{{ 1 is not none and 2 is not none }}{{ missing is undefined }}{{ n is defined and n is number }}{{ d.a is defined }}{{ d.zz is defined }}
===
{% set j = joiner('; ') %}{% for x in list %}{{ j() }}{{ x }}{% endfor %}{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %d %%') }}
===
{{ raise_exception('no ' ~ name) }}
===
{% if false %}{{ raise_exception('x') }}{% endif %}ok
===
{{ 1|nofilter }}
===
{{ 1 is notest }}
===
{% include 'x' %}
===
{% extends 'x' %}
===
{% if %}{% endif %}
===
{% endif %}
===
{% for x in %}{% endfor %}
===
{{ }}
===
{{ a b }}
===
{{ 1 + }}
===
{{ (1, 2 }}
===
{{ [1, 2) }}
===
{% set 1 = 2 %}
===
{% macro m(a=1, b) %}{% endmacro %}
===
{{ x.1a }}
===
{% break %}
===
{{ f(a=1, 2) }}
===
{{ 'unterminated }}
===
{{ loop }}{{ 'x' if loop is defined else 'no loop' }}
===
{{ (1, 2) }}{{ () }}{{ (1,) }}{{ (1) }}{{ 1, 2 }}{{ [1, 2,] }}{{ {'a': 1,} }}{{ (1, 2,) }}{{ [[], [[]]] }}
===
{{ d['a'] }}{{ d.b }}{{ items_dict.items is callable }}
===
{{ items_dict['items'] }}{% for k, v in items_dict.items() %}{{ k }}{{ v }}{% endfor %}
===
{%- set a = namespace(list=[]) -%}{%- for m in messages -%}{%- set a.list = a.list + [m.role] -%}{%- endfor -%}{{ a.list }}
===
{{ messages[0]['content'][0:2] ~ messages|length }}{{ messages[-1].content|trim|upper }}{{ messages|map(attribute='content')|join('\n') }}{{ messages|tojson }}
===
{%- for message in messages %}{{ message.role + ': ' + message.content }}{% if not loop.last %}{{ '\n' }}{% endif %}{%- endfor %}
===
{{ "a" if messages else "b" }}{{ messages|selectattr('role', '==', 'user')|list|length }}{{ (messages|last).role }}{{ messages|first|attr('x') }}
===
{{ none + 1 }}
===
{{ -'a' }}
===
{{ list | join(', ') | upper ~ '!' }} {{ (list | length) - 1 }} {{ list|length - 1 }} {{ not list|length == 1 }} {{ 'a' + 'b' | upper }} {{ ['x'] is sequence and 'y' }}
===
{{ 1 is divisibleby 0 }}
===
{{ 'a' is odd }}
===
{{ [1, 2, 3].0 }} {{ 'x'|default }} {{ 3.0|int }} {{ 10 // 3.0 }} {{ 1 // 0.3 }} {{ 5.0 }} {{ 1e15 }} {{ 3.0 * 2 }} {{ 7 / 7 }} {{ 1/3 }} {{ -0.0 }} {{ 100000000000000000.0 }}
===
{{ name.upper() }}{{ name.__class__ }}{{ name.nope }}
===
{{ name.nope() }}
===
{% set x = 5 -%}   
   {{ x }}   
{%- set y = 6 %}   
{{ y }}
===
{{ '²'.isdigit() }}{{ '½'.isdigit() }}{{ '½'.isalnum() }}{{ '٣'.isdigit() }}{{ 'Ⅷ'.isupper() }}{{ 'ⅷ'.islower() }}{{ 'ª'.islower() }}{{ 'ʰ'.islower() }}
===
{{ 'hello'.startswith('ell', 1) }}{{ 'hello'.startswith('ell', 1, 3) }}{{ 'hello'.startswith('', 9) }}{{ 'hello'.startswith('', 5) }}{{ 'hello'.endswith('ell', 0, 4) }}{{ 'hello'.endswith(('x', 'lo'), -3) }}{{ 'éa'.startswith('a', 1) }}
===
{{ [1, 2, 1].index(1, 1) }}{{ [1, 2, 1].index(1, -1) }}{{ (1, 2).index(2, 0, 9) }}
===
{{ [1, 2].index(1, 1) }}{{ [1, 2].index(2, 0, 1) }}
===
{{ range(10)[2:5] }} {{ range(10)[::-1] }} {{ range(1, 10, 2)[1:] }} {{ range(5)[::2]|list }} {{ range(5)[9:] }} {{ range(5)[1:][0] }}
===
{% macro m() %}{% endmacro %}{{ m }}{{ [m] }}
===
{{ '%*d' % ('a', 1) }}
===
{{ '{!r} {!s}'.format('é', 'é') }} {{ '{}{}'.format(1, 2) }}{{ '{1}{0}'.format(1, 2) }}
===
{{ '{} {0}'.format(1) }}
===
{{ '{0} {}'.format(1) }}
===
{{ '{:5}'.format(none) }}
===
{{ '{:>5}'.format([1]) }}
===
{{ '{!x}'.format(1) }}
===
{{ '{:{}{'.format(1, 2) }}
===
{{ '{:{:{}}}'.format(1, 2, 3) }}
===
{{ '%s|%5s|{}' % (missing, missing) }}{{ '[{}]'.format(missing) }}{{ '%s'|format(missing) }}
===
{{ '%d' % missing }}
===
{{ -0.0 // 1 }} {{ 0.0 // -3 }} {{ 1 // 0.1 }} {{ 6 // 0.1 }} {{ -1e-300 // 1 }} {{ 1e300 // 7 }} {{ 7.5 // -2 }} {{ 9007199254740993 / 3 }} {{ 9223372036854775807 / 3 }}
===
{{ 1e308 ** 2 }}
===
{{ 10.0 ** 400 }}
===
{{ [{}, {}]|sort }}{{ [none, none]|sort }}{{ [{'a': none}, {'a': none}]|sort(attribute='a') }}
===
{{ [none, 1]|sort }}
===
{{ missing is sameas missing }}{{ missing is sameas none }}{{ none is sameas none }}
===
{{ '%s' is divisibleby 3 }}{{ '%d' is divisibleby(2) }}{{ '%s' is odd }}
===
{{ list|map(attribute='x', foo=1)|list }}
===
{% filter length %}abc{% endfilter %}
===
{% for x in list %}{{ x }}{% break %}{% else %}e{% endfor %}{% for x in list %}{% continue %}{% else %}e{% endfor %}{% for x in list %}{% if x > 1 %}{% continue %}{% endif %}{% else %}e{% endfor %}{% for x in list %}{% if x > 1 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}
===
{% if false %}{{ dict(a=1, a=2) }}{% endif %}
===
{{ 2.0.is_integer() }}{{ 2.5.is_integer() }}{{ (1 / 1).is_integer() }}
===
{%- macro type_of(spec) -%}{%- if spec.type is string -%}{{ spec.type }}{%- elif spec.type is iterable -%}({% for t in spec.type %}{{ type_of({'type': t}) }}{{ '|' if not loop.last }}{% endfor %}){%- else -%}any{%- endif -%}{%- endmacro -%}
{%- for k, v in {'a': {'type': ['x', ['y', 'z']]}, 'b': {}}|items if k != 'c' %}{{ k ~ ':' ~ type_of(v) }}{{ ', ' if not loop.last else '.' }}{% endfor %}
===
{%- for m in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}{{ index }}{{ m.content.split('</think>')[-1].lstrip('\n').rstrip() }}{{ loop.previtem.role if loop.previtem is defined }}{% endfor %}{{ messages[loop_index:] if loop_index is defined }}
===
{{ strftime_now('%d %b %Y|%-d|%j %U %p %I|%Z|%z|%f|%%z %%%Z|%') }}{{ strftime_now('') }}
===

  leading
{% if true %}

  blank lines

{% endif %}

trailing


""".strip("\n").split("\n===\n")

VARS = {"real": 1.0, "reals": [2.0, -0.0, 1e3, 1.5e-7, 0.1], "esc": "a\"\\\n\u00e9\x01\U0001f389", "name": "Ann", "n": 3, "yes": True, "none": None, "list": [1, 2, 3, 4, 5], "d": {"a": 1, "b": "x"}, "uni": "日本é🎉x",
        "nested": [{"k": 2, "a": {"b": [1, 2]}}, {"k": 1, "a": {"b": []}}, {"k": 2, "a": {"b": 0}}], "items_dict": {"items": 5},
        "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4}]}]}, {"v": 5}],
        "messages": [msg("user", " hé "), msg("assistant", "yo"), msg("user", "x\n")], "bos_token": "<s>", "eos_token": "</s>"}


@functools.lru_cache(maxsize=4)
def compiled(source):
    return env.from_string(source)


def oracle(source, variables):
    try:
        return True, compiled(source).render(**variables).encode()
    except Exception as e:  # whatever Python says: it refuses
        return False, f"{type(e).__name__}: {e}".encode()


def templates():
    root = os.environ.get("MINERVA_SOURCE_ROOT", os.path.join(os.path.dirname(__file__), "..", ".."))
    shared = os.environ.get("MINERVA_SHARED", os.path.join(root, "..", "shared"))
    found = sorted(glob.glob(os.path.join(shared, "templates", "*.jinja")))
    if not found:
        print(f"skipped: no templates under {shared}")
    return found + sorted(glob.glob(os.path.join(root, "models", "*", "chat_template.jinja")))


def cases():
    for source in INLINE:
        yield "inline", source, VARS
    for path in templates():
        with open(path, newline="", encoding="utf-8") as f:
            source = f.read()
        for name, messages in CHATS.items():
            for extra in EXTRA:
                for prompt in (False, True):
                    for tokens in ({"bos_token": "<|begin|>", "eos_token": "<|end|>"}, {}):
                        variables = dict(tokens, messages=messages, add_generation_prompt=prompt, **extra)
                        yield f"{os.path.basename(path)} / {name} / {sorted(extra)} / {prompt}", source, variables


def main():
    time.tzset()
    ours = subprocess.Popen([sys.argv[1], "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ))
    total = bad = refused = 0
    for name, source, variables in cases():
        ok, want = oracle(source, variables)
        text, data = source.encode(), json.dumps(variables, ensure_ascii=False).encode()
        ours.stdin.write(b"%d %d %d\n" % (len(text), len(data), NOW) + text + data)
        ours.stdin.flush()
        head = ours.stdout.readline().split()
        if not head:
            print(f"{name}: jinja_render died\n{source}")
            return 1
        got = ours.stdout.read(int(head[1]))
        total += 1
        refused += not ok
        if (head[0] == b"ok") != ok or (ok and got != want) or (not ok and want.startswith(b"Refused") and want[9:] != got):
            bad += 1
            if bad <= int(os.environ.get("JINJA_SHOW", "10")):
                print(f"--- {name}\n{source if name == 'inline' else ''}\njinja2 {'ok' if ok else 'refuses'}: {want!r}\nours {head[0].decode()}: {got!r}")
    ours.stdin.close()
    print(f"{total} renderings compared, {refused} of them refused by both, {bad} differ")
    return bad > 0 or ours.wait() != 0


sys.exit(main())
