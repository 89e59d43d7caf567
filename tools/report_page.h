/* SPDX-License-Identifier: Apache-2.0 */
/* The files of tools/report, which the build embeds (report_page.cmake). */
#ifndef TALLY_TOOLS_REPORT_PAGE_H
#define TALLY_TOOLS_REPORT_PAGE_H

/* They end in NUL. */
extern const char report_page_html[];
extern const char report_page_css[];
extern const char report_page_js[];
extern const char report_steps_js[];
extern const char report_timeline_js[];

#endif
