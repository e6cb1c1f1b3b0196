# mypy: disable-error-code="import-not-found"
"""What transformers takes where configs of some types are silent.

    python config_defaults.py OUT QUESTIONS

Runs with the engine's Python. QUESTIONS is JSON: type -> keys. So is OUT: type -> key -> value.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers import AutoConfig

asked = json.loads(Path(sys.argv[2]).read_text("utf-8"))
found = {
    kind: {key: getattr(AutoConfig.for_model(kind), key) for key in keys}
    for kind, keys in asked.items()
}
Path(sys.argv[1]).write_text(json.dumps(found), "utf-8")
