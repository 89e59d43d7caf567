# SPDX-License-Identifier: Apache-2.0
# Sources for the processor that tally is built for. One instruction set is one source file with its
# own flags. Tiles of low-rank products lie on the stack, which needs a larger frame than elsewhere.
set(isa_options "")
if(NOT TALLY_SANITIZE)
  set(isa_options "$<$<CONFIG:Release>:-Wframe-larger-than=40960>")
elseif(TALLY_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # gcc 12 stores 64-byte vectors to frames that the address sanitizer aligns to 32 bytes.
  set(isa_options "--param=asan-use-after-return=0")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  target_sources(tally_objects PRIVATE
    base/cpu_x86.c num/isas_x86.c num/isa_avx2.c num/isa_avx512.c)
  set_source_files_properties(num/isa_avx2.c PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mf16c;${isa_options}")
  set_source_files_properties(num/isa_avx512.c PROPERTIES COMPILE_OPTIONS
    "-mavx2;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;${isa_options}")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  target_sources(tally_objects PRIVATE base/cpu_arm.c num/isas_arm.c num/isa_neon.c)
  set_source_files_properties(num/isa_neon.c PROPERTIES COMPILE_OPTIONS "${isa_options}")
else()
  target_sources(tally_objects PRIVATE base/cpu_generic.c num/isas_generic.c)
endif()
