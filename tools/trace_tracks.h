/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of a rank as spans on tracks, one per thread. On a track, spans nest: the phases of a
 * bucket follow each other inside the bucket. Steps of a ddp are on a track of their ddp, since
 * steps of several ddps overlap.
 */
#ifndef TALLY_TOOLS_TRACE_TRACKS_H
#define TALLY_TOOLS_TRACE_TRACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace_format.h"

/* Events of one bucket that are put next to each other: the bucket, its phases, its update. */
#define TRACK_HELD_MAX 16

struct track {
    uint64_t thread; /* the kernel's number; for the steps of a ddp, TRACK_OF_STEPS + its number */
    char name[48];
    uint64_t n_lost; /* events that nobody has written down */
    struct tally__trace_event held[TRACK_HELD_MAX];
    size_t n_held;
};

#define TRACK_OF_STEPS UINT64_C(1000000000)

/* Called with spans in the order of their begins, a span before those inside it. */
typedef void track_user(void *user, const struct track *track,
                        const struct tally__trace_event *spans, size_t n);

struct tracks {
    struct track *all;
    size_t n;
    track_user *use;
    void *user;
    struct tally__trace_event *spans; /* room to arrange them in */
    size_t spans_room;
    bool failed; /* no memory was left */
};

/* Takes the next events of a thread. */
void tracks_add(struct tracks *tracks, const struct tally__trace_thread *thread,
                const struct tally__trace_event *events, size_t n);

/* After the last events of the rank: gives out what was held back, and frees everything. */
void tracks_end(struct tracks *tracks);

/* Whether the kind is a phase of a bucket. */
bool track_is_phase(uint8_t kind);

/* Whether the kind has no length. */
bool track_is_instant(uint8_t kind);

#endif
