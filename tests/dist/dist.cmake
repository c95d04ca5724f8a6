# SPDX-License-Identifier: Apache-2.0
# Tests with real ranks.  A program is tests/dist/ranks_<name>.c (with tests/dist/ranks.c and tests/support linked in); every
# rank runs all of it, and asserts what it itself was told.  To add a test:
#
#   1. write tests/dist/ranks_<name>.c: a main of cmocka tests, which all ranks run; ranks.h has what they share
#   2. add a line below: belay_ranks(<name> N [CASE word] [LOST ranks] [STATUS rank=status ...] [ENV NAME=VALUE ...] [ARGS ...])
#
# That is the CTest test dist/<name>_<N> or dist/<name>_<N>_<word>.  Each rank must end with status 0, or with the one that
# STATUS gives it (128 + signal for a signal).  LOST names ranks that are not expected to end: they are killed once the
# others have.  What each rank prints is kept apart and shown when the test fails; tests/dist/<name>_<N>[_<word>].expected,
# where it is there, must be equal to it, with figures of seconds written as "T s" and this
# machine as HOST (BELAY_UPDATE=1 writes it anew).
# Without mpirun or the plug-in the test is skipped by name.
find_program(BELAY_MPIRUN mpirun)

function(belay_ranks name n)
  cmake_parse_arguments(PARSE_ARGV 2 r "" "CASE;LOST" "STATUS;ENV;ARGS")
  set(target ranks_${name})
  if(NOT TARGET ${target})
    add_executable(${target} ${CMAKE_CURRENT_SOURCE_DIR}/dist/ranks_${name}.c ${CMAKE_CURRENT_SOURCE_DIR}/dist/ranks.c
      ${support_sources})
    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(${target} PRIVATE belay_static PkgConfig::cmocka)
    target_compile_definitions(${target} PRIVATE BELAY_SOURCE_DIR="${PROJECT_SOURCE_DIR}" BELAY_BUILD_DIR="${PROJECT_BINARY_DIR}")
    if(TARGET belay_mpi)
      add_dependencies(${target} belay_mpi)
    endif()
  endif()
  set(test dist/${name}_${n})
  if(r_CASE)
    string(APPEND test _${r_CASE})
  endif()
  set(options "")
  if(r_LOST)
    list(APPEND options --lost ${r_LOST})
  endif()
  foreach(status ${r_STATUS})
    list(APPEND options --status ${status})
  endforeach()
  # The thread sanitizer's suppressions hold for libraries that stay, and MPI's end lets go of this one.
  if(BELAY_SANITIZE MATCHES thread)
    list(APPEND r_ENV LD_PRELOAD=libpmix.so.2)
  endif()
  string(REPLACE "dist/" "" file ${test})
  add_test(NAME ${test} COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/dist/ranks.py ${options}
    --expected ${PROJECT_SOURCE_DIR}/tests/dist/${file}.expected --plugins ${PROJECT_BINARY_DIR} ${n} $<TARGET_FILE:${target}> ${r_ARGS})
  set_tests_properties(${test} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT "${belay_test_environment};LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/dist/lsan.supp:print_suppressions=0;${r_ENV}")
endfunction()

belay_ranks(group 1)
belay_ranks(group 2)
belay_ranks(group 3)
belay_ranks(group 4)
belay_ranks(group 3 CASE pieces ENV BELAY_MPI_PIECE=60)
belay_ranks(group 2 CASE tcp ENV OMPI_MCA_btl=tcp,self)
foreach(word unbound shared other own device)
  belay_ranks(launch 3 CASE ${word} ARGS ${word})
endforeach()
belay_ranks(launch 2 CASE recovery ENV OMPI_MCA_orte_enable_recovery=UNSET ARGS recovery)
belay_ranks(launch 2 CASE world ARGS world)
belay_ranks(launch 2 CASE absent ENV BELAY_RANKS_PLUGINS=/nowhere ARGS absent)
belay_ranks(opening 2)
set_target_properties(ranks_opening PROPERTIES ENABLE_EXPORTS ON)
foreach(word skip swap max refused memory room lost close abort fatal late bucket)
  belay_ranks(broken 3 CASE ${word} ARGS ${word})
endforeach()
belay_ranks(broken 3 CASE three ARGS three)
belay_ranks(broken 4 CASE max ARGS max)
belay_ranks(broken 4 CASE skip ARGS skip)
belay_ranks(broken 2 CASE tie ARGS tie)
belay_ranks(broken 4 CASE tie ARGS tie)
belay_ranks(broken 3 CASE stop LOST 2 ARGS stop)
belay_ranks(broken 3 CASE kill STATUS 0=137 ARGS kill)
belay_ranks(broken 3 CASE exit STATUS 1=9 ARGS exit)

foreach(word same layer dtype shape frozen batch buckets unused seed refused alike)
  belay_ranks(manifest 3 CASE ${word} ARGS ${word})
endforeach()
belay_ranks(manifest 2 CASE layer ARGS layer) # a tie
belay_ranks(manifest 4 CASE batch ARGS batch)

belay_ranks(reducer 2)
belay_ranks(reducer 3)
belay_ranks(reducer 4)
foreach(word scale weights less spoils leaves)
  belay_ranks(reducer 3 CASE ${word} ARGS ${word})
endforeach()

belay_ranks(rounds 2)
belay_ranks(rounds 3)
foreach(word alone order call)
  belay_ranks(rounds 3 CASE ${word} ARGS ${word})
endforeach()

belay_ranks(sim 2)
belay_ranks(sim 3)

belay_ranks(train 1)
belay_ranks(train 2)
belay_ranks(train 4)
foreach(word policy many data)
  belay_ranks(train 3 CASE ${word} ARGS ${word})
endforeach()
belay_ranks(train 3 CASE first STATUS 0=137 ARGS first)
belay_ranks(train 3 CASE last STATUS 2=137 ARGS last)
belay_ranks(train 3 CASE end STATUS 0=137 ARGS end)
belay_ranks(train 2 CASE sim ARGS sim)
belay_ranks(settings 2)
belay_ranks(settings 3)
belay_ranks(job 2)
belay_ranks(job 4)
