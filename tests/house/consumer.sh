#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README's program, outside of the tree, builds against the installed library: shared and static through pkg-config,
# and through the CMake package.  Each trains on a small file without a fault.
# usage: consumer.sh BUILD_FOLDER
set -euo pipefail
build=$1
readme=$PWD/README.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step='installing'
trap 'echo "failed while $step"' ERR

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; false; }
pkgconfig=$(dirname "$(find "$work/prefix" -name belay.pc)")
export PKG_CONFIG_PATH=$pkgconfig
libraries=$(pkg-config --variable=libdir belay)
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$readme" >"$work/consumer.c"
cd "$work"
step='looking for the program in README.md'
grep -q 'belay_optimizer_step' consumer.c
awk 'BEGIN { print "text\tlabel"; for (i = 0; i < 200; i++) printf "word %d %d\t%c\n", i, i * i % 7, 97 + i % 5 }' >train.tsv

step='reading belay.pc: Cflags must keep return addresses'
pkg-config --cflags belay | grep -q -e -fno-optimize-sibling-calls
step='building against the shared library'
# shellcheck disable=SC2046
gcc -std=c17 -Wall -Werror consumer.c -o consumer_shared $(pkg-config --cflags --libs belay)
step='running against the shared library'
LD_LIBRARY_PATH=$libraries ./consumer_shared >shared.out 2>&1
step='building against the static library'
# shellcheck disable=SC2046
gcc -std=c17 -Wall -Werror consumer.c -o consumer_static $(pkg-config --cflags belay) \
    $(pkg-config --static --libs belay | sed 's/-lbelay\b/-l:libbelay.a/')
step='running against the static library'
./consumer_static >static.out 2>&1

step='building with the CMake package'
mkdir package
cat >package/CMakeLists.txt <<'TEXT'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(belay REQUIRED)
add_executable(consumer_package ../consumer.c)
target_link_libraries(consumer_package PRIVATE belay::belay)
TEXT
env -u PKG_CONFIG_PATH cmake -S package -B package/build -DCMAKE_PREFIX_PATH="$work/prefix" >package.log 2>&1 &&
    cmake --build package/build >>package.log 2>&1 || { cat package.log; false; }
step='running what the CMake package built'
LD_LIBRARY_PATH=$libraries package/build/consumer_package >package.out 2>&1

step='making sure that the three programs had nothing to tell'
cat shared.out static.out package.out
[ ! -s shared.out ] && [ ! -s static.out ] && [ ! -s package.out ]
step='looking for the installed binary'
"$work/prefix/bin/belay" --help >/dev/null
echo 'README.md: its program was built three ways and ran without a fault'
