# SPDX-License-Identifier: Apache-2.0
# Tests of checkpoints: their contents, bad input, failing and killed writes.

add_library(tally_ckpt_support STATIC support/ckpt_run.c)
target_include_directories(tally_ckpt_support PUBLIC
  ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(tally_ckpt_support PRIVATE tally_flags)

function(tally_checkpoint_test name)
  tally_rank_test(checkpoint ${name} tally_ckpt_support)
endfunction()

tally_checkpoint_test(test_checkpoint)

# Every call that writes fails, or kills its process, in turn. Processes, as in fault.cmake.
if(NOT fault_skip)
  tally_checkpoint_test(test_checkpoint_torn)
  target_compile_definitions(test_checkpoint_torn PRIVATE _GNU_SOURCE)
  tally_failing_calls(test_checkpoint_torn)
endif()

# A power cut at every moment: the calls that write are recorded and replayed.
tally_checkpoint_test(test_checkpoint_power)
foreach(call open write fsync rename mkdir unlink rmdir)
  target_link_options(test_checkpoint_power PRIVATE "LINKER:--wrap=${call}")
endforeach()

tally_checkpoint_test(test_checkpoint_cases)
target_compile_definitions(test_checkpoint_cases PRIVATE _GNU_SOURCE)

tally_checkpoint_test(test_checkpoint_bad)
target_compile_definitions(test_checkpoint_bad PRIVATE _GNU_SOURCE)

tally_checkpoint_test(test_checkpoint_forged)

tally_checkpoint_test(test_checkpoint_paths)
target_compile_definitions(test_checkpoint_paths PRIVATE _GNU_SOURCE)

# Other programs read the parameters.
add_executable(make_checkpoint checkpoint/make_checkpoint.c)
target_link_libraries(make_checkpoint PRIVATE tally_flags tally_ckpt_support
  tally_rank_support tally_test_support tally_static PkgConfig::cmocka m)
add_test(NAME checkpoint_safetensors COMMAND python3 -B
  ${CMAKE_CURRENT_SOURCE_DIR}/checkpoint/read_safetensors.py $<TARGET_FILE:make_checkpoint>)
set_tests_properties(checkpoint_safetensors PROPERTIES LABELS checkpoint TIMEOUT 300)

# Ranks on several machines.
add_executable(hosts_checkpoint checkpoint/hosts_checkpoint.c)
target_link_libraries(hosts_checkpoint PRIVATE tally_flags tally_ckpt_support
  tally_rank_support tally_test_support tally_static PkgConfig::cmocka m)
foreach(mpi openmpi mpich)
  tally_mpi_test(${mpi} checkpoint_hosts ${CMAKE_CURRENT_SOURCE_DIR}/checkpoint/test_checkpoint_hosts.sh
    ${mpi} ${PROJECT_SOURCE_DIR} ${mpi_folder}/libtally-${mpi}.so
    $<TARGET_FILE:hosts_checkpoint> $<TARGET_FILE:tally_tool>)
endforeach()
