/* SPDX-License-Identifier: Apache-2.0 */
/* Words that ranks exchange: what they say, and which of them do not fit the others. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dist/vote.h"
#include "dist/words.h"

const char *const bl_phase_names[BL_N_PHASES] = {
    [BL_PHASE_OUTSIDE] = "outside of a step",
    [BL_PHASE_DATA] = "data",
    [BL_PHASE_FORWARD] = "forward",
    [BL_PHASE_BACKWARD] = "backward",
    [BL_PHASE_AGREE] = "agreement",
    [BL_PHASE_REDUCE] = "reduction",
    [BL_PHASE_UPDATE] = "update",
    [BL_PHASE_EVALUATE] = "evaluation",
    [BL_PHASE_SAVE] = "saving",
};

static const char *const call_names[BL_N_CALLS] = {
    [BL_CALL_NONE] = "nothing",          [BL_CALL_BIND] = "bind",
    [BL_CALL_ALL_REDUCE] = "all_reduce", [BL_CALL_BROADCAST] = "broadcast",
    [BL_CALL_ALL_GATHER] = "all_gather", [BL_CALL_BARRIER] = "barrier",
    [BL_CALL_AGREE] = "agree",           [BL_CALL_MANIFEST] = "manifest",
    [BL_CALL_ROUND] = "averaging",       [BL_CALL_STEP] = "the end of a window",
    [BL_CALL_CLOSE] = "close",
};

static const char *const op_names[] = {"sum", "max", "or"};

static const char *call_name(uint32_t kind) { return kind < BL_N_CALLS ? call_names[kind] : "a call of another build"; }

void bl_word_call(const bl_word *word, char *out, size_t size)
{
    snprintf(out, size, "%s #%" PRIu64, call_name(word->kind), word->number);
}

void bl_words_add(char *out, size_t size, const char *format, ...)
{
    size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    if (used < size)
        vsnprintf(out + used, size - used, format, args);
    va_end(args);
}

bool bl_words_name(bl_text *out, int64_t n_told, int64_t n, const char *name)
{
    enum { MOST = 4 };
    if (n_told == MOST && n > MOST + 1) {
        bl_text_format(out, " and %" PRId64 " others", n - n_told);
        return false;
    }
    bl_text_format(out, "%s%s", n_told == 0 ? "" : n_told + 1 == n ? " and " : ", ", name);
    return n_told + 1 < n;
}

void bl_word_describe(const bl_word *word, char *out, size_t size)
{
    bl_word_call(word, out, size);
    if (word->flags & BL_FLAG_REFUSED) {
        bl_words_add(out, size, ", which was refused there (%.*s)", (int)sizeof word->more, word->more);
        return;
    }
    bool has_data =
        word->kind == BL_CALL_ALL_REDUCE || word->kind == BL_CALL_BROADCAST || word->kind == BL_CALL_ALL_GATHER;
    if (has_data)
        bl_words_add(out, size, " of %" PRId64 " %s", word->count, belay_dtype_name((belay_dtype)word->dtype));
    if (word->kind == BL_CALL_ALL_REDUCE && word->op < BL_COUNT(op_names))
        bl_words_add(out, size, " by %s", op_names[word->op]);
    if (word->kind == BL_CALL_BROADCAST)
        bl_words_add(out, size, " from rank %" PRIu32, word->root);
    if (word->kind == BL_CALL_MANIFEST && word->count >= 0)
        bl_words_add(out, size, ", part %" PRId64, word->count);
    if (word->kind == BL_CALL_ROUND)
        bl_words_add(out, size, " by reducer %" PRId64 " (%.*s)", word->count, (int)sizeof word->more, word->more);
    if (has_data && word->more[0] != '\0')
        bl_words_add(out, size, ", %.*s", (int)sizeof word->more, word->more);
}

/* ---- comparing ------------------------------------------------------------------------------------------------------- */

bool bl_word_fits(const bl_word *a, const bl_word *b)
{
    return a->kind == b->kind && a->number == b->number && a->dtype == b->dtype && a->op == b->op &&
           a->root == b->root && a->count == b->count && (a->flags & BL_FLAG_REFUSED) == (b->flags & BL_FLAG_REFUSED);
}

static bool is_excused(const bl_word *word)
{
    return (word->flags & BL_FLAG_FAULT) != 0 || (word->kind == BL_CALL_STEP && (word->flags & BL_FLAG_ABSENT) != 0);
}

/* Whoever has no excuse, else one that averages. */
static int leader(const bl_word *all, int size)
{
    for (int r = 0; r < size; r++)
        if (!is_excused(&all[r]))
            return r;
    for (int r = 0; r < size; r++)
        if (all[r].kind == BL_CALL_ROUND)
            return r;
    return 0;
}

void bl_words_follow(bl_word *all, int size)
{
    const bl_word *lead = &all[leader(all, size)];
    for (int r = 0; r < size && lead->kind == BL_CALL_ROUND; r++) {
        if (!is_excused(&all[r]) || bl_word_fits(&all[r], lead))
            continue;
        all[r].kind = lead->kind;
        all[r].dtype = lead->dtype;
        all[r].op = lead->op;
        all[r].root = lead->root;
        all[r].count = lead->count;
        all[r].flags = (all[r].flags & ~(uint32_t)BL_FLAG_REFUSED) | BL_FLAG_FOLLOWS;
    }
}

static bool are_same(const void *all, int a, int b)
{
    return bl_word_fits(&((const bl_word *)all)[a], &((const bl_word *)all)[b]);
}

static int n_like(const bl_word *all, int size, int rank)
{
    int n = 0;
    for (int r = 0; r < size; r++)
        n += are_same(all, r, rank);
    return n;
}

/* Whether no lower rank says what that one says. */
static bool is_first(const bl_word *all, int rank)
{
    int r = 0;
    while (!are_same(all, r, rank))
        r++;
    return r == rank;
}

static void ranks_like(const bl_word *all, int size, int rank, char *out, size_t room)
{
    bl_text words = {0};
    bl_vote_name_by(all, size, rank, are_same, &words);
    snprintf(out, room, "%.*s", (int)room - 1, bl_text_get(&words));
    bl_text_fini(&words);
}

/* One line for all that say the same; the site and the position are those of the first. */
static void tell_side(const bl_word *all, int size, int rank, bl_report_fault *fault)
{
    char ranks[96], call[160];
    const bl_word *w = &all[rank];
    ranks_like(all, size, rank, ranks, sizeof ranks);
    bl_word_describe(w, call, sizeof call);
    bl_report_fault_fact(fault, "%s: %s%s%.*s, step %" PRIu64 ", batch %" PRIu32 ":%" PRIu32, ranks, call,
                         w->site[0] != '\0' ? " at " : "", BL_WORD_SITE, w->site, w->step, w->epoch, w->position);
}

bool bl_word_odd(const bl_word *all, int size, int rank)
{
    bl_vote vote = bl_vote_by(all, size, are_same);
    return !vote.is_tie && !are_same(all, rank, vote.reference);
}

static void headline(const bl_word *all, int size, bl_vote vote, bl_report_fault *fault)
{
    char ranks[96], call[160], others[160];
    int best = vote.reference, odd = vote.odd;
    int n_others = n_like(all, size, best), n_more = size - n_others - n_like(all, size, odd);
    ranks_like(all, size, odd, ranks, sizeof ranks);
    bl_word_describe(&all[odd], call, sizeof call);
    bl_word_describe(&all[best], others, sizeof others);
    if (vote.is_tie)
        bl_words_add(fault->what, sizeof fault->what, "%s called %s, and as many called %s: a tie", ranks, call,
                     others);
    else if (n_others == 1)
        bl_words_add(fault->what, sizeof fault->what, "%s called %s, where the other called %s", ranks, call, others);
    else
        bl_words_add(fault->what, sizeof fault->what, "%s called %s, where %s%d others called %s", ranks, call,
                     n_more == 0 ? "the " : "", n_others, others);
    if (n_more > 0)
        bl_words_add(fault->what, sizeof fault->what, "; %d more differ%s", n_more, n_more == 1 ? "s" : "");
}

belay_code bl_words_compare(const bl_word *all, int size, bl_report_fault *fault)
{
    bl_vote vote = bl_vote_by(all, size, are_same);
    if (vote.odd < 0)
        return BELAY_OK;
    bl_report_fault_init(fault, BELAY_COMM_MISMATCH);
    headline(all, size, vote, fault);
    for (int r = 0; r < size; r++)
        if (is_first(all, r) && r != vote.reference)
            tell_side(all, size, r, fault);
    tell_side(all, size, vote.reference, fault);
    return BELAY_COMM_MISMATCH;
}
