# SPDX-License-Identifier: Apache-2.0
# Saving and loading.
target_sources(tally_objects PRIVATE
  state/blob.c
  state/save_load.c
)
