"""`specrun convert`: a public checkpoint in another format in, a folder of safetensors and JSON out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specrun import load_engine
from specrun.assemble import DTYPES
from specrun_cli.whole import empty_place, whole_folder


def run(given: Mapping[str, Any]) -> None:
    """Look at what the source is, read it, and write the folder."""
    source, folder = Path(given["source"]).expanduser(), empty_place(given["output"])
    if not source.exists():
        raise ValueError(
            f"source: got {given['source']!r}, expected a .gguf file, or DeLS-Spec's local_head.pt"
        )
    dtype = given.get("dtype", "bfloat16")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: got {dtype!r}, expected one of {', '.join(DTYPES)}")
    if source.suffix == ".gguf":
        if "drafter" in given:
            raise ValueError("drafter: has no effect on a GGUF file, which holds a whole model; leave it out")
        from specrun_cli.gguf_model import convert_gguf

        with whole_folder(folder) as written:
            what = convert_gguf(source, written, DTYPES[dtype])
            # a folder that this very program cannot read is no conversion
            load_engine(written, "ar", dtype=dtype)
    elif source.suffix == ".pt":
        if "drafter" not in given:
            raise ValueError(
                "drafter: got none, expected the folder of the DFlash drafter that the head goes with"
            )
        if "dtype" in given:
            raise ValueError("dtype: has no effect on a head, which is kept as it is stored; leave it out")
        from specrun_cli.dels_pickle import convert_dels

        with whole_folder(folder) as written:
            what = convert_dels(source, Path(given["drafter"]).expanduser(), written)
    else:
        raise ValueError(f"source: got {source.name!r}, expected a .gguf file, or DeLS-Spec's local_head.pt")
    print(f"written: {folder} ({what})")
