"""What is read from an engine's log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rig.engine_log import EngineFacts, read_engine_log, read_engine_log_file, rows
from rig.engine_log.nccl import pci_address
from rig.errors import RigError

_LOGS = Path(__file__).parent / "logs"
_GIB, _MIB = 2**30, 2**20


@pytest.fixture(scope="module")
def cards() -> EngineFacts:
    return read_engine_log_file(_LOGS / "two-cards-streamed.txt")


@pytest.fixture(scope="module")
def cpu() -> EngineFacts:
    return read_engine_log_file(_LOGS / "four-cpu-ranks-ray-streamed.txt")


def _shown(facts: EngineFacts) -> dict[str, str]:
    return dict(rows(facts))


def test_what_a_start_is(cards: EngineFacts) -> None:
    assert (cards.version, cards.series) == ("0.33.0+rig.2", "0a1b2c3d4e5f")
    assert cards.patches == ("0101", "0201", "0501", "0901")
    assert (cards.model, cards.device, cards.executor) == ("acme/eight-b-vl", "cuda", "ray")
    assert (cards.tensor_parallel, cards.pipeline_parallel, cards.world_size) == (2, 1, 2)
    assert cards.backend == "nccl"
    assert [(r.rank, r.local_rank, r.tp) for r in cards.ranks] == [(0, 0, 0), (1, 1, None)]
    assert (cards.attention, cards.encoder_attention) == ("FLASHINFER", "FLASH_ATTN")
    assert (cards.runner, cards.ready, cards.failure) == ("V2", True, None)


def test_the_memory_of_the_fullest_rank_counts(cards: EngineFacts) -> None:
    memory = cards.memory
    assert memory.kv_tokens == 378_112
    assert (memory.max_model_len, memory.max_concurrency) == (32_768, 11.54)
    assert memory.kv_bytes == round(12.98 * _GIB)
    assert memory.weights_bytes == round(4.25 * _GIB)
    assert memory.graphs_bytes == round(0.55 * _GIB)


def test_a_streamed_tower(cards: EngineFacts) -> None:
    [tower] = cards.offload.towers
    assert (tower.name, tower.units, tower.slots) == ("visual", 27, 3)
    assert tower.streamed_bytes == 1012.5 * _MIB
    assert (tower.resident_bytes, tower.ring_bytes) == (75 * _MIB, 112.5 * _MIB)
    assert (tower.stem_bytes, tower.fetched_bytes) == (12 * _MIB, 4 * _MIB)
    assert (tower.host_buffers, tower.pinned_buffers, tower.shared_buffers) == (28, 28, 28)
    assert tower.saved_bytes == 904 * _MIB
    assert (tower.bus_bytes_per_s, tower.encode_copies_ms) == (12.5e9, 84.9)
    assert cards.offload.classes == ("UVAOffloader", "TowerOffloader")
    assert cards.offload.held_bytes == round(1.48 * _GIB)


def test_nccl_says_how_each_two_ranks_meet(cards: EngineFacts) -> None:
    assert cards.nccl.version == "2.29.3"
    ways = {(t.first, t.second): (t.ways, t.channels) for t in cards.nccl.transports}
    assert ways == {(0, 1): (("P2P/CUMEM/read",), 2), (1, 0): (("P2P/CUMEM/read",), 2)}
    assert [(c.rank, c.device, c.bus_id) for c in cards.nccl.cards] == [
        (0, 0, "0000:01:00.0"),
        (1, 1, "0000:c1:00.0"),
    ]
    assert _shown(cards)["NCCL"] == "2.29.3; P2P/CUMEM/read: 0->1 1->0"


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ("[1] NCCL INFO Channel 02 : 1[1] -> 2[2] via SHM/direct/direct", "SHM/direct/direct"),
        ("[1] NCCL INFO Channel 03/0 : 1[1] -> 2[2] via P2P/direct pointer", "P2P/direct pointer"),
        ("[1] NCCL INFO Channel 03/0 : 1[4f000] -> 2[51000] via P2P/IPC/read", "P2P/IPC/read"),
        ("[0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0", "NET/Socket/0"),
    ],
)
def test_spellings_of_a_transport(line: str, way: str) -> None:
    [transport] = read_engine_log([line]).nccl.transports
    assert (transport.first, transport.second, transport.ways) == (1, 2, (way,))


def test_without_its_debug_lines_the_transport_is_not_said() -> None:
    facts = read_engine_log(["INFO 01-01 00:00:00 [pynccl.py:148] vLLM is using nccl==2.27.3"])
    assert _shown(facts)["NCCL"] == "2.27.3; transport: not said, NCCL_DEBUG=INFO says it"


def test_an_address_of_nccl() -> None:
    assert pci_address("4f000") == "0000:4f:00.0"
    assert pci_address("1000a1001") == "1000:a1:00.1"


def test_custom_all_reduce_counts_only_by_the_engines_own_line(cards: EngineFacts) -> None:
    assert cards.all_reduce.custom == "in use"
    [group] = cards.all_reduce.groups
    assert (group.group, group.backends) == ("tp:0", ("CUSTOM", "PYNCCL"))
    assert read_engine_log(["custom all-reduce"]).all_reduce.custom is None


_REFUSALS = [
    ("due to an unsupported world size: 3. Supported world sizes: [2, 4].", "world-size"),
    ("because it's not supported on more than two PCIe-only GPUs.", "pcie-only"),
    ("because your platform lacks GPU P2P capability or P2P test failed.", "no-p2p"),
    ("because of missing custom allreduce library", "no-library"),
]


@pytest.mark.parametrize(("why", "code"), _REFUSALS)
def test_which_reason_refused_custom_all_reduce(why: str, code: str) -> None:
    facts = read_engine_log(
        [
            f"WARNING 11-12 09:00:00 [custom_all_reduce.py:268] Custom allreduce is disabled {why}",
            "INFO 11-12 09:00:00 [cuda_communicator.py:353] Using ['PYNCCL'] all-reduce backends "
            "(in dispatch order) for group 'tp:0' out of potential backends: ['CUSTOM', 'PYNCCL'].",
        ]
    )
    assert facts.all_reduce.custom == "refused"
    assert [(r.kind, r.code) for r in facts.all_reduce.refusals] == [("custom", code)]


def test_four_ranks_on_the_cpu(cpu: EngineFacts) -> None:
    assert (cpu.version, cpu.world_size, cpu.backend) == ("0.32.0+rig.1.cpu", 4, "gloo")
    assert (cpu.device, cpu.executor, cpu.ready, cpu.failure) == ("cpu", "ray", True, None)
    [tower] = cpu.offload.towers
    assert (tower.name, tower.units, tower.host_buffers) == ("visual", 8, 8)
    assert (tower.pinned_buffers, tower.bus_bytes_per_s) == (0, None)
    assert (cpu.memory.kv_device, cpu.memory.kv_tokens) == ("CPU", 1_048_576)
    assert cpu.memory.kv_bytes == _GIB
    assert cpu.no_ops == ()
    shown = _shown(cpu)
    assert shown["NCCL"] == "not used: the ranks meet by gloo"
    assert shown["cards"] == "none, the engine runs on the CPU"


def test_older_releases_say_the_cache_in_two_lines_and_offload_without_a_unit() -> None:
    facts = read_engine_log(
        [
            "(Worker_TP0 pid=5) INFO 05-07 05:30:52 [gpu.py:4] Available KV cache memory: 9.5 GiB",
            "(EngineCore pid=1) INFO 06-01 09:22:30 [kv.py:17] GPU KV cache size: 610,304 tokens",
            "(EngineCore pid=1) INFO 06-01 09:22:30 [kv.py:18] Maximum concurrency for 131,072 "
            "tokens per request: 4.66x",
            "INFO 06-01 09:22:30 [uva.py:99] Total CPU offloaded parameters: 0.31",
            "INFO 06-01 09:22:30 [uva.py:99] Total CPU offloaded parameters: 0.75",
        ]
    )
    assert (facts.memory.kv_tokens, facts.memory.max_concurrency) == (610_304, 4.66)
    assert facts.memory.kv_bytes == round(9.5 * _GIB)
    assert facts.offload.held_bytes == round(0.75 * _GIB)


def test_prefetch_and_mixed_cards_and_the_p2p_cache() -> None:
    facts = read_engine_log(
        [
            "INFO 01-01 00:00:00 [prefetch.py:3] [PrefetchOffloader] Initialized 12 modules. Total "
            "GPU memory saved: 3.5000 GB, Static buffer pool: 0.2500 GB (group_size=4)",
            "WARNING Detected different devices in the system: NVIDIA X1, NVIDIA X2. Please make "
            "sure to set `CUDA_DEVICE_ORDER=PCI_BUS_ID` to avoid unexpected behavior.",
            "INFO reading GPU P2P access cache from /c/gpu_p2p_access_cache_for_0,1.json",
        ]
    )
    assert facts.offload.prefetch_saved_bytes == 3_500_000_000
    assert facts.mixed_cards == ("NVIDIA X1", "NVIDIA X2")
    assert facts.all_reduce.p2p_cache == "/c/gpu_p2p_access_cache_for_0,1.json"


def test_a_log_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RigError, match="cannot be read"):
        read_engine_log_file(tmp_path / "engine.log")


_PIECES = st.sampled_from(
    [line for log in sorted(_LOGS.glob("*.txt")) for line in log.read_text().splitlines()]
)


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(st.text(), _PIECES, st.builds(lambda s, n: s[:n], _PIECES, st.integers(0, 200)))
    )
)
def test_no_text_makes_it_raise(lines: list[str]) -> None:
    rows(read_engine_log(lines))
