"""The `Probes:` trailer is read as it is written, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from rig.errors import RigError
from rig.layout import layout_of_this_checkout
from rig.pins import primary_pin
from rig.probes.grammar import Once, Symbol, parse_probes, probes_of
from rig.series.listing import read_mails


def test_both_kinds() -> None:
    text = 'symbol a.b:C.d; once a/b.py "x = \\"y\\"; z"; symbol a:B'
    assert parse_probes([text]) == [
        Symbol("a.b", "C.d"),
        Once("a/b.py", 'x = "y"; z'),
        Symbol("a", "B"),
    ]


def test_a_trailer_over_several_lines() -> None:
    assert parse_probes(["symbol a.b:C;\n  symbol a.b:D"]) == [
        Symbol("a.b", "C"),
        Symbol("a.b", "D"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "symbol a.b",
        'once a.py "open',
        "once a.py text",
        "twice a.py",
        "symbol a:b symbol a:c",
        'once "a.py" "x"',
        'once a.py ""',
    ],
)
def test_what_is_no_probe(text: str) -> None:
    with pytest.raises(RigError, match="this is no probe"):
        parse_probes([text])


def test_a_probe_is_shown_as_it_is_written() -> None:
    assert [str(p) for p in parse_probes(['symbol a.b:C.d; once a.py "x"'])] == [
        "symbol a.b:C.d",
        'once a.py "x"',
    ]


def test_every_patch_of_the_series_has_readable_probes() -> None:
    layout = layout_of_this_checkout()
    mails = [mail for _, mail in read_mails(layout, primary_pin(layout))]
    with_probes = [mail for mail in mails if probes_of(mail)]
    assert len(with_probes) > len(mails) / 2
