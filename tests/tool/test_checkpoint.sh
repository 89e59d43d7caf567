#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_checkpoint.sh TALLY MAKE_CHECKPOINT: `tally checkpoint` shows what is in a checkpoint, as text and as
# JSON, and its exit status says whether it is whole.
set -u
# shellcheck source=tests/tool/command_support.sh
source "$(dirname "$0")/command_support.sh"
make=$2

# fails PATTERN COMMAND...: exits 1, and stderr matches PATTERN.
fails() {
    local pattern=$1 err rc
    shift
    err=$("$@" 2>&1 >"$work/out")
    rc=$?
    [ $rc -eq 1 ] || complain "'$*' exited with $rc instead of 1"
    grep -qE -- "$pattern" <<<"$err" || complain "'$*' did not say /$pattern/: $err"
}

"$make" "$work/run" 3 >"$work/values" || complain "no checkpoint was made"
saved=$work/run/save-000001-step-3
accepts '^save-000001-step-3: step 3, saved by 3 ranks with hook int8, [0-9]+ bytes$' "$tally" checkpoint "$work/run"
accepts '^parameter  f32 +24x16 +[0-9.]+ +1536  wte$' "$tally" checkpoint "$work/run"
accepts '^parameter  f32 +scalar .*  scale$' "$tally" checkpoint "$work/run"
accepts '^parameter  bf16 +3x3 +[0-9.e+]+ +18  table.bf16$' "$tally" checkpoint "$work/run"
accepts '^parameter  .* own, rank 2$' "$tally" checkpoint "$work/run"
accepts '^optimizer  .* rank 1$' "$tally" checkpoint "$work/run"
accepts '^blob  .* 16  random state, rank 0$' "$tally" checkpoint "$work/run"
accepts '^buffer  .* 24  running mean$' "$tally" checkpoint "$work/run"
accepts '^whole: every checksum is right$' "$tally" checkpoint "$work/run"
accepts '^save-000001-step-3: ' "$tally" checkpoint "$saved"
accepts '^save-000001-step-3: ' "$tally" checkpoint --name save-000001-step-3 "$work/run"
"$tally" checkpoint "$work/run" --json | python3 -c '
import json, math, struct, sys
shown = json.load(sys.stdin)
assert shown["step"] == 3 and shown["world"] == 3 and shown["whole"] is True, shown
params = {p["name"]: p for p in shown["parts"] if p["part"] == "parameter" and p["rank"] == 0 or p["name"] == "wte"}
for line in open(sys.argv[1]):
    head, _, bits = line.partition(" :")
    name, dtype, shape = head.split(" ")
    if dtype == "F32" and bytes.fromhex(name) == b"wte":
        values = [struct.unpack("<f", struct.pack("<I", int(b, 16)))[0] for b in bits.split()]
        norm = math.sqrt(sum(v * v for v in values))
        assert abs(params["wte"]["norm"] - norm) < 1e-5 * norm, (params["wte"], norm)
        assert params["wte"]["shape"] == [24, 16] and params["wte"]["dtype"] == "f32"
' "$work/values" || complain "the JSON is not as expected"

# Damage.
cp -r "$work/run" "$work/bad"
bad=$work/bad/save-000001-step-3
printf X | dd of="$bad/state-00002-of-00003.tally" bs=1 seek=200 conv=notrunc 2>/dev/null
fails 'state-00002-of-00003.tally.* is damaged' "$tally" checkpoint "$work/bad"
grep -A 1 '^ddp .*rank 1$' "$work/out" | grep -q '^ *DAMAGED: ' || complain "the damaged part is not marked"
grep -q '^DAMAGED: 1 part$' "$work/out" || complain "the damaged parts are not counted"
fails 'is damaged' "$tally" checkpoint "$work/bad" --json
grep -q '"whole": false}$' "$work/out" || complain "the JSON says that it is whole"
rm "$bad/state-00002-of-00003.tally"
fails 'no complete checkpoint: save-000001-step-3: its file state-00002-of-00003.tally' "$tally" checkpoint "$work/bad"
fails 'not a complete checkpoint' "$tally" checkpoint "$bad"
cp -r "$saved" "$work/bad/save-000000-step-2"
accepts '^not complete, and newer: save-000001-step-3: its file state-00002' "$tally" checkpoint "$work/bad"
accepts '^also here, see --name: save-000001-step-3$' "$tally" checkpoint "$work/bad"
fails 'has no checkpoint' "$tally" checkpoint "$work/nothing"
rejects 'expected a directory' "$tally" checkpoint
rejects "'more'" "$tally" checkpoint "$work/run" more
exit $((failures > 0))
