/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal under `tally top`: whole screen, keys, and the terminal as it was afterwards. */
#ifndef TALLY_TOOLS_TOP_SCREEN_H
#define TALLY_TOOLS_TOP_SCREEN_H

#include "tools/top_view.h"

/* Takes the screen. False if standard output is not a terminal. */
bool top_screen_open(void);

/* Shows lines; *first is the first row that is shown of those that scroll, and is corrected if
 * there are fewer. */
void top_screen_show(const struct top_lines *lines, size_t *first);

enum top_event {
    TOP_AGAIN, /* the time has passed, or the size has changed */
    TOP_UP,
    TOP_DOWN,
    TOP_PAGE_UP,
    TOP_PAGE_DOWN,
    TOP_QUIT, /* q, or a signal that ends programs */
};

/* Waits for a key, a signal, or the time. */
enum top_event top_screen_wait(double seconds);

/* Gives the screen back. If a signal ended the view, raises it. */
void top_screen_close(void);

#endif
