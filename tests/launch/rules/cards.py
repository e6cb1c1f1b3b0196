"""Which cards, which ranks, which nodes."""

from __future__ import annotations

from rig.box.facts import CardProcess, Link
from rig.box.rig_file import DefaultsTable

from .row import ADA, FOUR, GIB, NVLINK_2, Row, box, plan, rig, verdict

CARDS = [
    # cards
    Row(
        "cards are numbered by slot",
        env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": None},
    ),
    Row(
        "the user's order of devices wins and is said",
        inherited={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"},
        box=box(),
        env={"CUDA_DEVICE_ORDER": None, "CUDA_VISIBLE_DEVICES": None},
        kinds=(("conflict", "CUDA_DEVICE_ORDER"),),
    ),
    Row(
        "what is proven of cards by slot is not taken for cards in another order",
        inherited={"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "CUDA_VISIBLE_DEVICES": "0,1,2,3"},
        box=box(5),
        verdict=verdict(("nccl-p2p", FOUR)),
        env={"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": None},
        kinds=(("assumed", "cards"),),
    ),
    Row(
        "the same where the cards are ours to choose",
        inherited={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"},
        box=box(),
        verdict=verdict(("nccl-p2p", FOUR)),
        env={"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": None},
        kinds=(("assumed", "cards"),),
    ),
    Row(
        "UUIDs name cards in any order",
        inherited={
            "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
            "CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1,GPU-2,GPU-3",
        },
        box=box(),
        verdict=verdict(("nccl-p2p", FOUR)),
        env={"NCCL_P2P_DISABLE": None, "NCCL_P2P_LEVEL": "PHB"},
        kinds=(("-assumed", "cards"),),
    ),
    Row(
        "the user's order wins, and that it parts NVLink partners is said",
        **NVLINK_2,
        inherited={"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
        env={"CUDA_VISIBLE_DEVICES": None},
        kinds=(("conflict", "CUDA_VISIBLE_DEVICES"),),
    ),
    Row(
        "an order that parts none is not spoken of",
        **NVLINK_2,
        inherited={"CUDA_VISIBLE_DEVICES": "3,1,2,0"},
        kinds=(("-conflict", "CUDA_VISIBLE_DEVICES"),),
    ),
    Row(
        "cards that the user chose and that are mixed are said",
        rig=rig(2),
        box=box(3, cards={0: {"compute_capability": ADA}}),
        inherited={"CUDA_VISIBLE_DEVICES": "0,1"},
        kinds=(("advice", "cards"),),
    ),
    Row(
        "stages that leave cards idle are said",
        box=box(),
        said=("-pp", "3"),
        args=("--tensor-parallel-size", "1"),
        kinds=(("layout", "ranks"),),
    ),
    Row(
        "NVLink partners are neighbours, by the matrix and not by their numbers",
        **NVLINK_2,
        env={"CUDA_VISIBLE_DEVICES": "0,2,1,3"},
    ),
    Row(
        "cards of one NUMA node are neighbours",
        box=box(nodes=(0, 1, 0, 1)),
        plan=plan(2, 2),
        env={"CUDA_VISIBLE_DEVICES": "0,2,1,3"},
    ),
    Row(
        "two of four: an NVLink pair",
        rig=rig(2),
        box=box(4, nvlink=[(1, 3)]),
        env={"CUDA_VISIBLE_DEVICES": "1,3"},
    ),
    Row(
        "two of three: of one generation",
        rig=rig(2),
        box=box(3, cards={0: {"compute_capability": ADA}}),
        env={"CUDA_VISIBLE_DEVICES": "1,2"},
    ),
    Row(
        "two of four: not those that another process holds",
        rig=rig(2),
        box=box(4, cards={i: {"processes": (CardProcess(pid=7),)} for i in (0, 1)}),
        env={"CUDA_VISIBLE_DEVICES": "2,3"},
    ),
    Row(
        "one of two: not the one with the screen",
        rig=rig(1),
        box=box(2, cards={0: {"display_active": True}, 1: {"display_active": False}}),
        env={"CUDA_VISIBLE_DEVICES": "1"},
    ),
    Row(
        "one of two: not the one behind the chipset",
        rig=rig(1),
        box=box(2, cards={0: {"link": Link(width_now=16, behind_chipset=True)}}),
        env={"CUDA_VISIBLE_DEVICES": "1"},
    ),
    Row(
        "the user's choice of cards decides",
        rig=rig(2),
        box=box(4, nvlink=[(0, 1)]),
        inherited={"CUDA_VISIBLE_DEVICES": "3,2"},
        env={"CUDA_VISIBLE_DEVICES": None},
        kinds=(("layout", "cards"),),
    ),
    Row(
        "the smallest card sets the size",
        box=box(cards={1: {"memory_bytes": 12 * GIB}}),
        kinds=(("advice", "cards"),),
    ),
    # ranks
    Row("all cards share each layer", args=("--tensor-parallel-size", "4")),
    Row(
        "one user: one group, and the trade is printed",
        args=("--tensor-parallel-size", "4"),
        no_args=("--pipeline-parallel-size",),
        kinds=(("layout", "ranks"), ("assumed", "ranks")),
    ),
    Row(
        "many users: groups of two behind each other, and the trade is printed",
        rig=rig(defaults=DefaultsTable(users="many")),
        args=("--tensor-parallel-size", "2", "--pipeline-parallel-size", "2"),
        kinds=(("layout", "ranks"),),
    ),
    Row(
        "three cards: whole layers each, and the trade is printed",
        rig=rig(3),
        args=("--tensor-parallel-size", "1", "--pipeline-parallel-size", "3"),
        kinds=(("layout", "ranks"),),
    ),
    Row(
        "the memory plan knows the heads, and chooses",
        rig=rig(3),
        plan=plan(2, 1, idle=1),
        args=("--tensor-parallel-size", "2"),
        no_args=("--pipeline-parallel-size",),
        kinds=(("layout", "ranks"),),
    ),
    Row(
        "the user's ranks win over the plan's, and that is said",
        plan=plan(4),
        said=("-tp", "2"),
        no_args=("--tensor-parallel-size",),
        kinds=(("conflict", "--tensor-parallel-size"),),
    ),
    Row(
        "stages share out the rig's cards",
        said=("-pp", "2"),
        args=("--tensor-parallel-size", "2"),
    ),
    # NUMA
    Row(
        "ranks are bound where cards hang on several nodes",
        box=box(nodes=(0, 0, 1, 1)),
        args=("--numa-bind",),
        kinds=(("argument", "--numa-bind"),),
    ),
    Row("not on one node", box=box(nodes=(0, 0, 0, 0)), no_args=("--numa-bind",)),
    Row(
        "not where a node is unknown",
        box=box(nodes=(0, 1, None, 1)),
        no_args=("--numa-bind",),
        kinds=(("left", "--numa-bind"),),
    ),
    Row(
        "not without numactl",
        box=box(nodes=(0, 0, 1, 1)),
        numactl=False,
        no_args=("--numa-bind",),
        kinds=(("left", "--numa-bind"),),
    ),
    Row(
        "not in WSL2",
        box=box(nodes=(0, 0, 1, 1), wsl=True),
        no_args=("--numa-bind",),
        kinds=(("left", "--numa-bind"),),
    ),
]
