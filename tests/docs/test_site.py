"""The site as mkdocs builds it: no broken link, and nothing rendered as something else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from rig.docs_tables.site import build_site
from rig.errors import RigError
from rig.layout import Layout, layout_of_this_checkout

from .fetches import by_html, fetched_by, is_elsewhere
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
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".js", ".svg")]
    assert {".html", ".css", ".js", ".svg"} == {path.suffix for path in files}
    found = {path: fetched_by(path) for path in files}
    assert all(found[path] for path in files if path.suffix == ".html")
    foreign = {path.name: [u for u in urls if is_elsewhere(u)] for path, urls in found.items()}
    assert {name: urls for name, urls in foreign.items() if urls} == {}


@pytest.mark.parametrize(
    "text",
    [
        '<link href="X" rel=stylesheet>',
        '<link rel="preconnect" href="X">',
        "<script async src='X'></script>",
        "<img alt=a src=X>",
        '<img srcset="here.png 1x, X 2x">',
        '<picture><source srcset="X"></picture>',
        '<iframe src="X"></iframe>',
        '<iframe srcdoc="<img src=X>"></iframe>',
        '<p style="background: url(X)">',
        "<style>a { background: url( 'X' ) }</style>",
        '<style>@import "X";</style>',
        '<script>fetch("X").then(f)</script>',
        '<script>const s = new Worker("X")</script>',
        '<script type="application/json">{"search": ["X"]}</script>',
        "<p onclick=\"a.src = 'X'\">",
        '<svg><image href="X"/></svg>',
        '<svg><path fill="url(X)"/></svg>',
        '<video poster="X"></video>',
        '<meta http-equiv="refresh" content="0; url=X">',
    ],
)
@pytest.mark.parametrize("address", ["https://example.org/a", "//example.org/a", "HTTP://h/a"])
def test_what_asks_another_host_is_seen(text: str, address: str) -> None:
    assert [u for u in by_html(text.replace("X", address)) if is_elsewhere(u)] == [address]
    assert not any(is_elsewhere(u) for u in by_html(text.replace("X", "assets/a")))


def test_a_link_that_a_person_follows_asks_nobody() -> None:
    assert by_html('<a href="https://example.org">a</a> <code>url(https://h/a)</code>') == []


def _fake_mkdocs(monkeypatch: pytest.MonkeyPatch, then: Callable[[Path], None]) -> None:
    """Another mkdocs: writes one page, and then does what the test is about."""

    def run(command: list[str], layout: Layout, what: str) -> None:
        folder = Path(command[command.index("--site-dir") + 1])
        folder.mkdir()
        (folder / "index.html").write_text("new")
        then(folder)
        (folder / "last.html").write_text("new")

    monkeypatch.setattr("rig.docs_tables.site._environment", lambda layout: Path("python"))
    monkeypatch.setattr("rig.docs_tables.site._run", run)


def test_the_site_is_whole_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, place = Layout(tmp_path, tmp_path), tmp_path / "build" / "site"
    seen = []

    def look(folder: Path) -> None:
        seen.append(sorted(path.name for path in place.glob("*")))

    _fake_mkdocs(monkeypatch, look)
    assert build_site(layout) == build_site(layout) == place
    assert seen == [[], ["index.html", "last.html"]]
    assert sorted(path.name for path in place.parent.iterdir()) == ["docs-env.lock", "site"]


@pytest.mark.parametrize("end", [RigError("no"), KeyboardInterrupt()])
def test_a_build_that_fails_leaves_the_site_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    place = tmp_path / "build" / "site"
    place.mkdir(parents=True)
    (place / "before.html").touch()

    def fail(folder: Path) -> None:
        raise end

    _fake_mkdocs(monkeypatch, fail)
    with pytest.raises(type(end)):
        build_site(Layout(tmp_path, tmp_path))
    assert [path.name for path in place.iterdir()] == ["before.html"]
    assert sorted(path.name for path in place.parent.iterdir()) == ["docs-env.lock", "site"]


@pytest.mark.network
def test_a_build_that_is_killed_leaves_the_site_before_it(site: Path, tmp_path: Path) -> None:
    """Killed for good while mkdocs writes; the next build removes what it left."""
    layout, place = layout_of_this_checkout(), tmp_path / "site"
    place.mkdir()
    (place / "before.html").touch()
    program = "import sys; from pathlib import Path; from rig.docs_tables.site import build_site;"
    program += "from rig.layout import layout_of_this_checkout as here;"
    program += "build_site(here(), site=Path(sys.argv[1]))"
    with subprocess.Popen([sys.executable, "-c", program, str(place)], start_new_session=True) as b:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".site-*/new/*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(b.pid, signal.SIGKILL)
    assert b.returncode == -signal.SIGKILL
    assert list(tmp_path.glob(".site-*/new/*"))
    assert [path.name for path in place.iterdir()] == ["before.html"]
    build_site(layout, site=place)
    assert not list(tmp_path.glob(".site-*"))
    assert {p.name for p in place.glob("*.html")} == {p.name for p in site.glob("*.html")}
