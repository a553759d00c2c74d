"""Count generations of every method on the embedded family that differ from plain decoding under the same seed.

`python tools/bench/lossless.py --dtype float64`: prompts of all domains, greedy and sampled with filters. In float64 no
difference is expected at all. In float32 a pass over one row and a pass over many round differently, so where ids differ
the margin of the choice at the first difference is measured: by how much plain decoding preferred its own, noise included. A
margin below 1e-5 is a tie; anything else is a bug. The exit code says which.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

import spectiny
from specrun import Sampling, load_engine, methods
from specrun.compare import parting
from specrun.embedded import embedded_models
from spectrain.record import commit

TIE = 1e-5
LAWS = {
    "greedy": {},
    "T=0.7 top-p 0.95": {"temperature": 0.7, "top_p": 0.95},
    "T=1 top-k 50": {"temperature": 1.0, "top_k": 50},
}


@torch.no_grad()
def main() -> int:
    """Run all methods for which the family has a drafter."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--prompts", type=int, default=15, help="of each domain")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--methods", nargs="+", default=None)
    parser.add_argument("--json", type=Path, help="write the run here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    drafters = embedded_models()["tiny"].drafters
    names = options.methods or [name for name, item in methods().items() if item.corrector in drafters]
    plain = load_engine("tiny", "ar", dtype=options.dtype)
    documents = [
        item for domain in spectiny.DOMAINS[:4] for item in spectiny.prompts(domain)[: options.prompts]
    ]
    prompts = [plain.chat_ids(document.prompt) for document in documents]
    started, rows, bugs = time.perf_counter(), [], 0
    for law, settings in LAWS.items():
        sampling = Sampling(max_new_tokens=options.tokens, seed=17, **settings)
        expected = [answer.token_ids for answer in plain.generate_batch(prompts, sampling)]
        for name in names:
            answers = load_engine("tiny", name, dtype=options.dtype).generate_batch(prompts, sampling)
            gaps = []
            for request, (answer, ids) in enumerate(zip(answers, expected, strict=True)):
                found = parting(plain, prompts[request], ids, answer.token_ids, sampling, number=request)
                if found is not None:
                    gaps.append(found.margin)
            wrong = [gap for gap in gaps if gap >= TIE or options.dtype == "float64"]
            bugs += len(wrong)
            rows.append(
                {"method": name, "law": law, "generations": len(prompts), "ties": len(gaps) - len(wrong)}
            )
            rows[-1]["differences"] = len(wrong)
            print(
                f"{name:14} {law:18} {len(prompts)} generations, {len(gaps) - len(wrong)} ties, {len(wrong)} differences"
            )
    total = sum(row["generations"] for row in rows)
    print(
        f"{total} generations in {options.dtype}: {sum(row['ties'] for row in rows)} ties, {bugs} differences"
    )
    if options.json is not None:
        run = {
            "commit": commit(),
            "command": sys.argv[1:],
            "dtype": options.dtype,
            "torch": torch.__version__,
        }
        run |= {"seconds": round(time.perf_counter() - started), "generations": total, "rows": rows}
        options.json.write_text(json.dumps(run, indent=1) + "\n")
    return 1 if bugs else 0


if __name__ == "__main__":
    sys.exit(main())
