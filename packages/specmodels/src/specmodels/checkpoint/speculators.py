"""The format of the package speculators, said in the keys of z-lab's layout.

In: a parsed `config.json`, whose backbone stands in a section of its own. Out: another one, which the layout of z-lab
reads; and back. Tensors of the backbone need no such step: their names are the same. It opens no file.
"""

from collections.abc import Mapping
from typing import Any, Final

from specmodels.checkpoint.keys import INFORMATIONAL, Keys

BACKBONE: Final = "transformer_layer_config"
KIND: Final = "speculators_model_type"

# Kinds of drafters, with what z-lab's layout calls their head where it has a name for it. The first version of the
# format had plain drafters alone, all of them with masks that say their own token; only they may leave the layout out.
_PROJECTORS: Final[Mapping[str, str | None]] = {
    "dflash": None,
    "dflash2": None,
    "dspark": "dspark",
    "xpress": None,
}
_UNSAID_LAYOUT: Final = "dflash"
_ARCHITECTURES: Final[Mapping[str, str]] = {
    "dflash": "DFlashSpeculator",
    "dflash2": "DFlash2DraftModel",
    "dspark": "DSparkSpeculator",
    "xpress": "XPressSpeculator",
}
# what stands in the backbone's section; the rest of z-lab's keys is the drafter's own
_OF_BACKBONE: Final = (
    "model_type vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim"
    " hidden_act rms_norm_eps max_position_embeddings attention_bias layer_types sliding_window use_sliding_window"
    " tie_word_embeddings rope_theta rope_scaling rope_parameters"
).split()
# how a server might use the drafter and how the package read it: nothing that the drafter computes
_ADMINISTRATION: Final = ("speculators_version", "has_no_defaults_at_init")


def applies(config: Mapping[str, Any]) -> bool:
    """Whether a config is of this format."""
    return KIND in config or BACKBONE in config


def to_zlab(
    config: Mapping[str, Any], origin: str, stated: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The same drafter in the keys of z-lab's layout; `stated` is what the caller says of it beyond the file."""
    keys = Keys(config, f"{origin}: speculators config", stated=stated)
    kind = keys.text(KIND)
    if kind not in _PROJECTORS:
        raise ValueError(f"{keys.origin}: {KIND}: got {kind!r}, expected {', '.join(_PROJECTORS)}")
    backbone = _backbone(keys)
    _administration(keys, kind)
    if kind != _UNSAID_LAYOUT and not keys.has("sample_from_anchor"):
        raise ValueError(
            f"{keys.origin}: sample_from_anchor: missing, expected true or false: the layout of the slots; state it"
        )
    translated = {
        "model_type": "qwen3",
        "target_layer_ids": _target_layers(keys),
        # a guess would either ask for a head that is not there or overlook one that is
        "draft_vocab_size": keys.integer("draft_vocab_size"),
        **_causal(keys, backbone),
        **({} if _PROJECTORS[kind] is None else {"projector_type": _PROJECTORS[kind]}),
    }
    rest = {name: config[name] for name in ("architectures", "dtype", "torch_dtype") if name in config}
    return _joined(keys, backbone, translated, rest | keys.left())


def from_zlab(config: Mapping[str, Any], kind: str, *, verifier: str) -> dict[str, Any]:
    """The inverse, for a config as `dflash.config_to_json` writes it with the keys of a head of that kind in its section.

    `verifier` names the target, which servers load beside it. Raises ValueError for what the format cannot say.
    """
    if kind not in _ARCHITECTURES:
        raise ValueError(
            f"layout: the format of speculators has no head {kind}, expected one of {', '.join(_ARCHITECTURES)}"
        )
    own = dict(config["dflash_config"])
    # a head's own name for it says the same once more
    shifted = bool(own.pop("sample_from_anchor", False))
    own.pop("projector_type", None)
    for name in ("input_embedding_scale", "output_multiplier", "final_logit_softcapping"):
        if name in own:
            raise ValueError(
                f"layout: the format of speculators has no {name}, expected a drafter without it"
            )
    drafted = config["block_size"] if shifted else config["block_size"] - 1
    return {
        "architectures": [_ARCHITECTURES[kind]],
        KIND: kind,
        "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": kind,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": drafted}],
            "verifier": {"name_or_path": verifier, "architectures": []},
        },
        BACKBONE: {name: config[name] for name in _OF_BACKBONE if name in config},
        "aux_hidden_state_layer_ids": [number + 1 for number in own.pop("target_layer_ids")],
        "draft_vocab_size": config.get("draft_vocab_size", config["vocab_size"]),
        "target_hidden_size": config.get("target_hidden_size"),
        "sample_from_anchor": shifted,
        "sliding_window_non_causal": _non_causal(config),
        **own,
        "dtype": config["dtype"],
    }


def _non_causal(config: Mapping[str, Any]) -> bool:
    """How sliding layers see their block; full ones see all of it, whatever is said."""
    kinds, causal = set(config["layer_types"]), config.get("is_causal")
    if causal and "full_attention" in kinds:
        raise ValueError(
            "layout: the format of speculators has no causal full layers, expected layers that see their whole block"
        )
    return causal is False and "sliding_attention" in kinds


def _backbone(keys: Keys) -> dict[str, Any]:
    """The section of the backbone without its place in the target's family: all of them have Qwen3's layers."""
    section = dict(keys.mapping_of(keys.take(BACKBONE), BACKBONE))
    family = section.pop("model_type", None)
    if family not in {"qwen3", "llama"}:
        raise ValueError(f"{keys.origin}: {BACKBONE}.model_type: got {family!r}, expected qwen3 or llama")
    if section.get("layer_types") is not None:
        section.pop("use_sliding_window", None)  # the kinds of the layers decide, whatever it says
    return {name: value for name, value in section.items() if name not in INFORMATIONAL}


def _administration(keys: Keys, kind: str) -> None:
    for name in _ADMINISTRATION:
        keys.take(name, default=None)
    served = keys.mapping_of(keys.take("speculators_config", default={}), "speculators_config")
    algorithm = served.get("algorithm", kind)
    if algorithm != kind:
        raise ValueError(
            f"{keys.origin}: speculators_config.algorithm: got {algorithm!r}, expected {kind!r} as in {KIND}"
        )


def _target_layers(keys: Keys) -> list[int]:
    """Ids of layers; the format counts from the embedding's output, so that its ids are larger by one."""
    ids = keys.integers("aux_hidden_state_layer_ids")
    if 0 in ids:
        raise ValueError(
            f"{keys.origin}: aux_hidden_state_layer_ids: got {list(ids)}, expected ids of at least 1; "
            "the embedding's own output is not supported"
        )
    return [number - 1 for number in ids]


def _causal(keys: Keys, backbone: Mapping[str, Any]) -> dict[str, Any]:
    """Full layers see the whole block, always; sliding ones look back only, unless the file says otherwise."""
    if "sliding_attention" not in (backbone.get("layer_types") or []):
        keys.flag("sliding_window_non_causal", default=None)
        return {}
    # readers disagree on what silence means
    return {"is_causal": False} if keys.flag("sliding_window_non_causal") else {}


def _joined(keys: Keys, *parts: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping; what stands in two of them has to be the same."""
    joined: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            if joined.get(name) is not None and value is not None and joined[name] != value:
                raise ValueError(
                    f"{keys.origin}: {name}: got {joined[name]!r} and {value!r}, expected one value"
                )
            if joined.get(name) is None:
                joined[name] = value
    return joined
