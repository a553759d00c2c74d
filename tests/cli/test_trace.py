"""`specrun trace`: the page by its structure, and in a browser where one is installed."""

import json
from html.parser import HTMLParser

import pytest

from specrun_cli.main import main

from doubles.browser import Browser, installed

PROMPT = "Once </script><b>upon</b> a time"


SETTINGS = ("--method", "ddtree", "--temperature", "0.9", "--seed", "4", "--tree-budget", "12")


@pytest.fixture(name="page", scope="module")
def _page(family, tmp_path_factory):
    page = tmp_path_factory.mktemp("trace") / "page.html"
    models = ("--model", str(family.target), "--draft", str(family.drafter))
    assert main(["trace", PROMPT, *models, *SETTINGS, "--max-new-tokens", "40", "--html", str(page)]) == 0
    return page


class Reader(HTMLParser):
    """Elements, and what a browser would fetch or take for the record."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references, self.scripts, self._inside = [], [], {}, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        kept = dict(attributes)
        self.references += [value for name, value in attributes if name in {"src", "href", "action", "data"}]
        if tag == "script":
            self._inside = kept.get("type", "program")

    def handle_endtag(self, tag):
        if tag == "script":
            self._inside = None

    def handle_data(self, data):
        if self._inside is not None:
            self.scripts[self._inside] = self.scripts.get(self._inside, "") + data


def record_in(page):
    return json.loads(Reader(page.read_text()).scripts["application/json"])


def test_the_page_is_whole_in_itself(page):
    text = page.read_text()
    read = Reader(text)
    assert read.references == []
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "@import" not in text
    # two elements, whatever the prompt holds; and no element of the prompt's
    assert read.tags.count("script") == 2
    assert "b" not in read.tags
    assert list(read.scripts) == ["application/json", "program"]


def test_the_record_is_that_of_generate(page, generate):
    record = record_in(page)
    plain = generate(PROMPT, *SETTINGS, "--json", limit=40).record
    assert record["prompt"] == PROMPT
    assert [token["id"] for token in record["tokens"]] == plain["token_ids"]
    assert "".join(token["text"] for token in record["tokens"]) == record["text"] == plain["text"]
    assert len(record["rounds"]) == plain["rounds"]
    assert record["tokens_per_round"] == plain["tokens_per_round"]
    assert record["method"] == "ddtree"
    drafted = [len(one["nodes"]) - 1 for one in record["rounds"]]
    assert max(drafted) == 12
    assert sum(one["kept"] for one in record["rounds"]) == len(record["tokens"]) - 1


def test_json_alone_writes_no_file(specrun, family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = specrun(
        *(
            "trace",
            PROMPT,
            "--model",
            family.target,
            "--draft",
            family.drafter,
            "--max-new-tokens",
            3,
            "--json",
        )
    )
    assert outcome.code == 0
    assert len(outcome.record["tokens"]) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "output: got none, expected --html FILE"),
        (
            ("--html", "missing/page.html"),
            "html: got 'missing/page.html', expected a file in a folder that exists",
        ),
        (("--html", "."), "html: got '.', expected a file"),
        (("--html", "page.html", "--top-p", "0.5"), "top-p: got 0.5 at temperature 0"),
        (("--html", "page.html", "--max-new-tokens", "1000"), "prompt: got "),
    ],
)
def test_nothing_is_written_for_wrong_input(specrun, family, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    outcome = specrun("trace", PROMPT, "--model", family.target, "--draft", family.drafter, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"specrun: {message}"), outcome.err
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(name="browser", scope="module")
def _browser(tmp_path_factory):
    program = installed()
    if program is None:
        pytest.skip("no Chromium is installed")
    with Browser(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def test_a_reader_goes_through_the_rounds(browser, page):
    rounds = record_in(page)["rounds"]
    browser.open(page)
    assert browser.text("#heading") == f"Round 1 of {len(rounds)}"
    assert browser.text("#prompt") == PROMPT
    assert browser.count("#bars g") == len(rounds)
    for key, number in (
        ("ArrowRight", 2),
        ("ArrowRight", 3),
        ("ArrowLeft", 2),
        ("End", len(rounds)),
        ("Home", 1),
    ):
        browser.press(key)
        assert browser.text("#heading") == f"Round {number} of {len(rounds)}"
        one = rounds[number - 1]
        # all nodes, and the target's own token; the taken path is marked on nodes and in the text
        assert browser.count("#tree .node") == len(one["nodes"]) + 1
        assert browser.count("#tree .node.taken") == one["accepted"]
        assert browser.count("#tree .edge") == len(one["nodes"])
        assert browser.count("#answer .here") == one["kept"]
        assert browser.count("#bars .here") == 1
        assert browser.count("#times tr") == 2 + len(one["stages"])
    browser.click("#next")
    assert browser.text("#heading") == f"Round 2 of {len(rounds)}"
    browser.click(f'#bars g[data-round="{len(rounds) - 1}"] .slot')
    assert browser.text("#heading") == f"Round {len(rounds)} of {len(rounds)}"
    browser.click('#answer [data-round="2"]')
    assert browser.text("#heading") == f"Round 3 of {len(rounds)}"


def test_a_reader_looks_at_nodes(browser, page):
    one = record_in(page)["rounds"][0]
    browser.open(page)
    last = len(one["nodes"]) - 1
    browser.click(f'#tree .node[data-node="{last}"]')
    node = one["nodes"][last]
    said = browser.text("#inspector")
    assert f"id {node['id']}" in said
    assert f"Depth {node['depth']}." in said
    assert browser.count("#inspector td") == 2 * len(node["choices"])
    browser.press("ArrowDown")
    assert "The target's own token" in browser.text("#inspector")
    browser.press("ArrowDown")
    assert "The anchor" in browser.text("#inspector")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_reader_s_colours(browser, page, scheme):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(page)
    red, green, blue = browser.run(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    )
    ink = browser.run("getComputedStyle(document.body).color.match(/\\d+/g).map(Number)")
    assert (red + green + blue > 3 * 200, sum(ink) < 3 * 60) == (
        (True, True) if scheme == "light" else (False, False)
    )


@pytest.mark.parametrize("method", ["ar", "dflash"])
def test_chains_and_plain_decoding_have_a_page_too(browser, method, family, tmp_path, specrun):
    page = tmp_path / "page.html"
    draft = () if method == "ar" else ("--draft", family.drafter)
    specrun(
        "trace",
        "Hi",
        "--model",
        family.target,
        *draft,
        "--method",
        method,
        "--max-new-tokens",
        9,
        "--html",
        page,
    )
    one = record_in(page)["rounds"][0]
    browser.open(page)
    assert browser.count("#tree .node") == len(one["nodes"]) + 1
    assert browser.count("#path tr") == len(one["nodes"]) + 1


def test_no_page_had_an_error_or_asked_for_anything(browser, page):
    browser.open(page)
    assert browser.errors == []
    assert page.as_uri() in browser.requests
    assert all(address.startswith("file:") for address in browser.requests)
