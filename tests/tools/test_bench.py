"""`rig bench`: what is timed, and what is too slow."""

from __future__ import annotations

from rig.bench import Measured, bench


def test_the_doctor_and_the_plan_are_timed() -> None:
    measured = bench(None, rounds=1)
    assert [one.what for one in measured] == ["rig doctor", "rig plan"]
    assert all(0 < one.seconds < 30 for one in measured)


def test_what_is_too_slow_is_said() -> None:
    assert str(Measured("rig plan", 2.5, 2)).endswith("2.50 s of 2  TOO SLOW")
    assert "SLOW" not in str(Measured("rig plan", 1.5, 2))
