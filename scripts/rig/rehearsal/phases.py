"""What a long run shows: one line for each phase, with its seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.markup import escape

from rig.console import console


@dataclass
class Phases:
    """The phases of a run and how long each took, in seconds."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, title: str) -> Iterator[Callable[[str], None]]:
        """Time a block and show it; a block that fails is shown as failed.

        Yields a function that shows, on a terminal, what the block is doing at the moment.
        """
        start = time.monotonic()
        word = "failed after"
        if not console.is_terminal:
            console.print(f"{title} ...", markup=False)
        try:
            if console.is_terminal:
                with console.status(escape(title)) as status:
                    yield lambda doing: status.update(escape(f"{title}: {doing}"))
            else:
                yield lambda doing: None
            word = "done in"
        finally:
            self.seconds[title] = time.monotonic() - start
            console.print(f"{title}: {word} {self.seconds[title]:.1f} s", markup=False)

    @property
    def total(self) -> float:
        return sum(self.seconds.values())
