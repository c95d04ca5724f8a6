#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs dlpack.py by the first Python that has NumPy.
# usage: dlpack.sh LIBBELAY_SO
set -euo pipefail
here=$(dirname "$0")
for python in python3 /usr/bin/python3; do
    if command -v "$python" >/dev/null && "$python" -c 'import numpy' 2>/dev/null; then
        "$python" "$here/dlpack.py" "$1"
        exit
    fi
done
echo 'skipped: no Python with NumPy'
exit 77
