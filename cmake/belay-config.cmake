# SPDX-License-Identifier: Apache-2.0
# find_package(belay) gives the target belay::belay, made from the belay.pc that was installed beside this file.
find_package(PkgConfig REQUIRED)
set(belay_pkg_config_path "$ENV{PKG_CONFIG_PATH}")
set(ENV{PKG_CONFIG_PATH} "${CMAKE_CURRENT_LIST_DIR}/../../pkgconfig:${belay_pkg_config_path}")
pkg_check_modules(belay REQUIRED IMPORTED_TARGET GLOBAL belay)
set(ENV{PKG_CONFIG_PATH} "${belay_pkg_config_path}")
if(NOT TARGET belay::belay)
  add_library(belay::belay ALIAS PkgConfig::belay)
endif()
