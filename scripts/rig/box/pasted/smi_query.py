"""The long list that `nvidia-smi -q` prints, whole or some of its sections.

Indentation is often lost in a paste, so that a line belongs to the last heading before it. That
is enough: no key that is read here stands under another heading with another meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rig.box.facts import CardProcess
from rig.box.pasted.draft import Draft, address_of, number_of, put, size_of, whole, yes_or_no

_CARD = re.compile(r"^\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_PAIR = re.compile(r"^(\s*)([A-Za-z][^:]{0,60}?)\s*:\s(.*)$|^(\s*)([A-Za-z][^:]{0,60}?)\s*:$")
_HEADING = re.compile(r"^\s*([A-Za-z][A-Za-z0-9 ()/-]{1,60})\s*$")


class _Reader:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._heading = ""
        self._process: dict[str, str] = {}
        self.order: list[str] = []
        self.address: str | None = None
        self.found = False

    def see(self, line: str) -> None:
        if card := _CARD.match(line):
            self._end_process()
            self.address, self._heading, self.found = address_of(card[1]), "", True
            self._draft.looked_at_cards = True
            if self.address and self.address not in self.order:
                self.order.append(self.address)
                self._draft.at(self.address)
        elif pair := _PAIR.match(line):
            self._pair((pair[2] or pair[5]).strip(), (pair[3] or "").strip())
        elif heading := _HEADING.match(line):
            self._end_process()
            self._heading = heading[1].strip()

    def _pair(self, key: str, value: str) -> None:
        draft = self._draft
        if key == "Attached GPUs" and (count := whole(value, 64)) is not None:
            draft.attached = max(draft.attached, count)
            draft.looked_at_cards = self.found = True
        elif key == "Driver Version" and re.fullmatch(r"[\d.]{3,30}", value):
            put(draft.host, driver_version=value)
            self.found = True
        elif key == "CUDA Version" and (match := re.fullmatch(r"(\d{1,3})\.(\d{1,3})", value)):
            put(draft.host, driver_cuda=(int(match[1]), int(match[2])))
        elif self.address is not None:
            self._of_card(draft.at(self.address), key, value)
        elif self._heading == "BAR1 Memory Usage" and key == "Total":
            self.found = True
            draft.note(f"a BAR1 of {value} is in the text without the card that it belongs to")

    def _of_card(self, facts: dict[str, object], key: str, value: str) -> None:
        match self._heading, key:
            case "FB Memory Usage", "Total":
                put(facts, memory_bytes=size_of(value))
            case "FB Memory Usage", "Free":
                put(facts, memory_free_bytes=size_of(value))
            case "BAR1 Memory Usage", "Total":
                put(facts, bar1_bytes=size_of(value))
            case "PCIe Generation", "Max" | "Device Max":
                put(facts, link_generation_max=whole(value, 9))
            case "PCIe Generation", "Current":
                put(facts, link_generation_now=whole(value, 9))
            case "PCIe Generation", "Host Max":
                put(facts, link_slot_generation_max=whole(value, 9))
            case "Link Width", "Max":
                put(facts, link_width_max=whole(value.rstrip("x"), 32))
            case "Link Width", "Current":
                put(facts, link_width_now=whole(value.rstrip("x"), 32))
            case "Utilization", "Gpu" | "GPU":
                put(facts, utilisation_percent=_round(number_of(value)))
            case "Temperature", "GPU Current Temp":
                put(facts, temperature_c=_round(number_of(value)))
            case "MIG Mode", "Current":
                put(facts, mig=yes_or_no(value))
            case "Clocks", "Graphics":
                put(facts, graphics_clock_mhz=_round(number_of(value)))
            case "Max Clocks", "Graphics":
                put(facts, graphics_clock_max_mhz=_round(number_of(value)))
            case "Processes", _:
                self._of_process(key, value)
            case _:
                _plain(facts, key, value)

    def _of_process(self, key: str, value: str) -> None:
        if key == "Process ID":
            self._end_process()
            self._process = {}
        self._process[key] = value

    def _end_process(self) -> None:
        pid = whole(self._process.get("Process ID"))
        if pid is not None and self.address is not None:
            facts = self._draft.at(self.address)
            size = size_of(self._process.get("Used GPU Memory"))
            process = CardProcess(
                pid=pid, name=self._process.get("Name") or None, memory_bytes=size
            )
            facts["processes"] = (*(facts.get("processes") or ()), process)
        self._process = {}

    def end(self) -> None:
        self._end_process()


def _plain(facts: dict[str, object], key: str, value: str) -> None:
    """Keys that mean one thing wherever they stand."""
    match key:
        case "Product Name":
            put(facts, name=value or None)
        case "GPU UUID":
            put(facts, uuid=value if value.startswith("GPU-") else None)
        case "Persistence Mode":
            put(facts, persistence=yes_or_no(value))
        case "Display Active":
            put(facts, display_active=yes_or_no(value))
        case "Current Power Limit" | "Power Limit":
            put(facts, power_limit_w=number_of(value))
        case "Default Power Limit":
            put(facts, power_default_w=number_of(value))
        case "Max Power Limit":
            put(facts, power_max_w=number_of(value))
        case _:
            pass


def _round(number: float | None) -> int | None:
    return None if number is None else round(number)


def read_smi_query(lines: Sequence[str], draft: Draft) -> bool:
    """Whether the text holds such a list; what it says goes into the draft."""
    reader = _Reader(draft)
    for line in lines:
        reader.see(line)
    reader.end()
    shown = len(reader.order)
    if shown and shown == draft.attached:
        for index, address in enumerate(sorted(reader.order)):
            draft.addresses.setdefault(index, address)
    elif shown < draft.attached:
        draft.note(f"nvidia-smi -q is cut: {draft.attached} GPUs are attached, {shown} are shown")
    return reader.found
