"""What all tests share: the checkout on the import path, and no inherited git or index settings."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:  # `pytest` alone, unlike `python -m pytest`, does not put it there
    sys.path.insert(0, _ROOT)
