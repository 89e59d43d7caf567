# SPDX-License-Identifier: Apache-2.0
# Groups, and what ranks share, as far as one process can see it.
tally_unit_test(test_extents)
tally_unit_test(test_group_config)
tally_unit_test(test_late_row)
tally_unit_test(test_message_size)
tally_unit_test(test_ring)
tally_unit_test(test_room)
tally_unit_test(test_sized)
tally_unit_test(test_sized_0_1_0)
tally_unit_test(test_sized_answers)
tally_unit_test(test_zero_shards)
