/* SPDX-License-Identifier: Apache-2.0 */
/* DLPack: a consumer and a producer in C that share memory with tensors, and everything a struct may say that is refused. */
#include "support/seeds.h"
#include "support/told.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <belay/devices.h>
#include <belay/dlpack.h>
#include <belay/dlpack_abi.h>
#include <belay/launch.h>

#include "base/memory.h"

/* ---- a producer ------------------------------------------------------------------------------------------------------ */

/* Six floats that are lent, and how often their owner was told that they are free. */
typedef struct lender {
    float value[6];
    int64_t shape[9], stride[9];
    int n_ended;
    DLManagedTensor plain;
    DLManagedTensorVersioned versioned;
} lender;

static void end_plain(DLManagedTensor *self) { ((lender *)self->manager_ctx)->n_ended++; }
static void end_versioned(DLManagedTensorVersioned *self) { ((lender *)self->manager_ctx)->n_ended++; }

/* [2, 3] f32, row-major. */
static void lend(lender *l)
{
    *l = (lender){.value = {1, 2, 3, 4, 5, 6}, .shape = {2, 3}, .stride = {3, 1}};
    DLTensor tensor = {.data = l->value,
                       .device = {kDLCPU, 0},
                       .ndim = 2,
                       .dtype = {kDLFloat, 32, 1},
                       .shape = l->shape,
                       .strides = l->stride};
    l->plain = (DLManagedTensor){tensor, l, end_plain};
    l->versioned = (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                              .manager_ctx = l,
                                              .deleter = end_versioned,
                                              .dl_tensor = tensor};
}

static belay_context *open_with(belay_memory_mode mode)
{
    told_clear();
    belay_context *context = belay_open(&(belay_options){
        .log = told_remember, .no_journal = true, .memory = mode, .poison = mode != BELAY_MEMORY_POOL});
    assert_true(belay_is_open(context));
    return context;
}

/* ---- out ------------------------------------------------------------------------------------------------------------- */

static void an_exported_tensor_is_the_same_memory(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const float values[] = {1, 2, 3, 4, 5, 6}, after[] = {1, 2, 70, 4, 5, 6};
    float out[6];
    belay_tensor x = told_f32(context, belay_shape2(2, 3), values);
    DLManagedTensor *lent = belay_tensor_to_dlpack(belay_transpose(x, 0, 1));
    DLManagedTensorVersioned *other = belay_tensor_to_dlpack_versioned(x);
    const DLTensor *t = &lent->dl_tensor;
    assert_int_equal(t->device.device_type, kDLCPU);
    assert_int_equal(t->device.device_id, 0);
    assert_int_equal(t->ndim, 2);
    assert_int_equal(t->shape[0], 3);
    assert_int_equal(t->shape[1], 2);
    assert_int_equal(t->strides[0], 1);
    assert_int_equal(t->strides[1], 3);
    assert_int_equal(t->byte_offset, 0);
    assert_int_equal(other->version.major, 1);
    assert_int_equal(other->flags, 0);
    assert_ptr_equal(other->dl_tensor.data, t->data);
    ((float *)t->data)[2] = 70;
    told_read(x, out, 6);
    assert_memory_equal(out, after, sizeof out);
    lent->deleter(lent);
    other->deleter(other);
    told_close(context);
}

static void every_dtype_goes_out_and_comes_back(void **state)
{
    (void)state;
    static const struct {
        int code, bits;
    } expected[BELAY_N_DTYPES] = {{kDLFloat, 32}, {kDLFloat, 64}, {kDLBfloat, 16}, {kDLFloat, 16}, {kDLInt, 64},
                                  {kDLInt, 32},   {kDLUInt, 16},  {kDLUInt, 8},    {kDLBool, 8}};
    belay_context *context = told_open();
    for (int d = 0; d < BELAY_N_DTYPES; d++) {
        char bytes[3 * 8] = {0}, back[3 * 8];
        int64_t n_bytes = 3 * belay_dtype_size(d);
        for (int i = 0; i < n_bytes; i++)
            bytes[i] = (char)(d == BELAY_BOOL ? i & 1 : i + d);
        DLManagedTensor *lent = belay_tensor_to_dlpack(belay_tensor_from(context, d, belay_shape1(3), bytes, n_bytes));
        assert_int_equal(lent->dl_tensor.dtype.code, expected[d].code);
        assert_int_equal(lent->dl_tensor.dtype.bits, expected[d].bits);
        assert_int_equal(lent->dl_tensor.dtype.lanes, 1);
        belay_tensor again = belay_tensor_from_dlpack(context, lent);
        assert_int_equal(belay_tensor_dtype(again), d);
        assert_int_equal(belay_tensor_read(again, back, n_bytes), BELAY_OK);
        assert_memory_equal(back, bytes, n_bytes);
    }
    told_close(context);
}

static void exported_memory_outlives_tensor_scope_and_context(void **state)
{
    (void)state;
    for (int mode = BELAY_MEMORY_POOL; mode <= BELAY_MEMORY_EXACT_LEFT; mode++) {
        belay_context *context = open_with(mode);
        int64_t before = belay_memory_get(context).in_use;
        const float values[] = {1, 2, 3, 4, 5, 6};
        belay_scope scope = belay_scope_open(context);
        belay_tensor x = told_f32(context, belay_shape1(6), values);
        DLManagedTensor *lent = belay_tensor_to_dlpack(x), *other = belay_tensor_to_dlpack(x);
        belay_scope_close(scope);
        assert_int_equal(belay_memory_get(context).in_use, before);
        for (int i = 0; i < 8; i++) /* nobody else gets the block */
            (void)belay_full(context, BELAY_F32, belay_shape1(6), 9);
        assert_memory_equal(lent->dl_tensor.data, values, sizeof values);
        other->deleter(other);
        told_close(context);
        assert_memory_equal(lent->dl_tensor.data, values, sizeof values);
        lent->deleter(lent);
    }
}

static void an_export_that_ends_first_leaves_the_block_to_the_pool(void **state)
{
    (void)state;
    belay_context *context = open_with(BELAY_MEMORY_POOL);
    const float values[] = {1, 2, 3, 4, 5, 6};
    belay_scope scope = belay_scope_open(context);
    belay_tensor x = told_f32(context, belay_shape1(6), values);
    DLManagedTensor *lent = belay_tensor_to_dlpack(x);
    const void *block = lent->dl_tensor.data;
    lent->deleter(lent);
    belay_scope_close(scope);
    DLManagedTensor *next = belay_tensor_to_dlpack(told_f32(context, belay_shape1(6), values));
    assert_ptr_equal(next->dl_tensor.data, block);
    next->deleter(next);
    told_close(context);
}

static void a_red_zone_that_a_consumer_overwrote_is_told(void **state)
{
    (void)state;
    belay_context *context = open_with(BELAY_MEMORY_REDZONE);
    const float values[] = {1, 2, 3, 4, 5, 6};
    belay_site_push(context, "here");
    belay_scope scope = belay_scope_open(context);
    belay_tensor x = belay_tensor_name_set(told_f32(context, belay_shape1(6), values), "x");
    DLManagedTensor *lent = belay_tensor_to_dlpack(x);
    ((char *)lent->dl_tensor.data)[sizeof values] = 7;
    belay_scope_close(scope);
    assert_non_null(strstr(told(), "1 byte past the end of x (24 bytes)"));
    assert_non_null(strstr(told(), "(mem.redzone)"));
    lent->deleter(lent);
    assert_int_equal(belay_close(context), 3);
}

static void *end_all(void *exports)
{
    for (DLManagedTensor **lent = exports; *lent != NULL; lent++)
        (*lent)->deleter(*lent);
    return NULL;
}

static void exports_end_on_any_thread(void **state)
{
    (void)state;
    enum { THREADS = 3, EACH = 40 };
    static DLManagedTensor *lent[THREADS][EACH + 1];
    belay_context *context = told_open();
    const float values[] = {1, 2, 3, 4, 5, 6};
    pthread_t thread[THREADS];
    belay_scope scope = belay_scope_open(context);
    for (int i = 0; i < EACH; i++) {
        belay_tensor x = told_f32(context, belay_shape1(6), values);
        for (int t = 0; t < THREADS; t++)
            lent[t][i] = belay_tensor_to_dlpack(x);
    }
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, end_all, lent[t]), 0);
    belay_scope_close(scope); /* meanwhile */
    told_close(context);
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_join(thread[t], NULL), 0);
}

static void a_tensor_without_elements_goes_out_and_comes_back(void **state)
{
    (void)state;
    belay_context *context = told_open();
    float nothing;
    DLManagedTensor *lent = belay_tensor_to_dlpack(belay_zeros(context, BELAY_F32, belay_shape3(2, 0, 3)));
    assert_null(lent->dl_tensor.data);
    assert_int_equal(lent->dl_tensor.shape[1], 0);
    belay_tensor again = belay_tensor_from_dlpack(context, lent);
    assert_int_equal(belay_tensor_n_elements(again), 0);
    assert_int_equal(belay_tensor_read(again, &nothing, 0), BELAY_OK);
    assert_true(belay_tensor_item(belay_sum(again, NULL)) == 0);
    told_close(context);
}

static void a_device_that_only_kernels_read_is_not_exported(void **state)
{
    (void)state;
    belay_context *context = seeds_open(1, &(belay_options){.device = "sim:0"});
    belay_site_push(context, "here");
    belay_tensor x = belay_tensor_name_set(belay_zeros(context, BELAY_F32, belay_shape2(2, 3)), "hidden");
    assert_null(belay_tensor_to_dlpack(x));
    told_expect("belay: tensor hidden [2, 3] f32 lies on sim:0, where no other library can read it (place.host)\n"
                "    called at: here\n" TOLD_START "    try: Export belay_tensor_to(tensor, \"cpu\").\n");
    DLManagedTensorVersioned *lent = belay_tensor_to_dlpack_versioned(belay_tensor_to(x, "cpu"));
    assert_true(((const float *)lent->dl_tensor.data)[5] == 0);
    lent->deleter(lent);
    assert_null(belay_tensor_to_dlpack((belay_tensor){0}));
    assert_string_equal(told(), "");
    (void)belay_close(context);
}

/* ---- in -------------------------------------------------------------------------------------------------------------- */

static void an_import_shares_every_byte_with_its_owner(void **state)
{
    (void)state;
    belay_context *context = told_open();
    lender l;
    lend(&l);
    belay_tensor x = belay_tensor_from_dlpack(context, &l.plain);
    const float others[] = {9, 8, 7, 6, 5, 4};
    float out[6];
    told_read(x, out, 6);
    assert_memory_equal(out, l.value, sizeof out);
    l.value[4] = 50;
    told_read(x, out, 6);
    assert_true(out[4] == 50);
    assert_int_equal(belay_tensor_write(x, others, sizeof others), BELAY_OK);
    assert_memory_equal(l.value, others, sizeof others);
    belay_tensor square = belay_matmul(x, belay_transpose(x, 0, 1)); /* its sum: of the columns' sums, squared */
    assert_true(belay_tensor_item(belay_sum(square, NULL)) == 15 * 15 + 13 * 13 + 11 * 11);
    told_close(context);
    assert_int_equal(l.n_ended, 1);
}

static void an_import_ends_once_with_the_last_that_holds_it(void **state)
{
    (void)state;
    belay_context *context = told_open();
    lender l;
    lend(&l);
    belay_scope outer = belay_scope_open(context), inner = belay_scope_open(context);
    belay_tensor x = belay_tensor_from_dlpack_versioned(context, &l.versioned);
    belay_tensor view = belay_keep(belay_transpose(x, 0, 1));
    belay_scope_close(inner);
    assert_int_equal(l.n_ended, 0);
    assert_false(belay_tensor_is_alive(x));
    DLManagedTensor *lent = belay_tensor_to_dlpack(view); /* lent on */
    assert_ptr_equal(lent->dl_tensor.data, l.value);
    belay_scope_close(outer);
    assert_int_equal(l.n_ended, 0);
    told_close(context);
    assert_int_equal(l.n_ended, 0);
    lent->deleter(lent);
    assert_int_equal(l.n_ended, 1);
}

static void a_gradient_flows_to_an_import_and_the_tape_holds_it(void **state)
{
    (void)state;
    belay_context *context = told_open();
    lender l;
    lend(&l);
    belay_tensor x = belay_tensor_requires_grad_set(belay_tensor_from_dlpack(context, &l.plain), true);
    belay_backward(belay_sum(belay_mul(x, x), NULL));
    float grad[6];
    told_read(belay_tensor_grad(x), grad, 6);
    for (int i = 0; i < 6; i++)
        assert_true(grad[i] == 2 * l.value[i]);
    belay_tensor loss = belay_sum(belay_mul(x, x), NULL);
    belay_tensor_free(x);
    assert_int_equal(l.n_ended, 0); /* the tape needs it */
    belay_backward(loss);
    assert_int_equal(l.n_ended, 1);
    belay_faults_clear(context);
    (void)belay_close(context);
}

static void strides_offset_and_row_major_mean_what_dlpack_says(void **state)
{
    (void)state;
    belay_context *context = told_open();
    lender l;
    float out[6];
    lend(&l); /* the middle column twice over: [2, 2], strides 3 and 0, from byte 4 on */
    l.plain.dl_tensor.byte_offset = 4;
    l.shape[1] = 2, l.stride[1] = 0;
    told_read(belay_tensor_from_dlpack(context, &l.plain), out, 4);
    assert_memory_equal(out, ((const float[]){2, 2, 5, 5}), 4 * sizeof *out);
    lender packed;
    lend(&packed);
    packed.plain.dl_tensor.strides = NULL;
    told_read(belay_tensor_from_dlpack(context, &packed.plain), out, 6);
    assert_memory_equal(out, packed.value, sizeof out);
    lender scalar;
    lend(&scalar);
    scalar.plain.dl_tensor.ndim = 0;
    scalar.plain.dl_tensor.shape = scalar.plain.dl_tensor.strides = NULL;
    assert_true(belay_tensor_item(belay_tensor_from_dlpack(context, &scalar.plain)) == 1);
    lender single; /* a stride that is never walked may be anything */
    lend(&single);
    single.shape[0] = 1, single.stride[0] = INT64_MIN;
    belay_tensor row = belay_tensor_from_dlpack(context, &single.plain);
    assert_true(belay_tensor_is_contiguous(row));
    lender pinned;
    lend(&pinned);
    pinned.plain.dl_tensor.device.device_type = kDLCUDAHost;
    assert_false(belay_tensor_is_nil(belay_tensor_from_dlpack(context, &pinned.plain)));
    lender unowned;
    lend(&unowned);
    unowned.plain.deleter = NULL;
    assert_false(belay_tensor_is_nil(belay_tensor_from_dlpack(context, &unowned.plain)));
    told_close(context);
    assert_int_equal(l.n_ended + packed.n_ended + scalar.n_ended + single.n_ended + pinned.n_ended, 5);
    assert_int_equal(unowned.n_ended, 0);
}

static void an_import_on_a_device_context_lies_on_cpu(void **state)
{
    (void)state;
    belay_context *context = seeds_open(1, &(belay_options){.device = "sim:0"});
    lender l;
    lend(&l);
    belay_tensor x = belay_tensor_from_dlpack(context, &l.plain);
    assert_string_equal(belay_tensor_device(x), "cpu");
    assert_true(belay_tensor_item(belay_sum(belay_tensor_to(x, "sim:0"), NULL)) == 21);
    told_close(context);
    assert_int_equal(l.n_ended, 1);
}

/* ---- refused --------------------------------------------------------------------------------------------------------- */

/* What was changed in a struct that is fine, and the paragraph. */
typedef struct refusal {
    void (*spoil)(lender *l);
    const char *headline, *facts, *advice;
} refusal;

static void on_cuda(lender *l) { l->plain.dl_tensor.device.device_type = kDLCUDA; }
static void on_no_device(lender *l) { l->plain.dl_tensor.device.device_type = (DLDeviceType)0; }
static void on_second_host(lender *l) { l->plain.dl_tensor.device.device_id = 1; }
static void of_i8(lender *l) { l->plain.dl_tensor.dtype = (DLDataType){kDLInt, 8, 1}; }
static void of_two_lanes(lender *l) { l->plain.dl_tensor.dtype.lanes = 2; }
static void of_no_lane(lender *l) { l->plain.dl_tensor.dtype.lanes = 0; }
static void of_nine_axes(lender *l) { l->plain.dl_tensor.ndim = 9; }
static void of_minus_one_axis(lender *l) { l->plain.dl_tensor.ndim = -1; }
static void without_shape(lender *l) { l->plain.dl_tensor.shape = NULL; }
static void of_negative_size(lender *l) { l->shape[1] = -3; }
static void of_too_many_elements(lender *l) { l->shape[0] = INT64_MAX / 4, l->shape[1] = 2; }
static void without_elements_of_too_many(lender *l)
{
    l->plain.dl_tensor.ndim = 3;
    l->shape[0] = 0, l->shape[1] = l->shape[2] = INT64_MAX;
}
static void with_a_negative_stride(lender *l) { l->stride[1] = -1; }
static void with_a_huge_stride(lender *l) { l->stride[0] = INT64_MAX / 2; }
static void without_data(lender *l) { l->plain.dl_tensor.data = NULL; }
static void past_memory(lender *l) { l->plain.dl_tensor.byte_offset = UINT64_MAX - 3; }
static void off_its_alignment(lender *l) { l->plain.dl_tensor.byte_offset = 2; }

static const refusal refusals[] = {
    {on_cuda, "the tensor lies on device type 2 of DLPack, which the host cannot read (place.host)", "",
     "Move it to the host first: tensor.cpu() in PyTorch."},
    {on_no_device, "the tensor lies on device type 0 of DLPack, which the host cannot read (place.host)", "",
     "Move it to the host first: tensor.cpu() in PyTorch."},
    {on_second_host, "device_id is 1: memory of the host has 0 (conf.value)", "", "This is the producer's to mend."},
    {of_i8, "the elements have type code 0 of DLPack, 8 bits and 1 lane, no dtype of Belay's (type.dtype)",
     "    dtypes: f32, f64, bf16, f16, i64, i32, u16, u8, bool\n",
     "Cast it first: tensor.to(torch.float32) in PyTorch."},
    {of_two_lanes, "the elements have type code 2 of DLPack, 32 bits and 2 lanes, no dtype of Belay's (type.dtype)",
     "    dtypes: f32, f64, bf16, f16, i64, i32, u16, u8, bool\n",
     "Cast it first: tensor.to(torch.float32) in PyTorch."},
    {of_no_lane, "the elements have type code 2 of DLPack, 32 bits and 0 lanes, no dtype of Belay's (type.dtype)",
     "    dtypes: f32, f64, bf16, f16, i64, i32, u16, u8, bool\n",
     "Cast it first: tensor.to(torch.float32) in PyTorch."},
    {of_nine_axes, "a tensor of 9 axes: Belay's have 0 to 8 (shape.rank)", "", NULL},
    {of_minus_one_axis, "a tensor of -1 axes: Belay's have 0 to 8 (shape.rank)", "", NULL},
    {without_shape, "shape is NULL for a tensor of 2 axes (conf.missing)", "", NULL},
    {of_negative_size, "a tensor of shape [2, -3] has a negative size (shape.contract)", "", NULL},
    {of_too_many_elements, "a tensor of shape [2305843009213693951, 2] has more bytes than 2^63 - 1 (size.overflow)",
     "", NULL},
    {without_elements_of_too_many,
     "a tensor of shape [0, 9223372036854775807, 9223372036854775807] has more bytes than 2^63 - 1 (size.overflow)", "",
     NULL},
    {with_a_negative_stride, "axis 1 has stride -1: Belay walks forward only (shape.contract)", "",
     "Copy it first: numpy.ascontiguousarray(array) in NumPy."},
    {with_a_huge_stride, "a tensor of shape [2, 3] spans more bytes than 2^63 - 1 by its strides (size.overflow)", "",
     NULL},
    {without_data, "data is NULL for a tensor of 6 elements (conf.missing)", "", NULL},
    {past_memory, "24 bytes at byte_offset 18446744073709551612 reach past the end of memory (size.overflow)", "",
     NULL},
    {off_its_alignment, "data lies at an address that is no multiple of 4, the size of f32 (conf.value)", "",
     "Copy it first; a slice of raw bytes is the usual reason."},
};

static belay_code code_of(const char *headline)
{
    char name[64] = "";
    (void)sscanf(strrchr(headline, '(') + 1, "%63[^)]", name);
    for (int code = 1; code < 1000; code++)
        if (strcmp(belay_code_name(code), name) == 0)
            return code;
    return BELAY_OK;
}

static void every_field_is_checked_before_it_is_used(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_site_push(context, "here");
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        lender l;
        lend(&l);
        r->spoil(&l);
        l.versioned.dl_tensor = l.plain.dl_tensor;
        char advice[256];
        snprintf(advice, sizeof advice, "    try: %s\n",
                 r->advice != NULL ? r->advice : belay_code_advice(code_of(r->headline)));
        assert_true(belay_tensor_is_nil(belay_tensor_from_dlpack(context, &l.plain)));
        told_expect("belay: %s\n    called at: here\n%s" TOLD_START "%s", r->headline, r->facts, advice);
        assert_true(belay_tensor_is_nil(belay_tensor_from_dlpack_versioned(context, &l.versioned)));
        told_expect("belay: %s\n    called at: here\n%s" TOLD_START "%s", r->headline, r->facts, advice);
        assert_int_equal(l.n_ended, 0); /* nothing was taken over */
    }
    belay_faults_clear(context);
    (void)belay_close(context);
}

static void no_tensor_and_another_version_are_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    lender l;
    lend(&l);
    belay_site_push(context, "here");
    assert_true(belay_tensor_is_nil(belay_tensor_from_dlpack(context, NULL)));
    told_expect("belay: a tensor was to be imported from NULL (conf.missing)\n    called at: here\n" TOLD_START "%s",
                told_try(BELAY_CONF_MISSING));
    assert_true(belay_tensor_is_nil(belay_tensor_from_dlpack_versioned(context, NULL)));
    told_expect("belay: a tensor was to be imported from NULL (conf.missing)\n    called at: here\n" TOLD_START "%s",
                told_try(BELAY_CONF_MISSING));
    l.versioned.version.major = 2;
    assert_true(belay_tensor_is_nil(belay_tensor_from_dlpack_versioned(context, &l.versioned)));
    told_expect(
        "belay: the tensor comes by version 2.1 of DLPack, read is 1 (conf.value)\n    called at: here\n" TOLD_START
        "    try: Ask the producer for version 1: max_version=(1, 1) in Python.\n");
    assert_int_equal(l.n_ended, 0);
    (void)belay_close(context);
    assert_true(belay_tensor_is_nil(belay_tensor_from_dlpack(NULL, &l.plain)));
}

BELAY_KERNEL(overwrite, "N: -> y[N]", work, i) { BELAY_AT1(float, belay_view_of(work, 0), i) = 0; }

/* By either struct, in any context, and while only an export of the import holds the memory. */
static void a_struct_is_imported_once(void **state)
{
    (void)state;
    belay_context *context = told_open();
    lender l;
    lend(&l);
    belay_scope scope = belay_scope_open(context);
    belay_tensor x = belay_tensor_from_dlpack(context, &l.plain);
    DLManagedTensor *again = belay_tensor_to_dlpack(x);
    belay_context *other = belay_open(&(belay_options){.log = told_remember, .no_journal = true});
    belay_context *contexts[] = {context, other, context};
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            belay_scope_close(scope);
        assert_true(belay_tensor_is_nil(belay_tensor_from_dlpack(contexts[i], &l.plain)));
        told_expect("belay: a tensor was to be imported by a struct that has been imported (conf.order)\n"
                    "    called at: test_dlpack.c:%d\n" TOLD_START
                    "    try: Use the tensor that the first import gave, or let the producer export another struct.\n",
                    __LINE__ - 4);
    }
    assert_int_equal(l.n_ended, 0);
    again->deleter(again);
    assert_int_equal(l.n_ended, 1);
    lend(&l); /* the same place in memory, another loan */
    x = belay_tensor_from_dlpack(context, &l.plain);
    assert_false(belay_tensor_is_nil(x));
    told_expect("%s", "");
    belay_close(other);
    belay_close(context);
    assert_int_equal(l.n_ended, 1);
}

static void what_was_lent_to_be_read_is_never_written(void **state)
{
    (void)state;
    static const char what[] = "tensor scores [2, 3] f32 was to be written, in memory that was lent to be read only";
    belay_context *context = told_open();
    lender l;
    lend(&l);
    l.versioned.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    belay_site_push(context, "here");
    belay_tensor x = belay_tensor_name_set(belay_tensor_from_dlpack_versioned(context, &l.versioned), "scores");
    assert_true(belay_tensor_item(belay_sum(belay_mul(x, x), NULL)) == 91);
    const float before[] = {1, 2, 3, 4, 5, 6}, zeros[6] = {0};
    assert_int_equal(belay_tensor_write(x, zeros, sizeof zeros), BELAY_LIFE_READ_ONLY);
    told_expect("belay: %s (life.read_only)\n    called at: here\n" TOLD_START "%s", what,
                told_try(BELAY_LIFE_READ_ONLY));
    belay_host host = belay_host_new(context, sizeof zeros);
    assert_int_equal(belay_tensor_write_later(x, host, 0, sizeof zeros), BELAY_LIFE_READ_ONLY);
    told_expect("belay: %s (life.read_only)\n    called at: here\n" TOLD_START "%s", what,
                told_try(BELAY_LIFE_READ_ONLY));
    belay_tensor flat = belay_view(x, belay_shape1(6));
    belay_launch(context, &overwrite, &(belay_launch_options){.n_items = 6, .operand = {flat}});
    told_expect(
        "belay: tensor scores [6] f32 was to be written, in memory that was lent to be read only "
        "(life.read_only)\n    op: overwrite, called at here\n    tensors: scores [6] f32 (output); on cpu\n" TOLD_START
        "%s",
        told_try(BELAY_LIFE_READ_ONLY));
    assert_null(belay_tensor_to_dlpack(x));
    told_expect("belay: memory that was lent to be read only was to be lent on by a struct that cannot say so "
                "(life.read_only)\n    called at: here\n" TOLD_START
                "    try: Use belay_tensor_to_dlpack_versioned.\n");
    DLManagedTensorVersioned *lent = belay_tensor_to_dlpack_versioned(x);
    assert_int_equal(lent->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    lent->deleter(lent);
    assert_memory_equal(l.value, before, sizeof before);
    (void)belay_close(context);
    assert_int_equal(l.n_ended, 1);
}

static void memory_that_ends_takes_nothing_over(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        belay_context *context = told_open();
        lender l;
        lend(&l);
        const float values[] = {1, 2, 3, 4, 5, 6};
        belay_tensor x = told_f32(context, belay_shape1(6), values);
        bl_memory_fail_at(n);
        belay_tensor in = belay_tensor_from_dlpack(context, &l.plain);
        DLManagedTensor *out = belay_tensor_to_dlpack(x);
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        bool is_in = !belay_tensor_is_nil(in);
        if (out != NULL)
            out->deleter(out);
        assert_true(failed || (is_in && out != NULL));
        assert_true(failed == (strstr(told(), "(mem.exhausted)") != NULL));
        (void)belay_close(context);
        assert_int_equal(l.n_ended, is_in ? 1 : 0);
        if (!failed)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exported_tensor_is_the_same_memory),
        cmocka_unit_test(every_dtype_goes_out_and_comes_back),
        cmocka_unit_test(exported_memory_outlives_tensor_scope_and_context),
        cmocka_unit_test(an_export_that_ends_first_leaves_the_block_to_the_pool),
        cmocka_unit_test(a_red_zone_that_a_consumer_overwrote_is_told),
        cmocka_unit_test(exports_end_on_any_thread),
        cmocka_unit_test(a_tensor_without_elements_goes_out_and_comes_back),
        cmocka_unit_test(a_device_that_only_kernels_read_is_not_exported),
        cmocka_unit_test(an_import_shares_every_byte_with_its_owner),
        cmocka_unit_test(an_import_ends_once_with_the_last_that_holds_it),
        cmocka_unit_test(a_gradient_flows_to_an_import_and_the_tape_holds_it),
        cmocka_unit_test(strides_offset_and_row_major_mean_what_dlpack_says),
        cmocka_unit_test(an_import_on_a_device_context_lies_on_cpu),
        cmocka_unit_test(every_field_is_checked_before_it_is_used),
        cmocka_unit_test(no_tensor_and_another_version_are_refused),
        cmocka_unit_test(a_struct_is_imported_once),
        cmocka_unit_test(what_was_lent_to_be_read_is_never_written),
        cmocka_unit_test(memory_that_ends_takes_nothing_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
