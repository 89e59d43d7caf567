# SPDX-License-Identifier: Apache-2.0
# Tests of optimizers bound to a ddp, with ranks as threads and as processes.

add_library(tally_opt_support STATIC support/opt_model.c support/opt_states.c)
target_include_directories(tally_opt_support PUBLIC
  ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(tally_opt_support PRIVATE tally_flags)

function(tally_optimizer_test name)
  tally_rank_test(optim ${name} tally_opt_support tally_ddp_support)
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
