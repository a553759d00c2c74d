"""What is read from the sources is what the modules say of themselves."""

from speccorrect.described import described_correctors
from speccorrect.registry import corrector_specs


def test_descriptions_equal_the_specs():
    found = {
        name: (text.name, text.title, text.paper, text.summary)
        for name, text in described_correctors().items()
    }
    specs = corrector_specs()
    assert list(found) == list(specs)
    assert found == {name: (spec.name, spec.title, spec.paper, spec.summary) for name, spec in specs.items()}
