# SPDX-License-Identifier: Apache-2.0
# Tensors exchanged with NumPy and PyTorch, where Python has them.  A sanitizer's library would have to be loaded before
# Python is; tests/tensor/test_dlpack.c runs under those.
if(NOT BELAY_SANITIZE)
  add_test(NAME tensor/dlpack_python
    COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/tensor/dlpack.sh $<TARGET_FILE:belay>)
  set_tests_properties(tensor/dlpack_python PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
    ENVIRONMENT "${belay_test_environment}")
endif()
