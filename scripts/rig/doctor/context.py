"""What the checks judge a box against, besides its rig file. Pure data; `gather` fills it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from rig.p2p.verdict import Verdict


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Wheel(_Record):
    """The torch that will run. `cuda` is None for a build without CUDA; `source`: who says so."""

    torch: str
    cuda: tuple[int, int] | None
    source: str


class Engine(_Record):
    """What is installed beside the engine's interpreter; None: not installed."""

    python: str
    vllm: str | None = None
    ray: str | None = None


class Port(_Record):
    """A TCP port that will be wanted. `taken` is None when that could not be tried."""

    number: int
    taken: bool | None = None
    holders: tuple[str, ...] = ()


class Context(_Record):
    """What is wanted of the box, and what else was found out.

    Args:
        cards_wanted: how many cards a start needs; 0 for a rehearsal; None: as the rig file says.
        cards: the indices (PCI order) of the cards that will serve; None: all.
        pinned_bytes: host memory that will be page-locked, from a plan; None: nothing is planned.
        gpu_memory_utilization: the part of each card that the engine will ask for.
        wheel: None: not known which torch will run.
        engine: None: no environment with vLLM was found.
        ray: the ranks run under Ray (vLLM's own processes otherwise).
        ports: None: nobody tried.
        user: whose doctor this is; None: not known, as with a pasted text.
        wsl_pin_memory: VLLM_WSL2_ENABLE_PIN_MEMORY=1 is set.
        verdict: what `rig p2p` showed for exactly this box; None: it was not run, or not on this.
        no_verdict: why there is none, in words.
        from_text: the box is what a pasted text shows: what it does not show was not looked at.
    """

    cards_wanted: int | None = None
    cards: tuple[int, ...] | None = None
    pinned_bytes: int | None = None
    gpu_memory_utilization: float = 0.92  # vLLM's default, vllm/config/cache.py in 0.31-0.33
    wheel: Wheel | None = None
    engine: Engine | None = None
    ray: bool = True
    ports: tuple[Port, ...] | None = None
    user: str | None = None
    wsl_pin_memory: bool = False
    verdict: Verdict | None = None
    no_verdict: str = "no verdict for this box"
    from_text: bool = False
