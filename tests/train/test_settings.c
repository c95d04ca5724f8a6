/* SPDX-License-Identifier: Apache-2.0 */
/* Settings by their rows: defaults, limits at both ends, who wins, the way to JSON and back, memory that ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "train/settings.h"

static belay_code set(bl_settings *s, int setting, const char *value, bl_set_by by)
{
    return bl_settings_set(s, &bl_setting_rows[setting], value, by, "--x", NULL);
}

static void settings_start_with_the_defaults_of_their_rows(void **state)
{
    (void)state;
    bl_settings s;
    assert_int_equal(bl_settings_init(&s, NULL), BELAY_OK);
    assert_int_equal(s.seq, 20);
    assert_int_equal(s.accumulate, 4);
    assert_true(s.lr == 1e-3);
    assert_int_equal(s.model, BL_MODEL_LSTM);
    assert_string_equal(s.text, "text");
    assert_null(s.valid);
    assert_false(s.resume);
    assert_int_equal(s.skip_batch.n, 0);
    bl_settings_fini(&s);
}

/* JSON is UTF-8; a file may be called anything. */
static void a_name_that_is_no_utf8_goes_to_json_with_its_bytes_shown(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"b\xff\n.tsv", "b\\xFF\\x0A.tsv"}, {"\xc3\xa9\n.tsv", "\xc3\xa9\n.tsv"}};
    for (int i = 0; i < 2; i++) {
        bl_settings s;
        assert_int_equal(bl_settings_init(&s, NULL), BELAY_OK);
        assert_int_equal(set(&s, BL_SETTING_valid, names[i][0], BL_SET_BY_CALLER), BELAY_OK);
        json_t *json = bl_settings_to_json(&s);
        assert_string_equal(json_string_value(json_object_get(json_object_get(json, "valid"), "value")), names[i][1]);
        json_decref(json);
        bl_settings_fini(&s);
    }
}

/* Each row's default passes its own limits, unless words stand for it. */
static void defaults_are_within_their_limits(void **state)
{
    (void)state;
    for (int i = 0; i < BL_N_SETTINGS; i++) {
        const bl_setting_row *row = &bl_setting_rows[i];
        bl_text value = {0};
        bl_settings s;
        assert_int_equal(bl_settings_init(&s, NULL), BELAY_OK);
        bl_setting_default_describe(row, &value);
        if (row->words[0] == '\0' && value.n_bytes > 0)
            assert_int_equal(bl_settings_set(&s, row, bl_text_get(&value), BL_SET_BY_CALLER, row->name, NULL),
                             BELAY_OK);
        assert_true(strlen(row->help) > 0 && row->help[strlen(row->help) - 1] == '.');
        assert_ptr_equal(bl_setting_find(row->name), row);
        bl_text_fini(&value);
        bl_settings_fini(&s);
    }
}

/* Both ends, and the first value beyond each. */
static void limits_hold_at_both_ends(void **state)
{
    (void)state;
    static const struct {
        int setting;
        const char *value;
        bool fits;
    } cases[] = {{BL_SETTING_batch, "1", true},
                 {BL_SETTING_batch, "0", false},
                 {BL_SETTING_batch, "1000000", true},
                 {BL_SETTING_batch, "1000001", false},
                 {BL_SETTING_dropout, "0", true},
                 {BL_SETTING_dropout, "-1e-9", false},
                 {BL_SETTING_dropout, "0.999999", true},
                 {BL_SETTING_dropout, "1", false},
                 {BL_SETTING_lr, "1e-300", true},
                 {BL_SETTING_lr, "0", false},
                 {BL_SETTING_lr, "1000", true},
                 {BL_SETTING_lr, "1000.001", false},
                 {BL_SETTING_seed, "9223372036854775807", true},
                 {BL_SETTING_seed, "9223372036854775808", false},
                 {BL_SETTING_lr, "1e400", false},
                 {BL_SETTING_lr, "1e-3x", false},
                 {BL_SETTING_batch, " 3", false},
                 {BL_SETTING_batch, "+3", true},
                 {BL_SETTING_skip_batch, "0:0", true},
                 {BL_SETTING_skip_batch, "0:", false},
                 {BL_SETTING_skip_batch, "4294967296:0", false}};
    for (int i = 0; i < BL_COUNT(cases); i++) {
        bl_settings s;
        assert_int_equal(bl_settings_init(&s, NULL), BELAY_OK);
        belay_code code = set(&s, cases[i].setting, cases[i].value, BL_SET_BY_CALLER);
        if (code != (cases[i].fits ? BELAY_OK : BELAY_CONF_VALUE))
            fail_msg("%s %s gives %s", bl_setting_rows[cases[i].setting].name, cases[i].value, belay_code_name(code));
        bl_settings_fini(&s);
    }
}

static void the_caller_wins_over_config_and_run_whatever_the_order(void **state)
{
    (void)state;
    bl_settings s;
    assert_int_equal(bl_settings_init(&s, NULL), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_batch, "8", BL_SET_BY_CALLER), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_batch, "9", BL_SET_BY_CONFIG), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_seq, "7", BL_SET_BY_RUN), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_seq, "6", BL_SET_BY_CONFIG), BELAY_OK);
    assert_int_equal(s.batch, 8);
    assert_int_equal(s.set_by[BL_SETTING_batch], BL_SET_BY_CALLER);
    assert_int_equal(s.seq, 6);
    bl_settings_fini(&s);
}

static void pairs_of_a_stronger_source_replace_and_of_the_same_add(void **state)
{
    (void)state;
    bl_settings s;
    assert_int_equal(bl_settings_init(&s, NULL), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_skip_batch, "0:1", BL_SET_BY_CONFIG), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_skip_batch, "2:3", BL_SET_BY_CALLER), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_skip_batch, "4:5", BL_SET_BY_CALLER), BELAY_OK);
    assert_false(bl_pairs_has(&s.skip_batch, 0, 1));
    assert_true(bl_pairs_has(&s.skip_batch, 2, 3));
    assert_true(bl_pairs_has(&s.skip_batch, 4, 5));
    assert_false(bl_pairs_has(&s.skip_batch, 2, 5));
    bl_settings_fini(&s);
}

static void json_gives_every_setting_back(void **state)
{
    (void)state;
    bl_settings s, back;
    assert_int_equal(bl_settings_init(&s, NULL), BELAY_OK);
    assert_int_equal(bl_settings_init(&back, NULL), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_lr, "0.1", BL_SET_BY_CALLER), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_optimizer, "sgd", BL_SET_BY_CALLER), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_skip_batch, "2:3", BL_SET_BY_CALLER), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_drop_last, "on", BL_SET_BY_CALLER), BELAY_OK);
    assert_int_equal(set(&s, BL_SETTING_out, "run", BL_SET_BY_CALLER), BELAY_OK);
    json_t *json = bl_settings_to_json(&s);
    assert_non_null(json);
    assert_null(json_object_get(json, "out"));
    assert_true(json_is_null(json_object_get(json_object_get(json, "threads"), "value")));
    assert_int_equal(bl_settings_from_json(&back, json, BL_SET_BY_CONFIG, "run.json", NULL), BELAY_OK);
    assert_true(back.lr == s.lr);
    assert_int_equal(back.optimizer, BL_OPTIMIZER_SGD);
    assert_true(bl_pairs_has(&back.skip_batch, 2, 3));
    assert_true(back.drop_last);
    assert_int_equal(back.threads, 0);
    json_decref(json);
    bl_settings_fini(&s);
    bl_settings_fini(&back);
}

/* What the words of a value say is what sets it again. */
static void words_of_a_value_set_it(void **state)
{
    (void)state;
    static const struct {
        int setting;
        const char *value;
    } cases[] = {{BL_SETTING_lr, "0.30000000000000004"},
                 {BL_SETTING_lr, "1e-05"},
                 {BL_SETTING_batch, "17"},
                 {BL_SETTING_optimizer, "sgd"},
                 {BL_SETTING_drop_last, "on"},
                 {BL_SETTING_skip_batch, "2:3"},
                 {BL_SETTING_valid, "v.tsv"}};
    for (int i = 0; i < BL_COUNT(cases); i++) {
        bl_settings s;
        bl_text words = {0};
        assert_int_equal(bl_settings_init(&s, NULL), BELAY_OK);
        assert_int_equal(set(&s, cases[i].setting, cases[i].value, BL_SET_BY_CALLER), BELAY_OK);
        bl_setting_value_describe(&s, &bl_setting_rows[cases[i].setting], &words);
        assert_string_equal(bl_text_get(&words), cases[i].value);
        bl_text_fini(&words);
        bl_settings_fini(&s);
    }
}

static void the_stronger_source_says_what_is_validated_on(void **state)
{
    (void)state;
    static const struct {
        bl_set_by file, part; /* DEFAULT: not set */
        bool has_file, has_part;
        belay_code code;
    } cases[] = {{BL_SET_BY_CALLER, BL_SET_BY_DEFAULT, true, false, BELAY_OK},
                 {BL_SET_BY_CALLER, BL_SET_BY_RUN, true, false, BELAY_OK},
                 {BL_SET_BY_CALLER, BL_SET_BY_CONFIG, true, false, BELAY_OK},
                 {BL_SET_BY_CALLER, BL_SET_BY_CALLER, true, true, BELAY_CONF_CONFLICT},
                 {BL_SET_BY_CONFIG, BL_SET_BY_CALLER, false, true, BELAY_OK},
                 {BL_SET_BY_CONFIG, BL_SET_BY_CONFIG, true, true, BELAY_CONF_CONFLICT},
                 {BL_SET_BY_RUN, BL_SET_BY_RUN, true, false, BELAY_OK},
                 {BL_SET_BY_DEFAULT, BL_SET_BY_CALLER, false, true, BELAY_OK},
                 {BL_SET_BY_DEFAULT, BL_SET_BY_DEFAULT, false, true, BELAY_OK}};
    for (int i = 0; i < BL_COUNT(cases); i++) {
        bl_settings s;
        assert_int_equal(bl_settings_init(&s, NULL), BELAY_OK);
        assert_int_equal(set(&s, BL_SETTING_data, "d.tsv", BL_SET_BY_CALLER), BELAY_OK);
        assert_int_equal(set(&s, BL_SETTING_out, "run", BL_SET_BY_CALLER), BELAY_OK);
        if (cases[i].file != BL_SET_BY_DEFAULT)
            assert_int_equal(set(&s, BL_SETTING_valid, "v.tsv", cases[i].file), BELAY_OK);
        if (cases[i].part != BL_SET_BY_DEFAULT)
            assert_int_equal(set(&s, BL_SETTING_valid_split, "0.2", cases[i].part), BELAY_OK);
        bl_settings_resolve(&s);
        assert_int_equal(s.valid != NULL, cases[i].has_file);
        assert_int_equal(s.valid_split > 0, cases[i].has_part);
        assert_int_equal(bl_settings_check(&s, NULL), cases[i].code);
        bl_settings_fini(&s);
    }
}

/* What a run brings along may lie beyond fewer epochs; what a caller asks for may not. */
static void a_batch_to_skip_lies_in_an_epoch_of_the_run(void **state)
{
    (void)state;
    static const struct {
        bl_set_by by;
        const char *pair;
        belay_code code;
    } cases[] = {{BL_SET_BY_CALLER, "4:0", BELAY_OK},
                 {BL_SET_BY_CALLER, "5:0", BELAY_CONF_VALUE},
                 {BL_SET_BY_CONFIG, "5:0", BELAY_CONF_VALUE},
                 {BL_SET_BY_RUN, "5:0", BELAY_OK}};
    for (int i = 0; i < BL_COUNT(cases); i++) {
        bl_settings s;
        assert_int_equal(bl_settings_init(&s, NULL), BELAY_OK);
        assert_int_equal(set(&s, BL_SETTING_data, "d.tsv", BL_SET_BY_CALLER), BELAY_OK);
        assert_int_equal(set(&s, BL_SETTING_out, "run", BL_SET_BY_CALLER), BELAY_OK);
        assert_int_equal(set(&s, BL_SETTING_skip_batch, cases[i].pair, cases[i].by), BELAY_OK);
        assert_int_equal(bl_settings_check(&s, NULL), cases[i].code);
        bl_settings_fini(&s);
    }
}

static belay_code whole_way(void)
{
    bl_settings s, back;
    belay_code code = bl_settings_init(&s, NULL);
    belay_code second = bl_settings_init(&back, NULL);
    json_t *json = NULL;
    if (code == BELAY_OK)
        code = second;
    if (code == BELAY_OK)
        code = set(&s, BL_SETTING_skip_batch, "2:3", BL_SET_BY_CALLER);
    if (code == BELAY_OK && (json = bl_settings_to_json(&s)) == NULL)
        code = BELAY_MEM_EXHAUSTED;
    if (code == BELAY_OK)
        code = bl_settings_from_json(&back, json, BL_SET_BY_CONFIG, "run.json", NULL);
    json_decref(json);
    bl_settings_fini(&s);
    bl_settings_fini(&back);
    return code;
}

static void settings_survive_each_allocation_that_fails(void **state)
{
    (void)state;
    bool reached = true;
    int64_t n = 0;
    for (; reached; n++) {
        bl_memory_fail_at(n);
        belay_code code = whole_way();
        reached = bl_memory_failed();
        bl_memory_fail_at(-1);
        assert_int_equal(code, reached ? BELAY_MEM_EXHAUSTED : BELAY_OK);
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_start_with_the_defaults_of_their_rows),
        cmocka_unit_test(defaults_are_within_their_limits),
        cmocka_unit_test(limits_hold_at_both_ends),
        cmocka_unit_test(the_caller_wins_over_config_and_run_whatever_the_order),
        cmocka_unit_test(pairs_of_a_stronger_source_replace_and_of_the_same_add),
        cmocka_unit_test(json_gives_every_setting_back),
        cmocka_unit_test(a_name_that_is_no_utf8_goes_to_json_with_its_bytes_shown),
        cmocka_unit_test(words_of_a_value_set_it),
        cmocka_unit_test(the_stronger_source_says_what_is_validated_on),
        cmocka_unit_test(a_batch_to_skip_lies_in_an_epoch_of_the_run),
        cmocka_unit_test(settings_survive_each_allocation_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
