"""Each patch's own tests, in vLLM's tree: they pass with the series and fail without the patch."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.absence import absence, modules_of_a_patch_that_only_adds
from rig.absence_record import changed_patches, digests, read_record
from rig.anchors.overlay import overlay_tree
from rig.layout import layout_of_this_checkout
from rig.pins import find_pin
from rig.series.applied import AppliedTree
from rig.series.apply import apply
from rig.series.listing import read_mails
from rig.series.mail import PatchMail

from .conftest import Stage

pytestmark = pytest.mark.engine


def test_a_patch_that_the_engine_s_release_skips_is_missed_on_the_primary(
    stage: Stage, tmp_path: Path
) -> None:
    """No engine of the primary release can be installed here: its Python runs on this one's."""
    layout = layout_of_this_checkout()
    primary = find_pin(layout, None)
    engine = find_pin(layout, stage.environment.version.partition("+")[0])
    mails = {mail.number for _, mail in read_mails(layout, primary)}
    skipped = sorted(mails - {mail.number for _, mail in read_mails(layout, engine)})
    assert skipped
    tree = apply(layout, primary)
    folder = overlay_tree(tree.folder, tmp_path)
    python = stage.environment.python
    verdicts = absence(layout, tree, python, folder, skipped, installed=False)
    assert [v.patch[:4] for v in verdicts] == skipped
    assert all(v.present.passed and v.absent.failed for v in verdicts), verdicts


def test_each_changed_patch_is_missed_by_its_tests(stage: Stage) -> None:
    """What the record answers for was shown once; `test_each_patch_...` shows it again, for all."""
    layout = layout_of_this_checkout()
    pin = find_pin(layout, stage.environment.version.partition("+")[0])
    tree = apply(layout, pin)
    mails = [mail for _, mail in read_mails(layout, pin)]
    changed = changed_patches(read_record(layout, pin.version), digests(tree, mails))
    _assert_missed(stage, tree, [mail for mail in mails if mail.name in changed], mails)


@pytest.mark.full
@pytest.mark.timeout(3000)
def test_each_patch_is_missed_by_its_tests(stage: Stage) -> None:
    layout = layout_of_this_checkout()
    pin = find_pin(layout, stage.environment.version.partition("+")[0])
    mails = [mail for _, mail in read_mails(layout, pin)]
    _assert_missed(stage, apply(layout, pin), mails, mails)


def _assert_missed(
    stage: Stage, tree: AppliedTree, chosen: list[PatchMail], mails: list[PatchMail]
) -> None:
    environment = stage.environment
    numbers = [mail.number for mail in chosen]
    verdicts = absence(
        layout_of_this_checkout(), tree, environment.python, environment.site_packages, numbers
    )
    assert [v.patch for v in verdicts] == [m.name for m in chosen]
    for mail, verdict in zip(chosen, verdicts, strict=True):
        assert verdict.present.passed, str(verdict)
        adds = modules_of_a_patch_that_only_adds(tree, mails, mail)
        assert verdict.absent.failed or adds, str(verdict)
        assert verdict.absent.misses(adds), str(verdict)
