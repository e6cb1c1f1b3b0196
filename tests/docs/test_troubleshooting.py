"""docs/troubleshooting.md: each symptom names what finds it, and all that finds is named."""

from __future__ import annotations

import re

from rig.docs_tables.failures import failure_table, said_of
from rig.doctor.table import CHECKS
from rig.engine_log import expected
from rig.engine_log.failures import find_failure
from rig.engine_log.known import KNOWN
from rig.layout import layout_of_this_checkout

from .pages import DOCS

PAGE = (DOCS / "troubleshooting.md").read_text("utf-8")
ROWS = re.findall(r"^\| (?!what you see|---)(.+) \| (.+) \|$", PAGE, re.MULTILINE)
FINDERS = [finder for _, finder in ROWS]
CHECK_NAMES = {check.name for check in CHECKS}
NO_OPS = {
    "--numa-bind",
    "--offload-towers",
    "--cpu-offload-gb",
    "--cpu-offload-params",
    "--offload-group-size",
    expected.CUSTOM_ALL_REDUCE,
    "VLLM_CUSTOM_ALLREDUCE_PCIE",
    "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC",
}


def _named(kind: str) -> set[str]:
    return {name for finder in FINDERS for name in re.findall(rf"\*{kind}: ([^*]+)\*", finder)}


def _checks_named() -> set[str]:
    words = {word for finder in FINDERS for word in re.findall(r"`([a-z0-9-]+)`", finder)}
    return {word for word in words if not word.startswith("-")}


def test_the_page_has_symptoms() -> None:
    assert len(ROWS) > 50
    assert all(seen.strip() and finder.strip() for seen, finder in ROWS)


def test_each_check_that_is_named_exists() -> None:
    assert _checks_named() - CHECK_NAMES - {"serve"} == set()


def test_each_check_is_reached_from_a_symptom() -> None:
    assert CHECK_NAMES - _checks_named() == set()


def test_each_row_of_the_log_that_is_named_exists() -> None:
    page = failure_table(layout_of_this_checkout())
    plain = re.sub(r"\\(.)", r"\1", page)
    assert {row for row in _named("log") if f"| {row} |" not in plain} == set()


def test_each_row_of_the_log_is_reached_from_a_symptom() -> None:
    rows = {said_of(known.cause) for known in KNOWN}
    assert rows - _named("log") == set()


def test_no_ops_are_named_and_exist() -> None:
    assert _named("no-op") == NO_OPS
    source = (DOCS.parent / "scripts/rig/engine_log/expected.py").read_text()
    said = set(re.findall(r'NoOp\(\s*name="([^"]+)"', source)) | {expected.CUSTOM_ALL_REDUCE}
    assert said == NO_OPS


def test_what_users_see_is_what_the_log_reader_knows() -> None:
    """Some symptoms quote a log: the row beside them must be what the reader finds there."""
    samples = {
        "NVIDIA driver on your system is too old (found version 12080).": "driver-cuda",
        "error: unrecognized arguments: --x": "no such argument",
        "RuntimeError: CUDA error: no kernel image is available for execution": "card-generation",
        "ERROR No available memory for the cache blocks. Try": "no memory for the KV cache",
        "ray.exceptions.AuthenticationError: InvalidAuthToken": "Ray refused the engine",
    }
    for line, expected_finder in samples.items():
        failure = find_failure([line])
        assert failure is not None, line
        row = next(f for f in FINDERS if said_of(_cause_of(failure.cause)) in f)
        assert expected_finder in row, line


def _cause_of(cause: str) -> str:
    """A cause with its words of the log put back to places, to find its row."""
    for known in KNOWN:
        if re.fullmatch(re.sub(r"\\\{\d\\\}", ".+", re.escape(known.cause)), cause):
            return known.cause
    raise AssertionError(cause)
