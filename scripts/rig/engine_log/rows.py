"""What an engine has said, as rows for a person: (what, how it is)."""

from __future__ import annotations

from collections.abc import Iterator

from rig.engine_log.facts import AllReduce, EngineFacts, Memory, Nccl, Offload, Tower

NOT_SAID = "not said"
_REASONS = {
    "world-size": "not for this number of ranks",
    "pcie-only": "not for more than two cards without NVLink",
    "no-p2p": "the cards have no peer access, or its test failed",
    "no-library": "the library for it is missing",
    "many-nodes": "not over several boxes",
    "no-multicast": "the cards have no multicast",
    "other": "see the log",
}


def rows(facts: EngineFacts) -> list[tuple[str, str]]:
    """The proof of a start, in a fixed order. What the engine did not say is "not said"."""
    found = [
        ("engine", _engine(facts)),
        ("ranks", _ranks(facts)),
        ("cards", _cards(facts)),
        ("all-reduce", _all_reduce(facts.all_reduce)),
        (
            "NCCL",
            _nccl(facts.nccl) if facts.backend != "gloo" else "not used: the ranks meet by gloo",
        ),
        ("weights", _size(facts.memory.weights_bytes, "per rank")),
        ("offload", _offload(facts.offload)),
        *((f"tower {tower.name}", describe_tower(tower)) for tower in facts.offload.towers),
        ("KV cache", _kv(facts.memory)),
        ("attention", _attention(facts)),
    ]
    found += [("warning", f"{no_op.name} does nothing: {no_op.why}") for no_op in facts.no_ops]
    if facts.mixed_cards:
        found.append(("warning", "the cards differ: " + ", ".join(facts.mixed_cards)))
    if failure := facts.failure:
        label = "failure" if failure.certain else "maybe a failure"
        found += [(label, failure.cause), ("next step", failure.next_step)]
    return found


def gib(number: int) -> str:
    """Bytes for a person, in MiB below one GiB."""
    return f"{number / 2**30:.2f} GiB" if number >= 2**30 else f"{number / 2**20:.1f} MiB"


def _size(number: int | None, suffix: str) -> str:
    return NOT_SAID if number is None else f"{gib(number)} {suffix}"


def _engine(facts: EngineFacts) -> str:
    if facts.version is None:
        return NOT_SAID
    patches = f", {len(facts.patches)} patches" if facts.patches else ""
    series = f", series {facts.series}{patches}" if facts.series else ""
    return f"vLLM {facts.version}{series}" + ("" if facts.ready else ", not ready yet")


def _ranks(facts: EngineFacts) -> str:
    if facts.world_size is None:
        return NOT_SAID
    parts = [str(facts.world_size)]
    if facts.tensor_parallel and facts.pipeline_parallel:
        parts.append(f"TP {facts.tensor_parallel} x PP {facts.pipeline_parallel}")
    if facts.executor:
        parts.append(f"by {facts.executor}")
    if facts.backend:
        parts.append(f"backend {facts.backend}")
    return ", ".join(parts)


def _cards(facts: EngineFacts) -> str:
    if facts.device == "cpu":
        return "none, the engine runs on the CPU"
    cards = (
        f"rank {card.rank} on {'?' if card.device is None else card.device}"
        + (f" ({card.bus_id})" if card.bus_id else "")
        for card in facts.nccl.cards
    )
    return ", ".join(cards) or f"{NOT_SAID} (NCCL_DEBUG=INFO says it)"


def _all_reduce(found: AllReduce) -> str:
    parts = [
        f"group {group.group}: {', '.join(group.backends) or 'none'}" for group in found.groups
    ]
    if found.custom:
        parts.append(f"custom: {found.custom}" + (" by opt-in" if found.opt_in else ""))
    parts += [f"{refusal.kind} refused: {_REASONS[refusal.code]}" for refusal in found.refusals]
    return "; ".join(parts) or NOT_SAID


def _nccl(nccl: Nccl) -> str:
    version = nccl.version or NOT_SAID
    if nccl.transports:
        return f"{version}; " + ", ".join(_transports(nccl))
    hint = "no way between ranks shown" if nccl.info else f"{NOT_SAID}, NCCL_DEBUG=INFO says it"
    return f"{version}; transport: {hint}"


def _transports(nccl: Nccl) -> Iterator[str]:
    """Pairs that talk in the same way share an entry."""
    by_way: dict[str, list[str]] = {}
    for way in nccl.transports:
        by_way.setdefault(" and ".join(way.ways), []).append(f"{way.first}->{way.second}")
    for name, pairs in by_way.items():
        yield f"{name}: {' '.join(pairs)}"


def _offload(offload: Offload) -> str:
    parts = [" and ".join(offload.classes)] if offload.classes else []
    if offload.held_bytes:
        parts.append(f"{gib(offload.held_bytes)} of weights in host memory per rank")
    if offload.prefetch_saved_bytes:
        parts.append(f"prefetch saves {gib(offload.prefetch_saved_bytes)} per rank")
    return ", ".join(parts) or NOT_SAID


def describe_tower(tower: Tower) -> str:
    """One tower that streams, in one line; all figures are one rank's."""
    parts = [
        f"{tower.units} units, {gib(tower.streamed_bytes)} copied per encode",
        f"ring of {tower.slots} slots {gib(tower.ring_bytes)}",
    ]
    if tower.resident_bytes:
        parts.append(f"{gib(tower.resident_bytes)} resident")
    if tower.stem_bytes:
        parts.append(f"stem {gib(tower.stem_bytes)} resident")
    if tower.host_bytes is not None:
        pinned = f"{tower.pinned_buffers} of {tower.host_buffers} buffers pinned"
        parts.append(f"{gib(tower.host_bytes)} host memory, {pinned}")
    if tower.saved_bytes is not None:
        parts.append(f"{gib(tower.saved_bytes)} of the card saved")
    if tower.encode_copies_ms is not None:
        parts.append(f"copies take {tower.encode_copies_ms:.1f} ms per encode")
    return ", ".join(parts)


def _kv(memory: Memory) -> str:
    parts = []
    if memory.kv_tokens is not None:
        parts.append(f"{memory.kv_tokens:,} tokens")
    if memory.kv_bytes is not None:
        parts.append(f"{gib(memory.kv_bytes)} per rank")
    if memory.kv_blocks is not None:
        parts.append(f"{memory.kv_blocks:,} blocks of {memory.kv_block_tokens or '?'}")
    if memory.max_concurrency is not None and memory.max_model_len is not None:
        parts.append(
            f"{memory.max_concurrency:.2f} requests of {memory.max_model_len:,} tokens at once"
        )
    return ", ".join(parts) or NOT_SAID


def _attention(facts: EngineFacts) -> str:
    if not facts.attention and not facts.encoder_attention:
        return NOT_SAID
    return f"{facts.attention or NOT_SAID}, encoder {facts.encoder_attention or NOT_SAID}"
