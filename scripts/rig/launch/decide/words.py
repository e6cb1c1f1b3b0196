"""What a decision is made from and made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.memory.result import MemoryPlan
from rig.p2p.verdict import Verdict

LOOPBACK = "127.0.0.1"

Kind = Literal[
    "environment", "argument", "ray", "removed", "conflict", "layout", "assumed", "advice", "left"
]


@dataclass(frozen=True)
class Reason:
    """Why one part of a decision is there, or is not.

    Args:
        kind: "environment", "argument" (vLLM's), "ray" (an argument of Ray's), "removed" (an
            inherited variable), "layout" (ranks and cards), "conflict" (the user's word against
            ours), "assumed" (a fact that was missing), "advice" (for a person; nothing is set),
            or "left" (what others set and we do not).
        subject: the variable or option, or what it is about.
        why: one sentence.
    """

    kind: Kind
    subject: str
    why: str


@dataclass(frozen=True)
class User:
    """What the user said, and where it is to run.

    Args:
        arguments: for vLLM, as typed after the model.
        inherited: the environment that the launch starts from.
        ranks: how many devices to use where neither a rig nor the arguments say.
        executor: "ray" or "mp".
        rehearse: the CPU engine on logical devices.
        host: the address to listen on; port None takes a free one.
        object_store_bytes: the size of Ray's object store.
        programs: the folder of the engine's programs.
        custom_all_reduce_pcie: custom all-reduce is wanted on more than two PCIe cards.
        folder: where a file that the engine must read can be written (the logs' folder).
    """

    arguments: tuple[str, ...] = ()
    inherited: Mapping[str, str] = field(default_factory=dict)
    ranks: int = 4
    executor: Literal["ray", "mp"] = "ray"
    rehearse: bool = False
    host: str = LOOPBACK
    port: int | None = 8000
    object_store_bytes: int = 256 * 1024 * 1024
    programs: str = "bin"
    custom_all_reduce_pcie: bool = False
    folder: str = "."


@dataclass(frozen=True)
class Known:
    """The facts; None where nobody knows.

    Args:
        rig, box, verdict, memory: see there. A verdict must be of this box as it is now.
        release: the engine's, as "0.33.0".
        numactl: whether that program is installed, which `--numa-bind` needs.
    """

    rig: Rig | None = None
    box: Box | None = None
    verdict: Verdict | None = None
    memory: MemoryPlan | None = None
    release: str | None = None
    numactl: bool | None = None


@dataclass(frozen=True)
class Layout:
    """Who computes what where.

    Args:
        tensor: cards that share each layer.
        pipeline: groups of them, one behind the other.
        data: replicas of all that.
        cards: the card of each rank, in order of rank, by PCI order; None when not known.
    """

    tensor: int
    pipeline: int = 1
    data: int = 1
    cards: tuple[int, ...] | None = None

    @property
    def devices(self) -> int:
        return self.tensor * self.pipeline * self.data

    @property
    def groups(self) -> tuple[tuple[int, ...], ...] | None:
        """The cards of each tensor parallel group: ranks of a group are neighbours."""
        if self.cards is None:
            return None
        starts = range(0, len(self.cards), self.tensor)
        return tuple(self.cards[i : i + self.tensor] for i in starts)


@dataclass(frozen=True)
class Decision:
    """What is run, with a reason for each part.

    Args:
        layout: ranks and cards.
        environment: the variables of the engine, markers not filled in.
        security: those among them that no user may override, also Ray's.
        removed: inherited variables that neither Ray nor the engine may see.
        vllm_arguments: ours, then the rig file's; the user's own come after them.
        ray_arguments: of `ray`; empty without Ray.
        ray: whether Ray runs the ranks.
        files: path -> text of what the engine reads; to be written with mode 0600.
        host: the address to listen on, and port (None: a free one).
        reasons: in the order of printing.
    """

    layout: Layout
    environment: Mapping[str, str]
    security: Mapping[str, str]
    removed: tuple[str, ...]
    vllm_arguments: tuple[str, ...]
    ray_arguments: tuple[str, ...]
    ray: bool
    files: Mapping[str, str]
    host: str
    port: int | None
    reasons: tuple[Reason, ...]


@dataclass
class Notes:
    """Collects reasons while a decision is made."""

    reasons: list[Reason] = field(default_factory=list)

    def say(self, kind: Kind, subject: str, why: str) -> None:
        reason = Reason(kind, subject, why)
        if reason not in self.reasons:
            self.reasons.append(reason)
