/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan files of the hook auto: the hook of each parameter, one line each, in the order of the
 * parameters, so that a run can repeat the choices of another.
 *
 *     tally plan 1
 *     model 5f0c2a91d3b4e687 of 2 parameters
 *     cap 1048576
 *     allreduce layer 0 bias
 *     int8 layer 0 weight
 *
 * The line with the bucket cap is there if auto has changed it. The names are for the reader; the
 * number identifies names and sizes of all parameters. Reading is strict. Application threads
 * enter, and lane 0 for writing.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sheet.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/agree.h"
#include "hook/auto.h"
#include "state/files.h"

#define WHAT "a plan"
#define FIRST_LINE "tally plan 1"
/* A file beyond this size is not a plan. */
#define MOST_BYTES ((size_t)64 << 20)
#define MOST_LINE 400

/* Identifies the model: names and lengths of all parameters, in their order. */
static uint64_t model_digest(tally_ddp *ddp)
{
    uint64_t model = 0;

    for (size_t i = 0; i < tally_ddp_n_params(ddp); i++) {
        const char *name = tally_ddp_param_name(ddp, (int)i);
        uint64_t count = tally_ddp_param_count(ddp, (int)i);

        model = tally__checksum(model, name, strlen(name));
        model = tally__checksum(model, &count, sizeof count);
    }
    return model;
}

/* ---- writing ---- */

/* A name on one line. */
static void put_name(struct tally__sheet *sheet, const char *name)
{
    char shown[81];
    size_t i;

    for (i = 0; i + 1 < sizeof shown && name[i] != '\0'; i++) {
        shown[i] = name[i];
        if (name[i] < ' ' || name[i] > '~') {
            shown[i] = '?';
        }
    }
    shown[i] = '\0';
    tally__sheet_put(sheet, "%s\n", shown);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the sheet writes to text. */
size_t tally__plan_write(const struct tally__auto *self, char *text, size_t room)
{
    struct tally__sheet sheet = {text, room, 0};

    tally__sheet_put(&sheet, FIRST_LINE "\nmodel %016llx of %zu parameters\n",
                     (unsigned long long)model_digest(self->ddp), self->n_params);
    if (self->laid_cap > 0) {
        tally__sheet_put(&sheet, "cap %zu\n", self->laid_cap);
    }
    for (size_t i = 0; i < self->n_params; i++) {
        tally__sheet_put(&sheet, "%s ", self->candidates[self->settled[i]]->table.name);
        put_name(&sheet, tally_ddp_param_name(self->ddp, (int)i));
    }
    return sheet.n;
}

/* Creates a file beside it, which is renamed when it is complete: a reader sees the old file or the
 * new one. The caller closes it, also after an error. */
static int create_beside(const char *path, struct tally__path *beside, struct tally__file_out *out)
{
    *out = (struct tally__file_out){.fd = -1};
    if ((size_t)snprintf(beside->text, sizeof beside->text, "%s.new", path) >=
        sizeof beside->text) {
        return tally__fail(TALLY_ARG, "the path of a plan is too long");
    }
    (void)remove(beside->text);
    return tally__file_create(beside->text, false, out);
}

static int write_file(const char *path, const char *text, size_t n)
{
    struct tally__path beside;
    struct tally__file_out out;
    int rc = create_beside(path, &beside, &out);

    if (rc == TALLY_OK) {
        rc = tally__file_put(&out, text, n);
    }
    if (rc == TALLY_OK) {
        rc = tally__file_start(&out);
    }
    if (rc == TALLY_OK) {
        rc = tally__file_sync(&out);
    }
    tally__file_close(&out);
    return rc == TALLY_OK ? tally__rename(beside.text, path) : rc;
}

static size_t write_profile(const struct tally__auto *self, char *text, size_t room)
{
    return tally__profile_write(&self->profile, text, room);
}

static void write_text(const struct tally__auto *self, const char *path,
                       size_t (*write)(const struct tally__auto *self, char *text, size_t room))
{
    size_t bytes = write(self, NULL, 0) + 1;
    char *text = tally__alloc(bytes, WHAT);
    int rc = text ? TALLY_OK : TALLY_NOMEM;

    if (rc == TALLY_OK) {
        (void)write(self, text, bytes);
        rc = write_file(path, text, bytes - 1);
    }
    if (rc != TALLY_OK) {
        tally__log(TALLY_LOG_WARN, "auto: %s was not written: %s", path, tally_last_error());
    }
    tally__free(text);
}

void tally__auto_write_files(const struct tally__auto *self)
{
    if (self->rank != 0) {
        return;
    }
    if (self->plan_path && self->phase != TALLY__AUTO_FIXED) {
        write_text(self, self->plan_path, tally__plan_write);
    }
    if (self->profile_path && self->has_profile) {
        write_text(self, self->profile_path, write_profile);
    }
}

/* ---- reading ---- */

struct lines {
    const char *name; /* of the file */
    const char *text;
    size_t n;
    size_t at;
    size_t number; /* of the line read last */
};

/* The next line, without its end; false: the text has ended, or the line is not one of a plan. */
static bool next_line(struct lines *lines, char line[MOST_LINE + 1])
{
    const char *from = lines->text + lines->at;
    size_t left = lines->n - lines->at;
    const char *end = left > 0 ? memchr(from, '\n', left) : NULL;
    size_t length = end ? (size_t)(end - from) : 0;

    lines->number++;
    if (!end || length > MOST_LINE || memchr(from, '\0', length)) {
        return false;
    }
    memcpy(line, from, length);
    line[length] = '\0';
    lines->at += length + 1;
    return true;
}

static int refuse(const struct lines *lines, const char *expected)
{
    return tally__fail(TALLY_ARG, "plan %s, line %zu: expected %s", lines->name, lines->number,
                       expected);
}

static struct tally__list names_of(const struct tally__auto *self)
{
    struct tally__list list = {""};

    for (size_t h = 0; h < self->n; h++) {
        tally__list_name(&list, self->candidates[h]->table.name);
    }
    return list;
}

static int read_head(const struct tally__auto *self, tally_ddp *ddp, struct lines *lines)
{
    char line[MOST_LINE + 1];
    char wanted[MOST_LINE + 1];

    if (!next_line(lines, line) || strcmp(line, FIRST_LINE) != 0) {
        return refuse(lines, "'" FIRST_LINE "'");
    }
    (void)snprintf(wanted, sizeof wanted, "model %016llx of %zu parameters",
                   (unsigned long long)model_digest(ddp), self->n_params);
    if (!next_line(lines, line) || strncmp(line, "model ", 6) != 0) {
        return refuse(lines, "'model' and its number");
    }
    if (strcmp(line, wanted) != 0) {
        return tally__fail(TALLY_ARG,
                           "plan %s is of another model: it has '%.80s', this one is '%s'",
                           lines->name, line, wanted);
    }
    return TALLY_OK;
}

/* The line with the cap, if it comes next. */
static int read_cap(struct lines *lines, size_t *cap_bytes)
{
    struct lines at = *lines;
    char line[MOST_LINE + 1];
    unsigned long long value = 0;
    int length = 0;

    *cap_bytes = 0;
    if (!next_line(&at, line) || strncmp(line, "cap ", 4) != 0) {
        return TALLY_OK;
    }
    *lines = at;
    for (const char *digit = line + 4; *digit >= '0' && *digit <= '9' && length < 15; digit++) {
        value = 10 * value + (unsigned long long)(*digit - '0');
        length++;
    }
    if (value == 0 || line[4 + length] != '\0') {
        return refuse(lines, "'cap' and a number of bytes");
    }
    *cap_bytes = (size_t)value;
    return TALLY_OK;
}

static int read_choice(const struct tally__auto *self, struct lines *lines, unsigned char *choice)
{
    char line[MOST_LINE + 1];
    char *blank;

    if (!next_line(lines, line)) {
        return refuse(lines, "a hook and the name of a parameter");
    }
    blank = strchr(line, ' ');
    if (!blank) {
        return refuse(lines, "a hook and the name of a parameter");
    }
    *blank = '\0';
    for (size_t h = 0; h < self->n; h++) {
        if (strcmp(line, self->candidates[h]->table.name) == 0) {
            *choice = (unsigned char)h;
            return TALLY_OK;
        }
    }
    return tally__fail(TALLY_ARG, "plan %s, line %zu: '%.80s' is not among the candidates: %s",
                       lines->name, lines->number, line, names_of(self).text);
}

int tally__plan_read(const struct tally__auto *self, tally_ddp *ddp, const char *text, size_t n,
                     unsigned char *choice, size_t *cap_bytes)
{
    struct lines lines = {.name = self->plan_path, .text = text, .n = n};

    TRY(read_head(self, ddp, &lines));
    TRY(read_cap(&lines, cap_bytes));
    for (size_t i = 0; i < self->n_params; i++) {
        TRY(read_choice(self, &lines, &choice[i]));
    }
    if (lines.at < n) {
        lines.number++;
        return refuse(&lines, "the end of the file");
    }
    return TALLY_OK;
}

/* ---- all ranks ---- */

struct sending {
    struct tally__outcome outcome; /* of this rank so far */
    bool is_there;
    char *text;
    uint64_t n;
};

static int send_job(tally_lane *lane, void *user)
{
    struct sending *sending = user;
    uint64_t head[2] = {sending->is_there, sending->n};

    TRY(tally__agree_status(lane, &sending->outcome));
    TRY(tally_lane_broadcast(lane, head, sizeof head, 0));
    sending->is_there = head[0] != 0;
    sending->n = head[1];
    if (!sending->is_there) {
        return TALLY_OK;
    }
    if (!sending->text) {
        sending->text = tally__alloc((size_t)sending->n + 1, WHAT);
    }
    return sending->text ? tally_lane_broadcast(lane, sending->text, (size_t)sending->n, 0)
                         : TALLY_NOMEM;
}

/* A path that cannot be written is a mistake to be told now, not when the choice is settled. */
static int check_path(const char *path)
{
    struct tally__path beside;
    struct tally__file_out out;
    size_t n = 0;
    int rc;

    errno = 0;
    if (!tally__file_size(path, &n) && errno == EISDIR) {
        return tally__fail(TALLY_ARG, "auto: %s is not a file", path);
    }
    rc = create_beside(path, &beside, &out);
    tally__file_close(&out);
    if (rc == TALLY_OK) {
        (void)remove(beside.text);
        return TALLY_OK;
    }
    return rc == TALLY_NOMEM
               ? rc
               : tally__fail(TALLY_ARG, "auto: cannot write %s: %s", path, tally_last_error());
}

static int read_file(const struct tally__auto *self, struct sending *sending)
{
    size_t n = 0;

    if (self->rank != 0) {
        return TALLY_OK;
    }
    TRY(self->profile_path ? check_path(self->profile_path) : TALLY_OK);
    if (!self->plan_path) {
        return TALLY_OK;
    }
    if (!tally__file_size(self->plan_path, &n)) {
        return check_path(self->plan_path);
    }
    TRY(tally__file_read_all(self->plan_path, MOST_BYTES, &sending->text, &n));
    sending->n = n;
    sending->is_there = true;
    return TALLY_OK;
}

int tally__plan_load(struct tally__auto *self, tally_ddp *ddp, int status, bool *is_there)
{
    struct sending sending = {.is_there = false};
    tally_future *future;
    int rc;

    if (status == TALLY_OK) {
        status = read_file(self, &sending);
    }
    sending.outcome = tally__outcome_of(status);
    rc = tally_submit(tally_ddp_group(ddp), 0, send_job, &sending, &future);
    if (rc == TALLY_OK) {
        rc = tally_future_wait(future);
        tally_future_free(future);
    }
    if (rc == TALLY_OK && sending.is_there) {
        rc = tally__plan_read(self, ddp, sending.text, (size_t)sending.n, self->settled,
                              &self->laid_cap);
    }
    if (rc == TALLY_OK && sending.is_there) {
        memcpy(self->laid_classes, self->settled, self->n_params);
    }
    *is_there = rc == TALLY_OK && sending.is_there;
    tally__free(sending.text);
    return rc;
}
