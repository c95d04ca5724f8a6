/* SPDX-License-Identifier: Apache-2.0 */
/* Codes, severities and exit statuses.  A fault is a named illegal or refused access; docs/faults.md lists them all. */
#ifndef BELAY_FAULT_H
#define BELAY_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined __GNUC__
#define BELAY_API                 __attribute__((visibility("default")))
#define BELAY_MUST_USE            __attribute__((warn_unused_result))
#define BELAY_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define BELAY_API
#define BELAY_MUST_USE
#define BELAY_PRINTF(text, first)
#endif

/* Every code with its pinned number; 0 is success. */
typedef enum belay_code {
    BELAY_OK = 0,
#define BELAY_FAULT(enumerator, number, name, severity, status, why, advice) BELAY_##enumerator = number,
#include <belay/fault.def>
#undef BELAY_FAULT
} belay_code;

typedef enum belay_severity {
    BELAY_SEVERITY_WARNING, /* the run is as it was */
    BELAY_SEVERITY_FAULT,   /* the step is refused, the run goes on */
    BELAY_SEVERITY_FATAL,   /* the run cannot go on */
    BELAY_SEVERITY_BUG      /* a broken invariant of Belay's own */
} belay_severity;

/* The stable name ("index.range"), one sentence why, one sentence what to do.  Static text; "unknown" for a number
 * that is no code. */
BELAY_API const char *belay_code_name(belay_code code);
BELAY_API const char *belay_code_why(belay_code code);
BELAY_API const char *belay_code_advice(belay_code code);
BELAY_API belay_severity belay_code_severity(belay_code code);

/* The exit status of a run that this code ended: 0, 2, 3, 4, 5, 6, 7 or 70. */
BELAY_API int belay_code_status(belay_code code);

#ifdef __cplusplus
}
#endif
#endif
