# SPDX-License-Identifier: Apache-2.0
# Every tests/cli/*.case is a transcript of the command line, the CTest test cli/<name>.
file(GLOB cli_cases CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cli/*.case)
foreach(case ${cli_cases})
  get_filename_component(name ${case} NAME_WE)
  add_test(NAME cli/${name} COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/cli/run.sh $<TARGET_FILE:belay_cli> ${case})
  set_tests_properties(cli/${name} PROPERTIES LABELS cli SKIP_RETURN_CODE 77 TIMEOUT 600
    ENVIRONMENT "${belay_test_environment};BELAY_SANITIZED=${BELAY_SANITIZE};BELAY_SMALL=${BELAY_SMALL}")
endforeach()

# The program in one process, with failing allocations.
file(GLOB cli_parts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.c)
list(REMOVE_ITEM cli_parts ${PROJECT_SOURCE_DIR}/src/cli/main.c)
get_target_property(cli_definitions belay_cli COMPILE_DEFINITIONS)
get_target_property(cli_all_sources belay_cli SOURCES)
list(FILTER cli_all_sources INCLUDE REGEX "/generated/")
add_executable(cli_sweep ${CMAKE_CURRENT_SOURCE_DIR}/cli/sweep.c ${cli_parts} ${cli_all_sources})
target_compile_definitions(cli_sweep PRIVATE ${cli_definitions})
target_link_libraries(cli_sweep PRIVATE belay_static)
set_target_properties(cli_sweep PROPERTIES EXPORT_COMPILE_COMMANDS OFF) # its parts are named by belay_cli
add_test(NAME cli/sweep COMMAND cli_sweep)
set_tests_properties(cli/sweep PROPERTIES LABELS cli TIMEOUT 600 ENVIRONMENT "${belay_test_environment}")
