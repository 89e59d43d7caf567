/* SPDX-License-Identifier: Apache-2.0 */
/* One JSON object on one line. */
#ifndef TALLY_TOOLS_JSON_H
#define TALLY_TOOLS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct json {
    FILE *to;
    const char *separator;
};

/* Writes a string with its quotes. Bytes that are not UTF-8 become U+FFFD. The result may also
 * stand in a script of an HTML page: it has no '<'. */
void json_string(FILE *to, const char *text);

struct json json_begin(FILE *to);
/* A NULL text becomes null. */
void json_text(struct json *json, const char *key, const char *text);
void json_count(struct json *json, const char *key, size_t count);
void json_counts(struct json *json, const char *key, const size_t *counts, size_t n);
/* Writes six significant digits; NaN and infinity become null. */
void json_real(struct json *json, const char *key, double value);
void json_flag(struct json *json, const char *key, bool flag);
/* Writes a list of objects under key; each object is between open_item and close_item. */
void json_open_list(struct json *json, const char *key);
void json_open_item(struct json *json);
void json_close_item(struct json *json);
void json_close_list(struct json *json);
void json_end(struct json *json);

#endif
