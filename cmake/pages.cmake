# SPDX-License-Identifier: Apache-2.0
# Manual pages and completion, made from the rows of the commands: `belay_pages FOLDER` writes them.
if(TARGET belay_cli)
  file(GLOB pages_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/pages/*.c)
  add_executable(belay_pages ${pages_sources})
  target_include_directories(belay_pages PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(belay_pages PRIVATE belay_cli_parts)
  set(belay_pages_folder ${PROJECT_BINARY_DIR}/pages)
  add_custom_command(OUTPUT ${belay_pages_folder}/completions/belay
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${belay_pages_folder}
    COMMAND belay_pages ${belay_pages_folder}
    DEPENDS belay_pages VERBATIM)
  add_custom_target(pages ALL DEPENDS ${belay_pages_folder}/completions/belay)
endif()
