"""`specrun calibrate`: measure a drafter on the target's own answers, and store what was found beside its weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from specrun import Engine, Sampling, load_engine, method
from specrun.assemble import drafter_folder
from specrun.calibration import FILE
from specrun.embedded import embedded_models
from specrun_cli.prompt import read_prompts
from spectrain.calibrate import Trajectory, fit, observe

DOCUMENTS = 96
TOKENS = 128
CANDIDATES = 32
_SEED = 20_011  # of the embedded family's prompts: no training or held-out prompt comes from it
_BATCH = 32


def run(given: Mapping[str, Any]) -> None:
    """Draw answers by plain decoding, score the drafter along them, fit, write."""
    model, name = given.get("model", "tiny"), given.get("method", "ddtree")
    chosen = method(name)
    if chosen.growth == "plain":
        raise ValueError(f"method: got {name}, which drafts nothing; expected one with a drafter")
    temperature = given.get("temperature", 1.0)
    sampling = Sampling(
        max_new_tokens=given.get("max_new_tokens", TOKENS), temperature=temperature, seed=given.get("seed", 0)
    )
    if temperature == 0:
        raise ValueError("temperature: got 0, expected above 0: greedy text shows nothing of the noise")
    count = given.get("documents", DOCUMENTS)
    if count < 1:
        raise ValueError(f"documents: got {count}, expected at least 1")
    folder = Path(given["output"]) if "output" in given else drafter_folder(model, chosen, given.get("draft"))
    if not folder.is_dir():
        raise ValueError(f"output: {folder} is no folder; name one that exists")
    prompts = _prompts(given, model, count)
    drafting = load_engine(model, name, draft=given.get("draft"), device=given.get("device", "cpu"))
    trajectories = _trajectories(drafting, prompts, sampling)
    parts = drafting.parts
    assert parts.drafter is not None, "checked by the method"
    assert parts.corrector is not None, "checked by the method"
    seen = observe(
        parts.target,
        parts.drafter,
        parts.corrector,
        tqdm(trajectories, desc="scoring", disable=None),
        candidates=CANDIDATES,
    )
    found = fit(seen, documents=len(trajectories), temperature=temperature)
    found.save(folder)
    known = int(seen.known_MK.sum())
    shares = " ".join(f"{share:.2f}" for share in found.acceptance)
    print(f"{known} slots of {len(trajectories)} answers at temperature {temperature:g}")
    print(f"acceptance by depth (greedy chain): {shares}")
    print(f"draft temperature under reject: {found.draft_temperature:g}")
    print(f"written: {folder / FILE}")


def _trajectories(drafting: Engine, prompts: list[str], sampling: Sampling) -> list[Trajectory]:
    plain = drafting.plain()
    made: list[Trajectory] = []
    bar = tqdm(total=len(prompts), desc="answers", disable=None)
    # request numbers restart with every batch, and with them the noise
    for start in range(0, len(prompts), _BATCH):
        ids = [drafting.chat_ids(prompt) for prompt in prompts[start : start + _BATCH]]
        for request, answer in enumerate(plain.generate_batch(ids, sampling)):
            made.append(
                Trajectory(
                    prompt=ids[request],
                    response=answer.token_ids,
                    seed=sampling.seed,
                    request=request,
                    temperature=sampling.temperature,
                )
            )
            bar.update()
    bar.close()
    return made


def _prompts(given: Mapping[str, Any], model: str, count: int) -> list[str]:
    if "prompts" in given:
        return read_prompts(Path(given["prompts"]))[:count]
    if model not in embedded_models():
        raise ValueError(f"prompts: none are known for {model}; name a file with --prompts")
    from spectiny.corpus.documents import documents
    from spectiny.document import TRAINED_DOMAINS

    share = -(-count // len(TRAINED_DOMAINS))
    return [document.prompt for domain in TRAINED_DOMAINS for document in documents(domain, _SEED, share)][
        :count
    ]
