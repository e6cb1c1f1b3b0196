"""Constructed upstreams, each with the right verdict and the right tree known beforehand.

A case is a base release, patches on it, and the release that upstream made of the base. What the
patched new release must look like is written down by hand: `right` is None where only a person
can say, so that anything but a refusal is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rig.rebase.verdict import Verdict
from tests.series.releases import TWIN_DISTANCE, Entry, Tree, lines, release_files, text, twins

BASE, UPSTREAM = "0.3.0", "0.4.0"
ENGINE, CONFIG = "vllm/engine.py", "vllm/config.py"


@dataclass(frozen=True)
class Patch:
    """One patch of a case: the files that it leaves, and its trailers."""

    number: str
    change: Callable[[Tree], Tree]
    trailers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One constructed upstream.

    Args:
        name: what happens.
        patches: on the base, in order.
        upstream: what upstream makes of the base.
        verdicts: patch number -> the right verdict.
        right: the new release with what is still needed of the patches; None: a person must say.
        base: the old release.
    """

    name: str
    patches: tuple[Patch, ...]
    upstream: Callable[[Tree], Tree]
    verdicts: Mapping[str, Verdict]
    right: Callable[[Tree], Tree] | None
    base: Tree = field(default_factory=lambda: release_files(BASE))

    def new_release(self) -> Tree:
        """The files of the new release."""
        return self.upstream(dict(self.base)) | {
            path: entry
            for path, entry in release_files(UPSTREAM).items()
            if path == "vllm/_version.py"
        }


def edit(path: str, old: str, new: str) -> Callable[[Tree], Tree]:
    """Replace a text that occurs once in a file."""

    def change(files: Tree) -> Tree:
        entry = files[path]
        assert entry.content.count(old.encode()) == 1, (path, old)
        changed = entry.content.replace(old.encode(), new.encode())
        return files | {path: Entry(changed, entry.mode)}

    return change


def put(path: str, content: str, mode: str = "100644") -> Callable[[Tree], Tree]:
    """Write a file."""
    return lambda files: files | {path: Entry(content.encode(), mode)}


def remove(path: str) -> Callable[[Tree], Tree]:
    """Delete a file."""
    return lambda files: {p: e for p, e in files.items() if p != path}


def move(old: str, new: str) -> Callable[[Tree], Tree]:
    """Give a file another name."""
    return lambda files: remove(old)(files) | {new: files[old]}


def mode(path: str, to: str) -> Callable[[Tree], Tree]:
    """Give a file another mode."""
    return lambda files: files | {path: Entry(files[path].content, to)}


def both(*changes: Callable[[Tree], Tree]) -> Callable[[Tree], Tree]:
    """One change after the other."""

    def change(files: Tree) -> Tree:
        for one in changes:
            files = one(files)
        return files

    return change


def nothing(files: Tree) -> Tree:
    """No change."""
    return files


FIX = edit(ENGINE, "engine_040 = 40\n", "engine_040 = 4000\n")
ABOVE = edit(ENGINE, "engine_001 = 1\n", "new_a = 1\nnew_b = 2\nengine_001 = 1\n")
ONE = (Patch("0101", FIX),)


def _twin(files: Tree) -> Tree:
    rows = files["vllm/twins.py"].content.decode().split("\n")
    at = max(i for i, row in enumerate(rows) if row == "    check(value)")
    rows[at] = "    check(value, strict=True)"
    return files | {"vllm/twins.py": Entry("\n".join(rows).encode())}


def _higher_twins(files: Tree) -> Tree:
    return files | {"vllm/twins.py": twins(above=TWIN_DISTANCE)}


def _function_moves(files: Tree) -> Tree:
    rows = files[ENGINE].content.decode().split("\n")
    block = rows[29:50]
    kept = "\n".join(rows[:29] + rows[50:])
    return files | {ENGINE: Entry(kept.encode()), "vllm/moved.py": text(block)}


_LONG = text([f"value_of_line_number_{at:05d} = {at}" for at in range(10_000)])
_RUN = "def run(engine, *, now=True):\n    return engine.start()\n\n\ndef stop(engine):\n    pass\n"
_PROBE = {"Probes": "symbol vllm.run:run"}
_HELPER = "def helper():\n    return 1\n"


def _with(path: str, content: str | Entry) -> Tree:
    entry = content if isinstance(content, Entry) else Entry(content.encode())
    return release_files(BASE) | {path: entry}


CASES = [
    Case("nothing changes", ONE, nothing, {"0101": Verdict.CLEAN}, FIX),
    Case("lines are added above", ONE, ABOVE, {"0101": Verdict.MOVED}, FIX),
    Case(
        "twin functions, and lines added above them",
        (Patch("0101", _twin),),
        _higher_twins,
        {"0101": Verdict.MOVED},
        _twin,
        base=_with("vllm/twins.py", twins()),
    ),
    Case("merged as is", ONE, FIX, {"0101": Verdict.MERGED}, nothing),
    Case(
        "merged squashed",
        (Patch("0101", FIX), Patch("0102", edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n"))),
        both(FIX, edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n"), ABOVE),
        {"0101": Verdict.MERGED, "0102": Verdict.MERGED},
        nothing,
    ),
    Case(
        "merged with a change nearby",
        ONE,
        both(FIX, edit(ENGINE, "engine_044 = 44\n", "engine_044 = 4\n")),
        {"0101": Verdict.MERGED},
        nothing,
    ),
    Case(
        "one of two hunks merged",
        (Patch("0101", both(FIX, edit(ENGINE, "engine_070 = 70\n", "engine_070 = 7\n"))),),
        FIX,
        {"0101": Verdict.PARTLY_MERGED},
        edit(ENGINE, "engine_070 = 70\n", "engine_070 = 7\n"),
    ),
    Case(
        "the same fix in other words",
        ONE,
        edit(ENGINE, "engine_040 = 40\n", "engine_040 = 4 * 1000\n"),
        {"0101": Verdict.CONFLICT},
        None,
    ),
    Case(
        "look-alike text in another file",
        ONE,
        put(
            "vllm/other.py", "".join(f"{r}\n" for r in lines("engine", 39)) + "engine_040 = 4000\n"
        ),
        {"0101": Verdict.CLEAN},
        FIX,
    ),
    Case(
        "the file is renamed",
        ONE,
        move(ENGINE, "vllm/motor.py"),
        {"0101": Verdict.TARGET_MOVED},
        edit("vllm/motor.py", "engine_040 = 40\n", "engine_040 = 4000\n"),
    ),
    Case(
        "the lines move to another file",
        (Patch("0101", edit("vllm/long.py", "_00040 = 40\n", "_00040 = 4000\n")),),
        lambda files: files
        | {
            "vllm/long.py": text(_LONG.content.decode().split("\n")[100:200]),
            "vllm/moved.py": text(_LONG.content.decode().split("\n")[:100]),
        },
        {"0101": Verdict.TARGET_MOVED},
        None,
        base=_with("vllm/long.py", text(_LONG.content.decode().split("\n")[:200])),
    ),
    Case("the file is deleted", ONE, remove(ENGINE), {"0101": Verdict.TARGET_REMOVED}, None),
    Case(
        "the signature changes, the text still applies",
        (Patch("0101", edit("vllm/run.py", "    pass\n", "    engine.stop()\n"), _PROBE),),
        edit("vllm/run.py", "engine, *, now=True", "engine, context, *, now=True"),
        {"0101": Verdict.PROBE_FAILED},
        None,
        base=_with("vllm/run.py", _RUN),
    ),
    Case(
        "a patch requires one that is merged",
        (
            Patch("0101", FIX),
            Patch(
                "0102", edit(CONFIG, "config_005 = 5\n", "config_005 = 50\n"), {"Requires": "0101"}
            ),
        ),
        FIX,
        {"0101": Verdict.MERGED, "0102": Verdict.DEPENDS},
        None,
    ),
    Case(
        "a mode changes",
        (Patch("0101", mode("tools/run.sh", "100644")),),
        ABOVE,
        {"0101": Verdict.CLEAN},
        mode("tools/run.sh", "100644"),
    ),
    Case(
        "the patch renames a file",
        (Patch("0101", move("vllm/dos.py", "vllm/two.py")),),
        ABOVE,
        {"0101": Verdict.CLEAN},
        move("vllm/dos.py", "vllm/two.py"),
    ),
    Case(
        "carriage returns",
        (Patch("0101", edit("vllm/dos.py", "two = 2\r\n", "two = 22\r\n")),),
        edit("vllm/dos.py", "one = 1\r\n", "zero = 0\r\na = 1\r\nb = 1\r\nc = 1\r\none = 1\r\n"),
        {"0101": Verdict.MOVED},
        edit("vllm/dos.py", "two = 2\r\n", "two = 22\r\n"),
    ),
    Case(
        "no newline at the end",
        (Patch("0101", edit("vllm/no_newline.py", "beta = 2", "beta = 22")),),
        edit("vllm/no_newline.py", "alpha = 1\n", "zero = 0\na = 1\nb = 1\nc = 1\nalpha = 1\n"),
        {"0101": Verdict.MOVED},
        edit("vllm/no_newline.py", "beta = 2", "beta = 22"),
    ),
    Case(
        "names and text beyond ASCII",
        (Patch("0101", edit("vllm/ünïcode.py", "unicode_006 = 6\n", "unicode_006 = 'süß 六'\n")),),
        edit("vllm/ünïcode.py", "unicode_001 = 1\n", "neu = 'ß'\nunicode_001 = 1\n"),
        {"0101": Verdict.MOVED},
        edit("vllm/ünïcode.py", "unicode_006 = 6\n", "unicode_006 = 'süß 六'\n"),
    ),
    Case(
        "a file of ten thousand lines",
        (Patch("0101", edit("vllm/long.py", "_09000 = 9000\n", "_09000 = 9\n")),),
        edit(
            "vllm/long.py",
            "value_of_line_number_00001 = 1\n",
            "".join(f"x{i} = {i}\n" for i in range(500)),
        ),
        {"0101": Verdict.MOVED},
        edit("vllm/long.py", "_09000 = 9000\n", "_09000 = 9\n"),
        base=_with("vllm/long.py", _LONG),
    ),
    Case(
        "the patch only adds a file",
        (Patch("0101", put("vllm/helper.py", _HELPER)),),
        ABOVE,
        {"0101": Verdict.CLEAN},
        put("vllm/helper.py", _HELPER),
    ),
    Case(
        "upstream adds the same file",
        (Patch("0101", put("vllm/helper.py", _HELPER)),),
        put("vllm/helper.py", _HELPER),
        {"0101": Verdict.MERGED},
        nothing,
    ),
    Case(
        "upstream adds another file of that name",
        (Patch("0101", put("vllm/helper.py", _HELPER)),),
        put("vllm/helper.py", "def other():\n    return 2\n"),
        {"0101": Verdict.CONFLICT},
        None,
    ),
    Case(
        "the lines that a patch deletes are gone",
        (Patch("0101", edit(ENGINE, "engine_040 = 40\n", "")),),
        edit(ENGINE, "engine_040 = 40\n", ""),
        {"0101": Verdict.MERGED},
        nothing,
    ),
    Case(
        "the context changes beside the hunk",
        ONE,
        edit(ENGINE, "engine_042 = 42\n", "engine_042 = 'other'\n"),
        {"0101": Verdict.MOVED},
        FIX,
    ),
]
