# SPDX-License-Identifier: Apache-2.0
# The fuzzers. TALLY_FUZZ_SECONDS in the environment says how long each runs under CTest.

add_custom_target(fuzzers)
if(TALLY_SANITIZE MATCHES fuzzer)
  set(fuzz_driver fuzz/fuzz_libfuzzer.c)
  set(fuzz_link_options -fsanitize=fuzzer)
else()
  set(fuzz_driver fuzz/fuzz_driver.c fuzz/fuzz_mutate.c)
  # Memory that parent and child share without a name.
  set_source_files_properties(fuzz/fuzz_driver.c PROPERTIES COMPILE_DEFINITIONS _DEFAULT_SOURCE)
endif()

# tally_fuzzer(NAME SOURCE...): fuzz/fuzz_NAME.c, which starts from fuzz/corpus/NAME, and what else
# it needs.
function(tally_fuzzer name)
  add_executable(fuzz_${name} fuzz/fuzz_${name}.c ${fuzz_driver} ${ARGN})
  target_link_libraries(fuzz_${name} PRIVATE
    tally_flags tally_test_support tally_static PkgConfig::cmocka)
  target_link_options(fuzz_${name} PRIVATE ${fuzz_link_options})
  add_dependencies(fuzzers fuzz_${name})
  set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name})
  if(TALLY_SANITIZE MATCHES fuzzer)
    add_test(NAME fuzz_${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/run_libfuzzer.sh
      $<TARGET_FILE:fuzz_${name}> ${corpus})
  else()
    add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${corpus})
  endif()
  set_tests_properties(fuzz_${name} PROPERTIES LABELS fuzz TIMEOUT 1200)
endfunction()

tally_fuzzer(hook_text fuzz/fuzz_text.c support/hook_kinds.c)
tally_fuzzer(optimizer_text fuzz/fuzz_text.c)
tally_fuzzer(state_blob fuzz/blob_changes.c fuzz/blob_fuzz.c)
tally_fuzzer(optimizer_blob fuzz/blob_changes.c fuzz/blob_fuzz.c)
tally_fuzzer(averager_blob fuzz/blob_changes.c fuzz/blob_fuzz.c)
tally_fuzzer(manifest)
tally_fuzzer(profile)
tally_fuzzer(plan)

# Files that the command reads.
set(tools ${PROJECT_SOURCE_DIR}/tools)
tally_fuzzer(trace_file ${tools}/trace_read.c ${tools}/trace_tracks.c)
tally_fuzzer(status_page ${tools}/top_page.c ${tools}/top_view.c ${tools}/top_jobs.c ${tools}/json.c)
foreach(fuzzer trace_file status_page)
  target_include_directories(fuzz_${fuzzer} PRIVATE ${PROJECT_SOURCE_DIR})
endforeach()
