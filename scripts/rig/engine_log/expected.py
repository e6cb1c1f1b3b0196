"""Name what was asked for without the line that proves it: the silent no-op."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rig.engine_log.facts import EngineFacts, NoOp

CUSTOM_ALL_REDUCE = "custom all-reduce"
_NOTHING = ("", "0", "0.0", "False", "None", "[]", "set()", "()")


def find_no_ops(
    facts: EngineFacts,
    environment: Mapping[str, str] | None = None,
    wanted: Collection[str] = (),
) -> Iterator[NoOp]:
    """What was asked for and is not proven by the engine's own lines.

    Only of an engine that has loaded its model: before that the lines may be still to come.

    Args:
        environment: the engine's, for what is asked for there; the log does not show it.
        wanted: what was decided on although it is vLLM's default: "custom all-reduce".
    """
    if not facts.ready and facts.memory.kv_tokens is None:
        return
    asked = facts.asked or {}
    yield from _offload(facts, asked)
    yield from _all_reduce(facts, environment or {}, wanted)
    if facts.numa_refusals:
        yield NoOp(name="--numa-bind", why=" ".join(facts.numa_refusals))
    elif _is_on(asked, "numa_bind") and not facts.numa_lines:
        yield NoOp(name="--numa-bind", why="no line says that a worker was bound to a node")


def _is_on(asked: Mapping[str, str], name: str) -> bool:
    return asked.get(name, "") not in _NOTHING


def _offload(facts: EngineFacts, asked: Mapping[str, str]) -> Iterator[NoOp]:
    offload = facts.offload
    said = "; the engine says: " + " ".join(offload.refusals) if offload.refusals else ""
    if _is_on(asked, "offload_towers") and not any(t.streamed_bytes for t in offload.towers):
        lines = "; the engine says: " + " ".join(offload.tower_lines)
        yield NoOp(
            name="--offload-towers",
            why="no line names a tower that streams" + (lines if offload.tower_lines else ""),
        )
    if _is_on(asked, "cpu_offload_gb") and not offload.held_bytes:
        yield NoOp(
            name="--cpu-offload-gb",
            why="no line 'Total CPU offloaded parameters' with a figure above zero" + said,
        )
    elif _is_on(asked, "cpu_offload_params") and not offload.held_bytes:
        yield NoOp(name="--cpu-offload-params", why="nothing is said to be offloaded" + said)
    if _is_on(asked, "offload_group_size") and not offload.prefetch_saved_bytes:
        yield NoOp(
            name="--offload-group-size",
            why="no line '[PrefetchOffloader] Initialized' with a figure above zero",
        )


def _all_reduce(
    facts: EngineFacts, environment: Mapping[str, str], wanted: Collection[str]
) -> Iterator[NoOp]:
    several = (facts.tensor_parallel or facts.world_size or 1) > 1
    if not several or facts.device == "cpu" or facts.backend == "gloo":
        return
    reasons = {refusal.kind: refusal for refusal in reversed(facts.all_reduce.refusals)}
    # vLLM tries it by default, so that a refusal alone is no news: the rows say it.
    if CUSTOM_ALL_REDUCE in wanted and facts.all_reduce.custom != "in use":
        refusal = reasons.get("custom")
        yield NoOp(
            name=CUSTOM_ALL_REDUCE,
            why=refusal.line if refusal else "no group lists CUSTOM among its all-reduces",
        )
    used = {name for group in facts.all_reduce.groups for name in group.backends}
    if environment.get("VLLM_CUSTOM_ALLREDUCE_PCIE") and facts.all_reduce.opt_in is None:
        refusal = reasons.get("opt-in") or reasons.get("custom")
        yield NoOp(
            name="VLLM_CUSTOM_ALLREDUCE_PCIE",
            why=refusal.line if refusal else "no line says that it was honoured",
        )
    pcie_ipc = environment.get("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC", "0")
    if pcie_ipc not in ("", "0") and "FLASHINFER_PCIE_IPC" not in used:
        refusal = reasons.get("pcie-ipc")
        yield NoOp(
            name="VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC",
            why=refusal.line if refusal else "no group lists it among its all-reduces",
        )
