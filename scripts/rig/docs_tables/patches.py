"""docs/patch-table.md: each patch of the series, from its own message."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from rig.errors import RigError
from rig.git import Git
from rig.layout import Layout
from rig.pins import Pin, read_pins
from rig.series.mail import PatchMail, read_mail

_WHY = Path(__file__).with_name("why.toml")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"])")
_HEAD = """\
# The patches, one by one

Made by `./rig docs --write` from the patches' own messages: do not edit. How to write and carry
one: [patches](patches.md). What they stand on: [pins](pins.md).

{count} patches, {pending} of them not submitted upstream yet. *Tests* are files in vLLM's own tree:
one of them fails without the patch (`./rig absence` shows it). *Releases* says where a patch has a
text of its own, or is left out.
"""
_COLUMNS = "| number | what | why | upstream | tests | releases |\n|---|---|---|---|---|---|"


def patch_table(layout: Layout) -> str:
    """The page.

    Raises:
        RigError: a patch cannot be read, or `why.toml` names a number that no patch has.
    """
    topics, mails = _series(layout)
    whys = _whys(mails)
    pins = read_pins(layout)
    statuses = [mail.trailers["Upstream-Status"][0] for mail in mails]
    pending = sum(status == "Pending" for status in statuses)
    parts = [_HEAD.format(count=len(mails), pending=pending)]
    for topic, title in topics.items():
        rows = [_row(mail, whys, layout, pins) for mail in mails if mail.number[:2] == topic]
        if rows:
            parts.append("\n".join([f"## {topic}xx: {title}\n", _COLUMNS, *rows]) + "\n")
    return "\n".join(parts)


def _series(layout: Layout) -> tuple[dict[str, str], list[PatchMail]]:
    """The topics (two digits -> title, as comments of the series give them) and all patches."""
    git = Git(layout.root)
    topics: dict[str, str] = {}
    mails = []
    for line in layout.series.read_text("utf-8").splitlines():
        if title := re.match(r"# (\d\d)xx (.+)", line):
            topics[title[1]] = title[2]
        elif line and not line.startswith("#"):
            mails.append(read_mail(layout.patches / line, git))
            topics.setdefault(line[:2], "other")
    return topics, mails


def _whys(mails: list[PatchMail]) -> dict[str, str]:
    told: dict[str, str] = tomllib.loads(_WHY.read_text("utf-8"))
    if strangers := sorted(set(told) - {mail.number for mail in mails}):
        raise RigError(
            f"no patch has the number {', '.join(strangers)}",
            where=_WHY.name,
            next_step="remove the line: the patch was dropped or renumbered",
        )
    return {mail.number: told.get(mail.number) or first_sentence(mail.message) for mail in mails}


def first_sentence(message: str) -> str:
    """The first sentence below a commit message's subject, on one line."""
    body = message.partition("\n\n")[2]
    paragraph = " ".join(body.split("\n\n")[0].split())
    return _SENTENCE_END.split(paragraph)[0]


def cell(text: str) -> str:
    """Text as it stands in a cell of a Markdown table, plain."""
    return re.sub(r"([|<>*_\[\]])", r"\\\1", text)


def _row(mail: PatchMail, whys: dict[str, str], layout: Layout, pins: list[Pin]) -> str:
    topic, _, what = mail.subject.partition("] ")
    files = dict.fromkeys(test.partition("::")[0] for test in mail.tests)
    tests = "<br>".join(f"`{file}`" for file in files)
    status = mail.trailers["Upstream-Status"][0]
    where = _releases(mail, layout, pins)
    subject = cell(what or topic)
    cells = (mail.number, subject, cell(whys[mail.number]), status, tests, where)
    return f"| {' | '.join(cells)} |"


def _releases(mail: PatchMail, layout: Layout, pins: list[Pin]) -> str:
    """Where the common text does not serve; "all" where it does everywhere."""
    said = []
    for pin in pins:
        if mail.number in pin.skip:
            said.append(f"not on {pin.version}: {cell(pin.skip[mail.number])}")
        elif (layout.patches / pin.version / mail.name).is_file():
            said.append(f"own text on {pin.version}")
    return "; ".join(said) or "all"
