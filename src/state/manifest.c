/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes and reads the text of a manifest; manifest.h has the format. The reader accepts exactly
 * what the writer writes, and never reads beyond the end. Keeps no state; any thread enters.
 */
#include "state/manifest.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/group_config.h"
#include "tally.h"

#define FIRST_LINE "tally checkpoint 1\n"
#define LAST_WORD "checksum "
#define LAST_BYTES (sizeof LAST_WORD - 1 + 16 + 1)

const struct tally__part_kind_row tally__part_kinds[] = {
#define ROW(name, word, shown, own) {word, shown, own},
    TALLY__PART_LIST(ROW)
#undef ROW
};

const char *tally__dtype_word(int dtype)
{
    static const char *const words[] = {"F32", "F64", "F16", "BF16", "I32", "I64", "U8"};

    return dtype >= 0 && (size_t)dtype < sizeof words / sizeof words[0] ? words[dtype] : NULL;
}

uint64_t tally__pieces_sum(const struct tally__bytes *pieces, size_t n)
{
    struct tally__wide_sum sum;

    tally__checksum_begin(&sum);
    for (size_t k = 0; k < n; k++) {
        tally__checksum_add(&sum, pieces[k].data, pieces[k].n);
    }
    return tally__checksum_end(&sum);
}

bool tally__is_tensor(enum tally__part_kind kind)
{
    return kind == TALLY__PART_PARAM || kind == TALLY__PART_OWN_PARAM;
}

/* ---- writing ---- */

static bool is_plain(char c)
{
    return (unsigned char)c >= ' ' && c != '\x7f' && c != '\\';
}

static void put_name(struct tally__growing *to, const char *name)
{
    for (const char *c = name; *c; c++) {
        if (is_plain(*c)) {
            tally__grow_bytes(to, c, 1);
        } else {
            tally__grow(to, "\\x%02x", (unsigned)(unsigned char)*c);
        }
    }
    tally__grow_bytes(to, "\n", 1);
}

void tally__manifest_put_head(struct tally__growing *to, const struct tally__manifest *manifest)
{
    tally__grow(to, FIRST_LINE "library %s\nstep %" PRIu64 "\nworld %d\nparams %zu\nbuffers %zu\n",
                tally_version(), manifest->step, manifest->world, manifest->n_params,
                manifest->n_buffers);
    tally__grow(to, "hook ");
    put_name(to, manifest->hook);
}

void tally__manifest_put_file(struct tally__growing *to, const struct tally__manifest_file *file)
{
    tally__grow(to, "file %d %zu ", file->rank, file->bytes);
    put_name(to, file->name);
}

void tally__manifest_put_part(struct tally__growing *to, const struct tally__part *part)
{
    tally__grow(to, "%s %zu ", tally__part_kinds[part->kind].word, part->index);
    if (tally__is_tensor(part->kind)) {
        tally__grow(to, "%s ", tally__dtype_word(part->dtype));
        for (int d = 0; d < part->n_dims; d++) {
            tally__grow(to, "%s%zu", d == 0 ? "" : "x", part->shape[d]);
        }
        if (part->n_dims == 0) {
            tally__grow(to, "scalar");
        }
    } else {
        tally__grow(to, "- -");
    }
    tally__grow(to, " %zu %016" PRIx64 " ", part->bytes, part->sum);
    put_name(to, part->name);
}

void tally__manifest_put_end(struct tally__growing *to)
{
    if (!to->is_lost) {
        tally__grow(to, LAST_WORD "%016" PRIx64 "\n", tally__checksum_wide(to->text, to->n));
    }
}

/* ---- reading ---- */

/* The text from here on. After a mistake bad is set, and everything read is empty. */
struct scan {
    char *at;
    char *end;
    size_t line;
    bool bad;
};

/* Takes the next word, which ends in stop, and puts a NUL there. */
static char *take(struct scan *scan, char stop)
{
    char *word = scan->at;
    char *end = scan->bad ? NULL : memchr(word, stop, (size_t)(scan->end - word));

    if (!end || memchr(word, '\n', (size_t)(end - word))) {
        scan->bad = true;
        return scan->end;
    }
    *end = '\0';
    scan->at = end + 1;
    scan->line += stop == '\n';
    return word;
}

/* A whole number up to most, without sign and leading zeros. */
static uint64_t number_of(struct scan *scan, const char *word, uint64_t most)
{
    uint64_t number = 0;

    scan->bad = scan->bad || *word == '\0' || (word[0] == '0' && word[1] != '\0');
    for (; *word && !scan->bad; word++) {
        uint64_t digit = (uint64_t)(unsigned char)*word - '0';

        scan->bad = *word < '0' || *word > '9' || number > (most - digit) / 10;
        number = number * 10 + digit;
    }
    return scan->bad ? 0 : number;
}

static uint64_t take_number(struct scan *scan, char stop, uint64_t most)
{
    return number_of(scan, take(scan, stop), most);
}

static unsigned hex_digit(struct scan *scan, char c)
{
    if (c >= '0' && c <= '9') {
        return (unsigned)(c - '0');
    }
    scan->bad = scan->bad || c < 'a' || c > 'f';
    return scan->bad ? 0 : (unsigned)(c - 'a') + 10;
}

static uint64_t take_sum(struct scan *scan, char stop)
{
    const char *word = take(scan, stop);
    uint64_t sum = 0;

    scan->bad = scan->bad || strlen(word) != 16;
    for (; *word && !scan->bad; word++) {
        sum = sum << 4 | hex_digit(scan, *word);
    }
    return sum;
}

/* The rest of the line, unescaped in place. */
static const char *take_name(struct scan *scan)
{
    char *name = take(scan, '\n');
    char *to = name;

    for (const char *from = name; *from && !scan->bad; from++) {
        if (*from == '\\') {
            bool is_whole = from[1] == 'x' && from[2] && from[3];
            unsigned code = is_whole ? hex_digit(scan, from[2]) * 16 + hex_digit(scan, from[3]) : 0;

            scan->bad = scan->bad || code == 0 || is_plain((char)code);
            *to++ = (char)code;
            from += scan->bad ? 0 : 3;
        } else {
            scan->bad = !is_plain(*from);
            *to++ = *from;
        }
    }
    *to = '\0';
    return name;
}

/* Takes "WORD ". */
static void expect(struct scan *scan, const char *word)
{
    const char *found = take(scan, ' ');

    scan->bad = scan->bad || strcmp(found, word) != 0;
}

static int dtype_of(struct scan *scan, const char *word)
{
    for (int dtype = 0; tally__dtype_word(dtype); dtype++) {
        if (strcmp(word, tally__dtype_word(dtype)) == 0) {
            return dtype;
        }
    }
    scan->bad = true;
    return -1;
}

/* Reads a shape into the manifest's memory; *used counts its entries. */
static void read_shape(struct scan *scan, char *word, struct tally__part *part, size_t *shapes,
                       size_t *used)
{
    uint64_t n = tally_dtype_bytes(part->dtype);

    part->shape = shapes + *used;
    for (char *x; !scan->bad && strcmp(word, "scalar") != 0; word = x + 1) {
        size_t length;

        x = strchr(word, 'x');
        if (x) {
            *x = '\0';
        }
        length = (size_t)number_of(scan, word, SIZE_MAX / 16);
        scan->bad = scan->bad || (length > 0 && n > SIZE_MAX / 16 / length);
        n *= length;
        shapes[(*used)++] = length;
        part->n_dims++;
        if (!x) {
            break;
        }
    }
    scan->bad = scan->bad || n != part->bytes;
}

static void read_part(struct scan *scan, const char *word, struct tally__manifest *manifest,
                      size_t *used)
{
    struct tally__part *part = &manifest->parts[manifest->n_parts];
    const char *dtype;
    char *shape;

    *part = (struct tally__part){.dtype = -1, .file = manifest->n_files - 1};
    while (part->kind < TALLY__N_PART_KINDS &&
           strcmp(word, tally__part_kinds[part->kind].word) != 0) {
        part->kind++;
    }
    scan->bad = scan->bad || part->kind == TALLY__N_PART_KINDS || manifest->n_files == 0;
    part->index = (size_t)take_number(scan, ' ', SIZE_MAX / 2);
    dtype = take(scan, ' ');
    shape = take(scan, ' ');
    part->bytes = (size_t)take_number(scan, ' ', SIZE_MAX / 2);
    part->sum = take_sum(scan, ' ');
    part->name = take_name(scan);
    if (scan->bad) {
        return;
    }
    if (tally__is_tensor(part->kind)) {
        part->dtype = dtype_of(scan, dtype);
        read_shape(scan, shape, part, manifest->shapes, used);
    } else {
        scan->bad = strcmp(dtype, "-") != 0 || strcmp(shape, "-") != 0;
    }
    manifest->n_parts++;
}

static void read_head(struct scan *scan, struct tally__manifest *manifest)
{
    expect(scan, "library");
    manifest->library = take(scan, '\n');
    expect(scan, "step");
    manifest->step = take_number(scan, '\n', UINT64_MAX);
    expect(scan, "world");
    manifest->world = (int)take_number(scan, '\n', TALLY__MAX_WORLD);
    expect(scan, "params");
    manifest->n_params = (size_t)take_number(scan, '\n', SIZE_MAX / 1024);
    expect(scan, "buffers");
    manifest->n_buffers = (size_t)take_number(scan, '\n', SIZE_MAX / 1024);
    expect(scan, "hook");
    manifest->hook = take_name(scan);
    scan->bad = scan->bad || manifest->world == 0;
}

static void read_file(struct scan *scan, struct tally__manifest *manifest)
{
    struct tally__manifest_file *file = &manifest->files[manifest->n_files];

    file->rank = (int)take_number(scan, ' ', INT_MAX);
    file->bytes = (size_t)take_number(scan, ' ', SIZE_MAX / 2);
    file->name = take_name(scan);
    /* A name only: never a path out of the folder. */
    scan->bad = scan->bad || file->rank >= manifest->world || strchr(file->name, '/') ||
                file->name[0] == '.' || file->name[0] == '\0';
    manifest->n_files++;
}

/* The parts of a file lie one after the other and fill it. */
static bool place_parts(const struct tally__manifest *manifest)
{
    size_t i = 0;

    for (size_t f = 0; f < manifest->n_files; f++) {
        size_t at = 0;

        for (; i < manifest->n_parts && manifest->parts[i].file == f; i++) {
            struct tally__part *part = &manifest->parts[i];

            part->offset = at;
            if (part->bytes > manifest->files[f].bytes - at) {
                return false;
            }
            at += part->bytes;
        }
        if (at != manifest->files[f].bytes) {
            return false;
        }
    }
    return true;
}

static int allocate(struct tally__manifest *manifest, const char *text, size_t n)
{
    size_t n_lines = 0;
    size_t n_lengths = 0;

    for (size_t i = 0; i < n; i++) {
        n_lines += text[i] == '\n';
        n_lengths += text[i] == 'x' || text[i] == '\n';
    }
    manifest->files = tally__alloc_array(n_lines, sizeof *manifest->files, "a manifest");
    manifest->parts = tally__alloc_array(n_lines, sizeof *manifest->parts, "a manifest");
    manifest->shapes = tally__alloc_array(n_lengths, sizeof *manifest->shapes, "a manifest");
    manifest->text = tally__alloc(n + 1, "a manifest");
    if (!manifest->files || !manifest->parts || !manifest->shapes || !manifest->text) {
        return TALLY_NOMEM;
    }
    memcpy(manifest->text, text, n);
    return TALLY_OK;
}

static int read_text(struct tally__manifest *manifest, const char *text, size_t n)
{
    size_t used = 0;
    struct scan scan;

    if (n < LAST_BYTES + sizeof FIRST_LINE || memchr(text, '\0', n) ||
        memcmp(text, FIRST_LINE, sizeof FIRST_LINE - 1) != 0) {
        return tally__fail(TALLY_ARG, "it is not the manifest of a checkpoint of this version");
    }
    TRY(allocate(manifest, text, n));
    scan = (struct scan){.at = manifest->text + n - LAST_BYTES, .end = manifest->text + n};
    expect(&scan, "checksum");
    if (take_sum(&scan, '\n') != tally__checksum_wide(text, n - LAST_BYTES) || scan.bad) {
        return tally__fail(TALLY_ARG, "it is damaged or was edited: its checksum is wrong");
    }
    scan = (struct scan){.at = manifest->text + sizeof FIRST_LINE - 1,
                         .end = manifest->text + n - LAST_BYTES,
                         .line = 2};
    read_head(&scan, manifest);
    while (!scan.bad && scan.at < scan.end) {
        const char *word = take(&scan, ' ');

        if (strcmp(word, "file") == 0) {
            read_file(&scan, manifest);
        } else {
            read_part(&scan, word, manifest, &used);
        }
    }
    if (scan.bad) {
        return tally__fail(TALLY_ARG, "its line %zu is not as tally writes it", scan.line);
    }
    return place_parts(manifest)
               ? TALLY_OK
               : tally__fail(TALLY_ARG, "the sizes of its files and parts do not go together");
}

int tally__manifest_read(const char *text, size_t n, struct tally__manifest *manifest)
{
    int rc;

    *manifest = (struct tally__manifest){0};
    rc = read_text(manifest, text, n);
    if (rc != TALLY_OK) {
        tally__manifest_free(manifest);
    }
    return rc;
}

void tally__manifest_free(struct tally__manifest *manifest)
{
    tally__free(manifest->files);
    tally__free(manifest->parts);
    tally__free(manifest->shapes);
    tally__free(manifest->text);
    *manifest = (struct tally__manifest){0};
}
