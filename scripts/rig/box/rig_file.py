"""A rig file (scripts/rigs/NAME.toml): what a box is meant to be, and what its owner prefers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CardsTable(_Table):
    """[cards]: how many, which, how large (GiB), how joined."""

    count: int = Field(ge=1, le=16)
    name: str
    vram_gib: float = Field(gt=0, le=1024)
    compute_capability: tuple[int, int]
    nvlink_pairs: tuple[tuple[int, int], ...] = ()

    @model_validator(mode="after")
    def _pairs_are_of_these_cards(self) -> CardsTable:
        # One card has one bridge on these boards: it cannot be in two pairs.
        joined = [card for pair in self.nvlink_pairs for card in pair]
        if any(not 0 <= card < self.count for card in joined):
            raise ValueError(f"nvlink_pairs names cards from 0 to {self.count - 1}")
        if len(set(joined)) < len(joined):
            raise ValueError("nvlink_pairs names a card twice: a bridge joins two cards")
        return self


class LinkTable(_Table):
    """[link]: the PCIe generation and lanes that each card should have at least, per direction."""

    generation: int = Field(ge=1, le=6)
    width: Literal[1, 2, 4, 8, 16]


class P2PTable(_Table):
    """[p2p]: "verified" uses what `rig p2p` has shown by value; "off" never does."""

    policy: Literal["verified", "off"] = "verified"


class PowerTable(_Table):
    """[power]: what the owner says of the supply. Only ever read: nothing is set by these tools."""

    psu_w: int | None = Field(default=None, ge=1)
    rest_of_box_w: int = Field(default=200, ge=0)
    cap_w: int | None = Field(default=None, ge=1)
    lock_graphics_mhz: int | None = Field(default=None, ge=1)


class DefaultsTable(_Table):
    """[defaults]: what `serve` takes unless the command line says otherwise."""

    port: int = Field(default=8000, ge=1, le=65535)
    max_model_len: int | None = Field(default=None, ge=1)
    users: Literal["one", "many"] = "one"
    arguments: tuple[str, ...] = ()


class Rig(_Table):
    """A whole rig file. `numa_nodes` is how many memory nodes the cards hang on."""

    name: str
    description: str = ""
    cards: CardsTable
    link: LinkTable
    numa_nodes: int = Field(default=1, ge=1)
    p2p: P2PTable = P2PTable()
    power: PowerTable = PowerTable()
    defaults: DefaultsTable = DefaultsTable()
