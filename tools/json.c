/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one JSON object on one line. One thread; the only state is the separator. */
#include "tools/json.h"

#include <math.h>

/* The length of the UTF-8 sequence at text, or 0 if there is none: not too long for its value, and
 * no half of a UTF-16 pair. */
static size_t utf8_length(const unsigned char *text)
{
    static const unsigned char smallest[] = {0, 0, 0, 0xa0, 0x90}; /* of the second byte */
    size_t n = text[0] < 0x80   ? 1
               : text[0] < 0xc2 ? 0
               : text[0] < 0xe0 ? 2
               : text[0] < 0xf0 ? 3
                                : 4;

    if (text[0] > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if ((text[0] == 0xe0 || text[0] == 0xf0) && text[1] < smallest[n]) {
        return 0;
    }
    return (text[0] == 0xed && text[1] > 0x9f) || (text[0] == 0xf4 && text[1] > 0x8f) ? 0 : n;
}

void json_string(FILE *to, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;

    (void)fputc('"', to);
    while (*c) {
        size_t n = utf8_length(c);

        if (*c == '"' || *c == '\\') {
            (void)fprintf(to, "\\%c", *c);
        } else if (*c < 0x20 || *c == 0x7f || *c == '<') {
            (void)fprintf(to, "\\u%04x", *c);
        } else if (n == 0) {
            (void)fputs("\\ufffd", to);
        } else {
            (void)fwrite(c, 1, n, to);
        }
        c += n == 0 ? 1 : n;
    }
    (void)fputc('"', to);
}

static void put_key(struct json *json, const char *key)
{
    (void)fputs(json->separator, json->to);
    json_string(json->to, key);
    (void)fputs(": ", json->to);
    json->separator = ", ";
}

struct json json_begin(FILE *to)
{
    return (struct json){to, "{"};
}

void json_text(struct json *json, const char *key, const char *text)
{
    put_key(json, key);
    if (text) {
        json_string(json->to, text);
    } else {
        (void)fputs("null", json->to);
    }
}

void json_count(struct json *json, const char *key, size_t count)
{
    put_key(json, key);
    (void)fprintf(json->to, "%zu", count);
}

void json_counts(struct json *json, const char *key, const size_t *counts, size_t n)
{
    put_key(json, key);
    (void)fputc('[', json->to);
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(json->to, "%s%zu", i == 0 ? "" : ", ", counts[i]);
    }
    (void)fputc(']', json->to);
}

void json_real(struct json *json, const char *key, double value)
{
    put_key(json, key);
    if (isfinite(value)) {
        (void)fprintf(json->to, "%.6g", value);
    } else {
        (void)fputs("null", json->to);
    }
}

void json_flag(struct json *json, const char *key, bool flag)
{
    put_key(json, key);
    (void)fputs(flag ? "true" : "false", json->to);
}

void json_open_list(struct json *json, const char *key)
{
    put_key(json, key);
    (void)fputc('[', json->to);
    json->separator = "";
}

void json_open_item(struct json *json)
{
    (void)fputs(json->separator, json->to);
    json->separator = "{";
}

void json_close_item(struct json *json)
{
    (void)fputc('}', json->to);
    json->separator = ", ";
}

void json_close_list(struct json *json)
{
    (void)fputc(']', json->to);
    json->separator = ", ";
}

void json_end(struct json *json)
{
    (void)fputs("}\n", json->to);
}
