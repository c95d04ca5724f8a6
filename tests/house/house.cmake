# SPDX-License-Identifier: Apache-2.0
# Tests of the repository itself, each a script house/<name>.sh that prints what is wrong and where.
# A script that ends with 77 could not run, and has printed why.
function(belay_house_test name)
  add_test(NAME house/${name} COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/house/${name}.sh ${ARGN}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(house/${name} PROPERTIES LABELS house SKIP_RETURN_CODE 77 TIMEOUT 600)
endfunction()

# The source is the same in every build; once is enough, and what is installed carries no sanitizer.
if(NOT BELAY_SANITIZE)
  belay_house_test(layers)
  belay_house_test(headers)
  belay_house_test(kernels)
  belay_house_test(symbols $<TARGET_FILE:belay> $<TARGET_FILE:belay_static>)
  belay_house_test(flags ${PROJECT_BINARY_DIR})
  belay_house_test(licence)
  belay_house_test(layout)
  belay_house_test(advice)
  belay_house_test(consumer ${PROJECT_BINARY_DIR})
  belay_house_test(uninstall ${PROJECT_BINARY_DIR})
  belay_house_test(readmes)
  belay_house_test(commands $<TARGET_FILE:belay_cli> $<TARGET_FILE:example_robust_training>)
  belay_house_test(transcripts $<TARGET_FILE:belay_cli>)
  belay_house_test(pages ${PROJECT_BINARY_DIR})
  belay_house_test(manual ${PROJECT_BINARY_DIR} $<TARGET_FILE:belay_cli>)
  belay_house_test(completion ${PROJECT_BINARY_DIR} $<TARGET_FILE:belay_cli>)
  # Both install from the one build folder.
  set_tests_properties(house/consumer house/uninstall PROPERTIES RESOURCE_LOCK installation)
  belay_house_test(matrix $<TARGET_FILE_DIR:fault_id_past_table>)
endif()
