"""Other ways to put patches on a new release, on the same constructed upstreams as ours.

    PYTHONPATH=scripts .venv/bin/python -m tests.rebase.side_by_side docs/rebase.md

writes the table between the two marks in that file. A way is *right* when the tree is the one that
was written down beforehand, *refused* when it stops with an error and a person must look, and
*silently wrong* when it says that all went well and the tree is another one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rig.git import Git, clean_environment
from rig.pins import find_pin, read_pin
from rig.rebase.prepare import ground_of_pins
from rig.rebase.survey import Decisions, survey
from rig.series.listing import patches_for
from tests.series.releases import Tree, lines, text

from .conftest import checkout_of, read_tree
from .corpus import BASE, CASES, UPSTREAM, Case, Patch, edit, nothing

BEGIN = "<!-- made by tests.rebase.side_by_side: do not edit from here -->"
END = "<!-- to here -->"
SIZES = (10, 100, 1000)


@dataclass(frozen=True)
class Stand:
    """What a way starts from.

    Args:
        git: a repository that holds both releases; checked out at the new one.
        patches: the patch files, in order.
        scratch: a folder for anything else.
    """

    git: Git
    patches: Sequence[Path]
    scratch: Path


def _run(stand: Stand, *command: str | Path, stdin: bytes = b"", **env: str) -> int:
    settings = {
        "GIT_AUTHOR_NAME": "x",
        "GIT_AUTHOR_EMAIL": "x@example.org",
        "QUILT_PC": str(stand.scratch / "pc"),
        "QUILT_NO_DIFF_INDEX": "1",
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=stand.git.folder,
        env=clean_environment(settings | env),
        input=stdin,
        capture_output=True,
        timeout=300,
        check=False,
    )
    return done.returncode


def quilt_push(stand: Stand) -> bool:
    """`quilt push -a --fuzz=0`."""
    folder = _quilt_folder(stand)
    return _run(stand, "quilt", "push", "-a", "--fuzz=0", QUILT_PATCHES=str(folder)) == 0


def patch_without_fuzz(stand: Stand) -> bool:
    """`patch -p1 -F0` for each file."""
    return all(
        _run(stand, "patch", "-p1", "-F0", "--forward", "-s", "-i", path.resolve()) == 0
        for path in stand.patches
    )


def am_three_way(stand: Stand) -> bool:
    """`git am -3`, which sees the old blobs."""
    mails = b"".join(path.read_bytes() for path in stand.patches)
    return _run(stand, "git", "am", "-3", "--keep-cr", stdin=mails) == 0


def quiltimport(stand: Stand) -> bool:
    """`git quiltimport`."""
    folder = _quilt_folder(stand)
    return _run(stand, "git", "quiltimport", "--patches", folder) == 0


def gbp_pq(stand: Stand) -> bool:
    """`gbp pq import`, with the patches where Debian has them."""
    debian = stand.git.folder / "debian"
    shutil.copytree(_quilt_folder(stand), debian / "patches")
    (debian / "changelog").write_text(
        "x (1-1) unstable; urgency=low\n\n  * x\n\n -- x <x@example.org>  "
        "Thu, 01 Jan 2026 00:00:00 +0000\n"
    )
    (debian / "control").write_text(
        "Source: x\nMaintainer: x <x@example.org>\n\nPackage: x\nArchitecture: all\n"
    )
    (debian / "source").mkdir()
    (debian / "source" / "format").write_text("3.0 (quilt)\n")
    stand.git.run("checkout", "--quiet", "-B", "work")
    stand.git.run("add", "--force", "debian")
    stand.git.run("commit", "--quiet", "-m", "debian", env={
        "GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.org"
    })  # fmt: skip
    good = _run(stand, "gbp", "pq", "import") == 0
    shutil.rmtree(debian, ignore_errors=True)
    return good


def _quilt_folder(stand: Stand) -> Path:
    folder = stand.scratch / "patches"
    if not folder.exists():
        folder.mkdir()
        for path in stand.patches:
            shutil.copy(path, folder)
        (folder / "series").write_text("".join(f"{p.name}\n" for p in stand.patches))
    return folder


WAYS: dict[str, tuple[str, Callable[[Stand], bool]]] = {
    "`quilt push`": ("quilt", quilt_push),
    "`patch -F0`": ("patch", patch_without_fuzz),
    "`git am -3`": ("git", am_three_way),
    "`git quiltimport`": ("git", quiltimport),
    "`gbp pq`": ("gbp", gbp_pq),
}
OURS = "`make rebase`"


def outcome(case: Case, way: str, folder: Path) -> str:
    """What a way makes of a case: "right", "refused" or "silently wrong"."""
    workshop = checkout_of(case, folder / "w")
    pins = workshop.layout.build / "new-pins" / "patches" / "pins"
    old, new = find_pin(workshop.layout, BASE), read_pin(pins / f"{UPSTREAM}.toml")
    ground = ground_of_pins(workshop.layout, old, new, folder / "tree", None)
    if way == OURS:
        good = not survey(ground, f"vLLM {BASE}", Decisions({}, {}))[1].waiting
    else:
        patches = [patch.path.resolve() for patch in patches_for(workshop.layout, old)]
        (folder / "scratch").mkdir()
        good = WAYS[way][1](Stand(ground.git, patches, folder / "scratch"))
    if not good:
        return "refused"
    right = case.right(case.new_release()) if case.right else None
    found = {p: e for p, e in read_tree(ground.git.folder).items() if not p.endswith(".orig")}
    return "right" if found == right else "silently wrong"


def rows(folder: Path) -> dict[str, dict[str, str]]:
    """Case -> way -> outcome, for the ways whose program is installed."""
    ways = [way for way, (program, _) in WAYS.items() if shutil.which(program)] + [OURS]
    found: dict[str, dict[str, str]] = {}
    for at, case in enumerate(CASES):
        found[case.name] = {}
        for way in ways:
            place = folder / f"{at}-{ways.index(way)}"
            place.mkdir()
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                found[case.name][way] = outcome(case, way, place)
            shutil.rmtree(place)
        print(f"{case.name}: {found[case.name]}", file=sys.stderr)
    return found


def many(count: int) -> Case:
    """A case of as many patches, ten to a file, each moved by lines that upstream adds above."""
    files = {f"vllm/part_{at:03d}.py": text(lines("part", 120)) for at in range(-(-count // 10))}
    patches = []
    for n in range(count):
        path, line = f"vllm/part_{n // 10:03d}.py", 10 * (n % 10) + 10
        change = edit(path, f"part_{line:03d} = {line}\n", f"part_{line:03d} = -{line}\n")
        patches.append(Patch(f"{n + 1000:04d}", change))

    def above(tree: Tree) -> Tree:
        for path in files:
            tree = edit(path, "part_001 = 1\n", "new = 0\npart_001 = 1\n")(tree)
        return tree

    base = dict(CASES[0].base) | files
    return Case(f"{count} patches", tuple(patches), above, {}, nothing, base)


def seconds(count: int, folder: Path) -> tuple[float, float]:
    """`git rebase` alone, and all verdicts, of a series of as many patches."""
    case = many(count)
    workshop = checkout_of(case, folder / "w")
    pins = workshop.layout.build / "new-pins" / "patches" / "pins"
    old, new = find_pin(workshop.layout, BASE), read_pin(pins / f"{UPSTREAM}.toml")
    ground = ground_of_pins(workshop.layout, old, new, folder / "tree", None)
    started = time.monotonic()
    report = survey(ground, f"vLLM {BASE}", Decisions({}, {}))[1]
    assert len(report.judged) == count and not report.waiting
    return report.rebase_seconds, time.monotonic() - started


def table(found: dict[str, dict[str, str]]) -> str:
    """The outcomes as Markdown, with the sums last."""
    ways = list(next(iter(found.values())))
    out = [f"| upstream | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
    for name, outcomes in found.items():
        out.append(f"| {name} | {' | '.join(outcomes[way] for way in ways)} |")
    for kind in ("right", "refused", "silently wrong"):
        sums = [sum(outcomes[way] == kind for outcomes in found.values()) for way in ways]
        out.append(f"| **{kind}** | {' | '.join(f'**{n}**' for n in sums)} |")
    return "\n".join(out)


def main(page: Path) -> None:
    """Renew the tables of a page."""
    with tempfile.TemporaryDirectory() as name:
        parts = [table(rows(Path(name))), ""]
        parts += ["| patches | `git rebase` alone, s | with all verdicts, s |", "|---|---|---|"]
        for count in SIZES:
            (Path(name) / str(count)).mkdir()
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                alone, whole = seconds(count, Path(name) / str(count))
            parts.append(f"| {count} | {alone:.1f} | {whole:.1f} |")
    head, _, rest = page.read_text("utf-8").partition(BEGIN)
    tail = rest.partition(END)[2]
    page.write_text(f"{head}{BEGIN}\n\n" + "\n".join(parts) + f"\n\n{END}{tail}", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
