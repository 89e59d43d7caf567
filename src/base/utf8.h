/* SPDX-License-Identifier: Apache-2.0 */
/* Names that users give may be any bytes; files for other programs have to be UTF-8. */
#ifndef TALLY_BASE_UTF8_H
#define TALLY_BASE_UTF8_H

#include <stddef.h>

/* The bytes of the UTF-8 character at text, which a zero byte ends; 0: there is none. */
size_t tally__utf8_bytes(const char *text);

#endif
