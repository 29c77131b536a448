#!/bin/sh
# Builds the site: sh tools/docs.sh [FOLDER], site by default. Its packages go to .venv-docs, which
# is brought to what requirements-docs.lock says; a warning of the build is an error.
set -eu
cd "$(dirname "$0")/.."

env=.venv-docs
stamp=$env/.done
if ! cmp -s requirements-docs.lock "$stamp" || ! "$env/bin/python" -c '' 2>/dev/null; then
    echo "docs: installing its packages into $env"
    .venv/bin/python -m venv --clear "$env"
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
        --require-hashes --only-binary :all: -r requirements-docs.lock ||
        { echo "docs: the packages could not be installed: is the package index reachable?" >&2; exit 1; }
    cp requirements-docs.lock "$stamp"
fi
# mkdocs-material prints a notice about its successor, which is no warning of the build.
export NO_MKDOCS_2_WARNING=1
"$env/bin/python" -m mkdocs build --strict --quiet --site-dir "${1:-site}"
