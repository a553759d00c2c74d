"""The output's law, for every corrector there is, through the real growth and the real acceptance rules.

*reject*: the first three tokens behind an anchor are drawn 100,000 times and compared with the target's joint law, which
is known exactly, by a chi-square test. *match*: the text equals plain decoding under the same seed, token by token.

A check that nothing fails proves nothing, so every wrong rule that has been met in practice stands below as a twin of the
right one, and the same check has to find it.
"""

from dataclasses import dataclass, fields, is_dataclass, replace

import pytest
import torch
from torch import Tensor

from speccorrect.accept import Keys, match, reject, target_draws, target_noise
from speccorrect.grow import TreeShape, grow_chain, grow_tree
from speccorrect.law import draw, probabilities
from speccorrect.noise import Stream, gumbel, uniform
from speccorrect.products import Borrowed, Candidates, DraftBlock, Proposal
from speccorrect.registry import corrector_specs
from speccorrect.tree import chain_tree

from doubles.blocks import Drafted, drafted, randomise

RUNS, VOCAB, SLOTS = 100_000, 4, 2
OUTCOMES = VOCAB ** (SLOTS + 1)
# Standard deviations of chi-square at its mean, with a fixed seed: right rules stay below 2, the mildest twin is beyond 50.
NOISE, CAUGHT = 4.0, 30.0


def random(*size: int, seed: int, scale: float = 1.0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale


class Target:
    """Logits behind the anchor and every path of up to two tokens."""

    def __init__(self, seed: int) -> None:
        self.tables = [random(VOCAB**k, VOCAB, seed=seed + k, scale=1.3) for k in range(SLOTS + 1)]

    def rows(self, token_BK: Tensor) -> Tensor:
        """`[B, K + 1, V]` along a path."""
        path, rows = torch.zeros(token_BK.shape[0], dtype=torch.int64), []
        for k in range(token_BK.shape[1] + 1):
            rows.append(self.tables[k][path])
            if k < token_BK.shape[1]:
                path = path * VOCAB + token_BK[:, k]
        return torch.stack(rows, dim=1)

    def joint(self, temperature: float) -> Tensor:
        """Exact probabilities of all triples of tokens, flat."""
        law = torch.ones(1, dtype=torch.float64)
        for table in self.tables:
            law = (
                law[:, None] * probabilities(table.double(), torch.full((len(table),), temperature))
            ).flatten()
        return law


TARGET = Target(seed=5)


def every(value: float) -> Tensor:
    return torch.full((RUNS,), value)


def keys(seed: int = 0) -> Keys:
    zero = torch.zeros(RUNS, dtype=torch.int64)
    return Keys(seed_B=zero + seed, request_B=torch.arange(RUNS), anchor_B=zero + 17)


def repeat(product):
    """The same product for every run: what was made for a batch of one counts for all, and is computed once."""
    if isinstance(product, Tensor):
        return product.expand(RUNS, *product.shape[1:]) if product.shape[0] == 1 else product
    if is_dataclass(product):
        return replace(
            product, **{entry.name: repeat(getattr(product, entry.name)) for entry in fields(product)}
        )
    if isinstance(product, tuple):
        parts = map(repeat, product)
        return type(product)(*parts) if hasattr(product, "_fields") else tuple(parts)
    return product


def draft_noise(candidates: Candidates, temperature: float, stream: Stream = Stream.DRAFT) -> Tensor:
    ids = torch.arange(VOCAB) if candidates.ids_BKC is None else candidates.ids_BKC
    return temperature * gumbel(keys().at(torch.arange(1, SLOTS + 1), stream)[..., None], ids)


def deviation(token_BK: Tensor, law: Tensor) -> float:
    """Chi-square of triples against a law, in standard deviations above its mean."""
    assert token_BK.shape == (RUNS, SLOTS + 1)
    flat = (token_BK[:, 0] * VOCAB + token_BK[:, 1]) * VOCAB + token_BK[:, 2]
    seen = torch.bincount(flat, minlength=OUTCOMES).double()
    expected = law * RUNS
    assert (seen[expected == 0] == 0).all()
    possible = expected > 0
    freedom = int(possible.sum()) - 1
    chi2 = ((seen - expected).square() / expected)[possible].sum().item()
    return (chi2 - freedom) / max(1.0, 2 * freedom) ** 0.5


def complete(emitted_BK: Tensor, count_B: Tensor, temperature: float) -> Tensor:
    """Go on plainly behind the first `count` tokens until there are three."""
    generator = torch.Generator().manual_seed(11)
    tokens = emitted_BK.clone()
    for k in range(SLOTS + 1):
        p_BV = probabilities(TARGET.rows(tokens[:, :k])[:, -1], every(temperature))
        drawn = torch.multinomial(p_BV, 1, generator=generator).squeeze(1)
        tokens[:, k] = torch.where(k < count_B, tokens[:, k], drawn)
    return tokens


def emit(proposal: Proposal, count_B: Tensor, bonus_B: Tensor) -> Tensor:
    """Accepted drafts, the bonus, and padding."""
    tokens = torch.cat([proposal.tokens_BK, torch.zeros(RUNS, 1, dtype=torch.int64)], dim=1)
    return tokens.scatter(1, count_B[:, None] - 1, bonus_B[:, None])


def rejected(proposal: Proposal, temperature: float, draft_temperature: float) -> float:
    """Deviation of what the real rule gives out for a proposal."""
    rows = TARGET.rows(proposal.tokens_BK)
    verdict = reject(proposal, rows, every(temperature), every(draft_temperature), keys())
    tokens = emit(proposal, verdict.count_B, verdict.bonus_B)
    return deviation(complete(tokens, verdict.count_B, temperature), TARGET.joint(temperature))


@torch.no_grad()
def chain_of(corrector, made: Drafted, draft_temperature: float, count: int | None) -> Proposal:
    prepared = repeat(corrector.prepare(made.block, made.borrowed, made.candidates(count)))
    noise = draft_noise(prepared.candidates, draft_temperature) if draft_temperature else None
    return grow_chain(corrector, prepared, SLOTS, noise)


@pytest.mark.parametrize(("temperature", "draft_temperature"), [(1.0, 1.0), (0.7, 0.4), (1.0, 0.0)])
@pytest.mark.parametrize("name", corrector_specs())
def test_a_chain_tested_by_rejection_has_the_targets_law(name, temperature, draft_temperature):
    made = drafted(3, batch=1, slots=SLOTS, width=8, vocab=VOCAB, shifted=draft_temperature > 0.5)
    corrector = randomise(corrector_specs()[name].new(made.shape), scale=0.6)
    # the sharper drafts offer three tokens of four, so that the rest has to come from the residual
    count = 3 if corrector.support is not None or draft_temperature < 1 else None
    proposal = chain_of(corrector, made, draft_temperature, count)
    assert rejected(proposal, temperature, draft_temperature) < NOISE


# Below, a corrector without weights of anyone's: a table of pairs, so that the twins depend on no head.


@dataclass(frozen=True)
class PairsPrepared:
    candidates: Candidates
    anchor_B: Tensor


class Pairs:
    """Scores of a token given the one before it; the confidence is read off the token before, too."""

    support = None
    path_free_confidence = False

    def __init__(self, passes: int | None = None, seed: int = 9) -> None:
        self.passes = passes
        self.table = random(SLOTS, VOCAB, VOCAB, seed=seed, scale=1.2)

    def prepare(self, block: DraftBlock, borrowed: Borrowed, candidates: Candidates) -> PairsPrepared:
        return PairsPrepared(candidates, block.anchor_B)

    def start(self, prepared: PairsPrepared) -> Tensor:
        return prepared.anchor_B[:, None, None]

    def scores(self, prepared: PairsPrepared, depth: int, state_BWS: Tensor) -> Tensor:
        moved = self.table[depth][state_BWS.squeeze(-1)]
        ids = prepared.candidates.ids_BKC
        if ids is not None:
            moved = moved.gather(-1, ids[:, depth, None].expand(-1, moved.shape[1], -1))
        return (prepared.candidates.base_BKC[:, depth, None] + moved).log_softmax(dim=-1)

    def advance(self, prepared: PairsPrepared, depth: int, choice_BW: Tensor, state_BWS: Tensor) -> Tensor:
        return prepared.candidates.tokens(depth, choice_BW)[..., None]

    def block(self, prepared: PairsPrepared, choice_BK: Tensor) -> Tensor:
        previous = [prepared.anchor_B[:, None], choice_BK[:, :-1]]
        states = torch.cat(previous, dim=1)[..., None]
        return torch.cat(
            [self.scores(prepared, k, states[:, k, None]) for k in range(choice_BK.shape[1])], dim=1
        )


MADE = drafted(3, batch=1, slots=SLOTS, width=8, vocab=VOCAB)
PREPARED = repeat(Pairs().prepare(MADE.block, MADE.borrowed, MADE.candidates()))
DRAWN = chain_of(Pairs(), MADE, 1.0, None)


def test_the_table_of_pairs_is_exact():
    assert rejected(DRAWN, 1.0, 1.0) < NOISE
    assert rejected(chain_of(Pairs(passes=1), MADE, 1.0, None), 1.0, 1.0) < NOISE
    assert rejected(chain_of(Pairs(), MADE, 0.0, None), 1.0, 0.0) < NOISE


def test_q_of_another_temperature_is_caught():
    assert rejected(chain_of(Pairs(), MADE, 0.5, None), 1.0, 1.0) > CAUGHT


def test_a_soft_q_for_an_argmax_draft_is_caught():
    assert rejected(chain_of(Pairs(), MADE, 0.0, None), 1.0, 1.0) > CAUGHT


def test_the_base_marginal_as_q_of_a_corrected_draft_is_caught():
    marginal = PREPARED.candidates.base_BKC.log_softmax(dim=-1)
    assert rejected(replace(DRAWN, scores_BKC=marginal), 1.0, 1.0) > CAUGHT


def test_q_of_the_final_tokens_instead_of_the_last_pass_is_caught():
    corrector = Pairs(passes=1)
    proposal = chain_of(corrector, MADE, 1.0, None)
    recomputed = corrector.block(PREPARED, proposal.choice_BK)
    assert rejected(replace(proposal, scores_BKC=recomputed), 1.0, 1.0) > CAUGHT


def test_a_draft_that_shares_the_residuals_noise_is_caught():
    noise = draft_noise(PREPARED.candidates, 1.0, Stream.RESIDUAL)
    assert rejected(grow_chain(Pairs(), PREPARED, SLOTS, noise), 1.0, 1.0) > CAUGHT


@pytest.mark.parametrize("masked", [True, False])
def test_a_candidate_that_stands_twice_is_caught_unless_it_is_masked(masked):
    whole = MADE.candidates()
    ids = torch.tensor([0, 1, 2, 3, 1]).expand(1, SLOTS, -1)
    base = whole.base_BKC.gather(-1, ids).clone()
    if masked:
        base[..., 4] = float("-inf")
    corrector = Pairs()
    prepared = repeat(
        corrector.prepare(MADE.block, MADE.borrowed, replace(whole, ids_BKC=ids, base_BKC=base))
    )
    # by index, so that the two entries have noise of their own
    noise = gumbel(keys().at(torch.arange(1, SLOTS + 1), Stream.DRAFT)[..., None], torch.arange(5))
    z = rejected(grow_chain(corrector, prepared, SLOTS, noise), 1.0, 1.0)
    assert z < NOISE if masked else z > CAUGHT


@pytest.mark.parametrize("siblings", [False, True])
@pytest.mark.parametrize("residual", [True, False])
def test_a_failure_that_is_redrawn_from_the_target_is_caught(residual, siblings):
    """With siblings, a redrawn token that stands beside the failed one keeps its row: one more token per round."""
    rows = TARGET.rows(DRAWN.tokens_BK)
    verdict = reject(DRAWN, rows, every(1.0), every(1.0), keys())
    row = rows[torch.arange(RUNS), verdict.count_B - 1]
    fresh = draw(
        row[:, None], every(1.0), keys().at(verdict.count_B[:, None], Stream.RESIDUAL), torch.arange(VOCAB)
    )
    bonus = verdict.bonus_B if residual else fresh.squeeze(1)
    tokens, count = emit(DRAWN, verdict.count_B, bonus), verdict.count_B
    if siblings:
        failed = (count - 1).clamp(max=SLOTS - 1)
        best = DRAWN.scores_BKC[torch.arange(RUNS), failed].topk(2, dim=-1).indices
        beside = (best == bonus[:, None]).any(dim=-1) & (count <= SLOTS)
        behind = TARGET.rows(tokens[:, :SLOTS])[torch.arange(RUNS), count.clamp(max=SLOTS)]
        ids = torch.arange(VOCAB)
        following = draw(behind[:, None], every(1.0), keys().at(count[:, None] + 1, Stream.TARGET), ids)
        index = count.clamp(max=SLOTS)[:, None]
        tokens = torch.where(beside[:, None], tokens.scatter(1, index, following), tokens)
        count = count + beside
    z = deviation(complete(tokens, count, 1.0), TARGET.joint(1.0))
    assert z < NOISE if residual else z > CAUGHT


@pytest.mark.parametrize("right", [True, False])
def test_block_verification_with_a_wrong_height_is_caught(right):
    """The rule of arXiv 2403.10444, and its twin that accepts a prefix with the ratio alone."""
    p, q = TARGET.rows(DRAWN.tokens_BK).softmax(dim=-1), DRAWN.scores_BKC.exp()
    weight, heights, weights = torch.ones(RUNS), [], []
    for k in range(SLOTS):
        token = DRAWN.tokens_BK[:, k, None]
        weight = (weight * p[:, k].gather(1, token)[:, 0] / q[:, k].gather(1, token)[:, 0]).clamp(max=1)
        height = weight
        if right and k + 1 < SLOTS:
            rest = (weight[:, None] * p[:, k + 1] - q[:, k + 1]).clamp(min=0).sum(dim=-1)
            height = torch.where(weight < 1, rest / (rest + 1 - weight), weight)
        heights.append(height)
        weights.append(weight)
    coin = uniform(keys().at(torch.arange(1, SLOTS + 1), Stream.TEST), torch.zeros(SLOTS, dtype=torch.int64))
    passed = coin < torch.stack(heights, dim=1)
    length = (passed * torch.arange(1, SLOTS + 1)).amax(dim=1)
    carried = torch.stack([torch.ones(RUNS), *weights], dim=1).gather(1, length[:, None])
    row = torch.arange(RUNS)
    rest = (carried * p[row, length] - q[row, length.clamp(max=SLOTS - 1)]).clamp(min=0)
    law = torch.where((length < SLOTS)[:, None], rest, p[row, length])
    law = torch.where(law.sum(dim=-1, keepdim=True) > 0, law, p[row, length])
    bonus = torch.multinomial(law, 1, generator=torch.Generator().manual_seed(1)).squeeze(1)
    z = deviation(complete(emit(DRAWN, length + 1, bonus), length + 1, 1.0), TARGET.joint(1.0))
    assert z < NOISE if right else z > CAUGHT


def cut(proposal: Proposal, length_B: Tensor) -> float:
    """Deviation where only the first `length` drafts of every run are submitted."""
    tokens = torch.zeros(RUNS, SLOTS + 1, dtype=torch.int64)
    count = torch.ones(RUNS, dtype=torch.int64)
    whole, rows = keys(), TARGET.rows(proposal.tokens_BK)
    for length in range(SLOTS + 1):
        of = (length_B == length).nonzero().squeeze(1)
        ones, some = (
            torch.ones(len(of)),
            Keys(seed_B=whole.seed_B[of], request_B=whole.request_B[of], anchor_B=whole.anchor_B[of]),
        )
        if length == 0:
            key = some.at(torch.ones(1, dtype=torch.int64), Stream.RESIDUAL)
            tokens[of, 0] = draw(rows[of, :1], ones, key, torch.arange(VOCAB)).squeeze(1)
            continue
        part = replace(
            proposal,
            tokens_BK=proposal.tokens_BK[of, :length],
            choice_BK=proposal.choice_BK[of, :length],
            scores_BKC=proposal.scores_BKC[of, :length],
        )
        verdict = reject(part, rows[of, : length + 1], ones, ones, some)
        tokens[of, :length] = part.tokens_BK
        tokens[of, verdict.count_B - 1] = verdict.bonus_B
        count[of] = verdict.count_B
    return deviation(complete(tokens, count, 1.0), TARGET.joint(1.0))


def test_a_length_read_off_the_drafted_token_is_caught():
    """A token is cut because it is improbable, and the position is then drawn afresh: it comes out too rarely."""
    chosen = DRAWN.scores_BKC.gather(-1, DRAWN.choice_BK[..., None]).squeeze(-1).exp()
    assert cut(DRAWN, (chosen > 0.3).long().cumprod(dim=1).sum(dim=1)) > CAUGHT


def test_a_confidence_may_stop_the_draft_but_not_choose_its_length():
    """Costs of DSpark's appendix: one draft is worth less than none, two are worth more only behind the right token."""
    sure = torch.tensor([0.9, 0.0, 0.9, 0.0])[DRAWN.tokens_BK[:, 0]]
    expected = torch.stack([torch.ones(RUNS), torch.full((RUNS,), 1.8), 1.8 + 0.8 * sure], dim=1)
    assert cut(DRAWN, 1 + (sure > 0.5).long()) < NOISE
    assert cut(DRAWN, (expected * torch.tensor([1.0, 0.5, 0.45])).argmax(dim=1)) > CAUGHT


@pytest.mark.parametrize("twin", ["right", "fresh noise after a mismatch", "one noise for the whole round"])
def test_shared_noise_is_exact_only_as_the_targets_own_draw(twin):
    noise = target_noise(keys(), SLOTS + 1, VOCAB)
    if twin == "one noise for the whole round":
        noise = noise[:, :1].expand(-1, SLOTS + 1, -1)
    proposal = grow_chain(Pairs(), PREPARED, SLOTS, noise[:, :SLOTS])
    tree = chain_tree(MADE.block.anchor_B.expand(RUNS), proposal)
    rows = TARGET.rows(proposal.tokens_BK)
    verdict = match(tree, target_draws(rows, tree.depth_BN, every(1.0), noise))
    bonus = verdict.bonus_B
    if twin == "fresh noise after a mismatch":
        row = rows[torch.arange(RUNS), verdict.count_B - 1]
        key = keys().at(verdict.count_B[:, None], Stream.RESIDUAL)
        afresh = draw(row[:, None], every(1.0), key, torch.arange(VOCAB)).squeeze(1)
        bonus = torch.where(verdict.count_B <= SLOTS, afresh, bonus)
    tokens = complete(emit(proposal, verdict.count_B, bonus), verdict.count_B, 1.0)
    z = deviation(tokens, TARGET.joint(1.0))
    assert z < NOISE if twin == "right" else z > CAUGHT


# match: the same text as plain decoding, over many rounds, in batches of rows with temperatures of their own

ROWS, LENGTH, WORDS, DRAFTS = 24, 16, 6, 3
TEMPERATURES = torch.tensor([0.0, 0.7, 1.0]).repeat(ROWS // 3)
PAIRS_OF_TARGET = random(WORDS, WORDS, WORDS, seed=21, scale=1.5)
WAYS = {
    "greedy chain": (None, None),
    "sampled chain": (None, Stream.DRAFT),
    "coupled chain": (None, Stream.TARGET),
    "tree": (TreeShape(nodes=9, lanes=4, ledger=6), None),
    "open tree": (TreeShape(nodes=5, lanes=5, ledger=5, branches=2, contain_chain=False), None),
    "coupled tree": (TreeShape(nodes=9, lanes=9, ledger=9, depth_bonus=-0.2), Stream.TARGET),
}


def text_keys(seed: int, position_B: Tensor) -> Keys:
    return Keys(seed_B=torch.full((ROWS,), seed), request_B=torch.arange(ROWS), anchor_B=position_B)


def opening() -> Tensor:
    """Two tokens per row, then room."""
    text = torch.zeros(ROWS, 2 + LENGTH + DRAFTS + 1, dtype=torch.int64)
    text[:, 0], text[:, 1] = torch.arange(ROWS) % WORDS, torch.arange(ROWS) // WORDS % WORDS
    return text


def plain_text(seed: int = 0) -> Tensor:
    text = opening()
    for at in range(1, 1 + LENGTH):
        logits = PAIRS_OF_TARGET[text[:, at - 1], text[:, at]]
        key = text_keys(seed, torch.full((ROWS,), at)).at(torch.ones(1, dtype=torch.int64))
        text[:, at + 1] = draw(logits[:, None], TEMPERATURES, key, torch.arange(WORDS)).squeeze(1)
    return text[:, : 2 + LENGTH]


@torch.no_grad()
def drafted_text(corrector, made: Drafted, way: str, seed: int = 0) -> tuple[Tensor, int]:
    """The text by drafting, and the rounds of all rows that it took; rows run ahead of each other."""
    shape, stream = WAYS[way]
    text, row = opening(), torch.arange(ROWS)
    at, rounds = torch.ones(ROWS, dtype=torch.int64), 0
    while int(at.min()) < 1 + LENGTH:
        rounds += int((at < 1 + LENGTH).sum())
        at = at.clamp(max=1 + LENGTH)
        anchor, before = text[row, at], text[row, at - 1]
        # the drafter knows the anchor: one block per token
        block = replace(
            made.block, hidden_BRD=made.block.hidden_BRD[anchor], anchor_B=anchor, before_B=before
        )
        block = replace(block, feature_BD=made.block.feature_BD[anchor], feature_valid_B=at > 1)
        logits = made.logits_BKV[anchor]
        here = replace(made, block=block, logits_BKV=logits)
        prepared = corrector.prepare(block, made.borrowed, here.candidates(corrector.support or 4))
        keys_here, noise = text_keys(seed, at), None
        if stream is not None:
            key = keys_here.at(torch.arange(1, DRAFTS + 1), stream)
            noise = TEMPERATURES[:, None, None] * gumbel(key[..., None], prepared.candidates.ids_BKC)
        if shape is None:
            tree = chain_tree(anchor, grow_chain(corrector, prepared, DRAFTS, noise))
        else:
            tree = grow_tree(corrector, prepared, anchor, DRAFTS, shape, noise)
        parent = tree.tokens_BN.gather(1, tree.parent_BN)
        parent[:, 0] = before
        target = target_noise(keys_here, DRAFTS + 1, WORDS)
        verdict = match(
            tree, target_draws(PAIRS_OF_TARGET[parent, tree.tokens_BN], tree.depth_BN, TEMPERATURES, target)
        )
        tokens = tree.tokens_BN.gather(1, verdict.path_BP)
        for k in range(1, DRAFTS + 2):
            if k < tokens.shape[1]:
                text[row, at + k] = torch.where(k < verdict.count_B, tokens[:, k], text[row, at + k])
        text[row, at + verdict.count_B] = verdict.bonus_B
        at = at + verdict.count_B
    return text[:, : 2 + LENGTH], rounds


def follower(name: str) -> tuple[object, Drafted]:
    """A corrector with random weights, and a drafter that knows what follows an anchor on average."""
    made = drafted(4, batch=WORDS, slots=DRAFTS, width=8, vocab=WORDS, shifted=False)
    step = PAIRS_OF_TARGET.softmax(dim=-1).mean(dim=0)
    ahead = torch.stack([torch.linalg.matrix_power(step, k + 1) for k in range(DRAFTS)], dim=1)
    made = replace(made, logits_BKV=2 * ahead.log())
    return randomise(corrector_specs()[name].new(made.shape), scale=0.2), made


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", corrector_specs())
def test_match_gives_the_text_of_plain_decoding(name, way):
    corrector, made = follower(name)
    text, rounds = drafted_text(corrector, made, way)
    assert torch.equal(text, plain_text())
    assert rounds < 0.9 * ROWS * LENGTH, "hardly anything was ever accepted"


def test_another_seed_gives_another_text():
    corrector, made = follower(next(iter(corrector_specs())))
    text, _ = drafted_text(corrector, made, "tree", seed=1)
    assert torch.equal(text, plain_text(seed=1))
    assert not torch.equal(text, plain_text(seed=0))
