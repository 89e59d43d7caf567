# SPDX-License-Identifier: Apache-2.0
# Tests that run everything README, docs, examples and man pages show, and check that everything
# they name exists. The result is the same for every build of this machine's compiler, so a cross
# build and the sanitizers skip these tests, as interop does.

set(docs_python python3)

# docs_<name> runs tests/docs/<program>.py with the tree, the build and the arguments given.
function(tally_docs_test name program)
  if(interop_skip)
    add_test(NAME docs_${name} COMMAND sh -c "echo 'skipped: ${interop_skip}'; exit 77")
  else()
    add_test(NAME docs_${name} COMMAND ${docs_python} -B ${CMAKE_CURRENT_SOURCE_DIR}/docs/${program}.py
      ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${ARGN})
  endif()
  set_tests_properties(docs_${name} PROPERTIES LABELS docs TIMEOUT 300 SKIP_RETURN_CODE 77)
endfunction()

tally_docs_test(c run_c_blocks ${CMAKE_C_COMPILER})
tally_docs_test(commands run_sh_blocks)
set_tests_properties(docs_commands PROPERTIES PROCESSORS 2)
# Both write the list of what they have installed.
set_tests_properties(docs_commands interop_installation PROPERTIES RESOURCE_LOCK install_manifest)

# Debian's, which has PyTorch.
set(docs_python /usr/bin/python3)
tally_docs_test(python run_python_blocks)
set(docs_python python3)

add_executable(text_forms docs/text_forms.c)
target_link_libraries(text_forms PRIVATE tally_flags tally)
tally_docs_test(texts check_texts $<TARGET_FILE:text_forms>)
tally_docs_test(names check_names $<TARGET_FILE:text_forms>)

# Also a unit test, so that a quick run notices a new or renamed file of src without a row in the
# map.
tally_docs_test(map check_map)
set_tests_properties(docs_map PROPERTIES LABELS "docs;unit")

tally_docs_test(index check_index)

# The figures and the picture of the README are those of docs/performance.md.
if(interop_skip)
  add_test(NAME docs_figures COMMAND sh -c "echo 'skipped: ${interop_skip}'; exit 77")
else()
  add_test(NAME docs_figures COMMAND python3 -B ${PROJECT_SOURCE_DIR}/bench/bench_front.py --check
    ${PROJECT_SOURCE_DIR})
endif()
set_tests_properties(docs_figures PROPERTIES LABELS "docs;unit" TIMEOUT 300 SKIP_RETURN_CODE 77)
