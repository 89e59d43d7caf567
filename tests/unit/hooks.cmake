# SPDX-License-Identifier: Apache-2.0
# Hooks, as far as one process can see them.
set(hook_checks support/hook_checks.c support/hook_kinds.c)
tally_unit_test(test_hook_text ${hook_checks})
tally_unit_test(test_hook_mistakes ${hook_checks})
tally_unit_test(test_hook_list)

# A locale with a comma, of our own: machines have only those that somebody has asked for. localedef
# complains of what the file leaves out, and writes it all the same.
set(locales ${CMAKE_CURRENT_BINARY_DIR}/locales)
file(MAKE_DIRECTORY ${locales})
execute_process(COMMAND localedef --force --inputfile=${CMAKE_CURRENT_SOURCE_DIR}/unit/comma.locale
  ${locales}/comma OUTPUT_QUIET ERROR_QUIET)
set_tests_properties(test_hook_text PROPERTIES ENVIRONMENT LOCPATH=${locales})
