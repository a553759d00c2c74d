"""LLaDA2 written from its equations over the tensors of a public folder: one token at a time, one expert at a time.

It shares nothing with the package: no module, no table of names, no attention.
"""

import math
from typing import Any

import torch
from torch import Tensor


def logits(config: dict[str, Any], tensors: dict[str, Tensor], ids: list[int], block: int) -> Tensor:
    """Rows of logits for one text; row i is about token i, and sees all positions up to the end of its block."""
    x = [tensors["model.word_embeddings.weight"][token] for token in ids]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        normed = [_norm(row, tensors[f"{at}input_layernorm.weight"], config) for row in x]
        x = [row + out for row, out in zip(x, _attention(config, tensors, at, normed, block), strict=True)]
        normed = [_norm(row, tensors[f"{at}post_attention_layernorm.weight"], config) for row in x]
        x = [row + _feed_forward(config, tensors, layer, one) for row, one in zip(x, normed, strict=True)]
    rows = [_norm(row, tensors["model.norm.weight"], config) for row in x]
    return torch.stack([tensors["lm_head.weight"] @ row for row in rows])


def _norm(row: Tensor, weight: Tensor, config: dict[str, Any]) -> Tensor:
    return row / math.sqrt(float((row * row).mean()) + config["rms_norm_eps"]) * weight


def _attention(
    config: dict[str, Any], tensors: dict[str, Tensor], at: str, rows: list[Tensor], block: int
) -> list[Tensor]:
    heads, groups, width = (
        config["num_attention_heads"],
        config["num_key_value_heads"],
        config["head_dim"],
    )
    turning = int(width * config["partial_rotary_factor"])
    fused = [tensors[f"{at}attention.query_key_value.weight"] @ row for row in rows]
    every = [row.view(heads + 2 * groups, width) for row in fused]

    def turned(head: Tensor, weight: str, position: int) -> Tensor:
        head = _norm(head, tensors[f"{at}attention.{weight}.weight"], config)
        out = head.clone()
        for i in range(turning // 2):
            angle = position * config["rope_theta"] ** (-2 * i / turning)
            a, b = float(head[i]), float(head[i + turning // 2])
            out[i] = a * math.cos(angle) - b * math.sin(angle)
            out[i + turning // 2] = b * math.cos(angle) + a * math.sin(angle)
        return out

    queries = [[turned(row[a], "query_layernorm", t) for a in range(heads)] for t, row in enumerate(every)]
    keys = [
        [turned(row[heads + g], "key_layernorm", t) for g in range(groups)] for t, row in enumerate(every)
    ]
    outs = []
    for t in range(len(rows)):
        seen = [s for s in range(len(rows)) if s // block <= t // block]
        parts = []
        for a in range(heads):
            g = a * groups // heads
            scores = torch.stack([queries[t][a] @ keys[s][g] for s in seen]) / math.sqrt(width)
            shares = scores.softmax(dim=0)
            parts.append(
                sum(share * every[s][heads + groups + g] for share, s in zip(shares, seen, strict=True))
            )
        outs.append(tensors[f"{at}attention.dense.weight"] @ torch.cat(parts))
    return outs


def _block(tensors: dict[str, Tensor], at: str, row: Tensor) -> Tensor:
    gate, up = tensors[f"{at}gate_proj.weight"] @ row, tensors[f"{at}up_proj.weight"] @ row
    return tensors[f"{at}down_proj.weight"] @ (gate / (1 + torch.exp(-gate)) * up)


def _feed_forward(config: dict[str, Any], tensors: dict[str, Tensor], layer: int, row: Tensor) -> Tensor:
    at = f"model.layers.{layer}.mlp."
    if layer < config["first_k_dense_replace"]:
        return _block(tensors, at, row)
    out = _block(tensors, f"{at}shared_experts.", row)
    for expert, weight in routing(
        config, tensors[f"{at}gate.weight"] @ row, tensors[f"{at}gate.expert_bias"]
    ).items():
        out = out + weight * _block(tensors, f"{at}experts.{expert}.", row)
    return out


def routing(config: dict[str, Any], products: Tensor, bias: Tensor) -> dict[int, float]:
    """Chosen experts and their weights for one row."""
    score = [1 / (1 + math.exp(-float(product))) for product in products]
    choice = [s + float(b) for s, b in zip(score, bias, strict=True)]
    size = len(score) // config["n_group"]
    groups = [range(size * g, size * (g + 1)) for g in range(config["n_group"])]
    worth = [sum(sorted((choice[e] for e in group), reverse=True)[:2]) for group in groups]
    best = sorted(range(len(groups)), key=lambda g: -worth[g])[: config["topk_group"]]
    open_experts = [e for g in best for e in groups[g]]
    chosen = sorted(open_experts, key=lambda e: -choice[e])[: config["num_experts_per_tok"]]
    total = sum(score[e] for e in chosen) + 1e-20 if config["norm_topk_prob"] else 1.0
    return {e: score[e] / total * config["routed_scaling_factor"] for e in chosen}
