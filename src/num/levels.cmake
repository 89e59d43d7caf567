# SPDX-License-Identifier: Apache-2.0
# Sources for the processor that tally is built for. One instruction set is one source file with its
# own flags. Tiles of low-rank products lie on the stack, which needs a larger frame than elsewhere.
set(level_options "")
if(NOT TALLY_SANITIZE)
  set(level_options "$<$<CONFIG:Release>:-Wframe-larger-than=40960>")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  target_sources(tally_objects PRIVATE
    base/cpu_x86.c num/levels_x86.c num/level_avx2.c num/level_avx512.c)
  set_source_files_properties(num/level_avx2.c PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mf16c;${level_options}")
  set_source_files_properties(num/level_avx512.c PROPERTIES COMPILE_OPTIONS
    "-mavx2;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;${level_options}")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  target_sources(tally_objects PRIVATE base/cpu_arm.c num/levels_arm.c num/level_neon.c)
  set_source_files_properties(num/level_neon.c PROPERTIES COMPILE_OPTIONS "${level_options}")
else()
  target_sources(tally_objects PRIVATE base/cpu_generic.c num/levels_generic.c)
endif()
