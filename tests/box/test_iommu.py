"""The IOMMU's mode: group types first, the kernel's command line where there are none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rig.box.iommu import iommu_mode
from tests.box.fake_system import FakeHost, fake_box, four_3090s

CARDS = [f"0000:{0x21 + 0x20 * i:02x}:00.0" for i in range(4)]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("", "off"), ("identity", "passthrough"), ("DMA", "translated"), ("DMA-FQ", "translated")],
)
def test_the_type_of_the_cards_groups(tmp_path: Path, kind: str, mode: str) -> None:
    box = fake_box(tmp_path, four_3090s(), FakeHost(iommu_type=kind))
    assert iommu_mode(box.system, CARDS) == mode


def test_one_translated_card_counts(tmp_path: Path) -> None:
    box = fake_box(tmp_path, four_3090s(), FakeHost(iommu_type="identity"))
    box.write("/sys/kernel/iommu_groups/2/type", "DMA\n")
    assert iommu_mode(box.system, CARDS) == "translated"
    assert iommu_mode(box.system, CARDS[:2]) == "passthrough"


def test_other_devices_groups_do_not_count(tmp_path: Path) -> None:
    box = fake_box(tmp_path, four_3090s(), FakeHost(iommu_type="identity"))
    box.write("/sys/kernel/iommu_groups/9/type", "DMA\n")
    assert iommu_mode(box.system, CARDS) == "passthrough"
    assert iommu_mode(box.system, []) is None  # no card to ask about, and the groups differ


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ("amd_iommu=on iommu=pt", "passthrough"),
        ("intel_iommu=on,sm_on iommu.passthrough=1", "passthrough"),
        ("iommu.passthrough=0", "translated"),
        ("iommu=pt iommu=nopt", "translated"),
        ("amd_iommu=off", "off"),
        ("intel_iommu=on", None),
        ("quiet", None),
    ],
)
def test_an_old_kernel_is_asked_for_its_command_line(
    tmp_path: Path, words: str, mode: str | None
) -> None:
    host = FakeHost(iommu_type="identity", cmdline=words)
    box = fake_box(tmp_path, four_3090s(), host)
    for group in range(4):
        (tmp_path / f"sys/kernel/iommu_groups/{group}/type").unlink()
    assert iommu_mode(box.system, CARDS) == mode


def test_a_type_that_nobody_knows_is_unknown(tmp_path: Path) -> None:
    box = fake_box(tmp_path, four_3090s(), FakeHost(iommu_type="blocked"))
    assert iommu_mode(box.system, CARDS) is None


def test_nothing_to_look_at_is_unknown(tmp_path: Path) -> None:
    box = fake_box(tmp_path, four_3090s())
    shutil.rmtree(tmp_path / "sys/class/iommu")
    assert iommu_mode(box.system, CARDS) == "off"
    shutil.rmtree(tmp_path / "sys/kernel/iommu_groups")
    assert iommu_mode(box.system, CARDS) is None


def test_groups_count_although_no_unit_is_listed(tmp_path: Path) -> None:
    box = fake_box(tmp_path, four_3090s(), FakeHost(iommu_type="DMA"))
    shutil.rmtree(tmp_path / "sys/class/iommu/ivhd0")
    assert iommu_mode(box.system, CARDS) == "translated"
