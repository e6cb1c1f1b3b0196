"""Traffic between cards, and the allocator that it excludes."""

from __future__ import annotations

from rig.box.rig_file import P2PTable
from rig.p2p.verdict import Result, Verdict

from .row import ADA, ALLOCATOR, CUSTOM_OFF, FOUR, PCIE_IPC, SEGMENTS, TWO, Row, box, rig, verdict

P2P = [
    # P2P
    Row(
        "P2P is off while nothing is known",
        env={"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": None},
        args=(CUSTOM_OFF,),
        kinds=(("environment", "NCCL_P2P_DISABLE"), ("assumed", "cards")),
    ),
    Row(
        "P2P is off while it is not proven, whatever the driver grants",
        box=box(),
        env={"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": None},
    ),
    Row(
        "P2P is off when it was proven wrong",
        box=box(),
        verdict=verdict(("nccl-p2p", FOUR), outcome="wrong"),
        env={"NCCL_P2P_DISABLE": "1"},
    ),
    Row(
        "P2P is off when it was proven for other cards",
        box=box(),
        verdict=verdict(("nccl-p2p", TWO)),
        env={"NCCL_P2P_DISABLE": "1"},
    ),
    Row(
        "P2P needs every copy between the cards, not only NCCL's word",
        box=box(2),
        rig=rig(2),
        verdict=Verdict(
            key="k",
            made_at="2026-01-01",
            results=(Result(way="nccl-p2p", cards=TWO, size_bytes=1, outcome="passed"),),
        ),
        env={"NCCL_P2P_DISABLE": "1"},
    ),
    Row(
        "P2P needs the copies that go both ways at once as well",
        box=box(2),
        rig=rig(2),
        verdict=verdict(("nccl-p2p", TWO)).renewed(
            (Result(way="copy-both-ways", cards=TWO, size_bytes=1, outcome="hang"),), "2026-01-02"
        ),
        env={"NCCL_P2P_DISABLE": "1"},
    ),
    Row(
        "proven below one host bridge: PHB",
        box=box(),
        verdict=verdict(("nccl-p2p", FOUR)),
        env={"NCCL_P2P_DISABLE": None, "NCCL_P2P_LEVEL": "PHB", ALLOCATOR: SEGMENTS},
        args=(CUSTOM_OFF,),
        kinds=(("left", "NCCL_P2P_DISABLE"),),
    ),
    Row(
        "proven over separate roots: SYS",
        box=box(level="SYS"),
        verdict=verdict(("nccl-p2p", FOUR)),
        env={"NCCL_P2P_LEVEL": "SYS"},
    ),
    Row(
        "proven over one node's roots: SYS, as NCCL has no level between",
        box=box(level="NODE"),
        verdict=verdict(("nccl-p2p", FOUR)),
        env={"NCCL_P2P_LEVEL": "SYS"},
    ),
    Row(
        "proven, levels unknown: the level of the check",
        box=box(level=None),
        verdict=verdict(("nccl-p2p", FOUR)),
        env={"NCCL_P2P_LEVEL": "SYS"},
    ),
    Row(
        "never across generations",
        box=box(cards={3: {"compute_capability": ADA}}),
        verdict=verdict(("nccl-p2p", FOUR), ("custom", FOUR)),
        env={"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": None},
        args=(CUSTOM_OFF,),
        kinds=(("advice", "cards"),),
    ),
    Row(
        "never while a generation is unknown",
        box=box(cards={3: {"compute_capability": None}}),
        verdict=verdict(("nccl-p2p", FOUR)),
        env={"NCCL_P2P_DISABLE": "1"},
    ),
    Row(
        "never while all generations are unknown",
        box=box(cards={i: {"compute_capability": None} for i in range(4)}),
        verdict=verdict(("nccl-p2p", FOUR)),
        env={"NCCL_P2P_DISABLE": "1"},
    ),
    Row(
        "never when the rig file says off",
        rig=rig(p2p=P2PTable(policy="off")),
        box=box(),
        verdict=verdict(("nccl-p2p", FOUR), ("custom", FOUR), ("pcie-ipc", FOUR)),
        env={"NCCL_P2P_DISABLE": "1", PCIE_IPC: None},
    ),
    Row(
        "the user's P2P level wins, and that is said",
        box=box(),
        inherited={"NCCL_P2P_LEVEL": "SYS"},
        env={"NCCL_P2P_DISABLE": None, "NCCL_P2P_LEVEL": None},
        kinds=(("conflict", "NCCL_P2P_LEVEL"),),
    ),
    Row(
        "the user's P2P switch wins, and that is said",
        box=box(),
        inherited={"NCCL_P2P_DISABLE": "0"},
        env={"NCCL_P2P_DISABLE": None},
        kinds=(("conflict", "NCCL_P2P_DISABLE"),),
    ),
    Row(
        "the user may switch off what is proven",
        box=box(),
        verdict=verdict(("nccl-p2p", FOUR)),
        inherited={"NCCL_P2P_DISABLE": "1"},
        env={"NCCL_P2P_DISABLE": None},
        kinds=(("conflict", "NCCL_P2P_DISABLE"),),
    ),
    Row(
        "the user's PCIe IPC wins, which is said, and it excludes expandable segments",
        box=box(),
        inherited={PCIE_IPC: "1"},
        env={PCIE_IPC: None, ALLOCATOR: None},
        kinds=(("conflict", PCIE_IPC), ("left", ALLOCATOR)),
    ),
    Row(
        "PCIe IPC that the user switched off excludes nothing",
        box=box(),
        inherited={PCIE_IPC: "0"},
        env={PCIE_IPC: None, ALLOCATOR: SEGMENTS},
        kinds=(("-conflict", PCIE_IPC),),
    ),
]
