/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzing of saved states. One thread. */
#include "fuzz/blob_fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "fuzz/blob_changes.h"
#include "fuzz/fuzz.h"
#include "support/counting_memory.h"
#include "tally.h"

static void save(const struct blob_subject *subject, void *model, struct blob_tried *blob)
{
    blob->bytes = sizeof blob->room;
    subject->save(model, blob->room, &blob->bytes);
}

static bool is_same(const struct blob_tried *a, const struct blob_tried *b)
{
    return a->bytes == b->bytes && memcmp(a->room, b->room, a->bytes) == 0;
}

/* In blocks of their sizes, the second one unaligned, so that a sanitizer sees wrong reads. */
static int try(const struct blob_subject *subject, void *model, const struct blob_tried *other,
               const struct blob_tried *tried)
{
    unsigned char *first = malloc(other ? other->bytes : 1);
    unsigned char *second = malloc(tried->bytes + 1);
    const void *const blobs[] = {other ? first : second + 1, second + 1};
    const size_t bytes[] = {other ? other->bytes : tried->bytes, tried->bytes};
    int rc;

    FUZZ_CHECK(first && second);
    if (other) {
        memcpy(first, other->room, other->bytes);
    }
    memcpy(second + 1, tried->room, tried->bytes);
    rc = subject->load(model, blobs, bytes, other ? 2 : 1);
    free(first);
    free(second);
    return rc;
}

static void check_refused(const struct blob_subject *subject, const struct blob_tried *before,
                          int rc)
{
    static struct blob_tried after;
    const char *text = tally_last_error();

    FUZZ_CHECK(rc == TALLY_ARG);
    FUZZ_CHECK(text[0] != '\0' && strlen(text) < TALLY__ERROR_BYTES - 1);
    for (; *text != '\0'; text++) {
        FUZZ_CHECK((unsigned char)*text >= ' ' && *text != '\x7f');
    }
    save(subject, subject->models[0], &after);
    FUZZ_CHECK(is_same(&after, before));
}

static void check_accepted(const struct blob_subject *subject, bool variant)
{
    static struct blob_tried saved;
    static struct blob_tried again;
    void *fresh = subject->models[1];

    save(subject, subject->models[0], &saved);
    subject->start(fresh, variant);
    FUZZ_CHECK(try(subject, fresh, NULL, &saved) == TALLY_OK);
    save(subject, fresh, &again);
    FUZZ_CHECK(is_same(&again, &saved));
    subject->end(fresh);
    subject->go_on(subject->models[0], variant);
}

int blob_fuzz(const struct blob_subject *subject, const uint8_t *data, size_t n)
{
    static struct blob_tried before;
    static struct blob_tried tried;
    static struct blob_tried other;
    unsigned flags = n > 0 ? data[0] : 0;
    bool variant = flags & BLOB_VARIANT;
    size_t live = counting_memory_live();
    void *model = subject->models[0];
    int rc;

    subject->start(model, variant);
    subject->run(model);
    save(subject, model, &before);
    tried = before;
    blob_make(&tried, n > 0 ? data + 1 : data, n > 0 ? n - 1 : 0, flags);
    other = before;
    blob_seal(&other, 0, 2);
    rc = try(subject, model, flags & BLOB_OTHERS ? &other : NULL, &tried);
    if (rc == TALLY_OK) {
        check_accepted(subject, variant);
    } else {
        check_refused(subject, &before, rc);
    }
    subject->end(model);
    FUZZ_CHECK(counting_memory_live() == live);
    return 0;
}
