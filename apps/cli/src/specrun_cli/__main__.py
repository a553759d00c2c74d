"""`python -m specrun_cli`, for where the console script is not on the path."""

import sys

from specrun_cli.main import main

sys.exit(main())
