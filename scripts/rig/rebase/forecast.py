"""How the series would fare on a tree that is no release: a folder, an sdist, a branch."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin
from rig.rebase.prepare import Ground, add_series
from rig.rebase.report import Report, print_report, write_report
from rig.rebase.survey import Decisions, survey
from rig.rebase.verdict import Judged, Verdict
from rig.series.pristine import BRANCH, PRISTINE_REF
from rig.series.scratch import scratch_folder

_FAST = ("-c", "core.looseCompression=1", "-c", "core.fsync=none")
_WHO = {
    "GIT_AUTHOR_NAME": "forecast",
    "GIT_AUTHOR_EMAIL": "vllm-rig@localhost",
}
_REMOTE = re.compile(r"^(?P<url>[a-z+]+://.+?|[\w.-]+@[\w.-]+:.+?)(?:@(?P<ref>[^@/:][^@:]*))?$")
# What a person would look at first.
_RISK = {
    Verdict.TARGET_REMOVED: 0,
    Verdict.CONFLICT: 1,
    Verdict.TARGET_MOVED: 2,
    Verdict.PROBE_FAILED: 3,
    Verdict.DEPENDS: 4,
    Verdict.EMPTY: 5,
    Verdict.PARTLY_MERGED: 6,
    Verdict.MERGED: 7,
}


def forecast(layout: Layout, pin: Pin, source: str) -> Report:
    """Try the series of a pin on any vLLM tree; changes nothing but the report.

    Args:
        layout: the checkout.
        pin: whose texts are carried.
        source: a folder, an sdist (.tar.gz), or a git address with an optional `@ref`.

    Raises:
        RigError: the source cannot be had, or is no vLLM tree.
    """
    with scratch_folder(layout, "forecast") as scratch:
        git = _tree(source, scratch / "tree")
        if git.run("cat-file", "-e", f"{PRISTINE_REF}:vllm/__init__.py", check=False).code != 0:
            raise RigError(
                "this is no vLLM tree: it has no vllm/__init__.py",
                where=source,
                next_step="name the folder that holds vllm/, an sdist, or a git address",
            )
        ground: Ground = add_series(layout, pin, git, _name(source))
        _, report = survey(ground, f"vLLM {pin.version}", Decisions({}, {}))
    print_report(report)
    write_report(report, layout.build / "forecast-report")
    return report


def risks(report: Report) -> list[Judged]:
    """The patches that somebody will have to look at, the worst first."""
    found = [j for j in report.judged if j.verdict in _RISK]
    return sorted(found, key=lambda j: (_RISK[j.verdict], j.number))


def _tree(source: str, folder: Path) -> Git:
    """A repository whose PRISTINE_REF is the source's tree, without its history."""
    place = Path(source).expanduser()
    if place.is_dir():
        return _of_folder(place, folder)
    if place.is_file():
        return _of_sdist(place, folder)
    remote = _REMOTE.match(source)
    if remote is None:
        raise RigError(
            "there is no such folder or file, and it is no git address",
            where=source,
            next_step="SOURCE=path, SOURCE=vllm-x.y.z.tar.gz or SOURCE=https://...git@branch",
        )
    return _of_remote(remote["url"], remote["ref"] or "HEAD", folder)


def _of_folder(place: Path, folder: Path) -> Git:
    """The files as they are there; if it is a git work tree, those that git knows or would add."""
    folder.mkdir()
    git = _repository(folder)
    inside = Git(place).run("rev-parse", "--show-toplevel", check=False)
    of_its_own = inside.code == 0 and Path(inside.text.strip()).resolve() == place.resolve()
    forced = () if of_its_own else ("--force",)
    git.run(*_FAST, f"--work-tree={place.resolve()}", "add", "--all", *forced, "--", ".")
    return _commit(git)


def _of_sdist(place: Path, folder: Path) -> Git:
    unpacked = folder.with_name("unpacked")
    try:
        with tarfile.open(place) as archive:
            archive.extractall(unpacked, filter="data")
    except (tarfile.TarError, OSError) as error:
        raise RigError(f"the archive cannot be unpacked: {error}", where=place) from error
    tops = list(unpacked.iterdir())
    return _of_folder(tops[0] if len(tops) == 1 and tops[0].is_dir() else unpacked, folder)


def _of_remote(url: str, ref: str, folder: Path) -> Git:
    folder.mkdir()
    git = _repository(folder)
    done = git.run("fetch", "--quiet", "--depth=1", "--no-tags", url, ref, check=False)
    if done.code != 0:
        raise RigError(
            "the tree cannot be fetched",
            where=_name(f"{url}@{ref}"),
            detail=done.error_text,
            next_step="check the address and the ref, and the network",
        )
    git.run("update-ref", PRISTINE_REF, "FETCH_HEAD^{commit}")
    return git


def _repository(folder: Path) -> Git:
    git = Git(folder)
    git.run("init", "--quiet", f"--initial-branch={BRANCH}", "--template=")
    return git


def _commit(git: Git) -> Git:
    git.run(*_FAST, "commit", "--quiet", "--no-verify", "-m", "the tree to look at", env=_WHO)
    git.run("update-ref", PRISTINE_REF, "HEAD")
    return git


def _name(source: str) -> str:
    """How the report calls a tree: an address without the name and password in it."""
    parts = urlsplit(source)
    if parts.scheme and parts.hostname:
        return f"{parts.scheme}://{parts.hostname}{parts.path}"
    return source
