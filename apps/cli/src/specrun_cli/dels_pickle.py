"""DeLS-Spec's published pickles and a DFlash drafter in, one folder with both out.

Pickles are opened for tensors and plain values alone; code in them is never run.
"""

import pickle
from pathlib import Path
from typing import Final

from speccorrect.correctors.dels import convert_pt
from specmodels.checkpoint.files import SINGLE, TensorFolder, read_json, write_json, write_tensors

UNIGRAM: Final = "loss_mask_unigram.pt"


def convert_dels(source: Path, drafter: Path, folder: Path) -> str:
    """Write the drafter with the head and its counts beside it; says what was written."""
    unigram = source.with_name(UNIGRAM)
    if not unigram.is_file():
        raise ValueError(f"{unigram}: missing, expected it beside {source.name}")
    public = read_json(drafter / "config.json")
    section = public.get("dflash_config")
    own = public | (section if isinstance(section, dict) else {})
    vocab = own.get("vocab_size")
    if not isinstance(vocab, int):
        raise ValueError(f"{drafter / 'config.json'}: vocab_size: got {vocab!r}, expected a whole number")  # noqa: TRY004 - a user's file
    try:
        keys, tensors = convert_pt(
            source,
            unigram,
            vocab_size=vocab,
            shifted=bool(own.get("sample_from_anchor", own.get("shift_label", False))),
        )
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, AttributeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{source.parent}: not readable as tensors alone ({reason:.120}); code in a pickle is never run"
        ) from error
    files = TensorFolder(drafter)
    stored = dict(files.read_each(sorted(files.names)))
    write_tensors(folder / SINGLE, stored | tensors)
    write_json(folder / "config.json", public | keys)
    return f"{drafter} with {len(tensors)} tensors of a DeLS head"
