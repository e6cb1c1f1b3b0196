"""NVML's answers, from a stand-in that raises the library's own errors."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest

from rig.box import nvml as reader
from rig.box.nvml import NvmlFacts, bus_id, read_nvml
from tests.box.fake_nvml import (
    CNS,
    DR,
    GIB,
    NODE,
    NS,
    OK,
    PHB,
    PIX,
    PXB,
    SYS,
    TNS,
    UNKNOWN,
    FakeNvml,
    FakeProcess,
    NvmlCard,
)


def two(**more: Any) -> FakeNvml:
    return FakeNvml([NvmlCard("0000:01:00.0"), NvmlCard("0000:02:00.0")], **more)


def only_pair(library: FakeNvml) -> tuple[Any, ...]:
    pairs = read_nvml(library).pairs
    assert pairs is not None
    (pair,) = pairs
    return pair.level, pair.nvlinks, pair.p2p, pair.p2p_why


def test_a_card_is_read_in_bytes_watts_and_small_letters() -> None:
    library = FakeNvml([NvmlCard("0000:c1:00.0", display=True, persistence=False, power=230.0)])
    facts = read_nvml(library)
    assert facts.notes == ()
    assert (facts.driver_version, facts.driver_cuda) == ("595.58.03", (13, 2))
    (card,) = facts.cards or ()
    assert card.bus_id == "0000:c1:00.0"
    assert card.compute_capability == (8, 6)
    assert card.memory_bytes == 24 * GIB
    assert card.bar1_bytes == 32 * GIB
    assert (card.power_limit_w, card.power_default_w, card.power_max_w) == (230.0, 350.0, 390.0)
    assert (card.display_active, card.persistence, card.mig) == (True, False, False)
    assert (card.link.generation_now, card.link.generation_max) == (1, 4)
    assert (card.graphics_clock_mhz, card.graphics_clock_max_mhz) == (210, 2100)
    assert card.graphics_clock_locked_mhz is None  # NVML has no word for it
    assert library.shut_down == 1


def test_cards_are_in_the_order_of_their_addresses_whatever_nvml_says() -> None:
    cards = [NvmlCard(a) for a in ("0001:01:00.0", "0000:c1:00.0", "0000:0a:00.0")]
    facts = read_nvml(FakeNvml(cards, p2p={(1, 2): OK}))
    assert [c.bus_id for c in facts.cards or ()] == [
        "0000:0a:00.0",
        "0000:c1:00.0",
        "0001:01:00.0",
    ]
    assert [(p.first, p.second, p.p2p) for p in facts.pairs or ()] == [
        (0, 1, "granted"),
        (0, 2, "refused"),
        (1, 2, "refused"),
    ]


def test_no_library_and_no_driver_are_no_cards_known() -> None:
    for error, said in (
        ("LibraryNotFound", "Shared Library Not Found"),
        ("DriverNotLoaded", "Driver Not Loaded"),
        ("LibRmVersionMismatch", "version mismatch"),
    ):
        facts = read_nvml(two(init=error))
        assert facts.cards is None
        assert facts.notes[0].startswith("no NVIDIA driver answers: ")
        assert said.lower() in facts.notes[0].lower()


def test_a_driver_without_cards_shows_none() -> None:
    facts = read_nvml(FakeNvml([]))
    assert facts == NvmlFacts(cards=(), pairs=(), driver_version="595.58.03", driver_cuda=(13, 2))


@pytest.mark.parametrize("error", ["NotSupported", "NoPermission", "Unknown", "GpuIsLost"])
@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("nvmlDeviceGetName", "name"),
        ("nvmlDeviceGetUUID", "uuid"),
        ("nvmlDeviceGetCudaComputeCapability", "compute_capability"),
        ("nvmlDeviceGetMemoryInfo", "memory_bytes"),
        ("nvmlDeviceGetMemoryInfo", "memory_free_bytes"),
        ("nvmlDeviceGetBAR1MemoryInfo", "bar1_bytes"),
        ("nvmlDeviceGetDisplayActive", "display_active"),
        ("nvmlDeviceGetPersistenceMode", "persistence"),
        ("nvmlDeviceGetPowerManagementLimit", "power_limit_w"),
        ("nvmlDeviceGetPowerManagementDefaultLimit", "power_default_w"),
        ("nvmlDeviceGetPowerManagementLimitConstraints", "power_max_w"),
        ("nvmlDeviceGetClockInfo", "graphics_clock_mhz"),
        ("nvmlDeviceGetMaxClockInfo", "graphics_clock_max_mhz"),
        ("nvmlDeviceGetUtilizationRates", "utilisation_percent"),
        ("nvmlDeviceGetTemperature", "temperature_c"),
    ],
)
def test_what_is_refused_is_unknown_and_noted_and_the_rest_is_read(
    call: str, field: str, error: str
) -> None:
    whole = read_nvml(two())
    facts = read_nvml(two(refuse={call: error}))
    for before, card in zip(whole.cards or (), facts.cards or (), strict=True):
        assert getattr(before, field) is not None
        assert getattr(card, field) is None
        changed = {k for k, v in card.model_dump().items() if v != before.model_dump()[k]}
        assert changed <= {field, "memory_bytes", "memory_free_bytes"}
    assert len(facts.notes) == 1
    assert facts.notes[0].startswith("NVML does not tell the ")
    assert facts.notes[0].endswith("(2 times)")


def test_a_lost_card_is_left_out_and_named() -> None:
    library = FakeNvml([NvmlCard("0000:01:00.0", lost=True), NvmlCard("0000:02:00.0")])
    facts = read_nvml(library)
    assert [card.bus_id for card in facts.cards or ()] == ["0000:02:00.0"]
    assert facts.notes == ("NVML does not show card 0, which is left out: GPU is lost",)


def test_no_count_is_no_cards_known() -> None:
    facts = read_nvml(two(refuse={"nvmlDeviceGetCount": "Unknown"}))
    assert facts.cards is None
    assert "number of cards" in facts.notes[0]


@pytest.mark.parametrize(
    ("told", "level"), [(PIX, "PIX"), (PXB, "PXB"), (PHB, "PHB"), (NODE, "NODE"), (SYS, "SYS")]
)
def test_levels(told: int, level: str) -> None:
    assert only_pair(two(levels={(0, 1): told}))[0] == level


def test_a_level_that_nobody_knows_is_unknown() -> None:
    assert only_pair(two(levels={(0, 1): 77}))[0] is None
    assert only_pair(two(refuse={"nvmlDeviceGetTopologyCommonAncestor": "NotSupported"}))[0] is None


@pytest.mark.parametrize(
    ("status", "grant", "why"),
    [
        (OK, "granted", "OK"),
        (CNS, "refused", "CNS"),
        (TNS, "refused", "TNS"),
        (DR, "refused", "DR"),
        (NS, "refused", "NS"),
        (UNKNOWN, None, None),
        (99, None, None),
    ],
)
def test_grants(status: int, grant: str | None, why: str | None) -> None:
    assert only_pair(two(p2p={(0, 1): status}))[2:] == (grant, why)


def test_a_grant_needs_both_ways_and_both_reading_and_writing() -> None:
    class OneWay(FakeNvml):
        def nvmlDeviceGetP2PStatus(self, first: NvmlCard, second: NvmlCard, way: int) -> int:
            return TNS if (first.bus_id, way) == ("0000:02:00.0", 1) else OK

    cards = [NvmlCard("0000:01:00.0"), NvmlCard("0000:02:00.0")]
    assert only_pair(OneWay(cards))[2:] == ("refused", "TNS")


def test_a_grant_that_is_not_told_is_unknown() -> None:
    assert only_pair(two(refuse={"nvmlDeviceGetP2PStatus": "NotSupported"}))[2:] == (None, None)


def test_nvlinks_are_counted_between_partners_only() -> None:
    cards = [NvmlCard(f"0000:0{i}:00.0") for i in range(1, 5)]
    facts = read_nvml(FakeNvml(cards, nvlinks={(0, 2): 4, (1, 3): 4}))
    joined = {(p.first, p.second): p.nvlinks for p in facts.pairs or () if p.level == "NV"}
    assert joined == {(0, 2): 4, (1, 3): 4}
    assert all(p.nvlinks == 0 for p in facts.pairs or () if p.level != "NV")


def test_an_nvlink_error_is_unknown_and_no_zero() -> None:
    library = two(nvlinks={(0, 1): 4}, refuse={"nvmlDeviceGetNvLinkState": "Unknown"})
    assert only_pair(library)[:2] == ("PHB", None)


def test_mig() -> None:
    def mig(library: FakeNvml) -> bool | None:
        return (read_nvml(library).cards or ())[0].mig

    assert mig(FakeNvml([NvmlCard("0000:01:00.0", mig=True)])) is True
    assert mig(FakeNvml([NvmlCard("0000:01:00.0", mig=False)])) is False
    assert mig(two(refuse={"nvmlDeviceGetMigMode": "NoPermission"})) is None


def test_processes_of_both_kinds_once_each() -> None:
    card = NvmlCard(
        "0000:01:00.0",
        processes=[
            FakeProcess(20, 5 * GIB, "VLLM::Worker"),
            FakeProcess(10, None, "Xorg", graphics=True),
            FakeProcess(20, 5 * GIB, "VLLM::Worker", graphics=True),
        ],
    )
    found = (read_nvml(FakeNvml([card])).cards or ())[0].processes or ()
    assert [(p.pid, p.name, p.memory_bytes) for p in found] == [
        (10, "Xorg", None),
        (20, "VLLM::Worker", 5 * GIB),
    ]


def test_processes_that_nobody_may_see_are_unknown_not_none_running() -> None:
    refuse = {
        "nvmlDeviceGetComputeRunningProcesses": "NoPermission",
        "nvmlDeviceGetGraphicsRunningProcesses": "NoPermission",
    }
    facts = read_nvml(two(refuse=refuse))
    assert [card.processes for card in facts.cards or ()] == [None, None]
    assert any("processes" in note for note in facts.notes)
    assert [card.processes for card in read_nvml(two()).cards or ()] == [(), ()]


def test_bytes_and_numbers_that_mean_not_available() -> None:
    class Odd(FakeNvml):
        def nvmlDeviceGetName(self, card: NvmlCard) -> Any:
            return b"NVIDIA \xff RTX"

        def nvmlDeviceGetTemperature(self, card: NvmlCard, sensor: int) -> int:
            return 0xFFFFFFFF

    card = (read_nvml(Odd([NvmlCard("0000:01:00.0")])).cards or ())[0]
    assert card.name == "NVIDIA � RTX"
    assert card.temperature_c is None


def test_addresses() -> None:
    assert bus_id(0, "00000000:0A:00.0") == "0000:0a:00.0"
    assert bus_id(0x10000, "10000:01:00.0") == "10000:01:00.0"
    with pytest.raises(ValueError, match="no PCI address"):
        bus_id(0, "nonsense")


def test_every_call_is_one_that_pynvml_has_with_these_arguments() -> None:
    pynvml = importlib.import_module("pynvml")
    asked = set(re.findall(r"nvml(?:Device|System|Init|Shutdown)\w*", inspect.getsource(reader)))
    assert len(asked) > 25
    for name in asked:
        real = inspect.signature(getattr(pynvml, name)).parameters.values()
        needed = [one for one in real if one.default is inspect.Parameter.empty]
        ours = inspect.signature(getattr(two(), name)).parameters
        assert len(needed) == len(ours), name
