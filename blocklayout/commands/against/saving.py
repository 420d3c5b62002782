"""A process that saves the session of a model, for another one to load.

python -m blocklayout.commands.against.saving MODEL FEEDS SESSION THREADS DTYPE
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import blocklayout
from blocklayout.commands.against.worker import load_feeds

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Plan for what will be fed, and save."""
    model, feeds_path, path, threads, dtype = argv
    feeds = load_feeds(feeds_path)
    session = blocklayout.load(model, threads=int(threads), dtype=dtype)
    session.prepare({name: array.shape for name, array in feeds.items()}, feeds)
    session.save(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
