# SPDX-License-Identifier: Apache-2.0
# The rows once more on sim:1 while sim:0 is the current device: its streams run as a seed says, and free.
foreach(name rows rows_in_place made edges math product attention conv)
  add_test(NAME op/${name}_sim COMMAND test_op_${name})
  set_tests_properties(op/${name}_sim PROPERTIES TIMEOUT 600
    ENVIRONMENT "${belay_test_environment};BELAY_TEST_PLACE=sim:1;BELAY_SIM_SEED=11")
  add_test(NAME op/${name}_sim_free COMMAND test_op_${name})
  set_tests_properties(op/${name}_sim_free PROPERTIES TIMEOUT 600
    ENVIRONMENT "${belay_test_environment};BELAY_TEST_PLACE=sim:1;BELAY_SIM_SEED=")
endforeach()
