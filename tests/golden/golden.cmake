# SPDX-License-Identifier: Apache-2.0
# Values of PyTorch: the runner over golden/data; the files that it does not run must be those of golden/not_run.txt.
file(GLOB golden_sources CONFIGURE_DEPENDS golden/*.c)
add_executable(belay_golden ${golden_sources})
target_include_directories(belay_golden PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(belay_golden PRIVATE belay_static)
set(golden_environment "${belay_test_environment};BELAY_PLUGINS=${PROJECT_BINARY_DIR}"
  "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/dist/lsan.supp:print_suppressions=0")
if(TARGET belay_mpi)
  add_dependencies(belay_golden belay_mpi)
endif()
add_test(NAME golden/pytorch
  COMMAND belay_golden ${CMAKE_CURRENT_SOURCE_DIR}/golden/data ${CMAKE_CURRENT_SOURCE_DIR}/golden/not_run.txt)
set_tests_properties(golden/pytorch PROPERTIES TIMEOUT 600 ENVIRONMENT "${golden_environment}")

# The same files on sim:1 while sim:0 is the current device, beside the cpu: the same bits.
foreach(seed 11 "")
  set(name golden/sim)
  if(seed STREQUAL "")
    set(name golden/sim_free)
  endif()
  add_test(NAME ${name}
    COMMAND belay_golden ${CMAKE_CURRENT_SOURCE_DIR}/golden/data ${CMAKE_CURRENT_SOURCE_DIR}/golden/not_run.txt
    --device sim:1)
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 ENVIRONMENT "${golden_environment};BELAY_SIM_SEED=${seed}")
endforeach()

# The runner can fail: golden/wrong/tanh.safetensors is data/tanh.safetensors with 0.25 added to one gradient.
add_test(NAME golden/names_a_wrong_value COMMAND belay_golden ${CMAKE_CURRENT_SOURCE_DIR}/golden/wrong)
set_tests_properties(golden/names_a_wrong_value PROPERTIES ENVIRONMENT "${belay_test_environment}"
  PASS_REGULAR_EXPRESSION "FAIL tanh: grad.x.2, 3, 5. is -0.0355[0-9]*, not 0.2144[0-9]*: .* 1 of 352 elements differ")
add_test(NAME golden/fails_on_a_wrong_value COMMAND belay_golden ${CMAKE_CURRENT_SOURCE_DIR}/golden/wrong)
set_tests_properties(golden/fails_on_a_wrong_value PROPERTIES ENVIRONMENT "${belay_test_environment}" WILL_FAIL ON)
