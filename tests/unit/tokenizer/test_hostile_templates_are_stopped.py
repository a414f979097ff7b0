"""Templates that want the machine's time, memory or secrets."""

from __future__ import annotations

import pytest

from edgeseek.errors import ChatTemplateError
from edgeseek.tokenizer import ChatTemplate, TemplateLimits

LIMITS = TemplateLimits(steps=20_000, value_size=1 << 20, total_size=1 << 23)
GROW = (
    "{% set ns = namespace(x={seed}) %}{% for i in range(60) %}{% set ns.x = {step} %}{% endfor %}{{ {use} }}"
)


def grow(seed: str, step: str, use: str = "ns.x") -> str:
    return GROW.replace("{seed}", seed).replace("{step}", step).replace("{use}", use)


HUNGRY = {
    "huge range": "{% for i in range(10**9) %}x{% endfor %}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loop without body": "{% for c in 'a' * 1000000 %}{% endfor %}",
    "recursive loop": "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "doubling macro": "{% macro f(n) %}{% if n %}{{ f(n-1) ~ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "doubling varargs": (
        "{% macro f(n) %}{% if n %}{{ f(n-1, varargs, varargs) }}{% else %}{{ varargs }}{% endif %}"
        "{% endmacro %}{{ f(60, 1) }}"
    ),
    "long string": "{{ 'a' * 10**10 }}",
    "long list": "{{ 10**9 * [0] }}",
    "large power": "{{ 10 ** (10 ** 10) }}",
    "large product": grow("10**300", "ns.x * ns.x"),
    "doubling ~": grow("'aaaa'", "ns.x ~ ns.x"),
    "doubling +": grow("'aaaa'", "ns.x + ns.x"),
    "doubling list, printed": grow("[1]", "[ns.x, ns.x]"),
    "doubling list, compared": grow("[1]", "[ns.x, ns.x]", "ns.x == [ns.x]"),
    "doubling list, as JSON": grow("[1]", "[ns.x, ns.x]", "ns.x | tojson"),
    "doubling list, as string": grow("[1]", "[ns.x, ns.x]", "ns.x | string"),
    "doubling list, in a format": grow("[1]", "[ns.x, ns.x]", "'%s' % ns.x"),
    "doubling list, joined": grow("[1]", "[ns.x, ns.x]", "ns.x | join"),
    "doubling tuple, hashed": grow("(1,)", "(ns.x, ns.x)", "{}[ns.x]"),
    "doubling dict": grow("{}", "dict(a=ns.x, b=ns.x)"),
    "doubling cycler": grow("(1,)", "cycler(ns.x, ns.x).items"),
    "wide center": "{{ 'a' | center(10**9) }}",
    "wide center by name": "{{ 'a' | center(width=10**9) }}",
    "wide ljust": "{{ 'a'.ljust(10**9) }}",
    "wide ljust in a loop": "{% for i in [1] %}{{ 'a'.ljust(width=10**9) }}{% endfor %}",
    "wide zfill": "{{ 'a'.zfill(10**9) }}",
    "wide %": "{{ '%1000000000d' % 1 }}",
    "wide % from arguments": "{{ '%*d' % (10**9, 1) }}",
    "wide format filter": "{{ '%1000000000d' | format(1) }}",
    "wide str.format": "{{ '{:>1000000000}'.format(1) }}",
    "wide nested str.format": "{{ '{0:{1}}'.format(1, 10**9) }}",
    "wide format_map": "{{ '{x:>1000000000}'.format_map({'x': 1}) }}",
    "wide indent": "{{ ('a\n' * 10000) | indent(10**6) }}",
    "wide JSON": "{{ [1] | tojson(indent=10**9) }}",
    "join by separator": "{{ ('a' * 100000).join(range(10000)) }}",
    "join filter": "{{ range(10000) | join('a' * 100000) }}",
    "replace filter": "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
    "replace method": "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "many slices": "{{ [1] | slice(10**9) | list }}",
    "long batch": "{{ [1] | batch(10**9, 'x') | list }}",
    "sum of lists": "{{ range(9999) | batch(1) | sum(start=[]) }}",
    "round": "{{ 1.5 | round(10**9, 'ceil') }}",
    "quadratic striptags": "{{ ('<!--x-->' * 90000) | striptags }}",
    "long output": "{% for i in range(9999) %}{{ 'a' * 100000 }}{% endfor %}",
    "long set block": "{% set x %}{% for i in range(999) %}{{ messages[0].content }}{% endfor %}{% endset %}",
    "mapped filter": "{{ range(9999) | map('center', 100000) | list }}",
    "deep nesting": "{{ " + "(" * 50000 + "1" + ")" * 50000 + " }}",
    "long source": "x" * 2_000_000,
}


@pytest.mark.parametrize("source", HUNGRY.values(), ids=HUNGRY.keys())
def test_work_is_bounded(source: str) -> None:
    with pytest.raises(ChatTemplateError):
        ChatTemplate(source, limits=LIMITS).render([{"role": "user", "content": "x" * 100_000}])


def test_the_time_is_bounded_by_the_callers_clock() -> None:
    times = iter(range(10**6))
    template = ChatTemplate(
        "{% for i in range(9999) %}{% endfor %}", monotonic=lambda: float(next(times)), limits=LIMITS
    )
    with pytest.raises(ChatTemplateError, match=r"more than 5\.0 seconds"):
        template.render([])


def test_limits_are_per_rendering() -> None:
    template = ChatTemplate("{% for i in range(15000) %}{% endfor %}done", limits=LIMITS)
    assert [template.render([]) for _ in range(3)] == ["done"] * 3


def test_a_long_chat_is_no_attack() -> None:
    messages = [{"role": "user", "content": "word " * 4000}] * 100
    source = "{% for m in messages %}{{ m.content | trim ~ '\n' }}{{ m.content.split('x')[-1] }}{% endfor %}"
    assert len(ChatTemplate(source).render(messages)) == 100 * (20_000 + 20_000)


# Each must print nothing of Python's insides: the sandbox answers with an error or an undefined value.
ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ '' | attr('__class__') }}",
    "{{ ''['__class__'] }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ [''] | join(attribute='__class__') }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{% set f = '{0.__class__}'.format %}{{ f(1) }}",
    "{{ raise_exception.__globals__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ dict.__base__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ ([1] | map('string')).gi_frame }}",
    "{% for i in [1] %}{{ loop._iterator }}{% endfor %}",
    "{% set ns = namespace() %}{% set ns.__class__ = 'x' %}{{ ns.__class__ }}",
    "{{ namespace(_Namespace__attrs={'a': 1})._Namespace__attrs }}",
    "{{ messages.append(1) }}{{ messages | length - 1 }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% extends 'x' %}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_python_stays_out_of_reach(source: str) -> None:
    template = ChatTemplate(source)
    try:
        text = template.render([{"role": "user", "content": "x"}])
    except ChatTemplateError:
        return
    assert text in ("", "[Undefined]")
