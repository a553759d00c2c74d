"""Shards of tokenised documents go in, packed batches come out.

The batch of a step depends on the seed and the step alone, so a resumed run sees what the unbroken run would have seen.
Letters: B rows of a batch, S tokens of a row.
"""

import bisect
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

PADDING = -1
"""Document id of rows that belong to no document."""

_FILES = ("tokens", "offsets", "prompt_lengths", "domains")


@dataclass(frozen=True, slots=True)
class Shard:
    """Documents of one split, one after the other."""

    tokens: npt.NDArray[np.unsignedinteger[Any]]
    offsets: npt.NDArray[np.int64]  # document i is tokens[offsets[i]:offsets[i + 1]]
    prompt_lengths: npt.NDArray[np.int32]  # tokens of document i before its response
    domains: npt.NDArray[np.uint8]  # place of the document's domain in the corpus's list

    def __post_init__(self) -> None:
        counts = (len(self.offsets) - 1, len(self.prompt_lengths), len(self.domains))
        if len(set(counts)) != 1 or int(self.offsets[-1]) != len(self.tokens):
            raise ValueError(
                f"shard: got {counts} documents by file and {len(self.tokens)} tokens, expected equal counts and "
                f"{int(self.offsets[-1])} tokens; write the shard again"
            )

    def __len__(self) -> int:
        return len(self.domains)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of every document."""
        return np.diff(self.offsets)

    def document(self, index: int) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The tokens of one document."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


def read_shard(folder: Path, split: str) -> Shard:
    """Read one split of a corpus folder."""
    paths = [folder / f"{split}.{name}.npy" for name in _FILES]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ValueError(
            f"shard: got no {', '.join(missing)} in {folder}, expected all of them; make the corpus first"
        )
    return Shard(*(np.load(path) for path in paths))


def write_shard(folder: Path, split: str, shard: Shard) -> None:
    """Write one split of a corpus folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        np.save(folder / f"{split}.{name}.npy", getattr(shard, name))


def shard_hash(shard: Shard) -> str:
    """Sixteen hexadecimal digits that change with any token or boundary of the shard."""
    digest = hashlib.sha256()
    for name in _FILES:
        digest.update(np.ascontiguousarray(getattr(shard, name)).tobytes())
    return digest.hexdigest()[:16]


class Batch(NamedTuple):
    """Packed rows; positions restart at every document."""

    token_BS: Tensor  # int64; zero on padding
    document_BS: Tensor  # int64 place of the document in its shard; PADDING where there is none
    position_BS: Tensor  # int64
    response_BS: Tensor  # bool: the token belongs to a response

    def to(self, device: torch.device) -> "Batch":
        """The same rows on a device."""
        return Batch(*(part.to(device) for part in self))


def document_mask(document_BS: Tensor) -> Tensor:
    """`[B, S, S]` bool: a row sees itself and earlier rows of its own document. Padding sees padding."""
    rows = document_BS.shape[1]
    causal_SS = torch.ones(rows, rows, dtype=torch.bool, device=document_BS.device).tril()
    return (document_BS[:, :, None] == document_BS[:, None, :]) & causal_SS


class PackedRows:
    """Whole documents packed into rows of equal length, in an order drawn anew for every epoch."""

    def __init__(self, shard: Shard, *, batch: int, row: int, seed: int) -> None:
        longest = int(shard.lengths.max(initial=0))
        if longest > row:
            raise ValueError(
                f"rows: got a document of {longest} tokens, expected at most {row}; use longer rows"
            )
        self.shard, self.batch_rows, self.row, self.seed = shard, batch, row, seed
        self._epoch = -1
        self._rows: list[list[int]] = []
        # every epoch is cut to the batches of the first one, so that a step's epoch needs no search
        self.num_batches = len(self._plan(0)) // batch
        if self.num_batches == 0:
            raise ValueError(
                f"rows: got {len(shard)} documents, expected enough for {batch} rows; use smaller batches"
            )

    def batch(self, step: int) -> Batch:
        """The batch of a step, the same whenever it is asked for."""
        epoch, place = divmod(step, self.num_batches)
        rows = self._plan(epoch)
        start = place * self.batch_rows
        # an epoch may pack a little tighter than the first one and end early: its last rows then start again
        chosen = [rows[index % len(rows)] for index in range(start, start + self.batch_rows)]
        return pack(self.shard, chosen, self.row)

    def _plan(self, epoch: int) -> list[list[int]]:
        if epoch != self._epoch:
            order = np.random.default_rng((self.seed, epoch)).permutation(len(self.shard))
            self._rows = plan_rows(self.shard.lengths, order, self.row)
            self._epoch = epoch
        return self._rows


def plan_rows(
    lengths: npt.NDArray[np.int64], order: npt.NDArray[np.int64], row: int, open_rows: int = 256
) -> list[list[int]]:
    """Best fit over a bounded set of open rows: the place of every document, row by row, about in the given order."""
    closed: list[list[int]] = []
    room: list[tuple[int, int, list[int]]] = []  # (tokens left, tie break, documents), sorted
    for serial, index in enumerate(order.tolist()):
        length = int(lengths[index])
        found = bisect.bisect_left(room, length, key=lambda entry: entry[0])
        if found < len(room):
            left, _, documents = room.pop(found)
            documents.append(index)
        else:
            left, documents = row, [index]
        bisect.insort(room, (left - length, serial, documents))
        if len(room) > open_rows:
            closed.append(room.pop(0)[2])
    return closed + [documents for _, _, documents in room]


def pack(shard: Shard, rows: list[list[int]], row: int) -> Batch:
    """Lay documents side by side in rows of the given length."""
    tokens = np.zeros((len(rows), row), dtype=np.int64)
    documents = np.full((len(rows), row), PADDING, dtype=np.int64)
    positions = np.zeros((len(rows), row), dtype=np.int64)
    response = np.zeros((len(rows), row), dtype=np.bool_)
    for place, members in enumerate(rows):
        start = 0
        for index in members:
            ids = shard.document(index)
            end = start + len(ids)
            tokens[place, start:end] = ids
            documents[place, start:end] = index
            positions[place, start:end] = np.arange(len(ids))
            response[place, start + int(shard.prompt_lengths[index]) : end] = True
            start = end
    return Batch(*(torch.from_numpy(array) for array in (tokens, documents, positions, response)))


def split_documents(shard: Shard, held_out: float, seed: int) -> tuple[Shard, Shard]:
    """Cut a shard by whole documents into one to train on and one to measure on."""
    order = np.random.default_rng(seed).permutation(len(shard))
    count = round(held_out * len(shard))
    return select(shard, np.sort(order[count:])), select(shard, np.sort(order[:count]))


def select(shard: Shard, documents: npt.NDArray[np.int64]) -> Shard:
    """The shard of some documents, in the given order."""
    chosen = [shard.document(int(index)) for index in documents]
    lengths = [len(ids) for ids in chosen]
    return Shard(
        tokens=np.concatenate([*chosen, shard.tokens[:0]]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_lengths=shard.prompt_lengths[documents],
        domains=shard.domains[documents],
    )


def concatenate(shards: Sequence[Shard]) -> Shard:
    """One shard of all documents, in order."""
    lengths = np.concatenate([shard.lengths for shard in shards])
    return Shard(
        tokens=np.concatenate([shard.tokens for shard in shards]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_lengths=np.concatenate([shard.prompt_lengths for shard in shards]),
        domains=np.concatenate([shard.domains for shard in shards]),
    )
