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
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  target_sources(tally_objects PRIVATE
    base/relax_x86.c num/fpenv_x86.c num/levels_x86.c num/kernels_avx2.c num/kernels_avx512.c
    num/low_rank_avx2.c num/low_rank_avx512.c num/optim_avx2.c num/optim_avx512.c)
  set_source_files_properties(num/kernels_avx2.c num/optim_avx2.c PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mf16c")
  # Tiles of low-rank products.
  set_source_files_properties(num/low_rank_avx2.c PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mf16c;-Wframe-larger-than=40960")
  set_source_files_properties(num/kernels_avx512.c num/optim_avx512.c PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl")
  set_source_files_properties(num/low_rank_avx512.c PROPERTIES COMPILE_OPTIONS
    "-mavx2;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-Wframe-larger-than=40960")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  target_sources(tally_objects PRIVATE
    base/relax_arm.c num/fpenv_arm.c num/levels_arm.c num/kernels_neon.c num/low_rank_neon.c
    num/optim_neon.c)
  set_source_files_properties(num/low_rank_neon.c PROPERTIES
    COMPILE_OPTIONS "-Wframe-larger-than=40960")
else()
  target_sources(tally_objects PRIVATE base/relax_generic.c num/fpenv_generic.c num/levels_generic.c)
endif()
