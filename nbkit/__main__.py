"""`python -m nbkit`: the `nbkit` command of this very Python."""

import sys

from nbkit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
