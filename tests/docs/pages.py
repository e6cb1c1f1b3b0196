"""The pages as CommonMark reads them: headings, links, code."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def name_of(path: Path) -> str:
    """A page as a person names it, for test ids and messages."""
    return str(path.relative_to(ROOT))


@dataclass(frozen=True)
class Code:
    """One piece of code.

    Args:
        text: as it stands.
        inline: a span in a sentence, not a block.
        language: of a fenced block; "" elsewhere.
    """

    text: str
    inline: bool
    language: str = ""


def tokens_of(path: Path) -> Iterator[Token]:
    """All tokens of a page, those inside paragraphs too."""
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text("utf-8")):
        yield token
        yield from token.children or ()


def code_of(path: Path) -> list[Code]:
    """Blocks (fenced or indented) and spans."""
    found = []
    for token in tokens_of(path):
        if token.type in ("fence", "code_block"):
            found.append(Code(token.content, inline=False, language=token.info.strip()))
        elif token.type == "code_inline":
            found.append(Code(token.content, inline=True))
    return found


def links_of(path: Path) -> list[str]:
    """Where links and pictures lead."""
    found = []
    for token in tokens_of(path):
        target = token.attrGet("href") if token.type == "link_open" else None
        target = token.attrGet("src") if token.type == "image" else target
        if target is not None:
            found.append(str(target))
    return found


def anchors_of(path: Path) -> set[str]:
    """The anchors of a page's headings, those that the site and a code host both make."""
    titles = []
    before = None
    for token in tokens_of(path):
        if before is not None and before.type == "heading_open" and token.type == "inline":
            titles.append("".join(child.content for child in token.children or ()))
        before = token
    return _numbered(titles, _site_slug, "_") & _numbered(titles, _host_slug, "-")


def _numbered(titles: list[str], slug: object, joint: str) -> set[str]:
    assert callable(slug)
    seen: Counter[str] = Counter()
    anchors = set()
    for title in titles:
        name = slug(title)
        anchors.add(f"{name}{joint}{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return anchors


def _site_slug(title: str) -> str:
    """As Python-Markdown's `toc` makes it."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def _host_slug(title: str) -> str:
    """As code hosts make it: each blank becomes a dash of its own."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
