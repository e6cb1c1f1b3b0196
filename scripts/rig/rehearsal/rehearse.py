"""`make rehearse`: serve a real image on as many ranks as a rig has cards, with no GPU."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig.console import console, out
from rig.errors import RigError
from rig.launch.engine_environment import require_rig_build
from rig.launch.plan import Executor, ServeOptions
from rig.launch.serve import Rank, RunningServer, StopReport, plan_serve, serving
from rig.launch.signals import stop_signals
from rig.layout import Layout
from rig.pins import Pin
from rig.rehearsal.client import ServedBuild, ask, served_build
from rig.rehearsal.compare import LOGPROB_TOLERANCE, Comparison, compare
from rig.rehearsal.environment import EngineEnvironment, engine_environment
from rig.rehearsal.exchange import Answer, Question
from rig.rehearsal.locks import locked
from rig.rehearsal.phases import Phases
from rig.rehearsal.photograph import photograph
from rig.rehearsal.stage import SERVED_NAME, make_model, oracle_answers, serve_options
from rig.rehearsal.streaming import StreamedTower, check_streaming
from rig.rehearsal.traces import Remains, traces, what_remains
from rig.wheel.provenance import PROVENANCE_PATH, Provenance, parse_provenance

PHOTOGRAPH = "astronaut"
QUESTION = "What is in this photograph?"
HEADS_DIVIDE_BY = (1, 2, 4)
OFFLOAD_TOWERS = "--offload-towers"


@dataclass(frozen=True)
class RehearsalReport:
    """What a rehearsal proved; every line of it was checked.

    Args:
        version: what the server says that it is.
        patches: "number subject" of each patch that the server says it carries.
        ranks: the workers, as the live cluster knows them.
        answer: what the server answered; equal to the oracle's.
        comparison: how near to the oracle's.
        streamed: the towers whose weights rested on the host, as the server tells of them.
        shared_memory_removed: what vLLM had left in /dev/shm and the launcher removed.
        seconds: phase -> how long it took.
        logs: where the logs of Ray and the engine lie, seen from the checkout.
    """

    version: str
    patches: tuple[str, ...]
    ranks: tuple[Rank, ...]
    answer: Answer
    comparison: Comparison
    streamed: tuple[StreamedTower, ...]
    shared_memory_removed: tuple[str, ...]
    seconds: dict[str, float]
    logs: Path

    def lines(self) -> list[str]:
        """The report for a person."""
        compared = (
            f"equal to transformers': {self.comparison.tokens} tokens, logprobs within "
            f"{self.comparison.largest_difference:.1e} (allowed {LOGPROB_TOLERANCE:g})"
        )
        removed = len(self.shared_memory_removed)
        return [
            f"question   {QUESTION} (photograph: {PHOTOGRAPH})",
            f"answer     {self.answer.text}   (a tiny model with random weights)",
            f"oracle     {compared}",
            *(f"streamed   {tower.line}" for tower in self.streamed),
            f"version    {self.version}",
            *(f"patch      {patch}" for patch in self.patches),
            *(f"rank {r.rank}     pid {r.pid}, {r.name}" for r in self.ranks),
            f"stopped    no process and no shared memory left ({removed} files of vLLM's removed)",
            f"seconds    {sum(self.seconds.values()):.0f} in all",
            f"logs       {self.logs}",
        ]


def rehearse(
    layout: Layout,
    pin: Pin,
    wheel: Path,
    *,
    ranks: int = 4,
    executor: Executor = "ray",
    offload_towers: bool = False,
) -> RehearsalReport:
    """Serve a tiny model with a built wheel, ask it about a photograph, check everything, stop.

    Args:
        wheel: a wheel of ours for the CPU.
        ranks: tensor parallel size; 1, 2 or 4.
        offload_towers: stream the vision tower; the answer must stay the same.

    Raises:
        RigError: something could not be set up, or what was seen is not what must be.
    """
    if ranks not in HEADS_DIVIDE_BY:
        raise RigError(
            f"the tiny model cannot be split over {ranks} ranks",
            next_step=f"rehearse with one of {', '.join(map(str, HEADS_DIVIDE_BY))}",
        )
    provenance = provenance_of_wheel(wheel)
    phases = Phases()
    folder = layout.build / "rehearsal"
    logs = folder / "logs"
    with stop_signals(), ready_environment(layout, pin, wheel, phases) as (environment, lock):
        question = Question(QUESTION, (photograph(environment.site_packages, PHOTOGRAPH),))
        model = folder / "model"
        with phases.phase("making a tiny Qwen3-VL"):
            make_model(environment, model, lock=lock)
        with phases.phase("asking the oracle, transformers"):
            oracle = oracle_answers(environment, model, [question], lock=lock)[0]
        more = (OFFLOAD_TOWERS,) if offload_towers else ()
        options = serve_options(environment, model, logs, ranks=ranks, executor=executor, more=more)
        with ExitStack() as stack:
            title = f"starting {_cluster(executor)} and the engine on {ranks} ranks"
            with phases.phase(title) as tell:
                server = stack.enter_context(served_without_trace(environment, options, tell))
            for warning in server.warnings:
                console.print(f"warning: {warning}", markup=False)
            with phases.phase("asking the server about a photograph"):
                answer = ask(server.base_url, SERVED_NAME, question)
            seen = tuple(server.ranks())
            check_ranks(seen, ranks)
            patches = check_build(server.base_url, provenance)
            streamed = check_streaming(server.engine_log, wanted=offload_towers)
            with phases.phase("stopping everything"):
                stack.close()
        comparison = compare(answer, oracle)
        if comparison.difference:
            raise RigError(
                "the served answer is not the oracle's",
                where=comparison.difference,
                next_step=f"see {layout.shown(logs)}",
            )
    report = RehearsalReport(
        version=provenance.version,
        patches=patches,
        ranks=seen,
        answer=answer,
        comparison=comparison,
        streamed=streamed,
        shared_memory_removed=server.stopped.removed if server.stopped else (),
        seconds=phases.seconds,
        logs=Path(layout.shown(logs)),
    )
    for line in report.lines():
        out.print(line)
    return report


@contextmanager
def ready_environment(
    layout: Layout, pin: Pin, wheel: Path, phases: Phases | None = None
) -> Iterator[tuple[EngineEnvironment, int]]:
    """The engine's environment, and the lock under which one run at a time rehearses with it.

    Runs of the same release come one after the other from the start: none renews an environment
    that another one serves from. Those of other releases wait only once theirs is ready.
    """
    own = layout.build / f"engine-{pin.version}-rehearsal.lock"
    with locked(own, f"rehearsing vLLM {pin.version}"):
        environment = engine_environment(layout, pin, wheel, phases=phases)
        with locked(layout.build / "rehearsal.lock", "rehearsing") as lock:
            yield environment, lock


def check_ranks(seen: Sequence[Rank], wanted: int) -> None:
    """Each rank is there once, each in a process of its own.

    Raises:
        RigError: they are not.
    """
    numbers = sorted(rank.rank for rank in seen)
    if numbers != list(range(wanted)) or len({rank.pid for rank in seen}) != wanted:
        shown = ", ".join(f"rank {r.rank} pid {r.pid}" for r in seen) or "none"
        raise RigError(f"{wanted} ranks were wanted, each a process of its own", where=shown)


def check_build(base_url: str, wanted: Provenance) -> tuple[str, ...]:
    """The server says of itself what the wheel says; returns the patches that it carries.

    Raises:
        RigError: it says something else.
    """
    served = served_build(base_url)
    built = ServedBuild(
        version=wanted.version,
        series=wanted.series,
        patches=tuple(patch.number for patch in wanted.patches),
    )
    if served != built:
        raise RigError(
            "the server is not the build that was to be rehearsed",
            where=f"{base_url}/version",
            detail=f"server: {_shown(served)}\nwheel:  {_shown(built)}",
        )
    return tuple(f"{patch.number} {patch.subject}" for patch in wanted.patches)


def _shown(build: ServedBuild) -> str:
    patches = " ".join(build.patches) or "none"
    changed = f", changed since: {'; '.join(build.modified)}" if build.modified else ""
    return f"{build.version}, series {build.series[:12] or 'none'}, patches {patches}{changed}"


@contextmanager
def served_without_trace(
    environment: EngineEnvironment,
    options: ServeOptions,
    progress: Callable[[str], None] | None = None,
    check_installation: Callable[[Path], object] = require_rig_build,
) -> Iterator[RunningServer]:
    """Serve in a block, and look afterwards whether anything of it is left.

    Args:
        check_installation: see `serving`.

    Raises:
        RigError: it could not be started, or something is left.
    """
    before = traces(environment.folder)
    plan = plan_serve(options)
    during = []
    with serving(plan, progress=progress, check_installation=check_installation) as server:
        during.append(traces(environment.folder, before=before))
        yield server
        during.append(traces(environment.folder, before=before))
    check_nothing_left(server.stopped, what_remains(environment.folder, before, during))


def check_nothing_left(stopped: StopReport | None, remains: Remains) -> None:
    """Nothing is left of a launch.

    Args:
        stopped: what the launcher says of its stop.
        remains: what another look found.

    Raises:
        RigError: something is left.
    """
    if stopped is None:
        raise RigError("the launcher says nothing of its stop")
    if remains.of_whoever:
        files = ", ".join(remains.of_whoever)
        console.print(f"warning: appeared meanwhile, of another program: {files}", markup=False)
    left = (*stopped.left, *remains.ours)
    if left:
        raise RigError(
            "the launch left something behind",
            where=", ".join(left),
            next_step="this is a fault of the launcher: please report it",
        )


def provenance_of_wheel(wheel: Path) -> Provenance:
    """What a wheel says that it carries.

    Raises:
        RigError: it cannot be read, or is no build of ours.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(PROVENANCE_PATH)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise RigError(
            f"this is not a wheel of a rig build: {error}",
            where=wheel,
            next_step="build one: `make build FLAVOR=cpu`",
        ) from error
    return parse_provenance(data, f"{wheel.name}: {PROVENANCE_PATH}")


def _cluster(executor: Executor) -> str:
    return "a private Ray cluster" if executor == "ray" else "processes"
