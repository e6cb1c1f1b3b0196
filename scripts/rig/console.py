"""The one console that progress and reports are printed on."""

from __future__ import annotations

from rich.console import Console

# Reports that a script may read go to standard output as plain text; progress is for people.
console = Console(stderr=True, highlight=False, soft_wrap=True)
out = Console(highlight=False, soft_wrap=True, markup=False)
