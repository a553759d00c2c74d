"""The target's law on one row, from the definitions: lists of Python numbers, no tensors.

Equal logits share one fate: whatever a cut leaves out that equals the last token it keeps comes back.
"""

import math


def penalised(logits, prompt, counts, *, repetition=1.0, presence=0.0, frequency=0.0):
    """`prompt` holds token ids, `counts` how often each token stands in the output."""
    found = []
    for token, logit in enumerate(logits):
        if token in prompt or counts[token]:
            logit = logit / repetition if logit > 0 else logit * repetition
        if counts[token]:
            logit -= presence + frequency * counts[token]
        found.append(logit)
    return found


def survivors(logits, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """Ids that top-k, then top-p of what it left, then min-p allow."""
    scaled = [logit / (temperature or 1.0) for logit in logits]
    order = sorted(range(len(scaled)), key=lambda token: -scaled[token])
    best = scaled[order[0]]
    kept = order[: top_k or None]
    if top_p < 1:
        weights = [math.exp(scaled[token] - best) for token in kept]
        total, before, count = math.fsum(weights), 0.0, 0
        for weight in weights:
            if before >= top_p:
                break
            before, count = before + weight / total, count + 1
        kept = kept[:count]
    last = scaled[kept[-1]]
    return {
        token
        for token in order
        if scaled[token] >= last and (not min_p or scaled[token] >= best + math.log(min_p))
    }


def law(logits, *, temperature=1.0, **filters):
    """Probabilities of all tokens; all mass on the first best token at temperature 0."""
    kept = survivors(logits, temperature=temperature, **filters)
    best = max(logits)
    if not temperature:
        return [1.0 if token == logits.index(best) else 0.0 for token in range(len(logits))]
    weights = [
        math.exp((logit - best) / temperature) if token in kept else 0.0 for token, logit in enumerate(logits)
    ]
    return [weight / math.fsum(weights) for weight in weights]
