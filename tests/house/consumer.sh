#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is installed works from wherever it is moved to, outside of the tree: the README's program and the installed
# examples build shared and static, through pkg-config and through the CMake package, and run.
# usage: consumer.sh BUILD_FOLDER
set -Eeuo pipefail
build=$1
readme=$PWD/README.md
work=$(mktemp -d)
. tests/house/records.bash
step='installing'
trap 'echo "failed while $step"' ERR
quietly() { "$@" >"$work/said" 2>&1 || { cat "$work/said"; false; }; }

quietly cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name belay.pc)")
export PKG_CONFIG_PATH
libraries=$(pkg-config --variable=libdir belay)

step='making sure that no installed text knows where it was built or installed'
if grep -rIl -e "$build" -e "$work/first" "$prefix"; then false; fi
step='reading belay.pc: Cflags must keep return addresses'
pkg-config --cflags belay | grep -q -e -fno-optimize-sibling-calls
step='reading the soname'
version=$(pkg-config --modversion belay)
soname=$(readelf -d "$libraries/libbelay.so" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
[ "$soname" = "libbelay.so.${version%.*}" ] && [ "$(readlink -f "$libraries/$soname")" = "$(readlink -f "$libraries/libbelay.so.$version")" ]
step='looking for the binary, its pages and its completion'
"$prefix/bin/belay" --version | grep -qx "belay $version"
[ -s "$prefix/share/man/man1/belay.1" ] && [ -s "$prefix/share/man/man1/belay-train.1" ]
bash -n "$prefix/share/bash-completion/completions/belay"

cd "$work"
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$readme" >consumer.c
step='looking for the program in README.md'
grep -q 'belay_optimizer_step' consumer.c
awk 'BEGIN { print "text\tlabel"; for (i = 0; i < 200; i++) printf "word %d %d\t%c\n", i, i * i % 7, 97 + i % 5 }' >train.tsv
step='building it against the shared library'
# shellcheck disable=SC2046
gcc -std=c17 -Wall -Werror consumer.c -o consumer_shared $(pkg-config --cflags --libs belay)
step='running it'
LD_LIBRARY_PATH=$libraries ./consumer_shared >shared.out 2>&1
step='building it against the static library'
# shellcheck disable=SC2046
gcc -std=c17 -Wall -Werror consumer.c -o consumer_static $(pkg-config --cflags belay) \
    $(pkg-config --static --libs belay | sed 's/-lbelay\b/-l:libbelay.a/')
step='running it'
./consumer_static >static.out 2>&1
step='making sure that it had nothing to tell'
cat shared.out static.out
[ ! -s shared.out ] && [ ! -s static.out ]

examples=$prefix/share/doc/belay/examples
run_examples() { # folder, "shared" or "static"
    step="running the examples of $1"
    local needed
    needed=$(readelf -d "$1/custom_kernel" | grep -c "\[$soname\]" || true)
    [ "$needed" -eq "$([ "$2" = shared ] && echo 1 || echo 0)" ]
    for name in custom_kernel custom_op custom_module; do
        LD_LIBRARY_PATH=$libraries "$1/$name" >"$1/$name.out" 2>&1 || { cat "$1/$name.out"; false; }
        cmp "$1/$name.out" "made_shared/$name.out"
    done
}
mkdir made_shared made_static
step='building the examples by make'
quietly make -C "$examples" OUT="$work/made_shared"
run_examples made_shared shared
quietly make -C "$examples" STATIC=1 OUT="$work/made_static" "$work"/made_static/custom_{kernel,op,module}
run_examples made_static static
for kind in shared static; do
    step="building the examples by the CMake package, $kind"
    quietly env -u PKG_CONFIG_PATH cmake -S "$examples" -B "package_$kind" -DCMAKE_PREFIX_PATH="$prefix" \
        -DSTATIC="$([ $kind = static ] && echo ON || echo OFF)"
    quietly cmake --build "package_$kind" --target custom_kernel custom_op custom_module
    run_examples "package_$kind" $kind
done

step='asking the CMake package for what it is not'
mkdir asked
ask() { # the arguments of find_package, words of the answer
    printf 'cmake_minimum_required(VERSION 3.16)\nproject(asked LANGUAGES C)\nfind_package(belay %s)\n' "$1" >asked/CMakeLists.txt
    rm -rf asked/build
    if cmake -S asked -B asked/build -DCMAKE_PREFIX_PATH="$prefix" >asked/said 2>&1; then false; fi
    tr -s ' \n' ' ' <asked/said | grep -qF "$2" || { cat asked/said; false; }
}
ask '9.0 REQUIRED' 'requested version "9.0"'
ask 'REQUIRED COMPONENTS cuda' 'no component cuda'
PKG_CONFIG=/bin/false ask 'REQUIRED COMPONENTS static' 'pkg-config is not there'
echo 'the program of README.md and the installed examples were built four ways and ran without a fault'
