"""Engines of random weights: the sizes that were asked for, and rounds that run."""

import torch

from specrun.config import DraftOptions, Sampling
from specrun.methods import method
from specrun.shapes import random_engine, random_pair


def test_a_shape_has_its_parameters_and_decodes():
    target, drafter = random_pair("tiny", torch.float32, 128)
    attention = 192 * (6 + 2 + 2) * 32 + 6 * 32 * 192
    layer = attention + 3 * 192 * 384 + 2 * 192 + 2 * 32
    assert sum(one.numel() for one in target.parameters()) == 2048 * 192 + 4 * layer + 192
    fuse = 3 * 192 * 192
    assert sum(one.numel() for one in drafter.parameters()) == fuse + 2 * layer + 2 * 192
    sampling = Sampling(max_new_tokens=5, stop_ids=())
    answers = [
        random_engine(method(name), (target, drafter), options=options)
        .generate([1, 2, 3], sampling)
        .token_ids
        for name, options in (("ar", None), ("domino", None), ("dominotree", DraftOptions(tree_budget=4)))
    ]
    assert answers[1:] == answers[:1] * 2
