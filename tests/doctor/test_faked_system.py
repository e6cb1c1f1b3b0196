"""From a faked sysfs tree and NVML to findings: nothing between them is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rig.box.facts import Box
from rig.box.read import read_box
from rig.box.rigs import find_rig
from rig.doctor.context import Context
from rig.doctor.finding import Finding
from rig.doctor.p2p_gates import which_gate
from rig.doctor.run import examine
from tests.box.fake_nvml import GIB, MIB, OK, FakeNvml, FakeProcess
from tests.box.fake_system import FakeCard, FakeHost, fake_box, four_3090s, two_desktop_3090s
from tests.doctor.kit import context


def by_name(box: Box, rig: str | None = None, given: Context | None = None) -> dict[str, Finding]:
    told = given or context(verdict=None)
    findings = examine(box, None if rig is None else find_rig(rig), told)
    return {finding.check: finding for finding in findings}


def seen(root: Path, cards: Sequence[FakeCard]) -> Box:
    made = fake_box(root, cards)
    return read_box(made.system, made.nvml)


def test_a_workstation_with_four_cards(tmp_path: Path) -> None:
    made = fake_box(tmp_path, four_3090s(), FakeHost(iommu_type="identity"))
    found = by_name(read_box(made.system, made.nvml), "4x3090")
    states = {name: finding.state for name, finding in found.items()}
    assert "fail" not in states.values()
    passes = {
        *("cards-seen", "cards-enough", "cards-alike", "cards-idle", "cards-drained"),
        *("driver-cuda", "driver-branch", "card-generation", "link-width", "link-chipset"),
        *("p2p-generation", "p2p-bar1", "iommu", "acs", "numa", "shm", "persistence"),
    }
    assert {name for name in passes if states[name] != "pass"} == set()
    assert states["link-speed"] == "unknown"  # idle cards at the first generation
    assert found["p2p-grant"].state == "warn" and "GNS" in found["p2p-grant"].seen
    assert states["p2p-verdict"] == "pass"  # nothing is granted


def test_a_desktop_with_a_chipset_slot(tmp_path: Path) -> None:
    made = fake_box(tmp_path, two_desktop_3090s(), FakeHost(iommu_type="DMA"))
    found = by_name(read_box(made.system, made.nvml), "2x3090")
    assert found["link-chipset"].state == "warn"
    assert found["link-chipset"].seen.startswith("card 0: behind the chipset")
    assert found["link-width"].state in ("warn", "fail")
    assert "card 0: x4 of the card's x16" in found["link-width"].seen
    assert found["iommu"].state == "warn"
    assert found["rig-file"].state == "warn" and "4 lanes" in found["rig-file"].seen


def test_a_patched_driver_grants_while_the_iommu_translates(tmp_path: Path) -> None:
    cards = four_3090s(2)
    nvml = FakeNvml([card.nvml for card in cards], p2p={(0, 1): OK})
    made = fake_box(tmp_path, cards, FakeHost(iommu_type="DMA"), nvml=nvml)
    found = by_name(read_box(made.system, made.nvml))
    assert found["iommu"].state == "fail" and "iommu=pt" in found["iommu"].next_step
    assert found["p2p-verdict"].state == "warn"
    assert which_gate(list(found.values())).startswith("P2P: behind gate 5 of 8, iommu (fail)")


def test_a_user_without_root_cannot_see_acs(tmp_path: Path) -> None:
    cards = tuple(
        replace(card, ports=tuple(replace(port, config_bytes=64) for port in card.ports))
        for card in four_3090s(2)
    )
    found = by_name(seen(tmp_path, cards))
    assert found["acs"].state == "unknown" and "root" in found["acs"].seen


def test_acs_that_redirects_is_named_by_its_bridge(tmp_path: Path) -> None:
    first, second = four_3090s(2)
    second = replace(second, ports=(replace(second.ports[0], acs=True),))
    found = by_name(seen(tmp_path, (first, second)))
    assert found["acs"].state == "warn"
    assert f"setpci -s {second.ports[0].address}" in found["acs"].next_step


def test_a_busy_card_and_a_card_that_has_not_drained(tmp_path: Path) -> None:
    first, second = four_3090s(2)
    busy = replace(first.nvml, free=4 * GIB, processes=(FakeProcess(4242, 19 * GIB, "ollama"),))
    stuck = replace(second.nvml, free=10 * GIB)
    cards = (replace(first, nvml=busy), replace(second, nvml=stuck))
    found = by_name(seen(tmp_path, cards))
    assert found["cards-idle"].state == "fail"
    assert "card 0: pid 4242 (ollama, 19.0 GiB)" in found["cards-idle"].seen
    assert found["cards-drained"].state == "fail"
    assert "card 1: 10.0 GiB of 24.0 GiB free" in found["cards-drained"].seen
    assert "card 0" in found["cards-drained"].seen.split("card 1")[1]  # and that one is fine


def test_a_small_bar1_and_a_display(tmp_path: Path) -> None:
    first, second = four_3090s(2)
    small = replace(first.nvml, bar1=256 * MIB, display=True)
    found = by_name(seen(tmp_path, (replace(first, nvml=small), second)))
    assert found["p2p-bar1"].state == "warn" and "BAR1 256 MiB" in found["p2p-bar1"].seen
    assert found["card-display"].state == "warn"


def test_a_virtual_machine_is_not_judged_by_its_bar1(tmp_path: Path) -> None:
    made = fake_box(tmp_path, four_3090s(2), FakeHost(cpu_flags="fpu hypervisor", vendor="QEMU"))
    found = by_name(read_box(made.system, made.nvml))
    assert found["virtual-machine"].state == "warn"
    assert found["p2p-bar1"].state == "unknown" and "hypervisor" in found["p2p-bar1"].seen


def test_tight_memory_and_another_users_ray(tmp_path: Path) -> None:
    host = FakeHost(
        memlock="8388608",
        shm=(64 * MIB, 64 * MIB),
        tmp=(GIB, MIB),
        available=2 * GIB,
        cgroup_files={
            "/sys/fs/cgroup/user.slice/memory.max": f"{3 * GIB}\n",
            "/sys/fs/cgroup/user.slice/memory.current": f"{GIB}\n",
        },
        ray={77: ("raylet", 1000)},
    )
    made = fake_box(tmp_path, four_3090s(2), host)
    found = by_name(read_box(made.system, made.nvml))
    for name in ("host-memory", "cgroup", "shm", "tmp-space"):
        assert found[name].state == "fail", found[name]
    assert found["memlock"].state == "warn"
    assert (
        found["ray-running"].seen == "pid 77 (raylet): of user user: it is left alone; mind whose "
        "cards it holds"
    )


def test_two_sockets(tmp_path: Path) -> None:
    first, second = four_3090s(2)
    host = FakeHost(numa_nodes=("0-15", "16-31"))
    made = fake_box(tmp_path, (first, replace(second, numa_node=1)), host)
    found = by_name(read_box(made.system, made.nvml))
    assert found["numa"].state == "warn" and found["numa"].seen == "node 0: card 0; node 1: card 1"


def test_no_driver_where_cards_are_on_the_bus(tmp_path: Path) -> None:
    made = fake_box(
        tmp_path, four_3090s(2), FakeHost(driver=None), nvml=FakeNvml([], init="LibraryNotFound")
    )
    box = read_box(made.system, made.nvml)
    found = by_name(box, "2x3090")
    assert found["cards-seen"].state == "fail"
    assert found["tmp-space"].state == "pass"
    assert any("NVML does not show the NVIDIA card" in note for note in box.notes)
