"""The gates between a driver's grant of peer-to-peer and data that arrives, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from rig.box.facts import Box, Card, Pair
from rig.box.rig_file import Rig
from rig.doctor.context import Context
from rig.doctor.finding import (
    ONE_CARD,
    Check,
    Finding,
    Said,
    combine,
    gib,
    nothing_to_judge,
    used_cards,
)

_CODES = {
    "CNS": "the chipset is not supported",
    "GNS": "the driver refuses it for this GPU, as the stock driver does for GeForce",
    "TNS": "the topology is not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key",
    "U": "the driver does not know",
}


def few_cards(cards: tuple[Card, ...] | None) -> Said | None:
    """The answer when there are not two cards."""
    nothing = nothing_to_judge(cards)
    if nothing is not None:
        return nothing
    return Said("pass", ONE_CARD) if cards is not None and len(cards) == 1 else None


def pairs_of(box: Box, cards: tuple[Card, ...]) -> list[tuple[int, int, Pair | None]]:
    seen = {(pair.first, pair.second): pair for pair in box.pairs or ()}
    numbers = sorted(card.index for card in cards)
    return [(a, b, seen.get((a, b))) for a, b in combinations(numbers, 2)]


def p2p_generation(box: Box, rig: Rig | None, context: Context) -> Said:
    """All cards of one GPU generation."""
    cards = used_cards(box, context) or ()
    few = few_cards(used_cards(box, context))
    if few is not None:
        return few
    if any(card.compute_capability is None for card in cards):
        return Said("unknown", "compute capability not known of every card")
    kinds = sorted({card.compute_capability for card in cards if card.compute_capability})
    seen = "compute capability " + " and ".join(f"{major}.{minor}" for major, minor in kinds)
    if len(kinds) > 1:
        step = "choose cards of one generation: `CUDA_DEVICE_ORDER=PCI_BUS_ID "
        step += "CUDA_VISIBLE_DEVICES=...`; across generations P2P stays off"
        return Said("warn", seen, step)
    return Said("pass", seen)


def p2p_bar1(box: Box, rig: Rig | None, context: Context) -> Said:
    """BAR1 against the card's memory, unless a hypervisor shows it."""
    cards = used_cards(box, context)
    few = few_cards(cards)
    if few is not None:
        return few
    virtual = box.host.virtual_machine

    def judge(card: Card) -> Said:
        bar1, memory = card.bar1_bytes, card.memory_bytes
        if bar1 is None or memory is None:
            return Said("unknown", "BAR1 or memory not known")
        seen = f"BAR1 {gib(bar1)}, memory {gib(memory)}"
        if virtual:
            return Said("unknown", f"{seen}, as the hypervisor shows it: ask on its host")
        if bar1 < memory:
            step = "in the BIOS: Above 4G Decoding and Resizable BAR on, CSM off; then `nvidia-smi "
            step += "-q -d MEMORY | grep -A3 BAR1`; if it stays, the card's own BIOS lacks it"
            return Said("warn", seen, step)
        if virtual is None:
            return Said("unknown", f"{seen}; not known whether this is a virtual machine")
        return Said("pass", seen)

    return combine((str(card.index), judge(card)) for card in cards or ())


def iommu(box: Box, rig: Rig | None, context: Context) -> Said:
    """The IOMMU's mode."""
    few = few_cards(used_cards(box, context))
    if few is not None:
        return few
    mode = box.host.iommu
    if mode is None:
        return Said("unknown", "the IOMMU's mode is not known")
    if mode != "translated":
        seen = {"off": "off", "passthrough": "on, passing through"}[mode]
        virtual = box.host.virtual_machine
        if virtual:
            return Said("unknown", f"{seen}, as the hypervisor shows it: ask on its host")
        if virtual is None:
            return Said("unknown", f"{seen}; not known whether this is a virtual machine")
        return Said("pass", seen)
    grants = {pair.p2p for pair in box.pairs or ()}
    granted = "granted" in grants
    seen = "on, and it translates" + (", while P2P is granted" * granted)
    step = (
        "give the kernel `iommu=pt` and reboot: Debian and Ubuntu: add it to "
        "GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub, `sudo update-grub`; Fedora: `sudo grubby "
        "--update-kernel=ALL --args=iommu=pt`; Arch: `sudo grub-mkconfig -o /boot/grub/grub.cfg`; "
        "systemd-boot: the options line of the entry. Until then leave P2P off, as `serve` does"
    )
    if grants == {"refused"}:
        step = f"nothing to do while the driver refuses P2P; before it is to grant it: {step}"
    return Said("fail" if granted else "warn", seen, step)


def acs(box: Box, rig: Rig | None, context: Context) -> Said:
    """ACS on the bridges above the cards."""
    cards = used_cards(box, context)
    few = few_cards(cards)
    if few is not None:
        return few
    known = {bridge.bus_id: bridge.acs_redirects for bridge in box.bridges or ()}
    if box.bridges is None or any(card.bridges is None for card in cards or ()):
        return Said("unknown", "the bridges above the cards are not known")
    above = sorted({bus for card in cards or () for bus in card.bridges or ()})
    redirecting = [bus for bus in above if known.get(bus)]
    if redirecting:
        steps = "; ".join(f"`sudo setpci -s {bus} ECAP_ACS+0x6.w=0000`" for bus in redirecting)
        step = f"off until the next boot: {steps}. It ends the isolation that virtual machines "
        step += "rely on; try it only where `./rig p2p` fails or is slow"
        return Said("warn", f"requests are redirected at {', '.join(redirecting)}", step)
    hidden = [bus for bus in above if known.get(bus) is None]
    if hidden:
        return Said("unknown", f"could not be read (it takes root) at {', '.join(hidden)}")
    return Said("pass", f"no redirection on {len(above)} bridges")


def p2p_grant(box: Box, rig: Rig | None, context: Context) -> Said:
    """What the driver grants; a grant is not a delivery."""
    cards = used_cards(box, context)
    few = few_cards(cards)
    if few is not None:
        return few

    def judge(pair: Pair | None) -> Said:
        if pair is None or pair.p2p is None:
            return Said("unknown", "not known")
        if pair.p2p == "granted":
            return Said("pass", "granted, which is the driver's word and no delivery")
        code = pair.p2p_why or ""
        why = f" ({code}: {_CODES[code]})" if code in _CODES else f" ({code})" * bool(code)
        step = "nothing needs it: `serve` runs without P2P. To have it: a driver that grants it, "
        step += "then `./rig p2p`"
        return Said("warn", f"refused{why}", step)

    return combine(((f"{a}-{b}", judge(p)) for a, b, p in pairs_of(box, cards or ())), "pair")


# Nearest the hardware first: each is of use only when those before it are passed.
GATES = (
    "cards-seen",
    "p2p-generation",
    "p2p-bar1",
    "card-display",
    "iommu",
    "acs",
    "p2p-grant",
    "p2p-verdict",
)


def which_gate(findings: Sequence[Finding]) -> str:
    """One sentence: the first gate on the way to proven P2P that is not passed."""
    by_name = {finding.check: finding for finding in findings}
    gates = [by_name[name] for name in GATES if name in by_name]
    if not gates:
        return "P2P: not looked at"
    last = by_name.get("p2p-verdict")
    if last is not None and last.seen == ONE_CARD:
        return f"P2P: {ONE_CARD}"
    if last is not None and last.state == "pass" and last.seen.startswith("proven"):
        return f"P2P: through all gates, {last.seen}"
    for number, gate in enumerate(gates, 1):
        if gate.state != "pass":
            return (
                f"P2P: behind gate {number} of {len(gates)}, {gate.check} ({gate.state}): "
                f"{gate.seen}"
            )
    return "P2P: all gates are open and nothing is proven: `./rig p2p`"


CHECKS = (
    Check(
        "p2p-generation",
        "peer-to-peer",
        p2p_generation,
        "whether all cards are of one generation",
        "Across GPU generations peer access is not given, or gives wrong data.",
        "`nvidia-smi --query-gpu=index,name,compute_cap --format=csv`",
        ("warn", "unknown", "pass"),
    ),
    Check(
        "p2p-bar1",
        "peer-to-peer",
        p2p_bar1,
        "BAR1 against the card's memory; in a virtual machine: unknown",
        "P2P over PCIe needs all of a card's memory mapped into BAR1.",
        "`nvidia-smi -q -d MEMORY | grep -A3 BAR1`",
        ("warn", "unknown", "pass"),
    ),
    Check(
        "iommu",
        "peer-to-peer",
        iommu,
        "whether the IOMMU is off, passes through or translates",
        "An IOMMU that translates turns peer copies into zeros or faults (Xid 154) that may wedge "
        "the box.",
        "`cat /proc/cmdline; cat /sys/kernel/iommu_groups/*/type | sort | uniq -c`",
        ("fail", "warn", "unknown", "pass"),
    ),
    Check(
        "acs",
        "peer-to-peer",
        acs,
        "whether ACS on the bridges above the cards redirects requests",
        "With ACS the bridges send peer traffic up to the root complex: slower, and through the "
        "IOMMU.",
        "`sudo lspci -vvv | grep -E '^[0-9a-f]|Bus:|ACSCtl'` (or run this with sudo)",
        ("warn", "unknown", "pass"),
    ),
    Check(
        "p2p-grant",
        "peer-to-peer",
        p2p_grant,
        "what the driver grants between each two cards",
        "Without the driver's grant all traffic goes through host memory.",
        "`nvidia-smi topo -p2p r`",
        ("warn", "unknown", "pass"),
    ),
)
