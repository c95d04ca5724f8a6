/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream said, in files of bounded size: the first half of the limit is kept for good in STEM.log, what comes
 * later in STEM.000001.log, STEM.000002.log, ..., each a quarter of the limit, of which the two newest are kept.  Parts
 * are cut at line ends where there are any.  The last bytes are kept in memory too.
 *
 * A write that fails never stops anything: from then on bytes are counted, kept in memory and no longer written.
 * Adding needs no memory. */
#ifndef BL_PROC_CAPTURE_H
#define BL_PROC_CAPTURE_H

#include <stdint.h>

#include "base/error.h"

enum { BL_CAPTURE_TAIL = 64 * 1024 };

typedef struct bl_capture bl_capture;

/* Makes STEM.log.  `limit` is in bytes, at least 4096.  file.write, mem.exhausted. */
BL_MUST_USE belay_code bl_capture_open(const char *stem, int64_t limit, bl_capture **out, bl_error *error);
void bl_capture_add(bl_capture *capture, const char *bytes, int64_t n_bytes);
/* NULL is fine. */
void bl_capture_close(bl_capture *capture);

typedef struct bl_capture_facts {
    int64_t n_bytes;   /* said */
    int64_t n_dropped; /* of them no longer in any file */
    int64_t n_parts;   /* files begun after the first */
    int failure;       /* errno of the write that failed, 0: none did */
} bl_capture_facts;
bl_capture_facts bl_capture_facts_get(const bl_capture *capture);

/* The last bytes said, at most BL_CAPTURE_TAIL. */
const char *bl_capture_tail(const bl_capture *capture, int64_t *n_bytes);

#endif
