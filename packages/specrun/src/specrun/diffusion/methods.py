"""The named methods of block diffusion; they trade quality for time and are lossless against nothing."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionMethod:
    """How an answer comes about."""

    name: str
    refines: bool
    title: str
    paper: str
    summary: str


DIFFUSION_METHODS: Final = MappingProxyType(
    {
        method.name: method
        for method in (
            DiffusionMethod(
                name="block-diffusion",
                refines=False,
                title="block diffusion",
                paper="LLaDA2.1, arXiv 2602.08676",
                summary="blocks from masks to tokens, with edits inside a block",
            ),
            DiffusionMethod(
                name="draft-refine",
                refines=True,
                title="draft, then refine; with a drafter, speculative correction",
                paper="arXiv 2608.02625",
                summary="a complete draft, by a smaller model if one is named, then passes that edit all of it",
            ),
        )
    }
)
