"""What goes into a report. Each section stands alone: one that fails says why, and the rest go on.

Nothing is redacted here: what leaves this module goes through `redact` before it is written.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rig.errors import RigError, first_line_of_os_error

if TYPE_CHECKING:
    from rig.box.facts import Box
    from rig.doctor.finding import Finding
    from rig.layout import Layout

_T = TypeVar("_T")
LOG_LINES = 200
_TAIL_BYTES = 1 << 20
_ENGINE_LINES = ("engine.log", "ray.log")
_PACKAGES = (
    "vllm torch ray transformers tokenizers huggingface-hub safetensors triton flashinfer-python "
    "flash-attn xformers numpy nvidia-nccl-cu13 nvidia-nccl-cu12 compressed-tensors"
)
_ASK_VERSIONS = """
import importlib.metadata, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_VARIABLES = re.compile(
    r"^(?:CUDA_|NCCL_|VLLM_|RAY_|PYTORCH_|TORCH|HF_|TRANSFORMERS_|OMP_|MKL_|GLOO_|NVIDIA_|RIG_|TP_"
    r"|TRITON_|FLASHINFER_|SAFETENSORS_|TOKENIZERS_|LD_LIBRARY_PATH$|LD_PRELOAD$|PYTHONPATH$"
    r"|VIRTUAL_ENV$|CONDA_PREFIX$|TMPDIR$|XDG_)"
)
_KERNEL = re.compile(
    r"NVRM|\bXid\b|\bAER\b|IO_PAGE_FAULT|AMD-Vi|DMAR|[Oo]ut of memory|oom[-_]kill|pcieport.*error"
    r"|nvidia.*(?:fail|error)|BAR \d+.*(?:assign|space)"
)


@dataclass(frozen=True)
class Section:
    """Args: body: plain text, shown as it is."""

    title: str
    body: str


@dataclass(frozen=True)
class Sources:
    """What a report is made from; a test gives its own."""

    layout: Layout
    environment: Mapping[str, str]
    logs: Path
    log_folder: Path | None = None
    python: str | None = None
    rig: str | None = None
    dmesg: tuple[str, ...] = ("dmesg", "--ctime")
    # Where a user may not read the log, the group adm may read this.
    journal: tuple[str, ...] = ("journalctl", "--dmesg", "--boot", "--no-pager", "--quiet")


def sections(sources: Sources) -> Iterator[Section]:
    """All sections, in order. Never raises."""
    box = _safely(_read_box)
    findings = box if isinstance(box, str) else _safely(partial(_examine, box, sources))
    yield Section("Checks", _checks(findings))
    yield Section("Versions", _said(lambda: _versions(sources)))
    yield Section("Series", _said(lambda: _series(sources.layout)))
    yield Section("Environment", _said(lambda: _environment(sources.environment)))
    folder = sources.log_folder or _safely(lambda: newest_launch(sources.logs))
    if isinstance(folder, Path):
        yield Section("Last launch", _said(lambda: _launch(folder)))
        for log in _logs_in(folder):
            yield Section(f"Log {log.name}", _said(partial(tail_of, log, LOG_LINES)))
    else:
        yield Section("Last launch", f"no launch has left logs in {sources.logs}")
    yield Section("Kernel messages", _said(lambda: _kernel(sources.dmesg, sources.journal)))
    yield Section("Box and checks as JSON", _as_json(box, findings))


def _said(work: Callable[[], str]) -> str:
    try:
        return work()
    except Exception as error:
        return f"not available: {_why(error)}"


def _safely(work: Callable[[], _T]) -> _T | str:
    """The result, or why there is none: a report is wanted most where something is broken."""
    try:
        return work()
    except Exception as error:
        return _why(error)


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, RigError) else f"{type(error).__name__}: {error}"


def _read_box() -> Box:
    from rig.box.kernel_log import with_kernel_log
    from rig.box.read import read_box

    return with_kernel_log(read_box())


def _examine(box: Box, sources: Sources) -> list[Finding]:
    from rig.doctor.gather import gather
    from rig.doctor.run import examine

    rig = None
    if sources.rig is not None:
        from rig.box.rigs import find_rig

        rig = find_rig(sources.rig, box=box)
    context = gather(
        sources.layout, box, rig, environment=sources.environment, python=sources.python
    )
    return examine(box, rig, context)


def _checks(findings: list[Finding] | str) -> str:
    if isinstance(findings, str):
        return f"not available: {findings}"
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<8} {finding.check}: {finding.seen}")
        if finding.state in ("fail", "warn") and finding.next_step:
            lines.append(f"         next: {finding.next_step}")
    return "\n".join(lines) or "no check has run"


def _versions(sources: Sources) -> str:
    from rig.launch.engine_environment import choose_python
    from rig.wheel.installed import check_installation

    lines = [
        f"tools' Python {platform.python_version()} on {platform.platform()}",
    ]
    python = choose_python(sources.python, sources.environment)
    lines.append(f"engine's Python {python}")
    done = subprocess.run(
        [str(python), "-I", "-c", _ASK_VERSIONS, *_PACKAGES.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    told = done.stdout.rstrip("\n").rpartition("\n")[2]
    if done.returncode == 0 and told.startswith("{"):
        lines += [f"{name} {version}" for name, version in json.loads(told).items()]
    else:
        lines.append(f"its packages are unknown: {done.stderr.strip()[-500:]}")
    try:
        engine = check_installation(python)
        provenance = engine.provenance
        lines.append(
            f"rig build {engine.version}: whole, {engine.checked} files checked, series "
            f"{provenance.series[:12]}, {len(provenance.patches)} patches, {provenance.flavour}"
        )
    except RigError as error:
        lines.append(str(error))
    return "\n".join(lines)


def _series(layout: Layout) -> str:
    from rig.pins import read_pins
    from rig.series.listing import series_digest

    return "\n".join(
        f"{pin.version} ({pin.role}): series {series_digest(layout, pin)[:12]}"
        for pin in read_pins(layout)
    )


def _environment(environment: Mapping[str, str]) -> str:
    from rig.report.identity import SECRET_NAME

    lines = []
    for name, value in sorted(environment.items()):
        if not _VARIABLES.match(name):
            continue
        lines.append(f"{name}={'<token>' if SECRET_NAME.search(name) and value else value}")
    return "\n".join(lines) or "none of the variables that matter is set"


def newest_launch(logs: Path) -> Path | None:
    """The folder of the launch that wrote last; None if there is none."""
    try:
        folders = [entry for entry in logs.iterdir() if entry.is_dir()]
    except OSError:
        return None
    return max(folders, key=lambda folder: folder.stat().st_mtime, default=None)


def _logs_in(folder: Path) -> list[Path]:
    try:
        found = [file for file in folder.iterdir() if file.suffix == ".log" and file.is_file()]
    except OSError:
        return []
    # The engine's first: it is what most questions are about.
    return sorted(found, key=lambda file: (file.name not in _ENGINE_LINES, file.name))[:8]


def _launch(folder: Path) -> str:
    from rig.engine_log import read_engine_log_file, rows

    lines = [f"logs in {folder}"]
    engine = folder / "engine.log"
    if engine.is_file():
        lines += [f"{name}: {value}" for name, value in rows(read_engine_log_file(engine))]
    else:
        lines.append("it has no engine.log")
    return "\n".join(lines)


def tail_of(path: Path, lines: int) -> str:
    """The last whole lines of a file. RigError if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = max(0, size - _TAIL_BYTES)
            file.seek(begin)
            text = file.read().decode(errors="replace")
    except OSError as error:
        raise RigError(f"it cannot be read: {first_line_of_os_error(error)}", where=path) from error
    found = text.splitlines()
    if begin and found:
        found = found[1:]  # a part of a line could be a part of a secret
    return "\n".join(found[-lines:]) or "it is empty"


def _kernel(*commands: tuple[str, ...]) -> str:
    why = []
    for command in commands:
        try:
            return _kernel_lines(command)
        except (OSError, subprocess.SubprocessError, RigError) as error:
            why.append(_why(error))
    return f"not readable ({'; '.join(why)}); run as root: dmesg | grep -E 'NVRM|Xid|AER'"


def _kernel_lines(command: tuple[str, ...]) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        timeout=20,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0 or not done.stdout.strip():
        why = done.stderr.decode(errors="replace").strip()
        raise RigError(f"{command[0]}: {why or 'it shows nothing'}")
    lines = [
        line for line in done.stdout.decode(errors="replace").splitlines() if _KERNEL.search(line)
    ]
    return "\n".join(lines[-LOG_LINES:]) or "no lines on the cards, the bus or memory"


def _as_json(box: Box | str, findings: list[Finding] | str) -> str:
    facts = box if isinstance(box, str) else box.model_dump(mode="json", exclude_none=True)
    told = findings if isinstance(findings, str) else [f.model_dump(mode="json") for f in findings]
    return json.dumps({"box": facts, "checks": told}, indent=1, ensure_ascii=False)
