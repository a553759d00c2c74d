"""The engine of block diffusion that users hold: one or two models and a method in, drafts, revisions and text out."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from specmodels.llada2 import Llada2
from specmodels.template import ChatTemplate
from specrun.config import Sampling
from specrun.diffusion.blocks import decode_blocks
from specrun.diffusion.canvas import Canvas, new_canvas
from specrun.diffusion.config import Decoding, Refinement
from specrun.diffusion.guess import Draw
from specrun.diffusion.methods import DiffusionMethod
from specrun.diffusion.refine import refine
from specrun.diffusion.stats import DiffusionStats
from specrun.prompting import Prompting
from specrun.tokens import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionGeneration:
    """One finished answer, and the draft that it was before."""

    text: str  # without special tokens; empty for an engine without tokenizer
    token_ids: list[int]  # the end included
    draft_ids: list[int]  # the same as `token_ids` where nothing was revised
    finish: Literal["stop", "length"]
    stats: DiffusionStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where an answer stands after one more block, or one more pass of refinement."""

    phase: Literal["draft", "refine"]
    token_ids: list[int]  # while drafting, only what further blocks cannot change
    changes: int  # tokens that the pass changed; 0 while drafting
    generation: DiffusionGeneration | None  # set on the last one


class DiffusionEngine:
    """Decodes one prompt at a time: rows of a batch would need passes of their own."""

    def __init__(
        self,
        model: Llada2,
        method: DiffusionMethod,
        *,
        drafter: Llada2 | None = None,
        tokenizer: Tokenizer | None = None,
        template: ChatTemplate | ValueError | None = None,
        stop_ids: tuple[int, ...] = (),
        decoding: Decoding | None = None,
        refinement: Refinement | None = None,
    ) -> None:
        """`drafter` writes the draft that `model` refines; None lets the model do both."""
        if not method.refines and (drafter is not None or refinement is not None):
            what = "draft" if drafter is not None else "refinement"
            raise ValueError(f"{what}: has no effect with method {method.name}; use draft-refine")
        if drafter is not None:
            _require_one_vocabulary(model, drafter)
        self.model, self.method, self.drafter = model, method, drafter or model
        self.tokenizer, self.stop_ids = tokenizer, stop_ids
        self.prompting = Prompting(tokenizer, template)
        self.decoding = decoding or Decoding()
        self.refinement = refinement or Refinement(steps=8 if method.refines else 0)

    @property
    def context(self) -> int:
        """Most tokens that a prompt and its answer may have together."""
        return min(self.model.config.max_positions, self.drafter.config.max_positions)

    def chat_ids(
        self,
        messages: str | Sequence[Mapping[str, str]],
        *,
        system: str | None = None,
        thinking: bool = False,
    ) -> list[int]:
        """Prompt ids of a conversation, or of one user turn, in the model's own chat template."""
        return self.prompting.chat_ids(messages, system=system, thinking=thinking)

    def prompt_ids(self, prompt: str | Sequence[int]) -> list[int]:
        """Ids of a text as it stands; ids are taken as they are."""
        return self.prompting.ids(prompt, self.model.config.vocab_size)

    def generate(self, prompt: str | Sequence[int], sampling: Sampling | None = None) -> DiffusionGeneration:
        """Decode one prompt to its end; text is encoded as it stands."""
        for progress in self.stream(prompt, sampling):
            if progress.generation is not None:
                return progress.generation
        raise AssertionError("the stream ended without an answer")

    def stream(self, prompt: str | Sequence[int], sampling: Sampling | None = None) -> Iterator[Progress]:
        """Decode one prompt; gives out what every block and every pass of refinement came to."""
        sampling = sampling or Sampling()
        canvas = self._canvas(prompt, sampling)
        draw = Draw(temperature=sampling.temperature, seed=sampling.seed)
        stats = DiffusionStats(prompt_tokens=canvas.prompt)
        stamp = time.perf_counter()
        blocks = decode_blocks(self.drafter, canvas, self.decoding, draw, stats)
        next(blocks)
        stats.prefill_seconds, stamp = time.perf_counter() - stamp, time.perf_counter()
        for settled in blocks:
            ids = canvas.answer()[: settled - canvas.prompt]
            yield Progress(phase="draft", token_ids=ids, changes=0, generation=None)
        stats.draft_seconds, stamp = time.perf_counter() - stamp, time.perf_counter()
        draft = canvas.answer()
        for changes in refine(self.model, canvas, self.refinement, draw, stats):
            yield Progress(phase="refine", token_ids=canvas.answer(), changes=changes, generation=None)
        stats.refine_seconds = time.perf_counter() - stamp
        yield self._last(canvas, draft, stats)

    def _last(self, canvas: Canvas, draft: list[int], stats: DiffusionStats) -> Progress:
        ids = canvas.answer()
        stats.tokens = len(ids)
        generation = DiffusionGeneration(
            text="" if self.tokenizer is None else self.tokenizer.decode(ids),
            token_ids=ids,
            draft_ids=draft,
            finish="stop" if ids and ids[-1] in canvas.end_ids else "length",
            stats=replace(stats),
        )
        phase: Literal["draft", "refine"] = "refine" if self.method.refines else "draft"
        return Progress(phase=phase, token_ids=ids, changes=0, generation=generation)

    def _canvas(self, prompt: str | Sequence[int], sampling: Sampling) -> Canvas:
        _require_plain(sampling)
        config = self.model.config
        ids = self.prompt_ids(prompt)
        budget = sampling.max_new_tokens
        if len(ids) + budget > self.context:
            raise ValueError(
                f"prompt: got {len(ids)} tokens and {budget} new ones, expected at most {self.context}"
                " together; shorten the prompt or lower max new tokens"
            )
        return new_canvas(
            ids,
            budget,
            block=self.decoding.block,
            longest=self.context,
            mask_id=config.mask_token_id,
            end_ids=self.stop_ids if sampling.stop_ids is None else sampling.stop_ids,
            device=self.model.embedding.device,
        )


def _require_plain(sampling: Sampling) -> None:
    """Only the temperature bends the law here: tokens are not written one after the other."""
    defaults = Sampling()
    kept = {"max_new_tokens", "temperature", "seed", "stop_ids"}
    for name in (field for field in Sampling.__dataclass_fields__ if field not in kept):
        if getattr(sampling, name) != getattr(defaults, name):
            raise ValueError(f"{name.replace('_', '-')}: has no effect with block diffusion; leave it out")


def _require_one_vocabulary(model: Llada2, drafter: Llada2) -> None:
    for name in ("vocab_size", "mask_token_id"):
        ours, theirs = getattr(model.config, name), getattr(drafter.config, name)
        if ours != theirs:
            raise ValueError(
                f"draft: got {name} {theirs}, expected {ours} as the model has; the two have to share their tokens"
            )
