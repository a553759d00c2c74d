"""Random drafted blocks with everything that a corrector is given, and the checks that every corrector has to pass."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from speccorrect.candidates import select_candidates
from speccorrect.contract import unroll
from speccorrect.grow import grow_chain
from speccorrect.products import Borrowed, Candidates, DraftBlock
from speccorrect.registry import claim_head
from speccorrect.source import HeadShape, HeadSource

# fp32 products summed in another order; scores are of order 1 to 10
CLOSE = 1e-5


@dataclass(frozen=True, kw_only=True)
class Drafted:
    """A block, the tensors of a target, and the base logits that belong to both."""

    block: DraftBlock
    borrowed: Borrowed
    logits_BKV: Tensor

    @property
    def shape(self) -> HeadShape:
        rows = self.block.hidden_BRD
        return HeadShape(
            hidden_size=rows.shape[2],
            vocab_size=self.borrowed.head_VD.shape[0],
            block_size=self.block.slots + (0 if self.block.first == 0 else 1),
            shifted=self.block.first == 0,
        )

    def candidates(self, count: int | None = None) -> Candidates:
        """The base's best tokens per slot; None is the whole vocabulary without ids."""
        return select_candidates(self.logits_BKV, count)


def drafted(
    seed: int = 0,
    *,
    batch: int = 2,
    slots: int = 5,
    width: int = 12,
    vocab: int = 23,
    shifted: bool = True,
) -> Drafted:
    """Hidden rows of unit size, as a drafter's final norm leaves them."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator)

    first = 0 if shifted else 1
    hidden, head = normal(batch, slots + first, width), normal(vocab, width) / width**0.5 * 2
    block = DraftBlock(
        hidden_BRD=hidden,
        first=first,
        anchor_B=torch.randint(vocab, (batch,), generator=generator),
        before_B=torch.randint(vocab, (batch,), generator=generator),
        feature_BD=normal(batch, width),
        feature_valid_B=torch.arange(batch) > 0,
    )
    return Drafted(
        block=block,
        borrowed=Borrowed(embedding_VD=normal(vocab, width), head_VD=head),
        logits_BKV=hidden[:, first:] @ head.T,
    )


def randomise(module: nn.Module, seed: int = 1, scale: float = 0.4) -> nn.Module:
    """Give every floating parameter and buffer random values, so that no part of a head is without effect."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * scale)
    return module.eval()


def random_choices(candidates: Candidates, lanes: int = 1, seed: int = 2) -> Tensor:
    """Indices `[B, W, K]` of candidates that are offered, drawn evenly."""
    offered = (candidates.base_BKC > float("-inf")).float()
    batch, slots, count = offered.shape
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial(offered.reshape(-1, count), lanes, replacement=True, generator=generator)
    return drawn.view(batch, slots, lanes).transpose(1, 2)


@torch.no_grad()
def check_block(corrector, drafted: Drafted, count: int | None) -> None:
    """`block` equals the unrolled steps."""
    prepared = corrector.prepare(drafted.block, drafted.borrowed, drafted.candidates(count))
    choice = random_choices(prepared.candidates)[:, 0]
    torch.testing.assert_close(
        corrector.block(prepared, choice), unroll(corrector, prepared, choice), rtol=0, atol=CLOSE
    )


@torch.no_grad()
def check_lanes(corrector, drafted: Drafted, count: int | None, lanes: int = 6) -> None:
    """Many lanes at once equal as many single lanes, in scores and in confidence."""
    prepared = corrector.prepare(drafted.block, drafted.borrowed, drafted.candidates(count))
    choice = random_choices(prepared.candidates, lanes)
    together = corrector.start(prepared).expand(-1, lanes, -1)
    alone = [corrector.start(prepared) for _ in range(lanes)]
    for depth in range(drafted.block.slots):
        one_by_one = torch.cat([corrector.scores(prepared, depth, state) for state in alone], dim=1)
        torch.testing.assert_close(
            corrector.scores(prepared, depth, together), one_by_one, rtol=0, atol=CLOSE
        )
        confidence = corrector.confidence(prepared, depth, together)
        if confidence is not None:
            one_by_one = torch.cat([corrector.confidence(prepared, depth, state) for state in alone], dim=1)
            torch.testing.assert_close(confidence, one_by_one, rtol=0, atol=CLOSE)
        together = corrector.advance(prepared, depth, choice[:, :, depth], together)
        alone = [
            corrector.advance(prepared, depth, choice[:, lane, depth, None], state)
            for lane, state in enumerate(alone)
        ]


@torch.no_grad()
def check_whole_vocabulary(corrector, drafted: Drafted) -> None:
    """All tokens as sorted candidates score what the vocabulary without ids does."""
    vocab = drafted.borrowed.head_VD.shape[0]
    whole = drafted.candidates()
    base, ids = whole.base_BKC.sort(dim=-1, descending=True)
    listed = Candidates(ids_BKC=ids, base_BKC=base, lse_BK=whole.lse_BK)
    by_id = corrector.prepare(drafted.block, drafted.borrowed, whole)
    by_list = corrector.prepare(drafted.block, drafted.borrowed, listed)
    if by_id.candidates.base_BKC.shape[-1] != vocab:
        return  # the head makes its own candidates
    token = random_choices(whole)[:, 0]
    choice = (ids == token[..., None]).int().argmax(dim=-1)
    expected = corrector.block(by_id, token).gather(-1, ids)
    torch.testing.assert_close(corrector.block(by_list, choice), expected, rtol=0, atol=CLOSE)


@torch.no_grad()
def check_scores(corrector, drafted: Drafted, count: int | None) -> None:
    """Rows are fp32, sum to at most 1, are never NaN, and offer nothing that the candidates do not, dead lanes included."""
    given = drafted.candidates(count)
    base = given.base_BKC.clone()
    base[..., -1] = float("-inf")  # a padded entry
    padded = Candidates(ids_BKC=given.ids_BKC, base_BKC=base, lse_BK=given.lse_BK)
    prepared = corrector.prepare(drafted.block, drafted.borrowed, padded)
    offered = prepared.candidates.base_BKC > float("-inf")
    # lanes that were dead from the start, whatever they chose
    lanes = 4
    choice = torch.stack(
        [torch.full((base.shape[0], base.shape[1]), offered.shape[-1] - 1 - lane) for lane in range(lanes)], 1
    )
    state = corrector.start(prepared).expand(-1, lanes, -1)
    for depth in range(base.shape[1]):
        scores = corrector.scores(prepared, depth, state)
        assert scores.dtype == torch.float32
        assert scores.shape == (base.shape[0], lanes, offered.shape[-1])
        assert not scores.isnan().any()
        assert (scores.exp().sum(dim=-1) <= 1 + CLOSE).all()
        assert (scores.masked_select(~offered[:, depth, None].expand_as(scores)) == float("-inf")).all()
        state = corrector.advance(prepared, depth, choice[:, :, depth].clamp(min=0), state)
        assert state.is_floating_point() is False or not state.isnan().any()


def check_contract(corrector, drafted: Drafted, count: int | None) -> None:
    """Everything above."""
    check_block(corrector, drafted, count)
    check_lanes(corrector, drafted, count)
    check_whole_vocabulary(corrector, drafted)
    check_scores(corrector, drafted, count)


def counting(hidden_of, slots: int, *, first: int, right: bool, vocab: int = 11) -> Drafted:
    """A drafter for the text "every token is the one before plus 1"; `hidden_of` makes a row that says a token.

    Its rows are those of a drafter with the layout `first`; with `right` false they are read under the other layout.
    """
    said = first if right else 1 - first
    anchor = torch.arange(3) % vocab
    rows = slots + said
    # row k of a shifted drafter says the token after its own position, of the other kind the token at it
    spoken = (anchor[:, None] + torch.arange(rows) + (1 - first)) % vocab
    hidden = hidden_of(spoken)
    head = torch.eye(vocab)
    return Drafted(
        block=DraftBlock(
            hidden_BRD=hidden,
            first=said,
            anchor_B=anchor,
            before_B=(anchor - 1) % vocab,
            feature_BD=torch.zeros(3, vocab),
            feature_valid_B=torch.ones(3, dtype=torch.bool),
        ),
        borrowed=Borrowed(embedding_VD=torch.eye(vocab), head_VD=head),
        logits_BKV=hidden[:, said:] @ head.T,
    )


def one_hot_rows(spoken: Tensor, vocab: int = 11) -> Tensor:
    """Rows whose base logits say a token firmly."""
    return 8.0 * torch.nn.functional.one_hot(spoken, vocab).float()


def tokens_per_round(corrector, drafted: Drafted) -> float:
    """Accepted greedy drafts plus 1, on the text of `counting`."""
    slots, vocab = drafted.block.slots, drafted.borrowed.head_VD.shape[0]
    prepared = corrector.prepare(drafted.block, drafted.borrowed, drafted.candidates())
    tokens = grow_chain(corrector, prepared, slots).tokens_BK
    truth = (drafted.block.anchor_B[:, None] + 1 + torch.arange(slots)) % vocab
    return 1 + (tokens == truth).cumprod(dim=1).sum(dim=1).float().mean().item()


def check_checkpoint(
    spec, shape: HeadShape, config: dict, shapes: dict[str, tuple[int, ...]], saved: dict
) -> nn.Module:
    """A file with exactly these names loads, and saves bit for bit; anything else is an error of one line."""
    generator = torch.Generator().manual_seed(3)
    tensors = {
        name: torch.arange(*size) if name.endswith("counts") else torch.randn(size, generator=generator)
        for name, size in shapes.items()
    }

    def source(changed: dict[str, Tensor]) -> HeadSource:
        return HeadSource(shape=shape, config=copy.deepcopy(config), tensors=changed)

    given = source({**tensors, "stranger.weight": torch.zeros(1)})
    name, module = claim_head(given)
    assert name == spec.name
    assert list(given.tensors) == ["stranger.weight"], (
        "a head takes its own and leaves the rest to be refused"
    )
    assert not given.config

    keys, stored = spec.save(module)
    assert keys == saved
    assert stored.keys() == tensors.keys()
    assert all(torch.equal(stored[name], tensors[name]) for name in tensors)
    again = spec.load(HeadSource(shape=shape, config=copy.deepcopy(keys), tensors=dict(stored)))
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in module.state_dict().items())

    for name, tensor in tensors.items():
        check_refused(spec, source({other: value for other, value in tensors.items() if other != name}))
        wider = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] + 1)
        check_refused(spec, source({**tensors, name: wider}), str(list(wider.shape)))
    return module


def check_refused(spec, source: HeadSource, *said: str) -> None:
    """Loading raises a ValueError of one line that says all of these."""
    with pytest.raises(ValueError) as error:
        spec.load(source)
    message = str(error.value)
    assert "\n" not in message
    assert all(part in message for part in said), message
