# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by tests that a busy machine makes meaningless.

# The part of the last second in which the CPUs worked, in percent.
busy_percent() {
    local before after
    before=$(sed -n 's/^cpu  *//p' /proc/stat)
    sleep 1
    after=$(sed -n 's/^cpu  *//p' /proc/stat)
    echo "$before $after" | awk '{ n = NF / 2; for (i = 1; i <= n; i++) { d = $(n + i) - $i; all += d; if (i == 4 || i == 5) idle += d }
        printf "%d\n", all ? 100 * (all - idle) / all : 0 }'
}

# Ends the test with 77 if other programs keep the CPUs busy for 20 s.
need_idle_cpus() {
    local percent
    for _ in $(seq 20); do
        percent=$(busy_percent)
        [ "$percent" -ge 25 ] || return 0
    done
    echo "skipped: other programs keep the CPUs busy ($percent %), and so make ranks late"
    exit 77
}
