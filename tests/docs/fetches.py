"""What a browser fetches when it shows a page: read from HTML and CSS, not from their look."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

# What each tag fetches. `<a>` is not here: it is followed by a person.
_ATTRIBUTES = {
    "audio": ("src",),
    "base": ("href",),
    "embed": ("src",),
    "form": ("action",),
    "frame": ("src",),
    "iframe": ("src", "srcdoc"),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src", "formaction"),
    "button": ("formaction",),
    "link": ("href", "imagesrcset"),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
# A search engine reads these links; a browser fetches nothing of them.
_NOT_FETCHED = {"canonical", "alternate", "next", "prev", "author", "license"}
_URL = re.compile(r"""url\(\s*(?:"([^"]*)"|'([^']*)'|([^)\s]*))\s*\)""", re.IGNORECASE)
_IMPORT = re.compile(r"""@import\s+(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_CALL = re.compile(
    r"""(?:\bfetch|\bimport|\bimportScripts|\bsendBeacon|new\s+(?:Worker|WebSocket|EventSource))"""
    r"""\s*\(\s*["'`]([^"'`]+)|\.open\(\s*["'`]\w+["'`]\s*,\s*["'`]([^"'`]+)"""
    r"""|\.(?:src|href)\s*=\s*["'`]([^"'`]+)"""
)


def fetched_by(path: Path) -> list[str]:
    """The addresses that a page, a style sheet, a script or a drawing has fetched."""
    text = path.read_text("utf-8")
    if path.suffix == ".css":
        return list(_by_css(text))
    if path.suffix == ".js":
        return list(_by_script(text))
    return by_html(text)


def by_html(text: str) -> list[str]:
    """The same for the text of a page or a drawing."""
    page = _Page()
    page.feed(text)
    page.close()
    return page.found


def is_elsewhere(address: str) -> bool:
    """Whether an address names a host, so that another one than the site's own is asked."""
    plain = re.sub(r"[\t\r\n]", "", address).strip().replace("\\", "/").lower()
    return plain.startswith("//") or bool(re.match(r"(https?|wss?|ftp):", plain))


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = ""
        self._kind = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._inside, self._kind = tag, values.get("type", "")
        self.found += _by_css(values.get("style", ""))
        for name, value in values.items():
            if name.startswith("on"):
                self.found += _by_script(value)
        # Pictures of the drawing kind name their colours and masks so.
        self.found += [u for n, v in values.items() if n not in ("style",) for u in _by_url(v)]
        if tag == "meta" and values.get("http-equiv", "").lower() == "refresh":
            self.found.append(values.get("content", "").partition("=")[2].strip("\"' "))
        if tag == "link" and set(values.get("rel", "").lower().split()) <= _NOT_FETCHED:
            return
        for name in _ATTRIBUTES.get(tag, ()):
            value = values.get(name, "")
            if name.endswith("srcset"):
                self.found += [part.split()[0] for part in value.split(",") if part.strip()]
            elif name == "srcdoc":
                self.found += by_html(value)
            elif value:
                self.found.append(value)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.found += _by_css(data)
        elif self._inside == "script":
            self.found += _by_json(data) if "json" in self._kind else _by_script(data)


def _by_css(text: str) -> Iterator[str]:
    plain = re.sub(r"(?s)/\*.*?\*/", "", text)
    yield from _by_url(plain)
    for match in _IMPORT.finditer(plain):
        yield match[1] or match[2]


def _by_url(text: str) -> Iterator[str]:
    for match in _URL.finditer(text):
        yield match[1] or match[2] or match[3]


def _by_script(text: str) -> Iterator[str]:
    """Only what stands there as a word: a script can put an address together."""
    for match in _CALL.finditer(text):
        yield match[1] or match[2] or match[3]


def _by_json(text: str) -> Iterator[str]:
    """Any string of the settings that a page gives to its scripts."""
    left = [json.loads(text)]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
