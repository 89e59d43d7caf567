# SPDX-License-Identifier: Apache-2.0
# Tests of optimizers bound to a ddp, with ranks as threads and as processes.

add_library(tally_opt_support STATIC support/opt_model.c support/opt_states.c)
target_include_directories(tally_opt_support PUBLIC
  ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(tally_opt_support PRIVATE tally_flags)

# A separate program tests/optim/<name>.c, as in multi.cmake.
function(tally_optimizer_test name)
  add_executable(${name} optim/${name}.c)
  target_link_libraries(${name} PRIVATE tally_flags tally_opt_support
    tally_ddp_support tally_rank_support tally_test_support tally_static PkgConfig::cmocka m)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS optim TIMEOUT 300 PROCESSORS 2)
endfunction()

tally_optimizer_test(test_optimizer_overlap)
tally_optimizer_test(test_optimizer_memory)
tally_optimizer_test(test_optimizer_groups)
tally_optimizer_test(test_optimizer_backward)
tally_optimizer_test(test_zero_bits)
tally_optimizer_test(test_optimizer_save)
tally_optimizer_test(test_zero_cases)
tally_optimizer_test(test_zero_join)
tally_optimizer_test(test_zero_failures)
tally_optimizer_test(test_zero_save)
tally_optimizer_test(test_own_hook)
tally_optimizer_test(test_loss_scale)
tally_optimizer_test(test_loss_failures)
tally_optimizer_test(test_mixed_optimizer)
tally_optimizer_test(test_mixed_memory)
