/* SPDX-License-Identifier: Apache-2.0 */
/* Signals: what a line of a log can say.  A row of signals.def holds the literal that the fast pass looks for (its
 * anchor), the pattern that the line must match, and a line that does.  A captured name becomes a fact.  Signals say
 * what was seen; what it means is the business of rules.def. */
#ifndef BL_TRIAGE_SIGNAL_H
#define BL_TRIAGE_SIGNAL_H

#include <stdbool.h>

typedef enum bl_role {
    BL_ROLE_FAULT,   /* something failed here, and this line says what */
    BL_ROLE_ECHO,    /* something failed elsewhere or before; never a cause by itself */
    BL_ROLE_END,     /* a program ended; says nothing of why */
    BL_ROLE_FACT,    /* true of the program or the machine; no failure */
    BL_ROLE_DERIVED, /* concluded from other signals, by a file derive_*.c; has no pattern */
} bl_role;

typedef enum bl_signal {
#define SIGNAL(name, role, anchors, pattern, example) BL_SIGNAL_##name,
#include "triage/signals.def"
#undef SIGNAL
    BL_N_SIGNALS
} bl_signal;

typedef struct bl_signal_row {
    const char *name;
    bl_role role;
    const char *anchors; /* literals, one a line; the pattern is tried on lines that hold one of them.  With "~" as the
                          * first the row is weak: its words are on healthy lines too, so the fast pass does not look
                          * for them, and the row is tried on lines that are looked at whole (see explain.h).  "": tried
                          * on each of those lines */
    const char *pattern; /* PCRE2; the names of its groups are names of facts; "": derived */
    const char *subject; /* the file of its row: a derived signal is concluded from the signals of its subject */
    const char *example; /* a line that it matches, as it stands after prefixes were taken off */
} bl_signal_row;

extern const bl_signal_row bl_signals[BL_N_SIGNALS];

/* The signal of that name, or -1. */
int bl_signal_find(const char *name, long n_bytes);

#endif
