"""`specrun check` passes what is lossless, and accuses what is not: ids by margin, and the law by its test."""

import json
import re

import pytest
import torch

from specrun import step as step_module


@pytest.fixture
def check(specrun, family, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("Hello", "Count to 5")))

    def run(*arguments, methods="dflash,ddtree"):
        common = ("--model", family.target, "--draft", family.drafter, "--methods", methods)
        return specrun(
            "check", *common, "--prompts", prompts, "--max-new-tokens", 12, "--draws", 96, *arguments
        )

    return run


def test_every_method_passes(check):
    outcome = check("--dtype", "float64")
    assert outcome.code == 0, outcome.out
    header, *rows = outcome.out.splitlines()[:4]
    assert re.split(r"  +", header) == ["METHOD", "GREEDY", "TEMPERATURE 1", "TOKENS/ROUND", "LAW"]
    found = {row.split()[0]: re.split(r"  +", row) for row in rows}
    assert found["dflash"][1:3] == found["ddtree"][1:3] == ["2", "2"]
    assert found["ddtree"][4] == "-"
    assert outcome.out.endswith("\nLossless.\n")
    assert max(map(len, outcome.out.splitlines())) <= 80
    record = check("--json", "--draws", 0).record
    assert record["lossless"]
    assert 0 < record["tie"] < 1e-3
    assert [entry["method"] for entry in record["methods"]] == ["ar", "dflash", "ddtree"]


def test_other_ids_are_accused(check, monkeypatch):
    """A walk that takes one token more than the target agreed to."""
    inner = step_module.commit

    def broken(state, tree, verdict, *rest, **named):
        count_B = (verdict.count_B + 1).clamp(max=verdict.path_BP.shape[1])
        return inner(state, tree, verdict._replace(count_B=count_B), *rest, **named)

    monkeypatch.setattr(step_module, "commit", broken)
    outcome = check("--draws", 0, methods="dflash")
    assert outcome.code == 1
    assert "2 OTHER" in outcome.out
    assert re.search(
        r"dflash, greedy, prompt 1, token \d+: .* for .*, margin [0-9.]+, no tie",
        " ".join(outcome.out.split()),
    )
    assert outcome.out.endswith("\nNot lossless: dflash.\n")
    (_, found) = check("--draws", 0, "--json", methods="dflash").record["methods"]
    (first, *_) = found["partings"]["greedy"]
    assert first["prompt"] == 1
    assert first["margin"] is None or first["margin"] > 1e-3


def test_ids_behind_a_tie_are_not(check, monkeypatch):
    """Scores that are moved by less than rounding moves them change ids where two are as good, and nowhere else."""
    inner = step_module.verify

    def tied(state, target, tree, **named):
        seen = inner(state, target, tree, **named)
        best = seen.shaped_BNV.max(dim=-1, keepdim=True).values
        # the two best score alike up to what no dtype holds, and a pass over many rows takes the second
        second = seen.shaped_BNV.topk(2, dim=-1).indices[..., 1:]
        lift = 1e-12 if tree.tokens_BN.shape[1] > 1 else -1e-12
        return seen._replace(shaped_BNV=seen.shaped_BNV.scatter(-1, second, best + lift))

    monkeypatch.setattr(step_module, "verify", tied)
    monkeypatch.setattr("specrun_cli.check.rounding", lambda *a, **k: 1e-11)
    outcome = check("--dtype", "float64", "--draws", 0, methods="ddtree")
    assert outcome.code == 0, outcome.out
    assert "2 tied" in outcome.out
    assert "a tie" in outcome.out


def test_another_law_is_accused(check, monkeypatch):
    """Drafts that are always taken follow the drafter's law."""
    inner = step_module.reject

    def lenient(proposal, shaped_BNV, *rest):
        verdict = inner(proposal, shaped_BNV, *rest)
        taken = torch.full_like(verdict.count_B, proposal.tokens_BK.shape[1] + 1)
        return verdict._replace(count_B=taken, path_BP=torch.arange(int(taken[0])).expand(len(taken), -1))

    monkeypatch.setattr(step_module, "reject", lenient)
    outcome = check("--temperature", "0.3", methods="dflash")
    assert outcome.code == 1, outcome.out
    assert outcome.out.endswith("\nNot lossless: dflash.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--temperature", "0"), "temperature: got 0, expected above 0"),
        (("--max-new-tokens", "1"), "max new tokens: got 1, expected at least 2"),
        (("--max-new-tokens", "1000"), "prompt: got .* tokens and 1000 new ones"),
        (("--draws", "-1"), "draws: got -1, expected at least 32, or 0"),
        (("--methods", "magic"), "method: got 'magic', expected one of"),
        (("--methods", "domino"), "draft: .* carries no head, expected domino"),
        (("--prompts", "absent"), "absent: No such file"),
        (("--method", "dflash"), "arguments: got --method"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_refusals(check, arguments, message):
    outcome = check(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert re.match(f"specrun: {message}", outcome.err.splitlines()[-1]), outcome.err


def test_a_folder_without_known_drafters(specrun, family):
    outcome = specrun("check", "--model", family.target)
    assert outcome.code == 2
    assert "methods: no drafter of" in outcome.err
