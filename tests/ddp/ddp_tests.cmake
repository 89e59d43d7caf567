# SPDX-License-Identifier: Apache-2.0
# Tests of the ddp: parameters, buckets, steps, hooks, with ranks as threads and as processes.

add_library(tally_ddp_support STATIC
  support/ddp_model.c support/ddp_net.c support/averager_scene.c support/mixed_model.c)
target_include_directories(tally_ddp_support PUBLIC
  ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(tally_ddp_support PRIVATE tally_flags)

# A separate program tests/ddp/<name>.c, as in multi.cmake.
function(tally_ddp_test name)
  add_executable(${name} ddp/${name}.c)
  target_link_libraries(${name} PRIVATE tally_flags
    tally_ddp_support tally_rank_support tally_test_support tally_static PkgConfig::cmocka m)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ddp TIMEOUT 300 PROCESSORS 2)
endfunction()

tally_ddp_test(test_ddp_plan)
tally_ddp_test(test_ddp_means)
tally_ddp_test(test_ddp_param_memory)
tally_ddp_test(test_ddp_bits)
tally_ddp_test(test_ddp_bucket)
tally_ddp_test(test_ddp_unused)
tally_ddp_test(test_ddp_errors)
tally_ddp_test(test_ddp_disagree)
tally_ddp_test(test_ddp_arrays)
tally_ddp_test(test_ddp_flat)
tally_ddp_test(test_ddp_many)
tally_ddp_test(test_ddp_costs)
tally_ddp_test(test_ddp_check)
tally_ddp_test(test_ddp_warn)
tally_ddp_test(test_ddp_hook_errors)
tally_ddp_test(test_ddp_join)
tally_ddp_test(test_ddp_buffers)
tally_ddp_test(test_ddp_helpers)
tally_ddp_test(test_ddp_accumulate)
tally_ddp_test(test_ddp_stats)
tally_ddp_test(test_ddp_late)
tally_ddp_test(test_ddp_memory)
tally_ddp_test(test_ddp_trace)
tally_ddp_test(test_ddp_status)
tally_ddp_test(test_ddp_report)
tally_ddp_test(test_ddp_corners)
tally_ddp_test(test_ddp_lost)
tally_ddp_test(test_ddp_several)
tally_ddp_test(test_ddp_alone)
tally_ddp_test(test_ddp_culprit)
tally_ddp_test(test_mixed_means)
tally_ddp_test(test_mixed_setup)
tally_ddp_test(test_mixed_steps)
tally_ddp_test(test_averager)
tally_ddp_test(test_averager_changes)
tally_ddp_test(test_averager_state)
tally_ddp_test(test_averager_optimizer)
tally_ddp_test(test_averager_memory)
tally_ddp_test(test_load_nothing)
tally_ddp_test(test_old_blobs)

target_compile_definitions(test_ddp_flat PRIVATE _DEFAULT_SOURCE)
foreach(name test_ddp_trace test_ddp_report)
  target_sources(${name} PRIVATE support/trace_reader.c)
endforeach()
foreach(name test_ddp_trace test_ddp_report test_ddp_status)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
endforeach()

# Linear work takes seconds, quadratic work takes minutes.
set_tests_properties(test_ddp_many PROPERTIES TIMEOUT 60)

# The same program with and without flushing of subnormal numbers: -Ofast flushes when a program is
# linked with it.
foreach(level Ofast O2)
  add_executable(ddp_subnormal_${level} ddp/ddp_subnormal.c)
  target_compile_options(ddp_subnormal_${level} PRIVATE -${level} -Wno-deprecated)
  target_link_options(ddp_subnormal_${level} PRIVATE -${level})
  target_link_libraries(ddp_subnormal_${level} PRIVATE tally_flags tally_static m)
endforeach()
add_executable(test_ddp_flush ddp/test_ddp_flush.c)
target_link_libraries(test_ddp_flush PRIVATE tally_flags)
add_test(NAME test_ddp_flush
  COMMAND test_ddp_flush $<TARGET_FILE:ddp_subnormal_Ofast> $<TARGET_FILE:ddp_subnormal_O2>)
set_tests_properties(test_ddp_flush PROPERTIES LABELS ddp TIMEOUT 300 PROCESSORS 2)
