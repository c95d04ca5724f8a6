/* SPDX-License-Identifier: Apache-2.0 */
/* What ops refuse, by whole text, for one op of each skeleton; nil goes in and comes out without a word. */
#include "op/numbers.h"

static const char *when = "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n";

/* Compilers disagree which line a macro's call has when it fills several: any from its first to its last will do. */
static int line_told(int last)
{
    const char *at = strstr(told, "test_faults.c:");
    int line = at != NULL ? atoi(at + strlen("test_faults.c:")) : 0;
    return line <= last && line > last - 4 ? line : last;
}

/* The paragraph of a proof that failed in the call of this line. */
#define REFUSED(call, headline, op, tensors, code)                                                                     \
    do {                                                                                                               \
        char text_[2048];                                                                                              \
        told[0] = '\0';                                                                                                \
        assert_true(belay_tensor_is_nil(call));                                                                        \
        snprintf(text_, sizeof text_,                                                                                  \
                 "belay: %s (%s)\n    op: %s, called at test_faults.c:%d\n    tensors: %s; on cpu\n%s    try: %s\n",   \
                 headline, belay_code_name(code), op, line_told(__LINE__), tensors, when, belay_code_advice(code));    \
        assert_words_equal(told, text_);                                                                               \
    } while (0)

/* The same for what is refused before there is a kernel. */
#define REFUSED_EARLY(call, headline, code)                                                                            \
    do {                                                                                                               \
        char text_[2048];                                                                                              \
        told[0] = '\0';                                                                                                \
        assert_true(belay_tensor_is_nil(call));                                                                        \
        snprintf(text_, sizeof text_, "belay: %s (%s)\n    called at: test_faults.c:%d\n%s    try: %s\n", headline,    \
                 belay_code_name(code), line_told(__LINE__), when, belay_code_advice(code));                           \
        assert_words_equal(told, text_);                                                                               \
    } while (0)

static belay_tensor zeros(belay_context *context, belay_dtype dtype, int64_t a, int64_t b)
{
    return belay_zeros(context, dtype, belay_shape2(a, b));
}

/* A list at NULL is an empty one, whatever its length is said to be. */
static void lists_that_are_not_there_are_empty(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor x = zeros(context, BELAY_F32, 2, 3), parts[2] = {x, x};
    REFUSED(belay_index(x, NULL, 2, NULL), "0 indices into a tensor with 2 axes: from 1 to 2 are taken", "index",
            "x [2, 3] f32", BELAY_SHAPE_RANK);
    REFUSED(belay_permute(x, NULL, 2), "permute names 0 axes of a tensor with 2", "permute", "x [2, 3] f32",
            BELAY_SHAPE_RANK);
    REFUSED((belay_split(x, 0, NULL, 2, parts), parts[0]),
            "split into 0 parts of 0 in all along axis 0, which has size 2", "split", "x [2, 3] f32",
            BELAY_SHAPE_CONTRACT);
    assert_true(belay_tensor_is_nil(parts[1]));
    told[0] = '\0';
    assert_true(belay_tensor_is_nil(belay_cat(NULL, 2, 0)));
    assert_words_equal(told, "");
    assert_int_equal(belay_close(context), 3);
}

static void shapes_that_do_not_fit_are_named(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor a = zeros(context, BELAY_F32, 2, 3), b = zeros(context, BELAY_F32, 2, 4), none = {0};
    belay_tensor c = zeros(context, BELAY_BOOL, 5, 3), v = belay_zeros(context, BELAY_F32, belay_shape1(4));
    REFUSED(belay_add(a, b), "a [2, 3] and b [2, 4] do not broadcast: 3 against 4", "add", "a [2, 3] f32; b [2, 4] f32",
            BELAY_SHAPE_CONTRACT);
    REFUSED(belay_lt(a, b), "a [2, 3] and b [2, 4] do not broadcast: 3 against 4", "lt", "a [2, 3] f32; b [2, 4] f32",
            BELAY_SHAPE_CONTRACT);
    REFUSED(belay_where(c, a, a), "condition [5, 3] and a [2, 3] do not broadcast: 5 against 2", "where",
            "condition [5, 3] bool; a [2, 3] f32; b [2, 3] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_layer_norm(a, 1, v, none, 0), "weight is [4] where [3] is needed", "layer_norm",
            "x [2, 3] f32; weight [4] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_layer_norm(a, 1, none, belay_zeros(context, BELAY_F64, belay_shape1(3)), 0),
            "bias is f64 where f32 is needed", "layer_norm", "x [2, 3] f32; bias [3] f64", BELAY_TYPE_DTYPE);
    REFUSED(belay_layer_norm(a, 2, none, v, 0), "bias is [4] where [2, 3] is needed", "layer_norm",
            "x [2, 3] f32; bias [4] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_cross_entropy(a, belay_zeros(context, BELAY_I64, belay_shape1(2)),
                                &(belay_cross_entropy_options){.weight = v}),
            "weight is [4] where [3] is needed", "cross_entropy", "logits [2, 3] f32; labels [2] i64; weight [4] f32",
            BELAY_SHAPE_CONTRACT);
    REFUSED(belay_linear(a, b, none), "x has 3 features where weight takes 4", "linear",
            "x [2, 3] f32; weight [2, 4] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_linear(a, v, none), "linear takes [..., in] and a weight [out, in], not 2 and 1 axes", "linear",
            "x [2, 3] f32; weight [4] f32", BELAY_SHAPE_RANK);
    REFUSED(belay_linear(a, a, v), "bias is [4] where [2] is needed", "linear",
            "x [2, 3] f32; weight [2, 3] f32; bias [4] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_linear(a, a, zeros(context, BELAY_F32, 1, 2)), "bias is [1, 2] where [2] is needed", "linear",
            "x [2, 3] f32; weight [2, 3] f32; bias [1, 2] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_matmul(a, b), "inner sizes differ: a has 3 columns, b has 2 rows", "matmul",
            "a [2, 3] f32; b [2, 4] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_matmul(belay_view(a, belay_shape3(2, 1, 3)), belay_zeros(context, BELAY_F32, belay_shape3(5, 3, 1))),
            "leading axes of a and b do not broadcast: 2 against 5", "matmul", "a [2, 1, 3] f32; b [5, 3, 1] f32",
            BELAY_SHAPE_CONTRACT);
    REFUSED(belay_mse(a, b, BELAY_MEAN), "target is [2, 4] where [2, 3] is needed", "mse",
            "prediction [2, 3] f32; target [2, 4] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_gather(a, 0, belay_zeros(context, BELAY_I64, belay_shape2(9, 4)), NULL),
            "index [9, 4] reaches past x [2, 3]", "gather", "x [2, 3] f32; index [9, 4] i64", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_scatter_add(a, 0, belay_zeros(context, BELAY_I64, belay_shape2(2, 3)), v, NULL),
            "index [2, 3] reaches past src [4]", "scatter_add", "x [2, 3] f32; index [2, 3] i64; src [4] f32",
            BELAY_SHAPE_CONTRACT);
    REFUSED(belay_index_add(a, 0, belay_zeros(context, BELAY_I64, belay_shape1(2)), b, 1, NULL),
            "src [2, 4] added to x [2, 3] by 2 ids along axis 0: the sizes differ", "index_add",
            "x [2, 3] f32; ids [2] i64; src [2, 4] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_index_select(a, 0, belay_zeros(context, BELAY_I64, belay_shape2(1, 2)), NULL),
            "ids has 2 axes where 1 are needed", "index_select", "x [2, 3] f32; ids [1, 2] i64", BELAY_SHAPE_RANK);
    REFUSED(belay_embedding(v, belay_zeros(context, BELAY_I64, belay_shape1(2)), NULL),
            "weight has 1 axes where 2 are needed", "embedding", "weight [4] f32; ids [2] i64", BELAY_SHAPE_RANK);
    const belay_axes twice = {.n = 2, .axis = {1, -1}};
    REFUSED(belay_sum(a, &twice), "sum names axis 1 twice", "sum", "x [2, 3] f32", BELAY_SHAPE_AXIS);
    REFUSED(belay_mean(a, &twice), "mean names axis 1 twice", "mean", "x [2, 3] f32", BELAY_SHAPE_AXIS);
    REFUSED(belay_var(a, &twice, 1), "var names axis 1 twice", "var", "x [2, 3] f32", BELAY_SHAPE_AXIS);
    REFUSED(belay_amax(a, &twice), "amax names axis 1 twice", "amax", "x [2, 3] f32", BELAY_SHAPE_AXIS);
    REFUSED_EARLY(belay_expand(a, belay_shape3(-1, 2, 3)), "a tensor of shape [-1, 2, 3] has a negative size",
                  BELAY_SHAPE_CONTRACT);
    REFUSED(belay_view(a, belay_shape2(4, 2)),
            "shape [2, 3] cannot be viewed as [4, 2]: the numbers of elements differ", "view", "x [2, 3] f32",
            BELAY_SHAPE_CONTRACT);
    REFUSED(belay_view(a, (belay_shape){.rank = 9}), "a view of 9 axes: the most are 8", "view", "x [2, 3] f32",
            BELAY_SHAPE_RANK);
    REFUSED(belay_view(a, (belay_shape){.rank = -1}), "a view of -1 axes: the most are 8", "view", "x [2, 3] f32",
            BELAY_SHAPE_RANK);
    REFUSED(belay_expand(a, belay_shape2(4, 3)), "shape [2, 3] cannot be expanded to [4, 3]", "expand", "x [2, 3] f32",
            BELAY_SHAPE_CONTRACT);
    REFUSED(belay_cat((const belay_tensor[]){a, b}, 2, 0),
            "cat along axis 0 of operand 0 [2, 3] f32 and operand 1 [2, 4] f32", "cat",
            "operand 0 [2, 3] f32; operand 1 [2, 4] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_max(belay_slice(a, 1, 0, 0, 1), 1, false, NULL), "max over no elements: there is no largest one",
            "max", "x [2, 0] f32", BELAY_SHAPE_CONTRACT);
    REFUSED(belay_amax(belay_slice(a, 1, 0, 0, 1), NULL), "amax over no elements: there is no largest one", "amax",
            "x [2, 0] f32", BELAY_SHAPE_CONTRACT);
    belay_close(context);
}

/* What a call is made of has other names: its paragraph has the call's. */
static void parts_of_a_call_are_told_as_that_call(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    const int64_t far = (int64_t)1 << 31;
    belay_tensor i = zeros(context, BELAY_I32, 2, 3), cube = belay_zeros(context, BELAY_I32, belay_shape3(1, 3, 3));
    belay_tensor long_ = belay_zeros(context, BELAY_F32, belay_shape3(1, far, 0)),
                 short_ = belay_zeros(context, BELAY_F32, belay_shape3(1, 0, 2)), x, w;
    REFUSED(belay_mean(i, NULL), "mean takes floats, not i32", "mean", "x [2, 3] i32", BELAY_TYPE_DTYPE);
    REFUSED(belay_mse(i, i, BELAY_MEAN), "mse takes floats, not i32", "mse", "prediction [2, 3] i32; target [2, 3] i32",
            BELAY_TYPE_DTYPE);
    REFUSED(belay_bce_with_logits(i, i, NULL), "bce_with_logits takes floats, not i32", "bce_with_logits",
            "logits [2, 3] i32; target [2, 3] i32", BELAY_TYPE_DTYPE);
    REFUSED(belay_bmm(cube, cube), "bmm takes floats, not i32", "bmm", "a [1, 3, 3] i32; b [1, 3, 3] i32",
            BELAY_TYPE_DTYPE);
    REFUSED(belay_bmm(long_, short_),
            "a product of 2147483648 x 0 x 2 has a side above 2^31 - 1, the most that the BLAS takes", "bmm",
            "a [1, 2147483648, 0] f32; b [1, 0, 2] f32", BELAY_SIZE_OVERFLOW);
    x = belay_view(long_, belay_shape2(far, 0));
    w = zeros(context, BELAY_F32, 2, 0);
    REFUSED(belay_linear(x, w, (belay_tensor){0}),
            "a product of 2147483648 x 0 x 2 has a side above 2^31 - 1, the most that the BLAS takes", "linear",
            "x [2147483648, 0] f32; weight [2, 0] f32", BELAY_SIZE_OVERFLOW);
    belay_close(context);
}

static void axes_and_ranges_outside_are_named(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor a = zeros(context, BELAY_F32, 2, 3), scalar = belay_zeros(context, BELAY_F32, belay_shape0());
    belay_tensor parts[2];
    REFUSED(belay_softmax(a, 2), "axis 2 of a tensor with 2 axes", "softmax", "x [2, 3] f32", BELAY_SHAPE_AXIS);
    REFUSED(belay_softmax(scalar, -2), "axis -2 of a tensor with 0 axes", "softmax", "x [] f32", BELAY_SHAPE_AXIS);
    REFUSED(belay_sum(a, &(belay_axes){.n = 1, .axis = {-3}}), "axis -3 of a tensor with 2 axes", "sum", "x [2, 3] f32",
            BELAY_SHAPE_AXIS);
    REFUSED(belay_sum(a, &(belay_axes){.n = 9}), "9 axes to reduce: from 0 to 8 are taken", "sum", "x [2, 3] f32",
            BELAY_CONF_VALUE);
    REFUSED(belay_mean(a, &(belay_axes){.n = -1}), "-1 axes to reduce: from 0 to 8 are taken", "mean", "x [2, 3] f32",
            BELAY_CONF_VALUE);
    REFUSED(belay_transpose(a, 0, 5), "axis 5 of a tensor with 2 axes", "transpose", "x [2, 3] f32", BELAY_SHAPE_AXIS);
    REFUSED(belay_permute(a, (const int[]){1, 1}, 2), "permute names axis 1 twice", "permute", "x [2, 3] f32",
            BELAY_SHAPE_AXIS);
    REFUSED(belay_permute(a, (const int[]){1}, 1), "permute names 1 axes of a tensor with 2", "permute", "x [2, 3] f32",
            BELAY_SHAPE_RANK);
    REFUSED(belay_slice(a, 1, 1, 4, 1), "slice [1, 4) by 1 of axis 1, which has size 3", "slice", "x [2, 3] f32",
            BELAY_SHAPE_AXIS);
    REFUSED(belay_slice(a, 1, -4, 2, 1), "slice [-1, 2) by 1 of axis 1, which has size 3", "slice", "x [2, 3] f32",
            BELAY_SHAPE_AXIS);
    REFUSED(belay_slice(a, 1, 0, 2, 0), "slice [0, 2) by 0 of axis 1, which has size 3", "slice", "x [2, 3] f32",
            BELAY_SHAPE_AXIS);
    REFUSED(belay_select(a, 0, 2), "index 2 of axis 0, which has size 2", "select", "x [2, 3] f32", BELAY_SHAPE_AXIS);
    REFUSED(belay_select(a, 0, INT64_MIN), "index -9223372036854775808 of axis 0, which has size 2", "select",
            "x [2, 3] f32", BELAY_SHAPE_AXIS);
    REFUSED(belay_layer_norm(a, 3, (belay_tensor){0}, (belay_tensor){0}, 0),
            "layer_norm over the last 3 axes of a tensor with 2", "layer_norm", "x [2, 3] f32", BELAY_SHAPE_RANK);
    REFUSED((belay_split(a, 1, (const int64_t[]){1, 1}, 2, parts), parts[0]),
            "split into 2 parts of 2 in all along axis 1, which has size 3", "split", "x [2, 3] f32",
            BELAY_SHAPE_CONTRACT);
    assert_true(belay_tensor_is_nil(parts[1]));
    REFUSED_EARLY(belay_clamp(a, 2, 1), "clamp to [2, 1]: the range is empty", BELAY_CONF_VALUE);
    REFUSED_EARLY(belay_clamp(a, 0, NAN), "clamp to [0, nan]: the range is empty", BELAY_CONF_VALUE);
    belay_close(context);
}

/* A maker's, which has no tensors to show. */
#define REFUSED_MAKER(call, headline, op)                                                                              \
    do {                                                                                                               \
        char text_[2048];                                                                                              \
        told[0] = '\0';                                                                                                \
        assert_true(belay_tensor_is_nil(call));                                                                        \
        snprintf(text_, sizeof text_,                                                                                  \
                 "belay: %s (conf.value)\n    op: %s, called at test_faults.c:%d\n%s    try: %s\n", headline, op,      \
                 line_told(__LINE__), when, belay_code_advice(BELAY_CONF_VALUE));                                      \
        assert_words_equal(told, text_);                                                                               \
    } while (0)

/* An option that is no number, or that is none in f32, never becomes its default or a NaN without a word. */
static void options_that_are_no_number_are_named(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor a = zeros(context, BELAY_F32, 2, 3), d = zeros(context, BELAY_F64, 2, 3), none = {0};
    belay_tensor at = belay_zeros(context, BELAY_I64, belay_shape1(2));
    belay_shape shape = belay_shape1(2);
    const belay_code value = BELAY_CONF_VALUE;
    REFUSED(belay_layer_norm(a, 1, none, none, NAN), "eps of layer_norm is nan, outside [0, 3.40282e+38]", "layer_norm",
            "x [2, 3] f32", value);
    REFUSED(belay_layer_norm(a, 1, none, none, -1e-5), "eps of layer_norm is -1e-05, outside [0, 3.40282e+38]",
            "layer_norm", "x [2, 3] f32", value);
    REFUSED(belay_rms_norm(a, 1, none, 1e39), "eps of rms_norm is 1e+39, outside [0, 3.40282e+38]", "rms_norm",
            "x [2, 3] f32", value);
    REFUSED(belay_rms_norm(d, 1, none, INFINITY), "eps of rms_norm is inf, outside [0, 1.79769e+308]", "rms_norm",
            "x [2, 3] f64", value);
    REFUSED(belay_affine(a, NAN, 0), "scale of affine is nan, outside [-3.40282e+38, 3.40282e+38]", "affine",
            "x [2, 3] f32", value);
    REFUSED(belay_affine(a, 1, -1e39), "shift of affine is -1e+39, outside [-3.40282e+38, 3.40282e+38]", "affine",
            "x [2, 3] f32", value);
    REFUSED(belay_pow_number(a, 1e300), "exponent of pow_number is 1e+300, outside [-3.40282e+38, 3.40282e+38]",
            "pow_number", "x [2, 3] f32", value);
    REFUSED(belay_clamp(a, 1e39, 1e40), "low of clamp is 1e+39, outside [-3.40282e+38, 3.40282e+38]", "clamp",
            "x [2, 3] f32", value);
    REFUSED(belay_index_add(a, 0, at, a, NAN, NULL), "alpha of index_add is nan, outside [-3.40282e+38, 3.40282e+38]",
            "index_add", "x [2, 3] f32; ids [2] i64; src [2, 3] f32", value);
    belay_tensor n = belay_zeros(context, BELAY_I32, belay_shape2(2, 3));
    REFUSED(belay_index_add(n, 0, at, n, 0.5, NULL), "alpha of index_add is 0.5: of i32 it is whole", "index_add",
            "x [2, 3] i32; ids [2] i64; src [2, 3] i32", value);
    REFUSED(belay_index_add(n, 0, at, n, 1e30, NULL), "alpha of index_add is 1e+30, outside [-9.0072e+15, 9.0072e+15]",
            "index_add", "x [2, 3] i32; ids [2] i64; src [2, 3] i32", value);
    REFUSED_MAKER(belay_uniform(context, BELAY_F32, shape, NAN, 1),
                  "low of uniform is nan, outside [-3.40282e+38, 3.40282e+38]", "uniform");
    REFUSED_MAKER(belay_uniform(context, BELAY_F32, shape, 1, 0), "high of uniform is 0, outside [1, 3.40282e+38]",
                  "uniform");
    REFUSED_MAKER(belay_uniform(context, BELAY_F32, shape, -3e38, 3e38),
                  "high of uniform is 3e+38, outside [-3e+38, 4.02823e+37]", "uniform");
    REFUSED_MAKER(belay_normal(context, BELAY_F32, shape, INFINITY, 1),
                  "mean of normal is inf, outside [-3.40282e+38, 3.40282e+38]", "normal");
    REFUSED_MAKER(belay_normal(context, BELAY_F32, shape, 0, -1), "deviation of normal is -1, outside [0, 3.40282e+38]",
                  "normal");
    REFUSED_EARLY(belay_full(context, BELAY_U8, shape, 300), "value of full is 300, outside [0, 255], what u8 holds",
                  value);
    REFUSED_EARLY(belay_full(context, BELAY_I64, shape, NAN),
                  "value of full is nan, outside [-9.22337e+18, 9.22337e+18], what i64 holds", value);
    REFUSED_EARLY(belay_full(context, BELAY_F16, shape, 7e4),
                  "value of full is 70000, outside [-65504, 65504], what f16 holds", value);
    REFUSED_EARLY(belay_arange(context, BELAY_I32, 4, 0, 0.5), "arange from 0 by 0.5: steps of integers are whole",
                  value);
    REFUSED_EARLY(belay_arange(context, BELAY_F32, 4, 0, INFINITY), "arange from 0 by inf: both must be finite", value);
    REFUSED_EARLY(belay_arange(context, BELAY_I32, 4, 1e10, 1),
                  "start of arange is 1e+10, outside [-2.14748e+09, 2.14748e+09], what i32 holds", value);
    told[0] = '\0'; /* numbers at the limits, and infinities where they are values, go through */
    const double least[] = {-INFINITY, -INFINITY};
    assert_false(belay_tensor_is_nil(belay_affine(d, 1e300, 0)));
    assert_false(belay_tensor_is_nil(belay_clamp(a, -INFINITY, INFINITY)));
    assert_numbers("a mask", belay_affine(belay_ones(context, BELAY_F32, shape), 1, -INFINITY), least, 0, 0);
    assert_numbers("full", belay_full(context, BELAY_F32, shape, -INFINITY), least, 0, 0);
    assert_string_equal(told, "");
    belay_close(context);
}

static void dtypes_that_do_not_fit_are_named(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor f = zeros(context, BELAY_F32, 2, 3), d = zeros(context, BELAY_F64, 2, 3);
    belay_tensor i = zeros(context, BELAY_I64, 2, 3), b = zeros(context, BELAY_BOOL, 2, 3);
    REFUSED(belay_add(f, d), "b is f64 where f32 is needed", "add", "a [2, 3] f32; b [2, 3] f64", BELAY_TYPE_DTYPE);
    REFUSED(belay_exp(i), "exp takes floats, not i64", "exp", "x [2, 3] i64", BELAY_TYPE_DTYPE);
    REFUSED(belay_add(b, b), "add takes numbers, not bool", "add", "a [2, 3] bool; b [2, 3] bool", BELAY_TYPE_DTYPE);
    REFUSED(belay_where(f, f, f), "condition is f32 where bool is needed", "where",
            "condition [2, 3] f32; a [2, 3] f32; b [2, 3] f32", BELAY_TYPE_DTYPE);
    REFUSED(belay_softmax(i, 1), "softmax takes floats, not i64", "softmax", "x [2, 3] i64", BELAY_TYPE_DTYPE);
    REFUSED(belay_linear(f, d, (belay_tensor){0}), "weight is f64 where f32 is needed", "linear",
            "x [2, 3] f32; weight [2, 3] f64", BELAY_TYPE_DTYPE);
    REFUSED(belay_matmul(f, belay_transpose(d, 0, 1)), "a is f32, b is f64", "matmul", "a [2, 3] f32; b [3, 2] f64",
            BELAY_TYPE_DTYPE);
    REFUSED(belay_mse(f, d, BELAY_MEAN), "target is f64 where f32 is needed", "mse",
            "prediction [2, 3] f32; target [2, 3] f64", BELAY_TYPE_DTYPE);
    REFUSED(belay_embedding(f, b, NULL), "ids is bool where an integer dtype is needed", "embedding",
            "weight [2, 3] f32; ids [2, 3] bool", BELAY_TYPE_DTYPE);
    REFUSED(belay_cat((const belay_tensor[]){f, d}, 2, 0),
            "cat along axis 0 of operand 0 [2, 3] f32 and operand 1 [2, 3] f64", "cat",
            "operand 0 [2, 3] f32; operand 1 [2, 3] f64", BELAY_TYPE_DTYPE);
    REFUSED_EARLY(belay_cast(f, (belay_dtype)42), "dtype 42 is none", BELAY_TYPE_DTYPE);
    belay_close(context);
}

static void handles_of_another_context_are_refused(void **state)
{
    (void)state;
    belay_context *context = open_with(1), *other = open_with(1);
    belay_tensor a = zeros(context, BELAY_F32, 2, 3), b = zeros(other, BELAY_F32, 2, 3), none = {0};
    belay_tensor i = belay_zeros(other, BELAY_I64, belay_shape1(2));
    const char *const advice = belay_code_advice(BELAY_LIFE_FOREIGN);
    char text[1024];
    assert_true(belay_tensor_is_nil(belay_add(a, b)));
    int line = __LINE__ - 1;
    snprintf(text, sizeof text,
             "belay: operand 1 belongs to another context (life.foreign)\n    op: add, called at test_faults.c:%d\n"
             "    tensors: a [2, 3] f32; on cpu\n%s    try: %s\n",
             line, when, advice);
    assert_words_equal(told, text);
    REFUSED_EARLY(belay_embedding(a, i, NULL), "ids belongs to another context", BELAY_LIFE_FOREIGN);
    REFUSED_EARLY(belay_cross_entropy(a, i, NULL), "labels belongs to another context", BELAY_LIFE_FOREIGN);
    REFUSED_EARLY(belay_gather(a, 0, i, NULL), "index belongs to another context", BELAY_LIFE_FOREIGN);
    REFUSED_EARLY(belay_mse(a, b, BELAY_MEAN), "target belongs to another context", BELAY_LIFE_FOREIGN);
    REFUSED_EARLY(belay_cat((const belay_tensor[]){a, b}, 2, 0), "operand 1 of cat belongs to another context",
                  BELAY_LIFE_FOREIGN);
    REFUSED_EARLY(belay_linear(a, b, none), "weight belongs to another context", BELAY_LIFE_FOREIGN);
    REFUSED_EARLY(belay_matmul(a, b), "b belongs to another context", BELAY_LIFE_FOREIGN);
    REFUSED_EARLY(belay_layer_norm(a, 1, b, none, 0), "weight belongs to another context", BELAY_LIFE_FOREIGN);
    belay_close(context);
    belay_close(other);
}

static void dead_handles_are_refused_and_named(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_scope scope = belay_scope_open(context);
    belay_tensor x = belay_tensor_name_set(zeros(context, BELAY_F32, 2, 3), "hidden");
    belay_tensor ids = belay_tensor_name_set(belay_zeros(context, BELAY_I64, belay_shape1(2)), "tokens");
    belay_scope_close(scope);
    int died = __LINE__ - 1;
    belay_tensor alive = zeros(context, BELAY_F32, 2, 3);
    struct {
        int line;
        belay_tensor result;
        const char *name;
    } calls[] = {
        {__LINE__, belay_add(alive, x), "hidden [2, 3] f32"},
        {__LINE__, belay_softmax(x, 0), "hidden [2, 3] f32"},
        {__LINE__, belay_sum(x, NULL), "hidden [2, 3] f32"},
        {__LINE__, belay_embedding(alive, ids, NULL), "tokens [2] i64"},
        {__LINE__, belay_cross_entropy(alive, ids, NULL), "tokens [2] i64"},
        {__LINE__, belay_cat((const belay_tensor[]){alive, x}, 2, 0), "hidden [2, 3] f32"},
        {__LINE__, belay_matmul(alive, x), "hidden [2, 3] f32"},
        {__LINE__, belay_slice(x, 0, 0, 1, 1), "hidden [2, 3] f32"},
        {__LINE__, belay_cast(x, BELAY_F64), "hidden [2, 3] f32"},
    };
    char want[16384] = "";
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        char text[1024];
        assert_true(belay_tensor_is_nil(calls[i].result));
        snprintf(text, sizeof text,
                 "belay: tensor %s was used after it had died (life.stale)\n    called at: test_faults.c:%d\n"
                 "    died at: test_faults.c:%d, in step 0\n%s    try: %s\n",
                 calls[i].name, calls[i].line, died, when, belay_code_advice(BELAY_LIFE_STALE));
        strcat(want, text);
    }
    assert_words_equal(told, want);
    belay_close(context);
}

static void nil_goes_in_and_comes_out(void **state)
{
    (void)state;
    belay_context *context = open_with(1);
    belay_tensor x = zeros(context, BELAY_F32, 2, 3), nil = {0}, at = x, parts[2] = {x, x};
    const belay_tensor results[] = {
        belay_add(nil, x),
        belay_add(x, nil),
        belay_exp(nil),
        belay_lt(x, nil),
        belay_where(nil, x, x),
        belay_clamp(nil, 0, 1),
        belay_cast(nil, BELAY_F64),
        belay_sum(nil, NULL),
        belay_mean(nil, NULL),
        belay_max(nil, 0, false, &at),
        belay_argmax(nil, 0, false),
        belay_amax(nil, NULL),
        belay_layer_norm(nil, 1, nil, nil, 0),
        belay_linear(nil, x, nil),
        belay_linear(x, nil, nil),
        belay_matmul(nil, x),
        belay_matmul(x, nil),
        belay_view(nil, belay_shape1(6)),
        belay_transpose(nil, 0, 1),
        belay_permute(nil, (const int[]){0}, 1),
        belay_contiguous(nil),
        belay_expand(nil, belay_shape1(6)),
        belay_slice(nil, 0, 0, 1, 1),
        belay_select(nil, 0, 0),
        belay_cat((const belay_tensor[]){x, nil}, 2, 0),
        belay_cat((const belay_tensor[]){nil, x}, 2, 0),
        belay_embedding(nil, nil, NULL),
        at,
    };
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
        if (!belay_tensor_is_nil(results[i]))
            fail_msg("result %zu is not nil", i);
    belay_split(nil, 0, (const int64_t[]){1, 1}, 2, parts);
    assert_true(belay_tensor_is_nil(parts[0]) && belay_tensor_is_nil(parts[1]));
    belay_backward(nil);
    close_clean(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_that_are_not_there_are_empty),
        cmocka_unit_test(shapes_that_do_not_fit_are_named),
        cmocka_unit_test(parts_of_a_call_are_told_as_that_call),
        cmocka_unit_test(axes_and_ranges_outside_are_named),
        cmocka_unit_test(options_that_are_no_number_are_named),
        cmocka_unit_test(dtypes_that_do_not_fit_are_named),
        cmocka_unit_test(handles_of_another_context_are_refused),
        cmocka_unit_test(dead_handles_are_refused_and_named),
        cmocka_unit_test(nil_goes_in_and_comes_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
