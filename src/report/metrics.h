/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.csv: a line an epoch.  A figure that is not known is NaN here and empty there. */
#ifndef BL_REPORT_METRICS_H
#define BL_REPORT_METRICS_H

#include <stdbool.h>

#include "base/error.h"
#include "base/text.h"

/* The columns in their order: X(kind, name). */
#define BL_REPORT_METRICS(X)                                                                                           \
    X(INT, epoch)                                                                                                      \
    X(INT, steps)                                                                                                      \
    X(REAL, train_loss)                                                                                                \
    X(REAL, train_accuracy)                                                                                            \
    X(REAL, valid_loss)                                                                                                \
    X(REAL, valid_accuracy)                                                                                            \
    X(REAL, lr)                                                                                                        \
    X(REAL, samples_per_second)                                                                                        \
    X(REAL, seconds)                                                                                                   \
    X(INT, faults)                                                                                                     \
    X(INT, skipped)                                                                                                    \
    X(INT, best)

typedef struct bl_report_metrics {
#define BL_REPORT_METRICS_INT(name)  int64_t name;
#define BL_REPORT_METRICS_REAL(name) double name;
#define X(kind, name)                BL_REPORT_METRICS_##kind(name)
    BL_REPORT_METRICS(X)
#undef X
#undef BL_REPORT_METRICS_INT
#undef BL_REPORT_METRICS_REAL
} bl_report_metrics;

/* The first line, and the line of an epoch; both without the end of line. */
void bl_report_metrics_head(bl_text *out);
void bl_report_metrics_line(const bl_report_metrics *row, bl_text *out);

/* All rows of a file, on the heap (bl_free).  Codes: file.open, file.read, file.limit, file.format with the line,
 * mem.exhausted. */
BL_MUST_USE belay_code bl_report_metrics_read(const char *path, bl_report_metrics **rows, int64_t *n_rows,
                                              bl_error *error);

#endif
