"""The source of a chat template in, a function from its variables to text out.

Templates are programs from strangers. They run in jinja2's sandbox, which keeps them from Python's objects, and within
limits of time and size, which keep a wrong one from taking the machine. It knows no folder and no tokenizer.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from types import FrameType
from typing import Any, Final, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_SECONDS: Final = 2.0
"""Of one rendering; an honest template takes milliseconds."""

MOST_REPEATED: Final = 2**20
"""Items of a repeated text or list, and the largest power of a number."""

_LONG_NUMBER: Final = re.compile(r"\d{9,}")  # widths of formats and fields stand in texts too

Render = Callable[[Mapping[str, Any]], str]


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuse products that are large only to be large."""
        sizes = [abs(side) if isinstance(side, int) else len(side) for side in (left, right) if _counts(side)]
        if len(sizes) == 2 and (sizes[0] + 1) * (sizes[1] + 1) > MOST_REPEATED:
            raise TemplateError(f"a product of {sizes[0]} and {sizes[1]} is more than a template needs")
        return super().call_binop(context, operator, left, right)


def compiled(source: str) -> Render:
    """Compile a template; both this and its result raise TemplateError for whatever goes wrong in it."""
    if _LONG_NUMBER.search(source):
        raise TemplateError("a number of more than eight digits is more than a template needs")
    # unoptimised: constant parts would be computed here, where no clock runs
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], optimized=False
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _strftime_now
    template = _guarded(lambda: environment.from_string(source))
    return lambda variables: _guarded(lambda: _in_time(lambda: template.render(variables)))


def _guarded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except TemplateError:
        raise
    except Exception as error:  # a program from a stranger may raise anything
        raise TemplateError(f"{type(error).__name__}: {error}") from error


def _in_time(call: Callable[[], str]) -> str:
    """Run a template under a clock that looks at every line of it."""
    end = time.monotonic() + MOST_SECONDS

    def look(_frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
        if time.monotonic() > end:
            raise TemplateError(f"it took more than {MOST_SECONDS:g} seconds")
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        return call()
    finally:
        sys.settrace(before)


def _counts(side: object) -> bool:
    return isinstance(side, int | str | list | tuple)


def _tojson(value: object, indent: int | None = None) -> str:
    # jinja2's own filter escapes HTML, which would change prompts
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)
