"""The recipes that come with the package are read, and what makes no sense together is refused in one line."""

from pathlib import Path

import pytest

from spectrain.runs.recipe import parse_recipe, recipe_text, shipped_recipes

TOOLS = sorted((Path(__file__).parents[3] / "tools").rglob("*.toml"))
PLAIN = """
title = "x"
[target]
model = "tiny"
[data]
prompts = "tiny"
[objective]
name = "{objective}"
[optimiser.drafter]
matrix_lr = 0.01
other_lr = 1e-3
[schedule]
steps = 10
warmup = 1
"""
HEAD = "[optimiser.head]\nmatrix_lr = 0.01\nother_lr = 1e-3\n"


def plain(objective="dflash", extra="", **changes):
    text = PLAIN.format(objective=objective) + extra
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    return parse_recipe(text, "file.toml")


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_are_read(name):
    found = parse_recipe(*reversed(recipe_text(name)))
    assert found.title
    assert (found.optimiser.head is not None) == (found.corrector != "none")


@pytest.mark.parametrize("path", TOOLS, ids=lambda path: path.stem)
def test_recipes_of_the_tools_are_read(path):
    assert parse_recipe(path.read_text(), path.name).title


def test_the_objective_names_the_head():
    assert plain().corrector == "none"
    found = plain("domino", HEAD)
    assert (found.corrector, found.drafter_learns) == ("domino", True)
    assert (found.objective.chosen_gamma, found.objective.chosen_cross_entropy) == (7.0, 0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": "jump"}, r"file\.toml\.objective: recipe: got 'jump', expected one of dflash"),
        (
            {"objective": "domino"},
            r"file\.toml: optimiser\.head: got no table, expected learning rates; add it",
        ),
        (
            {"extra": HEAD},
            r"file\.toml: optimiser\.head: got a table, but that part is not trained; remove it",
        ),
        ({"extra": "[head]\nrank = 4\n"}, r"file\.toml: head: has no effect on the objective dflash"),
        ({"extra": "[drafter]\nlearns = false\n"}, r"file\.toml: drafter\.learns: got false, but"),
        ({"a": ('name = "dflash"', 'name = "dpace"\ngamma = 3')}, r".*gamma: has no effect on .* dpace"),
        (
            {"a": ('"dflash"', '"dflash"\ncross_entropy = 0.3')},
            r".*cross_entropy: has no effect on .* dflash",
        ),
        ({"a": ('"dflash"', '"dflash"\nanchors = 0')}, r".*anchors: got 0, expected at least 1"),
        ({"a": ("steps = 10", "steps = 1")}, r"file\.toml\.schedule: warmup: got 1, expected 0 to 0"),
        ({"a": ('prompts = "tiny"', "")}, r"file\.toml\.data: got neither of prompts and shards"),
        ({"a": ('prompts = "tiny"', 'prompts = "a"\nshards = "b"')}, r".*got both of prompts and shards"),
        ({"a": ("steps = 10", "steps =")}, r"file\.toml: .*expected TOML"),
        (
            {"extra": '[drafter]\nstart = "a"\n[drafter.new]\n'},
            r"file\.toml\.drafter\.new: got no key 'layers'",
        ),
    ],
)
def test_refusals(change, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        plain(**change)


def test_names_and_files(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("title = 1")
    assert recipe_text(str(path)) == ("mine", "title = 1")
    with pytest.raises(ValueError, match=r"^recipe: got 'nothing', expected a file .* tiny-domino"):
        recipe_text("nothing")
    with pytest.raises(ValueError, match="is no file"):
        recipe_text(str(tmp_path / "absent.toml"))
