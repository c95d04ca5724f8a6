# SPDX-License-Identifier: Apache-2.0
# Plug-ins: what the library loads at run time where it is there, and never links.  Each stands on the room `base` alone,
# of which it has a copy, and exports one function.
if(MPI_C_FOUND)
  file(GLOB base_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/base/*.c)
  add_library(belay_mpi MODULE ${PROJECT_SOURCE_DIR}/src/dist/mpi/mpi.c ${base_sources})
  target_link_libraries(belay_mpi PRIVATE belay_flags MPI::MPI_C Threads::Threads m)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/plugin.map
       CONTENT "{ global: bl_transport_plugin; local: *; };\n")
  target_link_options(belay_mpi PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/generated/plugin.map)
  set_target_properties(belay_mpi PROPERTIES LINK_DEPENDS ${PROJECT_BINARY_DIR}/generated/plugin.map)
endif()
