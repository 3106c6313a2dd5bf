#!/bin/sh
# Make .venv hold this package with the extras named as arguments; do nothing if it already does.
#
#   PYTHON=python3.12 TORCH=torch==2.13.0 sh scripts/setup_venv.sh plot test
#
# .venv/lpsim-state/ remembers what was done: `identity` (folder and interpreter it was made for),
# `busy` while pip works, and for each extra the checksum of the pyproject.toml it was installed from.
# An environment that was interrupted, moved, or made for another interpreter is built again.
set -eu
cd "$(dirname "$0")/.."
venv=.venv
state=$venv/lpsim-state

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() { # sets $python
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null 2>&1 ||
            die "PYTHON=$PYTHON was not found; give the name or path of a Python 3.11 or newer."
        new_enough "$PYTHON" ||
            die "PYTHON=$PYTHON is not a Python 3.11 or newer; install one and name it with PYTHON=..."
        python=$PYTHON
        return
    fi
    for python in python3 python python3.13 python3.12 python3.11 python3.14; do
        if new_enough "$python"; then return; fi
    done
    die "lpsim needs Python 3.11 or newer and none is on the PATH;" \
        "install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python)."
}

identity() { # of the interpreter $1, or of the one that a virtual environment was made from
    "$1" -c 'import os, sys; print(os.getcwd(), sys.base_prefix, sys.version.split()[0], sep="\n")' 2>/dev/null
}

usable() { # .venv is whole, stands where it was made, and fits PYTHON where that was given
    [ -f "$state/identity" ] && [ ! -e "$state/busy" ] || return 1
    made_for=$(cat "$state/identity")
    [ "$(identity "$venv/bin/python")" = "$made_for" ] || return 1
    [ -z "${PYTHON:-}" ] || [ "$(identity "$python")" = "$made_for" ]
}

create() {
    if [ -e "$venv" ]; then say "rebuilding .venv: it is incomplete, was moved, or is for another Python"; fi
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || die "$python has no venv module;" \
        "install it (Debian, Ubuntu: apt install python3-venv) or name another Python with PYTHON=..."
    say "creating .venv with $("$python" --version)"
    rm -rf "$state" # first: an interrupted removal must not look whole
    rm -rf "$venv"
    "$python" -m venv "$venv"
    mkdir "$state"
    identity "$venv/bin/python" >"$state/identity"
}

pip() {
    touch "$state/busy"
    "$venv/bin/python" -m pip --disable-pip-version-check install "$@" || die "pip could not install: $*"
    rm "$state/busy"
}

wanted=$(cksum <pyproject.toml)
missing=
[ -z "${PYTHON:-}" ] || find_python
if ! usable; then
    find_python
    create
fi
for extra in "$@"; do
    [ "$(cat "$state/$extra" 2>/dev/null)" = "$wanted" ] || missing="$missing${missing:+,}$extra"
done
[ -n "$missing" ] || exit 0

case ",$missing," in *,torch,*) # first and by itself, so that nothing else chooses the build of torch
    torch=${TORCH:-torch==2.13.0}
    say "installing $torch"
    # shellcheck disable=SC2086  # it may hold several words
    pip $torch ;;
esac
say "installing lpsim[$missing] into .venv"
pip --editable ".[$missing]"
for extra in $(echo "$missing" | tr , ' '); do echo "$wanted" >"$state/$extra"; done
