"""Write the shipped files of a trained model from the last checkpoint of its run.

Run from the root of the repository, after target.py, drafter.py or llada.py: `python tools/train_tiny/export.py target`. Weights
are rounded to bfloat16; everything that follows has to use the rounded ones. Log and record of the run go along.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import TypeVar

import torch
from family import (
    BUILD,
    DRAFTER,
    DRAFTER_FOLDER,
    END_OF_TEXT,
    IM_END,
    LLADA_FLASH,
    LLADA_FOLDERS,
    LLADA_MINI,
    RECORDS,
    TARGET,
    TARGET_FOLDER,
)

from specmodels.checkpoint import save_drafter, save_llada2, save_target
from specmodels.dflash import DFlash
from specmodels.llada2 import Llada2
from specmodels.qwen3 import Qwen3
from spectrain.checkpoints import load_run

Model = TypeVar("Model", bound=torch.nn.Module)

FOLDERS = {
    "target": TARGET_FOLDER,
    "drafter": DRAFTER_FOLDER,
    **{f"llada-{name}": folder for name, folder in LLADA_FOLDERS.items()},
}


def filled(model: Model, checkpoint: Path) -> Model:
    """The model with the parameters of a run."""
    parameters = load_run(checkpoint).parameters
    missing = model.load_state_dict(parameters, strict=False).missing_keys
    assert not missing, missing
    return model


def add_ids(folder: Path) -> None:
    """Name the special ids in the config: a reader without the tokenizer looks for them there."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"bos_token_id": END_OF_TEXT, "eos_token_id": IM_END, "pad_token_id": END_OF_TEXT}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def add_tokenizer(folder: Path) -> None:
    """The target's tokenizer; an answer of the block-diffusion pair ends at one token, and is filled up with it."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TARGET_FOLDER / name, folder / name)
    ids = {"bos_token_id": END_OF_TEXT, "eos_token_id": IM_END, "pad_token_id": IM_END}
    (folder / "generation_config.json").write_text(json.dumps(ids, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Export; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=FOLDERS)
    parser.add_argument("--run", help="folder under build/tiny/; the model's name unless given")
    parser.add_argument("--out", type=Path, help="instead of the package's folder; leaves log and record out")
    options = parser.parse_args()
    run = BUILD / (options.run or options.what)
    folder = options.out or FOLDERS[options.what]
    folder.mkdir(parents=True, exist_ok=True)
    if options.what == "target":
        save_target(filled(Qwen3(TARGET), run / "last.pt"), folder, dtype=torch.bfloat16)
        add_ids(folder)
    elif options.what.startswith("llada"):
        config = LLADA_MINI if options.what == "llada-mini" else LLADA_FLASH
        save_llada2(filled(Llada2(config), run / "last.pt"), folder, dtype=torch.bfloat16)
        add_tokenizer(folder)
    else:
        save_drafter(filled(DFlash(DRAFTER), run / "last.pt"), TARGET, folder, dtype=torch.bfloat16)
    if options.out is None:
        RECORDS.mkdir(parents=True, exist_ok=True)
        for record in run.glob("record*.json"):  # one for each part of a run that was resumed
            shutil.copy(record, RECORDS / record.name.replace("record", options.what))
        shutil.copy(run / "log.jsonl", RECORDS / f"{options.what}.jsonl")


if __name__ == "__main__":
    main()
