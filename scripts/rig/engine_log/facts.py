"""What an engine has said of itself. Pure data, read from its log or its own addresses.

`None` and empty tuples mean *not said*: the engine may do it all the same. Sizes are bytes.
"""

from __future__ import annotations

from typing import Literal

from rig.box.facts import Fact


class Tower(Fact):
    """A tower that streams, as its rank told of it. `bus_bytes_per_s` was measured by the engine.

    Bytes are per rank: `streamed` is copied for each encode, `ring` and `resident` and `stem` stay
    on the device, `fetched` comes on demand, `host` rests in host memory.
    """

    name: str
    units: int
    streamed_bytes: int
    resident_bytes: int
    slots: int
    ring_bytes: int
    stem_bytes: int
    fetched_bytes: int = 0
    host_bytes: int | None = None
    host_buffers: int | None = None
    pinned_buffers: int | None = None
    shared_buffers: int | None = None
    saved_bytes: int | None = None
    bus_bytes_per_s: float | None = None
    encode_copies_ms: float | None = None


class Offload(Fact):
    """What is held in host memory instead of a card's.

    `classes` are the offloaders that were set. `held_bytes` is what one rank holds by UVA or its
    fallback (the last figure said), `prefetch_saved_bytes` what the prefetcher saves. `refusals`
    are the engine's own words on what it did not do.
    """

    classes: tuple[str, ...] = ()
    held_bytes: int | None = None
    prefetch_saved_bytes: int | None = None
    segments: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    towers: tuple[Tower, ...] = ()
    tower_lines: tuple[str, ...] = ()


RefusalCode = Literal[
    "world-size", "pcie-only", "no-p2p", "no-library", "many-nodes", "no-multicast", "other"
]


class Refusal(Fact):
    """Why an all-reduce is not used. `kind` is which: "custom", "pcie-ipc", "flashinfer", ..."""

    kind: str
    code: RefusalCode
    line: str


class GroupBackends(Fact):
    """The all-reduces that a group of ranks may use, in the order in which it tries them."""

    group: str
    backends: tuple[str, ...]


class AllReduce(Fact):
    """`custom`: "in use" only when the engine's own line lists it; "off" by its configuration.

    `opt_in` is the line that says that it is on for more than two cards without NVLink.
    """

    custom: Literal["in use", "refused", "off"] | None = None
    groups: tuple[GroupBackends, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    opt_in: str | None = None
    p2p_cache: str | None = None


class Transport(Fact):
    """How two ranks of an NCCL communicator reach each other, by NCCL's own INFO lines."""

    first: int
    second: int
    ways: tuple[str, ...]  # "P2P/CUMEM", "SHM/direct/direct", "NET/Socket/0"
    channels: int


class RankCard(Fact):
    """The card on which NCCL has put a rank. `bus_id` as in `rig.box.facts.Card`."""

    rank: int
    device: int | None = None
    bus_id: str | None = None


class Nccl(Fact):
    """`info`: NCCL_DEBUG=INFO was on, so that silence on a transport means that there is none."""

    version: str | None = None
    info: bool = False
    transports: tuple[Transport, ...] = ()
    cards: tuple[RankCard, ...] = ()
    p2p_disabled: tuple[tuple[int, int], ...] = ()
    connected: bool = False


class Memory(Fact):
    """GPU memory as the engine divided it; per rank the smallest figure that a rank said."""

    kv_device: str | None = None
    kv_tokens: int | None = None
    kv_bytes: int | None = None
    kv_blocks: int | None = None
    kv_block_tokens: int | None = None
    max_model_len: int | None = None
    max_concurrency: float | None = None
    weights_bytes: int | None = None
    graphs_bytes: int | None = None
    utilisation: float | None = None


class Rank(Fact):
    """A rank that told of itself. Ray shows a line that many ranks say only once."""

    rank: int
    local_rank: int | None = None
    pp: int | None = None
    tp: int | None = None


class NoOp(Fact):
    """Something that was asked for without the line that proves it."""

    name: str
    why: str


class Failure(Fact):
    """Why it ended or hangs: the cause in one sentence, what to do, and the line that shows it.

    `certain` is False for a sign that is also seen on the way to a healthy server.
    """

    cause: str
    next_step: str
    line: str
    certain: bool = True


class EngineFacts(Fact):
    """All of it. `source` is a path or a URL; `asked` are the arguments that the engine repeats."""

    source: str = ""
    version: str | None = None
    series: str | None = None
    patches: tuple[str, ...] = ()
    model: str | None = None
    asked: dict[str, str] | None = None
    device: str | None = None  # "cuda", "cpu"
    executor: str | None = None  # "ray", "mp", "uni"
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    world_size: int | None = None
    backend: str | None = None  # "nccl", "gloo"
    ranks: tuple[Rank, ...] = ()
    attention: str | None = None
    encoder_attention: str | None = None
    runner: str | None = None  # "V1", "V2"
    mixed_cards: tuple[str, ...] = ()
    numa_lines: tuple[str, ...] = ()
    numa_refusals: tuple[str, ...] = ()
    ready: bool = False
    offload: Offload = Offload()
    all_reduce: AllReduce = AllReduce()
    nccl: Nccl = Nccl()
    memory: Memory = Memory()
    no_ops: tuple[NoOp, ...] = ()
    failure: Failure | None = None
