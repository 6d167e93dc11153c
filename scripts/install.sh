#!/bin/sh
# Makes the environment: install.sh FOLDER [PYTHON]. An environment of the right version is brought up to date.
set -eu

folder=$1
wanted=${2:-}
check='import sys; sys.exit(sys.version_info < (3, 11))'

say() { printf '%s\n' "$*" >&2; }
usable() { "$1" -c "$check" >/dev/null 2>&1; }
version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

python=
for candidate in ${wanted:-python3 python3.13 python3.12 python3.11 python}; do
    if usable "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    say "install: ${wanted:-no python on the PATH} is not Python 3.11 or later; name one with PYTHON=/path/to/python"
    exit 1
fi

if usable "$folder/bin/python" && { [ -z "$wanted" ] || [ "$(version "$folder/bin/python")" = "$(version "$python")" ]; }; then
    say "install: bringing $folder up to date"
else
    say "install: making $folder with Python $(version "$python")"
    rm -rf "$folder"
    if command -v uv >/dev/null 2>&1; then
        uv venv --python "$(command -v "$python")" "$folder"
    elif ! "$python" -m venv "$folder"; then
        rm -rf "$folder"
        say "install: this Python has no venv module; on Debian and Ubuntu: apt-get install python3-venv"
        exit 1
    fi
fi

if command -v uv >/dev/null 2>&1; then
    uv pip install --python "$folder/bin/python" --editable '.[dev]'
else
    "$folder/bin/python" -m pip install --disable-pip-version-check --editable '.[dev]'
fi
