"""The `specrun` command: arguments in, an exit code out, and one line on standard error for whatever a user got wrong.

Exit codes: 0, 1 where `check` finds something wrong, 2 for wrong input, 130 after Ctrl-C, 141 when the reader of the output went away.
"""

import os
import sys
from collections.abc import Sequence

from specrun_cli import arguments
from specrun_cli.completion import complete

WRONG_INPUT = 2
INTERRUPTED = 130
READER_GONE = 141
MOST_LETTERS = 2000


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    try:
        parser = arguments.parser()
        complete(parser)
        given = parser.parse_args(argv)
        code = given.run(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stdout.flush()
        return INTERRUPTED
    except BrokenPipeError:
        # the interpreter flushes once more on its way out, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except OSError as error:
        return _refuse(f"{error.filename or 'files'}: {error.strerror or error}; check the path")
    except ValueError as error:
        return _refuse(str(error))
    return code or 0


def _refuse(message: str) -> int:
    line = " ".join(message.split())
    # a damaged file can put pages of itself into a message
    print(f"specrun: {line if len(line) <= MOST_LETTERS else line[:MOST_LETTERS] + ' ...'}", file=sys.stderr)
    return WRONG_INPUT
