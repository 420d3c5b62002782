"""``python -m blocklayout`` is the ``blocklayout`` command."""

from __future__ import annotations

import sys

from blocklayout.cli import main

if __name__ == "__main__":
    sys.exit(main())
