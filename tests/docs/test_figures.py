"""Figures and names in the pages are those of the code."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

from rig.box import nvml_child
from rig.box.rig_file import Rig
from rig.doctor import cards, host, links, memory, power
from rig.engine_log.failures import find_failure
from rig.launch import cluster_join, engine_environment, logs, supervise_drain
from rig.memory import activations, options, plan, tower
from rig.p2p import cases

from .pages import DOCS, ROOT

MIB = 1 << 20


def page(name: str) -> str:
    """A page with its lines joined, so that a sentence is found wherever it is broken."""
    return " ".join((DOCS / name).read_text("utf-8").split())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("doctor.md", f"The limits of {memory._MOST:.0%} (page-locked memory)".replace("%", " %")),
        ("doctor.md", f"{power._SAFE:.0%} (power supply)".replace("%", " %")),
        ("doctor.md", f"x{links.FEW_LANES} (lanes)"),
        ("doctor.md", f"{links.LOAD_PERCENT} % (load)"),
        ("doctor.md", f"{cards.UNDRAINED_BYTES >> 30} GiB (memory that has not drained, /tmp)"),
        ("doctor.md", f"{host._TMP_GOOD >> 30} GiB (memory that has not drained, /tmp)"),
        ("doctor.md", f"({memory.LARGEST_QUEUE // MIB} MiB for each rank"),
        ("doctor.md", f"{memory._CALLS // MIB} and {memory._GROUP // MIB} MiB for the group"),
        ("doctor.md", f"asks for {options.UTILIZATION:.0%} of it".replace("%", " %")),
        ("plan.md", f"{activations.CUDA_CONTEXT // MIB} MiB for CUDA"),
        ("plan.md", f"{activations.LIBRARIES // MIB} for libraries"),
        ("plan.md", f"{activations.NCCL // MIB} more for NCCL"),
        ("plan.md", f"| graphs* | {activations.CUDA_GRAPHS / 2**30:.1f} GiB"),
        ("plan.md", f"less than {plan.COMFORTABLE:,} tokens of context"),
        ("three-cards.md", f"less than {plan.COMFORTABLE:,} tokens of context"),
        ("rig-files.md", f"for {nvml_child.LIMIT_S:.0f} seconds at most"),
        ("streaming.md", f"`--offload-tower-slots` ({tower.SLOTS})"),
        ("two-boxes.md", f"silent for {cluster_join.HEAD_GONE_S:.0f} s"),
        ("supervision.md", f"more than {supervise_drain.DRIVER_BYTES >> 30} GiB in use"),
        ("supervision.md", f"({supervise_drain.DISPLAY_BYTES >> 30} GiB with a display)"),
        ("pins.md", f"Ray {engine_environment.RAY_VERSION} is the version"),
    ],
)
def test_a_figure_is_the_code_s(name: str, sentence: str) -> None:
    assert sentence in page(name)


def test_the_number_of_kept_launches() -> None:
    assert logs._KEPT_LAUNCHES == 20
    assert "last twenty launches are kept" in page("supervision.md")
    assert "the last twenty launches" in page("security.md")


def test_wsl_s_half() -> None:
    assert host._WSL_PINNED == 0.5
    assert "The doctor fails above half" in page("wsl2.md")


def test_the_sizes_of_the_p2p_check() -> None:
    text = page("p2p.md")
    ways = (("copy", "Copies and NCCL: 4 KiB to 256 MiB"), ("custom", "`custom` to 4 MiB"))
    for way, sentence in (*ways, ("pcie-ipc", "`pcie-ipc` to 512 KiB")):
        largest = max(cases.SIZES[way])  # type: ignore[index]
        shown = f"{largest // MIB} MiB" if largest >= MIB else f"{largest // 1024} KiB"
        assert shown in sentence and sentence in text
    for way, ranks in cases.RANKS.items():
        row = re.search(rf"\| `{way}` \|[^|]+\| ([^|]+) \|", text)
        assert row and ", ".join(map(str, ranks)) in row[1], way


def test_the_rigs_that_come_along() -> None:
    told = set(re.findall(r"`(\dx\d{4}(?:-nvlink)?)`", page("rig-files.md")))
    assert told == {path.stem for path in (ROOT / "scripts" / "rigs").glob("*.toml")}


def test_the_keys_of_a_rig_file() -> None:
    own = _raw("rig-files.md").partition("## Your own")[2]
    told = set(re.findall(r"^\| `(?:\[(\w+)\] )?(\w+)` \|", own, re.MULTILINE))
    keys = set()
    for name, field in Rig.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys |= {(name, key) for key in kind.model_fields}
        else:
            keys.add(("", name))
    assert told == keys


def _raw(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def test_every_launcher_is_told_of() -> None:
    texts = "".join(path.read_text() for path in (DOCS / "choosing-flags.md", ROOT / "README.md"))
    scripts = [path.name for path in (ROOT / "scripts").glob("serve*.sh")]
    rigs = {name.removeprefix("serve-").removesuffix(".sh") for name in scripts if "-" in name}
    assert {rig for rig in rigs if f"serve-{rig}.sh" not in texts} == set()


def test_what_is_published_says_who_says_so() -> None:
    """Each row of figures that others have published ends with its source; all are explained."""
    text = _raw("choosing-flags.md")
    key = text.partition("## Sources")[2]
    shorts = ("club", "syv", "HyperQwen", "lotto", "rtx6k", "vllm")
    assert all(short in key for short in shorts)
    sections = re.findall(r"\*\*Published, not measured by us\*\*(.+?)(?=\n## |\n\*\*)", text, re.S)
    rows = [r for s in sections for r in re.findall(r"^\| (?!what|---)(.+) \|$", s, re.MULTILINE)]
    assert len(rows) >= 10
    assert [row for row in rows if not row.split(" | ")[-1].startswith(shorts)] == []


def test_a_failure_that_no_row_knows() -> None:
    """The page sends to `rig report` what nothing here finds."""
    assert find_failure(["all is well"]) is None
    assert "If nothing here fits: `./rig report`" in page("troubleshooting.md")
