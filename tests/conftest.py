"""What all tests share: the checkout on the import path, and signals as a terminal gives them."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:  # `pytest` alone, unlike `python -m pytest`, does not put it there
    sys.path.insert(0, _ROOT)

# `nohup make test` hands down an ignored SIGHUP, and what a test starts would ignore it as well.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
