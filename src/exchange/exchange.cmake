# SPDX-License-Identifier: Apache-2.0
# The two-phase exchange, its codecs, and the collectives built on it.
target_sources(tally_objects PRIVATE
  exchange/all_reduce.c
  exchange/async.c
  exchange/codec_affine.c
  exchange/codec_half.c
  exchange/codec_plain.c
  exchange/codec_scaled.c
  exchange/codec_u8.c
  exchange/reduction.c
  exchange/residuals.c
  exchange/residuals_move.c
  exchange/layout.c
  exchange/two_phase.c
)
