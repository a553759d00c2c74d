"""`specrun export`: a drafter and its head in, a folder that SGLang, vLLM or speculators load out."""

from collections.abc import Mapping
from typing import Any

from specrun import Sampling, method
from specrun.assemble import DTYPES
from specrun.catalogue import default_draft
from specrun_cli.opening import DRAFTING, MODEL, open_engine
from specrun_cli.whole import empty_place, whole_folder
from spectrain.export import LAYOUTS, export


def run(given: Mapping[str, Any]) -> None:
    """Load the pair strictly, write it in another layout."""
    given = {"method": DRAFTING, **given}
    chosen = method(given["method"])
    if chosen.corrector is None:
        raise ValueError(f"method: got {chosen.name}, which drafts nothing; expected one with a drafter")
    folder, layout = empty_place(given["output"]), given.get("layout", LAYOUTS[0])
    dtype = given.get("dtype", "bfloat16")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: got {dtype!r}, expected one of {', '.join(DTYPES)}")
    # read in the widest type that is stored anywhere, so that writing is what rounds
    engine = open_engine({**given, "device": "cpu", "dtype": "float32"}, Sampling())
    parts = engine.parts
    assert parts.drafter is not None, "checked by the method"
    model = given.get("model", MODEL)
    with whole_folder(folder) as written:
        export(
            parts.drafter,
            chosen.corrector,
            parts.corrector,  # type: ignore[arg-type]  # a module of the registry
            parts.target.config,
            written,
            dtype=DTYPES[dtype],
            layout=layout,
            verifier=given.get("verifier", model),
            length_head=parts.length_head,
        )
        # a folder that this very program cannot read is no export
        open_engine(
            {**given, "draft": str(written), "device": "cpu", "dtype": "float32"}, Sampling(), beside=engine
        )
    source = given.get("draft") or default_draft(model, chosen)
    print(f"written: {folder} ({source} for {model}, head {chosen.corrector}, layout {layout}, {dtype})")
