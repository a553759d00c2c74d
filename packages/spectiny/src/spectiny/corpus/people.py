"""Names of people with their pronouns, for problems and stories."""

import random
from typing import NamedTuple


class Person(NamedTuple):
    """A name and the pronouns that go with it."""

    name: str
    they: str
    them: str
    their: str


_SHE = (
    "Anna Mia Clara Nora Lily Ruth Ella Maya Zoe Ida Sofia Alice Emma Rosa Tara Leila Hana Greta Vera Nina Lucy Olga "
    "Priya Amara"
).split()
_HE = (
    "Ben Tom Leo Max Sam Omar Noah Finn Hugo Ivan Jack Paul Emil Theo Ravi Kofi Adam Oscar Luis Milo Peter Yusuf Erik "
    "Dan"
).split()


def people(rng: random.Random, count: int) -> list[Person]:
    """Return `count` different people."""
    names = rng.sample([*_SHE, *_HE], count)
    return [
        Person(name, "she", "her", "her") if name in _SHE else Person(name, "he", "him", "his")
        for name in names
    ]
