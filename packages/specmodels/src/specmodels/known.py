"""Models that go by a short name: which repositories, at which revision, and which drafters there are for each.

Sizes and licences are what the repositories stated when the revision was pinned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDrafter:
    """A public drafter, with its correction head if its family has one."""

    repo: str
    revision: str  # a commit, or "main" where none is pinned
    stated: Mapping[str, Any] = field(
        default_factory=dict
    )  # what its config leaves unsaid; see `load_drafter`
    tokens_per_round: float | None = None  # as its authors report it, a mean over their benchmarks
    trained_length: int | None = None  # tokens of the longest sequences that it was trained on


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A target, and its drafters by family of method."""

    name: str
    repo: str  # empty for an embedded model
    revision: str
    parameters: str  # of the target
    gigabytes: float  # download of the target
    licence: str
    gated: bool = False  # needs an account that accepted the licence
    embedded: bool = False  # its folders come with a package; who calls `resolve` knows where they are
    diffusion: bool = False  # denoises blocks; the methods that write token by token are not for it
    drafters: Mapping[str, KnownDrafter] = field(default_factory=dict)


# DeepSpec's files do not say that their slots are shifted; the code that trained them does
_ANCHORED: Final = MappingProxyType({"sample_from_anchor": True})

_MODELS: Final = (
    KnownModel(
        name="tiny",
        repo="",
        revision="",
        parameters="2 M",
        gigabytes=0.005,
        licence="Apache-2.0",
        embedded=True,
    ),
    KnownModel(
        name="qwen3-4b",
        repo="Qwen/Qwen3-4B",
        revision="1cfa9a7208912126459214e8b04321603b3df60c",
        parameters="4.0 B",
        gigabytes=8.1,
        licence="Apache-2.0",
        drafters={
            "dflash": KnownDrafter(
                repo="z-lab/Qwen3-4B-DFlash-b16",
                revision="b74e3a329c4d963783143b1e970d95b002be72bd",
                trained_length=3072,
            ),
            "domino": KnownDrafter(
                repo="Huang2020/Qwen3-4B-Domino-b16", revision="main", trained_length=3072
            ),
            "dspark": KnownDrafter(
                repo="deepseek-ai/dspark_qwen3_4b_block7",
                revision="3457dff1417cb84927f6098a5fcb7cee85c934b7",
                stated=_ANCHORED,
                tokens_per_round=4.73,
                trained_length=4096,
            ),
        },
    ),
    KnownModel(
        name="qwen3-8b",
        repo="Qwen/Qwen3-8B",
        revision="b968826d9c46dd6066d109eabc6255188de91218",
        parameters="8.2 B",
        gigabytes=16.4,
        licence="Apache-2.0",
        drafters={
            "dflash": KnownDrafter(
                repo="z-lab/Qwen3-8B-DFlash-b16",
                revision="9b41424b7109f9c5413454f481b09a82b85333f4",
                tokens_per_round=6.49,
                trained_length=3072,
            ),
            "domino": KnownDrafter(
                repo="Huang2020/Qwen3-8B-Domino-b16",
                revision="b2b249e3429fedbcb17c2166d3ac2161a047157b",
                trained_length=3072,
            ),
            "dspark": KnownDrafter(
                repo="deepseek-ai/dspark_qwen3_8b_block7",
                revision="03326e5043815da1f81b109078b2889737c26017",
                stated=_ANCHORED,
                tokens_per_round=4.81,
                trained_length=4096,
            ),
        },
    ),
    KnownModel(
        name="llama3.1-8b",
        repo="meta-llama/Llama-3.1-8B-Instruct",
        revision="0e9e39f249a16976918f6564b8830bc894c89659",
        parameters="8.0 B",
        gigabytes=16.1,
        licence="Llama 3.1 Community License",
        gated=True,
        drafters={
            "dflash": KnownDrafter(
                repo="z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",
                revision="d3af30def9601abdd10810aba220d692f0e803f0",
            ),
        },
    ),
    KnownModel(
        name="tiny-llada",
        repo="",
        revision="",
        parameters="2.5 M",
        gigabytes=0.005,
        licence="Apache-2.0",
        embedded=True,
        diffusion=True,
    ),
    KnownModel(
        name="tiny-llada-mini",
        repo="",
        revision="",
        parameters="1.6 M",
        gigabytes=0.003,
        licence="Apache-2.0",
        embedded=True,
        diffusion=True,
    ),
    KnownModel(
        name="llada2.1-mini",
        repo="inclusionAI/LLaDA2.1-mini",
        revision="main",
        parameters="16 B",
        gigabytes=32.5,
        licence="Apache-2.0",
        diffusion=True,
    ),
    KnownModel(
        name="llada2.1-flash",
        repo="inclusionAI/LLaDA2.1-flash",
        revision="main",
        parameters="103 B",
        gigabytes=205.8,
        licence="Apache-2.0",
        diffusion=True,
    ),
)

KNOWN_MODELS: Final[Mapping[str, KnownModel]] = MappingProxyType({model.name: model for model in _MODELS})


def known_model(name: str) -> KnownModel:
    """The model of a short name, or an error that lists the names there are."""
    if name not in KNOWN_MODELS:
        raise ValueError(
            f"model: got {name!r}, expected one of {', '.join(KNOWN_MODELS)}, a folder or owner/name"
        )
    return KNOWN_MODELS[name]


def known_drafter(model: str, family: str) -> KnownDrafter:
    """The drafter of a known model for a family of methods."""
    drafters = known_model(model).drafters
    if family not in drafters:
        expected = ", ".join(drafters) or "none"
        raise ValueError(
            f"drafter of {model}: got {family!r}, expected one of: {expected}; or name a folder or owner/name"
        )
    return drafters[family]
