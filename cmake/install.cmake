# SPDX-License-Identifier: Apache-2.0
# What a user of Belay gets: headers, both libraries, the binary, a pkg-config file and a CMake package on top of it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/belay DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
install(TARGETS belay belay_static LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET belay_cli)
  install(TARGETS belay_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Linking the static library needs what the shared one already carries: packages where there are any, else flags.
set(BELAY_PC_REQUIRES "jansson libutf8proc zlib libzstd libpcre2-8")
if(libdw_FOUND)
  string(APPEND BELAY_PC_REQUIRES " libdw")
endif()
if(hs_FOUND)
  string(APPEND BELAY_PC_REQUIRES " libhs")
endif()
set(BELAY_PC_LIBS "${OpenMP_C_FLAGS} -lm -lpthread")
if(BELAY_BLAS_IS_OPENBLAS AND openblas_FOUND)
  string(APPEND BELAY_PC_REQUIRES " openblas")
else()
  list(JOIN BLAS_LIBRARIES " " blas_words)
  string(PREPEND BELAY_PC_LIBS "${blas_words} ")
endif()
foreach(library ${CMAKE_DL_LIBS})
  string(APPEND BELAY_PC_LIBS " -l${library}")
endforeach()
# The paths in belay.pc are counted from its own place, so that the tree can be moved.
file(RELATIVE_PATH BELAY_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" BELAY_PC_UP ${BELAY_PC_UP})
configure_file(cmake/belay.pc.in belay.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/belay.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

write_basic_package_version_file(belay-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/belay-config.cmake ${PROJECT_BINARY_DIR}/belay-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/belay)
