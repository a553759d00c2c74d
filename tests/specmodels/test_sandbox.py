"""Templates of strangers: what they may not reach, and what they may not use up."""

import sys
import time

import pytest
from jinja2 import TemplateError

from specmodels import sandbox
from specmodels.sandbox import compiled


def test_lines_loops_and_json_as_chat_templates_write_them():
    source = (
        "{% for m in messages %}\n    {% if m.x > 2 %}{% break %}{% endif %}\n{{ m | tojson }}\n{% endfor %}"
    )
    assert compiled(source)({"messages": [{"x": 1}, {"x": 3}]}) == '{"x": 1}\n'
    assert compiled("{{ m | tojson }}")({"m": "<\u00e9>"}) == '"<\u00e9>"'


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ messages.append(1) }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{% include '/etc/hostname' %}",
        "{% import 'os' as os %}",
    ],
)
def test_python_s_objects_and_files_are_out_of_reach(source):
    try:
        text = compiled(source)({"messages": []})
    except TemplateError:
        return
    assert text == ""  # the sandbox may also answer with an undefined value


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ 'ab' * 10 ** 9 }}", "a product of"),
        ("{{ [1, 2] * 9999999 }}", "a product of"),
        ("{{ '{:>999999999}'.format(1) }}", "a number of more than eight digits"),
        ("{{ 'a' | center(999999999) }}", "a number of more than eight digits"),
        ("{{ 9 ** 9 ** 9 }}", "a product of"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
        ("{{ range(10 ** 6) }}", "Range too big"),
        ("{{ strftime_now(3) }}", "TypeError"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "RecursionError"),
        ("{% if %}", "Expected an expression"),
    ],
)
def test_whatever_goes_wrong_is_one_kind_of_error(source, reason):
    with pytest.raises(TemplateError, match=reason):
        compiled(source)({"messages": []})


def test_a_loop_without_end_is_ended(monkeypatch):
    monkeypatch.setattr(sandbox, "MOST_SECONDS", 0.2)
    run = compiled("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    started = time.monotonic()
    with pytest.raises(TemplateError, match=r"more than 0\.2 seconds"):
        run({})
    assert time.monotonic() - started < 5


def test_a_tracer_that_was_there_stays():
    seen = []

    def tracer(frame, event, argument):
        seen.append(event)

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        compiled("{{ a }}")({"a": 1})
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_products_that_are_small_are_as_ever():
    assert compiled("{{ '-' * 3 }}{{ 2 ** 10 }}{{ 3 * 1.5 }}{{ [1] * 2 }}")({}) == "---10244.5[1, 1]"
