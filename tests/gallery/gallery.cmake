# SPDX-License-Identifier: Apache-2.0
# Each program of examples/faults on each device, by its whole words: the CTest test gallery/<kind>.<device>.
get_property(fault_targets DIRECTORY ${PROJECT_SOURCE_DIR}/examples/faults PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER fault_targets INCLUDE REGEX "^fault_")
list(FILTER fault_targets EXCLUDE REGEX "^fault_gallery")
foreach(target ${fault_targets})
  string(REGEX REPLACE "^fault_" "" kind ${target})
  foreach(device cpu sim:1 sim)
    string(REPLACE ":" "" short ${device})
    add_test(NAME gallery/${kind}.${short}
      COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/gallery/run.sh $<TARGET_FILE:${target}> ${device}
              ${CMAKE_CURRENT_SOURCE_DIR}/gallery/expected/${kind}.${short}.txt)
    set_tests_properties(gallery/${kind}.${short} PROPERTIES LABELS gallery TIMEOUT 600
      ENVIRONMENT "${belay_test_environment};BELAY_SMALL=${BELAY_SMALL}")
  endforeach()
endforeach()
