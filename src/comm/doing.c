/* SPDX-License-Identifier: Apache-2.0 */
/* Describes in words what ranks are doing. The record travels with a rank's line (shared_layout.h).
 */
#include "comm/doing.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "comm/round.h"

#define SAME_STEPS ": all ranks must take the same number of steps; see config.join"
#define SAME_PLACE ": all ranks must make this call between the same two steps"
#define SAME_CALLS ": all ranks must make the same calls in the same order"

/* ---- saying it ---- */

static void copy_name(const char *from, char *to, size_t bytes)
{
    size_t n = strnlen(from, bytes - 1);

    memcpy(to, from, n);
    to[n] = '\0';
}

void tally__doing_call(tally_lane *lane, const char *call, uint64_t n_steps)
{
    lane->doing = (struct tally__doing){.what = TALLY__DOING_CALL, .step = n_steps};
    copy_name(call, lane->doing.name, sizeof lane->doing.name);
}

void tally__doing_step(tally_lane *lane, const struct tally__step_words *words)
{
    struct tally__doing *doing = &lane->doing;

    doing->what = words->bucket < 0 ? TALLY__DOING_STEP_END : TALLY__DOING_BUCKET;
    doing->has_more = words->has_more;
    doing->bucket = words->bucket;
    doing->step = words->step;
    copy_name(words->name, doing->name, sizeof doing->name);
    copy_name(words->hook, doing->hook, sizeof doing->hook);
}

/* ---- in words ---- */

static const char *kind_text(unsigned kind)
{
    static const char *const texts[] = {
#define KIND_TEXT(name, text) text,
        TALLY__KIND_LIST(KIND_TEXT)
#undef KIND_TEXT
    };

    return kind < sizeof texts / sizeof texts[0] ? texts[kind] : "unknown call";
}

/* One call in words: "all-reduce of 1000 f32 (sum)". */
static void describe_call(const tally_group *group, const struct tally__call *call, char *text,
                          size_t bytes)
{
    static const char *const dtypes[] = {"f32", "f64", "f16", "bf16", "i32", "i64", "u8"};
    static const char *const ops[] = {"sum", "mean", "min", "max"};
    const char *name = kind_text(call->kind);
    unsigned long long count = call->count;

    switch (call->kind) {
    case TALLY__KIND_ALL_REDUCE:
    case TALLY__KIND_REDUCE_SCATTER:
        (void)snprintf(text, bytes, "%s of %llu %s (%s)", name, count, dtypes[call->dtype % 7],
                       ops[call->op % 4]);
        break;
    case TALLY__KIND_BROADCAST:
        (void)snprintf(text, bytes, "%s of %llu bytes from rank %d", name, count,
                       call->root >= 0 && call->root < group->size
                           ? tally__number_of(group, call->root)
                           : (int)call->root);
        break;
    case TALLY__KIND_ALL_GATHER:
        /* The total may be the same where the sizes are not. */
        (void)snprintf(text, bytes, "%s of %llu bytes (sizes %08llx)", name, count,
                       (unsigned long long)call->detail & 0xffffffff);
        break;
    case TALLY__KIND_ALL_TO_ALL:
    case TALLY__KIND_ALLOC:
        (void)snprintf(text, bytes, "%s of %llu bytes", name, count);
        break;
    case TALLY__KIND_OPEN:
        (void)snprintf(text, bytes, "%s with %llu lanes", name, count);
        break;
    case TALLY__KIND_EXCHANGE:
        (void)snprintf(text, bytes, "%s of %llu elements", name, count);
        break;
    default:
        (void)snprintf(text, bytes, "%s", name);
    }
}

static void describe_place(const tally_group *group, const struct tally__doing *doing,
                           const struct tally__call *call, char *text)
{
    unsigned long long step = doing->step;

    switch (doing->what) {
    case TALLY__DOING_CALL:
        (void)snprintf(text, TALLY__DOING_BYTES, "%.*s after %llu step%s",
                       (int)sizeof doing->name - 1, doing->name, step, step == 1 ? "" : "s");
        break;
    case TALLY__DOING_BUCKET:
        (void)snprintf(text, TALLY__DOING_BYTES, "step %llu (bucket %d: '%.*s'%s)", step,
                       (int)doing->bucket, (int)sizeof doing->name - 1, doing->name,
                       doing->has_more ? ", ..." : "");
        break;
    case TALLY__DOING_STEP_END:
        (void)snprintf(text, TALLY__DOING_BYTES, "the end of step %llu", step);
        break;
    default:
        describe_call(group, call, text, TALLY__DOING_BYTES);
    }
}

static const tally_lane *host_of(const tally_lane *lane)
{
    return lane->host ? lane->host : lane;
}

void tally__describe_doing(const tally_lane *lane, char *text)
{
    describe_place(lane->group, &host_of(lane)->doing, tally__said(lane, lane->group->rank), text);
}

bool tally__is_attributed(const char *text)
{
    size_t n_digits;

    if (strncmp(text, "rank ", 5) != 0) {
        return strncmp(text, "among ranks ", 12) == 0;
    }
    n_digits = strspn(text + 5, "0123456789");
    return n_digits > 0 && (text[5 + n_digits] == ':' || text[5 + n_digits] == ',');
}

/* ---- giving up ---- */

static bool is_step(const struct tally__doing *doing)
{
    return doing->what == TALLY__DOING_BUCKET || doing->what == TALLY__DOING_STEP_END;
}

/* Whether one rank is in a call right before the step that the other rank is in. */
static bool is_right_before(const struct tally__doing *call, const struct tally__doing *step)
{
    return call->what == TALLY__DOING_CALL && is_step(step) && call->step + 1 == step->step;
}

/* Advice: the change that the application probably needs. */
static const char *hint(const struct tally__doing *one, const struct tally__doing *other)
{
    if (is_right_before(one, other) || is_right_before(other, one)) {
        return SAME_PLACE;
    }
    if (is_step(one) && is_step(other)) {
        return one->step != other->step ? SAME_STEPS : "";
    }
    return is_step(one) || is_step(other) ? SAME_STEPS : SAME_CALLS;
}

/* Two ranks in the same place: the difference is in the hook, or in what it does. */
static int give_up_inside(tally_lane *lane, int rank, const char *place)
{
    tally_group *group = lane->group;
    const struct tally__doing *first = tally__doing_of(lane, 0);
    const struct tally__doing *other = tally__doing_of(lane, rank);
    char one[128];
    char two[128];

    describe_call(group, tally__said(lane, 0), one, sizeof one);
    describe_call(group, tally__said(lane, rank), two, sizeof two);
    if (is_step(first) && strcmp(one, two) == 0) {
        return tally__give_up(group, TALLY_MISMATCH,
                              "ranks disagree in %s: hook '%.*s' of rank %d encodes otherwise than "
                              "hook '%.*s' of rank %d",
                              place, (int)sizeof first->hook - 1, first->hook,
                              tally__number_of(group, 0), (int)sizeof other->hook - 1, other->hook,
                              tally__number_of(group, rank));
    }
    return tally__give_up(group, TALLY_MISMATCH,
                          "ranks disagree in %s: rank %d calls %s, rank %d calls %s", place,
                          tally__number_of(group, 0), one, tally__number_of(group, rank), two);
}

int tally__give_up_mismatch(tally_lane *lane, int rank)
{
    tally_group *group = lane->group;
    const struct tally__doing *first = tally__doing_of(lane, 0);
    const struct tally__doing *other = tally__doing_of(lane, rank);
    char one[TALLY__DOING_BYTES];
    char two[TALLY__DOING_BYTES];

    describe_place(group, first, tally__said(lane, 0), one);
    describe_place(group, other, tally__said(lane, rank), two);
    if (first->what != TALLY__DOING_NOTHING && strcmp(one, two) == 0) {
        return give_up_inside(lane, rank, one);
    }
    return tally__give_up(
        group, TALLY_MISMATCH, "ranks disagree: rank %d is in %s, rank %d is in %s%s",
        tally__number_of(group, 0), one, tally__number_of(group, rank), two, hint(first, other));
}

int tally__give_up_closed(tally_lane *lane, int rank)
{
    tally_group *group = lane->group;
    const struct tally__slot *slot = group->lanes[0].slots[rank];
    char place[TALLY__DOING_BYTES];

    tally__describe_doing(lane, place);
    if (slot->given_up_text[0] == '\0') {
        return tally__give_up(
            group, TALLY_PEER, "rank %d closed its group while rank %d waits in %s",
            tally__number_of(group, rank), tally__number_of(group, group->rank), place);
    }
    return tally__give_up(group, TALLY_MISMATCH, "rank %d %.*s while rank %d waits in %s%s",
                          tally__number_of(group, rank), 127, slot->given_up_text,
                          tally__number_of(group, group->rank), place,
                          is_step(&host_of(lane)->doing) ? SAME_STEPS : SAME_CALLS);
}
