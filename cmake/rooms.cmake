# SPDX-License-Identifier: Apache-2.0
# The library from its rooms, and the binary.
set(belay_rooms base file report proc kernel device/cpu device/sim tensor launch grad op nn optim data dist train triage)
set(belay_sources "")
foreach(room ${belay_rooms})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/*.c)
  list(APPEND belay_sources ${sources})
endforeach()
file(GLOB device_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/*.c ${PROJECT_SOURCE_DIR}/src/device/absent/*.c)
list(APPEND belay_sources ${device_sources})

# Every family of kernel/families.h is stamped once for each device: the list there is the only one.
file(STRINGS ${PROJECT_SOURCE_DIR}/src/kernel/families.h family_lines REGEX "^#include \"kernel/")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernel/families.h)
set(generated ${PROJECT_BINARY_DIR}/generated)
set(belay_families "")
set(family_externs "")
set(family_table "")
foreach(line ${family_lines})
  string(REGEX REPLACE "^#include \"kernel/(.*)\\.h\"$" "\\1" family ${line})
  list(APPEND belay_families ${family})
  file(CONFIGURE OUTPUT ${generated}/cpu_${family}.c
       CONTENT "#define BL_FAMILY ${family}\n#define BL_FAMILY_FILE \"kernel/${family}.h\"\n#include \"device/cpu/stamp.h\"\n")
  list(APPEND belay_sources ${generated}/cpu_${family}.c)
  string(APPEND family_externs "extern const bl_cpu_family bl_cpu_family_${family}[];\n")
  string(APPEND family_table "bl_cpu_family_${family}, ")
endforeach()
file(CONFIGURE OUTPUT ${generated}/cpu_families.c
     CONTENT "#include \"device/cpu/kernel.h\"\n${family_externs}const bl_cpu_family *const bl_cpu_families[] = {${family_table} 0};\n")
list(APPEND belay_sources ${generated}/cpu_families.c)

# The fast pass over logs looks for its anchors by a database of libhs that is made here, from the rows of signals.
if(hs_FOUND)
  file(GLOB anchors_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/anchors/*.c ${PROJECT_SOURCE_DIR}/src/base/*.c)
  add_executable(belay_anchors ${anchors_sources} ${PROJECT_SOURCE_DIR}/src/triage/anchors.c
    ${PROJECT_SOURCE_DIR}/src/triage/signal.c ${PROJECT_SOURCE_DIR}/src/triage/search_plain.c)
  target_link_libraries(belay_anchors PRIVATE belay_flags PkgConfig::hs m)
  set_target_properties(belay_anchors PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
  add_custom_command(OUTPUT ${generated}/anchors_database.c COMMAND belay_anchors ${generated}/anchors_database.c
    DEPENDS belay_anchors VERBATIM)
else()
  file(CONFIGURE OUTPUT ${generated}/anchors_database.c
       CONTENT "#include \"triage/search.h\"\nconst bl_search_database bl_search_built;\n")
endif()
list(APPEND belay_sources ${generated}/anchors_database.c)

add_library(belay_objects OBJECT ${belay_sources})
target_link_libraries(belay_objects PUBLIC belay_flags
  PUBLIC OpenMP::OpenMP_C belay_blas PkgConfig::jansson PkgConfig::utf8proc
  PkgConfig::zlib PkgConfig::zstd PkgConfig::pcre2 Threads::Threads m ${CMAKE_DL_LIBS})
if(libdw_FOUND)
  target_link_libraries(belay_objects PUBLIC PkgConfig::libdw)
  target_compile_definitions(belay_objects PRIVATE BL_HAVE_LIBDW=1)
endif()
if(hs_FOUND)
  target_link_libraries(belay_objects PUBLIC PkgConfig::hs)
  target_compile_definitions(belay_objects PRIVATE BL_HAVE_HS=1)
endif()

set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/op/debug.c ${PROJECT_SOURCE_DIR}/src/dist/manifest.c APPEND PROPERTY COMPILE_DEFINITIONS BELAY_VERSION="${PROJECT_VERSION}")

add_library(belay_static STATIC)
target_link_libraries(belay_static PUBLIC belay_objects)
set_target_properties(belay_static PROPERTIES OUTPUT_NAME belay)

add_library(belay SHARED)
target_link_libraries(belay PUBLIC belay_objects)
# Before 1.0 a minor version may break: it is another soname.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(BELAY_SOVERSION 0.${PROJECT_VERSION_MINOR})
else()
  set(BELAY_SOVERSION ${PROJECT_VERSION_MAJOR})
endif()
set_target_properties(belay PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${BELAY_SOVERSION})

file(GLOB cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.c)
if(cli_sources)
  # `belay bench` measures the index tests against the same families without them.
  foreach(family index loss)
    file(CONFIGURE OUTPUT ${generated}/cpu_unchecked_${family}.c
         CONTENT "#define BELAY_UNCHECKED_INDEX 1\n#define BL_FAMILY unchecked_${family}\n#define BL_FAMILY_FILE \"kernel/${family}.h\"\n#include \"device/cpu/stamp.h\"\n")
    list(APPEND cli_sources ${generated}/cpu_unchecked_${family}.c)
  endforeach()
  # The script of the PyTorch beside it, as a text.
  set(peer_script ${PROJECT_SOURCE_DIR}/src/cli/bench_peer.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${peer_script})
  file(READ ${peer_script} peer_hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," peer_bytes "${peer_hex}")
  file(CONFIGURE OUTPUT ${generated}/bench_peer_script.c
       CONTENT "extern const char bl_peer_script[];\nconst char bl_peer_script[] = {${peer_bytes}0};\n")
  list(APPEND cli_sources ${generated}/bench_peer_script.c)
  # The commands without the program, for what reads their rows.
  list(REMOVE_ITEM cli_sources ${PROJECT_SOURCE_DIR}/src/cli/main.c)
  add_library(belay_cli_parts OBJECT ${cli_sources})
  target_link_libraries(belay_cli_parts PUBLIC belay_static)
  list(JOIN belay_left_out ", " left_out_text)
  target_compile_definitions(belay_cli_parts PUBLIC BELAY_VERSION="${PROJECT_VERSION}" BELAY_LEFT_OUT="${left_out_text}"
    BELAY_COMPILER="${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}" BELAY_BUILD="${CMAKE_BUILD_TYPE}"
    $<$<BOOL:${libdw_FOUND}>:BL_HAVE_LIBDW=1>)
  add_executable(belay_cli ${PROJECT_SOURCE_DIR}/src/cli/main.c)
  target_link_libraries(belay_cli PRIVATE belay_cli_parts)
  set_target_properties(belay_cli PROPERTIES OUTPUT_NAME belay ENABLE_EXPORTS OFF)
endif()

# The generator of the pages in docs/ that come from rows: `belay_generate FOLDER` writes all of them.  It stands on the
# rows alone, since the library includes a header that it writes.
file(GLOB generate_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/generate/*.c)
if(generate_sources)
  file(GLOB row_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernel/*.c ${PROJECT_SOURCE_DIR}/src/base/*.c
    ${PROJECT_SOURCE_DIR}/src/train/setting_*.c ${PROJECT_SOURCE_DIR}/src/report/reason.c)
  add_executable(belay_generate ${generate_sources} ${row_sources})
  target_include_directories(belay_generate PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(belay_generate PRIVATE belay_flags m)
  # clang-tidy reads a file once for each command that names it, and the library names these already.
  set_target_properties(belay_generate PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
endif()
