"""Traffic between cards: NCCL's peer-to-peer, custom all-reduce, PCIe IPC.

All of it is off until `rig p2p` has shown, by value, that it delivers: a driver's grant is often
no delivery, and then the engine hangs or computes rubbish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from rig.box.facts import Box
from rig.launch.arguments import switch_of
from rig.launch.decide.words import Known, Layout, Notes, User
from rig.p2p.cases import is_nvlinked, nccl_p2p_level
from rig.p2p.surroundings import custom_permit
from rig.p2p.verdict import Verdict, Way

CUSTOM_ON_PCIE = "VLLM_CUSTOM_ALLREDUCE_PCIE"
PCIE_IPC = "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC"
_CUSTOM = "--disable-custom-all-reduce"
_CUSTOM_SIZES = (2, 4, 6, 8, 16)
_PCIE_IPC_SIZES = (2, 4, 8)
_PCIE_IPC_SINCE = (0, 33)
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


@dataclass(frozen=True)
class Peer:
    """What the cards may do between them.

    Args:
        variables: name -> (value, why).
        custom: whether custom all-reduce is left on; custom_why is why, or why not.
        ipc: whether something hands memory to other processes, which excludes expandable
            segments.
        files: path -> text of what a variable points to.
    """

    variables: Mapping[str, tuple[str, str]]
    custom: bool
    custom_why: str
    ipc: bool
    files: Mapping[str, str]


def decide_peer(known: Known, layout: Layout, user: User, notes: Notes) -> Peer:
    """What is proven for exactly these cards, and so may be used."""
    variables: dict[str, tuple[str, str]] = {}
    refusal = _why_never(known, layout)
    proven = refusal is None and _nccl_proven(known.verdict, layout)
    if proven:
        assert known.box is not None and layout.cards is not None  # else nothing is proven
        level, why = _level(known.box, layout.cards)
        variables["NCCL_P2P_LEVEL"] = (level, why)
        notes.say("left", "NCCL_P2P_DISABLE", "P2P is proven by value for these cards")
    elif layout.devices > 1 and "NCCL_P2P_LEVEL" in user.inherited and not user.rehearse:
        level = user.inherited["NCCL_P2P_LEVEL"]
        why = refusal or "`./rig p2p` has not proven P2P here"
        notes.say("conflict", "NCCL_P2P_LEVEL", f"your NCCL_P2P_LEVEL={level} wins, though {why}")
    else:
        why = refusal or "P2P has not passed `./rig p2p` by value on these cards"
        off = f"granted P2P is often not delivered (hang or wrong data): off, as {why}"
        variables["NCCL_P2P_DISABLE"] = ("1", off)
    custom, custom_why = _custom(known, layout, user, refusal, variables)
    if user.custom_all_reduce_pcie and not custom:
        why = f"--custom-all-reduce-pcie has no effect: {custom_why}"
        notes.say("conflict", "--custom-all-reduce-pcie", why)
    told = next(
        (n for n in _ALLOCATOR if "expandable_segments:True" in user.inherited.get(n, "")), ""
    )
    if custom and told:
        custom_why = f"your {told} asks for expandable segments, which exclude it"
        notes.say("conflict", told, f"{custom_why}: custom all-reduce stays off")
        variables.pop(CUSTOM_ON_PCIE, None)
        custom = False
    ipc = custom
    # One way at a time: each was proven alone. A measured gain is published for custom only.
    if not custom and refusal is None and _pcie_ipc_allowed(known, layout) and not told:
        variables[PCIE_IPC] = ("1", "all-reduce over PCIe IPC is proven by value on these cards")
        ipc = True
    told_ipc = user.inherited.get(PCIE_IPC, "0").strip() not in ("", "0")
    if told_ipc and PCIE_IPC not in variables and layout.tensor > 1 and not user.rehearse:
        why = refusal or (
            "`./rig p2p` has not proven it here" if not custom else "one way is enough"
        )
        notes.say("conflict", PCIE_IPC, f"your {PCIE_IPC} wins, though {why}")
        ipc = True
    disabled = switch_of(user.arguments, _CUSTOM)
    if disabled is False:
        if not custom:
            why = f"your wish for custom all-reduce wins, though {custom_why}"
            notes.say("conflict", _CUSTOM, why)
        ipc = True
    elif disabled and custom:
        notes.say("conflict", _CUSTOM, "your --disable-custom-all-reduce wins: it is proven here")
        variables.pop(CUSTOM_ON_PCIE, None)
        ipc = told_ipc or PCIE_IPC in variables
    files = {}
    if CUSTOM_ON_PCIE in variables:
        assert known.box is not None and layout.cards is not None
        files[variables[CUSTOM_ON_PCIE][0]] = custom_permit(known.box, layout.cards)
    return Peer(variables, custom, custom_why, ipc, files)


def _why_never(known: Known, layout: Layout) -> str | None:
    """Why no peer traffic may be used whatever was proven, or None."""
    if layout.devices < 2:
        return "one card has no peers"
    if known.rig is not None and known.rig.p2p.policy == "off":
        return f"the rig file {known.rig.name} says p2p.policy = off"
    if known.box is None or known.box.cards is None or layout.cards is None:
        return "it is not known which cards are used"
    used = [card for card in known.box.cards if card.index in layout.cards]
    generations = {card.compute_capability for card in used}
    if None in generations:
        return "it is not known whether the cards are of one generation"
    if len(generations) > 1:
        return "the cards are of more than one generation"
    return None


def _nccl_proven(verdict: Verdict | None, layout: Layout) -> bool:
    if verdict is None or layout.cards is None:
        return False
    ways: tuple[Way, ...] = ("copy", "copy-both-ways")
    pairs = list(combinations(sorted(layout.cards), 2))
    copies = all(verdict.proven(way, pair) for pair in pairs for way in ways)
    return copies and verdict.proven("nccl-p2p", layout.cards)


def _level(box: Box, cards: tuple[int, ...]) -> tuple[str, str]:
    """The level with which it was proven, and why that one."""
    level = nccl_p2p_level(box, cards)
    if level == "PHB":
        return level, "P2P is proven by value; every pair in use meets below one host bridge"
    return level, "P2P is proven by value; pairs have separate root complexes, or it is not known"


def _custom(
    known: Known,
    layout: Layout,
    user: User,
    refusal: str | None,
    variables: dict[str, tuple[str, str]],
) -> tuple[bool, str]:
    """Whether custom all-reduce may be on, and why (not)."""
    if layout.tensor < 2:
        return False, "a rank that shares no layer has nothing to reduce"
    if refusal is not None:
        return False, refusal
    if layout.tensor not in _CUSTOM_SIZES:
        return False, f"vLLM has none for {layout.tensor} ranks"
    groups = layout.groups or ()
    verdict = known.verdict
    if verdict is None or not all(verdict.proven("custom", group) for group in groups):
        return False, "needs true P2P; off until `./rig p2p` has proven it by value"
    bridged = known.box is not None and all(is_nvlinked(known.box, group) for group in groups)
    if layout.tensor == 2 or bridged:
        return True, "proven by value for these cards"
    if not user.custom_all_reduce_pcie:
        why = "vLLM refuses it on more than two PCIe cards; proven here: --custom-all-reduce-pcie"
        return False, why
    if layout.pipeline * layout.data > 1:
        return False, "on more than two PCIe cards it is only for a single group of ranks"
    box = known.box
    if box is None or box.host.driver_version is None or None in _uuids(known, layout):
        return False, "the engine checks the cards' UUIDs and the driver, which are not known"
    path = f"{user.folder}/custom-all-reduce.json"
    variables[CUSTOM_ON_PCIE] = (path, "--custom-all-reduce-pcie, and it is proven by value")
    return True, "proven by value for these cards, and you asked for it"


def _uuids(known: Known, layout: Layout) -> list[str | None]:
    """The cards' UUIDs, in order of rank."""
    cards = (known.box.cards if known.box is not None else None) or ()
    found = {card.index: card.uuid for card in cards}
    return [found.get(index) for index in layout.cards or ()]


def _pcie_ipc_allowed(known: Known, layout: Layout) -> bool:
    if known.release is None or layout.tensor not in _PCIE_IPC_SIZES or known.verdict is None:
        return False
    numbers = tuple(int(part) for part in known.release.split(".")[:2] if part.isdecimal())
    groups = layout.groups or ()
    proven = all(known.verdict.proven("pcie-ipc", group) for group in groups)
    return numbers >= _PCIE_IPC_SINCE and proven
