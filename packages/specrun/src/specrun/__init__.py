"""The engine: lossless speculative decoding with block drafters, from prompt to text."""

from specrun.assemble import load_engine
from specrun.config import DraftOptions, Sampling
from specrun.engine import Engine, Generation, Piece
from specrun.methods import Method, method, methods
from specrun.stats import Stats

__all__ = [
    "DraftOptions",
    "Engine",
    "Generation",
    "Method",
    "Piece",
    "Sampling",
    "Stats",
    "load_engine",
    "method",
    "methods",
]
