#!/usr/bin/env python3
"""Writes tests/data/chat_templates/snippets.json: template snippets and what Jinja renders, set up as Hugging Face does.

    pip install jinja2
    tools/make_template_vectors.py OUT.json
"""
import datetime
import json
import sys

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONTEXT = {
    "messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Grüße, \"you\" & 'me' <b>"},
                 {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"x": 1, "y": [1.5, True, None]}}]}],
    "numbers": [3, 1, 2, 10], "words": ["pear", "Apple", "fig"], "empty": [], "text": "one two  three", "name": "weft",
    "tools": [{"type": "function", "function": {"name": "add", "description": "Adds\nnumbers", "parameters": {"a": "int", "b": "ünt"}}}],
    "flag": True, "nothing": None, "pi": 3.25, "big": 1e20, "tiny": 1e-7, "items_dict": {"b": 2, "a": 1, "items": 3}, "long": "line one\nline two\n\nline four",
}

SNIPPETS = """
{{ name }} {{ nothing }} {{ flag }} {{ missing }} {{ pi }} {{ big }} {{ tiny }} {{ numbers }} {{ words }}
{{ messages[2] }} {{ [1, 'it\\'s', "q\\"", none, 2.0] }} {{ (1,) }} {{ (1, 'a') }} {{ {} }} {{ 1.0 }} {{ 1e16 }} {{ 123456789012.5 }} {{ 0.1 + 0.2 }}
{{ messages[1].content }}|{{ messages[1]['content'] }}|{{ messages[-1].role }}|{{ messages[7] is defined }}|{{ messages[0].nope is defined }}
{{ items_dict.items is mapping }} {{ items_dict['items'] }} {{ items_dict.items() | list }} {{ items_dict.keys() | list }} {{ items_dict.values() | list }} {{ items_dict.get('z') }} {{ items_dict.get('z', 5) }}
{{ tools | tojson }} {{ tools | tojson(indent=2) }} {{ tools[0].function | tojson(indent=4) }} {{ [] | tojson }} {{ {} | tojson(indent=2) }} {{ pi | tojson }} {{ "é\\n\\t\\"\\\\\\x01" | tojson }}
{{ messages[2].tool_calls[0].arguments | tojson }} {{ {"z": 1, "a": {"c": 1, "b": 2}} | tojson(sort_keys=true) }} {{ tools | tojson(ensure_ascii=true) }} {{ {"a": 1, "b": [1, 2]} | tojson(separators=(",", ":")) }}
{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ m.role }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for m in messages if m.role != 'user' %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ m.role }};{% else %}none{% endfor %}
{% for x in empty %}x{% else %}nothing{% endfor %}{% for x in missing %}x{% else %} undefined is empty{% endfor %}
{% for k, v in items_dict.items() %}{{ k }}={{ v }};{% endfor %}{% for k in items_dict %}{{ k }}{% endfor %}{% for c in 'abü' %}[{{ c }}]{% endfor %}
{% for x in numbers %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.cycle('a', 'b') }} {% endfor %}
{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}{{ range(1, 10, 3) | list }}{{ range(5, 0, -2) | list }}
{% set x = 1 %}{% for i in numbers %}{% set x = i %}{% endfor %}{{ x }}{% set ns = namespace(x=1) %}{% for i in numbers %}{% set ns.x = ns.x + i %}{% endfor %} {{ ns.x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set block %}in {{ name }} {% endset %}[{{ block }}]{% set up | upper | trim %} loud {% endset %}[{{ up }}]
{% if flag and not nothing %}yes{% elif missing %}maybe{% else %}no{% endif %}{{ 'a' if nothing else 'b' }}{{ 'only' if false }}{{ 1 if false else 2 if false else 3 }}
{% macro hi(who, mark='!', *args) %}{% endmacro %}x
{% macro hi(who, mark='!') %}Hi {{ who }}{{ mark }}{% endmacro %}{{ hi('you') }} {{ hi('me', mark='?') }} {{ hi(mark='.', who=name) }}{{ hi() }}
{% macro down(n) %}{{ n }}{% if n > 0 %}{{ down(n - 1) }}{% endif %}{% endmacro %}{{ down(5) }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 'ab' * 3 }} {{ [1] * 2 }} {{ 'a' ~ 1 ~ none }} {{ [1] + [2] }} {{ true + 1 }} {{ -(3) }} {{ -2 ** 2 }} {{ 5 - -3 }}
{{ 7 // -2 }} {{ 7 % -3 }} {{ -7 // -2 }} {{ -7 % -3 }} {{ 6 // -3 }} {{ 7.5 % -2 }} {{ -7.5 // 2 }} {{ (-1) ** 4611686018427387905 }} {{ (-1) ** 4611686018427387904 }} {{ 1 ** 4611686018427387905 }} {{ 0 ** 4611686018427387905 }} {{ 0 ** 0 }} {{ (-2) ** 3 }}
{{ namespace({'a': 1, 'b': 3}, a=2).a }} {{ namespace({'a': 1, 'b': 3}, a=2).b }} {{ [1, 2, 3, 4][-9:2] }} {{ [1, 2, 3, 4][9:1:-1] }} {{ [1, 2, 3, 4][2:-9:-1] }} {{ [1, 2, 3, 4][-1:-4:-2] }} {{ [1, 2, 3, 4][:0:-1] }} {{ 'abcd'[9:] }}|{{ 'abcd'[:-9] }}|{{ range(3, 0) | list }} {{ range(0, 5, 2) | list }} {{ range(5, 0, -2) | list }} {{ range(-2) | list }}
{% macro pair(a, b=a ~ '!', c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ pair(1) }} {{ pair(1, 2) }} {{ pair(1, c=3) }} {{ pair(b=2, a=1) }}{% set x = 'out' %}{% macro sees() %}{{ x }}{{ y }}{% endmacro %}{% for y in [1] %}{% set x = 'in' %}{{ sees() }}{% endfor %}{% macro late(p=q, q=p ~ 1, name=name) %}[{{ p }}{{ q }}{{ name }}]{% endmacro %}{% set q = 'outer' %}{{ late() }}{{ late(q=2) }}{{ late(3, name='n') }}
{{ 2 <= 2 }} {{ 2 >= 2 }} {{ 2 < 2 }} {{ 2 > 2 }} {{ 'a' <= 'a' }} {{ '3000000000.5' | int }} {{ '-3e9' | int }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' < 'b' }} {{ 2 >= 3 }} {{ [1, 2] == [1, 2] }} {{ 'a' != 'a' }} {{ none == missing }} {{ 'a' in 'cat' }} {{ 3 in numbers }} {{ 'a' in items_dict }} {{ 5 not in numbers }} {{ not 1 in [2] }} {{ (1, 2) == [1, 2] }}
{{ nothing or 'default' }} {{ 0 or [] }} {{ 'x' and 'y' }} {{ '' and 'y' }} {{ not '' }} {{ missing or 'd' }}
{{ name[0] }}{{ name[-1] }}{{ name[1:3] }}{{ name[::-1] }}{{ name[:-1] }}{{ name[5:9] }} {{ numbers[1:] }} {{ numbers[::2] }} {{ numbers[-2:] }} {{ numbers[:100] }} {{ 'Grüße'[2:4] }} {{ numbers[::-1] }} {{ 'abc'[none:2] }}
{{ text.split() }} {{ text.split(' ') }} {{ text.split(' ', 1) }} {{ text.split('o')[-1] }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a\\nb\\r\\nc\\n'.splitlines() }} {{ '  a b '.split(none, 1) }}
{{ '  pad '.strip() }}|{{ '  pad '.lstrip() }}|{{ '  pad '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ '\\n\\nx\\n'.strip('\\n') }}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'c')) }}|{{ 'aXbX'.replace('X', '-') }}|{{ 'aXbX'.replace('X', '-', 1) }}|{{ 'ab'.replace('', '-') }}
{{ 'hello world'.title() }} {{ 'HELLO'.lower() }} {{ 'héllo'.upper() }} {{ 'hELLO wORLD'.capitalize() }} {{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('z') }} {{ 'hello'.count('l') }} {{ '-'.join(words) }} {{ '12'.isdigit() }} {{ 'grüße'.find('e') }} {{ "they're bill's"|title }}
{{ words | join(', ') }} {{ numbers | join }} {{ words | first }} {{ words | last }} {{ numbers | length }} {{ text | length }} {{ items_dict | length }} {{ 'Grüße' | length }} {{ empty | first }} {{ words | count }}
{{ '  x ' | trim }} {{ 'abc' | upper }} {{ 'ABC' | lower }} {{ 'a b' | title }} {{ 'a-b' | replace('-', '+') }} {{ 5 | string }} {{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 3.9 | int }} {{ '2.5' | float }} {{ ' 12 ' | int }} {{ true | int }} {{ '3.7' | int }} {{ missing | default('d') }} {{ nothing | default('d') }} {{ nothing | default('d', true) }} {{ '' | d('e', boolean=true) }} {{ '<x>' | safe }} {{ '<a href="x">\\'' | e }}
{{ messages | map(attribute='role') | list }} {{ messages | map(attribute='role') | join('|') }} {{ words | map('upper') | list }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | list }} {{ messages | selectattr('tool_calls') | list | length }} {{ messages | selectattr('tool_calls', 'defined') | list | length }} {{ numbers | select('gt', 2) | list }} {{ numbers | reject('odd') | list }} {{ [0, 1, ''] | select | list }} {{ words | map('replace', 'e', 'E') | list }}
{{ numbers | sort }} {{ words | sort }} {{ words | sort(reverse=true) }} {{ words | sort(case_sensitive=true) }} {{ messages | sort(attribute='role') | map(attribute='role') | list }} {{ items_dict | dictsort }} {{ items_dict | dictsort(by='value') }} {{ [1, 2, 1, 'a', 'A'] | unique | list }} {{ numbers | reverse | list }} {{ 'abc' | reverse }} {{ numbers | sum }} {{ numbers | max }} {{ numbers | min }} {{ -3 | abs }} {{ 2.567 | round(1) }} {{ 2.5 | round }} {{ 7 | round }} {{ 1.2 | round(method='ceil') }} {{ items_dict | items | list }} {{ [1.5, 2] | sum }} {{ 'abc' | list }} {{ items_dict | list }} {{ 'hELLO' | capitalize }}
{{ long | indent }} {{ long | indent(2, true) }} {{ long | indent(2, blank=true) }}
{{ 'a\\n' | indent }}|{{ 'a\\n' | indent(2, true) }}|{{ 'a\\nb\\n\\n' | indent(2, blank=true) }}|{{ '' | indent(first=true) }}|{{ '\\n' | indent(2, true, true) }}|{{ 'a\\nb' | indent('> ') }}|{{ 'a\\nb' | indent(0) }}
{{ 'a\\r\\nb\\rc\\u2028d\\x0be\\x0cf\\x1cg\\x1dh\\x1ei\\x1fj\\x85k\\u2029l\\r\\n' | indent(1) }}|{{ 'a\\r\\nb\\rc\\u2028d\\x0be\\x0cf\\x1cg\\x1dh\\x1ei\\x1fj\\x85k\\u2029l\\n\\r'.splitlines() }}
{{ 1 is number }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is iterable }} {{ [] is sequence }} {{ 'a' is iterable }} {{ none is none }} {{ missing is undefined }} {{ flag is true }} {{ flag is false }} {{ 1 is true }} {{ flag is boolean }} {{ 1 is integer }} {{ 1.5 is float }} {{ 3 is odd }} {{ 4 is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ 1 is eq 1 }} {{ 1 is not ne 1 }} {{ 'a' is in 'abc' }} {{ 'A' is upper }} {{ 'a' is lower }} {{ name is not none and name is defined }} {{ 1 is not string }} {{ items_dict.get is callable }} {{ none is number }} {{ true is number }} {{ {} is sequence }}
{{ 'a' 'b' }} {{ "\\u00e9\\x41\\t|" }} {{ 'back\\\\slash \\q' }} {{ 1_000 }} {{ 1.5e3 }} {{ 0.5 }} {{ [1, 2,] }} {{ {'a': 1,}.a }}
{{ strftime_now('%d %b %Y') }} {{ dict(a=1) }} {{ [none, true] | tojson }} {{ namespace(a=1).a }}
{# comment #}a{#- trims -#}  b {#  lines
  #} c
{% raw %}{{ not run }} {% if %}{% endraw %} after {%- raw -%}  x  {%- endraw %}
{% generation %}{{ name }}{% endgeneration %}
{{ raise_exception('no ' ~ name) }}
{{ missing.attribute }}
{{ missing + 'x' }}
{{ 'x' + 1 }}
{{ 1 / 0 }}
{{ missing() }}
{{ nothing.foo is defined }}|{{ nothing.foo.bar }}
{{ 1 < 'a' }}
{{ numbers.append(1) }}
{{ 'x' | int + 1 }} {{ numbers | length - 1 }} {{ 'a' ~ 'b' | upper }} {{ not missing is defined }} {{ 1 + 1 is number }} {{ -1 | abs }} {{ words | length > 2 and true }}
""".strip("\n").split("\n")
MULTI = [
    "{% if true %}\n  a\n{% endif %}\nb\n",
    "  {% if true %}  \n  a\n  {% endif %}  \nb",
    "x\n   {%- if true -%}  \n  a  \n {%- endif -%} \n b",
    "x\n  {%+ if true %}a{% endif +%}\n b",
    "{%- for m in messages -%}\n  {{ m.role }}\n{%- endfor -%}\n",
    "a {{- name -}} b\n {{ name }} \n",
    "  {# c #}\n  a {# c #}\nb{# c #}\n\nc",
    "line\r\nline2\r{{ name }}\r\n",
    "{{ name }}\n\n",
    "\n{% set x = 1 %}\n\n{% set y = 2 %}   \n{{ x }}\n",
    "{{ {\n 'a': 1,\n 'b': [1,\n2]} }}",
    "a\n\t {% if true %}\n\t b\n\t {% endif %}\n\t c",
    "{% for i in [1,2] %}\n  {% if i == 1 %}\n    one\n  {% else %}\n    two\n  {% endif %}\n{% endfor %}\n",
    "a{% if true %} {% endif %}\n  {% if true %}x{% endif %}  {% if true %}\ny{% endif %}",
    # White space is Unicode's.
    "{{ 'a\u00a0b\x1cc\u3000d e\x85f-g{h\u200bi' | title }}|{{ ' 12\u00a0' | int }}|{{ '\u20031.5\x1f' | float }}|{{ '\u20031.5\x85' | float }}|{{ '\x1c1' | int }}|{{ '\x1c\u2028'.isspace() }}",
    "a\u00a0\u3000{%- if true -%}\u00a0\x1cb\u2003{%- endif -%}\u1680\x85",
    "\u00a0{% if true %}x{% endif %}\n\u2003\x1f{# c #}y\n\u200b{% if true %}z{% endif %}",
    "a \u00a0{{- 1 -}}\u00a0 b\u202f{#- c -#}\u205fd{{\u00a01\u2009+\x1c1\u3000}}",
    "\x0b{%\u00a0raw\u00a0-%}\u2000 {{ x }} \u2000{%-\u00a0endraw\u00a0%}\x0c\u2029{% if true %}\x85y{% endif %}",
    # Keys that are integers.
    "{{ {1: 2, '1': 3} }} {{ {1: 'a'}[1] }} {{ {1: 'a'}[1.0] }} {{ {1: 'a'}[true] }}|{{ {1: 'a'}['1'] }}|{{ 1 in {1: 2} }} {{ '1' in {1: 2} }}",
    "{{ {2: 'b', 1: 'a'} | dictsort }} {{ {2: 'b', 1: 'a'} | tojson(sort_keys=true) }} {{ {10: {2: none}} | tojson }} {{ {-3: 1} }}",
    "{{ {2: 'b', 'x': 'a'} | tojson(sort_keys=true) }}",
    "{{ {2: 'b', 'x': 'a'} | dictsort }}",
    "{{ {1: 'a'}.get(1) }} {{ {1: 'a'}.get('1', 'no') }} {% for k, v in {3: 1}.items() %}{{ k + 1 }}{% endfor %} {{ {1: 2}.keys() | list }} {{ {1: 2} == {1: 2} }} {{ {1: 2} == {'1': 2} }} {{ {1: 1, 1: 2} }}",
    "{{ [{1: 5}] | map(attribute=1) | list }} {{ [{1: 5}] | map(attribute='1') | list }} {{ {1: 'a'}[7] is defined }} {{ {'a': 1}[7] is defined }}",
    "{{ {[1]: 2} }}",
    # JSON.
    "{{ '[1, 2.5, \"a\", null, true]' | from_json }} {{ '{\"a\": {\"b\": 1}}' | from_json }} {{ ('3' | from_json) + 1 }} {{ ('{\"a\": 1}' | fromjson).a }}",
    "{{ 'x' | from_json }}",
    "{{ '' | from_json }}",
    "{{ {} | from_json }}",
    "{{ none | from_json }}",
    # Filters over nothing.
    "{{ none | map('upper') | list }} {{ none | selectattr('x') | list }} {{ false | reject('x') | list }} {{ 0 | rejectattr('x', 'y') | list }} {{ none | select('odd') | list }} {{ none | map(attribute='x') | list }}",
    "{{ none | upper }} {{ none | lower }} {{ none | title }} {{ none | capitalize }} {{ none | trim }} {{ none | string }} {{ none | escape }} {{ none | safe }} {{ none | int }} {{ none | float }} {{ none | tojson }} {{ none | default('x') }} {{ none | default('x', true) }} {{ none | replace('N', 'n') }}",
    "{{ none | length }}", "{{ none | list }}", "{{ none | join }}", "{{ none | first }}", "{{ none | last }}", "{{ none | sort }}", "{{ none | sum }}",
    "{{ none | items | list }}", "{{ none | dictsort }}", "{{ none | reverse }}", "{{ none | abs }}", "{{ none | round }}", "{{ none | indent }}", "{{ none | unique | list }}", "{{ none | min }}", "{{ 3 | map('upper') | list }}",
    "{{ name | safe }} {{ messages[1].content | safe }} {{ [1, '<'] | safe }} {{ {'a': 1} | safe }} {{ missing | safe }} {{ 5 | safe }} {{ name | safe | upper }} {{ (name | safe) is string }} {{ (name | safe) == name }} {{ name | safe ~ '<' }} {{ (tools | tojson) | safe }}",
    # str.format.
    "{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format(1, 'a') }} {{ '{x} {y}'.format(x=1, y=none) }} {{ '{{}} {}'.format([1, 'a']) }} {{ '{}'.format(true) }} {{ '{} {}'.format(1, 2, 3, z=4) }}",
    "{{ '{0[a]} {0.a} {1[0]} {1[1].b}'.format({'a': 1}, [2, {'b': 3}]) }} {{ '{!r} {!s}'.format('a', 'a') }} {{ '{:>{}}|{:{w}}|'.format(1, 5, 2, w=3) }}",
    "{{ '{:5}|{:<5}|{:>5}|{:^5}|{:*^7}|{:.2}|{:5.1}|{:05}|{:é>4}'.format('ab', 'ab', 'ab', 'ab', 'ab', 'abc', 'abc', 'ab', 'ü') }}",
    "{{ '{:5}|{:<5}|{:^5}|{:05}|{:+}|{: }|{:=+6}|{:x}|{:#X}|{:#b}|{:o}|{:,}|{:_}|{:d}'.format(42, 42, 42, -42, 42, 42, 42, 255, 255, 5, 8, 1234567, -1234567, 7) }}",
    "{{ '{:.2f}|{:8.3f}|{:<8.1f}|{:+.1f}|{:08.2f}|{:,.2f}|{:e}|{:.1E}|{:g}|{:.3g}|{:.1%}|{:G}|{:f}'.format(3.14159, 2.5, 2.5, 2.5, -2.5, 1234567.891, 12345.678, 0.00012, 1e10, 1234.5, 0.256, 1e-10, 3) }}",
    "{{ '{}|{:.3}|{:.3}|{:.3}|{:.1}|{:.4}|{:10}|{:.3}|{:.5}|{:.2}'.format(1.0, 3.0, 10000.0, 100.0, 3.0, 1000.0, 1.5, 3.14159, 0.00001234, 0.5) }}",
    "{{ '{:d} {:5}|{:.1f}'.format(true, true, true) }}",
    "{{ '{:.2f}'.format('a') }}", "{{ '{:d}'.format(1.5) }}", "{{ '{:5}'.format(none) }}", "{{ '{:5}'.format([1]) }}", "{{ '{}'.format() }}", "{{ '{x}'.format(y=1) }}", "{{ '}'.format(1) }}", "{{ '{'.format(1) }}", "{{ '{0} {}'.format(1, 2) }}",
    "{{ '{:.1d}'.format(1) }}", "{{ '{:+}'.format('a') }}", "{{ '{:=5}'.format('a') }}", "{{ '{:s}'.format(1) }}", "{{ '{0.}'.format(1) }}", "{{ '{0[}'.format([1]) }}", "{{ '{:zz}'.format(1) }}",
]


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    # Not Jinja's own: templates that have it mean Python's.
    env.filters["from_json"] = env.filters["fromjson"] = json.loads

    def raise_exception(message):
        raise TemplateError(message)

    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.datetime(2024, 7, 26, 12, 0, 0).strftime(format)
    cases = []
    for source in SNIPPETS + MULTI:
        try:
            cases.append({"template": source, "rendered": env.from_string(source).render(**CONTEXT)})
        except Exception as error:
            cases.append({"template": source, "error": str(error)})
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"context": CONTEXT, "cases": cases}, out, ensure_ascii=False, indent=1)
    print(len(cases), "cases,", sum("error" in c for c in cases), "of them errors")


from jinja2 import nodes  # noqa: E402
from jinja2.ext import Extension  # noqa: E402


class Generation(Extension):
    """{% generation %} as Hugging Face has it: its block, as it stands."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body, lineno=line)


if __name__ == "__main__":
    main()
