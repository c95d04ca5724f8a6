# SPDX-License-Identifier: Apache-2.0
# Matrix products: the target belay_blas has a CBLAS and its header.  OpenBLAS unless -DBLA_VENDOR names another.
if(NOT BLA_VENDOR)
  set(BLA_VENDOR OpenBLAS)
endif()
if(BLA_VENDOR STREQUAL "Generic")
  # On Debian libblas.so is an alternative that may well point to OpenBLAS; the reference one has a folder of its own.
  find_library(BLAS_blas_LIBRARY blas PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/blas NO_DEFAULT_PATH)
endif()
find_package(BLAS REQUIRED)

pkg_check_modules(openblas QUIET openblas)
find_path(BELAY_CBLAS_INCLUDE cblas.h HINTS ${openblas_INCLUDE_DIRS} PATH_SUFFIXES openblas cblas)
if(NOT BELAY_CBLAS_INCLUDE)
  message(FATAL_ERROR "cblas.h was not found; it comes with the BLAS (libopenblas-dev); -DBELAY_CBLAS_INCLUDE=FOLDER names its place")
endif()

add_library(belay_blas INTERFACE)
target_include_directories(belay_blas SYSTEM INTERFACE ${BELAY_CBLAS_INCLUDE})
target_link_libraries(belay_blas INTERFACE BLAS::BLAS)

# The flavours of OpenBLAS share a name; only one that says how it makes threads can be told to make none.
include(CheckSymbolExists)
set(CMAKE_REQUIRED_INCLUDES ${BELAY_CBLAS_INCLUDE})
set(CMAKE_REQUIRED_LIBRARIES ${BLAS_LIBRARIES})
check_symbol_exists(openblas_get_parallel cblas.h BELAY_BLAS_IS_OPENBLAS)
check_symbol_exists(cblas_sgemm cblas.h BELAY_BLAS_HAS_CBLAS)
unset(CMAKE_REQUIRED_INCLUDES)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT BELAY_BLAS_HAS_CBLAS)
  message(FATAL_ERROR "${BLAS_LIBRARIES} has no cblas_sgemm; -DBLA_VENDOR names another BLAS")
endif()
if(BELAY_BLAS_IS_OPENBLAS)
  target_compile_definitions(belay_blas INTERFACE BL_HAVE_OPENBLAS=1)
endif()
