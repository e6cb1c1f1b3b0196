"""What becomes a result of what the ranks said and of how they ended."""

from __future__ import annotations

from typing import Any

from rig.p2p.cases import Case
from rig.p2p.judge import CaseEnd, RankEnd, bad_cards, judge
from rig.p2p.verdict import Result

from .conftest import a_box

CASE = Case("nccl-p2p", (0, 1), (4096, 65536, 1048576))
COPY = Case("copy", (0, 1), (4096, 65536, 1048576))


def rank(
    *wrong: str,
    status: int | None = 0,
    extra: tuple[dict[str, Any], ...] = (),
    tail: str = "",
    ended_at: float = 0.0,
) -> RankEnd:
    """One that finished as many sizes as it is given words for ("": right)."""
    sizes = CASE.sizes[: len(wrong)]
    done = [
        {"event": "done", "size": size, "wrong": word, "gb_per_s": 10.0 + len(word)}
        for size, word in zip(sizes, wrong, strict=True)
    ]
    end = [{"event": "end"}] if status == 0 else []
    return RankEnd((*done, *extra, *end), status, tail, ended_at)


GOOD = rank("", "", "")


def outcomes(results: list[Result]) -> list[str]:
    return [result.outcome for result in results]


def test_all_right() -> None:
    results = judge(CASE, CaseEnd((GOOD, GOOD)))
    assert outcomes(results) == ["passed"] * 3
    assert [r.size_bytes for r in results] == list(CASE.sizes)
    assert results[0].gb_per_s == 10.0


def test_one_rank_wrong_is_wrong() -> None:
    results = judge(CASE, CaseEnd((GOOD, rank("", "zeros", ""))))
    assert outcomes(results) == ["passed", "wrong", "passed"]
    assert results[1].detail == "zeros"
    assert results[1].gb_per_s == 10.0  # the slowest rank's


def test_a_hang_at_a_size() -> None:
    end = CaseEnd((rank("", status=None), rank("", status=None)), silent_s=61.0)
    results = judge(CASE, end)
    assert outcomes(results) == ["passed", "hang", "not run"]
    assert "rank 0, rank 1: silent for 61 s" in results[1].detail
    assert "hang" in results[2].detail
    assert set(bad_cards(CASE, results, end)) == {0, 1}


def test_a_hang_that_cannot_be_killed_is_said() -> None:
    end = CaseEnd((rank(status=None),), silent_s=60.0, undead=(4711,))
    assert "pid 4711, which cannot be killed" in judge(COPY, end)[0].detail


def test_wrong_before_a_hang_is_not_lost() -> None:
    end = CaseEnd((rank("", "zeros", status=None), rank("", status=None)), silent_s=9.0)
    results = judge(CASE, end)
    assert outcomes(results) == ["passed", "hang", "not run"]
    assert "zeros" in results[1].detail


def test_the_first_that_gave_up_is_the_cause() -> None:
    says = {"event": "error", "detail": "NCCL: remote closed", "at": 12.0}
    error = rank("", status=1, extra=(says,), ended_at=12.1)
    crash = rank("", status=-11, tail="something\nSegmentation fault\n", ended_at=11.5)
    results = judge(CASE, CaseEnd((error, crash)))
    assert outcomes(results) == ["passed", "crash", "not run"]
    assert results[1].detail == (
        "rank 1 ended by SIGSEGV (Segmentation fault); then rank 0: NCCL: remote closed"
    )
    seen_late = rank("", status=-11, ended_at=13.0)
    assert judge(CASE, CaseEnd((error, seen_late)))[1].outcome == "crash"
    assert not bad_cards(CASE, results, CaseEnd((error, crash)))
    later = rank("", status=-6, ended_at=12.4)
    results = judge(CASE, CaseEnd((later, error)))
    assert outcomes(results) == ["passed", "failed", "not run"]
    assert results[1].detail == "rank 1: NCCL: remote closed; then rank 0 ended by SIGABRT"
    alone = judge(CASE, CaseEnd((later, rank("", status=None))))
    assert alone[1].outcome == "crash"


def test_an_error_that_says_so() -> None:
    error = rank(status=1, extra=({"event": "error", "detail": "CUDA error: invalid"},))
    results = judge(CASE, CaseEnd((error, rank(status=None))))
    assert outcomes(results) == ["failed", "not run", "not run"]
    assert results[0].detail == "rank 0: CUDA error: invalid"


def test_a_status_without_a_word() -> None:
    results = judge(CASE, CaseEnd((GOOD, rank("", "", status=3, tail="no such module"))))
    assert outcomes(results) == ["passed", "passed", "failed"]
    assert results[2].detail == "rank 1 ended with status 3 (no such module)"


def test_an_early_end_with_status_0_is_no_pass() -> None:
    results = judge(CASE, CaseEnd((rank(""), rank(""))))
    assert outcomes(results) == ["passed", "failed", "not run"]


def test_a_rank_that_never_spoke() -> None:
    results = judge(CASE, CaseEnd((RankEnd(status=-9), RankEnd(status=None))))
    assert outcomes(results) == ["crash", "not run", "not run"]


def test_a_crash_after_the_last_size() -> None:
    results = judge(COPY, CaseEnd((rank("", "", "", status=-6),)))
    assert outcomes(results) == ["passed", "passed", "crash"]
    assert "after the values were checked" in results[2].detail


def test_a_hang_when_stopping() -> None:
    results = judge(COPY, CaseEnd((rank("", "", "bad", status=None),), silent_s=60.0))
    assert outcomes(results) == ["passed", "passed", "hang"]
    assert results[2].detail == "rank 0: silent for 60 s, killed; and bad"


def test_a_hang_is_graver_than_another_transport() -> None:
    shm = ({"event": "transport", "used": ["SHM"]},)
    end = CaseEnd((rank("", "", "", status=None, extra=shm),), silent_s=60.0)
    assert outcomes(judge(CASE, end)) == ["passed", "passed", "hang"]


def test_refused() -> None:
    refused = rank(extra=({"event": "refused", "detail": "vLLM does not enable it: 3 cards"},))
    results = judge(CASE, CaseEnd((refused, rank(status=None))))
    assert outcomes(results) == ["failed"] * 3
    assert results[0].detail == "vLLM does not enable it: 3 cards"
    assert not bad_cards(CASE, results, CaseEnd((refused,)))


def test_a_card_that_fell_off_the_bus() -> None:
    end = CaseEnd((rank("", status=1),), lost={1: "it fell off the bus"})
    results = judge(COPY, end)
    assert outcomes(results) == ["passed", "lost", "not run"]
    assert results[1].detail == "card 1: it fell off the bus"
    assert bad_cards(COPY, results, end) == {1: "card 1: it fell off the bus"}


def with_transport(*used: str) -> RankEnd:
    return rank("", "", "", extra=({"event": "transport", "used": list(used)},))


def test_p2p_that_nccl_did_not_use_is_not_proven() -> None:
    results = judge(CASE, CaseEnd((with_transport("SHM/direct/direct"), GOOD)))
    assert outcomes(results) == ["failed"] * 3
    assert "SHM/direct/direct, not by P2P alone" in results[0].detail
    mixed = judge(CASE, CaseEnd((with_transport("P2P/IPC"), with_transport("SHM"))))
    assert outcomes(mixed) == ["failed"] * 3


def test_p2p_that_nccl_used_is_named() -> None:
    results = judge(CASE, CaseEnd((with_transport("P2P/CUMEM"), with_transport("P2P/CUMEM"))))
    assert outcomes(results) == ["passed"] * 3
    assert results[0].detail == "by P2P/CUMEM"


def test_p2p_used_although_off() -> None:
    case = Case("nccl-no-p2p", (0, 1), CASE.sizes)
    assert outcomes(judge(case, CaseEnd((with_transport("P2P/IPC"),)))) == ["failed"] * 3
    assert outcomes(judge(case, CaseEnd((with_transport("SHM"),)))) == ["passed"] * 3


def test_other_cards_than_those_meant() -> None:
    box = a_box(2)
    right = {"event": "ready", "bus_ids": ["0000:01:00.0", "0000:02:00.0"]}
    swapped = {"event": "ready", "bus_ids": ["0000:02:00.0", "0000:01:00.0"]}
    good = rank("", "", "", extra=(right,))
    assert outcomes(judge(COPY, CaseEnd((good,)), box)) == ["passed"] * 3
    bad = judge(COPY, CaseEnd((rank("", "", "", extra=(swapped,)),)), box)
    assert outcomes(bad) == ["failed"] * 3
    assert "0000:02:00.0" in bad[0].detail
