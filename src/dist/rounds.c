/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/rounds.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/memory.h"
#include "dist/parts.h"
#include "dist/words.h"

bool bl_round_open(bl_round *round)
{
    belay_group *group = round->group;
    round->reducer = group->n_rounds_opened++;
    round->mine = bl_alloc(1, sizeof *round->mine);
    round->all = bl_alloc(group->place.size, sizeof *round->all);
    round->next = group->rounds;
    group->rounds = round;
    if (round->mine != NULL && round->all != NULL)
        return true;
    bl_context_raise(group->context, BELAY_MEM_EXHAUSTED, "no memory for the words of %d ranks", group->place.size);
    return false;
}

void bl_round_close(bl_round *round)
{
    if (round->group == NULL)
        return;
    bl_round **at = &round->group->rounds;
    while (*at != NULL && *at != round)
        at = &(*at)->next;
    if (*at == round)
        *at = round->next;
    bool is_idle = round->work.state == BL_WORK_IDLE;
    if (!is_idle && !bl_group_wait(round->group, &round->work)) { /* the transport may still write there */
        bl_group_keep(round->group, round->mine);
        bl_group_keep(round->group, round->all);
    } else {
        bl_free(round->mine);
        bl_free(round->all);
    }
    *round = (bl_round){0};
}

/* The worker's.  A mismatch breaks the group before the round's data begin. */
static void end(void *state, bool failed)
{
    const bl_round *round = state;
    if (!failed)
        (void)bl_group_settle_words(round->group, round->all);
}

static void post(bl_round *round, uintptr_t site)
{
    belay_group *group = round->group;
    bl_word word = bl_group_word_at(group, BL_CALL_ROUND, site);
    word.count = round->reducer;
    snprintf(word.more, sizeof word.more, "%s", round->what);
    *round->mine = word;
    round->work = (bl_work){.site = site, .end = end, .state_of = round};
    bl_group_exchange_work(round->mine, round->all, &round->work);
    bl_group_post(group, &round->work);
}

void bl_round_begin(bl_round *round, uintptr_t site)
{
    belay_group *group = round->group;
    bool is_lost = group->context->window_faulted;
    if (group->later != NULL)
        (void)bl_later_settle(group->later);
    do {
        if (!bl_work_is_over(&round->work) && !bl_group_wait(group, &round->work))
            return;
        post(round, site);
    } while (is_lost && bl_group_wait(group, &round->work) && bl_rounds_follow(group, round->all));
}

bool bl_rounds_follow(belay_group *group, const bl_word *all)
{
    const bl_word *mine = &all[group->place.rank];
    if ((mine->flags & BL_FLAG_FOLLOWS) == 0 || group->broken != BELAY_OK)
        return false;
    bl_round *round = group->rounds;
    while (round != NULL && round->reducer != mine->count)
        round = round->next;
    if (round != NULL)
        round->join(round->state);
    else
        belay_group_abort(group, "the others average by a reducer that it does not have any more");
    return group->broken == BELAY_OK;
}
