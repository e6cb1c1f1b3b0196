"""Each patch's own tests, in vLLM's tree: they pass with the series and fail without the patch."""

from __future__ import annotations

import pytest

from rig.absence import absence
from rig.layout import layout_of_this_checkout
from rig.pins import find_pin
from rig.series.apply import apply
from rig.series.listing import read_mails

from .conftest import Stage

pytestmark = pytest.mark.engine


def test_each_patch_is_missed_by_its_tests(stage: Stage) -> None:
    layout = layout_of_this_checkout()
    pin = find_pin(layout, stage.environment.version.partition("+")[0])
    verdicts = absence(
        layout, apply(layout, pin), stage.environment.python, stage.environment.site_packages
    )
    assert [v.patch for v in verdicts] == [m.name for _, m in read_mails(layout, pin)]
    for verdict in verdicts:
        assert verdict.present.passed, str(verdict)
        # `absence` raises unless a test failed, or could not import what only that patch adds.
        assert verdict.absent.failed or verdict.absent.error_texts, str(verdict)
