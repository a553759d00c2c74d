"""Draw the learning curves of the embedded family from the logs that are shipped with it.

Run from the root of the repository, after export.py: `python tools/train_tiny/curves.py`. It needs spectrain[plots].
"""

from family import BUILD, RECORDS

from spectrain.plot import plot


def main() -> None:
    """Draw; see the module's docstring."""
    logs = {name: RECORDS / f"{name}.jsonl" for name in ("target", "drafter")}
    path = BUILD / "curves.png"
    plot({name: log for name, log in logs.items() if log.is_file()}, path)
    print(path)


if __name__ == "__main__":
    main()
