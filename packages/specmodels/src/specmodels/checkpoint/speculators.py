"""The format of the package speculators, said in the keys of z-lab's layout.

In: a parsed `config.json`, whose backbone stands in a section of its own. Out: another one, which the layout of z-lab
reads. Tensors need no such step: their names are the same. It opens no file.
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
