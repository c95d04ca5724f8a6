# SPDX-License-Identifier: Apache-2.0
# Libraries that Belay stands on, and parts that are left out by name when something is missing.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(zlib REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
include(cmake/blas.cmake)

set(belay_left_out "")
pkg_check_modules(libdw QUIET IMPORTED_TARGET libdw)
if(NOT libdw_FOUND)
  list(APPEND belay_left_out "libdw (source lines: sites print as function+offset)")
endif()

pkg_check_modules(hs QUIET IMPORTED_TARGET libhs)
if(NOT hs_FOUND)
  list(APPEND belay_left_out "libhs (logs are searched by a plain loop)")
endif()

find_program(BELAY_NVCC nvcc HINTS /usr/local/cuda/bin)
if(NOT BELAY_NVCC)
  list(APPEND belay_left_out "nvcc (the CUDA compile of every kernel family)")
endif()

find_package(MPI QUIET COMPONENTS C)
if(NOT MPI_C_FOUND)
  list(APPEND belay_left_out "MPI (ranks: libbelay_mpi.so)")
endif()

if(belay_left_out)
  list(JOIN belay_left_out ", " text)
  message(STATUS "Belay: left out: ${text}")
else()
  message(STATUS "Belay: nothing left out")
endif()
