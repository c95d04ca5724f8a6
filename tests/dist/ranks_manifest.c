/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are about to train different things: all learn which rank differs, and in what.  The last rank is the odd
 * one; of two, nobody is. */
#include "dist/ranks.h"

#include <stdio.h>
#include <string.h>

#include <belay/belay.h>

typedef struct variant {
    const char *name;
    int64_t sizes[5];
    belay_dtype dtype;
    bool is_frozen;
    belay_ddp_options options;
    const char *about;        /* the item that differs */
    const char *odd, *common; /* what it says there */
} variant;

static const variant common = {.sizes = {3, 4, 2}, .options = {.batch = 8}};

static const variant variants[] = {
    {.name = "layer",
     .sizes = {3, 4, 4, 2},
     .options = {.batch = 8},
     .about = "parameter 2",
     .odd = "parameter 2: 2.weight f32 [4, 4], wants a gradient",
     .common = "parameter 2: 2.weight f32 [2, 4], wants a gradient"},
    {.name = "dtype",
     .sizes = {3, 4, 2},
     .dtype = BELAY_BF16,
     .options = {.batch = 8},
     .about = "parameter 0",
     .odd = "parameter 0: 0.weight bf16 [4, 3], wants a gradient",
     .common = "parameter 0: 0.weight f32 [4, 3], wants a gradient"},
    {.name = "shape",
     .sizes = {3, 2, 4},
     .options = {.batch = 8},
     .about = "parameter 0",
     .odd = "parameter 0: 0.weight f32 [2, 3], wants a gradient",
     .common = "parameter 0: 0.weight f32 [4, 3], wants a gradient"},
    {.name = "frozen",
     .sizes = {3, 4, 2},
     .is_frozen = true,
     .options = {.batch = 8},
     .about = "parameter 1",
     .odd = "parameter 1: 0.bias f32 [4]",
     .common = "parameter 1: 0.bias f32 [4], wants a gradient"},
    {.name = "batch",
     .sizes = {3, 4, 2},
     .options = {.batch = 6},
     .about = "batch",
     .odd = "batch: 6",
     .common = "batch: 8"},
    {.name = "buckets",
     .sizes = {3, 4, 2},
     .options = {.batch = 8, .bucket_bytes = 4096},
     .about = "bucket_bytes",
     .odd = "bucket_bytes: 4096",
     .common = "bucket_bytes: 26214400"},
    {.name = "unused",
     .sizes = {3, 4, 2},
     .options = {.batch = 8, .find_unused_parameters = true},
     .about = "find_unused_parameters",
     .odd = "find_unused_parameters: yes",
     .common = "find_unused_parameters: no"},
};

static belay_module *make(belay_context *context, const variant *v)
{
    belay_mlp_options options = {.dtype = v->dtype};
    memcpy(options.sizes, v->sizes, sizeof v->sizes);
    belay_module *module = belay_mlp(context, &options);
    if (v->is_frozen)
        belay_tensor_requires_grad_set(belay_module_find(module, "0.bias"), false);
    return module;
}

static void names_of(int size, char odd[32], char others[32])
{
    snprintf(odd, 32, "rank %d", size == 2 ? 1 : size - 1);
    if (size == 2)
        snprintf(others, 32, "rank 0");
    else
        snprintf(others, 32, size == 3 ? "ranks 0, 1" : "ranks 0, 1, 2");
}

static void run(const variant *v)
{
    ranks r = ranks_open(20);
    char odd[32], others[32];
    bool is_odd = r.rank == r.size - 1;
    names_of(r.size, odd, others);
    belay_module *module = make(r.context, is_odd ? v : &common);
    int line = __LINE__ + 1;
    belay_reducer *reducer = belay_ddp(module, r.group, is_odd ? &v->options : &common.options);
    assert_true(belay_reducer_is_nil(reducer));
    ranks_expect("belay: %s and %s are about to train different things: they differ in %s%s (comm.mismatch)\n"
                 "    called at: ranks_manifest.c:%d\n    %s: %s\n    %s: %s\n%s%s",
                 odd, others, v->about, r.size == 2 ? ", and as many say one as the other" : "", line, odd, v->odd,
                 others, v->common, ranks_start(&r), told_try(BELAY_COMM_MISMATCH));
    assert_int_equal(belay_close(r.context), 3);
}

static const variant *chosen;

static void what_differs_is_named(void **state)
{
    (void)state;
    run(chosen);
}

static void the_same_is_agreed_on_and_weights_are_rank_0s(void **state)
{
    (void)state;
    ranks r = ranks_open(20);
    float mine[4], all[4 * 4];
    belay_module *module = make(r.context, &common);
    belay_tensor bias = belay_module_find(module, "0.bias");
    for (int i = 0; i < 4; i++)
        mine[i] = (float)(10 * r.rank + i);
    assert_int_equal(belay_tensor_write(bias, mine, sizeof mine), BELAY_OK);
    assert_false(belay_reducer_is_nil(belay_ddp(module, r.group, NULL)));
    belay_tensor out = belay_zeros(r.context, BELAY_F32, belay_shape2(r.size, 4));
    assert_int_equal(belay_group_all_gather(r.group, bias, out), BELAY_OK);
    assert_int_equal(belay_tensor_read(out, all, r.size * 16), BELAY_OK);
    for (int i = 0; i < 4 * r.size; i++)
        assert_true(all[i] == (float)(i % 4));
    ranks_close(&r);
}

static void another_seed_is_a_difference(void **state)
{
    (void)state;
    told_clear();
    ranks r = {.context = belay_open(&(belay_options){
                   .device = "cpu", .log = told_remember, .no_journal = true, .seed = ranks_self() == 0 ? 7 : 8})};
    r.group = belay_group_open(r.context, &(belay_group_options){.timeout = 20});
    assert_int_equal(belay_group_bind(r.group, "cpu"), BELAY_OK);
    assert_true(belay_reducer_is_nil(belay_ddp(make(r.context, &common), r.group, NULL)));
    assert_non_null(strstr(told(), "they differ in seed"));
    assert_non_null(strstr(told(), "    rank 0: seed: 7\n"));
    assert_int_equal(belay_close(r.context), 3);
}

/* One rank cannot even begin: all hear at once which and why. */
static void a_rank_that_is_refused_tells_the_others(void **state)
{
    (void)state;
    ranks r = ranks_open(20);
    belay_ddp_options options = {.bucket_bytes = r.rank == 0 ? -1 : 0};
    belay_module *module = make(r.context, &common);
    int line = __LINE__ + 1;
    assert_true(belay_reducer_is_nil(belay_ddp(module, r.group, &options)));
    char own[512] = "";
    if (r.rank == 0)
        snprintf(own, sizeof own,
                 "belay: bucket_bytes of a reducer is -1, it must be at least 1 (conf.value)\n"
                 "    called at: ranks_manifest.c:%d\n%s%s",
                 line, ranks_start(&r), told_try(BELAY_CONF_VALUE));
    ranks_expect("%sbelay: rank 0 called manifest #1, which was refused there (conf.value), where the 2 others called "
                 "manifest #1 (comm.mismatch)\n    called at: ranks_manifest.c:%d\n"
                 "    rank 0: manifest #1, which was refused there (conf.value) at ranks_manifest.c:%d, step 0, batch "
                 "0:0\n    ranks 1, 2: manifest #1 at ranks_manifest.c:%d, step 0, batch 0:0\n%s%s",
                 own, line, line, line, ranks_start(&r), told_try(BELAY_COMM_MISMATCH));
    assert_int_equal(belay_close(r.context), r.rank == 0 ? 2 : 3);
}

/* All learn why from themselves, and the group goes on. */
static void what_all_ranks_are_refused_leaves_the_group_whole(void **state)
{
    (void)state;
    ranks r = ranks_open(20);
    belay_ddp_options options = {.first_bucket_bytes = -1};
    belay_module *module = make(r.context, &common);
    int line = __LINE__ + 1;
    assert_true(belay_reducer_is_nil(belay_ddp(module, r.group, &options)));
    ranks_expect("belay: first_bucket_bytes of a reducer is -1, it must be at least 1 (conf.value)\n"
                 "    called at: ranks_manifest.c:%d\n%s%s",
                 line, ranks_start(&r), told_try(BELAY_CONF_VALUE));
    belay_reducer *reducer = belay_ddp(module, r.group, NULL);
    assert_false(belay_reducer_is_nil(reducer));
    ranks_expect("%s", "");
    line = __LINE__ + 1;
    assert_true(belay_reducer_is_nil(belay_ddp(module, r.group, NULL)));
    ranks_expect("belay: parameter 0.weight already has a reducer (conf.order)\n"
                 "    called at: ranks_manifest.c:%d\n%s"
                 "    try: Free the other reducer first, or make one over a module that holds both parts.\n",
                 line, ranks_start(&r));
    assert_true(belay_reducer_is_nil(belay_ddp(NULL, r.group, NULL)));
    assert_int_equal(belay_group_barrier(r.group), BELAY_OK);
    belay_reducer_free(reducer);
    belay_group_close(r.group);
    ranks_expect("%s", "");
    assert_int_equal(belay_close(r.context), 2);
}

/* A group that failed is the last of its process: one case a run. */
int main(int argc, char **argv)
{
    const struct CMUnitTest differs[] = {cmocka_unit_test(what_differs_is_named)},
                            same[] = {cmocka_unit_test(the_same_is_agreed_on_and_weights_are_rank_0s)},
                            seed[] = {cmocka_unit_test(another_seed_is_a_difference)},
                            refused[] = {cmocka_unit_test(a_rank_that_is_refused_tells_the_others)},
                            alike[] = {cmocka_unit_test(what_all_ranks_are_refused_leaves_the_group_whole)};
    const char *word = argc > 1 ? argv[1] : "same";
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        if (strcmp(word, variants[i].name) == 0) {
            chosen = &variants[i];
            return cmocka_run_group_tests(differs, NULL, NULL);
        }
    if (strcmp(word, "alike") == 0)
        return cmocka_run_group_tests(alike, NULL, NULL);
    if (strcmp(word, "seed") == 0)
        return cmocka_run_group_tests(seed, NULL, NULL);
    if (strcmp(word, "refused") == 0)
        return cmocka_run_group_tests(refused, NULL, NULL);
    return strcmp(word, "same") == 0 ? cmocka_run_group_tests(same, NULL, NULL) : 2;
}
