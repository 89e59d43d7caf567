# SPDX-License-Identifier: Apache-2.0
# Optimizers: how one parameter is updated.
target_sources(tally_objects PRIVATE
  optim/describe_optimizers.c
  optim/kind_adagrad.c
  optim/kind_adam.c
  optim/kind_rmsprop.c
  optim/kind_sgd.c
  optim/moments.c
  optim/optimizer_kinds.c
  optim/rule.c
)
