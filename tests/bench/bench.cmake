# SPDX-License-Identifier: Apache-2.0
# The benches do what they say; how fast is not asked. They need all the CPUs there are. Under a
# sanitizer, which slows their arithmetic, they measure only the smallest cases.
foreach(bench checkpoint collective events step hooks lowrank profile)
  add_test(NAME bench_${bench}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bench/test_bench_${bench}.sh $<TARGET_FILE:tally_tool>)
  set_tests_properties(bench_${bench} PROPERTIES LABELS bench TIMEOUT 300 PROCESSORS 2)
  if(TALLY_SANITIZE)
    set_tests_properties(bench_${bench} PROPERTIES ENVIRONMENT TALLY_TESTS_SANITIZED=1)
  endif()
endforeach()

# Many ranks open a world, take steps with every hook, and close it.
add_test(NAME world_threads COMMAND world_rank threads 64)
set_tests_properties(world_threads PROPERTIES LABELS bench TIMEOUT 300 PROCESSORS 2)

# `make bench`: a program in Python, in which the sanitizers have nothing to find.
if(NOT TALLY_SANITIZE)
  foreach(bench all auto links mpi plan)
    add_test(NAME bench_${bench}
      COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/bench/test_bench_${bench}.sh $<TARGET_FILE:tally_tool>)
    set_tests_properties(bench_${bench} PROPERTIES LABELS bench TIMEOUT 300 PROCESSORS 2 SKIP_RETURN_CODE 77)
  endforeach()
endif()
