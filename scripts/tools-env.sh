#!/usr/bin/env bash
# Make the tools' own environment (.venv) if it is missing or out of date, then run `rig` in it.
# Everything that the tools need comes from requirements/tools.txt, by digest.
set -euo pipefail

root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"
stamp="$venv/rig-requirements.sha256"

fail() {
    printf 'error: %s\n  next:  %s\n' "$1" "$2" >&2
    exit 1
}

find_python() {
    local candidate candidates=(python3 python3.14 python3.13 python3.12 python3.11)
    [[ -z "${PYTHON:-}" ]] || candidates=("$PYTHON") # no other one than was named
    for candidate in "${candidates[@]}"; do
        if command -v "$candidate" >/dev/null 2>&1 \
            && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer was not found${PYTHON:+: PYTHON is $PYTHON}" \
        "install it, or name another: PYTHON=/path/to/python3 ./rig ..., make PYTHON=/path/to/python3 ..."
}

# The Python is part of it: an environment whose interpreter was upgraded has lost its packages.
state() {
    sha256sum <"$root/requirements/tools.txt" | cut -d' ' -f1
    "$venv/bin/python" -c 'import sys; print(sys.version_info[:2])' 2>/dev/null || echo none
}

is_ready() {
    [[ -x "$venv/bin/python" && "$(cat "$stamp" 2>/dev/null || true)" == "$(state)" ]]
}

if ! is_ready; then
    { : >>"$root/.tools-env.lock"; } 2>/dev/null \
        || fail "the tools cannot be set up: $root is not writable" "work in a checkout that you may write"
    exec 9>>"$root/.tools-env.lock"
    if command -v flock >/dev/null 2>&1 && ! flock -n 9; then
        printf 'waiting for another run that sets up .venv\n' >&2
        flock 9
    fi
    if ! is_ready; then
        printf 'setting up the tools in .venv (once)\n' >&2
        python="$(find_python)"
        "$python" -m venv --clear "$venv" \
            || fail "python -m venv failed" "install the venv module of $python (python3-venv on Debian)"
        env PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PYTHONPATH= \
            "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            --require-hashes -r "$root/requirements/tools.txt" \
            || fail "the tools could not be installed: pip says why, above" "without a network: connect to a package index once; afterwards everything works offline"
        state >"$stamp"
    fi
    exec 9>&-
fi

if [[ "${1:-}" == "--python" ]]; then
    shift
    exec env PYTHONPATH="$root/scripts" "$venv/bin/python" -P "$@"
fi
exec env PYTHONPATH="$root/scripts" "$venv/bin/python" -P -m rig "$@"
