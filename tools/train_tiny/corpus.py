"""Write the tokenizer, the held-out prompts and the tokenised training corpus of the tiny models.

Run from the root of the repository: `python tools/train_tiny/corpus.py`. It needs spectiny, tokenizers and numpy. The
tokenizer and the prompts go into the package's data folder, the shards into build/tiny/corpus/.
"""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from spectiny.corpus.documents import LIBRARY_SEEDS, documents, held_out
from spectiny.corpus.tokens import Encoded, encode, load_tokenizer, train_tokenizer, write_tokenizer
from spectiny.document import DOMAINS, TRAINED_DOMAINS, Document

LONGEST = 384  # ids of a document, prompt and response
PROMPTS = 200  # held-out prompts of each domain
SPARE = 40  # held-out prompts made beyond that, for those that are too long
BATCH = 4_096  # documents tokenised at once
PROCEDURAL = ("math", "code", "story")

READY = """Files of this folder, for each split S in (train, valid):
S.tokens.npy          uint16, all documents one after the other, already shuffled
S.offsets.npy         int64, document i is tokens[offsets[i]:offsets[i + 1]]; one more entry than documents
S.prompt_lengths.npy  int32, ids of document i before the first id of its response
S.domains.npy         uint8, place of the document's domain in {domains}
A document is <|im_start|>user\\nPROMPT<|im_end|>\\n<|im_start|>assistant\\nRESPONSE<|im_end|>\\n and has at most {longest} ids.
Vocabulary {vocabulary}. Special ids: {special}
Tokenizer: packages/spectiny/src/spectiny/data/qwen3-tiny/tokenizer.json
Counts:
{counts}
"""


def encode_upto(
    tokenizer: Tokenizer, source: Iterator[Document], budget: int, banned: set[str]
) -> list[tuple[int, Encoded]]:
    """Encode documents until their ids reach the budget; leave out banned prompts and documents that are too long."""
    kept: list[tuple[int, Encoded]] = []
    total = 0
    while total < budget and (batch := list(islice(source, BATCH))):
        batch = [document for document in batch if document.prompt not in banned]
        for document, encoded in zip(batch, encode(tokenizer, batch), strict=True):
            if len(encoded.ids) <= LONGEST and total < budget:
                kept.append((TRAINED_DOMAINS.index(document.domain), encoded))
                total += len(encoded.ids)
    return kept


def write_split(folder: Path, split: str, rows: Sequence[tuple[int, Encoded]]) -> str:
    """Write one split and return its counts as text."""
    lengths = np.array([len(encoded.ids) for _, encoded in rows], dtype=np.int64)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    tokens = np.fromiter(
        (i for _, encoded in rows for i in encoded.ids), dtype=np.uint16, count=int(offsets[-1])
    )
    domains = np.array([domain for domain, _ in rows], dtype=np.uint8)
    prompt_lengths = np.array([encoded.prompt_length for _, encoded in rows], dtype=np.int32)
    for name, array in (
        ("tokens", tokens),
        ("offsets", offsets),
        ("prompt_lengths", prompt_lengths),
        ("domains", domains),
    ):
        np.save(
            folder / f"unfinished.{split}.{name}.npy", array
        )  # whole or absent, for those who wait for it
        (folder / f"unfinished.{split}.{name}.npy").replace(folder / f"{split}.{name}.npy")
    lines = []
    for place, domain in enumerate(TRAINED_DOMAINS):
        here = domains == place
        lines.append(
            f"{split} {domain}: {int(here.sum())} documents, {int(lengths[here].sum())} ids, "
            f"{lengths[here].mean():.0f} a document, {prompt_lengths[here].mean():.0f} of them prompt"
        )
    return "\n".join(lines)


def main() -> None:
    """Build everything; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=19_000_000, help="ids of the training corpus, about")
    parser.add_argument("--data", type=Path, default=Path("packages/spectiny/src/spectiny/data"))
    parser.add_argument("--out", type=Path, default=Path("build/tiny/corpus"))
    parser.add_argument("--keep-tokenizer", action="store_true", help="use the tokenizer that is there")
    options = parser.parse_args()
    started = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    model_folder = options.data / "qwen3-tiny"
    library = [list(documents("stdlib", seed, 1_000_000)) for seed in LIBRARY_SEEDS]
    if not options.keep_tokenizer:
        texts = [part for one in library[0] for part in (one.prompt, one.response)]
        for domain in PROCEDURAL:
            texts += [part for one in documents(domain, 0, 12_000) for part in (one.prompt, one.response)]
        write_tokenizer(train_tokenizer(texts), model_folder)
    tokenizer = load_tokenizer(model_folder)
    print(f"tokenizer after {time.perf_counter() - started:.0f} s")

    valid: list[tuple[int, Encoded]] = []
    banned: set[str] = set()
    with (options.data / "prompts.jsonl").open("w", encoding="utf-8") as out:
        for domain in DOMAINS:
            found = held_out(domain, 2 * PROMPTS + SPARE)
            sizes = [len(encoded.ids) for encoded in encode(tokenizer, found)]
            found = [one for one, size in zip(found, sizes, strict=True) if size <= LONGEST][: 2 * PROMPTS]
            banned.update(one.prompt for one in found)
            for one in found[:PROMPTS]:
                row = {"domain": one.domain, "prompt": one.prompt, "reference": one.response}
                out.write(json.dumps(row, ensure_ascii=True) + "\n")
            if domain in TRAINED_DOMAINS:
                valid += encode_upto(tokenizer, iter(found), 1_000_000, set())

    everything = (document for cut in library for document in cut)
    rows = encode_upto(tokenizer, everything, options.ids // 2, banned)
    left = options.ids - sum(len(encoded.ids) for _, encoded in rows)
    print(f"library after {time.perf_counter() - started:.0f} s, {options.ids - left} ids")
    for domain in PROCEDURAL:
        rows += encode_upto(tokenizer, documents(domain, 1, 1_000_000), left // len(PROCEDURAL), banned)
        print(f"{domain} after {time.perf_counter() - started:.0f} s")
    random.Random(0).shuffle(rows)
    counts = write_split(options.out, "train", rows) + "\n" + write_split(options.out, "valid", valid)
    special = {token: number for token, number in tokenizer.get_vocab().items() if token.startswith("<|")}
    (options.out / "READY").write_text(
        READY.format(
            domains=list(TRAINED_DOMAINS),
            longest=LONGEST,
            vocabulary=tokenizer.get_vocab_size(),
            special=dict(sorted(special.items(), key=lambda item: item[1])),
            counts=counts,
        ),
        encoding="utf-8",
    )
    print(counts)
    print(
        f"done after {time.perf_counter() - started:.0f} s, {len(rows)} documents, {Counter(d for d, _ in rows)}"
    )


if __name__ == "__main__":
    main()
