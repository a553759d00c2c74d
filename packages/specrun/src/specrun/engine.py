"""The engine that users hold: models and a method in, text and statistics out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speccorrect.contract import Corrector
from speccorrect.couple import Coupling
from speccorrect.length_head import LengthHead
from speccorrect.policies.adaflash import AdaFlash
from speccorrect.policy import LengthPolicy
from specmodels.dflash import DFlash
from specmodels.qwen3 import Qwen3
from specmodels.template import ChatTemplate
from specrun.calibration import Calibration
from specrun.config import DraftOptions, Sampling
from specrun.costs import CostTable
from specrun.fallback import Fallback
from specrun.graphs import graphed_step, widened
from specrun.loop import SPAN, Finish, Request, decode
from specrun.methods import Method, method
from specrun.plan import coupling_strength, round_plan
from specrun.prompting import Prompting
from specrun.state import DecodeState, allocate, law_plan
from specrun.stats import Stats
from specrun.step import Clock, Parts, RoundPlan, Step, Watch, no_clock, step
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

    index: int  # of the prompt among those of the call
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
        length_head: LengthHead | None = None,
        costs: CostTable | None = None,
        costs_of: Callable[[int], CostTable] | None = None,
        fallback: Callable[[], Fallback] | None = None,
    ) -> None:
        if method.growth != "plain" and (drafter is None or corrector is None):
            raise ValueError(
                f"method: {method.name} needs a drafter and its corrector; name one with --draft"
            )
        self.method, self.tokenizer, self.stop_ids = method, tokenizer, stop_ids
        self.prompting = Prompting(tokenizer, template)
        self.options = _calibrated(options or DraftOptions(), calibration)
        self.chosen: str | None = None  # why this method, where it was not the user's choice
        self._costs_of, self._new_fallback = costs_of, fallback
        self._fallbacks: dict[int, Fallback] = {}  # by batch
        self._state: DecodeState | None = None
        self._latest: list[Request] = []  # whose buffers these are
        drafts = method.growth != "plain"
        self.parts = Parts(
            target=target, drafter=drafter if drafts else None, corrector=corrector if drafts else None
        )
        # sizes that cannot work are refused here, not at the first request
        plan = self.plan_for([Sampling()])
        _check_policy(plan.policy, length_head, costs)
        self.parts = replace(
            self.parts,
            coupling=self._coupling(plan.slots, None if calibration is None else calibration.coupling),
            length_head=length_head if isinstance(plan.policy, AdaFlash) else None,
            costs=costs,
        )
        self._step: Step = step

    def _coupling(self, slots: int, fitted: Coupling | None) -> Coupling | None:
        """The fitted table unless the user names a strength."""
        strength = coupling_strength(self.method, self.options)
        if strength == 0:
            return None
        if fitted is not None and self.options.couple is None and fitted.slots >= slots:
            return fitted
        return Coupling.constant(slots, strength, self.parts.target.embedding.device)

    def compile(self) -> None:
        """Make rounds one graph each from now on (`specrun.graphs`): the first of every kind takes up to a minute."""
        if self.plan_for([Sampling()]).policy is not None:
            raise ValueError(
                "compile: a compiled round has one width, got a length policy, which changes it; leave one of them out"
            )
        self._step = graphed_step(self.parts.target.embedding.device)

    def plain(self) -> "Engine":
        """The same target, tokenizer and template, decoding one token per pass."""
        return Engine(
            self.parts.target,
            method("ar"),
            tokenizer=self.tokenizer,
            template=self.prompting.template,
            stop_ids=self.stop_ids,
        )

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
        return self.prompting.chat_ids(messages, system=system, thinking=thinking)

    def prompt_ids(self, prompt: str | Sequence[int]) -> list[int]:
        """Ids of a text as it stands; ids are taken as they are."""
        return self.prompting.ids(prompt, self.parts.target.config.vocab_size)

    def generate(self, prompt: str | Sequence[int], sampling: Sampling | None = None) -> Generation:
        """Decode one prompt to its end; text is encoded as it stands (see `chat_ids` for chat templates)."""
        return self.generate_batch([prompt], sampling or Sampling())[0]

    def stream(
        self,
        prompt: str | Sequence[int],
        sampling: Sampling | None = None,
        *,
        number: int = 0,
        reuse: bool = False,
        clock: Clock = no_clock,
        watch: Watch | None = None,
    ) -> Iterator[Piece]:
        """Decode one prompt and give out what every round adds; `clock` and `watch` see inside the rounds.

        It draws from stream `number` of its seed, as the request of that number in a batch does.
        With `reuse`, what this prompt and the last single one share at their start, its answer included, is not read
        again: for conversations.
        """
        request = self._request(number, prompt, sampling or Sampling())
        if reuse:
            request.kept = self._shared_with_latest(request.prompt)
        yield from self._pieces([request], 1, clock, watch)

    def stream_batch(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling: Sampling | Sequence[Sampling],
        *,
        batch_size: int | None = None,
        numbers: Sequence[int] | None = None,
        dropped: Callable[[int], bool] | None = None,
        clock: Clock = no_clock,
    ) -> Iterator[Piece]:
        """Decode many prompts, `batch_size` rows at a time (None: all at once), and give out what every round adds.

        Request i draws from stream i of its seed, or `numbers[i]`, so that equal prompts get different answers at
        temperature above 0. `dropped` is asked behind every piece, by place, whether an answer is of no use any more.
        """
        if batch_size is not None and batch_size < 1:
            raise ValueError(
                f"batch size: got {batch_size}, expected at least 1; leave it out for all at once"
            )
        samplings = [sampling] * len(prompts) if isinstance(sampling, Sampling) else list(sampling)
        if len(samplings) != len(prompts):
            raise ValueError(f"sampling: got {len(samplings)} for {len(prompts)} prompts, expected one each")
        numbers = range(len(prompts)) if numbers is None else numbers
        requests = [self._request(*each) for each in zip(numbers, prompts, samplings, strict=True)]
        if requests:
            yield from self._pieces(requests, batch_size or len(requests), clock, dropped=dropped)

    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling: Sampling | Sequence[Sampling],
        *,
        batch_size: int | None = None,
    ) -> list[Generation]:
        """Decode many prompts as `stream_batch` does; answers in the order of the prompts."""
        pieces = self.stream_batch(prompts, sampling, batch_size=batch_size)
        answers = {piece.index: piece.generation for piece in pieces if piece.generation is not None}
        return [answers[index] for index in range(len(prompts))]

    def check(self, prompt: str | Sequence[int], sampling: Sampling) -> None:
        """Raise the ValueError that decoding this prompt would begin with, if there is one."""
        self._request(0, prompt, sampling)

    def _shared_with_latest(self, prompt: list[int]) -> int:
        """Leading ids of a prompt whose rows the caches hold; its last one is always read for its logits."""
        if len(self._latest) != 1:
            return 0
        (latest,) = self._latest
        held = (latest.prompt + latest.tokens)[: latest.settled]
        pairs = zip(held, prompt[:-1], strict=False)
        return next(
            (count for count, (ours, theirs) in enumerate(pairs) if ours != theirs),
            min(len(held), len(prompt) - 1),
        )

    def _pieces(
        self,
        requests: list[Request],
        batch_size: int,
        clock: Clock = no_clock,
        watch: Watch | None = None,
        dropped: Callable[[int], bool] | None = None,
    ) -> Iterator[Piece]:
        plan = self.plan_for([request.sampling for request in requests])
        longest = max(len(request.prompt) + request.sampling.max_new_tokens for request in requests)
        self._latest = requests  # before the buffers change: an interrupt may come at any point
        batch = min(batch_size, len(requests))
        state = self._buffers(batch, longest, plan, kept=requests[0].kept)
        places = {id(request): place for place, request in enumerate(requests)}
        given = [0] * len(requests)
        for request in decode(
            state, self._parts_for(batch), plan, requests, clock, watch, self._fallback_for(batch), self._step
        ):
            place = places[id(request)]
            ids, given[place] = request.tokens[given[place] :], len(request.tokens)
            yield Piece(
                index=place,
                text=_new_text(request),
                token_ids=ids,
                generation=None if request.finish is None else _generation(request),
            )
            if dropped is not None:
                for place, one in enumerate(requests):
                    one.dropped = dropped(place)
            # the caller may have done anything in between; a run whose answers are all complete needs no buffers
            if self._latest is not requests and any(one.finish is None for one in requests):
                raise ValueError(
                    "stream: another generation started on this engine before this one ended, expected one at a time;"
                    " take an engine for each"
                )

    def _parts_for(self, batch: int) -> Parts:
        """The parts with the costs of this batch, where they can be had."""
        costs = self.parts.costs
        if costs is None or self._costs_of is None or costs.batch == batch:
            return self.parts
        return replace(self.parts, costs=self._costs_of(batch))

    def _fallback_for(self, batch: int) -> Fallback | None:
        if self._new_fallback is not None and batch not in self._fallbacks:
            self._fallbacks[batch] = self._new_fallback()
        return self._fallbacks.get(batch)

    def _request(self, index: int, prompt: str | Sequence[int], sampling: Sampling) -> Request:
        ids = self.prompt_ids(prompt)
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

    def _buffers(self, batch: int, longest: int, plan: RoundPlan, *, kept: int = 0) -> DecodeState:
        """Buffers that fit, the ones at hand if they do; new ones hold the first `kept` cache rows of the old."""
        slack = max(plan.rows, plan.block_size, plan.path) + 1
        need = -(-(longest + slack) // SPAN) * SPAN
        if self._step is not step:
            need = widened(need)  # other sizes would need other graphs
        held = self._state
        fits = (
            held is not None
            and held.length_B.shape[0] == batch
            and held.capacity >= need
            and held.features_BPF.shape[1] == plan.path
            and (held.output_BV.shape[1] > 0 or not plan.law.penalties)
        )
        if held is not None and fits:
            return held
        self._state = allocate(
            self.parts.target,
            self.parts.drafter,
            batch=batch,
            capacity=need if held is None or not kept else max(need, 2 * held.capacity),
            path=plan.path,
            penalties=plan.law.penalties,
        )
        if held is not None and kept:
            self._state.keep(held, kept)
        return self._state


def _check_policy(
    policy: LengthPolicy | None, length_head: LengthHead | None, costs: CostTable | None
) -> None:
    if isinstance(policy, AdaFlash) and length_head is None:
        raise ValueError(
            "policy: got adaflash, but the drafter carries no head of lengths; take measured, or a drafter that has one"
        )
    if policy is not None and policy.priced and costs is None:
        raise ValueError(
            "policy: got one that reads costs, expected a table of them; load_engine measures it"
        )


def _new_text(request: Request) -> str:
    """What can be shown since the last time; all that is left once the request is finished."""
    if request.text is None:
        return ""
    return request.text.take() + ("" if request.finish is None else request.text.finish())


def _generation(request: Request) -> Generation:
    assert request.finish is not None, "the request still runs"
    text = "" if request.text is None else request.text.text
    return Generation(text=text, token_ids=request.tokens, finish=request.finish, stats=request.stats)


def _calibrated(options: DraftOptions, calibration: Calibration | None) -> DraftOptions:
    """A measured draft temperature where the user rejects and names none."""
    if calibration is None or options.accept != "reject" or options.draft_temperature is not None:
        return options
    return replace(options, draft_temperature=calibration.draft_temperature)
