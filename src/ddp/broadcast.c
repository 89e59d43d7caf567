/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcasting many arrays; see broadcast.h. Inside jobs. Keeps no state. */
#include "ddp/broadcast.h"

#include <stdbool.h>

#include "base/status.h"
#include "num/num.h"

/* From here on an array travels by itself. */
#define LARGE_BYTES (TALLY__TOGETHER_BYTES / 4)

/* Copies arrays first to end into the stage, or out of it */
static void move(const struct tally__arrays *arrays, size_t first, size_t end, bool into)
{
    size_t used = 0;

    for (size_t i = first; i < end; i++) {
        struct tally__array array = arrays->get(arrays->of, i);
        unsigned char *staged = arrays->stage + used;

        tally__copy(array.bytes, into ? array.data : staged, into ? staged : array.data);
        used += array.bytes;
    }
}

/* The end of the run of small arrays that begins with array first and fits in the stage. */
static size_t end_of_run(const struct tally__arrays *arrays, size_t first, size_t *bytes)
{
    size_t i = first;

    for (*bytes = 0; i < arrays->n; i++) {
        size_t more = arrays->get(arrays->of, i).bytes;

        if (more >= LARGE_BYTES || more > TALLY__TOGETHER_BYTES - *bytes) {
            break;
        }
        *bytes += more;
    }
    return i;
}

int tally__broadcast(tally_lane *lane, const struct tally__arrays *arrays, int root)
{
    bool is_root = tally_group_rank(tally_lane_group(lane)) == root;

    for (size_t i = 0; i < arrays->n;) {
        struct tally__array array = arrays->get(arrays->of, i);
        size_t bytes;
        size_t end = end_of_run(arrays, i, &bytes);

        if (end <= i + 1) {
            if (array.bytes > 0) {
                TRY(tally_lane_broadcast(lane, array.data, array.bytes, root));
            }
            i++;
            continue;
        }
        if (is_root) {
            move(arrays, i, end, true);
        }
        if (bytes > 0) {
            TRY(tally_lane_broadcast(lane, arrays->stage, bytes, root));
        }
        if (!is_root) {
            move(arrays, i, end, false);
        }
        i = end;
    }
    return TALLY_OK;
}
