# SPDX-License-Identifier: Apache-2.0
# The command as a person meets it.
add_test(NAME tool_command_line
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tool/test_command_line.sh $<TARGET_FILE:tally_tool>)
set_tests_properties(tool_command_line PROPERTIES LABELS tool TIMEOUT 120)
