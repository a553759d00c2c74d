"""Rope keys of a configuration file, in all their spellings, to a `RopeConfig`."""

from typing import Any

from specmodels.checkpoint.keys import Keys
from specmodels.layers.rope import RopeConfig


def rope_from_keys(keys: Keys, *, max_positions: int) -> RopeConfig:
    """Takes `rope_theta` with `rope_scaling`, or `rope_parameters`, which holds both."""
    names = ("rope_parameters", "rope_scaling")
    found = {name: keys.take(name, default={}) for name in names}
    theta = {"rope_theta": keys.take("rope_theta", default=None)}
    inner = Keys({**found, **theta}, f"{keys.origin}: rope", sections=names)
    inner.only("partial_rotary_factor", 1, 1.0, reason="partly rotated heads are not supported")
    inner.only("rope_dim", reason="partly rotated heads are not supported")
    inner.only("mrope_section", reason="positions of several axes are not supported")
    config = _config(inner, max_positions)
    inner.finish()
    return config


def _config(keys: Keys, max_positions: int) -> RopeConfig:
    kind = keys.text("rope_type", "type", default="default")
    theta = keys.number("rope_theta")
    if theta <= 0:
        raise ValueError(f"{keys.origin}: rope_theta: got {theta}, expected a number above 0")
    if kind == "default":
        return RopeConfig(theta=theta)
    if kind not in {"linear", "llama3", "yarn"}:
        raise ValueError(f"{keys.origin}: rope_type: got {kind!r}, expected default, linear, llama3 or yarn")
    factor = keys.number("factor")
    if factor < 1:
        raise ValueError(f"{keys.origin}: factor: got {factor}, expected a number of at least 1")
    if kind == "linear":
        return RopeConfig(theta=theta, kind="linear", factor=factor)
    if kind == "llama3":
        original = keys.integer("original_max_position_embeddings")
        low, high = keys.number("low_freq_factor"), keys.number("high_freq_factor")
        if not low < high:
            raise ValueError(
                f"{keys.origin}: low_freq_factor: got {low}, expected less than high_freq_factor {high}"
            )
        return RopeConfig(
            theta=theta,
            kind="llama3",
            factor=factor,
            original_positions=original,
            low_freq_factor=low,
            high_freq_factor=high,
        )
    return RopeConfig(
        theta=theta,
        kind="yarn",
        factor=factor,
        original_positions=keys.integer("original_max_position_embeddings", default=max_positions),
        beta_fast=keys.number("beta_fast", default=32.0),
        beta_slow=keys.number("beta_slow", default=1.0),
        attention_factor=keys.number("attention_factor", default=None),
        mscale=keys.number("mscale", default=None),
        mscale_all_dim=keys.number("mscale_all_dim", default=None),
        truncate=keys.flag("truncate", default=True),
    )


def rope_to_json(rope: RopeConfig) -> dict[str, Any]:
    """Both public spellings, so that old and new readers find theirs."""
    scaling: dict[str, Any] = {"rope_type": rope.kind}
    if rope.kind != "default":
        scaling["factor"] = rope.factor
    if rope.kind in {"llama3", "yarn"}:
        scaling["original_max_position_embeddings"] = rope.original_positions
    if rope.kind == "llama3":
        scaling |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.kind == "yarn":
        scaling |= {"beta_fast": rope.beta_fast, "beta_slow": rope.beta_slow, "truncate": rope.truncate}
        optional = {
            "attention_factor": rope.attention_factor,
            "mscale": rope.mscale,
            "mscale_all_dim": rope.mscale_all_dim,
        }
        scaling |= {name: value for name, value in optional.items() if value is not None}
    return {
        "rope_theta": rope.theta,
        "rope_scaling": None if rope.kind == "default" else scaling,
        "rope_parameters": {"rope_theta": rope.theta, **scaling},
    }
