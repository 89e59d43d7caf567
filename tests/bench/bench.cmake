# SPDX-License-Identifier: Apache-2.0
# The benches do what they say; how fast is not asked. They need all the CPUs there are.
add_test(NAME bench_collective
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bench/test_bench_collective.sh $<TARGET_FILE:tally_tool>)
set_tests_properties(bench_collective PROPERTIES LABELS bench TIMEOUT 300 PROCESSORS 2)
add_test(NAME bench_step
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bench/test_bench_step.sh $<TARGET_FILE:tally_tool>)
set_tests_properties(bench_step PROPERTIES LABELS bench TIMEOUT 300 PROCESSORS 2)
add_test(NAME bench_hooks
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bench/test_bench_hooks.sh $<TARGET_FILE:tally_tool>)
set_tests_properties(bench_hooks PROPERTIES LABELS bench TIMEOUT 300 PROCESSORS 2)
add_test(NAME bench_lowrank
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bench/test_bench_lowrank.sh $<TARGET_FILE:tally_tool>)
set_tests_properties(bench_lowrank PROPERTIES LABELS bench TIMEOUT 300)
