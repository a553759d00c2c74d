"""Small random corpora in the format of the training shards."""

import numpy as np

from spectrain.data import Shard


def random_shard(
    documents: int = 30, *, seed: int = 0, vocab: int = 60, shortest: int = 6, longest: int = 24
) -> Shard:
    """Documents of random tokens and lengths, a third of each being its prompt, two domains in turn."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(shortest, longest + 1, documents)
    return Shard(
        tokens=generator.integers(0, vocab, int(lengths.sum())).astype(np.uint16),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_lengths=(lengths // 3).astype(np.int32),
        domains=(np.arange(documents) % 2).astype(np.uint8),
    )
