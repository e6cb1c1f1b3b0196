"""The plan: which layout, what lies on each card, does it fit, what to give up. Pure."""

from __future__ import annotations

from dataclasses import replace

from rig.box.facts import Box
from rig.box.rig_file import Rig
from rig.errors import RigError
from rig.memory.advice import advice_for, flags_for
from rig.memory.cards import CardRoom, link_gb_per_s, rooms
from rig.memory.counting import Counted, count
from rig.memory.layouts import layouts
from rig.memory.model import Model
from rig.memory.options import PlanOptions
from rig.memory.result import Layout, MemoryPlan

SHORTEST = 2048
"""Tokens. A context that is cut to what fits is not cut below this."""
COMFORTABLE = 16384
"""Tokens. For this much context another layout is preferred to a shorter one."""
_STEP = 1024


def plan_memory(
    model: Model, rig: Rig, box: Box | None = None, options: PlanOptions | None = None
) -> MemoryPlan:
    """Plan a model on the cards of a box, or of a rig file where there is no box to look at.

    Nothing is read, started or asked. The context is the model's, or what was asked for, or what
    fits if that is less and nothing was asked.

    Raises:
        RigError: sizes were asked for that the model or the box cannot have.
    """
    options = options or PlanOptions()
    cards = rooms(rig, box)[: rig.cards.count]
    if not cards:
        raise RigError("there is no card to plan for", next_step="name a rig with --rig")
    planner = _Planner(model, rig, cards, options)
    tried = [planner.best(layout) for layout in planner.layouts()]
    enough = min(COMFORTABLE, planner.wanted_len())
    fitting = [found for found in tried if found.fits]
    chosen = next((found for found in fitting if found.max_len >= enough), None)
    if chosen is None and fitting:
        chosen = max(fitting, key=lambda found: found.max_len)
    if chosen is None:
        chosen = next((found for found in tried if not found.layout.idle), tried[0])
    others = [found for found in tried if found is not chosen]
    return planner.result(chosen, others, box)


class _Planner:
    def __init__(self, model: Model, rig: Rig, cards: list[CardRoom], options: PlanOptions) -> None:
        self.model = model
        self.rig = rig
        self.cards = cards
        self.options = options

    def layouts(self) -> list[Layout]:
        users = self.rig.defaults.users
        return layouts(self.model, len(self.cards), users, self.options)

    def wanted_len(self) -> int:
        """Tokens of context that are asked for, or that the model has."""
        own = self.model.architecture.max_len
        asked = self.options.max_model_len
        if asked is not None:
            if asked < 1:
                raise RigError("--max-model-len must be 1 or more")
            return asked
        return min(own, self.rig.defaults.max_model_len or own)

    def count(
        self, layout: Layout, *, stream: bool, options: PlanOptions | None = None, max_len: int
    ) -> Counted:
        return count(
            self.model,
            layout,
            self.cards,
            options or self.options,
            capability=self.rig.cards.compute_capability,
            stream=stream,
            max_len=max_len,
        )

    def best(self, layout: Layout) -> Counted:
        """The layout as it would be served: streaming if asked or needed, a shorter context too."""
        wish, length = self.options.offload_towers, self.wanted_len()
        found = self.count(layout, stream=bool(wish), max_len=length)
        if found.fits:
            return found
        if wish is None and self._shorter(found) is None:
            streamed = self.count(layout, stream=True, max_len=length)
            if (
                streamed.fits
                or self._shorter(streamed) is not None
                or streamed.missing < (found.missing)
            ):
                found = streamed
        if (shorter := self._shorter(found)) is not None and not found.fits:
            return self.count(layout, stream=found.streams, max_len=shorter)
        return found

    def _shorter(self, found: Counted) -> int | None:
        """A context that would fit, in whole steps; None if the person chose one, or none does."""
        if self.options.max_model_len is not None:
            return None
        tokens = found.longest // _STEP * _STEP
        return tokens if tokens >= min(SHORTEST, self.model.architecture.max_len) else None

    def result(self, chosen: Counted, others: list[Counted], box: Box | None) -> MemoryPlan:
        model = self.model
        without: Counted | None = None
        added: float | None = None
        if chosen.streams:
            without = self.count(chosen.layout, stream=False, max_len=chosen.max_len)
            tower = chosen.tower
            copied = tower.streamed - tower.in_ring + tower.on_demand
            added = copied / (link_gb_per_s(self.rig, box) * 1e6)
        eighth = None
        if self.options.kv_cache_dtype == "auto":
            smaller = replace(self.options, kv_cache_dtype="fp8")
            eighth = self.count(
                chosen.layout, stream=chosen.streams, options=smaller, max_len=chosen.max_len
            )
        streamed = None
        if not chosen.streams and model.facts.towers and self.options.offload_towers is None:
            streamed = self.count(chosen.layout, stream=True, max_len=chosen.max_len)
        return MemoryPlan(
            model=model.facts,
            layout=chosen.layout,
            ranks=chosen.ranks,
            kv_bytes_per_token=chosen.kv_bytes_per_token,
            kv_tokens=chosen.kv_tokens,
            max_model_len=chosen.max_len,
            host_pinned=chosen.host_pinned,
            fits=chosen.fits,
            tower_streams=chosen.streams,
            kv_tokens_without_streaming=without.kv_tokens if without else None,
            encode_ms_added=added,
            flags=flags_for(chosen, model, self.options),
            advice=advice_for(chosen, others, model, self.options, eighth, streamed),
        )
