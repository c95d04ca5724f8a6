/* SPDX-License-Identifier: Apache-2.0 */
/* What explain comes to: verdicts, the first cause first, with evidence and facts; what is only an echo, and why. */
#ifndef BL_TRIAGE_FINDINGS_H
#define BL_TRIAGE_FINDINGS_H

#include "base/error.h"
#include "triage/case.h"
#include "triage/rule.h"

enum { BL_EVIDENCE_MOST = 8, BL_SUPPORT_MOST = 1024, BL_FACTS_MOST = 96, BL_ECHOES_MOST = 24, BL_VERDICTS_MOST = 8 };

typedef struct bl_verdict {
    const bl_rule_row *rule;
    int origin_rank; /* -1: no one rank can be named */
    int n_evidence;
    const bl_event *evidence[BL_EVIDENCE_MOST];
    int n_support; /* all lines of the signals that the rule needs, and of what these were concluded from */
    const bl_event *support[BL_SUPPORT_MOST];
    int n_facts;
    bl_fact facts[BL_FACTS_MOST];
} bl_verdict;

typedef struct bl_echo {
    const bl_event *event; /* the first of its signal */
    int64_t count;
    const char *why;
} bl_echo;

typedef struct bl_findings {
    int n_verdicts; /* 0: no fault in these logs */
    bl_verdict verdicts[BL_VERDICTS_MOST];
    int n_echoes;
    bl_echo echoes[BL_ECHOES_MOST];
} bl_findings;

/* Tries the rules on a case whose events were derived. */
BL_MUST_USE belay_code bl_findings_reach(bl_case *c, bl_findings *out, bl_error *error);

#endif
