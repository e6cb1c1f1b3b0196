"""What a person reads, what a program reads, and which gate of P2P one is behind."""

from __future__ import annotations

import json
import time

import pytest

from rig.box.facts import Box
from rig.doctor.context import Context
from rig.doctor.p2p_gates import which_gate
from rig.doctor.run import examine, exit_status
from rig.doctor.show import as_json, lines, summary
from tests.doctor.kit import (
    NO_CARDS,
    NO_DRIVER,
    box,
    card,
    context,
    link,
    pair,
    process,
    result,
    rig,
    verdict,
    with_,
)


def test_a_good_box_has_no_failure_and_is_through_all_gates() -> None:
    findings = examine(box(), rig(), context())
    assert {finding.state for finding in findings} == {"pass"}
    assert exit_status(findings) == 0
    assert lines(box(), findings)[-2:] == [
        "P2P: through all gates, proven by value on 2026-11-30",
        f"{len(findings)} checks: 0 fail, 0 warn, 0 unknown, {len(findings)} pass",
    ]


def test_the_worst_comes_first_with_its_why_and_next_step() -> None:
    seen = box(card(0), card(1, persistence=False, link=link(width_now=4)), ray=None)
    findings = examine(seen, rig(), context())
    said = lines(seen, findings)
    words = [line.split()[0] for line in said[2:] if line[:1] not in (" ", "") and ": " in line]
    ranks = [["FAIL", "warn", "unknown", "pass"].index(w) for w in words[: len(findings)]]
    assert ranks == sorted(ranks) and ranks[0] == 0
    assert said[2].startswith("FAIL      links, link-width: card 1: x4 of the card's x16")
    assert said[3].strip().startswith("why:") and said[4].strip().startswith("next:")
    assert exit_status(findings) == 1


def test_unknown_alone_is_no_failure_and_is_counted() -> None:
    findings = examine(NO_DRIVER, None, Context())
    assert exit_status(findings) == 0
    unknown = sum(finding.state == "unknown" for finding in findings)
    assert f"{unknown} unknown" in summary(findings)


def test_a_box_without_cards_says_so_once_and_the_host_is_judged() -> None:
    said = lines(NO_DRIVER, examine(NO_DRIVER, rig(), context()))
    text = "\n".join(said)
    assert said[2].startswith("FAIL      cards, cards-seen: no NVIDIA driver answers")
    assert text.count("checks: nothing is known of cards") == 1
    assert "pass      host, tmp-space" in text and "pass      memory, shm" in text


def test_notes_of_what_could_not_be_read_are_shown() -> None:
    seen = with_(box(), notes=("sysfs is hidden",))
    assert "  sysfs is hidden" in lines(seen, examine(seen))


def test_control_characters_of_others_do_not_reach_the_terminal() -> None:
    seen = box(card(0, processes=(process(9, 1, "\x1b[2Jx"),)), card(1))
    assert not [line for line in lines(seen, examine(seen)) if not line.isprintable()]


def test_json_holds_everything() -> None:
    seen = box(pairs=())
    findings = examine(seen, None, context(verdict=None))
    told = json.loads(as_json(seen, findings))
    assert len(told["findings"]) == len(findings) == sum(told["counts"].values())
    assert set(told["findings"][0]) == {"check", "topic", "state", "seen", "why", "next_step"}
    assert told["p2p"].startswith("P2P: behind gate")
    assert told["source"] == "a test"


GATES: list[tuple[str, Box, Context]] = [
    ("gate 1 of 8, cards-seen (fail)", NO_CARDS, context()),
    ("gate 2 of 8, p2p-generation", box(card(0), card(1, compute_capability=(8, 9))), Context()),
    ("gate 3 of 8, p2p-bar1", box(card(0), card(1, bar1_bytes=1 << 28)), Context()),
    ("gate 4 of 8, card-display", box(card(0, display_active=True), card(1)), Context()),
    ("gate 5 of 8, iommu (fail)", box(iommu="translated"), Context()),
    ("gate 6 of 8, acs (unknown)", with_(box(), bridges=None), Context()),
    ("gate 7 of 8, p2p-grant", box(pairs=(pair(0, 1, p2p="refused", p2p_why="GNS"),)), Context()),
    ("gate 8 of 8, p2p-verdict (warn)", box(), Context()),
    (
        "gate 8 of 8, p2p-verdict (fail): copy over 0-1: wrong",
        box(),
        context(verdict=verdict(result("copy", (0, 1), "wrong"))),
    ),
    ("one card", box(card(0)), Context()),
    ("through all gates", with_(box(), bridges=None), context()),
]


@pytest.mark.parametrize(("says", "seen", "given"), GATES, ids=lambda value: str(value)[:24])
def test_which_gate(says: str, seen: Box, given: Context) -> None:
    assert says in which_gate(examine(seen, None, given))


def test_all_checks_take_no_time() -> None:
    """They are pure: the second of the three that doctor may take belongs to reading."""
    seen, given = box(), context()
    examine(seen, rig(), given)
    start = time.perf_counter()
    for _ in range(20):
        examine(seen, rig(), given)
    assert (time.perf_counter() - start) / 20 < 0.1
