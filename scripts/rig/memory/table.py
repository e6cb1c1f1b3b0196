"""A plan for people: what it is of, a bar for each card, what follows. And for programs: JSON."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rig.memory.advice import layout_name
from rig.memory.model import Model
from rig.memory.result import Advice, MemoryPlan, RankPlan

GIB = 2**30
WIDTH = 48

PARTS = (
    ("weights", "weights", "blue", "#"),
    ("tower", "tower", "magenta", "T"),
    ("ring", "ring", "bright_magenta", "r"),
    ("activations", "activations*", "yellow", "a"),
    ("graphs", "graphs*", "bright_yellow", "g"),
    ("context", "context*", "white", "c"),
    ("kv_cache", "KV cache", "green", "K"),
    ("headroom", "headroom", "bright_black", "."),
)
"""Field of `RankPlan`, its name, colour and letter. A star marks what is modelled."""


def bar(rank: RankPlan, width: int = WIDTH) -> Text:
    """One card's memory as letters, each for an equal part of what is free."""
    text = Text()
    done, end = 0, 0
    for field, _, colour, letter in PARTS:
        end += max(int(getattr(rank, field)), 0)
        upto = min(round(end / rank.free * width), width) if rank.free > 0 else 0
        text.append(letter * (upto - done), style=colour)
        done = max(done, upto)
    return text


def render(plan: MemoryPlan, model: Model) -> RenderableType:
    """All of a plan."""
    facts = plan.model
    size = sum(t.nbytes for t in model.tensors) / GIB
    how = "read from its headers" if model.measured else "computed from the config, not read"
    head = [
        f"{facts.source}: {facts.architecture}, {facts.dtype}"
        + (f", {facts.quantization}" if facts.quantization else "")
        + f", {facts.layers} layers, {facts.attention_heads} heads, {facts.kv_heads} KV heads",
        f"weights {size:.2f} GiB, {how}",
        f"{layout_name(plan.layout)}, context {plan.max_model_len:,} tokens"
        f" of {facts.max_model_len:,}: " + ("fits" if plan.fits else "DOES NOT FIT"),
        "",
    ]
    return Group(*head, _cards(plan), *_below(plan))


def _cards(plan: MemoryPlan) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("GiB", no_wrap=True)
    for rank in plan.ranks:
        table.add_column(f"card {rank.card}", justify="right", no_wrap=True)
    for field, name, colour, letter in PARTS:
        values = [int(getattr(rank, field)) for rank in plan.ranks]
        if field in ("tower", "ring", "graphs") and not any(values):
            continue
        if field == "kv_cache":  # what it lacks is headroom below zero
            values = [max(value, 0) for value in values]
        cells = [f"{value / GIB:.2f}" for value in values]
        table.add_row(Text(f"{letter} {name}", style=colour), *cells)
    table.add_row("  free before", *(f"{rank.free / GIB:.2f}" for rank in plan.ranks))
    return table


def _below(plan: MemoryPlan) -> list[RenderableType]:
    lines: list[RenderableType] = [""]
    lines += [Text(f"card {rank.card} ").append_text(bar(rank)) for rank in plan.ranks]
    lines += [
        "* modelled, not measured: vLLM measures its own at start-up and gives the cache the rest",
        "",
        f"KV cache: {plan.kv_tokens:,} tokens at {plan.kv_bytes_per_token / 1024:.1f} KiB each "
        "per card",
    ]
    if plan.tower_streams:
        won = plan.kv_tokens - (plan.kv_tokens_without_streaming or 0)
        lines.append(
            f"streaming the tower wins {won:,} tokens, for {plan.host_pinned / 2**20:,.0f} MiB of "
            f"page-locked host memory and at most {plan.encode_ms_added or 0:.0f} ms for an encode "
            "(modelled: no copy is hidden behind computation)"
        )
    if plan.flags:
        lines += ["", "vllm serve needs:", *(_line(a) for a in plan.flags)]
    if plan.advice:
        lines += ["", "you may choose:", *(_line(a) for a in plan.advice)]
    return lines


def _line(advice: Advice) -> Text:
    text = Text("  ")
    if advice.flag:
        value = f" '{advice.value}'" if advice.value and '"' in advice.value else ""
        value = value or (f" {advice.value}" if advice.value else "")
        text.append(f"{advice.flag}{value}", style="bold").append(": ")
    return text.append(advice.why)


def print_plan(plan: MemoryPlan, model: Model, console: Console) -> None:
    """Print a plan for a person."""
    console.print(render(plan, model))
