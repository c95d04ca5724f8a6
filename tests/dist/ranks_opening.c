/* SPDX-License-Identifier: Apache-2.0 */
/* An opening that fails once MPI has been started: this program's MPI_Comm_dup stands in front of MPI's own. */
#include "dist/ranks.h"

__attribute__((visibility("default"))) int MPI_Comm_dup(void *from, void **out);
int MPI_Comm_dup(void *from, void **out)
{
    (void)from, (void)out;
    return 16; /* MPI_ERR_OTHER of Open MPI */
}

static void the_next_opening_says_that_one_failed(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_site_push(context, "here");
    assert_true(belay_group_is_nil(belay_group_open(context, NULL)));
    told_expect("belay: MPI: MPI_Comm_dup failed: MPI_ERR_OTHER: known error not in list (comm.failed)\n"
                "    called at: here\n" TOLD_START "%s",
                told_try(BELAY_COMM_FAILED));
    assert_true(belay_group_is_nil(belay_group_open(context, NULL)));
    told_expect("belay: a group over MPI failed in this process: MPI cannot be used in it again (comm.failed)\n"
                "    called at: here\n" TOLD_START "    try: Start the ranks anew.\n");
    assert_int_equal(belay_close(context), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_next_opening_says_that_one_failed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
