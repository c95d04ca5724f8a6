/* SPDX-License-Identifier: Apache-2.0 */
#include "support/seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/told.h"

static const char variable[] = "BELAY_SIM_SEED";

void seeds_set(int64_t seed)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)seed);
    if (seed != SEEDS_THREADS)
        setenv(variable, text, 1);
    else
        unsetenv(variable);
}

int64_t seeds_n(int64_t few) { return getenv("BELAY_SOAK") != NULL ? 1000 : few; }

belay_context *seeds_open(int64_t seed, const belay_options *options)
{
    belay_options mine = *options;
    mine.no_journal = true;
    if (mine.log == NULL)
        mine.log = told_remember;
    seeds_set(seed);
    told_clear();
    belay_context *context = belay_open(&mine);
    assert_true(belay_is_open(context));
    return context;
}

belay_context *seeds_open_once(int64_t seed, const belay_options *options)
{
    const char *before = getenv(variable);
    char *kept = before != NULL ? strdup(before) : NULL;
    belay_context *context = seeds_open(seed, options);
    if (kept != NULL)
        setenv(variable, kept, 1);
    else
        unsetenv(variable);
    free(kept);
    return context;
}

void seeds_here(belay_context *context, const char *label)
{
    belay_site_pop(context);
    belay_site_push(context, label);
}
