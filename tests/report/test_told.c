/* SPDX-License-Identifier: Apache-2.0 */
/* A fault of a real call, as people and programs get it. */
#include "support/told.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "report/site.h"

static int quote(void **state)
{
    (void)state;
    bl_report_site_source_set(true);
    return 0;
}

#define LIKELY                                                                                                         \
    "    likely: the value equals the bound: off by one, or a padding or special id that the table was not grown "     \
    "for\n"
#define TRY_THIS                                                                                                       \
    "    try: Count ids from 0; a padding or special token needs a row of its own: make the table one row larger.\n"

static void the_line_of_the_call_is_quoted(void **state)
{
    (void)state;
#ifdef BL_HAVE_LIBDW
    belay_context *context = told_open();
    const int64_t ids[] = {0, 3};
    belay_tensor w = belay_zeros(context, BELAY_F32, belay_shape2(3, 2));
    belay_tensor i = belay_tensor_from(context, BELAY_I64, belay_shape1(2), ids, sizeof ids);
    belay_embedding(w, i, NULL); /* a bad id */
    told_expect("belay: ids[1] is 3, outside [0, 3) of weight (index.range)\n"
                "    op: embedding, called at test_told.c:%d\n"
                "    source: belay_embedding(w, i, NULL); /* a bad id */\n"
                "    tensors: weight [3, 2] f32; ids [2] i64; on cpu\n"
                "    bad: 1 of 2 elements; values 3\n" TOLD_START LIKELY TRY_THIS,
                __LINE__ - 6);
    assert_int_equal(belay_close(context), 3);
#else
    skip();
#endif
}

static void a_label_is_no_line_of_source(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const int64_t ids[] = {0, 3};
    belay_tensor w = belay_zeros(context, BELAY_F32, belay_shape2(3, 2));
    belay_tensor i = belay_tensor_from(context, BELAY_I64, belay_shape1(2), ids, sizeof ids);
    belay_site_push(context, "model.py:31");
    belay_embedding(w, i, NULL);
    belay_site_pop(context);
    told_expect("belay: ids[1] is 3, outside [0, 3) of weight (index.range)\n"
                "    op: embedding, called at model.py:31\n"
                "    tensors: weight [3, 2] f32; ids [2] i64; on cpu\n"
                "    bad: 1 of 2 elements; values 3\n" TOLD_START LIKELY TRY_THIS);
    assert_int_equal(belay_close(context), 3);
}

static void programs_get_every_fact_as_json(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const int64_t ids[] = {0, 3};
    belay_tensor w = belay_zeros(context, BELAY_F32, belay_shape2(3, 2));
    belay_tensor i = belay_tensor_from(context, BELAY_I64, belay_shape1(2), ids, sizeof ids);
    belay_site_push(context, "model.py:31");
    belay_embedding(w, i, NULL);
    belay_site_pop(context);
    belay_fault fault;
    assert_true(belay_fault_first(context, &fault));
    json_t *root = json_loads(fault.json, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    const char *text, *reason, *site;
    assert_int_equal(json_unpack(root, "{s:s, s:s, s:s}", "text", &text, "reason", &reason, "site", &site), 0);
    assert_string_equal(text, fault.text);
    assert_string_equal(reason, "bound");
    assert_string_equal(site, "model.py:31");
    json_decref(root);
    assert_int_equal(belay_close(context), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_line_of_the_call_is_quoted),
        cmocka_unit_test(a_label_is_no_line_of_source),
        cmocka_unit_test(programs_get_every_fact_as_json),
    };
    return cmocka_run_group_tests(tests, quote, NULL);
}
