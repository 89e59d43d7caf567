# SPDX-License-Identifier: Apache-2.0
# Groups, as far as one process can see them.
tally_unit_test(test_extents)
tally_unit_test(test_place)
