"""`python -m nbkit`: the `nbkit` command of this Python environment."""

import sys

from nbkit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
