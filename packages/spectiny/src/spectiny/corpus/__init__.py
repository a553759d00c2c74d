"""The instruction corpus that the tiny models are trained on, made from a seed."""

from spectiny.corpus.documents import HELD_OUT_SEED, documents, held_out
from spectiny.corpus.reasoning import check
from spectiny.corpus.source import source

__all__ = ["HELD_OUT_SEED", "check", "documents", "held_out", "source"]
