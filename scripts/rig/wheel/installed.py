"""What an interpreter has installed as vLLM, and whether it is a whole rig build.

vLLM and torch are not imported: that takes seconds, and a half-patched engine must not run.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rig.errors import RigError, first_line_of_os_error
from rig.wheel.naming import DISTRIBUTION
from rig.wheel.provenance import PROVENANCE_PATH, Provenance, parse_provenance

_TIMEOUT_SECONDS = 600  # a full check reads several gigabytes from what may be a slow disk

# Runs in the engine's own interpreter, which may lack every package that these tools use.
_SCRIPT = """
import base64, hashlib, importlib.metadata, importlib.util, json, os, re, sys

def digest(path):
    try:
        with open(path, "rb") as file:
            found = hashlib.sha256()
            for chunk in iter(lambda: file.read(1 << 20), b""):
                found.update(chunk)
        return found.hexdigest()
    except OSError:
        return None

def version_of(dist):
    try:
        return dist.version
    except (OSError, KeyError):  # newer Pythons raise where older ones give None
        return None

name, provenance_path, full = sys.argv[1], sys.argv[2], sys.argv[3] == "full"
# One folder can stand on sys.path twice (lib and lib64): it is one installation.
found, remnants = {}, []
for dist in importlib.metadata.distributions(name=name):
    base, version = os.path.realpath(str(dist.locate_file(""))), version_of(dist)
    if version is None:
        remnants.append(str(getattr(dist, "_path", base)))
    else:
        found.setdefault((base, version), dist)
report = {"versions": [v for _, v in found], "remnants": remnants, "folder": None, "package": None,
          "provenance": None, "digests": {}, "record": {}}
if found:
    (base, _), dist = next(iter(found.items()))
    report["folder"] = base
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin:
        report["package"] = os.path.dirname(os.path.dirname(os.path.realpath(spec.origin)))
    try:
        with open(os.path.join(base, provenance_path), encoding="utf-8", errors="replace") as file:
            report["provenance"] = file.read()
        stated = json.loads(report["provenance"])
        names = [*stated["files"], *stated["removed"]]
        report["digests"] = {n: digest(os.path.join(base, n)) for n in names}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    if full:
        for file in dist.files or ():
            if file.hash is None:
                continue
            with_padding = file.hash.value + "=" * (-len(file.hash.value) % 4)
            wanted = base64.urlsafe_b64decode(with_padding).hex()
            report["record"][str(file)] = [wanted, digest(str(file.locate()))]
print(json.dumps(report))
"""


class _Report(BaseModel):
    """What the script above prints."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    versions: tuple[str, ...]
    remnants: tuple[str, ...]
    folder: Path | None
    package: Path | None
    provenance: str | None
    digests: dict[str, str | None]
    record: dict[str, tuple[str, str | None]]


@dataclass(frozen=True)
class InstalledEngine:
    """A whole rig build, installed.

    Args:
        folder: the site-packages folder that it lies in.
        checked: how many of its files were hashed.
    """

    python: Path
    version: str
    folder: Path
    provenance: Provenance
    checked: int


def check_installation(python: Path, *, full: bool = False) -> InstalledEngine:
    """Prove that an interpreter's vLLM is a rig build with every patch in place.

    Args:
        full: also hash every file that the installation's RECORD lists.

    Raises:
        RigError: the interpreter cannot run, has no vLLM or a plain one, or files differ: names
            them and says what to do.
    """
    return judge(python, _ask(python, full), full=full)


def _ask(python: Path, full: bool) -> _Report:
    mode = "full" if full else "patched"
    # -I: neither the caller's folder nor PYTHONPATH may stand in for what is installed.
    command = [str(python), "-I", "-c", _SCRIPT, DISTRIBUTION, PROVENANCE_PATH, mode]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_SECONDS,
        )
    except OSError as error:
        raise RigError(
            f"the interpreter cannot be run: {first_line_of_os_error(error)}",
            where=python,
            next_step="name the Python of the environment that vLLM is installed in",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise RigError(
            f"looking at the installation took over {_TIMEOUT_SECONDS} s", where=python
        ) from error
    try:
        # An environment's own start-up files may print: ours is the last line.
        return _Report.model_validate_json(done.stdout.rstrip("\n").rpartition("\n")[2])
    except ValidationError as error:
        raise RigError(
            f"the interpreter could not say what is installed (status {done.returncode})",
            where=python,
            detail=(done.stderr or done.stdout)[-2000:],
            next_step="name the Python, 3.10 or newer, of the environment of vLLM",
        ) from error


def judge(python: Path, report: _Report, *, full: bool) -> InstalledEngine:
    """Decide about what the script saw; pure."""
    again = f"{python} -m pip install --force-reinstall --no-deps dist/<the wheel>"
    if report.remnants:
        raise RigError(
            "what is left of another installation of vLLM lies there, and says no version: Python "
            "may find it in place of the installed one",
            where=", ".join(report.remnants),
            next_step="remove that folder, then look again",
        )
    if report.folder is None or not report.versions:
        raise RigError(
            "vLLM is not installed",
            where=python,
            next_step=f"`make build`, then `{python} -m pip install dist/<the wheel>`",
        )
    if len(report.versions) > 1:
        raise RigError(
            f"vLLM is installed more than once: {', '.join(report.versions)}",
            where=python,
            next_step=f"uninstall it until none is left, then `{again}`",
        )
    version = report.versions[0]
    if report.package is None:
        raise RigError(
            f"vLLM {version} is installed, but its package has no __init__.py",
            where=report.folder,
            next_step=f"`{again}`",
        )
    if report.package != report.folder:
        raise RigError(
            f"`import vllm` would load another copy than the installed {version}",
            where=report.package,
            next_step="remove that copy, or the editable installation that points to it",
        )
    where = report.folder / PROVENANCE_PATH
    if report.provenance is None and "+rig." in version:
        raise RigError(
            f"vLLM {version} is installed, but what says which patches it carries is missing",
            where=where,
            next_step=f"do not start it; `{again}`",
        )
    if report.provenance is None:
        raise RigError(
            f"vLLM {version} is installed, but it is not a rig build: it carries no patches",
            where=report.folder,
            next_step=f"`pip install -U vllm` replaces a rig build without a word; `{again}`",
        )
    provenance = parse_provenance(report.provenance.encode(), where)
    if provenance.version != version:
        raise RigError(
            f"vLLM {version} lies over the rig build {provenance.version}",
            where=where,
            next_step=f"`pip install -U vllm` does that; `{again}`",
        )
    wrong = _differences(provenance, report)
    if wrong:
        raise RigError(
            f"the installed vLLM {version} is only partly the rig build that it says it is",
            where=report.folder,
            detail="\n".join(wrong),
            next_step=f"do not start it; `{again}`",
        )
    checked = len(report.record) if full else len(provenance.files)
    return InstalledEngine(python, version, report.folder, provenance, checked)


def _differences(provenance: Provenance, report: _Report) -> list[str]:
    wrong = []
    for name, wanted in provenance.files.items():
        found = report.digests.get(name)
        if found != wanted:
            wrong.append(f"{'missing' if found is None else 'not the patched file'}: {name}")
    for name in provenance.removed:
        if report.digests.get(name) is not None:
            wrong.append(f"removed by the series, but there: {name}")
    for name, (wanted, found) in sorted(report.record.items()):
        if found != wanted and name not in provenance.files:
            wrong.append(f"{'missing' if found is None else 'not the installed file'}: {name}")
    return wrong
