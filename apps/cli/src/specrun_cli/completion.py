"""What the shell's Tab offers: commands, options, and the names that these take. Does nothing in any other run."""

import argparse
import os
from typing import Any


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and stop, if it was the shell that asked."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser, default_completer=_names)  # type: ignore[arg-type]  # a function will do


def _names(*, prefix: str, action: argparse.Action, **_: Any) -> list[str]:
    """Names of methods, models and drafters; files everywhere else."""
    from argcomplete.completers import FilesCompleter

    from specrun.catalogue import catalogue
    from specrun.methods import methods

    files = list(FilesCompleter()(prefix))
    if action.dest == "method":
        return list(methods())
    if action.dest == "methods":
        before, comma, _last = prefix.rpartition(",")
        return [f"{before}{comma}{name}" for name in methods()]
    if action.dest == "model":
        return [*(model.name for model in catalogue()), *files]
    if action.dest == "draft":
        return [*(offer.source for model in catalogue() for offer in model.drafters.values()), *files]
    return files
