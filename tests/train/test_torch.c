/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints go to PyTorch and come from it, by parameter name, with the same logits.  Skipped where python3-torch is
 * not installed. */
#include "train/train_support.h"

#include <sys/wait.h>

enum { ROWS = 40 };

static char folder[512];

static const char *in_folder(const char *name)
{
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* Ids with padding at the end of some rows. */
static void write_ids(int64_t ids[ROWS * SEQ])
{
    bl_rng_key key = {.seed = 5};
    for (int64_t i = 0; i < ROWS * SEQ; i++)
        ids[i] = (i % SEQ) > (i / SEQ) % 7 ? 0 : 1 + (int64_t)bl_rng_below(&key, (uint64_t)i, VOCABULARY - 1);
    FILE *file = fopen(in_folder("ids"), "wb");
    assert_int_equal(fwrite(ids, sizeof *ids, ROWS * SEQ, file), ROWS * SEQ);
    fclose(file);
}

/* Skips the test where there is no PyTorch. */
static void run_python(const char *arguments)
{
    char command[4096];
    snprintf(command, sizeof command, "env -u LD_PRELOAD /usr/bin/python3 %s/tests/train/torch_model.py %s",
             BELAY_SOURCE_DIR, arguments);
    int status = system(command);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
        print_message("skipped: python3-torch is not installed\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* Belay's logits for the ids against those in the file. */
static void compare_logits(belay_context *context, belay_module *model, const int64_t *ids)
{
    float ours[ROWS * CLASSES], theirs[ROWS * CLASSES];
    belay_recording_set(context, false);
    belay_module_training_set(model, false);
    belay_tensor tokens = belay_tensor_from(context, BELAY_I64, belay_shape2(ROWS, SEQ), ids, ROWS * SEQ * 8);
    assert_int_equal(belay_tensor_read(belay_forward(model, tokens), ours, sizeof ours), BELAY_OK);
    FILE *file = fopen(in_folder("logits"), "rb");
    assert_int_equal(fread(theirs, sizeof *theirs, ROWS * CLASSES, file), ROWS * CLASSES);
    fclose(file);
    for (int i = 0; i < ROWS * CLASSES; i++)
        if (!(fabsf(ours[i] - theirs[i]) <= 1e-5f))
            fail_msg("logit %d is %.9g here and %.9g there", i, (double)ours[i], (double)theirs[i]);
}

static void check_to_torch(bool is_mean)
{
    char arguments[3072];
    int64_t ids[ROWS * SEQ];
    trial t = new_trial();
    make_folder(folder);
    t.is_mean = is_mean;
    t.options.out = folder;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_OK);
    end_trial(&t);
    write_ids(ids);
    snprintf(arguments, sizeof arguments, "load %s %s %s", in_folder("best.safetensors"), in_folder("ids"),
             in_folder("logits"));
    run_python(arguments);
    belay_context *context = belay_open(&(belay_options){.threads = 1, .no_journal = true});
    belay_run *run = belay_run_open(context, folder);
    assert_false(belay_run_is_nil(run));
    compare_logits(context, belay_run_model(run), ids);
    assert_int_equal(belay_close(context), 0);
    remove_folder(folder);
}

static void check_from_torch(const char *kind)
{
    char arguments[3072];
    int64_t ids[ROWS * SEQ];
    make_folder(folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    write_ids(ids);
    snprintf(arguments, sizeof arguments, "make %s %s %s %s", kind, in_folder("best.safetensors"), in_folder("ids"),
             in_folder("logits"));
    run_python(arguments);
    belay_context *context = belay_open(&(belay_options){.threads = 1, .no_journal = true});
    belay_run *run = belay_run_open(context, folder);
    assert_false(belay_run_is_nil(run));
    compare_logits(context, belay_run_model(run), ids);
    assert_int_equal(belay_close(context), 0);
    remove_folder(folder);
}

static void an_lstm_trained_here_gives_the_same_logits_in_torch(void **state)
{
    (void)state;
    check_to_torch(false);
}

static void a_mean_model_trained_here_gives_the_same_logits_in_torch(void **state)
{
    (void)state;
    check_to_torch(true);
}

static void an_lstm_of_torch_gives_the_same_logits_here(void **state)
{
    (void)state;
    check_from_torch("lstm");
}

static void a_mean_model_of_torch_gives_the_same_logits_here(void **state)
{
    (void)state;
    check_from_torch("mean");
}

static int clean_up(void **state)
{
    (void)state;
    if (access(folder, F_OK) == 0)
        remove_folder(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(an_lstm_trained_here_gives_the_same_logits_in_torch, clean_up),
        cmocka_unit_test_teardown(a_mean_model_trained_here_gives_the_same_logits_in_torch, clean_up),
        cmocka_unit_test_teardown(an_lstm_of_torch_gives_the_same_logits_here, clean_up),
        cmocka_unit_test_teardown(a_mean_model_of_torch_gives_the_same_logits_here, clean_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
