# SPDX-License-Identifier: Apache-2.0
tally_unit_test(test_base)
tally_unit_test(test_nomem)
target_link_libraries(test_nomem PRIVATE tally_bench)
