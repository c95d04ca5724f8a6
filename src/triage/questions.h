/* SPDX-License-Identifier: Apache-2.0 */
/* Five questions whether a fault is special to data-parallel training, and one about where it ran, answered from the
 * evidence or not at all.  A question that these logs do not touch is answered "not in these logs", never guessed. */
#ifndef BL_TRIAGE_QUESTIONS_H
#define BL_TRIAGE_QUESTIONS_H

#include "triage/case.h"

typedef enum bl_answer { BL_ANSWER_NOT_TOLD, BL_ANSWER_NO, BL_ANSWER_YES } bl_answer;

typedef enum bl_question {
    BL_QUESTION_NAMES,    /* does the failure name DDP or NCCL? */
    BL_QUESTION_ALONE,    /* does one process alone run clean? */
    BL_QUESTION_DIFFER,   /* do the ranks differ in structure or batch? */
    BL_QUESTION_BLOCKING, /* does blocking mode point at a reduction or a gradient buffer? */
    BL_QUESTION_CURES,    /* do equal seeds and batches, or the search for unused parameters, cure it? */
    BL_QUESTION_STREAM,   /* yes: the communication stream; no: another kernel */
    BL_N_QUESTIONS
} bl_question;

typedef struct bl_questions {
    struct {
        bl_answer answer;
        const bl_event *event; /* that shows it; NULL when not told */
        const char *because;   /* one sentence; "" when not told */
    } list[BL_N_QUESTIONS];
} bl_questions;

/* Reads a case whose events were derived. */
void bl_questions_answer(const bl_case *c, bl_questions *out);

/* Whether there is more than one rank, so that the questions have a sense. */
bool bl_questions_matter(const bl_case *c);

const char *bl_question_describe(bl_question question);
/* "yes", "no", "not in these logs"; for the last question "communication", "kernel". */
const char *bl_answer_describe(bl_question question, bl_answer answer);

#endif
