"""The embedded tiny model family: a target, its drafter, and held-out prompts to run them on."""

from spectiny.document import DOMAINS, Document
from spectiny.folders import MODELS, folder
from spectiny.heldout import prompts

__all__ = ["DOMAINS", "MODELS", "Document", "folder", "prompts"]
