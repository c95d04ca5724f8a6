#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The packages that Belay is built, tested and shown with.  Installs those that are missing; never removes or upgrades.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: tools/deps.sh [--list] [SET...]

Sets: build test demo lint ci (default: all but ci).
  --list   print what is there and what is missing; install nothing

Without --list, missing packages are installed with apt-get (as root, or through sudo).  On a system without
apt-get the missing ones are named.  The exit status is 1 only when a needed package is missing at the end.
TEXT
}

# set | Debian package | needed or optional | what for
packages() {
    cat <<'TABLE'
build | gcc                   | needed   | the C compiler
build | libc6-dev             | needed   | C headers
build | cmake                 | needed   | the build
build | ninja-build           | needed   | the build
build | pkg-config            | needed   | finding libraries
build | libopenblas-dev       | needed   | matrix products
build | libjansson-dev        | needed   | JSON
build | libutf8proc-dev       | needed   | Unicode
build | zlib1g-dev            | needed   | .gz
build | libzstd-dev           | needed   | .zst
build | libpcre2-dev          | needed   | patterns over lines of logs
build | libdw-dev             | optional | source lines in reports (else: function+offset)
build | libvectorscan-dev     | optional | many patterns at once over logs (else: a plain loop)
build | libopenmpi-dev        | optional | ranks: the plug-in libbelay_mpi.so
build | ccache                | optional | faster second builds
test  | libcmocka-dev         | needed   | unit tests
test  | g++                   | needed   | public headers are tested as C++17 too
test  | binutils              | needed   | nm, for the test of exported names
test  | git                   | needed   | the list of files that tests of the repository read
test  | python3               | needed   | tests that compare with NumPy files and PyTorch
test  | openmpi-bin           | optional | data-parallel tests with real ranks
test  | clang-format          | optional | the test of the layout of the source
demo  | wamerican             | needed   | English words
demo  | wfrench               | needed   | French words
demo  | wngerman              | needed   | German words
demo  | witalian              | needed   | Italian words
demo  | wspanish              | needed   | Spanish words
lint  | clang                 | needed   | fuzz targets and the tsan build
lint  | libclang-rt-dev       | needed   | sanitizer and fuzzer runtimes of clang
lint  | libomp-dev            | needed   | OpenMP that the thread sanitizer can see into
lint  | libblas-dev           | needed   | a BLAS without threads, for the tsan build
lint  | clang-format          | needed   | the layout of the source
lint  | llvm                  | optional | source lines in reports of the clang builds
lint  | clang-tidy            | needed   | static checks
lint  | cppcheck              | needed   | static checks
ci    | openmpi-bin           | optional | data-parallel tests with real ranks
ci    | libopenmpi-dev        | optional | data-parallel tests with real ranks
ci    | python3-torch         | optional | comparisons with PyTorch
ci    | python3-numpy         | optional | comparisons with NumPy files
ci    | clang-format          | optional | the test of the layout of the source
TABLE
}

list_only=no
sets=()
for argument in "$@"; do
    case $argument in
    --list) list_only=yes ;;
    -h | --help) usage; exit 0 ;;
    build | test | demo | lint | ci) sets+=("$argument") ;;
    *) usage >&2; exit 2 ;;
    esac
done
[ ${#sets[@]} -gt 0 ] || sets=(build test demo lint)

# Rows of the chosen sets, as "package|needed|what for", each package once: a needed row comes before an optional one.
chosen() {
    packages | awk -F ' *[|] *' -v sets=" ${sets[*]} " -v OFS='|' '
        index(sets, " " $1 " ") { print $2, $3, $4 }' | sort -t '|' -k1,1 -k2,2 | awk -F '|' '!seen[$1]++'
}

# A tool that is on PATH counts, whoever installed it; elsewhere dpkg is asked, else pkg-config or the word lists.
is_present() {
    case $1 in
    libvectorscan-dev) pkg-config --exists libhs; return ;; # Hyperscan will do as well
    gcc | cmake | pkg-config | ccache | g++ | git | python3 | clang | clang-format | clang-tidy | cppcheck)
        command -v "$1" >/dev/null; return ;;
    ninja-build) command -v ninja >/dev/null; return ;;
    binutils) command -v nm >/dev/null; return ;;
    openmpi-bin) command -v mpirun >/dev/null; return ;;
    esac
    if command -v dpkg-query >/dev/null; then
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
        return
    fi
    case $1 in
    libc6-dev) echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1 ;;
    libopenblas-dev) pkg-config --exists openblas ;;
    libjansson-dev) pkg-config --exists jansson ;;
    libutf8proc-dev) pkg-config --exists libutf8proc ;;
    libdw-dev) pkg-config --exists libdw ;;
    zlib1g-dev) pkg-config --exists zlib ;;
    libzstd-dev) pkg-config --exists libzstd ;;
    libopenmpi-dev) pkg-config --exists ompi-c ;;
    libpcre2-dev) pkg-config --exists libpcre2-8 ;;
    libcmocka-dev) pkg-config --exists cmocka ;;
    libclang-rt-dev) echo 'int main(void) { return 0; }' | clang -fsanitize=address -x c -o /dev/null - 2>/dev/null ;;
    libomp-dev) echo | clang -fopenmp -include omp.h -E - >/dev/null 2>&1 ;;
    libblas-dev) pkg-config --exists blas ;;
    python3-torch) python3 -c 'import torch' 2>/dev/null ;;
    python3-numpy) python3 -c 'import numpy' 2>/dev/null ;;
    *) return 1 ;;
    esac
}

# Fills missing_needed and missing_optional with packages of the chosen sets.
look() {
    missing_needed=()
    missing_optional=()
    while IFS='|' read -r package kind _; do
        is_present "$package" && continue
        if [ "$kind" = needed ]; then missing_needed+=("$package"); else missing_optional+=("$package"); fi
    done < <(chosen)
}

print_list() {
    while IFS='|' read -r package kind purpose; do
        if is_present "$package"; then state=present; else state=missing; fi
        printf '%-8s %-9s %-18s %s\n' "$state" "$kind" "$package" "$purpose"
    done < <(chosen)
    if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then state=present; else state=missing; fi
    printf '%-8s %-9s %-18s %s\n' "$state" optional nvcc 'the CUDA compile of every kernel family (from NVIDIA, never installed here)'
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

install_missing() {
    if ! command -v apt-get >/dev/null; then
        echo 'tools/deps.sh: this system has no apt-get; please install by hand (Debian package names):'
        return
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        echo 'tools/deps.sh: neither root nor sudo; please have these installed:'
        return
    fi
    as_root apt-get update -q || echo 'tools/deps.sh: the package lists could not be refreshed; trying with those at hand'
    if [ ${#missing_needed[@]} -gt 0 ]; then
        install "${missing_needed[@]}" || echo 'tools/deps.sh: apt-get failed'
    fi
    # One at a time: an optional package that does not exist here must not keep the others away.
    local package
    for package in "${missing_optional[@]}"; do
        install "$package" || echo "tools/deps.sh: $package could not be installed"
    done
}

if [ "$list_only" = yes ]; then
    print_list
    look
else
    look
    if [ $((${#missing_needed[@]} + ${#missing_optional[@]})) -gt 0 ]; then
        install_missing
        look
    fi
    for package in "${missing_optional[@]}"; do
        echo "tools/deps.sh: skipped, optional: $package ($(chosen | awk -F '|' -v p="$package" '$1 == p { print $3 }'))"
    done
    for package in "${missing_needed[@]}"; do
        echo "tools/deps.sh: missing, needed: $package ($(chosen | awk -F '|' -v p="$package" '$1 == p { print $3 }'))" >&2
    done
fi
[ ${#missing_needed[@]} -eq 0 ]
