"""Find network addresses in a text, and tell them from version numbers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\w)", re.ASCII)
IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}(?:[0-9a-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?![\w:]|\.\w)",
    re.IGNORECASE | re.ASCII,
)
MAC = re.compile(
    r"(?<![\w:-])[0-9a-f]{2}(?:([:-])[0-9a-f]{2})(?:\1[0-9a-f]{2}){4,18}(?![\w:]|-\w)",
    re.IGNORECASE | re.ASCII,
)
_HOST_OF_CLOUD = re.compile(r"\bip-(\d{1,3}(?:-\d{1,3}){3})(?![\w-])")  # ip-10-0-0-5.internal
# What stands before a version of four numbers: "cudnn 9.10.2.21", "==13.0.0.19" ...
_VERSION_BEFORE = re.compile(
    r"(?:[=<>~!]=|\bversion\S{0,3}|\bcudnn\S{0,12}|\bcublas\S{0,12}|\bnccl\S{0,12}"
    r"|\bnvidia[_-][\w-]+|[_-]cu\d+)[ \t:=('\"-]*$",
    re.IGNORECASE,
)
# ... or, of a public address only, perhaps: "Chrome/120.0.0.0", "v1.2.3.4".
_MAYBE_VERSION_BEFORE = re.compile(
    r"(?:(?<![/\w])v|\w/|\brelease|\bdriver|\bbios|\bvbios|-)[ \t:=('\"]*$", re.IGNORECASE
)


def replace_ipv4(text: str, replace: Callable[[str], str]) -> str:
    """Replace IPv4 addresses, but loopback, "any" and masks: those tell nothing.

    A version of four numbers is told by what stands before it; where nothing tells, it is taken
    for an address.
    """

    def one(match: re.Match[str]) -> str:
        found = match[0]
        try:
            address = ipaddress.IPv4Address(found)
        except ValueError:
            return found  # 300.1.1.1, 1.02.3.4
        if address.is_loopback or address.packed[0] in (0, 255):
            return found
        before = text[max(0, match.start() - 60) : match.start()]
        if _VERSION_BEFORE.search(before):
            return found
        if not address.is_private and _MAYBE_VERSION_BEFORE.search(before):
            return found
        return replace(found)

    return _HOST_OF_CLOUD.sub(lambda m: replace(m[1].replace("-", ".")), IPV4.sub(one, text))


def replace_ipv6(text: str, replace: Callable[[str], str]) -> str:
    """Replace IPv6 addresses but loopback and "any"."""

    def one(match: re.Match[str]) -> str:
        found = match[0]
        if not re.search(r"[0-9a-f]", found, re.IGNORECASE):
            return found
        try:
            address = ipaddress.IPv6Address(found)
        except ValueError:
            return found  # a time, a PCI address, code
        return found if address.is_loopback or address.is_unspecified else replace(found.lower())

    return IPV6.sub(one, text)


def replace_mac(text: str, replace: Callable[[str], str]) -> str:
    """Replace MAC and InfiniBand hardware addresses but the all-zero and broadcast ones."""

    def one(match: re.Match[str]) -> str:
        plain = match[0].lower().replace("-", ":")
        return match[0] if set(plain) <= {"0", ":"} or set(plain) <= {"f", ":"} else replace(plain)

    return MAC.sub(one, text)
