# SPDX-License-Identifier: Apache-2.0
# What a user of Belay gets: headers, both libraries, the binary, its manual pages and completion, examples, a pkg-config
# file and a CMake package.  All that is installed finds the rest from its own place, so that the tree can be moved.
# cmake/uninstall.cmake takes away what came by this.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(BELAY_COMPLETIONS ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
set(BELAY_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/belay)
set(BELAY_PLUGINS ${CMAKE_INSTALL_LIBDIR}/belay)
set(BELAY_EXAMPLES ${CMAKE_INSTALL_DOCDIR}/examples)

# First of all: which of the folders are made by the installation.
string(JOIN ";" belay_folders ${CMAKE_INSTALL_INCLUDEDIR}/belay ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${BELAY_PACKAGE}
  ${BELAY_PLUGINS} ${CMAKE_INSTALL_BINDIR} ${BELAY_EXAMPLES} ${CMAKE_INSTALL_MANDIR}/man1 ${BELAY_COMPLETIONS})
install(CODE "set(belay_folders \"${belay_folders}\")\nset(belay_folders_file \"${PROJECT_BINARY_DIR}/install_folders.txt\")")
install(SCRIPT cmake/note_folders.cmake)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/belay DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
install(TARGETS belay belay_static LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET belay_mpi)
  install(TARGETS belay_mpi LIBRARY DESTINATION ${BELAY_PLUGINS})
endif()
if(TARGET belay_cli)
  install(TARGETS belay_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${belay_pages_folder}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(FILES ${belay_pages_folder}/completions/belay DESTINATION ${BELAY_COMPLETIONS})
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/ DESTINATION ${BELAY_EXAMPLES}
  FILES_MATCHING PATTERN "*.c" PATTERN "faults" EXCLUDE PATTERN "installed" EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/installed/ DESTINATION ${BELAY_EXAMPLES})

# Linking the static library needs what the shared one already carries: packages where there are any, else flags.
set(BELAY_PC_REQUIRES "jansson libutf8proc zlib libzstd libpcre2-8")
if(libdw_FOUND)
  string(APPEND BELAY_PC_REQUIRES " libdw")
endif()
if(hs_FOUND)
  string(APPEND BELAY_PC_REQUIRES " libhs")
endif()
set(BELAY_PC_LIBS "${OpenMP_C_FLAGS} -lm -lpthread")
set(BELAY_CMAKE_LIBS ${OpenMP_C_LIBRARIES} m pthread ${CMAKE_DL_LIBS})
if(BELAY_BLAS_IS_OPENBLAS AND openblas_FOUND)
  string(APPEND BELAY_PC_REQUIRES " openblas")
else()
  list(JOIN BLAS_LIBRARIES " " blas_words)
  string(PREPEND BELAY_PC_LIBS "${blas_words} ")
  list(PREPEND BELAY_CMAKE_LIBS ${BLAS_LIBRARIES})
endif()
foreach(library ${CMAKE_DL_LIBS})
  string(APPEND BELAY_PC_LIBS " -l${library}")
endforeach()
# The paths in belay.pc are counted from its own place.
file(RELATIVE_PATH BELAY_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" BELAY_PC_UP ${BELAY_PC_UP})
configure_file(cmake/belay.pc.in belay.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/belay.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(cmake/belay-config.cmake.in belay-config.cmake INSTALL_DESTINATION ${BELAY_PACKAGE}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(belay-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/belay-config.cmake ${PROJECT_BINARY_DIR}/belay-config-version.cmake
  DESTINATION ${BELAY_PACKAGE})
