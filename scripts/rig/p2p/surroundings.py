"""The files and the environment that the ranks of a case get."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rig.box.facts import Box
from rig.p2p.cases import Case, is_nvlinked

# Of the user's environment, what would change how data moves or which cards are seen. The check
# is of the settings that `serve` makes, not of these.
_NOT_INHERITED = (
    "NCCL_",
    "VLLM_",
    "CUDA_",
    "PYTORCH_",
    "TORCH_",
    "PYTHON",
    "RAY_",
    "GLOO_",
    "RIG_",
)
PERMIT = "permit.json"


def custom_permit(box: Box, cards: tuple[int, ...]) -> str:
    """The text of the file that lets vLLM use custom all-reduce on more than two PCIe cards.

    VLLM_CUSTOM_ALLREDUCE_PCIE names it (patch 0503). For a check it says so in advance, for a
    launch only after `Verdict.proven("custom", cards)`.
    """
    uuids = [card.uuid for card in box.cards or () if card.index in cards]
    return json.dumps(
        {"cards": uuids, "driver": box.host.driver_version, "proven": ["custom"]}, indent=1
    )


def write_spec(
    folder: Path, case: Case, *, device: str, iterations: int, seed: int, fault: str
) -> Path:
    """Write what the ranks are told to do."""
    path = folder / "spec.json"
    spec = {
        "way": case.way,
        "device": device,
        "cards": case.cards,
        "sizes": case.sizes,
        "iterations": iterations,
        "seed": seed,
        "folder": str(folder),
        "fault": fault,
    }
    path.write_text(json.dumps(spec))
    return path


def environment_of(
    case: Case, box: Box, folder: Path, inherited: Mapping[str, str], *, device: str
) -> dict[str, str]:
    """The whole environment of the ranks; writes the permit if the case needs one."""
    env = {k: v for k, v in inherited.items() if not k.startswith(_NOT_INHERITED)}
    scripts = Path(__file__).resolve().parents[2]
    env |= {
        "PYTHONPATH": str(scripts),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(folder / "vllm"),  # no P2P cache of an earlier box
        "HF_HUB_OFFLINE": "1",
    }
    if device == "cpu":
        return env | {"CUDA_VISIBLE_DEVICES": ""}
    env |= {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, case.cards)),
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": str(folder / "nccl.%p"),
    }
    if case.way == "nccl-p2p":
        env |= {"NCCL_P2P_DISABLE": "0", "NCCL_P2P_LEVEL": case.level}
    else:  # the other ways must stand alone
        env["NCCL_P2P_DISABLE"] = "1"
    if case.way == "custom" and len(case.cards) > 2 and not is_nvlinked(box, case.cards):
        permit = folder / PERMIT
        permit.write_text(custom_permit(box, case.cards))
        permit.chmod(0o600)
        env["VLLM_CUSTOM_ALLREDUCE_PCIE"] = str(permit)
    if case.way == "pcie-ipc":
        env["VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"] = "1"
    return env
