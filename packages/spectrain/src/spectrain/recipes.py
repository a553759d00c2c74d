"""Taught blocks and a head go in, the loss of one training method comes out: how each objective is put together.

A recipe's name is that of the corrector it trains, or of the way in which it trains the plain drafter. Objectives
themselves are pure functions in `objectives`; here stands what each of them is fed with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from spectrain.loop import Loss
from spectrain.objectives import divergences
from spectrain.objectives.adaflash import adaflash_terms
from spectrain.objectives.dblast import dblast_terms
from spectrain.objectives.dels import local_loss
from spectrain.objectives.dflash2 import selector_loss
from spectrain.objectives.domino import Curriculum, domino_loss
from spectrain.objectives.dpace import dpace_loss
from spectrain.objectives.dspark import CROSS_ENTROPY, confidence_loss, prediction_loss
from spectrain.objectives.lilicorr import BASE_WEIGHTS, lattice_terms, prefixes, supervised
from spectrain.objectives.weighting import weighted_mean
from spectrain.objectives.xpress import ROUNDS, xpress_loss
from spectrain.taught import Taught, base_nll, confidences, offer, offer_truth, score


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a loss may depend on beside models and data."""

    step: int  # optimiser steps done
    steps: int  # optimiser steps of the whole run
    gamma: float  # slots over which a draft's weight falls by e
    temperature_M: Tensor  # at which the target wrote each block's text
    cross_entropy: float = CROSS_ENTROPY  # its share where a distance to the target has the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One way to train a drafter, a head, or both."""

    loss: Callable[[Taught, Any, Moment], Loss]
    distribution: bool = False  # the loss reads the target's own logits
    backbone: bool = True  # the drafter learns along with the head; without it, the loss sees text alone
    decays: bool = True  # the loss reads gamma
    mixes: bool = False  # the loss reads the share of the cross entropy


def _weights(taught: Taught, moment: Moment) -> Tensor:
    return taught.weights(moment.gamma)


def _target(taught: Taught) -> Tensor:
    assert taught.target_MKV is not None, "this recipe needs the target's distribution"
    return taught.target_MKV


def _dflash(taught: Taught, head: Any, moment: Moment) -> Loss:
    del head
    return Loss(weighted_mean(base_nll(taught), _weights(taught, moment)), {})


def _dpace(taught: Taught, head: Any, moment: Moment) -> Loss:
    del head, moment
    return Loss(dpace_loss(base_nll(taught), taught.trained_MK), {})


def _adaflash(taught: Taught, head: Any, moment: Moment) -> Loss:
    del head
    log_q_MKV, log_p_MKV = taught.base_MKV.float().log_softmax(-1), _target(taught).float().log_softmax(-1)
    terms = adaflash_terms(log_q_MKV, log_p_MKV, _weights(taught, moment))
    return Loss(terms.mixed(), {"hard": terms.hard.detach(), "clipped": terms.clipped})


def _distance(between: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Taught, Any, Moment], Loss]:
    def loss(taught: Taught, head: Any, moment: Moment) -> Loss:
        del head
        log_q_MKV, log_p_MKV = (
            taught.base_MKV.float().log_softmax(-1),
            _target(taught).float().log_softmax(-1),
        )
        return Loss(weighted_mean(between(log_q_MKV, log_p_MKV), _weights(taught, moment)), {})

    return loss


def _domino(taught: Taught, head: Any, moment: Moment) -> Loss:
    weight_MK = _weights(taught, moment)
    base_MK, final_MK = base_nll(taught), score(head, taught, offer(taught, None)).nll_MK
    share = Curriculum(steps=moment.steps).base_share(moment.step)
    metrics = {
        "base": weighted_mean(base_MK.detach(), weight_MK),
        "final": weighted_mean(final_MK.detach(), weight_MK),
    }
    return Loss(domino_loss(final_MK, base_MK, weight_MK, share), metrics)


def _dspark(taught: Taught, head: Any, moment: Moment) -> Loss:
    weight_MK, log_p_MKV = _weights(taught, moment), _target(taught).log_softmax(dim=-1)
    scored = score(head, taught, offer(taught, None))
    prediction = prediction_loss(
        scored.scores_MKC, log_p_MKV, taught.label_MK, weight_MK, moment.cross_entropy
    )
    confidence = confidence_loss(confidences(head, scored), scored.scores_MKC, log_p_MKV, weight_MK)
    metrics = {"prediction": prediction.detach(), "confidence": confidence.detach()}
    return Loss(prediction + confidence, metrics)


def _xpress(taught: Taught, head: Any, moment: Moment) -> Loss:
    weight_MK, log_p_MKV = _weights(taught, moment), _target(taught).log_softmax(dim=-1)

    def loss(log_q_MKV: Tensor) -> Tensor:
        return prediction_loss(log_q_MKV, log_p_MKV, taught.label_MK, weight_MK, moment.cross_entropy)

    scored = score(head, taught, offer(taught, None))
    guess_MK, rounds = taught.base_MKV.detach().argmax(dim=-1), []
    for _ in range(ROUNDS):
        scores_MKV = head.block(scored.prepared, guess_MK)
        rounds.append(loss(scores_MKV))
        guess_MK = scores_MKV.detach().argmax(dim=-1)
    taught_loss, base = loss(scored.scores_MKC), loss(taught.base_MKV.log_softmax(dim=-1))
    metrics = {"taught": taught_loss.detach(), "last_round": rounds[-1].detach(), "base": base.detach()}
    return Loss(xpress_loss(taught_loss, rounds, base), metrics)


def _lilicorr(taught: Taught, head: Any, moment: Moment) -> Loss:
    scored = score(head, taught, offer(taught, head.support))
    ids_MKC = scored.prepared.candidates.ids_BKC
    supervised_MK = supervised(scored.present_MK, taught.trained_MK)
    target_MKC = _target(taught).gather(-1, ids_MKC)
    terms = lattice_terms(scored.scores_MKC, scored.choice_MK, supervised_MK, target_MKC)
    base = weighted_mean(base_nll(taught), _weights(taught, moment))
    chosen, possible = prefixes(scored.scores_MKC, scored.choice_MK, supervised_MK)
    metrics = {
        "base": base.detach(),
        "lattice": terms.cross_entropy.detach(),
        "penalty": terms.penalty.detach(),
        "chosen": chosen,
        "possible": possible,
    }
    return Loss(base + terms.weighted(BASE_WEIGHTS), metrics)


def _dels(taught: Taught, head: Any, moment: Moment) -> Loss:
    del moment
    prepared = head.prepare(taught.block, taught.borrowed, offer(taught, None))
    known_MK = taught.trained_MK.clone()
    known_MK[:, : head.config.plain_slots] = False
    return Loss(local_loss(head.local_logits(prepared, taught.label_MK), taught.label_MK, known_MK), {})


def _dblast(taught: Taught, head: Any, moment: Moment) -> Loss:
    # the mixture's scores are shares of the whole vocabulary, so the truth's alone will do
    nll_MK = score(head, taught, offer_truth(taught)).nll_MK
    temperature_M11 = moment.temperature_M[:, None, None]
    scaled_MKV = _target(taught) / torch.where(temperature_M11 > 0, temperature_M11, 1.0)
    log_p_MK = scaled_MKV.log_softmax(dim=-1).gather(-1, taught.label_MK[..., None]).squeeze(-1)
    # greedy text was certain
    log_p_MK = log_p_MK.masked_fill(temperature_M11[..., 0] == 0, 0.0)
    terms = dblast_terms(-nll_MK, log_p_MK, taught.trained_MK, _weights(taught, moment))
    return Loss(terms.mixed(), {"length": -terms.length.detach(), "nll": terms.nll.detach()})


def _dflash2(taught: Taught, head: Any, moment: Moment) -> Loss:
    scored = score(head, taught, offer(taught, head.support, inject=True))
    base_MK, weight_MK = base_nll(taught), _weights(taught, moment)
    metrics = {
        "base": weighted_mean(base_MK.detach(), weight_MK),
        "selector": weighted_mean(scored.nll_MK.detach(), weight_MK),
    }
    return Loss(selector_loss(scored.nll_MK, base_MK, weight_MK), metrics)


RECIPES = {
    "dflash": Recipe(loss=_dflash),
    "dpace": Recipe(loss=_dpace, decays=False),
    "adaflash": Recipe(loss=_adaflash, distribution=True),
    "forward-kl": Recipe(loss=_distance(divergences.forward_kl), distribution=True),
    "reverse-kl": Recipe(loss=_distance(divergences.reverse_kl), distribution=True),
    "jensen-shannon": Recipe(loss=_distance(divergences.jensen_shannon), distribution=True),
    "total-variation": Recipe(loss=_distance(divergences.total_variation), distribution=True),
    "log-acceptance": Recipe(loss=_distance(divergences.log_acceptance), distribution=True),
    "hybrid": Recipe(loss=_distance(divergences.hybrid), distribution=True),
    "domino": Recipe(loss=_domino),
    "dspark": Recipe(loss=_dspark, distribution=True, mixes=True),
    "xpress": Recipe(loss=_xpress, distribution=True, mixes=True),
    "lilicorr": Recipe(loss=_lilicorr, distribution=True),
    "dels": Recipe(loss=_dels, backbone=False, decays=False),
    "dblast": Recipe(loss=_dblast, distribution=True),
    "dflash2": Recipe(loss=_dflash2),
}
"""All recipes by name; those of the plain drafter first."""


def recipe(name: str) -> Recipe:
    """The recipe of that name; an unknown one is a ValueError that lists them all."""
    if name not in RECIPES:
        raise ValueError(f"recipe: got {name!r}, expected one of {', '.join(RECIPES)}")
    return RECIPES[name]
