# SPDX-License-Identifier: Apache-2.0
# Tests of the Python package, with Debian's Python, which has PyTorch and NumPy: python/tests. Where
# they are not installed, the tests say so in one line. A cross build and the sanitizers skip them, as
# interop does: Python is not built with a sanitizer.

set(tally_python /usr/bin/python3)

# python_<name> runs the program of python/tests with the arguments given.
function(tally_python_test name program)
  if(interop_skip)
    add_test(NAME python_${name} COMMAND sh -c "echo 'skipped: ${interop_skip}'; exit 77")
  else()
    add_test(NAME python_${name}
      COMMAND ${tally_python} -B ${PROJECT_SOURCE_DIR}/python/tests/${program}.py ${ARGN})
  endif()
  set_tests_properties(python_${name} PROPERTIES LABELS python TIMEOUT 300 SKIP_RETURN_CODE 77
    PROCESSORS 2 ENVIRONMENT
    "TALLY_LIBRARY=$<TARGET_FILE:tally>;TALLY_TOOL=${PROJECT_BINARY_DIR}/tally;OMP_NUM_THREADS=1;GLOG_minloglevel=2")
endfunction()

tally_python_test(numpy test_numpy)
tally_python_test(hooks test_hooks)
tally_python_test(golden test_golden)
tally_python_test(training test_training)
tally_python_test(backend test_backend)
tally_python_test(faults test_faults)
tally_python_test(install test_install)
tally_python_test(hosts_openmpi test_hosts openmpi)
tally_python_test(hosts_mpich test_hosts mpich)
# PyTorch's own test file, which is not part of this tree.
set(tally_upstream ${PROJECT_SOURCE_DIR}/../shared/upstream/test_ddp_hooks.py)
tally_python_test(upstream run_upstream ${tally_upstream})
tally_python_test(upstream_tally run_upstream --backend tally ${tally_upstream})
