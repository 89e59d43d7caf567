# SPDX-License-Identifier: Apache-2.0
# The tests of the arithmetic.

set(num_check support/num_check.c)
set(num_tests ${num_check}
  support/num_tests.c support/num_cast_tests.c support/num_sum_tests.c support/num_affine_tests.c
  support/num_scaled_tests.c support/num_code_sum_tests.c support/num_mean_tests.c
  support/num_vector_tests.c)
set(optim_variants support/optim_oracle.c support/optim_variants.c)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(num_env support/num_env_x86.c)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(num_env support/num_env_arm.c)
else()
  set(num_env support/num_env_generic.c)
endif()

# A unit test of one thread.
function(tally_arithmetic_test name)
  tally_unit_test(${name} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS "unit;arithmetic")
endfunction()

tally_arithmetic_test(test_num_kernels ${num_tests})
tally_arithmetic_test(test_num_halves ${num_check})
tally_arithmetic_test(test_num_golden)
tally_arithmetic_test(test_num_env ${num_check} ${num_env})
tally_arithmetic_test(test_num_isas)
tally_arithmetic_test(test_low_rank ${num_check} ${num_env})
tally_arithmetic_test(test_low_rank_factors ${num_check})
tally_arithmetic_test(test_low_rank_isas ${num_check} support/low_rank_tests.c)
tally_arithmetic_test(test_optim ${num_check} ${num_env} ${optim_variants})
tally_arithmetic_test(test_optim_isas ${num_check} ${optim_variants} support/optim_tests.c)

# The AVX-512 instruction set with SIMDe's portable intrinsics in place of the compiler's. Its tables take the
# place of those in the archive.
find_path(SIMDE_INCLUDE_DIR simde/x86/avx512.h)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" AND SIMDE_INCLUDE_DIR)
  add_library(emulated_avx512 OBJECT ${PROJECT_SOURCE_DIR}/src/num/isa_avx512.c)
  target_link_libraries(emulated_avx512 PRIVATE tally_flags)
  target_include_directories(emulated_avx512 SYSTEM BEFORE PRIVATE
    ${CMAKE_CURRENT_SOURCE_DIR}/emulate ${SIMDE_INCLUDE_DIR})
  target_include_directories(emulated_avx512 PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  # SIMDe's macros expand to conversions that our warnings would point out, and without the
  # instruction set the compiler passes wide vectors in its own way: nobody else is passed any. Its
  # integer additions wrap around, as the instructions do.
  target_compile_options(emulated_avx512 PRIVATE -Wno-conversion -Wno-psabi -fwrapv)
  tally_arithmetic_test(test_num_emulated ${num_tests} $<TARGET_OBJECTS:emulated_avx512>)
  tally_arithmetic_test(test_low_rank_emulated ${num_check} support/low_rank_tests.c
    $<TARGET_OBJECTS:emulated_avx512>)
  tally_arithmetic_test(test_optim_emulated ${num_check} ${optim_variants} support/optim_tests.c
    $<TARGET_OBJECTS:emulated_avx512>)
endif()
