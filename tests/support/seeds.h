/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that must hold in whatever order the software device's streams run: contexts that open by a seed, how many seeds
 * are tried, and a label for what is called next. */
#ifndef TESTS_SUPPORT_SEEDS_H
#define TESTS_SUPPORT_SEEDS_H

#include <stdint.h>

#include <belay/context.h>

enum { SEEDS_THREADS = -1 }; /* a seed that is none: real threads */

/* For software devices that open from here on. */
void seeds_set(int64_t seed);

/* That many; BELAY_SOAK in the environment: a thousand. */
int64_t seeds_n(int64_t few);

/* Sets the seed, forgets what was told and opens a context without a journal file, which tells to told_remember where the
 * options name no log. */
belay_context *seeds_open(int64_t seed, const belay_options *options);
/* The same; then the seed is what it was before, as the environment has it. */
belay_context *seeds_open_once(int64_t seed, const belay_options *options);

/* Calls from here on are told by this label, no more by the one that was pushed last. */
void seeds_here(belay_context *context, const char *label);

#endif
