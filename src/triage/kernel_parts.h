/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the kernel log's parser, one a family of lines.  For kernel_*.c only. */
#ifndef BL_TRIAGE_KERNEL_PARTS_H
#define BL_TRIAGE_KERNEL_PARTS_H

#include "triage/cursor.h"
#include "triage/kernel_log.h"

/* Moves behind all prefixes of a kernel line; notes the host's name where one stands. */
void bl_kernel_strip(bl_cursor *c, bl_kernel_text *host);

/* "[PCI:]dddd:bb:dd[.f]" */
bool bl_kernel_pci(bl_cursor *c, bl_pci *out);

/* Whether the message has a shape that is known for the Xid; then its fields are in *event. */
bool bl_kernel_xid_message(int64_t code, bl_cursor c, bl_kernel_event *event);

/* Each looks whether the line is one of its own; what it fills counts only then. */
bool bl_kernel_nvrm(bl_cursor c, bl_kernel_event *event);   /* behind "NVRM: " */
bool bl_kernel_switch(bl_cursor c, bl_kernel_event *event); /* NVSwitch */
bool bl_kernel_pcie(bl_cursor c, bl_kernel_event *event);   /* AER and IOMMU */
bool bl_kernel_amd(bl_cursor c, bl_kernel_event *event);
bool bl_kernel_process(bl_cursor c, bl_kernel_event *event); /* OOM killer, segfaults, hung tasks */
bool bl_kernel_memory(bl_cursor c, bl_kernel_event *event);  /* EDAC, machine checks */

/* Numbers to -1, all else empty. */
void bl_kernel_event_init(bl_kernel_event *event);

static inline bl_kernel_text bl_kernel_text_of(const char *begin, const char *end)
{
    return (bl_kernel_text){begin, end > begin ? end - begin : 0};
}

/* The rest of the line, without blanks and line ends behind it. */
static inline bl_kernel_text bl_kernel_rest(const bl_cursor *c)
{
    const char *end = c->end;
    while (end > c->at && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r' || end[-1] == '\n'))
        end--;
    return bl_kernel_text_of(c->at, end);
}

/* The bytes up to the literal, which is passed. */
static inline bool bl_kernel_until(bl_cursor *c, const char *literal, bl_kernel_text *out)
{
    const char *begin = c->at;
    if (!bl_cursor_pass(c, literal))
        return false;
    *out = bl_kernel_text_of(begin, c->at - strlen(literal));
    return true;
}

/* The bytes up to a blank or the end, at least one. */
static inline bool bl_kernel_token(bl_cursor *c, bl_kernel_text *out)
{
    const char *begin = c->at;
    while (c->at < c->end && *c->at != ' ')
        c->at++;
    *out = bl_kernel_text_of(begin, c->at);
    return out->n_bytes > 0;
}

#endif
