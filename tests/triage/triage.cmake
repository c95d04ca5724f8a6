# SPDX-License-Identifier: Apache-2.0
# The labelled logs, and what must not change their verdicts.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(triage_every 1)
if(BELAY_SANITIZE)
  set(triage_every 5) # the alterations of each fifth case: the others take too long there
endif()
foreach(corpus corpus corpus2 corpus3 corpus4)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/triage/${corpus})
  add_test(NAME triage/${corpus}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/triage/corpus.py $<TARGET_FILE:belay_cli> ${folder}
            --misses ${CMAKE_CURRENT_SOURCE_DIR}/triage/${corpus}.misses)
  add_test(NAME triage/properties_${corpus}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/triage/properties.py $<TARGET_FILE:belay_cli> ${folder}
            --every ${triage_every})
  set_tests_properties(triage/${corpus} triage/properties_${corpus}
    PROPERTIES TIMEOUT 1800 ENVIRONMENT "${belay_test_environment}")
endforeach()
