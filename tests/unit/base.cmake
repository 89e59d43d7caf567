# SPDX-License-Identifier: Apache-2.0
tally_unit_test(test_base)
# hooks.cmake makes a locale whose numbers have a comma.
set_tests_properties(test_base PROPERTIES ENVIRONMENT LOCPATH=${CMAKE_CURRENT_BINARY_DIR}/locales)
tally_unit_test(test_nomem)
target_link_libraries(test_nomem PRIVATE tally_bench)
