# SPDX-License-Identifier: Apache-2.0
# Every tests/fuzz/fuzz_<reader>.c defines LLVMFuzzerTestOneInput.  Under BELAY_FUZZ it is linked with libFuzzer; else
# with a main that feeds it the files of tests/fuzz/seeds/<reader>/, as the CTest test fuzz/<reader>.
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
foreach(source ${fuzz_sources})
  get_filename_component(target ${source} NAME_WE)
  string(REPLACE "fuzz_" "" reader ${target})
  add_executable(${target} ${source})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE belay_static)
  if(BELAY_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
    add_test(NAME fuzz/${reader} COMMAND ${target} ${PROJECT_SOURCE_DIR}/tests/fuzz/seeds/${reader})
    set_tests_properties(fuzz/${reader} PROPERTIES TIMEOUT 600 ENVIRONMENT "${belay_test_environment}")
  endif()
endforeach()
