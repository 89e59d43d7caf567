/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes in words what ranks are doing, and gives groups up with such texts. The record of what
 * a rank is doing travels in its line (shared_layout.h).
 */
#include "comm/doing.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/sheet.h"
#include "base/status.h"
#include "comm/ending.h"
#include "comm/messages.h"
#include "comm/round.h"
#include "comm/wait.h"
#include "num/reduce.h"

#define SAME_STEPS ": all ranks must take the same number of steps; see config.join"
#define SAME_POINT ": all ranks must make this call between the same two steps"
#define SAME_CALLS ": all ranks must make the same calls in the same order"

/* ---- recording ---- */

static void copy_name(const char *from, char *to, size_t bytes)
{
    size_t n = strnlen(from, bytes - 1);

    memcpy(to, from, n);
    to[n] = '\0';
}

void tally__doing_call(tally_lane *lane, const char *call, uint64_t n_steps)
{
    lane->job.doing = (struct tally__doing){.what = TALLY__DOING_CALL, .step = n_steps};
    copy_name(call, lane->job.doing.name, sizeof lane->job.doing.name);
}

void tally__doing_step(tally_lane *lane, const struct tally__step_words *words)
{
    struct tally__doing *doing = &lane->job.doing;

    doing->what = words->bucket < 0 ? TALLY__DOING_STEP_END : TALLY__DOING_BUCKET;
    doing->has_more = words->has_more;
    doing->bucket = words->bucket;
    doing->step = words->step;
    copy_name(words->name, doing->name, sizeof doing->name);
    copy_name(words->hook, doing->hook, sizeof doing->hook);
}

/* ---- describing ---- */

static const char *kind_text(unsigned kind)
{
    static const char *const texts[] = {
#define KIND_TEXT(name, text) text,
        TALLY__KIND_LIST(KIND_TEXT)
#undef KIND_TEXT
    };

    return kind < sizeof texts / sizeof texts[0] ? texts[kind] : "unknown call";
}

/* Describes one call: "all-reduce of 1000 f32 (sum)". */
static void describe_call(const tally_group *group, const struct tally__call *call, char *text,
                          size_t bytes)
{
    static const char *const ops[] = {"sum", "mean", "min", "max"};
    const char *name = kind_text(call->kind);
    unsigned long long count = call->count;

    switch (call->kind) {
    case TALLY__KIND_ALL_REDUCE:
    case TALLY__KIND_REDUCE_SCATTER:
        (void)snprintf(text, bytes, "%s of %llu %s (%s)", name, count,
                       tally__dtype_name(call->dtype), ops[call->op % 4]);
        break;
    case TALLY__KIND_BROADCAST:
        (void)snprintf(text, bytes, "%s of %llu bytes from %s", name, count,
                       call->root >= 0 && call->root < group->size
                           ? tally__rank_text(group, call->root).text
                           : "no rank");
        break;
    case TALLY__KIND_ALL_GATHER:
        /* The total may be equal where the sizes differ. */
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

static void describe_doing(const tally_group *group, const struct tally__doing *doing,
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
        (void)snprintf(text, TALLY__DOING_BYTES, "the end of step %llu (ddp of '%.*s'%s)", step,
                       (int)sizeof doing->name - 1, doing->name, doing->has_more ? ", ..." : "");
        break;
    default:
        describe_call(group, call, text, TALLY__DOING_BYTES);
    }
}

static const tally_lane *lane_of_job(const tally_lane *lane)
{
    return lane->loan.borrower ? lane->loan.borrower : lane;
}

void tally__describe_doing(const tally_lane *lane, char *text)
{
    describe_doing(lane->group, &lane_of_job(lane)->job.doing, tally__said(lane, lane->group->rank),
                   text);
}

void tally__describe_line(const tally_group *group, const struct tally__line *line, char *text)
{
    describe_doing(group, &line->doing, &line->call, text);
}

/* ---- ranks in messages ---- */

#define OF_SUB_GROUP " of this sub-group)"

/* The group whose rank numbers the application sees. Groups inside a ddp are tally's own, and the
 * ddp's group, which has its own threads, has the ranks of the group that it was created with.
 */
static const tally_group *visible_group(const tally_group *group)
{
    const tally_group *visible = group;

    while (visible && !visible->owns_threads) {
        visible = visible->parent;
    }
    return visible ? visible : group;
}

struct tally__rank_text tally__rank_text(const tally_group *group, int rank)
{
    const tally_group *visible = visible_group(group);
    int number = tally__number_of(group, rank);
    int r = 0;
    struct tally__rank_text name;

    while (r < visible->size && tally__number_of(visible, r) != number) {
        r++;
    }
    if (r == number || r == visible->size) {
        (void)snprintf(name.text, sizeof name.text, "rank %d", number);
    } else {
        (void)snprintf(name.text, sizeof name.text, "rank %d (%d" OF_SUB_GROUP, number, r);
    }
    return name;
}

void tally__rank_list_add(struct tally__rank_list *list, const tally_group *group, int rank)
{
    int number = tally__number_of(group, rank);

    list->n++;
    if (list->n == 1) {
        list->first = number;
        memcpy(list->text, tally__rank_text(group, rank).text, sizeof(struct tally__rank_text));
    } else if (list->n == 2) {
        (void)snprintf(list->text, sizeof list->text, "ranks %d, %d", list->first, number);
    } else {
        tally__list_add(list->text, sizeof list->text, "%d", number);
    }
}

/* The length of " (2 of this sub-group)" at the start of text, or 0. */
static size_t sub_group_length(const char *text)
{
    size_t n_digits = strncmp(text, " (", 2) == 0 ? strspn(text + 2, "0123456789") : 0;
    size_t n = strlen(OF_SUB_GROUP);

    return n_digits > 0 && strncmp(text + 2 + n_digits, OF_SUB_GROUP, n) == 0 ? 2 + n_digits + n
                                                                              : 0;
}

size_t tally__culprit_length(const char *text)
{
    size_t n_digits;
    size_t n;

    if (strncmp(text, "rank ", 5) != 0) {
        return strncmp(text, "among rank", 10) == 0 ? strcspn(text, ":") : 0;
    }
    n_digits = strspn(text + 5, "0123456789");
    n = 5 + n_digits + sub_group_length(text + 5 + n_digits);
    return n_digits > 0 && (text[n] == ':' || text[n] == ',') ? n : 0;
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
        return SAME_POINT;
    }
    if (is_step(one) && is_step(other)) {
        return one->step != other->step ? SAME_STEPS : "";
    }
    return is_step(one) || is_step(other) ? SAME_STEPS : SAME_CALLS;
}

/* Both ranks are in the same step or call: the difference is in the hook, or in its calls. */
static int give_up_inside(tally_lane *lane, int rank, const char *doing)
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
                              "ranks disagree in %s: hook '%.*s' of %s encodes otherwise than "
                              "hook '%.*s' of %s",
                              doing, (int)sizeof first->hook - 1, first->hook,
                              tally__rank_text(group, 0).text, (int)sizeof other->hook - 1,
                              other->hook, tally__rank_text(group, rank).text);
    }
    return tally__give_up(group, TALLY_MISMATCH, "ranks disagree in %s: %s calls %s, %s calls %s",
                          doing, tally__rank_text(group, 0).text, one,
                          tally__rank_text(group, rank).text, two);
}

int tally__give_up_mismatch(tally_lane *lane, int rank)
{
    tally_group *group = lane->group;
    const struct tally__doing *first = tally__doing_of(lane, 0);
    const struct tally__doing *other = tally__doing_of(lane, rank);
    char one[TALLY__DOING_BYTES];
    char two[TALLY__DOING_BYTES];

    describe_doing(group, first, tally__said(lane, 0), one);
    describe_doing(group, other, tally__said(lane, rank), two);
    if (first->what != TALLY__DOING_NOTHING && strcmp(one, two) == 0) {
        return give_up_inside(lane, rank, one);
    }
    return tally__give_up(group, TALLY_MISMATCH, "ranks disagree: %s is in %s, %s is in %s%s",
                          tally__rank_text(group, 0).text, one, tally__rank_text(group, rank).text,
                          two, hint(first, other));
}

/* rank has closed the group in good order, and this rank waits for it. */
static int give_up_closed(tally_lane *lane, int rank)
{
    tally_group *group = lane->group;
    const struct tally__slot *slot = group->lanes[0].slots[rank];
    char doing[TALLY__DOING_BYTES];

    tally__describe_doing(lane, doing);
    if (slot->given_up_text[0] == '\0') {
        return tally__give_up(group, TALLY_PEER, "%s closed its group while %s waits in %s",
                              tally__rank_text(group, rank).text,
                              tally__rank_text(group, group->rank).text, doing);
    }
    return tally__give_up(group, TALLY_MISMATCH, "%s %.*s while %s waits in %s%s",
                          tally__rank_text(group, rank).text, 127, slot->given_up_text,
                          tally__rank_text(group, group->rank).text, doing,
                          is_step(&lane_of_job(lane)->job.doing) ? SAME_STEPS : SAME_CALLS);
}

/* Advice for a late rank: ranks of a group with several ddps may wait for each other in two of
 * them. */
static const char *order_hint(const tally_lane *lane)
{
    const tally_lane *runner = lane->loan.borrower ? lane->loan.borrower : lane;

    return tally__has_siblings(runner->group)
               ? " (if ranks wait for their ddps in different orders, see tally_ddp_create)"
               : "";
}

/* The ranks that a wait for rank (-1: for several ranks) was for. */
static void list_missing(const tally_lane *lane, int rank, struct tally__rank_list *list)
{
    const tally_group *group = lane->group;

    for (int r = 0; r < group->size; r++) {
        if (r != group->rank && (r == rank || !tally__has_arrived(lane, r))) {
            tally__rank_list_add(list, group, r);
        }
    }
    /* All have arrived, and one of them does not receive this rank's messages. */
    for (int r = 0; list->n == 0 && r < group->size; r++) {
        if (!tally__is_near(group, r)) {
            tally__rank_list_add(list, group, r);
        }
    }
}

/* Gives up the lane's group for a lost rank; and, if the lane is borrowed, also the group of the
 * job, if it has that rank too: it would only wait for the same rank until another deadline. */
static int give_up_lost(tally_lane *lane, int rank, int status, const char *text)
{
    tally_group *around = lane->loan.borrower ? lane->loan.borrower->group : NULL;

    for (int h = 0; around && h < around->size; h++) {
        if (tally__number_of(around, h) == tally__number_of(lane->group, rank)) {
            (void)tally__give_up(around, status, "%s", text);
        }
    }
    return tally__give_up(lane->group, status, "%s", text);
}

int tally__give_up_late(tally_lane *lane, int rank, const struct tally__late *late)
{
    tally_group *group = lane->group;
    const struct tally__rank_text own = tally__rank_text(group, group->rank);
    struct tally__rank_list missing = {0};
    char doing[TALLY__DOING_BYTES];
    char text[TALLY__TEXT_BYTES];

    tally__describe_doing(lane, doing);
    switch (late->why) {
    case TALLY__LATE_DIED:
        (void)snprintf(text, sizeof text, "%s %s; %s waited for it in %s",
                       tally__rank_text(group, late->who).text,
                       tally__ending_text(group, late->who), own.text, doing);
        return give_up_lost(lane, late->who, TALLY_PEER, text);
    case TALLY__LATE_CLOSED:
        return give_up_closed(lane, late->who);
    case TALLY__LATE_GIVEN_UP:
        return tally__give_up(group, late->said->given_up_status, "%.*s", TALLY__TEXT_BYTES - 1,
                              late->said->given_up_text);
    case TALLY__LATE_HOST_FAILED: {
        const struct tally__slot *slot = lane->loan.borrower->slots[late->who];
        uint64_t next = lane->loan.borrower->round.number + 1;
        const char *said = slot->text[next % 2];

        if (tally__culprit_length(said) > 0) {
            return tally__give_up(group, slot->line[next % 2].call.status, "%.*s",
                                  TALLY__TEXT_BYTES - 1, said);
        }
        return tally__give_up(group, slot->line[next % 2].call.status, "%s: %.*s",
                              tally__rank_text(lane->loan.borrower->group, late->who).text,
                              TALLY__TEXT_BYTES - 64, said);
    }
    case TALLY__LATE_BROKEN:
        return tally__give_up(group, TALLY_SYSTEM, "%s; in %s", tally_last_error(), doing);
    default:
        list_missing(lane, rank, &missing);
        (void)snprintf(text, sizeof text, "%s did not arrive within %g s; %s waited for %s in %s%s",
                       missing.text, (double)group->timeout_ns / (double)TALLY__NS_PER_SECOND,
                       own.text, missing.n > 1 ? "them" : "it", doing, order_hint(lane));
        return give_up_lost(lane, rank < 0 ? group->rank : rank, TALLY_TIMEOUT, text);
    }
}
