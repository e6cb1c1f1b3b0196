"""The site as mkdocs builds it: no broken link, and nothing rendered as something else."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from rig.docs_tables.site import build_site
from rig.errors import RigError
from rig.layout import layout_of_this_checkout

from .pages import DOCS, ROOT, name_of

_COUNTED = ("h1", "h2", "h3", "li", "table", "tr", "img", "ol", "ul")


class _Structure(HTMLParser):
    """Counts what a page is built of, inside `<article>` if there is one."""

    def __init__(self, in_article: bool) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._inside = not in_article

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside |= tag == "article"
        if self._inside and tag in _COUNTED:
            self.counts[tag] += 1
        # The highlighter makes a table of a block's line numbers; none is asked for.
        if self._inside and tag == "pre":
            self.counts["pre"] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._inside = False


def _structure(html: str, in_article: bool) -> Counter[str]:
    parser = _Structure(in_article)
    parser.feed(html)
    return parser.counts


@pytest.fixture(scope="module")
def site() -> Path:
    return build_site(layout_of_this_checkout())


@pytest.mark.network
@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=name_of)
def test_the_site_shows_what_a_code_host_shows(site: Path, page: Path) -> None:
    """Python-Markdown and CommonMark differ in lists and in code below them."""
    built = (site / page.with_suffix(".html").name).read_text("utf-8")
    wanted = MarkdownIt("commonmark").enable("table").render(page.read_text("utf-8"))
    assert _structure(built, in_article=True) == _structure(wanted, in_article=False)


@pytest.mark.network
@pytest.mark.parametrize("text", ["[a](nowhere.md)", "[a](#nowhere)", "![a](nowhere.svg)"])
def test_a_broken_link_ends_the_build(tmp_path: Path, text: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Start\n")
    menu = re.sub(r"(?s)^nav:.*", "", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(menu)
    layout = layout_of_this_checkout()
    built = build_site(layout, tmp_path / "mkdocs.yml", tmp_path / "site")
    assert (built / "index.html").is_file()
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n{text}\n")
    with pytest.raises(RigError, match="do not hold together"):
        build_site(layout, tmp_path / "mkdocs.yml", tmp_path / "site")


@pytest.mark.network
def test_the_site_asks_nobody_else(site: Path) -> None:
    """No font, script or picture is fetched from another host."""
    for path in site.glob("*.html"):
        for line in path.read_text("utf-8").splitlines():
            for tag in ("<script src=", '<link rel="stylesheet" href=', "<img src="):
                for part in line.split(tag)[1:]:
                    assert not part.lstrip("\"'").startswith(("http:", "https:", "//")), path.name
