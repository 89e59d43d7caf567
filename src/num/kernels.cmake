# SPDX-License-Identifier: Apache-2.0
# The arithmetic: which files make up the levels of the machine built for. One instruction set is
# one source file with flags of its own.

target_sources(tally_objects PRIVATE
  num/affine.c
  num/dispatch.c
  num/kernels_ref.c
  num/low_rank.c
  num/low_rank_orthogonal.c
  num/low_rank_random.c
  num/low_rank_ref.c
  num/optim.c
  num/optim_ref.c
  num/reduce.c
)
# Tiles of low-rank products lie on the stack: more than other files may have there.
set(frame_of_tiles "")
if(NOT TALLY_SANITIZE)
  set(frame_of_tiles "$<$<CONFIG:Release>:-Wframe-larger-than=40960>")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  target_sources(tally_objects PRIVATE
    base/relax_x86.c num/fpenv_x86.c num/levels_x86.c num/kernels_avx2.c num/kernels_avx512.c
    num/low_rank_avx2.c num/low_rank_avx512.c num/optim_avx2.c num/optim_avx512.c)
  set_source_files_properties(num/kernels_avx2.c num/optim_avx2.c PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mf16c")
  set_source_files_properties(num/low_rank_avx2.c PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mf16c;${frame_of_tiles}")
  set_source_files_properties(num/kernels_avx512.c num/optim_avx512.c PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl")
  set_source_files_properties(num/low_rank_avx512.c PROPERTIES COMPILE_OPTIONS
    "-mavx2;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;${frame_of_tiles}")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  target_sources(tally_objects PRIVATE
    base/relax_arm.c num/fpenv_arm.c num/levels_arm.c num/kernels_neon.c num/low_rank_neon.c
    num/optim_neon.c)
  set_source_files_properties(num/low_rank_neon.c PROPERTIES
    COMPILE_OPTIONS "${frame_of_tiles}")
else()
  target_sources(tally_objects PRIVATE base/relax_generic.c num/fpenv_generic.c num/levels_generic.c)
endif()
