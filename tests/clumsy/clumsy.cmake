# SPDX-License-Identifier: Apache-2.0
# Mistakes that users make, and what they read: docs/troubleshooting.md is compared with what happens.

add_executable(clumsy clumsy/clumsy.c clumsy/clumsy_checkpoints.c)
target_compile_definitions(clumsy PRIVATE _GNU_SOURCE)
target_include_directories(clumsy PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(clumsy PRIVATE tally_flags tally)
set(clumsy_static ${CMAKE_CURRENT_BINARY_DIR}/clumsy_static)
if(TARGET run_reduce_static)
  add_executable(clumsy_static clumsy/clumsy.c clumsy/clumsy_checkpoints.c)
  target_compile_definitions(clumsy_static PRIVATE _GNU_SOURCE)
  target_include_directories(clumsy_static PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(clumsy_static PRIVATE tally_flags tally_static)
  target_link_options(clumsy_static PRIVATE -static)
endif()

set(clumsy_check python3 -B ${CMAKE_CURRENT_SOURCE_DIR}/clumsy/check_clumsy.py
  ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} $<TARGET_FILE:clumsy> ${clumsy_static})
if(interop_skip)
  add_test(NAME docs_troubleshooting COMMAND sh -c "echo 'skipped: ${interop_skip}'; exit 77")
else()
  add_test(NAME docs_troubleshooting COMMAND ${clumsy_check})
  # Rewrites the tables of the page from what happens: after a change of a message.
  add_custom_target(troubleshooting COMMAND ${clumsy_check} --update DEPENDS clumsy VERBATIM)
endif()
set_tests_properties(docs_troubleshooting PROPERTIES LABELS docs TIMEOUT 300 PROCESSORS 2
  SKIP_RETURN_CODE 77)
