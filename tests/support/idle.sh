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

# others_run: whether other programs keep the CPUs busy now.
others_run() {
    percent=$(busy_percent)
    [ "$percent" -ge 25 ]
}

# Ends the test with 77 if other programs keep the CPUs busy for 20 s.
need_idle_cpus() {
    local percent
    for _ in $(seq 20); do
        others_run || return 0
    done
    echo "skipped: other programs keep the CPUs busy ($percent %), and so make ranks late"
    exit 77
}

# Of trials that went wrong, those that the load of other programs has spoiled do not count: the trial is to be taken
# again, if that has not happened too often. Call it with this test's own load ended.
n_spoiled=0
is_spoiled() {
    others_run || return 1
    n_spoiled=$((n_spoiled + 1))
    if [ $n_spoiled -gt 20 ]; then
        echo "skipped: other programs spoil the trials"
        exit 77
    fi
    need_idle_cpus
}
