"""A domain's name goes in, its held-out prompts come out. They are stored with the package, not generated."""

import json
from importlib.resources import files

from spectiny.document import DOMAINS, Document


def prompts(domain: str | None = None) -> list[Document]:
    """Return the held-out prompts of a domain, or of all; each response is the corpus's own answer."""
    if domain is not None and domain not in DOMAINS:
        raise ValueError(f"prompts: got domain {domain!r}, expected one of {', '.join(DOMAINS)}")
    text = files("spectiny").joinpath("data", "prompts.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    found = [Document(row["domain"], row["prompt"], row["reference"]) for row in rows]
    return [document for document in found if domain in (None, document.domain)]
