"""The real pynvml over a small shared library of our own, in the child process as it really runs.

What a stub in Python cannot show: that the structures, types and names that pynvml hands over are
those that the reader expects, and that a driver that never returns is given up.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rig.box.nvml_child import LIBRARY, child_command, read_nvml_in_child
from tests.box.fake_nvml import GIB

_CC = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(_CC is None, reason="no C compiler to build the small library with")

# Two cards, in the wrong order of addresses. Only what a reader cannot do without is there: all
# else is a function that the library lacks, as with an old driver.
_SOURCE = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char address[32]; } pci_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } process_t;
static int cards[2] = {0x41, 0x21};
static unsigned bus(void *card) { return (unsigned)*(int *)card; }
int nvmlInitWithFlags(unsigned flags) { HANG; return 0; }
int nvmlInit_v2(void) { HANG; return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "an error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strcpy(text, "580.95.05"); return 0; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size) {
    strcpy(text, "python"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) { *card = &cards[index]; return 0; }
int nvmlDeviceGetPciInfo_v3(void *card, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    sprintf(pci->address, "00000000:%02X:00.0", bus(card)); return 0; }
int nvmlDeviceGetName(void *card, char *text, unsigned size) {
    strcpy(text, "NVIDIA GeForce RTX 3090"); return 0; }
int nvmlDeviceGetUUID(void *card, char *text, unsigned size) {
    sprintf(text, "GPU-%02x", bus(card)); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *card, int *major, int *minor) {
    *major = 8; *minor = 6; return 0; }
int nvmlDeviceGetMemoryInfo(void *card, memory_t *memory) {
    memory->total = 24ULL << 30; memory->free = 23ULL << 30; memory->used = 1ULL << 30; return 0; }
int nvmlDeviceGetBAR1MemoryInfo(void *card, memory_t *memory) {
    memory->total = 32ULL << 30; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(void *card, unsigned *width) { *width = 16; return 0; }
int nvmlDeviceGetMigMode(void *card, unsigned *now, unsigned *next) { return 3; }
int nvmlDeviceGetPowerManagementLimit(void *card, unsigned *power) { *power = 230000; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *card, unsigned *count, process_t *found) {
    if (bus(card) == 0x41) { *count = 0; return 0; }
    if (!found) { *count = 1; return 7; }
    *count = 1; found[0].pid = 4711; found[0].memory = 1ULL << 30; return 0; }
int nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *level) {
    *level = 30; return 0; }
int nvmlDeviceGetP2PStatus(void *one, void *other, int way, int *status) {
    if (way != 0 && way != 1) return 2;
    *status = 0; return 0; }
int nvmlDeviceGetNvLinkState(void *card, unsigned link, unsigned *up) {
    if (link > 3) return 2;
    *up = link < 2; return 0; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *card, unsigned link, pci_t *pci) {
    return nvmlDeviceGetPciInfo_v3(bus(card) == 0x41 ? &cards[1] : &cards[0], pci); }
"""


def build(folder: Path, hang: str = "") -> None:
    """Make NVML's library in a folder."""
    assert _CC is not None
    source = folder / "small.c"
    source.write_text(_SOURCE)
    command = [_CC, "-shared", "-fPIC", "-w", f"-DHANG={hang}", "-o"]
    target = str(folder / LIBRARY)
    subprocess.run([*command, target, str(source)], check=True, timeout=60)


def test_two_cards_through_the_real_library_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    facts = read_nvml_in_child(child_command())
    assert (facts.driver_version, facts.driver_cuda) == ("580.95.05", (13, 0))
    first, second = facts.cards or ()
    assert (first.bus_id, second.bus_id) == ("0000:21:00.0", "0000:41:00.0")
    assert (first.uuid, first.name) == ("GPU-21", "NVIDIA GeForce RTX 3090")
    assert first.compute_capability == (8, 6)
    assert (first.memory_bytes, first.memory_free_bytes) == (24 * GIB, 23 * GIB)
    assert (first.bar1_bytes, first.link.width_now) == (32 * GIB, 16)
    assert (first.power_limit_w, first.mig) == (230.0, False)
    assert [(p.pid, p.name, p.memory_bytes) for p in first.processes or ()] == [
        (4711, "python", GIB)
    ]
    assert second.processes == ()
    (pair,) = facts.pairs or ()
    assert (pair.level, pair.nvlinks, pair.p2p, pair.p2p_why) == ("NV", 2, "granted", "OK")
    # What this library lacks is unknown, and said.
    assert (first.display_active, first.temperature_c, first.power_max_w) == (None, None, None)
    assert any("temperature" in note for note in facts.notes)


def test_a_library_that_never_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, hang="for (;;) pause()")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    before = time.monotonic()
    facts = read_nvml_in_child(child_command(), limit_s=1.5)
    assert time.monotonic() - before < 6
    assert (facts.cards, facts.notes) == (
        None,
        ("the NVIDIA driver did not answer within 1.5 s",),
    )


def test_a_library_that_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, hang="*(volatile int *)0 = 1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    facts = read_nvml_in_child(child_command())
    assert facts.cards is None
    assert facts.notes == ("NVML was not read: exit -11, it said nothing",)
