"""What a rank is told to do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Spec:
    """One case, the same file for all its ranks.

    Args:
        way: "copy", "copy-both-ways", "nccl-p2p", "nccl-no-p2p", "custom" or "pcie-ipc".
        device: "cuda", or "cpu" for a rehearsal, in which gloo stands for all of NCCL.
        cards: by number in PCI order; rank r, or the process of a copy, sees them as 0, 1, ...
        sizes: bytes, multiples of 16.
        iterations: transfers that are checked per size, each with new data.
        seed: of this run.
        folder: where the ranks meet and where scratch files go.
        fault: one to inject, or "".
    """

    way: str
    device: str
    cards: tuple[int, ...]
    sizes: tuple[int, ...]
    iterations: int
    seed: int
    folder: Path
    fault: str = ""

    @classmethod
    def read(cls, path: Path) -> Spec:
        said = json.loads(path.read_text())
        said |= {name: tuple(said[name]) for name in ("cards", "sizes")}
        return cls(**said | {"folder": Path(said["folder"])})

    def device_of(self, index: int) -> torch.device:
        """The device of the index-th card of this case."""
        return torch.device("cuda", index) if self.device == "cuda" else torch.device("cpu")

    def synchronize(self) -> None:
        """Wait for all that was started on the cards of this process."""
        if self.device == "cuda":
            for index in range(torch.cuda.device_count()):
                torch.cuda.synchronize(index)
