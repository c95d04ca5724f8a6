# SPDX-License-Identifier: Apache-2.0
# Every tests/cli/*.case is a transcript of the command line, the CTest test cli/<name>.
file(GLOB cli_cases CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cli/*.case)
foreach(case ${cli_cases})
  get_filename_component(name ${case} NAME_WE)
  add_test(NAME cli/${name} COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/cli/run.sh $<TARGET_FILE:belay_cli> ${case})
  set_tests_properties(cli/${name} PROPERTIES LABELS cli SKIP_RETURN_CODE 77 TIMEOUT 600
    ENVIRONMENT "${belay_test_environment};BELAY_SANITIZED=${BELAY_SANITIZE}")
endforeach()
