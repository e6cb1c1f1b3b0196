"""One patch file: the mail that `git format-patch` wrote, read and checked.

`git am` and `quilt` both accept almost anything. Several bodies make one of them do the wrong
thing and exit 0: these are refused here, each with the reason.
"""

from __future__ import annotations

import email.errors
import email.header
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError
from rig.git import Git

FILE_NAME = re.compile(r"^(?P<number>[0-9]{4})-[A-Za-z0-9._-]+\.patch$")
_SEPARATOR = b"\n---\n"
_STATUS = re.compile(
    r"^(Pending|Submitted https?://\S+|Backport [0-9a-f]{7,40}|Inappropriate \S.*)$"
)
_REQUIRED_TRAILERS = ("Rig-Number", "Upstream-Status", "Removal-Plan", "Requires", "Tests")
_OTHER_TRAILERS = ("Probes", "Signed-off-by", "Co-authored-by", "Fixes", "Link")
_FULL_INDEX = re.compile(rb"^index ([0-9a-f]+)\.\.([0-9a-f]+)(?: [0-7]{6})?$")

# Where a line of the message is taken for something else, by whom, and what that does. GNU patch
# looks behind any number of blanks and of the letter X.
_BODY_TRAPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^---"), "git am drops the rest of the message here"),
    (re.compile(r"^From .*\d.\d\d:\d\d"), "a mailbox reader starts another mail here"),
    (
        re.compile(r"^[\sX]*(diff -|diff --git |--- \S|\+\+\+ \S|\*\*\* \S|@@ -)"),
        "quilt takes this for a diff and changes files that the patch does not name",
    ),
    (
        re.compile(r"^[\sX]*(Index|Prereq):\s"),
        "git am drops the rest of the message here, or patch takes it for a file name",
    ),
    (
        re.compile(r"^[\sX]*[0-9]+(,[0-9]+)?[acd][0-9]*(,[0-9]+)?\s*$"),
        "patch takes this for a diff",
    ),
)
_IN_BODY_HEADER = re.compile(r"^>?(From|Date|Subject|Author):\s", re.IGNORECASE)


@dataclass(frozen=True)
class PatchMail:
    """A patch file, read.

    Args:
        name: its file name.
        raw: its bytes.
        subject: without the `[PATCH]` tag.
        message: the commit message that it must give, subject included.
        trailers: trailer -> its values, in order.
        diff: the bytes from the first `diff --git` on.
    """

    name: str
    raw: bytes
    subject: str
    message: str
    trailers: dict[str, tuple[str, ...]]
    diff: bytes

    @property
    def number(self) -> str:
        return self.name[:4]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def requires(self) -> tuple[str, ...]:
        """The numbers of the patches that this one needs."""
        return tuple(n for n in self.listed("Requires") if n != "none")

    @property
    def tests(self) -> tuple[str, ...]:
        """What fails without this patch: pytest node ids in vLLM's tree."""
        return self.listed("Tests")

    def listed(self, trailer: str) -> tuple[str, ...]:
        """The comma separated values of a trailer."""
        values = ",".join(self.trailers.get(trailer, ()))
        return tuple(v.strip() for v in values.split(",") if v.strip())


def read_mail(path: Path, git: Git) -> PatchMail:
    """Read and check one patch file.

    Args:
        path: the patch file.
        git: any folder, for `git interpret-trailers`.

    Raises:
        RigError: the file breaks a rule; every broken rule is listed.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RigError(
            f"cannot read the patch: {error.strerror}",
            where=path,
            next_step="`patches/series` names it: restore the file or remove the line",
        ) from error
    return parse_mail(path.name, raw, git, where=path)


def parse_mail(name: str, raw: bytes, git: Git, where: object = None) -> PatchMail:
    """Parse one patch file's bytes; see `read_mail`."""
    where = where or name
    head, blank, rest = raw.partition(b"\n\n")
    body, separator, tail = rest.partition(_SEPARATOR)
    start = tail.find(b"diff --git ")
    if not (blank and separator and start >= 0):
        raise RigError(
            "not a patch mail as `git format-patch` writes it: headers, message, `---`, diff",
            where=where,
            next_step="make patches by committing in build/ and `make refresh`",
        )
    subject = _header(head, "Subject").removeprefix("[PATCH]").lstrip(" ")
    text = body.decode("utf-8", "replace").strip("\n")
    message = f"{subject}\n\n{text}".strip("\n") if text else subject
    mail = PatchMail(name, raw, subject, message, _trailers(git, message), tail[start:])
    problems = [
        *_name_problems(mail),
        *_header_problems(raw, head),
        *_body_problems(text),
        *_stat_problems(tail[:start]),
        *_trailer_problems(mail),
        *_diff_problems(mail.diff),
    ]
    if problems:
        raise RigError(
            f"the patch breaks {len(problems)} of the rules for patches",
            where=where,
            detail="\n".join(f"{name}: {p}" for p in problems),
            next_step="amend the commit in build/ and `make refresh`",
        )
    return mail


def _header(head: bytes, name: str) -> str:
    """One mail header, unfolded and decoded; empty when it is missing."""
    unfolded = re.sub(rb"\n[ \t]+", b" ", head)
    found = re.search(rb"^" + name.encode() + rb": (.*)$", unfolded, re.MULTILINE)
    if not found:
        return ""
    value = found.group(1).decode("utf-8", "replace")
    try:
        return str(email.header.make_header(email.header.decode_header(value)))
    except (LookupError, ValueError, email.errors.HeaderParseError):
        return value  # as it stands: git am then gives another message, which is an error


def _trailers(git: Git, message: str) -> dict[str, tuple[str, ...]]:
    parsed = git.run("interpret-trailers", "--parse", stdin=f"{message}\n".encode()).text
    trailers: dict[str, tuple[str, ...]] = {}
    for line in parsed.splitlines():
        key, _, value = line.partition(":")
        trailers[key] = (*trailers.get(key, ()), value.strip())
    return trailers


def _name_problems(mail: PatchMail) -> list[str]:
    if not FILE_NAME.match(mail.name):
        return ["the file name must be NNNN-words.patch"]
    return []


def _header_problems(raw: bytes, head: bytes) -> list[str]:
    problems = [f"no {h}: header" for h in ("From", "Date", "Subject") if not _header(head, h)]
    if not raw.startswith(b"From 0000000000000000000000000000000000000000 "):
        problems.append("the first line must be `From 0000...` (git format-patch --zero-commit)")
    if b"\nSubject: [PATCH]" not in head:
        problems.append("the subject must begin with [PATCH]")
    if b"\r" in head:
        problems.append("carriage returns in the mail header")
    return problems


def _body_problems(text: str) -> list[str]:
    problems = []
    lines = text.split("\n")
    for line in lines:
        for trap, harm in _BODY_TRAPS:
            if trap.match(line):
                problems.append(f"the message line {line!r}: {harm}")
                break
        if "\r" in line:
            problems.append(f"the message line {line!r} holds a carriage return")
    first = next((line for line in lines if line.strip()), "")
    if _IN_BODY_HEADER.match(first):
        problems.append(f"the message begins with {first!r}: git am takes author or date from it")
    return problems


def _stat_problems(stat: bytes) -> list[str]:
    # Every line of a diffstat begins with a space: what does not is message that am drops.
    return [
        f"text between `---` and the diff: {line.decode(errors='replace')!r}: git am drops it"
        for line in stat.split(b"\n")
        if line and not line.startswith(b" ")
    ]


def _trailer_problems(mail: PatchMail) -> list[str]:
    problems = [f"no {t}: trailer" for t in _REQUIRED_TRAILERS if t not in mail.trailers]
    known = {*_REQUIRED_TRAILERS, *_OTHER_TRAILERS}
    problems += [f"unknown trailer {t}:" for t in mail.trailers if t not in known]
    once = (*_REQUIRED_TRAILERS[:3],)
    problems += [f"{t}: appears twice" for t in once if len(mail.trailers.get(t, ())) > 1]
    for number in mail.trailers.get("Rig-Number", ()):
        if number != mail.number:
            problems.append(f"Rig-Number: {number} is not the number of the file name")
    for status in mail.trailers.get("Upstream-Status", ()):
        if not _STATUS.match(status):
            problems.append(
                f"Upstream-Status: {status!r} is none of Pending, Submitted <url>, "
                "Backport <commit>, Inappropriate <reason>"
            )
    for number in mail.requires:
        if not re.fullmatch(r"[0-9]{4}", number):
            problems.append(f"Requires: {number!r} is not a patch number or `none`")
    problems += [
        f"{trailer}: is empty"
        for trailer in ("Removal-Plan", "Requires", "Tests")
        if trailer in mail.trailers and not mail.listed(trailer)
    ]
    return problems


def _diff_problems(diff: bytes) -> list[str]:
    problems = []
    for part in (b"\n" + diff).split(b"\ndiff --git ")[1:]:
        names = part.split(b"\n", 1)[0]
        # Without a `--- a/name` line the names stand here alone, and GNU patch reads to a blank.
        if b"\n--- " not in part and not names.startswith(b'"') and names.count(b" ") > 1:
            problems.append(
                f"{names.decode(errors='replace')!r}: quilt cannot read a file name with blanks "
                "where no line changes (an empty file, or a mode alone)"
            )
    for line in diff.split(b"\n"):
        if line.startswith((b"GIT binary patch", b"Binary files ")):
            problems.append("binary hunks cannot be read by a person nor applied by quilt")
        if line.startswith(b"index "):
            found = _FULL_INDEX.match(line)
            if not found or len(found.group(1)) != 40 or len(found.group(2)) != 40:
                problems.append(f"{line.decode(errors='replace')!r}: not a full index line")
            elif not set(found.group(1) + found.group(2)) - {ord("0")}:
                problems.append("a zeroed index line: the blobs cannot be proven")
    return problems
