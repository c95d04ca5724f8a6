/* SPDX-License-Identifier: Apache-2.0 */
/* Return addresses to words.  With libdw: "train.c:88" from the debug information of the program and its libraries,
 * looked up on this machine's disk only, never on the network; without debug information "function+0x1c", else
 * "file+0x12345".  Without libdw only exported functions have names. */
#ifndef BL_REPORT_SITE_H
#define BL_REPORT_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fills `out` with the words for a return address of this process; "unknown" for 0. */
void bl_report_site(uintptr_t address, char *out, size_t size);

/* The line of source at which that is (report/source.h), "" where it is not known: no debug information, no file, or a
 * file that is newer than the program.  Bytes that are foreign to a terminal stand in it as they are. */
void bl_report_site_source(uintptr_t address, char *out, size_t size);
/* Off: no line is ever found, for tests whose texts are not to change with their own lines.  On at the start. */
void bl_report_site_source_set(bool on);

/* Around a fork: nobody looks a site up. */
void bl_report_site_hold(bool holds);

/* bl_report_site for a process that may be gone: a return address as an offset in the file that was mapped there. */
void bl_report_site_in(const char *path, uint64_t offset, char *out, size_t size);

#endif
