"""Which cards the driver still shows, asked in a process of its own: NVML may hang, too."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from typing import Any

from rig.box.facts import Box
from rig.launch.processes import run_bounded

_PATIENCE_S = 20
_ACTIONS = {
    1: "the driver wants it to be reset",
    2: "the driver wants the machine to be rebooted",
    3: "the driver wants P2P traffic to be drained",
    4: "the driver wants it to be drained and reset",
    6: "the driver wants its bus to be reset",
    7: "the driver wants the machine to be rebooted",
}


def missing_cards(box: Box) -> dict[int, str]:
    """The cards of a box that are gone or want to be reset, with the reason; {} if all are well.

    Asks the driver now (up to 20 s). If it does not answer, that is the reason for all cards.
    """
    cards = box.cards or ()
    try:
        done = run_bounded([sys.executable, "-P", "-m", "rig.p2p.present"], _PATIENCE_S)
        done.check_returncode()
        shown: dict[str, str] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        why = f"the driver does not answer for {_PATIENCE_S} s"
        return {card.index: why for card in cards}
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        why = f"the driver cannot be asked: {said[-1] if said else error}"
        return {card.index: why for card in cards}
    gone = "it fell off the bus: the driver does not show it any more"
    states = {card.index: shown.get(card.bus_id, gone) for card in cards}
    return {index: why for index, why in states.items() if why}


def state_of_each(nvml: Any) -> dict[str, str]:
    """Bus id -> what is the matter with a card, "" if nothing is, as NVML says it now."""
    found = {}
    nvml.nvmlInit()
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            card = nvml.nvmlDeviceGetHandleByIndex(index)
            bus_id = _short(nvml.nvmlDeviceGetPciInfo(card).busId)
        except nvml.NVMLError:
            continue  # not shown: its absence says it
        found[bus_id] = _state(nvml, card)
    return found


def _state(nvml: Any, card: Any) -> str:
    try:
        nvml.nvmlDeviceGetMemoryInfo(card)
    except nvml.NVMLError as error:
        return f"the driver says: {error}"
    field = getattr(nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
    if field is None:
        return ""
    try:
        value = nvml.nvmlDeviceGetFieldValues(card, [field])[0]
    except nvml.NVMLError:
        return ""
    known = value.nvmlReturn == nvml.NVML_SUCCESS
    return _ACTIONS.get(int(value.value.uiVal), "") if known else ""


def _short(bus_id: str | bytes) -> str:
    """ "00000000:01:00.0", as NVML writes it, as "0000:01:00.0"."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def main() -> None:
    """Print the states as JSON."""
    nvml = importlib.import_module("pynvml")  # it has no types
    print(json.dumps(state_of_each(nvml)))


if __name__ == "__main__":
    main()
