"""Prepare, chain and tree of every corrector compile as one graph: no read of a device value, no branch on one."""

import pytest
import torch

from speccorrect.candidates import select_candidates
from speccorrect.grow import TreeShape, grow_chain, grow_tree
from speccorrect.registry import corrector_specs

from doubles.blocks import drafted, randomise

SHAPE = TreeShape(nodes=6, lanes=3, ledger=6)


@pytest.mark.parametrize("name", corrector_specs())
def test_a_corrector_compiles_whole(name):
    given = drafted(slots=3, vocab=20)
    module = randomise(corrector_specs()[name].new(given.shape), scale=0.1)

    def draft(logits_BKV):
        prepared = module.prepare(given.block, given.borrowed, select_candidates(logits_BKV, 6))
        tree = grow_tree(module, prepared, given.block.anchor_B, 3, SHAPE)
        return grow_chain(module, prepared, 3).tokens_BK, tree.tokens_BN, tree.sees_BNN

    with torch.no_grad():
        compiled = torch.compile(draft, fullgraph=True, backend="eager")
        for eager, graph in zip(draft(given.logits_BKV), compiled(given.logits_BKV), strict=True):
            assert torch.equal(eager, graph)
    torch.compiler.reset()
