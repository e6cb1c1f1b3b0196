"""No setting and no variable of a user changes what a refresh writes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .conftest import reopen
from .releases import SECOND, message
from .workshop import Workshop, run_git

# --- settings and environment of a user ------------------------------------------------------

HOSTILE_CONFIG = {
    "diff.noprefix": "true",
    "diff.mnemonicPrefix": "true",
    "diff.context": "1",
    "diff.interHunkContext": "9",
    "diff.suppressBlankEmpty": "true",
    "diff.renames": "copies",
    "diff.algorithm": "patience",
    "diff.external": "/bin/false",
    "diff.wsErrorHighlight": "all",
    "diff.indentHeuristic": "false",
    "diff.statGraphWidth": "3",
    "diff.statNameWidth": "5",
    "diff.submodule": "log",
    "core.quotePath": "false",
    "core.abbrev": "7",
    "core.autocrlf": "input",
    "core.whitespace": "trailing-space,tab-in-indent",
    "core.commentChar": "R",
    "apply.whitespace": "fix",
    "color.ui": "always",
    "format.signOff": "true",
    "format.subjectPrefix": "RFC",
    "format.numbered": "true",
    "format.attach": "--boundary",
    "format.encodeEmailHeaders": "true",
    "format.headers": "X-Mine: yes",
    "format.thread": "deep",
    "format.from": "Somebody Else <else@example.org>",
    "format.suffix": ".txt",
    "format.signature": "a signature",
    "format.notes": "true",
    "format.useAutoBase": "true",
    "format.to": "list@example.org",
    "format.cc": "cc@example.org",
    "format.coverLetter": "true",
    "format.outputDirectory": "/nonexistent",
    "format.pretty": "oneline",
    "i18n.logOutputEncoding": "latin1",
    "i18n.commitEncoding": "latin1",
    "log.showSignature": "true",
    "log.date": "relative",
    "am.threeWay": "true",
    "am.keepcr": "false",
    "mailinfo.scissors": "true",
    "merge.conflictStyle": "zdiff3",
    "merge.renames": "false",
    "rebase.autoSquash": "true",
    "rebase.autoStash": "true",
    "commit.gpgSign": "true",
    "tag.gpgSign": "true",
    "user.signingKey": "nobody",
    "commit.cleanup": "scissors",
    "commit.template": "/nonexistent",
    "trailer.separators": "%",
    "trailer.tests.key": "Tested: ",
    "trailer.ifexists": "replace",
    "status.relativePaths": "true",
    "status.showUntrackedFiles": "no",
    "init.templateDir": "/nonexistent",
    "init.defaultBranch": "other",
    "pack.threads": "1",
    "fetch.prune": "true",
}
HOSTILE_ENVIRONMENT = {
    "GIT_DIFF_OPTS": "-u1",
    "GIT_EXTERNAL_DIFF": "/bin/false",
    "GIT_AUTHOR_NAME": "Wrong",
    "GIT_AUTHOR_DATE": "2001-01-01T00:00:00",
    "GIT_COMMITTER_NAME": "Wrong",
    "GIT_COMMITTER_DATE": "2001-01-01T00:00:00",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "diff.noprefix",
    "GIT_CONFIG_VALUE_0": "true",
    "GIT_CONFIG_PARAMETERS": "'diff.noprefix=true'",
    "GIT_DIR": "/nonexistent",
    "GIT_WORK_TREE": "/nonexistent",
    "GIT_INDEX_FILE": "/nonexistent",
    "GIT_OBJECT_DIRECTORY": "/nonexistent",
    "GIT_DEFAULT_HASH": "sha256",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_PAGER": "/bin/false",
    "GIT_EDITOR": "/bin/false",
    "GIT_TRACE": "1",
    "EDITOR": "/bin/false",
    "PAGER": "/bin/false",
    "LC_ALL": "de_DE.UTF-8",
    "LANG": "ja_JP.eucJP",
    "LANGUAGE": "de:fr",
    "TZ": "Asia/Kathmandu",
    "COLUMNS": "40",
    "TERM": "xterm-256color",
    "QUILT_PATCHES": "elsewhere",
    "QUILT_PUSH_ARGS": "--fuzz=3",
    "QUILT_PATCH_OPTS": "--reverse",
    "POSIXLY_CORRECT": "1",
    "PATCH_GET": "1",
    "SIMPLE_BACKUP_SUFFIX": ".mine",
}


def hostile_home(folder: Path) -> Path:
    """A home folder whose git settings change everything that they can."""
    folder.mkdir()
    for key, value in HOSTILE_CONFIG.items():
        run_git(folder, "config", "--file", str(folder / ".gitconfig"), key, value)
    (folder / "order").write_text("vllm/*\n*\n")
    (folder / "attributes").write_text("* -diff\n*.py text eol=crlf\n")
    (folder / "ignore").write_text("*\n")
    for key, name in {
        "diff.orderFile": "order",
        "core.attributesFile": "attributes",
        "core.excludesFile": "ignore",
    }.items():
        run_git(folder, "config", "--file", str(folder / ".gitconfig"), key, str(folder / name))
    (folder / ".quiltrc").write_text("QUILT_PATCH_OPTS=--reverse\n")
    return folder


def many_kinds(workshop: Workshop) -> None:
    """Patches whose bytes all of these settings would change."""
    workshop.replace("vllm/engine.py", "engine_010 = 10", "engine_010 = 1")
    workshop.replace("vllm/engine.py", "engine_020 = 20", "engine_020 = 2")
    workshop.replace("vllm/ünïcode.py", "unicode_003 = 3", "unicode_003 = 'ä'")
    workshop.git("mv", "vllm/a name with spaces.py", "vllm/moved name.py")
    workshop.write("vllm/blank.py", "one = 1\n\n\n\ntwo = 2\n")
    workshop.commit(message("0301", "[Tag] Ünï " + "very long subject " * 6, "Bödy."))
    workshop.replace("vllm/blank.py", "two = 2", "two = 22")
    workshop.write("vllm/dos.py", "one = 1\r\ntwo = 22\r\nthree = 3\r\n")
    workshop.commit(message("0302", "Second kind"), author="Jürgen, the Other <j@example.org>")


def test_no_setting_of_a_user_changes_a_byte(two_patches: Workshop, tmp_path: Path) -> None:
    many_kinds(two_patches)
    shutil.copytree(two_patches.root.parent, tmp_path / "hostile", symlinks=True)
    two_patches.refresh()
    two_patches.verify()
    expected = two_patches.patch_files()

    other = reopen(tmp_path / "hostile")
    home = hostile_home(tmp_path / "home")
    tree = other.tree()
    for key, value in HOSTILE_CONFIG.items():
        if not key.startswith(("core.autocrlf", "status.")):  # these change the tree's own status
            run_git(tree, "config", key, value)
    run_git(tree, "config", "diff.orderFile", str(home / "order"))
    (tree / ".git/info").mkdir(exist_ok=True)
    (tree / ".git/info/attributes").write_text("*.py diff=python -text\n*.md -diff\n")
    run_git(other.root, "init", "--quiet")
    for key, value in HOSTILE_CONFIG.items():
        run_git(other.root, "config", key, value)
    env = {**HOSTILE_ENVIRONMENT, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    old = os.umask(0o077)
    try:
        other.command_line("refresh", env=env).must_succeed()
        assert other.patch_files() == expected
        again = other.command_line("refresh", env=env).must_succeed()
        assert "nothing changed" in again.stdout
        other.command_line("apply", SECOND, env=env).must_succeed()
        other.command_line("verify", env=env).must_succeed()
    finally:
        os.umask(old)
    here, there = two_patches.apply(SECOND), other.tree(SECOND)
    assert run_git(here, "rev-parse", "HEAD") == run_git(there, "rev-parse", "HEAD")
