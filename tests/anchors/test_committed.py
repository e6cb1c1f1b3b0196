"""What is committed hangs together: the table is that of the record."""

from __future__ import annotations

from rig.anchors.answers import ANCHOR, CLEAN, read_record
from rig.anchors.command import DOCUMENT, RECORD
from rig.anchors.table import document
from rig.layout import layout_of_this_checkout
from rig.pins import primary_pin


def test_the_table_is_made_from_the_record() -> None:
    layout = layout_of_this_checkout()
    record = read_record(layout.root / RECORD)
    text = (layout.root / DOCUMENT).read_text("utf-8")
    assert document(text, record) == text, "renew it: ./rig anchors --record"


def test_the_record_is_of_the_primary_release_and_of_many_models() -> None:
    layout = layout_of_this_checkout()
    record = read_record(layout.root / RECORD)
    assert record.release == primary_pin(layout).version
    assert sum(row.verdict in (CLEAN, ANCHOR) for row in record.rows) >= 40
