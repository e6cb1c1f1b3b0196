"""Take out of a text what names a person, a machine or a secret, and nothing else.

Names are replaced at word boundaries only, and names that are short or are plain words only where
a name is expected (/home/NAME, NAME@host, USER=NAME): a user called "b" must not cost every b.
The same card, address or serial number gets the same replacement all through a report.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from rig.report.addresses import replace_ipv4, replace_ipv6, replace_mac
from rig.report.identity import Identity
from rig.report.words import is_distinctive

_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{8,}|api_org_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{12,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}|nvapi-[\w-]{12,}"
    r"|xox[abprs]-[\w-]{10,}|A[KS]IA[0-9A-Z]{12,}|AIza[\w-]{30,}|ya29\.[\w-]{10,}"
    r"|(?:npm|r8|gsk)_[A-Za-z0-9]{20,}|dckr_pat_[\w-]{10,}|pypi-AgE[\w-]{12,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)"
)
_WEBHOOK = re.compile(r"(\bhooks\.slack\.com/services/)([\w/-]+)")
_BEARER = re.compile(r"(\b(?:bearer|basic)[ \t]+)(?!<)([\w.~+/=-]{6,})", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    r"(\bauthorization[\"']?[ \t]*[:=][ \t]*b?[\"']?)(?!<)"
    r"(?:((?:token|digest|negotiate|apikey|key)[ \t]+)([^\s\"',;<]{6,})"
    r"|((?=[^\s\"',;]{0,80}\d)[^\s\"',;<]{6,}))",
    re.IGNORECASE,
)
_COOKIE = re.compile(
    r"(\b(?:set-)?cookie[\"']?[ \t]*:[ \t]*b?[\"']?)([^\s\"'<][^\"'\n<]*)", re.IGNORECASE
)
# A part of an address's query that is a secret, or the signature of a link that was made for one.
_QUERY = re.compile(
    r"([?&](?:[\w.-]{0,40}(?:token|signature|credential|secret|passw(?:or)?d|key)|sig|auth)=)"
    r"([^&\s\"'<>#]+)",
    re.IGNORECASE,
)
_SECRET_WORD = (
    r"(?:passw(?:or)?d|passphrase|(?<![a-z])(?:private[_-]?key|api[_-]?key|apikey|secret|secret[_-]?key|access[_-]?key"
    r"|credentials?|(?:auth|access|hf|hub|api|ray|bearer|refresh|session)[_-]?token))"
)
# name=value, name: value, "name": "value", 'name': ['value', 'value']. The name may be a part of
# a longer one (WANDB_API_KEY), but not go on (RAY_AUTH_TOKEN_PATH).
_PAIR = re.compile(
    rf"({_SECRET_WORD}(?:\\?[\"'])?[ \t]*[=:][ \t]*)"
    r"(\\\"[^\"\\\n]*\\\"|\[[^\]\n]*\]|\"[^\"\n]*\"|'[^'\n]*'|[^\s,;\"'\]})&]+)",
    re.IGNORECASE,
)
# A mere "token" is often a piece of text ("eos_token: 2"): only upper case, or long and mixed.
_TOKEN_PAIR = re.compile(r"(\b(?:[A-Z0-9]+_)*TOKEN(?:=|[\"'][ \t]*[=:][ \t]*)[\"']?)([^\s,;\"'}]+)")
_LONE_TOKEN = re.compile(
    r"(\b(?<![-_])token(?:[\"']?[ \t]*[=:][ \t]*[\"']?|[ \t]+(?=[0-9a-f]{32})))"
    r"((?=[\w.-]*\d)[\w.-]{16,})",
    re.IGNORECASE,
)
# vLLM's --api-key takes several values.
_SECRET_OPTION = (
    r"--(?:api[_-]key|(?:(?:hf|hub|auth|access|ray|bearer|api)[_-])?token|password|secret)"
)
_OPTION = re.compile(rf"({_SECRET_OPTION}(?:=|[ \t]+))((?!-)\S+(?:[ \t]+(?!-)\S+)*)")
# The same in a list of arguments: "'--api-key', 'one', 'two', '--port'".
_OPTION_IN_LIST = re.compile(
    rf"([\"']{_SECRET_OPTION}[\"'],[ \t]*)"
    r"((?:\"(?!-)[^\"\n]*\"|'(?!-)[^'\n]*')(?:,[ \t]*(?:\"(?!-)[^\"\n]*\"|'(?!-)[^'\n]*'))*)"
)
# What vLLM logs of requests when it is asked to (request_logger.py): texts and token ids.
_REQUEST = re.compile(
    r"(\bRequest \S{1,200} details: |\bGenerated response [^\n]{1,200}?: (?=output: )"
    r"|\bGenerated response [^\n]{1,200}? details: )([^\n<][^\n]*)"
)
_EMPTY = {"", "None", "none", "null", "True", "False", "true", "false", "''", '""', "[]"}
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)([^\s/@'\"<>]{1,300})@", re.IGNORECASE)
_EMAIL = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,80}@(?:[A-Za-z0-9-]{1,60}\.)+[A-Za-z]{2,24}(?!\w)"
)
_UUID = re.compile(
    r"(?<![0-9a-f-])(GPU-|MIG-)?([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})(?![0-9a-f-])",
    re.IGNORECASE,
)
_PART_OF_UUID = re.compile(r"\b(GPU|MIG)-([0-9a-f]{8}[0-9a-f-]*)(?![0-9a-f-])", re.IGNORECASE)
_PLAIN_UUID = re.compile(r"(\buuid[\"']?[ \t]*[:=][ \t]*[\"']?)(?:0x)?([0-9a-f]{32})\b", re.I)
_SERIAL = re.compile(
    r"((?:\bserial(?:[ _-]?(?:number|no))?\b|\bS/N|\bID_SERIAL(?:_SHORT)?|\bGPU PDI"
    r"|\b(?:machine|boot)[-_]id\b|\bPARTUUID)[\"']?[ \t]*[:=#]?[ \t]*[\"']?)"
    r"((?=[\w-]*\d)[\w-]{6,})",
    re.IGNORECASE,
)
_DISK = re.compile(r"(\bwwn-0x|\beui\.)([0-9a-f]{12,16})\b", re.IGNORECASE)
_SYSLOG = re.compile(r"^(\w{3} [ \d]\d \d\d:\d\d:\d\d )(\S+)(?= \S+?(?:\[\d+\])?:)", re.MULTILINE)
# The journal's and the newer form: a time with its year, then the host, then the program.
_JOURNAL = re.compile(
    r"^(\d{4}-\d\d-\d\dT\S{8,24} |\w{3} \d{4}-\d\d-\d\d [\d:.]{8,15} \S{2,6} )"
    r"(\S+)(?= (?:kernel|\S{1,60}\[\d+\]):)",
    re.MULTILINE,
)
_UNAME = re.compile(r"(\bLinux )([\w.-]+)(?= \d+\.\d+\S* #)")
# "(base) me@box:~/x$ ls", "[me@box x]$ ls"
_PROMPT = re.compile(
    r"^((?:\([\w.-]{1,40}\) ?){0,3}\[?)([a-z_][\w.-]{0,31})@([A-Za-z][\w.-]{0,62})"
    r"(?=(?::[~/]| )[^\n$#]{0,200}[$#](?:[ \t]|$))",
    re.MULTILINE,
)
_NCCL = re.compile(r"(^|[\s)])([\w.-]+)(?=:\d+:\d+ \[\d+\] NCCL )", re.MULTILINE)
_HOMES = re.compile(
    r"((?:(?:(?<![\w.-])|(?<=/mnt)|(?<=/mnt/\w)|(?<=/var)|(?<=/export)|(?<=/srv)|(?<=/data)"
    r"|(?<=/nfs)|(?<=/host))(?:/home/+|/Users/+)|(?<![\w.-])/run/media/"
    r"|(?<![\w.-])[A-Za-z]:\\{1,2}Users\\{1,2}))([^/\\\s\"':,;)]+)"
)
_HOME_IN_QUERY = re.compile(r"(%2F(?:home|Users)%2F)([^%\s\"'&]+)", re.IGNORECASE)


class Redactor:
    """Redacts any number of texts in one manner and counts what it has replaced."""

    def __init__(self, identity: Identity | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._identity = identity or Identity()
        self._numbers: dict[str, dict[str, int]] = {}
        self._steps: list[Callable[[str], str]] = [
            self._secrets,
            self._pairs,
            self._cards,
            self._addresses,
            self._names,
        ]

    def redact(self, text: str) -> str:
        """A text without secrets, names and addresses. To redact it again changes nothing."""
        for step in self._steps:
            text = step(text)
        return text

    def _put(self, kind: str, replacement: str) -> str:
        self.counts[kind] += 1
        return replacement

    def _numbered(self, kind: str, value: str, form: str) -> str:
        known = self._numbers.setdefault(form, {})
        return self._put(kind, form.format(known.setdefault(value, len(known) + 1)))

    def _secrets(self, text: str) -> str:
        for secret in self._identity.secrets:
            pattern = re.compile(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])")
            text = pattern.sub(lambda _: self._put("token", "<token>"), text)
        text = _REQUEST.sub(lambda m: m[1] + self._put("request's text", "<request>"), text)
        text = _KEY_BLOCK.sub(lambda _: self._put("private key", "<private key>"), text)
        text = _URL.sub(lambda m: self._value(m, "credentials in an address") + "@", text)
        for pattern in (_QUERY, _COOKIE, _WEBHOOK, _OPTION_IN_LIST, _OPTION, _BEARER):
            text = pattern.sub(lambda m: self._value(m, "token"), text)
        text = _AUTHORIZATION.sub(
            lambda m: f"{m[1]}{m[2] or ''}{self._put('token', '<token>')}", text
        )
        return _TOKENS.sub(lambda _: self._put("token", "<token>"), text)

    def _pairs(self, text: str) -> str:
        for pattern in (_PAIR, _TOKEN_PAIR, _LONE_TOKEN):
            text = pattern.sub(lambda m: self._value(m, "token"), text)
        return text

    def _value(self, match: re.Match[str], kind: str) -> str:
        """The second group replaced, unless it says that there is no secret, or was replaced."""
        value = match[2].strip("\"'")
        if match[2] in _EMPTY or value in _EMPTY or value.startswith("<"):
            return match[0]
        quote = match[2][0] if match[2][0] in "\"'" and match[2][-1] == match[2][0] else ""
        return match[1] + self._put(kind, f"{quote}<token>{quote}")

    def _cards(self, text: str) -> str:
        def whole(match: re.Match[str]) -> str:
            if match[1]:
                form = match[1].upper() + "{}"
                return self._numbered("card's identity", match[2].lower()[:8], form)
            first = match[2].lower()[:8]
            if first in self._numbers.get("GPU-{}", {}):
                return self._numbered("card's identity", first, "GPU-{}")
            return self._numbered("identity", match[2].lower(), "<uuid-{}>")

        def part(match: re.Match[str]) -> str:
            return self._numbered("card's identity", match[2].lower()[:8], match[1].upper() + "-{}")

        text = _UUID.sub(whole, text)
        text = _PART_OF_UUID.sub(part, text)
        text = _PLAIN_UUID.sub(
            lambda m: m[1] + self._numbered("identity", m[2].lower(), "<uuid-{}>"), text
        )
        text = _DISK.sub(
            lambda m: m[1] + self._numbered("serial number", m[2], "<serial-{}>"), text
        )
        return _SERIAL.sub(
            lambda m: m[1] + self._numbered("serial number", m[2], "<serial-{}>"), text
        )

    def _addresses(self, text: str) -> str:
        text = _EMAIL.sub(lambda _: self._put("e-mail address", "<email>"), text)
        text = replace_mac(text, lambda a: self._numbered("hardware address", a, "<mac-{}>"))
        text = replace_ipv6(text, lambda a: self._numbered("network address", a, "<ip-{}>"))
        return replace_ipv4(text, lambda a: self._numbered("network address", a, "<ip-{}>"))

    def _names(self, text: str) -> str:
        for pattern in (_SYSLOG, _JOURNAL, _UNAME, _NCCL):
            text = pattern.sub(lambda m: self._host(m[1], m[2]), text)
        text = _PROMPT.sub(lambda m: self._host(self._user(m[1], m[2]) + "@", m[3]), text)
        for home in self._identity.homes:
            if len(home) > 1:
                own = rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])"
                text = re.sub(own, lambda _: self._put("home folder", "~"), text)
        for pattern in (_HOMES, _HOME_IN_QUERY):
            text = pattern.sub(lambda m: self._user(m[1], m[2]), text)
        for host in self._identity.hosts:
            text = self._name(text, host, "host name", "<host>", _HOST_PLACES)
        for user in self._identity.users:
            if user != "root":  # everybody's
                text = self._name(text, user, "user name", "<user>", _USER_PLACES)
        return text

    def _host(self, before: str, host: str) -> str:
        return before + (host if host.startswith("<") else self._put("host name", "<host>"))

    def _user(self, before: str, user: str) -> str:
        return before + (
            user if user.startswith("<") or user == "root" else self._put("user name", "<user>")
        )

    def _name(self, text: str, name: str, kind: str, put: str, places: tuple[str, ...]) -> str:
        if is_distinctive(name):
            places = (r"((?<![A-Za-z0-9<])){name}(?![A-Za-z0-9>])",)
        for place in places:
            pattern = re.compile(place.replace("{name}", f"(?i:{re.escape(name)})"))
            text = pattern.sub(lambda m: m[1] + self._put(kind, put), text)
        return text


# Where a name is expected, so that also "b" is one there. The group is what stays before it.
_USER_PLACES = (
    r"((?<![\w.-])/(?:home|Users|media|mnt|srv|data|scratch|nfs|run/media|run/user|var/home"
    r"|export/home|var/spool/cron)/){name}(?![\w.-])",
    r"(\b(?:USER|LOGNAME|SUDO_USER|USERNAME|user(?:_?name)?|owner)[\"']?[=:] ?[\"']?)"
    r"{name}(?![\w.-])",
    r"(\b(?:[Uu]ser(?: ?name)?|[Oo]wner)(?: is |: |=| )[\"']?){name}(?![\w.-])",
    r"(\b(?:uid|gid|groups)=\d+\(|\),\d+\(){name}(?=\))",
    r"((?<![\w.-])){name}(?=@[\w<])",
    r"((?<![\w.-])~){name}(?=/)",
)
_HOST_PLACES = (
    r"(\b[Hh]ost(?: ?name)?(?: is |: |=)[\"']?){name}(?![\w-])",
    r"(\b(?:HOSTNAME|HOST|NODE_NAME|nodename|hostname|host|node_name)[\"']?[=:] ?[\"']?)"
    r"{name}(?![\w-])",
    r"((?<=[\w>])@){name}(?![\w-])",
    r"(\b[a-z][a-z0-9+.-]{1,20}://){name}(?=[:/\s\"'<]|$)",
    r"((?<![\w.-])){name}(?=\.(?:local|lan|home|internal|localdomain)\b)",
)
