#!/bin/sh
# Makes .venv and brings it to what the locks say. Safe to interrupt and to repeat: the stamp is
# written last, and a folder that is not whole is made anew. PYTHON names the interpreter;
# without it the first fit one of python3, python3.13, python3.12, python3.11 is taken. TORCH=cpu
# takes torch's CPU build in place of the one that the lock names, TORCH=lock goes back; without
# TORCH it stays as it is.
set -eu
cd "$(dirname "$0")/.."

env=.venv
stamp=$env/.setup-done
started=$env/.setup-started
# Where torch's CPU build is: an index, or a folder of wheels.
torch_index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}

say() { printf 'set-up: %s\n' "$*"; }
fail() { printf 'set-up: %s\n' "$*" >&2; exit 1; }

wanted() { echo "torch $torch"; cksum requirements.in requirements.lock requirements-uv.lock pyproject.toml tools/setup.sh; }

# Prints the base interpreter, or one line of complaint with exit code 1.
check_python() {
    command -v "$1" >/dev/null 2>&1 || {
        echo "$1 not found: install Python 3.11, 3.12 or 3.13, or name one with make PYTHON=/path/to/python3.12"
        return 1
    }
    answer=$("$1" tools/check_python.py 2>/dev/null) && echo "$answer" && return
    # Silence: a version manager's stub, say, for a version that is not there.
    echo "${answer:-$1 does not start: install Python 3.11, 3.12 or 3.13}"
    return 1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        python=$(check_python "$PYTHON") || fail "$python"
        return
    fi
    complaint=
    for name in python3 python3.13 python3.12 python3.11; do
        python=$(check_python "$name") && return
        : "${complaint:=$python}"
    done
    fail "$complaint"
}

version_of() { "$1" -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null; }

# Its interpreter starts, and its scripts point here: a folder that was moved does not count.
env_is_whole() {
    "$env/bin/python" -c 'import pip' 2>/dev/null && grep -qF "$PWD/$env/bin/" "$env/bin/pip"
}

pip_setting() {
    "$env/bin/python" -m pip config list 2>/dev/null |
        sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" | head -n 1
}

# uv does not read pip's configuration; a private index or certificate set for pip counts here too.
adopt_pip_settings() {
    if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
        index=$(pip_setting index-url)
        [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
    fi
    if [ -z "${SSL_CERT_FILE:-}" ]; then
        certificates=$(pip_setting cert)
        [ -z "$certificates" ] || export SSL_CERT_FILE="$certificates"
    fi
}

command -v git >/dev/null 2>&1 || fail "git not found: install git"
there=$(cat "$stamp" "$started" 2>/dev/null | sed -n 's/^torch //p' | head -n 1)
: "${there:=lock}"
torch=${TORCH:-$there}
case $torch in
    cpu | lock) ;;
    *) fail "TORCH: found '$torch'; allowed: cpu, or lock for the build that requirements.lock names" ;;
esac
[ -z "${PYTHON:-}" ] || find_python

if [ -f "$stamp" ] && wanted | cmp -s - "$stamp" && env_is_whole; then
    if [ -z "${PYTHON:-}" ] || [ "$(version_of "$python")" = "$(version_of "$env/bin/python")" ]; then
        say "nothing to do"
        exit 0
    fi
fi

if ! env_is_whole; then
    rebuild=yes
    [ -n "${python:-}" ] || find_python
elif [ -n "${python:-}" ] && [ "$(version_of "$python")" != "$(version_of "$env/bin/python")" ]; then
    rebuild=yes
elif [ "$torch" != "$there" ]; then
    rebuild=yes
    : "${python:=$(check_python "$env/bin/python")}"
else
    rebuild=no
fi
if [ "$rebuild" = yes ]; then
    # Measured on Linux x86-64, Python 3.11, with wheels of torch 2.15; macOS has no CUDA build.
    if [ "$torch" = cpu ]; then
        say "downloads about .5 GB and takes 1.7 GB of disk, in a minute or two on a fast connection"
    else
        say "downloads 3.2 GB and takes 6.4 GB of disk, in two or three minutes on a fast connection"
        say "most of it is torch's CUDA build: without a GPU, TORCH=cpu needs .5 and 1.7 GB"
    fi
    version=$(version_of "$python")
    # A link to another checkout's environment goes, not what it points to.
    [ ! -L "$env" ] || rm "$env"
    say "making $env with Python $version ($python)"
    "$python" -m venv --clear "$env" || fail "$python could not make $env: see the lines above"
fi
rm -f "$stamp"

uv_pin=$(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements-uv.lock)
case $("$env/bin/uv" --version 2>/dev/null || :) in
    "uv $uv_pin" | "uv $uv_pin "*) ;;
    *)
        say "installing uv $uv_pin"
        "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
            --ignore-installed --require-hashes --only-binary :all: -r requirements-uv.lock ||
            fail "uv could not be installed: is the package index reachable?"
        ;;
esac

adopt_pip_settings
uv() { VIRTUAL_ENV="$PWD/$env" "$env/bin/uv" "$@"; }
# Compiled now: where Python may not write byte code, every job would compile what it imports.
export UV_COMPILE_BYTECODE=1
# An install that was cut short may have left half a package that looks installed.
again=
[ ! -f "$started" ] || again=--reinstall
lock=requirements.lock
if [ "$torch" = cpu ]; then
    pins=$(sed -En 's/^(torch|torchvision)==([^ ;]*).*/\1==\2/p' $lock)
    where=--default-index
    [ ! -d "$torch_index" ] || where="--no-index --find-links"
    # The lock has no hashes of it.
    cpu_build() { uv pip install --no-deps $again "$@" $where "$torch_index" $pins; }
    say "installing torch's CPU build from $torch_index"
    cpu_build --quiet --offline 2>/dev/null || {
        cpu_build --dry-run >/dev/null 2>&1 ||
            fail "no" $pins "at $torch_index: is it reachable? TORCH_INDEX names another index or a folder of wheels"
        echo "torch $torch" >"$started"
        cpu_build || fail "torch's CPU build could not be installed: see the lines above"
    }
    # The rest of the lock, without what the other build of torch brings.
    lock=$env/.requirements-cpu.lock
    awk '/^[a-z]/ { kept = !/^(torch|torchvision|triton|cuda-[a-z]+|nvidia-[a-z0-9-]+)==/ } kept' \
        requirements.lock >$lock
fi
echo "torch $torch" >"$started"
say "installing the locked packages"
# What is installed or cached needs no network, however old the cache is.
uv pip install --quiet --offline --no-deps $again --require-hashes -r $lock 2>/dev/null ||
    uv pip install --no-deps $again --require-hashes -r $lock ||
    fail "the locked packages could not be installed: see the lines above; a re-run goes on from here"
say "installing dpatlas, editable"
uv pip install --quiet --offline --no-deps --no-build-isolation --editable . ||
    fail "dpatlas could not be installed: see the lines above"

rm -f "$started"
wanted >"$stamp.part"
mv "$stamp.part" "$stamp"
say "done"
