#!/bin/sh
# What starts in the image. Here only what needs no Python; the rest is rig.image.start.
set -eu

fail() {
    printf 'error: %s\n  next:  %s\n' "$1" "$2" >&2
    exit 3
}

rig=/opt/vllm-rig
machine="$(uname -m)"
if [ "$machine" != "$RIG_IMAGE_ARCH" ]; then
    fail "this image is for $RIG_IMAGE_ARCH, this machine is $machine" \
        "build or pull the image for $machine: \`rig image --arch $machine\`"
fi
"$rig/.venv/bin/python" -c '' 2>/dev/null \
    || fail "the image's own Python does not run here" \
        "the image is damaged or for another processor: pull or build it again"
PYTHONPATH="$rig/scripts" exec "$rig/.venv/bin/python" -P -m rig.image.start "$@"
