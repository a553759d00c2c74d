"""Prompts of more than one unit of cache rows, in batch rows that are taken again: the span has to follow them."""

import torch

from specrun.config import Sampling
from specrun.loop import SPAN

from doubles.engines import engine_for, small_target


def test_long_prompts_in_reused_rows_decode_as_alone():
    target = small_target()
    generator = torch.Generator().manual_seed(0)
    lengths = (SPAN - 2, 3, 2 * SPAN + 1, SPAN + 5)
    prompts = [torch.randint(target.config.vocab_size, (n,), generator=generator).tolist() for n in lengths]
    sampling = Sampling(max_new_tokens=9, stop_ids=())
    plain = engine_for("ar", target)
    expected = [plain.generate(prompt, sampling).token_ids for prompt in prompts]
    for name in ("dflash", "dominotree"):
        found = engine_for(name, target).generate_batch(prompts, sampling, batch_size=2)
        assert [one.token_ids for one in found] == expected
