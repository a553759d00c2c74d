"""Without a method the command takes the fastest, and says which and why."""

PROMPT = "Hello"


def test_the_default_is_auto_and_the_text_the_plain_one(specrun, family, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = ("generate", PROMPT, "--model", family.target, "--max-new-tokens", "24")
    first = specrun(*command, "--draft", family.drafter, "--stats")
    assert first.code == 0, first.err
    assert "trying 1 drafter(s) on this machine, once" in first.err
    assert "measuring what rounds of" in first.err
    assert "chosen by auto" in first.err
    assert "times plain decoding on trial prompts" in " ".join(first.err.split())
    again = specrun(*command, "--draft", family.drafter, "--json")
    assert "trying" not in again.err
    assert again.record["chosen"].startswith(again.record["method"])
    plain = specrun(*command, "--method", "ar", "--json").record
    assert again.record["token_ids"] == plain["token_ids"]
    assert plain["chosen"] is None


def test_without_a_drafter_it_decodes_plainly_and_says_so(specrun, family):
    found = specrun("generate", PROMPT, "--model", family.target, "--max-new-tokens", "9", "--stats")
    assert found.code == 0, found.err
    assert "plain decoding: no drafter is known" in " ".join(found.err.split())
