"""The table that plain `nvidia-smi` prints.

Each card has two lines, then lines on MIG. Columns move between drivers; bars separate them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rig.box.facts import CardProcess
from rig.box.pasted.draft import Draft, address_of, number_of, put, size_of, whole, yes_or_no

_HEAD = re.compile(r"NVIDIA-SMI \S{1,30}.{0,80}?(?:Driver|KMD) Version: ([\d.]{3,30})")
_CUDA = re.compile(r"CUDA (?:UMD )?Version: (\d{1,3})\.(\d{1,3})")
_CARD = re.compile(r"^\s*(\d{1,3})\s+(.{1,80}?)\s+(On|Off|N/A)\s*$")
_BUS = re.compile(r"^\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s+(On|Off|N/A)\s*$")
_POWER = re.compile(r"(\d{1,5}W|N/A|ERR!)?\s*/\s*(\d{1,5})W")
_TEMPERATURE = re.compile(r"\b(\d{1,3})C\b")
_MEMORY = re.compile(r"(\d{1,9})MiB\s*/\s*(\d{1,9})MiB")
_LOAD = re.compile(r"^\s*(\d{1,3})%")
_PROCESS = re.compile(
    r"^\s*(\d{1,3})\s+(?:\S+\s+\S+\s+)?(\d{1,9})\s+([CGM+]{1,3})\s+(.{1,200}?)\s+"
    r"(\d{1,9}MiB|N/A)\s*$"
)


def read_smi_table(lines: Sequence[str], draft: Draft) -> bool:
    """Whether the text holds such a table; what it says goes into the draft."""
    found = False
    card: int | None = None
    processes: dict[int, list[CardProcess]] = {}
    in_processes = False
    for line in lines:
        if head := _HEAD.search(line):
            found = True
            put(draft.host, driver_version=head[1])
        if (cuda := _CUDA.search(line)) and "NVIDIA-SMI" in line:
            put(draft.host, driver_cuda=(int(cuda[1]), int(cuda[2])))
        if line.strip() == "No devices were found":
            found = draft.looked_at_cards = True
        elif "NVIDIA-SMI has failed" in line:
            found = True
            put(draft.host, driver_refused=True)
            draft.note("nvidia-smi could not reach the driver, so nothing is known of cards")
        cells = line.strip().strip("|").split("|") if "|" in line else []
        if len(cells) == 1 and "Processes:" in line:
            in_processes = True
        if len(cells) == 1 and in_processes:
            _process(cells[0], processes)
        if len(cells) < 2:
            continue
        first, bus = _CARD.match(cells[0]), _BUS.match(cells[1])
        if first and bus:
            _warn_if_cut(card, draft)
            card, found = int(first[1]), True
            facts = draft.card(card)
            put(facts, name=first[2].strip(), persistence=yes_or_no(first[3]))
            put(facts, display_active=yes_or_no(bus[2]))
            if address := address_of(bus[1]):
                draft.addresses.setdefault(card, address)
        elif card is not None and (memory := _MEMORY.search(cells[1])):
            _second_line(cells, memory, draft, card)
            card = None
    _warn_if_cut(card, draft)
    if in_processes:
        for index in draft.by_index:
            put(draft.card(index), processes=tuple(processes.get(index, ())))
    return found


def _second_line(cells: list[str], memory: re.Match[str], draft: Draft, card: int) -> None:
    used, total = size_of(memory[1] + "M"), size_of(memory[2] + "M")
    facts = draft.card(card)
    put(facts, memory_bytes=total)
    if used is not None and total is not None and used <= total:
        # The driver's own reserve is in neither figure, so that this is a little too much.
        put(facts, memory_free_bytes=total - used)
    if power := _POWER.search(cells[0]):
        put(facts, power_limit_w=number_of(power[2]))
    if temperature := _TEMPERATURE.search(cells[0]):
        put(facts, temperature_c=int(temperature[1]))
    if len(cells) > 2 and (load := _LOAD.match(cells[2])):
        put(facts, utilisation_percent=whole(load[1], 100))


def _process(cell: str, processes: dict[int, list[CardProcess]]) -> None:
    if match := _PROCESS.match(cell):
        size = None if match[5] == "N/A" else size_of(match[5])
        processes.setdefault(int(match[1]), []).append(
            CardProcess(pid=int(match[2]), name=match[4].strip(), memory_bytes=size)
        )


def _warn_if_cut(card: int | None, draft: Draft) -> None:
    if card is not None:
        draft.note(
            f"nvidia-smi's table is cut: the second line of GPU {card} (memory, power) is missing"
        )
