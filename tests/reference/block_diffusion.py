"""Block decoding and refinement without any cache: every pass runs the whole text, as the published code does.

Written from the published rules over plain lists; it shares the model with the package and nothing else.
"""

import torch

from specmodels.kv import RowsMemory
from specmodels.llada2 import block_causal


def probabilities(model, ids: list[int], block: int, ahead: int = 0) -> torch.Tensor:
    """Rows of probabilities for a text; a row sees so many blocks behind its own."""
    place = torch.arange(len(ids))[None]
    memory = RowsMemory(block_causal(place + ahead * block, place, block))
    logits = model.logits(model(torch.tensor([ids]), place, memory))[0]
    logits[:, model.config.mask_token_id] = float("-inf")
    return logits.softmax(dim=-1)


def decode(model, prompt: list[int], budget: int, settings, end_id: int) -> list[int]:
    """The answer, up to its first end or its budget."""
    mask, block = model.config.mask_token_id, settings.block
    total = -(-(len(prompt) + budget) // block) * block
    x = prompt + [mask] * (total - len(prompt))
    for start in range(len(prompt) // block * block, total, block):
        if budget == 0:
            break
        here = [i for i in range(start, start + block) if i >= len(prompt)]
        edits, states = 0, []
        while True:
            masked = [i for i in here if x[i] == mask]
            if not masked:
                edits += 1
                if edits > settings.edit_steps:
                    break
                if x in [state for state, _ in states]:
                    first = [state for state, _ in states].index(x)
                    x = list(min(states[first:], key=lambda state: state[1])[0])
                    break
            p = probabilities(model, x[: start + block], block)
            best = p.argmax(dim=-1).tolist()
            sure = p.max(dim=-1).values.tolist()
            if not masked:
                loss = -sum(float(p[i, x[i]].log()) for i in here) / len(here)
                states.append((list(x), loss))
            fill = [i for i in masked if sure[i] > settings.mask_threshold]
            if masked and not fill:
                fill = [max(masked, key=lambda i: sure[i])]
            threshold = settings.edit_threshold
            edit = [
                i
                for i in here
                if i not in masked and threshold is not None and sure[i] > threshold and best[i] != x[i]
            ]
            for i in fill + edit:
                x[i] = best[i]
            if not masked and not edit:
                break
        answer = x[len(prompt) : min(start + block, len(prompt) + budget)]
        if end_id in answer:
            return answer[: answer.index(end_id) + 1]
    return x[len(prompt) : len(prompt) + budget]


def refine(model, prompt: list[int], draft: list[int], settings, block: int) -> list[int]:
    """A draft without an end, of whole blocks together with its prompt, revised as a whole."""
    x = prompt + draft
    for _ in range(settings.steps):
        ahead = len(x) if settings.ahead is None else settings.ahead
        p = probabilities(model, x, block, ahead)
        best, sure = p.argmax(dim=-1).tolist(), p.max(dim=-1).values.tolist()
        edit = [
            i for i in range(len(prompt), len(x)) if best[i] != x[i] and sure[i] > settings.edit_threshold
        ]
        if not edit:
            break
        for i in edit:
            x[i] = best[i]
    return x[len(prompt) :]
