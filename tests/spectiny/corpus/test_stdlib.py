"""Library code is cut at line ends, and held out by file."""

import random

from spectiny.corpus.stdlib import chunks, files


def test_the_split_is_by_file():
    trained, held = files(held_out=False), files(held_out=True)
    assert not set(trained) & set(held)
    assert 0.04 < len(held) / (len(held) + len(trained)) < 0.13
    assert not any("test" in path.parts or "site-packages" in path.parts for path in trained + held)


def test_prompt_and_response_are_neighbours_in_the_file():
    path = next(
        path for path in files(held_out=True) if path.name == "sched.py" or path.stat().st_size > 8_000
    )
    text = "\n".join(line.strip() for line in path.read_text(encoding="utf-8").expandtabs(4).split("\n"))
    found = list(chunks(path, random.Random(0)))
    assert found
    for document in found:
        joined = f"{document.prompt}\n{document.response}"
        compact = "\n".join(line.strip() for line in joined.split("\n") if line.strip())
        assert compact in "\n".join(line for line in text.split("\n") if line)


def test_another_seed_cuts_elsewhere():
    path = max(files(held_out=True), key=lambda one: one.stat().st_size)
    first = [one.prompt for one in chunks(path, random.Random(0))]
    assert first == [one.prompt for one in chunks(path, random.Random(0))]
    assert first != [one.prompt for one in chunks(path, random.Random(1))]


def test_a_file_of_one_function(tmp_path):
    lines = [
        "def f(x):",
        *(f"    x = x + {number}  # a line of some length" for number in range(40)),
        "    return x",
    ]
    path = tmp_path / "one.py"
    path.write_text("\n".join(lines) + "\n")
    found = list(chunks(path, random.Random(0)))
    assert len(found) > 1
    assert "\n".join(f"{one.prompt}\n{one.response}" for one in found) == "\n".join(lines)
