#!/bin/sh
# Runs its arguments with the first Python from 3.11 to 3.14: the active environment's, else one on PATH.
set -eu

for python in "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" "${CONDA_PREFIX:+$CONDA_PREFIX/bin/python}" \
    python3 python3.11 python3.12 python3.13 python3.14; do
    [ -n "$python" ] || continue
    if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; then
        exec "$python" -B "$@"
    fi
done

sudo=
[ "$(id -u)" = 0 ] || sudo='sudo '
if command -v apt-get >/dev/null; then
    how="${sudo}apt-get install python3 python3-venv"
elif command -v dnf >/dev/null; then
    how="${sudo}dnf install python3"
elif command -v pacman >/dev/null; then
    how="${sudo}pacman -S python"
elif command -v zypper >/dev/null; then
    how="${sudo}zypper install python313"
else
    how="this system's package manager"
fi
echo "tpulab: no Python from 3.11 to 3.14 was found (python3 and python3.11 to python3.14 were tried)." >&2
echo "tpulab: install one: $how" >&2
exit 1
