/* SPDX-License-Identifier: Apache-2.0 */
/* Files in folders that other users may write to. */
#ifndef TALLY_BASE_SHARED_FOLDER_H
#define TALLY_BASE_SHARED_FOLDER_H

/*
 * Creates the file, or empties it, and opens it for writing. Refuses a link, and everything that is
 * not a regular file, such as a FIFO. Never waits. Returns the descriptor; -1 with errno on
 * failure.
 */
int tally__create_in_shared_folder(const char *path);

#endif
