# SPDX-License-Identifier: Apache-2.0
# For tests that install from $build and work in $work, which goes when they end: the records of an installation of the
# user's own stay as they are.
# shellcheck shell=bash disable=SC2154
records='install_manifest.txt install_folders.txt'
for record in $records; do
    [ ! -e "$build/$record" ] || cp "$build/$record" "$work/$record.kept"
    rm -f "$build/$record"
done
leave() {
    for record in $records; do
        rm -f "$build/$record"
        [ ! -e "$work/$record.kept" ] || cp "$work/$record.kept" "$build/$record"
    done
    rm -rf "$work"
}
trap leave EXIT
