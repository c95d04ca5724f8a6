# SPDX-License-Identifier: Apache-2.0
# Every tests/cli/*.case is a transcript of the command line, the CTest test cli/<name>.
add_executable(cli_rank ${CMAKE_CURRENT_SOURCE_DIR}/cli/rank.c) # a program of several ranks for them
target_link_libraries(cli_rank PRIVATE belay_static)
if(TARGET belay_mpi)
  add_dependencies(cli_rank belay_mpi)
endif()
add_test(NAME dist/netns COMMAND bash ${PROJECT_SOURCE_DIR}/tests/dist/netns.sh $<TARGET_FILE:belay_cli> $<TARGET_FILE:cli_rank>)
set_tests_properties(dist/netns PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 ENVIRONMENT "${belay_test_environment}")

# The program with one rank of it that comes to a bad end.
add_executable(cli_killed ${CMAKE_CURRENT_SOURCE_DIR}/cli/killed.c)
target_link_libraries(cli_killed PRIVATE belay_cli_parts)
target_link_options(cli_killed PRIVATE -Wl,--wrap=bl_group_phase)
if(TARGET belay_mpi)
  add_dependencies(cli_killed belay_mpi)
endif()
add_test(NAME dist/kills COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/dist/kills.py $<TARGET_FILE:cli_killed>)
set_tests_properties(dist/kills PROPERTIES TIMEOUT 3600 SKIP_RETURN_CODE 77
  ENVIRONMENT "${belay_test_environment};BELAY_PLUGINS=${PROJECT_BINARY_DIR}")

file(GLOB cli_cases CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cli/*.case)
foreach(case ${cli_cases})
  get_filename_component(name ${case} NAME_WE)
  add_test(NAME cli/${name} COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/cli/run.sh $<TARGET_FILE:belay_cli> ${case})
  set_tests_properties(cli/${name} PROPERTIES LABELS cli SKIP_RETURN_CODE 77 TIMEOUT 600
    ENVIRONMENT "${belay_test_environment};BELAY_SANITIZED=${BELAY_SANITIZE};BELAY_SMALL=${BELAY_SMALL};RANK_PROGRAM=$<TARGET_FILE:cli_rank>;SKELETON=$<TARGET_FILE:example_ddp_skeleton>;KILLED=$<TARGET_FILE:cli_killed>")
endforeach()

# The program in one process, with failing allocations.
add_executable(cli_sweep ${CMAKE_CURRENT_SOURCE_DIR}/cli/sweep.c)
target_link_libraries(cli_sweep PRIVATE belay_cli_parts)
add_test(NAME cli/sweep COMMAND cli_sweep)
set_tests_properties(cli/sweep PROPERTIES LABELS cli TIMEOUT 600 ENVIRONMENT "${belay_test_environment}")

# The words of the manual pages.
add_executable(cli_pages ${CMAKE_CURRENT_SOURCE_DIR}/cli/pages.c ${PROJECT_SOURCE_DIR}/tools/pages/man.c
  ${PROJECT_SOURCE_DIR}/tools/pages/words.c)
target_include_directories(cli_pages PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(cli_pages PRIVATE belay_cli_parts PkgConfig::cmocka)
add_test(NAME cli/pages COMMAND cli_pages)
set_tests_properties(cli/pages PROPERTIES LABELS cli TIMEOUT 600 ENVIRONMENT "${belay_test_environment}")

# The PyTorch beside `belay bench`.
add_executable(cli_peer ${CMAKE_CURRENT_SOURCE_DIR}/cli/peer.c)
target_link_libraries(cli_peer PRIVATE belay_cli_parts PkgConfig::cmocka)
add_test(NAME cli/peer COMMAND cli_peer)
set_tests_properties(cli/peer PROPERTIES LABELS cli TIMEOUT 600 ENVIRONMENT "${belay_test_environment}")

# What `belay bench` times beside its jobs.
add_executable(cli_bench ${CMAKE_CURRENT_SOURCE_DIR}/cli/bench.c)
target_link_libraries(cli_bench PRIVATE belay_cli_parts PkgConfig::cmocka)
add_test(NAME cli/bench COMMAND cli_bench)
set_tests_properties(cli/bench PROPERTIES LABELS cli TIMEOUT 600 ENVIRONMENT "${belay_test_environment}")
