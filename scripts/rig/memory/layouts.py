"""How the ranks of a box may share a model, best first."""

from __future__ import annotations

from rig.errors import RigError
from rig.memory.model import Model
from rig.memory.options import PlanOptions
from rig.memory.result import Layout
from rig.memory.shards import indivisible, require_divisible

PUBLISHED = (
    "published for four RTX 3090 with patched P2P: one request 69 (TP4) against 54 tokens/s "
    "(TP2), 64 requests 295 against 473"
)


def layouts(model: Model, cards: int, users: str, options: PlanOptions) -> list[Layout]:
    """The layouts to try, best first; one only where both sizes were asked for.

    All cards as tensor parallel ranks come first. Where the model does not divide so, fewer
    tensor parallel ranks leave cards idle (quicker for one user) or make pipeline stages (more
    room, and quicker for many). For many users on four cards or more, pairs behind each other
    come first (PUBLISHED).

    Raises:
        RigError: more cards are asked for than there are, or the model does not divide.
    """
    tensor, pipeline = options.tensor, options.pipeline
    if any(size is not None and size < 1 for size in (tensor, pipeline)):
        raise RigError("a parallel size must be 1 or more")
    asked = (tensor or 1) * (pipeline or 1)
    if asked > cards:
        raise RigError(
            f"{tensor or 1} x {pipeline or 1} ranks need {asked} cards, the box has {cards}",
            next_step="ask for fewer with --tp and --pp, or name another rig",
        )
    architecture = model.architecture
    if tensor is not None:
        require_divisible(architecture, tensor, model.quantization)
    if (pipeline or 1) > len(architecture.layers):
        raise RigError(
            f"{architecture.name} has {len(architecture.layers)} layers for {pipeline} stages"
        )
    if tensor is not None or pipeline is not None:
        if tensor is None:
            stages = pipeline or 1
            tensor = next(t for t in range(cards // stages, 0, -1) if _divides(model, t))
        stages = pipeline or 1
        return [Layout(tensor=tensor, pipeline=stages, idle=cards - tensor * stages)]
    return _all(model, cards, users)


def _divides(model: Model, tensor: int) -> bool:
    return not indivisible(model.architecture, tensor, model.quantization)


def _all(model: Model, cards: int, users: str) -> list[Layout]:
    found = [
        Layout(tensor=t, pipeline=p, idle=cards - t * p)
        for t in range(cards, 0, -1)
        if _divides(model, t)
        for p in range(min(cards // t, len(model.architecture.layers)), 0, -1)
    ]

    def rank(layout: Layout) -> tuple[int, ...]:
        whole = layout.tensor == cards
        if users == "many" and cards >= 4:
            return (layout.idle, abs(layout.tensor - 2), layout.pipeline)
        if users == "many":
            return (not whole, layout.idle, layout.pipeline)
        return (not whole, -layout.tensor, layout.idle)

    return sorted(found, key=rank)
