/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "triage/rule.h"

const bl_rule_row bl_rules[] = {
#define RULE(name, tier, class_, strength, scope, needs, unless, with, why, wrong, next)                               \
    {#name,                                                                                                            \
     BL_TIER_##tier,                                                                                                   \
     BL_CLASS_##class_,                                                                                                \
     BL_STRENGTH_##strength,                                                                                           \
     BL_SCOPE_##scope,                                                                                                 \
     needs,                                                                                                            \
     unless,                                                                                                           \
     with,                                                                                                             \
     why,                                                                                                              \
     wrong,                                                                                                            \
     next},
#include "triage/rules.def"
#undef RULE
};
const int bl_n_rules = (int)(sizeof bl_rules / sizeof bl_rules[0]);

typedef struct class_row {
    const char *name, *says;
} class_row;

static const class_row classes[BL_N_CLASSES] = {
#define CLASS(name, text, says) {text, says},
#include "triage/classes.def"
#undef CLASS
};

const char *bl_class_name(bl_class class_) { return classes[class_].name; }

const char *bl_class_says(bl_class class_) { return classes[class_].says; }

const char *bl_strength_name(bl_strength strength)
{
    static const char *const names[] = {"insufficient", "likely", "settled"};
    return names[strength];
}

const char *bl_scope_name(bl_scope scope)
{
    static const char *const names[] = {"none", "application", "data", "distributed", "hardware", "platform"};
    return names[scope];
}

/* ---- conditions ----------------------------------------------------------------------------------------------------- */

static belay_code add_choice(const char *word, size_t length, const char *rule, bl_condition *out, bl_error *error)
{
    int signal = bl_signal_find(word, (long)length);
    int *n = &out->n_choices[out->n_groups];
    if (signal < 0)
        return bl_error_set(error, BELAY_BUG_INVARIANT, "rule %s names \"%.*s\", which is no signal", rule, (int)length,
                            word);
    if (*n == BL_RULE_CHOICES)
        return bl_error_set(error, BELAY_BUG_INVARIANT, "rule %s has more than %d choices in a group", rule,
                            BL_RULE_CHOICES);
    out->choice[out->n_groups][(*n)++] = (bl_signal)signal;
    return BELAY_OK;
}

belay_code bl_condition_parse(const char *words, const char *rule, bl_condition *out, bl_error *error)
{
    *out = (bl_condition){0};
    while (*words != '\0') {
        size_t length = strcspn(words, " |&");
        if (length > 0)
            TRY(add_choice(words, length, rule, out, error));
        words += length;
        size_t between = strspn(words, " |&");
        bool is_next_group = memchr(words, '&', between) != NULL;
        if (is_next_group && ++out->n_groups == BL_RULE_GROUPS)
            return bl_error_set(error, BELAY_BUG_INVARIANT, "rule %s has more than %d groups", rule, BL_RULE_GROUPS);
        words += between;
    }
    out->n_groups += out->n_choices[out->n_groups] > 0;
    return BELAY_OK;
}

static bl_event *first_of(const bl_condition *condition, int group, const bl_events *events)
{
    bl_event *first = NULL;
    for (int i = 0; i < condition->n_choices[group]; i++) {
        bl_event *event = bl_events_first(events, condition->choice[group][i]);
        if (event != NULL && (first == NULL || bl_event_before(event, first)))
            first = event;
    }
    return first;
}

bool bl_condition_holds(const bl_condition *condition, const bl_events *events, bl_event *found[BL_RULE_GROUPS])
{
    for (int g = 0; g < condition->n_groups; g++) {
        found[g] = first_of(condition, g, events);
        if (found[g] == NULL)
            return false;
    }
    return condition->n_groups > 0;
}
