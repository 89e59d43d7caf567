/* SPDX-License-Identifier: Apache-2.0 */
/* Tells UTF-8 characters from other bytes. Keeps no state; any thread enters. */
#include "base/utf8.h"

size_t tally__utf8_bytes(const char *text)
{
    const unsigned char *byte = (const unsigned char *)text;
    /* Of the second byte, for first bytes with their own range: shorter forms, surrogates, and
     * what is beyond U+10FFFF are not characters. */
    unsigned char least = byte[0] == 0xe0 ? 0xa0 : (byte[0] == 0xf0 ? 0x90 : 0x80);
    unsigned char most = byte[0] == 0xed ? 0x9f : (byte[0] == 0xf4 ? 0x8f : 0xbf);
    size_t n = byte[0] < 0xe0 ? 2 : (byte[0] < 0xf0 ? 3 : 4);

    if (byte[0] < 0x80) {
        return 1;
    }
    if (byte[0] < 0xc2 || byte[0] > 0xf4 || byte[1] < least || byte[1] > most) {
        return 0;
    }
    for (size_t i = 2; i < n; i++) {
        if ((byte[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return n;
}
