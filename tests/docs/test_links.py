"""Links between pages lead somewhere, and each page is in the site's menu."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .pages import DOCS, PAGES, ROOT, anchors_of, links_of, name_of

_MENU = re.compile(r"^\s*- (?:[^:\n]+: )?([\w-]+\.md)$", re.MULTILINE)


def broken(page: Path, site: Path = DOCS) -> list[str]:
    """Links of a page that lead nowhere, or out of the folder that the site is made of."""
    found = []
    for link in links_of(page):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_file():
            found.append(f"{link}: there is no such file")
        elif page.parent == site and site not in target.parents:
            found.append(f"{link}: not in docs/, so not in the site")
        elif anchor and anchor not in anchors_of(target):
            found.append(f"{link}: no such heading")
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_hold(page: Path) -> None:
    assert broken(page) == []


def test_links_are_found() -> None:
    """The test above would pass if none were found."""
    assert sum(len(links_of(page)) for page in PAGES) > 60
    assert "security.md" in links_of(DOCS / "index.md")
    assert "streaming-ring.svg" in links_of(DOCS / "streaming.md")
    assert "exit-status" in anchors_of(DOCS / "launch.md")


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# One\n\n[a](b.md) [b](#two) ![c](c.svg) [d](#one) [e](https://example.org/)\n"
    )
    assert [said.partition(":")[0] for said in broken(page)] == ["b.md", "#two", "c.svg"]


def test_a_link_out_of_the_site_is_seen(tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text("# Outside\n")
    site = tmp_path / "docs"
    site.mkdir()
    page = site / "a.md"
    page.write_text("[outside](../outside.md)\n")
    assert broken(page, site) == ["../outside.md: not in docs/, so not in the site"]


def test_the_menu_has_every_page() -> None:
    menu = _MENU.findall((ROOT / "mkdocs.yml").read_text())
    assert len(menu) == len(set(menu))
    assert sorted(menu) == sorted(path.name for path in DOCS.glob("*.md"))


def test_every_page_can_be_reached_from_the_first() -> None:
    """By links alone: whoever reads on a code host has no menu."""
    reached, waiting = set(), [DOCS / "index.md", ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        paths = [link.partition("#")[0] for link in links_of(page) if "://" not in link]
        waiting += [(page.parent / path).resolve() for path in paths if path]
    assert {name_of(page) for page in PAGES if page not in reached} == set()


def test_pictures_say_what_they_show() -> None:
    """Words in a picture are words, and it has a title and a description."""
    for path in DOCS.glob("streaming-*.svg"):
        text = path.read_text("utf-8")
        assert text.count("<text") > 10, path.name
        assert "<image" not in text and "<script" not in text and "href" not in text, path.name
    for name in ("streaming-ring.svg", "streaming-time.svg"):
        text = (DOCS / name).read_text("utf-8")
        assert '<title id="t">' in text and '<desc id="d">' in text
