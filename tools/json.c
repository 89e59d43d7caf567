/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one JSON object on one line. One thread; the only state is the separator. */
#include "tools/json.h"

#include <math.h>

static void put_string(FILE *to, const char *text)
{
    (void)fputc('"', to);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') {
            (void)fprintf(to, "\\%c", *c);
        } else if (*c < 0x20) {
            (void)fprintf(to, "\\u%04x", *c);
        } else {
            (void)fputc(*c, to);
        }
    }
    (void)fputc('"', to);
}

static void put_key(struct json *json, const char *key)
{
    (void)fputs(json->separator, json->to);
    put_string(json->to, key);
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
        put_string(json->to, text);
    } else {
        (void)fputs("null", json->to);
    }
}

void json_count(struct json *json, const char *key, size_t count)
{
    put_key(json, key);
    (void)fprintf(json->to, "%zu", count);
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
