"""Files beside the tests that cannot be imported without torch; the tests say so themselves."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["[!t]*.py"]
