"""Read an engine's log into facts: one pass, any length, any text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from rig.engine_log.all_reduce import AllReduceReader
from rig.engine_log.expected import find_no_ops
from rig.engine_log.facts import EngineFacts
from rig.engine_log.failures import FailureReader
from rig.engine_log.lines import parse_lines
from rig.engine_log.memory import MemoryReader
from rig.engine_log.nccl import NcclReader
from rig.engine_log.offload import OffloadReader
from rig.engine_log.start import StartReader
from rig.errors import RigError, first_line_of_os_error


def read_engine_log(
    lines: Iterable[str],
    *,
    source: str = "",
    environment: Mapping[str, str] | None = None,
    wanted: Collection[str] = (),
) -> EngineFacts:
    """What an engine's log says. Never raises: what is not said is None.

    Args:
        lines: of the log, with or without colours, line ends and the speakers' prefixes.
        source: where they come from.
        environment: the engine's, for requests that the log does not repeat.
        wanted: what was decided on although it is vLLM's default: "custom all-reduce".
    """
    start, memory, nccl = StartReader(), MemoryReader(), NcclReader()
    offload, all_reduce, failure = OffloadReader(), AllReduceReader(), FailureReader()
    readers = (start, memory, nccl, offload, all_reduce, failure)
    for line in parse_lines(lines):
        for reader in readers:
            reader.see(line)
    executor = start.value("distributed_executor_backend")
    facts = EngineFacts(
        source=source,
        version=start.version,
        series=start.series,
        patches=start.patches,
        model=start.value("model"),
        asked=start.asked,
        device=start.config("device_config"),
        executor=None if executor in (None, "None") else executor,
        tensor_parallel=start.number("tensor_parallel_size"),
        pipeline_parallel=start.number("pipeline_parallel_size"),
        world_size=start.world_size,
        backend=start.backend,
        ranks=start.ranks,
        attention=start.attention,
        encoder_attention=start.encoder_attention,
        runner=start.runner,
        mixed_cards=start.mixed,
        numa_lines=tuple(start.numa),
        numa_refusals=tuple(start.numa_not),
        ready=start.ready,
        offload=offload.facts(),
        all_reduce=all_reduce.facts(off=start.value("disable_custom_all_reduce") == "True"),
        nccl=nccl.facts(),
        memory=memory.facts(),
        failure=failure.failure(),
    )
    return facts.model_copy(update={"no_ops": tuple(find_no_ops(facts, environment, wanted))})


def read_engine_log_file(
    path: Path,
    *,
    environment: Mapping[str, str] | None = None,
    wanted: Collection[str] = (),
) -> EngineFacts:
    """The same of a file.

    Raises:
        RigError: it cannot be read.
    """
    try:
        with path.open(errors="replace") as file:
            return read_engine_log(file, source=str(path), environment=environment, wanted=wanted)
    except OSError as error:
        raise RigError(
            f"the engine's log cannot be read: {first_line_of_os_error(error)}",
            where=path,
            next_step="`serve` prints where it keeps its logs",
        ) from error
