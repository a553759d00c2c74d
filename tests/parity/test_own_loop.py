"""The loop of speccorrect's README, run as it stands: transformers, a public drafter, one head, and no engine of ours."""

import re
from pathlib import Path

import pytest
import torch

import spectiny
from specrun import load_engine

pytest.importorskip("transformers")
reference = pytest.importorskip("dflash.model")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

README = Path(__file__).parents[2] / "packages" / "speccorrect" / "README.md"
NEW_TOKENS = 40


def loop():
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert code is not None, "the README holds no code"
    scope: dict = {}
    exec(compile(code.group(1), str(README), "exec"), scope)
    return scope["generate"]


@pytest.mark.parametrize("corrector", ["none", "domino"])
def test_the_readme_s_loop(corrector):
    method, folder = {"none": ("dflash", "qwen3-tiny-dflash"), "domino": ("domino", "qwen3-tiny-domino")}[
        corrector
    ]
    target = transformers.AutoModelForCausalLM.from_pretrained(
        spectiny.folder("qwen3-tiny"), dtype=torch.float32
    )
    drafter = reference.DFlashDraftModel.from_pretrained(
        spectiny.folder("qwen3-tiny").parent / folder, dtype=torch.float32
    )
    engine = load_engine("tiny", method)
    passes = 0

    def counted(*arguments, **options):
        nonlocal passes
        passes += 1
        return target.forward(*arguments, **options)

    counted.get_input_embeddings = target.get_input_embeddings
    counted.get_output_embeddings = target.get_output_embeddings
    generate = loop()
    for document in spectiny.prompts("story")[:3]:
        ids = torch.tensor([engine.chat_ids(document.prompt)])
        text = generate(counted, drafter.eval(), engine.parts.corrector, ids, NEW_TOKENS)
        expected = target.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=-1)
        assert text.tolist() == expected.tolist()
    assert passes < 3 * NEW_TOKENS / 2, "the drafts were of no use"
