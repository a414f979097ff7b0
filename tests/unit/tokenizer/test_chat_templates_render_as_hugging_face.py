from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from edgeseek.errors import ChatTemplateError
from edgeseek.tokenizer import ChatTemplate

USER = [{"role": "user", "content": "hi"}]


def render(source: str, messages: Any = USER, **variables: Any) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages, **variables)


def test_blocks_take_their_line_with_them() -> None:
    source = "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n!"
    assert render(source) == "hi\n!"


def test_variables() -> None:
    source = "{{ bos_token }}{{ messages[0]['role'] }}{{ eos_token }}{{ add_generation_prompt }}{{ tools }}"
    assert render(source) == "<s>user</s>TrueNone"
    assert render("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"
    assert render("{{ tools[0].name }}{{ thinking }}", tools=[{"name": "f"}], thinking=1) == "f1"
    assert ChatTemplate("[{{ bos_token }}]").render(USER) == "[]"


def test_loop_controls_and_macros() -> None:
    source = (
        "{% macro show(n) %}<{{ n }}>{% endmacro %}"
        "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}"
        "{{ show(i) }}{% endfor %}"
    )
    assert render(source) == "<0><2><3>"


def test_loop_variables_survive_the_counting() -> None:
    source = "{% for c in 'abc' %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}"
    assert render(source) == "1/3,2/3,3/3"
    assert render("{% for c in [] %}x{% else %}none{% endfor %}") == "none"
    assert render("{% for c in [[1],[2]] recursive %}{{ c[0] if c is sequence else c }}{% endfor %}") == "12"
    assert render("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}") == "a1"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("{'a': '<你>', 'b': [1, none]} | tojson", '{"a": "<你>", "b": [1, null]}'),
        ("{'b': 1, 'a': 2} | tojson(sort_keys=true)", '{"a": 2, "b": 1}'),
        ("[1, 2] | tojson(indent=1)", "[\n 1,\n 2\n]"),
        ("{'a': 1} | tojson(separators=(',', ':'))", '{"a":1}'),
        ("'你' | tojson(ensure_ascii=true)", '"\\u4f60"'),
    ],
)
def test_tojson(expression: str, expected: str) -> None:
    assert render("{{ " + expression + " }}") == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'a' ~ 1 ~ none", "a1None"),
        ("['a', 'b'] | join(', ')", "a, b"),
        ("messages | map(attribute='content') | join('|')", "hi"),
        ("messages | join('|', attribute='role')", "user"),
        ("', '.join(['a', 'b'])", "a, b"),
        ("'%s-%d' % ('a', 3)", "a-3"),
        ("'{}-{:>3}'.format('a', 3)", "a-  3"),
        ("'%s' | format('x')", "x"),
        ("'<a></think>b'.split('</think>')[-1]", "b"),
        ("' x '.strip() ~ ' y ' | trim", "xy"),
        ("'aXb' | replace('X', '--')", "a--b"),
        ("'a\nb' | indent(2)", "a\n  b"),
        ("messages | selectattr('role', 'equalto', 'user') | list | length", "1"),
        ("(1, 2) == (1, 2) and 'user' in ('user', 'tool')", "True"),
        ("[1, 2] + [3]", "[1, 2, 3]"),
        ("'ab' * 2", "abab"),
        ("7 * 6 + 2 ** 3 - 7 % 4", "47"),
        ("[3, 1] | sort | first", "1"),
        ("namespace(a=1).a", "1"),
        ("dict(a=1).a", "1"),
        ("[1, 2, 3] | sum", "6"),
        ("1.234 | round(1)", "1.2"),
        ("missing is defined", "False"),
        ("missing | default('d')", "d"),
    ],
)
def test_expressions(expression: str, expected: str) -> None:
    assert render("{{ " + expression + " }}") == expected


def test_namespaces_carry_values_out_of_loops() -> None:
    source = (
        "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}"
    )
    assert render(source) == "3"


def test_the_clock_is_the_callers() -> None:
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc)
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: moment)
    assert template.render(USER) == "02 Jan 2026"


def test_generation_marks_print_their_content() -> None:
    assert render("a{% generation %}b{{ messages[0].content }}{% endgeneration %}c") == "abhic"


def test_raise_exception_names_the_line_and_the_reason() -> None:
    source = "one\n{% if messages[0].role != 'system' %}\n{{ raise_exception('no system') }}{% endif %}"
    with pytest.raises(ChatTemplateError, match=r"refused the messages \(line 3\): no system"):
        render(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n{% for %}", r"malformed at line 2"),
        ("a\n{% nope %}", r"malformed at line 2: Encountered unknown tag 'nope'"),
        ("a\n\n{{ x | nope }}", r"malformed at line 3: No filter named 'nope'"),
        ("a\n{{ 1 + 'x' }}", r"failed at line 2: TypeError"),
        ("a\n{{ missing.attribute }}", r"failed at line 2: 'missing' is undefined"),
        ("a\n{{ 1 // 0 }}", r"failed at line 2: ZeroDivisionError"),
        ("{% macro f() %}\n{{ messages[0].content.x.y }}{% endmacro %}\n\n{{ f() }}", r"failed at line 2"),
    ],
)
def test_errors_name_the_line(source: str, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        render(source)


def test_messages_must_be_objects() -> None:
    with pytest.raises(ChatTemplateError, match="message 1 is a str"):
        render("", [{"role": "user", "content": "x"}, "oops"])
