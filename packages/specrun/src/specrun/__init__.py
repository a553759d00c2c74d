"""The engine: lossless speculative decoding with block drafters, from prompt to text.

What needs torch is imported when it is first used: a list of methods should not have to wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from specrun.config import DraftOptions, Sampling
from specrun.methods import Method, method, methods
from specrun.stats import Stats

if TYPE_CHECKING:
    from specrun.assemble import load_engine
    from specrun.diffusion.assemble import load_diffusion_engine
    from specrun.diffusion.engine import DiffusionEngine
    from specrun.engine import Engine, Generation, Piece

__all__ = [
    "DiffusionEngine",
    "DraftOptions",
    "Engine",
    "Generation",
    "Method",
    "Piece",
    "Sampling",
    "Stats",
    "load_diffusion_engine",
    "load_engine",
    "method",
    "methods",
]

_LATER = {
    "DiffusionEngine": "diffusion.engine",
    "Engine": "engine",
    "Generation": "engine",
    "Piece": "engine",
    "load_diffusion_engine": "diffusion.assemble",
    "load_engine": "assemble",
}

if not TYPE_CHECKING:  # a checker would take every misspelt name for one of these

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__} has no attribute {name}")
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
