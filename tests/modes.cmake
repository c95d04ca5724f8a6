# SPDX-License-Identifier: Apache-2.0
# Where the memory of tensors lies changes nothing: these run once more with every tensor in pages of its own that end, or
# begin, at an inaccessible one, and between red zones, each with poison.  All tests so: `make exact`.
foreach(mode exact exact-left redzone)
  foreach(test op/rows op/edges op/index op/loss op/product nn/lstm nn/module train/train)
    string(REPLACE "/" "_" target "test_${test}")
    add_test(NAME ${test}_${mode} COMMAND ${target})
    set_tests_properties(${test}_${mode} PROPERTIES TIMEOUT 600 LABELS modes
      ENVIRONMENT "${belay_test_environment};BELAY_MEMORY=${mode},poison")
  endforeach()
  add_test(NAME golden/pytorch_${mode}
    COMMAND belay_golden ${CMAKE_CURRENT_SOURCE_DIR}/golden/data ${CMAKE_CURRENT_SOURCE_DIR}/golden/not_run.txt)
  set_tests_properties(golden/pytorch_${mode} PROPERTIES TIMEOUT 600 LABELS modes
    ENVIRONMENT "${golden_environment};BELAY_MEMORY=${mode},poison")
endforeach()
