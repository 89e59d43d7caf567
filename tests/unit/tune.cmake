# SPDX-License-Identifier: Apache-2.0
# The cost model and its profiles.
tally_unit_test(test_tune_cost)
tally_unit_test(test_tune_forecast)
tally_unit_test(test_tune_cap)
tally_unit_test(test_tune_choose)
