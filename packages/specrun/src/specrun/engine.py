"""The engine that users hold: models and a method in, text and statistics out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speccorrect.contract import Corrector
from speccorrect.couple import Coupling
from specmodels.dflash import DFlash
from specmodels.qwen3 import Qwen3
from specmodels.template import ChatTemplate, conversation
from specrun.calibration import Calibration
from specrun.config import DraftOptions, Sampling
from specrun.loop import SPAN, Finish, Request, decode
from specrun.methods import Method
from specrun.plan import coupling_strength, round_plan
from specrun.state import DecodeState, allocate, law_plan
from specrun.stats import Stats
from specrun.step import Clock, Parts, RoundPlan, Watch, no_clock
from specrun.text import TextStream
from specrun.tokens import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One finished answer."""

    text: str  # without special tokens and without the stop text; empty for an engine without tokenizer
    token_ids: list[int]  # as emitted, a final stop id included
    finish: Finish  # "stop" for a stop id or text, "length" for the budget
    stats: Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one round added to an answer."""

    text: str  # whole characters that will not change any more
    token_ids: list[int]
    generation: Generation | None  # set on the last piece


class Engine:
    """Decodes with one method. Buffers are kept between calls and grow when a request needs more."""

    def __init__(
        self,
        target: Qwen3,
        method: Method,
        *,
        drafter: DFlash | None = None,
        corrector: Corrector[Any] | None = None,
        tokenizer: Tokenizer | None = None,
        template: ChatTemplate | ValueError | None = None,
        stop_ids: tuple[int, ...] = (),
        options: DraftOptions | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        if method.growth != "plain" and (drafter is None or corrector is None):
            raise ValueError(
                f"method: {method.name} needs a drafter and its corrector; name one with --draft"
            )
        self.method, self.tokenizer, self.stop_ids = method, tokenizer, stop_ids
        self._template = template
        self.options = _calibrated(options or DraftOptions(), calibration)
        self._state: DecodeState | None = None
        self._latest: list[Request] = []  # whose buffers these are
        drafts = method.growth != "plain"
        self.parts = Parts(
            target=target, drafter=drafter if drafts else None, corrector=corrector if drafts else None
        )
        # sizes that cannot work are refused here, not at the first request
        slots = self.plan_for([Sampling()]).slots
        self.parts = replace(
            self.parts, coupling=self._coupling(slots, None if calibration is None else calibration.coupling)
        )

    def _coupling(self, slots: int, fitted: Coupling | None) -> Coupling | None:
        """The fitted table unless the user names a strength."""
        strength = coupling_strength(self.method, self.options, slots)
        if strength == 0:
            return None
        if fitted is not None and self.options.couple is None and fitted.slots >= slots:
            return fitted
        return Coupling.constant(slots, strength, self.parts.target.embedding.device)

    @property
    def context(self) -> int:
        """Most tokens that a prompt and its answer may have together."""
        target = self.parts.target.config.max_positions
        return target if self.parts.drafter is None else min(target, self.parts.drafter.config.max_positions)

    def plan_for(self, samplings: Sequence[Sampling]) -> RoundPlan:
        """The plan of a round for a batch of requests."""
        drafter = None if self.parts.drafter is None else self.parts.drafter.config
        return round_plan(self.method, self.options, law_plan(list(samplings)), drafter, self.parts.corrector)

    def chat_ids(
        self,
        messages: str | Sequence[Mapping[str, str]],
        *,
        system: str | None = None,
        thinking: bool = False,
    ) -> list[int]:
        """Prompt ids of a conversation, or of one user turn, in the model's own chat template.

        Raises ValueError where the model has none. Public drafters were trained without thinking.
        """
        if isinstance(self._template, ValueError):
            raise self._template
        if self._template is None or self.tokenizer is None:
            raise ValueError("chat template: this engine has none; give the prompt as plain text")
        turns = conversation(messages, system=system) if isinstance(messages, str) else list(messages)
        return self.tokenizer.encode(self._template.render(turns, enable_thinking=thinking), special=False)

    def prompt_ids(self, prompt: str | Sequence[int]) -> list[int]:
        """Ids of a text as it stands; ids are taken as they are."""
        if not isinstance(prompt, str):
            return list(prompt)
        if self.tokenizer is None:
            raise ValueError("prompt: got text, but this engine has no tokenizer; give token ids")
        return self.tokenizer.encode(prompt, special=True)

    def generate(self, prompt: str | Sequence[int], sampling: Sampling | None = None) -> Generation:
        """Decode one prompt to its end; text is encoded as it stands (see `chat_ids` for chat templates)."""
        return self.generate_batch([prompt], sampling or Sampling())[0]

    def stream(
        self,
        prompt: str | Sequence[int],
        sampling: Sampling | None = None,
        *,
        clock: Clock = no_clock,
        watch: Watch | None = None,
    ) -> Iterator[Piece]:
        """Decode one prompt and give out what every round adds; `clock` and `watch` see inside the rounds."""
        given = 0
        for request in self._decode([prompt], [sampling or Sampling()], 1, clock, watch):
            ids, given = request.tokens[given:], len(request.tokens)
            text = "" if request.text is None else request.text.take()
            done = None
            if request.finish is not None:
                text += "" if request.text is None else request.text.finish()
                done = _generation(request)
            yield Piece(text=text, token_ids=ids, generation=done)

    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling: Sampling | Sequence[Sampling],
        *,
        batch_size: int | None = None,
    ) -> list[Generation]:
        """Decode many prompts, `batch_size` rows at a time (None: all at once); answers in the order of the prompts.

        Request i draws from stream i of its seed, so equal prompts get different answers at temperature above 0.
        """
        if batch_size is not None and batch_size < 1:
            raise ValueError(
                f"batch size: got {batch_size}, expected at least 1; leave it out for all at once"
            )
        samplings = [sampling] * len(prompts) if isinstance(sampling, Sampling) else list(sampling)
        if len(samplings) != len(prompts):
            raise ValueError(f"sampling: got {len(samplings)} for {len(prompts)} prompts, expected one each")
        answers: list[Generation | None] = [None] * len(prompts)
        for request in self._decode(prompts, samplings, batch_size or len(prompts)):
            if request.finish is not None:
                if request.text is not None:
                    request.text.finish()
                answers[request.index] = _generation(request)
        return [answer for answer in answers if answer is not None]

    def _decode(
        self,
        prompts: Sequence[str | Sequence[int]],
        samplings: list[Sampling],
        batch_size: int,
        clock: Clock = no_clock,
        watch: Watch | None = None,
    ) -> Iterator[Request]:
        if not prompts:
            return
        plan = self.plan_for(samplings)
        requests = [
            self._request(index, prompt, sampling)
            for index, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True))
        ]
        longest = max(len(request.prompt) + request.sampling.max_new_tokens for request in requests)
        state = self._buffers(min(batch_size, len(requests)), longest, plan)
        self._latest = requests
        for request in decode(state, self.parts, plan, requests, clock, watch):
            yield request
            # the caller may have done anything in between; a run whose answers are all complete needs no buffers
            if self._latest is not requests and any(one.finish is None for one in requests):
                raise ValueError(
                    "stream: another generation started on this engine before this one ended, expected one at a time;"
                    " take an engine for each"
                )

    def _request(self, index: int, prompt: str | Sequence[int], sampling: Sampling) -> Request:
        ids = self.prompt_ids(prompt)
        if not ids:
            raise ValueError("prompt: got no tokens, expected at least one")
        vocab = self.parts.target.config.vocab_size
        if not all(0 <= token < vocab for token in ids):
            raise ValueError(
                f"prompt: got a token id outside 0..{vocab - 1}; does the tokenizer belong to this model?"
            )
        if len(ids) + sampling.max_new_tokens > self.context:
            raise ValueError(
                f"prompt: got {len(ids)} tokens and {sampling.max_new_tokens} new ones, expected at most {self.context}"
                " together; shorten the prompt or lower max new tokens"
            )
        if sampling.stop and self.tokenizer is None:
            raise ValueError("stop: texts need a tokenizer; give stop ids instead")
        stops = self.stop_ids if sampling.stop_ids is None else sampling.stop_ids
        text = None if self.tokenizer is None else TextStream(self.tokenizer, sampling.stop)
        return Request(index=index, prompt=ids, sampling=sampling, stop_ids=stops, text=text)

    def _buffers(self, batch: int, longest: int, plan: RoundPlan) -> DecodeState:
        """Buffers that fit, the ones at hand if they do."""
        slack = max(plan.rows, plan.block_size, plan.path) + 1
        need = -(-(longest + slack) // SPAN) * SPAN
        held = self._state
        fits = (
            held is not None
            and held.length_B.shape[0] == batch
            and held.capacity >= need
            and held.features_BPF.shape[1] == plan.path
            and (held.output_BV.shape[1] > 0 or not plan.law.penalties)
        )
        if held is None or not fits:
            self._state = held = allocate(
                self.parts.target,
                self.parts.drafter,
                batch=batch,
                capacity=need,
                path=plan.path,
                penalties=plan.law.penalties,
            )
        return held


def _generation(request: Request) -> Generation:
    assert request.finish is not None, "the request still runs"
    text = "" if request.text is None else request.text.text
    return Generation(text=text, token_ids=request.tokens, finish=request.finish, stats=request.stats)


def _calibrated(options: DraftOptions, calibration: Calibration | None) -> DraftOptions:
    """A measured draft temperature where the user rejects and names none."""
    if calibration is None or options.accept != "reject" or options.draft_temperature is not None:
        return options
    return replace(options, draft_temperature=calibration.draft_temperature)
