/* SPDX-License-Identifier: Apache-2.0 */
/* Making and writing a profile; see profile.h. profile_read.c reads it. No state; any thread. */
#include "tune/profile.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/sheet.h"
#include "base/status.h"
#include "base/text.h"

int tally__profile_make(size_t n_buckets, size_t n_hooks, struct tally__profile *profile)
{
    *profile = (struct tally__profile){.n_buckets = n_buckets, .n_hooks = n_hooks};
    profile->buckets = tally__alloc_array(n_buckets, sizeof *profile->buckets, "a profile");
    profile->hooks = tally__alloc_array(n_hooks, sizeof *profile->hooks, "a profile");
    for (size_t h = 0; profile->buckets && profile->hooks && h < n_hooks; h++) {
        struct tally__coding *coding = tally__alloc_array(n_buckets, sizeof *coding, "a profile");

        if (!coding) {
            tally__profile_free(profile);
            return TALLY_NOMEM;
        }
        profile->hooks[h].coding = coding;
    }
    if (!profile->buckets || !profile->hooks) {
        tally__profile_free(profile);
        return TALLY_NOMEM;
    }
    return TALLY_OK;
}

void tally__profile_free(struct tally__profile *profile)
{
    for (size_t h = 0; profile->hooks && h < profile->n_hooks; h++) {
        tally__free(profile->hooks[h].coding);
    }
    tally__free(profile->hooks);
    tally__free(profile->buckets);
    *profile = (struct tally__profile){.n_buckets = 0};
}

const struct tally__profile_hook *tally__profile_hook(const struct tally__profile *profile,
                                                      const char *name)
{
    for (size_t h = 0; h < profile->n_hooks; h++) {
        if (strcmp(profile->hooks[h].name, name) == 0) {
            return &profile->hooks[h];
        }
    }
    return NULL;
}

/* ---- writing ---- */

/* Numbers are read back to the same bits, in every locale. */
static void put_real(struct tally__sheet *sheet, double value)
{
    static const struct tally__option real = {.type = TALLY__OPTION_REAL};
    char text[TALLY__MAX_OPTION_VALUE];

    tally__option_write(&real, value, text);
    tally__sheet_put(sheet, "%s", text);
}

static void put_member(struct tally__sheet *sheet, const char *before, const char *key,
                       double value)
{
    tally__sheet_put(sheet, "%s\"%s\": ", before, key);
    put_real(sheet, value);
}

static void put_link(struct tally__sheet *sheet, const char *key, const struct tally__link *link)
{
    tally__sheet_put(sheet, ",\n  \"%s\": ", key);
    put_member(sheet, "{", "latency_s", link->latency_s);
    put_member(sheet, ", ", "message_s", link->message_s);
    put_member(sheet, ", ", "gbit", link->gbit);
    tally__sheet_put(sheet, "}");
}

static void put_hook(struct tally__sheet *sheet, const struct tally__profile *profile,
                     const struct tally__profile_hook *hook)
{
    tally__sheet_put(sheet, "    {\"name\": \"%s\"", hook->name);
    put_member(sheet, ", ", "exchanges", hook->exchanges);
    put_member(sheet, ", ", "error", hook->error);
    tally__sheet_put(sheet, ", \"coding\": [");
    for (size_t b = 0; b < profile->n_buckets; b++) {
        put_member(sheet, b > 0 ? ",\n      {" : "\n      {", "bytes", hook->coding[b].bytes);
        put_member(sheet, ", ", "code_s", hook->coding[b].code_s);
        tally__sheet_put(sheet, "}");
    }
    tally__sheet_put(sheet, "]}");
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the sheet writes to text. */
size_t tally__profile_write(const struct tally__profile *profile, char *text, size_t room)
{
    static const char new_line[] = ",\n  ";
    struct tally__sheet sheet = {text, room, 0};

    tally__sheet_put(&sheet,
                     "{\n  \"tally_profile\": %d,\n  \"library\": \"%s\",\n  \"source\": \"%s\"",
                     TALLY__PROFILE_VERSION, profile->library, profile->source);
    put_member(&sheet, new_line, "hosts", profile->hosts);
    put_member(&sheet, new_line, "ranks_per_host", profile->ranks_per_host);
    put_member(&sheet, new_line, "lanes", profile->lanes);
    put_member(&sheet, new_line, "forward_s", profile->forward_s);
    put_member(&sheet, new_line, "backward_s", profile->backward_s);
    put_member(&sheet, new_line, "spread_s", profile->spread_s);
    put_member(&sheet, new_line, "cpu_share", profile->cpu_share);
    put_member(&sheet, new_line, "cpu_s_per_byte", profile->cpu_s_per_byte);
    put_link(&sheet, "link", &profile->link);
    put_link(&sheet, "memory", &profile->memory);
    tally__sheet_put(&sheet, ",\n  \"n_buckets\": %zu,\n  \"buckets\": [", profile->n_buckets);
    for (size_t b = 0; b < profile->n_buckets; b++) {
        put_member(&sheet, b > 0 ? ",\n    {" : "\n    {", "bytes", profile->buckets[b].bytes);
        put_member(&sheet, ", ", "ready_s", profile->buckets[b].ready_s);
        tally__sheet_put(&sheet, "}");
    }
    tally__sheet_put(&sheet, "],\n  \"n_hooks\": %zu,\n  \"hooks\": [\n", profile->n_hooks);
    for (size_t h = 0; h < profile->n_hooks; h++) {
        tally__sheet_put(&sheet, "%s", h > 0 ? ",\n" : "");
        put_hook(&sheet, profile, &profile->hooks[h]);
    }
    tally__sheet_put(&sheet, "]\n}\n");
    return sheet.n;
}
