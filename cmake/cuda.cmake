# SPDX-License-Identifier: Apache-2.0
# The CUDA compile check: a kernel body that only gcc accepts must never land.  Wherever nvcc is found, every
# kernel family is stamped and compiled for the oldest and the newest GPUs that Belay knows; nothing links the objects.
# The sanitizer builds leave it out, since they would only repeat it.
if(BELAY_NVCC AND NOT BELAY_SANITIZE)
  set(cuda_sources "")
  foreach(family ${belay_families})
    file(CONFIGURE OUTPUT ${generated}/cuda_${family}.cu
         CONTENT "#define BL_FAMILY ${family}\n#define BL_FAMILY_FILE \"kernel/${family}.h\"\n#include \"device/cuda/stamp.cuh\"\n")
    list(APPEND cuda_sources ${generated}/cuda_${family}.cu)
  endforeach()
  set(cuda_flags -std=c++17 -O3 -fmad=false --Werror all-warnings -Xcompiler -Wall,-Wextra,-ffp-contract=off
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
    -I ${PROJECT_SOURCE_DIR}/include -I ${PROJECT_SOURCE_DIR}/src)
  set(cuda_objects "")
  foreach(source ${cuda_sources})
    get_filename_component(name ${source} NAME_WE)
    set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/cuda
      COMMAND ${BELAY_NVCC} ${cuda_flags} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "CUDA check ${name}.cu (sm_80, sm_90)" VERBATIM)
    list(APPEND cuda_objects ${object})
  endforeach()
  add_custom_target(belay_cuda_check ALL DEPENDS ${cuda_objects})
endif()
