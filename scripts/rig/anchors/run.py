"""Plan, run, report: every multimodal architecture of a vLLM, its weights at rest on the host."""

from __future__ import annotations

import difflib
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig.anchors.answers import ANCHOR, CANNOT, CLEAN, NO_TOWER, Verdict, read_answer
from rig.anchors.pool import Answer, Pool, WorkerCommand
from rig.console import console
from rig.errors import RigError

LIST = "?"
"""What a worker answers with all architectures; before a name, whether that one is multimodal."""
_SKIPPED = ("PYTEST_", "PYTHON", "VLLM_", "HF_", "TRANSFORMERS_")


@dataclass(frozen=True)
class Run:
    """What a run found.

    Attributes:
        vllm: the version that was imported.
        verdicts: of each architecture, in the registry's order.
        raw: the answers as they came, for a file.
        unusable: recipe modules that could not be imported, and why.
    """

    vllm: str
    verdicts: tuple[Verdict, ...]
    raw: tuple[Answer, ...]
    unusable: dict[str, str]

    def counts(self) -> Counter[str]:
        return Counter(v.verdict for v in self.verdicts)


def worker_command(python: Path, root: Path, package: Path | None, log: Path) -> WorkerCommand:
    """How a worker is started in an engine's environment.

    Args:
        python: that environment's interpreter.
        root: the checkout.
        package: a folder that holds `vllm/`; the environment's own when None.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(_SKIPPED)}
    paths = [*([package] if package else []), root / "scripts", root]
    for path in paths:
        if os.pathsep in str(path.resolve()):
            raise RigError(
                f"Python takes {os.pathsep!r} in a path for the end of it",
                where=path,
                next_step="choose another folder; TMPDIR says where the tree is linked",
            )
    env |= {
        "PYTHONPATH": os.pathsep.join(str(path.resolve()) for path in paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        # vLLM counts where its users run; a test run is none of them.
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    command = [str(python), "-P", "-m", "tower_anchors.worker"]
    return WorkerCommand(command, env, log, package)


def catch(how: WorkerCommand, names: Sequence[str] | None = None, title: str = "") -> Run:
    """Judge architectures.

    Args:
        names: only these; all of the registry's multimodal ones when None.
        title: what runs, for the progress.

    Raises:
        RigError: a name is not one of the registry's, or the catcher does not start.
    """
    with Pool(how) as pool:
        listed = pool.ask(LIST, how.ready_seconds)
        if isinstance(listed, str):
            raise RigError(f"the registry cannot be read: it {listed}", where=how.log)
        vllm, every = str(pool.said["vllm"]), list(listed["architectures"])
        title = title or f"vLLM {vllm}"
        _refuse_unknown(set(names or ()) - set(every), every, vllm)
        known = dict(_multimodal(pool, sorted(set(names)) if names else every, title))
        _refuse_unknown(set(names or ()) - set(known), list(known), vllm)
        wanted = sorted(known)
        progress = _Progress(len(wanted), title)
        answers = []
        for name in wanted:
            answer = _judged_by(pool, name, known[name])
            progress(answer)
            answers.append(answer)
        return Run(
            vllm=vllm,
            verdicts=tuple(read_answer(answer) for answer in answers),
            raw=tuple(answers),
            unusable=dict(pool.said["unusable_recipes"]),
        )


def _refuse_unknown(unknown: Collection[str], known: Sequence[str], vllm: str) -> None:
    if not unknown:
        return
    by_case = {name.casefold(): name for name in known}
    near: list[str] = []
    for name in sorted(unknown):
        close = difflib.get_close_matches(name.casefold(), by_case, n=3)
        close += [k for k in by_case if name and name.casefold() in k][:3]
        near += [by_case[k] for k in dict.fromkeys(close)]
    raise RigError(
        f"no multimodal architecture of this vLLM: {', '.join(sorted(unknown))}",
        where=f"vLLM {vllm}",
        next_step=f"it has {', '.join(near)}" if near else "without --arch all are run and named",
    )


def _multimodal(pool: Pool, names: Sequence[str], title: str) -> Iterator[tuple[str, str]]:
    """Those that are multimodal, and why one cannot be looked at: also a crash of its module."""
    for number, name in enumerate(names):
        if number % 50 == 0:
            console.print(f"{title}: looking at {number}/{len(names)} architectures", markup=False)
        answer = pool.ask(f"{LIST}{name}")
        if isinstance(answer, str):
            yield name, answer
        elif answer["multimodal"]:
            yield name, answer["why_not"]


def _judged_by(pool: Pool, name: str, why_not: str) -> Answer:
    """A crash or a hang is a result too, of the architecture that it happened to."""
    began = time.monotonic()
    answer = why_not or pool.ask(name)
    if isinstance(answer, str):
        seconds = round(time.monotonic() - began, 2)
        return {"architecture": name, "verdict": CANNOT, "reason": answer, "seconds": seconds}
    return answer


class _Progress:
    """A line for each architecture, on the console of people."""

    def __init__(self, total: int, title: str) -> None:
        self.total = total
        self.title = title
        self.done = 0

    def __call__(self, answer: Answer) -> None:
        self.done += 1
        said = answer["verdict"]
        if said == CANNOT:
            said = f"{said}: {answer['reason']}"
        console.print(
            f"{self.title} [{self.done}/{self.total}] {answer['architecture']}: {said}",
            markup=False,
        )


def report(run: Run) -> Iterable[str]:
    """What a person wants to know of a run: the anchors with their lines, then the counts."""
    for verdict in run.verdicts:
        if verdict.verdict != ANCHOR:
            continue
        yield f"{verdict.architecture}: {_number(len(verdict.anchors), 'anchor')}"
        for line in verdict.anchors:
            yield f"  {line.file}:{line.number}"
            yield f"    {line.code}"
            yield f"    {line.kind}: {line.why}"
    for module, why in run.unusable.items():
        yield f"recipes of {module} are left out: {why}"
    count = run.counts()
    yield (
        f"vLLM {run.vllm}: {_number(len(run.verdicts), 'multimodal architecture')}: "
        f"{count[CLEAN]} clean, {count[ANCHOR]} with anchors, {count[NO_TOWER]} without a tower, "
        f"{count[CANNOT]} not built"
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
