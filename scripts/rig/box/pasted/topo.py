"""The matrices of `nvidia-smi topo -m` and `nvidia-smi topo -p2p r`.

Pasted they come with tabs or spaces, indented, with a header that has lost its first cell or was
retyped, with columns of network cards, wrapped, or cut. So a row is known by its label, its cells
by their words, and its own place by the "X" in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rig.box.pasted.draft import MOST_CARDS, Draft, put

_GPU = re.compile(r"GPU(\d{1,3})$")
_COLUMN = re.compile(r"(?:GPU|NIC)\d{1,3}$|(?:mlx|bnxt|hfi|roce|ib|bond|eth|ens|enp)\w{1,20}$")
_LEVEL = re.compile(r"(?:SYS|NODE|PHB|PXB|PIX|NV(\d{1,3}))$")
_CODES = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
_COMMAND = re.compile(r"topo\s+(?:-p2p|--p2pstatus)\s+(\w+)|topo\s+(-m|--matrix)")


@dataclass
class _Matrix:
    columns: list[str] = field(default_factory=list)
    rows: dict[int, list[str]] = field(default_factory=dict)
    rests: dict[int, list[str]] = field(default_factory=dict)
    command: str = ""

    @property
    def gpus(self) -> list[int]:
        """The cards that its header or its rows name."""
        named = {int(m[1]) for c in self.columns if (m := _GPU.match(c))}
        return sorted(named | set(self.rows))

    @property
    def is_grant(self) -> bool:
        return any(cell in _CODES for cells in self.rows.values() for cell in cells)


def _is_cell(word: str) -> bool:
    return word == "X" or word in _CODES or _LEVEL.match(word) is not None


def _columns(words: Sequence[str]) -> list[str]:
    """The labels that a header line begins with."""
    found: list[str] = []
    for word in words:
        if not _COLUMN.match(word):
            break
        found.append(word)
    return found


def _matrices(lines: Sequence[str]) -> list[_Matrix]:
    found: list[_Matrix] = []
    current: _Matrix | None = None
    row: int | None = None  # the one that the next line may continue
    command = ""
    for line in lines:
        if told := _COMMAND.search(line):
            command, current = told[1] or "m", None
            continue
        words = line.split()
        label = _GPU.match(words[0]) if words else None
        if label and len(words) > 1 and _is_cell(words[1]):
            if current is None or int(label[1]) in current.rows:
                current = _Matrix(command=command)
                found.append(current)
            row = int(label[1])
            cells = 1
            while cells < len(words) and _is_cell(words[cells]):
                cells += 1
            current.rows[row] = words[1:cells]
            current.rests[row] = _rest(line, words, cells)
        elif label and (columns := _columns(words)):
            if current is not None and current.columns and not current.rows:
                current.columns += columns  # the header was wrapped
            else:
                current, row = _Matrix(columns, command=command), None
                found.append(current)
        elif current is not None and words and all(_is_cell(word) for word in words):
            if row is not None:
                current.rows[row] += words  # the row was wrapped
        elif current is not None and not current.rows and _columns(words):
            current.columns += _columns(words)
        elif not words:
            row = None
    return [matrix for matrix in found if matrix.rows]


def _rest(line: str, words: list[str], cells: int) -> list[str]:
    """What follows the cells of the matrix: with tabs the empty cells count, too."""
    if "\t" in line:
        parts = [part.strip() for part in line.split("\t")]
        start = next((i for i, part in enumerate(parts) if part), 0)
        return parts[start + cells :]
    return words[cells:]


def read_topo(lines: Sequence[str], draft: Draft) -> bool:
    """Whether the text holds such matrices; what they say goes into the draft."""
    matrices = _matrices(lines)
    for matrix in matrices:
        if max(matrix.gpus) >= MOST_CARDS:
            draft.note("a matrix of GPUs names more of them than a box can have: left out")
            continue
        _take(matrix, draft)
    return bool(matrices)


def _take(matrix: _Matrix, draft: Draft) -> None:
    what = "topo -p2p" if matrix.is_grant else "topo -m"
    order = [int(m[1]) if (m := _GPU.match(c)) else None for c in matrix.columns]
    if not order:
        order = list(range(max(map(len, matrix.rows.values()))))
        draft.note(f"the header of {what} is missing: its columns are taken to be GPU0, GPU1, ...")
    gpus = [gpu for gpu in matrix.gpus if gpu in order or gpu in matrix.rows]
    for gpu in gpus:
        draft.card(gpu)
    missing = [f"GPU{gpu}" for gpu in gpus if gpu not in matrix.rows]
    if missing:
        draft.note(f"{what} is cut: the rows of {', '.join(missing)} are missing")
    cells: dict[tuple[int, int], str] = {}
    for gpu, row in matrix.rows.items():
        if gpu not in order or order.index(gpu) >= len(row) or row[order.index(gpu)] != "X":
            draft.note(f"the row of GPU{gpu} in {what} does not fit its header: left out")
            continue
        short = [f"GPU{o}" for o in order[len(row) :] if o is not None]
        if short:
            draft.note(f"{what} is cut: the row of GPU{gpu} ends before {short[0]}")
        for other, cell in zip(order, row, strict=False):
            if other is not None and other != gpu:
                cells[gpu, other] = cell
        if not matrix.is_grant:
            put(draft.card(gpu), numa_node=_numa(matrix.rests[gpu]))
    for first in gpus:
        for second in gpus:
            if first < second:
                seen = {cells[key] for key in ((first, second), (second, first)) if key in cells}
                _pair(matrix, draft, (first, second), seen)


def _pair(matrix: _Matrix, draft: Draft, pair: tuple[int, int], seen: set[str]) -> None:
    facts = draft.pairs.setdefault(pair, {})
    if matrix.is_grant:
        # Of reading and writing; atomics, NVLink and "prop" are other questions.
        if matrix.command in ("a", "n", "p"):
            return
        codes = sorted(facts.pop("codes", set()) | seen)
        facts["codes"] = set(codes)
        return
    if len(seen) > 1:
        draft.note(f"topo -m says {' and '.join(sorted(seen))} of GPU{pair[0]} and GPU{pair[1]}")
    elif seen and (level := _LEVEL.match(next(iter(seen)))):
        put(facts, level="NV" if level[1] else level[0])
        put(facts, nvlinks=int(level[1]) if level[1] else None)


def settle_grants(draft: Draft) -> None:
    """Judge each pair by all the matrices that spoke of it: one refusal is a refusal."""
    for facts in draft.pairs.values():
        codes = facts.pop("codes", set())
        refused = sorted(codes - {"OK", "U", "X"})
        if refused:
            put(facts, p2p="refused", p2p_why=refused[0])
        elif codes == {"OK"}:
            put(facts, p2p="granted", p2p_why="OK")


def _numa(rest: list[str]) -> int | None:
    """Of "0-15 0 N/A", of the same with empty cells, of "NUMA 0". One node, or unknown."""
    if rest[:1] == ["NUMA"]:
        rest = ["", *rest[1:]]
    node = rest[1] if len(rest) > 1 else ""
    return int(node) if node.isascii() and node.isdigit() and len(node) < 4 else None
