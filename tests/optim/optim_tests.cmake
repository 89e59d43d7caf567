# SPDX-License-Identifier: Apache-2.0
# Optimizers, as far as one parameter can see them.

# tally_optim_test(NAME SOURCE...): optim/NAME.c, and what else it needs.
function(tally_optim_test name)
  add_executable(${name} optim/${name}.c ${ARGN})
  target_link_libraries(${name} PRIVATE
    tally_flags tally_test_support tally_static PkgConfig::cmocka m)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 300)
endfunction()

tally_optim_test(test_rule_numbers support/num_check.c support/optim_oracle.c)
tally_optim_test(test_rule_texts)
tally_optim_test(test_moments support/num_check.c)
