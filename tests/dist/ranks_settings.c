/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that were given other settings: named, with both values, on all of them. */
#include "dist/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "train/settings_agree.h"

static void give(bl_settings *s, const char *name, const char *value)
{
    bl_error error;
    assert_int_equal(bl_settings_set(s, bl_setting_find(name), value, BL_SET_BY_CALLER, name, &error), BELAY_OK);
}

static void settings_that_must_be_the_same_are_compared(void **state)
{
    (void)state;
    bl_settings s = {0};
    bl_error error;
    ranks r = ranks_open(0);
    char rest[64];
    assert_int_equal(bl_settings_init(&s, &error), BELAY_OK);
    give(&s, "threads", r.rank == 1 ? "1" : "2"); /* each its own */
    give(&s, "data", r.rank == 1 ? "/scratch/a.tsv" : "/home/a.tsv");
    assert_int_equal(bl_settings_agree(&s, r.group), BELAY_OK);
    told_expect("%s", "");
    give(&s, "lr", r.rank == 1 ? "0.01" : "0.001");
    give(&s, "skip-batch", r.rank == 1 ? "0:3" : "0:4"); /* the first that differs is told */
    assert_int_equal(bl_settings_agree(&s, r.group), BELAY_COMM_MISMATCH);
    snprintf(rest, sizeof rest, "%s", r.size == 2 ? "rank 0" : r.size == 3 ? "ranks 0, 2" : "ranks 0, 2, 3");
    ranks_expect("belay: --lr differs: rank 1 and %s%s (comm.mismatch)\n"
                 "    rank 1: 0.01\n"
                 "    %s: 0.001\n"
                 "%s"
                 "    try: Start all ranks by one command.\n",
                 rest, r.size == 2 ? "; as many say one as the other" : "", rest, ranks_start(&r));
    bl_settings_fini(&s);
    assert_int_equal(belay_close(r.context), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(settings_that_must_be_the_same_are_compared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
