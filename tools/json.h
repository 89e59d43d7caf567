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

struct json json_begin(FILE *to);
/* A NULL text becomes null. */
void json_text(struct json *json, const char *key, const char *text);
void json_count(struct json *json, const char *key, size_t count);
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
