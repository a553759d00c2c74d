"""Document: one instruction and its answer. It does not know how either was made or how it is tokenised."""

from dataclasses import dataclass

TRAINED_DOMAINS = ("math", "code", "story", "stdlib")
"""Domains of the training mix; a document's domain id in the shards is its place in this tuple."""

DOMAINS = (*TRAINED_DOMAINS, "math-shifted")
"""Every domain with held-out prompts. The shifted word problems are never trained on."""


@dataclass(frozen=True, slots=True)
class Document:
    """One instruction and its answer; both are plain text without special tokens."""

    domain: str  # one of DOMAINS
    prompt: str  # what the user says
    response: str  # what the assistant answers
