# SPDX-License-Identifier: Apache-2.0
# Values of PyTorch: the runner over golden/data; the files that it does not run must be those of golden/not_run.txt.
file(GLOB golden_sources CONFIGURE_DEPENDS golden/*.c)
add_executable(belay_golden ${golden_sources})
target_include_directories(belay_golden PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(belay_golden PRIVATE belay_static)
add_test(NAME golden/pytorch
  COMMAND belay_golden ${CMAKE_CURRENT_SOURCE_DIR}/golden/data ${CMAKE_CURRENT_SOURCE_DIR}/golden/not_run.txt)
set_tests_properties(golden/pytorch PROPERTIES TIMEOUT 600 ENVIRONMENT "${belay_test_environment}")
