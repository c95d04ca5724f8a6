#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An installation into an empty root, by DESTDIR and by prefix, is taken away to the last file and folder; what was there
# before, or came beside it, stays.
# usage: uninstall.sh BUILD_FOLDER
set -Eeuo pipefail
build=$1
work=$(mktemp -d)
. tests/house/records.bash
step=''
trap 'echo "failed while $step"' ERR
put() { DESTDIR=$1 cmake --install "$build" --prefix "$2" >"$work/said" 2>&1 || { cat "$work/said"; false; }; }
take() { DESTDIR=$1 cmake -DFOLDER="$build" -P cmake/uninstall.cmake >"$work/said" 2>&1; }
said() { tr -s ' \n' ' ' <"$work/said" | grep -qF "$1" || { cat "$work/said"; false; }; }
listed() { (cd "$1" && find . | sort); }

step='installing into an empty root by DESTDIR'
mkdir "$work/root"
put "$work/root" /usr/local
n_files=$(find "$work/root" ! -type d | wc -l)
[ "$n_files" -gt 40 ]
step='installing over it'
put "$work/root" /usr/local
[ "$n_files" -eq "$(find "$work/root" ! -type d | wc -l)" ]
step='uninstalling from another DESTDIR'
if take "$work/nowhere"; then
    echo 'nothing lies there, and nothing was said'
    false
fi
said 'give DESTDIR as for the installation'
step='uninstalling'
take "$work/root" || { cat "$work/said"; false; }
[ -d "$work/root" ] && [ -z "$(ls -A "$work/root")" ] || { listed "$work/root"; false; }
step='uninstalling again'
if take "$work/root"; then
    echo 'nothing was installed, and nothing was said'
    false
fi
said "nothing was installed from $build"

step='installing by prefix into a root that holds something'
mkdir -p "$work/home/bin" "$work/home/share/man" "$work/home/lib/pkgconfig"
echo theirs >"$work/home/lib/pkgconfig/other.pc"
listed "$work/home" >"$work/before"
put '' "$work/home"
echo theirs >"$work/home/share/doc/belay/notes"
step='uninstalling from it'
take '' || { cat "$work/said"; false; }
said 'share/doc/belay stays: something else lies in it'
rm -r "$work/home/share/doc"
diff "$work/before" <(listed "$work/home")
step='installing to a prefix that is not there, and uninstalling'
put '' "$work/deep/er/prefix"
take '' || { cat "$work/said"; false; }
[ ! -e "$work/deep" ]
echo "$n_files files were installed and taken away"
