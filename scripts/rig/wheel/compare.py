"""The independent check of a repack: the new wheel against the release's and the applied tree.

It derives what must be in the wheel from both trees and the release's wheel, not from the plan,
and compares the packed bytes of every member that must not have changed.
"""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rig.errors import RigError
from rig.git import Git
from rig.pins import Flavour
from rig.series.applied import AppliedTree
from rig.series.pristine import PRISTINE_REF
from rig.wheel.inspect import open_wheel
from rig.wheel.naming import WheelName
from rig.wheel.provenance import PROVENANCE_PATH
from rig.wheel.record import parse_record
from rig.wheel.scope import VERSION_PATH
from rig.wheel.tree import blob_id, list_package

_LOCAL_HEADER = 30
_CHUNK = 1 << 20
_REWRITTEN_LINES = {
    Flavour.CUDA: (b"Name: ", b"Version: "),
    Flavour.CPU: (
        b"Name: ",
        b"Version: ",
        b"Requires-Dist: torch==",
        b"Requires-Dist: torchaudio",
        b"Requires-Dist: torchcodec",
    ),
}


def compare_with_release(
    built: Path,
    name: WheelName,
    release: Path,
    release_name: WheelName,
    applied: AppliedTree,
    flavour: Flavour,
) -> None:
    """Prove that a repacked wheel is the release's, but for the series and our names.

    Raises:
        RigError: names the member that is not what it must be.
    """
    git = Git(applied.folder)
    pristine = list_package(git, PRISTINE_REF)
    final = list_package(git, applied.final_tree)
    changed = {p for p in pristine.keys() | final.keys() if pristine.get(p) != final.get(p)}
    old_info, new_info = f"{release_name.dist_info}/", f"{name.dist_info}/"

    def renamed(path: str) -> str:
        return new_info + path.removeprefix(old_info) if path.startswith(old_info) else path

    with ExitStack() as stack:
        old_zip = stack.enter_context(open_wheel(release))
        new_zip = stack.enter_context(open_wheel(built))
        old_bytes = stack.enter_context(_mapped(release))
        new_bytes = stack.enter_context(_mapped(built))
        old = {renamed(m.filename): m for m in old_zip.infolist() if not m.is_dir()}
        new = {m.filename: m for m in new_zip.infolist()}
        wanted = (old.keys() - changed) | (changed & final.keys()) | {PROVENANCE_PATH}
        if new.keys() != wanted:
            raise _differs("it holds other files than it must", new.keys() ^ wanted)
        wrong = [p for p in changed & final.keys() if blob_id(new_zip.read(p)) != final[p].blob]
        if wrong:
            raise _differs("patched files are not the tree's", wrong)
        rewritten = {new_info + n for n in ("METADATA", "WHEEL", "RECORD")}
        rewritten |= {VERSION_PATH, PROVENANCE_PATH}
        kept = wanted - changed - rewritten
        wrong = [p for p in kept if not _same_member(old[p], old_bytes, new[p], new_bytes)]
        if wrong:
            raise _differs("members that had to be copied were changed", wrong)
        old_rows = parse_record(old_zip.read(f"{old_info}RECORD"), f"{old_info}RECORD", release)
        new_rows = parse_record(new_zip.read(f"{new_info}RECORD"), f"{new_info}RECORD", built)
        old_rows = {renamed(p): row for p, row in old_rows.items()}
        wrong = [p for p in kept if new_rows.get(p) != old_rows.get(p)]
        if wrong:
            raise _differs("RECORD's lines for copied files were changed", wrong)
        metadata = [
            z.read(f"{i}METADATA").splitlines()
            for z, i in ((old_zip, old_info), (new_zip, new_info))
        ]
    before, after = (_without_rewritten(lines, flavour) for lines in metadata)
    if before != after:
        raise _differs("METADATA changed in lines that had to stay", [f"{new_info}METADATA"])


def _same_member(
    old: zipfile.ZipInfo, old_bytes: mmap.mmap, new: zipfile.ZipInfo, new_bytes: mmap.mmap
) -> bool:
    def facts(m: zipfile.ZipInfo) -> tuple[object, ...]:
        packed = (m.CRC, m.file_size, m.compress_size, m.compress_type)
        return (*packed, m.date_time, m.external_attr, m.extra)

    if facts(old) != facts(new):
        return False
    old_at, new_at = _data_offset(old, old_bytes), _data_offset(new, new_bytes)
    for at in range(0, old.compress_size, _CHUNK):
        size = min(_CHUNK, old.compress_size - at)
        left = old_bytes[old_at + at : old_at + at + size]
        if left != new_bytes[new_at + at : new_at + at + size]:
            return False
    return True


def _data_offset(member: zipfile.ZipInfo, data: mmap.mmap) -> int:
    at = member.header_offset
    name_size = int.from_bytes(data[at + 26 : at + 28], "little")
    extra_size = int.from_bytes(data[at + 28 : at + 30], "little")
    return at + _LOCAL_HEADER + name_size + extra_size


def _without_rewritten(lines: list[bytes], flavour: Flavour) -> list[bytes]:
    """METADATA's lines without those that a repack may rewrite; the description stays whole."""
    end = lines.index(b"") if b"" in lines else len(lines)
    return [x for x in lines[:end] if not x.startswith(_REWRITTEN_LINES[flavour])] + lines[end:]


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        yield mapped


def _differs(what: str, names: object) -> RigError:
    listed = sorted(names) if isinstance(names, (set, list, frozenset)) else [str(names)]
    return RigError(
        f"the built wheel is not as it must be: {what}",
        where=", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else ""),
        next_step="nothing was published; this is a fault of these tools: report it",
    )
