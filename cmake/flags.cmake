# SPDX-License-Identifier: Apache-2.0
# Flags for all of our code.  Never fast-math: NaN checks must survive (a test greps for it).
add_library(belay_flags INTERFACE)
target_compile_options(belay_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-sign-conversion -Werror
  -fno-math-errno -fno-trapping-math -ffp-contract=off -fno-optimize-sibling-calls -fno-strict-aliasing
  "$<$<NOT:$<CONFIG:Debug>>:-O3>" -g)
# POSIX strerror_r and friends, without the GNU variants.
target_compile_definitions(belay_flags INTERFACE _POSIX_C_SOURCE=200809L _DEFAULT_SOURCE)
target_include_directories(belay_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
if(BELAY_MARCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
  target_compile_options(belay_flags INTERFACE -march=${BELAY_MARCH})
endif()
if(BELAY_SANITIZE)
  target_compile_options(belay_flags INTERFACE -fsanitize=${BELAY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(belay_flags INTERFACE -fsanitize=${BELAY_SANITIZE})
endif()
if(BELAY_FUZZ)
  target_compile_options(belay_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(BELAY_SMALL)
  target_compile_definitions(belay_flags INTERFACE BELAY_SMALL=1)
endif()
