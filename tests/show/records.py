"""The record that a page shows."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def record_of(path: Path) -> Any:
    """What a page was made of, read from its file."""
    match = re.search(r'<script type="application/json" id="record">(.*?)</script>', path.read_text(encoding="utf-8"))
    assert match is not None
    return json.loads(match[1])
