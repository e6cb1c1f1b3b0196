"""Xids, IOMMU faults and PCIe errors of the kernel's log, from lines in the kernel's shape."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rig.box.facts import KernelEvent
from rig.box.kernel_log import events_of, kernel_log_of_this_machine, with_kernel_log
from rig.box.read import read_box
from tests.box.fake_system import fake_box, four_3090s

_CARD = "0000:09:00.0"


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            "[ 12.3] NVRM: Xid (PCI:0000:09:00): 79, pid=7, name=x, GPU has fallen off the bus.",
            KernelEvent(
                kind="xid", where=_CARD, code=79, text="pid=7, name=x, GPU has fallen off the bus."
            ),
        ),
        (
            "Nov 30 01:02:03 b kernel: nvidia 0000:09:00.0: AMD-Vi: Event logged "
            "[IO_PAGE_FAULT domain=0x0010 address=0xf flags=0x0020]",
            KernelEvent(kind="iommu-fault", where=_CARD),
        ),
        (
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:09:00.0 domain=0x001 address=0xf]",
            KernelEvent(kind="iommu-fault", where=_CARD),
        ),
        (
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=09:00.0 domain=0x001 address=0xf]",
            KernelEvent(kind="iommu-fault", where=_CARD),
        ),
        (
            "DMAR: [DMA Write NO_PASID] Request device [09:00.0] fault addr 0xffe00000 "
            "[fault reason 0x05] PTE Write access is not set",
            KernelEvent(kind="iommu-fault", where=_CARD),
        ),
        ("AMD-Vi: IO_PAGE_FAULT somewhere", KernelEvent(kind="iommu-fault")),
        (
            "nvidia 0000:09:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer",
            KernelEvent(kind="pcie-error", where=_CARD, text="corrected"),
        ),
        (
            "nvidia 0000:09:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Txn",
            KernelEvent(kind="pcie-error", where=_CARD, text="uncorrected"),
        ),
        (
            "pcieport 0000:00:03.1: AER: Multiple Corrected error received: 0000:09:00.0",
            KernelEvent(kind="pcie-error", where=_CARD, text="corrected"),
        ),
    ],
)
def test_an_event(line: str, event: KernelEvent) -> None:
    assert events_of([line]) == (event,)


@pytest.mark.parametrize(
    "line",
    [
        "pcieport 0000:00:03.1: AER: enabled with IRQ 28",
        "acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug PME AER PCIeCapability LTR]",
        "DMAR: IOMMU enabled",
        "AMD-Vi: Interrupt remapping enabled",
        "DMAR-IR: Enabled IRQ remapping in x2apic mode",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  595.58.03",
        "nvidia 0000:09:00.0: enabling device (0000 -> 0003)",
    ],
)
def test_a_healthy_boot_has_no_event(line: str) -> None:
    assert events_of([line]) == ()


def test_one_error_is_two_lines_and_counts_once() -> None:
    told = "pcieport 0000:00:03.1: AER: Corrected error message received from 0000:09:00.0"
    said = "nvidia 0000:09:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer"
    (event,) = events_of([told, said, told, told, said])
    assert (event.where, event.count) == (_CARD, 2)


def test_equal_ones_are_counted_and_the_last_word_or_the_worst_stays() -> None:
    xid = "NVRM: Xid (PCI:0000:09:00): 154, GPU recovery action changed from "
    (event,) = events_of([xid + "0x0 (None) to 0x2 (X)", xid + "0x2 (X) to 0x0 (None)"])
    assert event.count == 2
    assert event.text.endswith("to 0x0 (None)")
    bad = "x 0000:09:00.0: PCIe Bus Error: severity=Uncorrected (Fatal)"
    (event,) = events_of([bad, bad.replace("Uncorrected (Fatal)", "Corrected")])
    assert event.text == "uncorrected"


def test_a_log_that_is_kept_from_the_user_is_unknown_and_the_next_source_is_asked() -> None:
    say = (sys.executable, "-c", "print('NVRM: Xid (PCI:0000:09:00): 31, x')")
    silent = (sys.executable, "-c", "")
    refused = (sys.executable, "-c", "raise SystemExit(1)")
    hangs = (sys.executable, "-c", "import time; time.sleep(60)")
    assert kernel_log_of_this_machine([refused, silent, ("/no/such/program",)]) is None
    assert kernel_log_of_this_machine([hangs], limit_s=0.2) is None
    assert "Xid" in (kernel_log_of_this_machine([refused, say], limit_s=20) or "")


def test_the_box_holds_them(tmp_path: Path) -> None:
    made = fake_box(tmp_path, four_3090s())
    box = read_box(made.system, made.nvml)
    assert box.host.kernel_events is None
    assert with_kernel_log(box, lambda: None).host.kernel_events is None
    quiet = with_kernel_log(box, lambda: "Linux version 6.8.0\n")
    assert quiet.host.kernel_events == ()
    ill = "NVRM: Xid (PCI:0000:21:00): 31, x\n"
    (event,) = with_kernel_log(box, lambda: ill).host.kernel_events or ()
    assert (event.where, event.code) == ("0000:21:00.0", 31)
    assert with_kernel_log(quiet, lambda: ill) == quiet
