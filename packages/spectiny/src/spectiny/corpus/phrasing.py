"""A template with alternatives goes in, one random wording comes out.

A template holds alternatives, `<a|b|>` (they nest, and may be empty), and fields, `$name`. Braces, brackets and
percent signs mean nothing, so a template may hold Python.
"""

import random
import re
from collections.abc import Mapping

_CHOICE = re.compile(r"<([^<>|]*(?:\|[^<>|]*)+)>")
_SPACES = re.compile(r" +([ .,:?!])")
_FIELD = re.compile(r"\$([a-z][a-z0-9_]*)")


def say(rng: random.Random, template: str, fields: Mapping[str, object] | None = None) -> str:
    """Return one wording of the template, every alternative equally likely."""
    text = template
    while True:
        chosen = _CHOICE.sub(lambda found: rng.choice(found.group(1).split("|")), text)
        if chosen == text:
            break
        text = chosen
    if fields is None:
        return text
    return _FIELD.sub(lambda found: str(fields[found.group(1)]), text)


def sentence(rng: random.Random, template: str, fields: Mapping[str, object] | None = None) -> str:
    """Return one wording with its first letter in upper case, and no space left over by an empty alternative."""
    text = _SPACES.sub(r"\1", say(rng, template, fields)).strip()
    return text[:1].upper() + text[1:]


def article(noun: str) -> str:
    """Return the noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
