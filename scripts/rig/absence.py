"""`rig absence`: each patch's tests pass with the series, and fail with the series less it.

The tests are always those of the whole series: a patch that took its own test away with it would
pass for want of a test. A test file that cannot be collected misses a patch only if all that the
patch does is to add modules, and it is one of them that the file cannot import. They run in the
engine's environment, against the installed package for the whole series, and against a copy of it
with one patch (and what requires it) taken out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig.console import console
from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.series.applied import AppliedTree, commits_of_series, touched_files
from rig.series.listing import read_mails
from rig.series.lock import ABSENT, LockedFile
from rig.series.mail import PatchMail
from rig.series.pristine import PRISTINE_REF
from rig.series.scratch import scratch_folder

_PROVENANCE = "rig_provenance.json"
_SETTINGS = "pyproject.toml"
_TIMEOUT_SECONDS = 900
_MOST_AT_ONCE = 4


@dataclass(frozen=True)
class Outcome:
    """What one run of pytest counted, and the texts of its errors."""

    passed: int
    failed: int
    errors: int
    log: str
    error_texts: tuple[str, ...] = ()

    def misses(self, modules: set[str]) -> bool:
        """Whether a test failed, or a file could not import one of these modules."""
        unfound = set()
        for module in modules:
            folder, _, name = module.rpartition(".")
            unfound |= {
                f"No module named '{module}'",
                f"cannot import name '{name}' from '{folder}'",
            }
        return bool(self.failed) or any(u in text for u in unfound for text in self.error_texts)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.errors} errors"


@dataclass(frozen=True)
class Verdict:
    """One patch: its tests with the series, and without it."""

    patch: str
    present: Outcome
    absent: Outcome

    def __str__(self) -> str:
        return f"{self.patch}: with it {self.present}; without it {self.absent}"


def absence(
    layout: Layout,
    applied: AppliedTree,
    python: Path,
    site_packages: Path,
    numbers: Sequence[str] | None = None,
    *,
    installed: bool = True,
) -> list[Verdict]:
    """Run the tests of each patch with and without it.

    Args:
        layout: the checkout.
        applied: the series, applied on the release that `python` has installed.
        python: the engine environment's interpreter.
        site_packages: where that environment's vllm lies.
        numbers: only these patches; all when None.
        installed: `python` imports that vllm by itself. If not, `site_packages` may be any folder
            that holds the applied one, for libraries of another release to run.

    Raises:
        RigError: a patch's tests fail with the series, or none fails without the patch. What
            runs at the time is waited for, the rest is not begun.
    """
    mails = [m for _, m in read_mails(layout, applied.pin)]
    chosen = [m for m in mails if numbers is None or m.number in numbers]
    unknown = set(numbers or ()) - {m.number for m in mails}
    if unknown:
        raise RigError(
            f"the series has no patch {', '.join(sorted(unknown))}",
            where=f"vLLM {applied.pin.version}",
            next_step=f"it has: {', '.join(m.number for m in mails)}",
        )
    verdicts = []
    with scratch_folder(layout, "absence") as scratch:
        _export_tests(applied, mails, scratch)

        def judge(mail: PatchMail) -> Verdict:
            return _judge(mail, applied, mails, python, site_packages, scratch, installed)

        # Most of a run is spent on one thread, importing.
        with ThreadPoolExecutor(min(_MOST_AT_ONCE, os.cpu_count() or 1)) as pool:
            try:
                for verdict in pool.map(judge, chosen):
                    verdicts.append(verdict)
                    console.print(str(verdict))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return verdicts


def _judge(
    mail: PatchMail,
    applied: AppliedTree,
    mails: Sequence[PatchMail],
    python: Path,
    site_packages: Path,
    scratch: Path,
    installed: bool,
) -> Verdict:
    present = _run(python, mail, scratch, None if installed else site_packages)
    if not present.passed or present.failed or present.errors:
        raise _failure(mail, f"its tests do not pass with the series: {present}", present)
    with _package_without(applied, mails, mail, site_packages, scratch) as package:
        absent = _run(python, mail, scratch, package)
    if not absent.misses(modules_of_a_patch_that_only_adds(applied, mails, mail)):
        raise _failure(
            mail,
            f"no test fails without it: {absent} (a file that cannot be collected is no "
            "failing test, unless all that the patch does is to add what it imports)",
            absent,
        )
    return Verdict(mail.name, present, absent)


def _failure(mail: PatchMail, what: str, outcome: Outcome) -> RigError:
    return RigError(
        f"{mail.name}: {what}",
        where=", ".join(mail.tests),
        detail=outcome.log[-3000:],
        next_step="correct the test, or the patch, in build/ and `make refresh`",
    )


def _export_tests(applied: AppliedTree, mails: Sequence[PatchMail], scratch: Path) -> None:
    """Write the tests that patches name, and what the series adds for them to import."""
    git = Git(applied.folder)
    named = {t.split("::")[0] for m in mails for t in m.tests}
    added = {f.path for f in applied.changed if f.path.startswith("tests/") and f.after}
    # With vLLM's own settings (its markers), not those of a folder above.
    settings = git.run("show", "HEAD:pyproject.toml", check=False)
    (scratch / _SETTINGS).write_bytes(settings.stdout if settings.code == 0 else b"")
    for path in sorted(named | added):
        target = scratch / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(git.run("show", f"HEAD:{path}").stdout)


def left_out_with(mails: Sequence[PatchMail], number: str) -> set[str]:
    """A patch's number and those of all patches that require it, directly or not."""
    out = {number}
    for mail in mails:  # in order: what requires a patch comes after it
        if out & set(mail.requires):
            out.add(mail.number)
    return out


def modules_of_a_patch_that_only_adds(
    applied: AppliedTree, mails: Sequence[PatchMail], mail: PatchMail
) -> set[str]:
    """The modules of vllm that a patch adds; none if it also changes what is there."""
    git = Git(applied.folder)
    commit = commits_of_series(git)[list(mails).index(mail)]
    files = [f for f in touched_files(git, f"{commit}^", commit) if f.path.startswith("vllm/")]
    if any(file.before != ABSENT for file in files):
        return set()
    paths = [f.path.removesuffix(".py") for f in files if f.path.endswith(".py")]
    return {path.removesuffix("/__init__").replace("/", ".") for path in paths}


@contextmanager
def _package_without(
    applied: AppliedTree,
    mails: Sequence[PatchMail],
    left_out: PatchMail,
    site_packages: Path,
    scratch: Path,
) -> Iterator[Path]:
    """A copy of the installed package in which one patch is missing; gives its parent folder."""
    out = left_out_with(mails, left_out.number)
    repository = scratch / f"repository-{left_out.number}"
    folder = scratch / f"without-{left_out.number}"
    Git(scratch).run("clone", "--quiet", "--shared", applied.folder, repository)
    try:
        git = Git(repository)
        git.run("fetch", "--quiet", "origin", f"+{PRISTINE_REF}:{PRISTINE_REF}")
        commits = commits_of_series(git, "origin/HEAD")
        kept = [c for c, m in zip(commits, mails, strict=True) if m.number not in out]
        git.run("checkout", "--quiet", "--detach", PRISTINE_REF)
        if kept:
            picked = git.run("cherry-pick", "--allow-empty", *kept, check=False)
            if picked.code != 0:
                raise RigError(
                    f"the series cannot do without {left_out.name}: a later patch conflicts",
                    where=git.run("log", "-1", "--format=%s", "CHERRY_PICK_HEAD").text.strip(),
                    next_step=f"name {left_out.number} in that patch's Requires: trailer",
                )
        shutil.copytree(site_packages / "vllm", folder / "vllm", copy_function=_link_or_copy)
        _undo(git, touched_files(git, "HEAD", "origin/HEAD"), folder)
        yield folder
    finally:
        shutil.rmtree(repository, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _undo(git: Git, files: Sequence[LockedFile], folder: Path) -> None:
    """Give a copy of the package the files of HEAD, and the look of a plain release.

    The copy holds hard links: a file is removed before it is written, never changed in place.
    """
    for file in files:
        if not file.path.startswith("vllm/"):
            continue
        target = folder / file.path
        target.unlink(missing_ok=True)
        if file.before != ABSENT:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(git.blobs([file.before])[file.before])
    (folder / "vllm" / _PROVENANCE).unlink(missing_ok=True)
    version = folder / "vllm" / "_version.py"
    # vLLM takes the CPU platform from the word in the version; "+rig" would ask for provenance.
    text = version.read_text("utf-8").replace("+rig.", "+without.")
    version.unlink()
    version.write_text(text, "utf-8")


def _run(python: Path, mail: PatchMail, scratch: Path, package: Path | None) -> Outcome:
    report = scratch / f"report-{mail.number}.xml"
    report.unlink(missing_ok=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "PYTHONPATH"))}
    # vLLM counts where its users run; a test run is none of them.
    env |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    if package is not None:
        env["PYTHONPATH"] = str(package)
    command = [
        *(str(python), "-B", "-m", "pytest", "-q", "--noconftest", "--import-mode=importlib"),
        *("-p", "no:cacheprovider", f"--junitxml={report}"),
        # A file that cannot be collected keeps the others from none of their tests.
        "--continue-on-collection-errors",
        *("-c", str(scratch / _SETTINGS), f"--rootdir={scratch}"),
        *mail.tests,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=scratch,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RigError(
            f"the tests of {mail.name} took over {_TIMEOUT_SECONDS} s",
            where=", ".join(mail.tests),
        ) from error
    log = done.stdout.decode("utf-8", "replace")
    if not report.is_file():
        raise RigError("pytest did not run", where=python, detail=log[-3000:])
    return _count(ElementTree.parse(report).getroot(), log)


def _count(root: ElementTree.Element, log: str) -> Outcome:
    passed = failed = 0
    errors = []
    for case in root.iter("testcase"):
        if (error := case.find("error")) is not None:
            errors.append(error.text or "")
        elif case.find("failure") is not None:
            failed += 1
        elif case.find("skipped") is None:
            passed += 1
    return Outcome(passed, failed, len(errors), log, tuple(errors))
