/* SPDX-License-Identifier: Apache-2.0 */
/* Rules: what signals mean together.  A row of rules.def holds its condition, the verdict with its strength, and the
 * words for people: why, which wrong verdict is usual here and why it is wrong, and what to run next. */
#ifndef BL_TRIAGE_RULE_H
#define BL_TRIAGE_RULE_H

#include "base/error.h"
#include "triage/events.h"

typedef enum bl_class {
#define CLASS(name, text, says) BL_CLASS_##name,
#include "triage/classes.def"
#undef CLASS
    BL_N_CLASSES
} bl_class;

typedef enum bl_strength { BL_STRENGTH_INSUFFICIENT, BL_STRENGTH_LIKELY, BL_STRENGTH_SETTLED } bl_strength;
typedef enum bl_scope {
    BL_SCOPE_NONE,
    BL_SCOPE_APPLICATION,
    BL_SCOPE_DATA,
    BL_SCOPE_DISTRIBUTED,
    BL_SCOPE_HARDWARE,
    BL_SCOPE_PLATFORM
} bl_scope;

/* How near to the cause the evidence of a rule stands; of two rules that hold, the one of the lower tier is the cause
 * and the other its echo, unless the other's evidence came clearly before. */
typedef enum bl_tier {
    BL_TIER_MACHINE, /* the hardware says so itself */
    BL_TIER_PLACE,   /* names the operation that failed: asserts, sanitizers, core dumps, plain host errors */
    BL_TIER_BETWEEN, /* several ranks, runs or lines seen together */
    BL_TIER_HINT,    /* an error whose text narrows it */
    BL_TIER_BARE,    /* an error that says nothing but that there was one */
    BL_TIER_REST     /* an echo, or the end of a process, and nothing else */
} bl_tier;

typedef struct bl_rule_row {
    const char *name;
    bl_tier tier;
    bl_class class_;
    bl_strength strength;
    bl_scope scope;
    const char *needs;  /* signals: "a|b & c": one of a and b, and c */
    const char *unless; /* signals, any of which forbids it: "d|e"; "" */
    const char *with;   /* signals whose lines and facts are told too where they are there: "f|g"; "" */
    const char *why;
    const char *wrong; /* "masked-oom: ..." the verdict that people jump to, and why it is wrong here; "" */
    const char *next;  /* what to run next, one command or step a line */
} bl_rule_row;

extern const bl_rule_row bl_rules[];
extern const int bl_n_rules;

const char *bl_class_name(bl_class class_);
const char *bl_class_says(bl_class class_);
const char *bl_strength_name(bl_strength strength);
const char *bl_scope_name(bl_scope scope);

/* A parsed condition: all of its groups, one signal of each. */
enum { BL_RULE_GROUPS = 6, BL_RULE_CHOICES = 16 };
typedef struct bl_condition {
    int n_groups;
    int n_choices[BL_RULE_GROUPS];
    bl_signal choice[BL_RULE_GROUPS][BL_RULE_CHOICES];
} bl_condition;

/* Reads "a|b & c"; bug.invariant for a name that is no signal. */
BL_MUST_USE belay_code bl_condition_parse(const char *words, const char *rule, bl_condition *out, bl_error *error);
/* Whether it holds; found[g] is then the first event of group g. */
bool bl_condition_holds(const bl_condition *condition, const bl_events *events, bl_event *found[BL_RULE_GROUPS]);

#endif
