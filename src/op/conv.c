/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, as functions with a gradient: what the taps see is laid out in columns, and products do the rest.
 *
 * Columns of a whole batch are never in memory.  A panel is some whole images, or, where one image has more than
 * PANEL elements of columns, some positions of one: at most max(PANEL, in times the kernel's taps) elements at a time, and
 * as many again on the way back.  Panels follow from sizes alone, so that bits do not depend on threads.  The columns are
 * laid out a second time for the gradient of the weight, rather than kept.
 *
 * With groups the rows of columns, of the weight and of y lie group by group: each image is one batch of products. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "op/slide.h"

#ifdef BELAY_SMALL
enum { PANEL = 64 };
#else
enum { PANEL = 1 << 20 };
#endif

/* One application; axes 0 and 1 are rows and columns, conv1d has one row. */
typedef struct conv {
    int64_t batch, in, out, groups;
    int64_t size[2], positions[2];
    bl_slide window[2];
    int64_t taps;                  /* of all channels: in times the kernel's */
    int64_t image;                 /* positions of an image */
    int64_t n_images, n_positions; /* of a panel */
    belay_dtype dtype;
} conv;

/* A pass at work. */
typedef struct pass {
    belay_context *context;
    const conv *conv;
    bool is_backward;
    belay_tensor x;      /* [batch, in, rows, columns] */
    belay_tensor weight; /* [groups, out / groups, taps / groups] */
    belay_tensor y;      /* [batch, out, positions]: the result, or its gradient */
    bool has_bias;       /* the result starts with it */
    belay_tensor g_x;    /* as x; nil: not wanted */
    belay_tensor g_w;    /* as weight; nil: not wanted */
} pass;

/* Some whole images, or some positions of one. */
typedef struct panel {
    int64_t first_image, n_images, first, n;
} panel;

/* ---- parts and launches, nil after a fault */

static belay_tensor images(const pass *p, belay_tensor all, const panel *at)
{
    return bl_view_slice(p->context, all, 0, at->first_image, at->first_image + at->n_images, 1);
}

static belay_tensor product(const pass *p, belay_tensor a, bool a_transposed, belay_tensor b, bool b_transposed,
                            belay_tensor into, bool add)
{
    bl_call call = {.context = p->context, .op = BL_OP_matmul, .n_in = 2, .in = {a, b}, .into = into};
    call.params.i[0] = a_transposed;
    call.params.i[1] = b_transposed;
    call.params.i[2] = add;
    call.is_backward = p->is_backward;
    return !belay_tensor_is_nil(a) && !belay_tensor_is_nil(b) && bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

/* A call of conv_columns or of its gradient. */
static bl_call columns_call(const pass *p, int op, belay_tensor in, const panel *at)
{
    const conv *c = p->conv;
    bl_call call = {.context = p->context, .op = op, .n_in = 1, .in = {in}, .is_backward = p->is_backward};
    const int64_t dims[] = {at->n_images,        c->in, c->size[0], c->size[1], c->window[0].kernel,
                            c->window[1].kernel, at->n};
    call.has_dims = true;
    call.dims_of = BL_OP_conv_columns;
    memcpy(call.dims, dims, sizeof dims);
    for (int k = 0; k < 2; k++) {
        call.params.i[k] = c->window[k].stride;
        call.params.i[2 + k] = c->window[k].padding;
        call.params.i[4 + k] = c->window[k].dilation;
    }
    call.params.i[6] = at->first;
    return call;
}

/* A temporary in another shape, and only in that. */
static belay_tensor reshaped(const pass *p, belay_tensor tensor, belay_shape shape)
{
    if (belay_tensor_is_nil(tensor))
        return tensor;
    belay_tensor view = bl_launch_reshape(p->context, tensor, &shape);
    bl_tensor_drop(p->context, tensor);
    return view;
}

/* What the taps see, [images, taps, n]. */
static belay_tensor columns_of(const pass *p, const panel *at)
{
    belay_tensor x = images(p, p->x, at);
    bl_call call = columns_call(p, BL_OP_conv_columns, x, at);
    bool done = !belay_tensor_is_nil(x) && bl_launch_run(&call);
    bl_tensor_drop(p->context, x);
    return done ? reshaped(p, call.out[0], belay_shape3(at->n_images, p->conv->taps, at->n)) : (belay_tensor){0};
}

static bool is_whole(const pass *p, const panel *at) { return at->n == p->conv->image; }

/* The panel's part of y; contiguous where it is whole images. */
static belay_tensor part_of_y(const pass *p, const panel *at)
{
    belay_tensor part = images(p, p->y, at);
    if (is_whole(p, at) || belay_tensor_is_nil(part))
        return part;
    belay_tensor run = bl_view_slice(p->context, part, 2, at->first, at->first + at->n, 1);
    bl_tensor_drop(p->context, part);
    return run;
}

/* Runs a panel function over all panels; false after a fault. */
static bool each_panel(const pass *p, bool (*run)(const pass *p, const panel *at))
{
    const conv *c = p->conv;
    panel at = {0};
    if (c->out == 0)
        return true; /* however many positions there are */
    for (; at.first_image < c->batch; at.first_image += c->n_images) {
        at.n_images = bl_min_i64(c->n_images, c->batch - at.first_image);
        for (at.first = 0; at.first < c->image; at.first += c->n_positions) {
            at.n = bl_min_i64(c->n_positions, c->image - at.first);
            if (!run(p, &at))
                return false;
        }
    }
    return true;
}

/* Image i of [images, rows, n], group by group: [groups, rows / groups, n]. */
static belay_tensor grouped(const pass *p, belay_tensor all, int64_t i)
{
    belay_shape s = belay_tensor_shape(all);
    belay_tensor one = bl_view_slice(p->context, all, 0, i, i + 1, 1);
    return reshaped(p, one, belay_shape3(p->conv->groups, s.size[1] / p->conv->groups, s.size[2]));
}

/* into (+)= weight times `in`, both contiguous [images, rows, n]: at once without groups. */
static bool weigh(const pass *p, bool weight_transposed, belay_tensor in, belay_tensor into, bool add)
{
    bool done = !belay_tensor_is_nil(in) && !belay_tensor_is_nil(into);
    if (done && p->conv->groups == 1)
        return !belay_tensor_is_nil(product(p, p->weight, weight_transposed, in, false, into, add));
    for (int64_t i = 0; done && i < belay_tensor_shape(in).size[0]; i++) {
        belay_tensor from = grouped(p, in, i), to = grouped(p, into, i);
        done = !belay_tensor_is_nil(to) &&
               !belay_tensor_is_nil(product(p, p->weight, weight_transposed, from, false, to, add));
        bl_tensor_drop(p->context, from);
        bl_tensor_drop(p->context, to);
    }
    return done;
}

/* A temporary at x's place. */
static belay_tensor scratch(const pass *p, belay_shape shape)
{
    const bl_slot *x = bl_slot_get(p->context, p->x);
    return bl_tensor_new_on(p->context, x->storage->place, p->conv->dtype, &shape, NULL);
}

/* ---- forward */

static bool forward_panel(const pass *p, const panel *at)
{
    belay_tensor columns = columns_of(p, at), y = part_of_y(p, at), run = {0};
    bool done = !belay_tensor_is_nil(columns) && !belay_tensor_is_nil(y);
    if (done && is_whole(p, at)) {
        done = weigh(p, false, columns, y, p->has_bias);
    } else if (done) {
        run = p->has_bias ? bl_launch_copy(p->context, y) : scratch(p, belay_shape3(1, p->conv->out, at->n));
        done = weigh(p, false, columns, run, p->has_bias) && bl_launch_move(p->context, y, run);
    }
    bl_tensor_drop(p->context, columns);
    bl_tensor_drop(p->context, run);
    bl_tensor_drop(p->context, y);
    return done;
}

/* Every position of y becomes its channel's bias. */
static bool start_with_bias(const pass *p, belay_tensor bias)
{
    belay_shape column = belay_shape3(1, p->conv->out, 1), all = belay_tensor_shape(p->y);
    belay_tensor spread = bl_view_expand(p->context, bl_launch_reshape(p->context, bias, &column), &all);
    return bl_launch_move(p->context, p->y, spread);
}

static belay_shape matrix_of(const conv *c) { return belay_shape3(c->groups, c->out / c->groups, c->taps / c->groups); }

/* The pass without what it writes. */
static pass pass_over(belay_function_call *call, const conv *c, const belay_tensor *in)
{
    pass p = {.context = belay_function_context(call), .conv = c};
    belay_shape matrix = matrix_of(c);
    p.x = bl_launch_contiguous(p.context, in[0]);
    p.weight = bl_launch_reshape(p.context, in[1], &matrix);
    return p;
}

static void conv_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                         int n_out)
{
    (void)n_in, (void)n_out;
    const conv *c = state;
    pass p = pass_over(call, c, in);
    const bl_slot *at = bl_slot_get(p.context, p.x);
    belay_shape flat = belay_shape3(c->batch, c->out, c->image),
                result = {4, {c->batch, c->out, c->positions[0], c->positions[1]}};
    if (at == NULL || belay_tensor_is_nil(p.weight))
        return;
    p.y = bl_tensor_new_on(p.context, at->storage->place, c->dtype, &flat, NULL);
    p.has_bias = !belay_tensor_is_nil(in[2]);
    if (belay_tensor_is_nil(p.y) || (p.has_bias && !start_with_bias(&p, in[2])) || !each_panel(&p, forward_panel))
        return;
    for (int k = 0; k < 2 && belay_function_records(call); k++)
        if (belay_function_save(call, in[k]) != k)
            return;
    out[0] = bl_launch_reshape(p.context, p.y, &result);
}

/* ---- backward */

/* The gradient of the weight, image by image in order. */
static bool add_weight_gradient(const pass *p, const panel *at, belay_tensor g_y)
{
    belay_tensor columns = columns_of(p, at);
    bool done = !belay_tensor_is_nil(columns);
    for (int64_t i = 0; i < at->n_images && done; i++) {
        belay_tensor g = grouped(p, g_y, i), seen = grouped(p, columns, i);
        done = !belay_tensor_is_nil(g) && !belay_tensor_is_nil(product(p, g, false, seen, true, p->g_w, true));
        bl_tensor_drop(p->context, g);
        bl_tensor_drop(p->context, seen);
    }
    bl_tensor_drop(p->context, columns);
    return done;
}

static bool add_input_gradient(const pass *p, const panel *at, belay_tensor g_y)
{
    const conv *c = p->conv;
    belay_shape shape = {5, {at->n_images, c->in, c->window[0].kernel, c->window[1].kernel, at->n}};
    belay_tensor columns = scratch(p, belay_shape3(at->n_images, c->taps, at->n));
    bool done = weigh(p, true, g_y, columns, false);
    columns = reshaped(p, columns, shape);
    bl_call call = columns_call(p, BL_OP_conv_columns_grad, columns, at);
    call.into = images(p, p->g_x, at);
    call.params.i[7] = at->first > 0;
    done = done && !belay_tensor_is_nil(columns) && !belay_tensor_is_nil(call.into) && bl_launch_run(&call);
    bl_tensor_drop(p->context, columns);
    bl_tensor_drop(p->context, call.into);
    return done;
}

static bool backward_panel(const pass *p, const panel *at)
{
    belay_tensor part = part_of_y(p, at), g_y = bl_launch_contiguous(p->context, part);
    bool done = !belay_tensor_is_nil(g_y) && (belay_tensor_is_nil(p->g_w) || add_weight_gradient(p, at, g_y)) &&
                (belay_tensor_is_nil(p->g_x) || add_input_gradient(p, at, g_y));
    if (g_y.slot != part.slot)
        bl_tensor_drop(p->context, g_y);
    bl_tensor_drop(p->context, part);
    return done;
}

/* Sums over positions, then over images. */
static belay_tensor bias_gradient(const pass *p)
{
    const conv *c = p->conv;
    belay_tensor rows = bl_launch_sum(p->context, p->y, c->batch * c->out, c->image, 1, 1);
    belay_tensor sum = belay_tensor_is_nil(rows) ? rows : bl_launch_sum(p->context, rows, 1, c->batch, c->out, 1);
    bl_tensor_drop(p->context, rows);
    return reshaped(p, sum, belay_shape1(c->out));
}

static void conv_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                          belay_tensor *grad_in, int n_in)
{
    (void)n_out, (void)n_in;
    const conv *c = state;
    const belay_tensor saved[] = {belay_function_saved(call, 0), belay_function_saved(call, 1)};
    pass p = pass_over(call, c, saved);
    const bl_slot *at = bl_slot_get(p.context, p.x);
    belay_shape flat = belay_shape3(c->batch, c->out, c->image), matrix = matrix_of(c);
    belay_shape x = {4, {c->batch, c->in, c->size[0], c->size[1]}},
                weight = {4, {c->out, c->in / c->groups, c->window[0].kernel, c->window[1].kernel}};
    p.is_backward = true;
    p.y = bl_launch_reshape(p.context, grad_out[0], &flat);
    if (at == NULL || belay_tensor_is_nil(p.weight) || belay_tensor_is_nil(p.y))
        return;
    if (belay_function_wants(call, 0))
        p.g_x = c->out > 0 ? bl_tensor_new_on(p.context, at->storage->place, c->dtype, &x, NULL)
                           : bl_launch_fill_like(p.context, p.x, c->dtype, &x, 0);
    if (belay_function_wants(call, 1))
        p.g_w = bl_launch_fill_like(p.context, p.x, c->dtype, &matrix, 0);
    if ((!belay_tensor_is_nil(p.g_x) || !belay_tensor_is_nil(p.g_w)) && !each_panel(&p, backward_panel))
        return;
    grad_in[0] = p.g_x;
    grad_in[1] = reshaped(&p, p.g_w, weight);
    if (belay_function_wants(call, 2))
        grad_in[2] = bias_gradient(&p);
}

/* ---- calls */

static const belay_function conv1d_function = {
    .name = "conv1d", .forward = conv_forward, .backward = conv_backward, .free = bl_free};
static const belay_function conv2d_function = {
    .name = "conv2d", .forward = conv_forward, .backward = conv_backward, .free = bl_free};

/* A call as it was made: n axes slide. */
typedef struct request {
    belay_context *context;
    const belay_function *function;
    int n_axes;
    belay_tensor at[3];
} request;

static bool ranks_fit(const request *r, const bl_given given[3])
{
    int x = belay_tensor_shape(r->at[0]).rank, weight = belay_tensor_shape(r->at[1]).rank, n = r->n_axes;
    if (x == n + 2 && weight == n + 2)
        return true;
    bl_prove_refuse(r->context, BELAY_SHAPE_RANK, r->function->name, given, 3,
                    "%s takes x [batch, in, %s] and a weight [out, in, %s], not %d and %d axes", r->function->name,
                    n == 1 ? "time" : "rows, columns", n == 1 ? "kernel" : "kernel rows, columns", x, weight);
    return false;
}

static int64_t groups_of(const belay_conv_options *o) { return o->groups != 0 ? o->groups : 1; }

/* Groups share the channels evenly, in and out. */
static bool groups_fit(const request *r, const bl_given given[3], int64_t groups)
{
    int64_t in = belay_tensor_shape(r->at[0]).size[1], out = belay_tensor_shape(r->at[1]).size[0];
    if (groups >= 1 && in % groups == 0 && out % groups == 0)
        return true;
    bl_prove_refuse(r->context, BELAY_CONF_VALUE, r->function->name, given, 3,
                    groups < 1 ? "groups of %s is %" PRId64 ": it must be at least 1"
                               : "groups of %s is %" PRId64 ", which does not divide %" PRId64
                                 " channels in and %" PRId64 " out",
                    r->function->name, groups, in, out);
    return false;
}

/* The weight takes a group of x's channels, the bias is one of out; one dtype. */
static bool operands_fit(const request *r, const bl_given given[3], int64_t groups)
{
    const char *name = r->function->name;
    belay_shape x = belay_tensor_shape(r->at[0]), weight = belay_tensor_shape(r->at[1]), bias;
    belay_dtype dtype = belay_tensor_dtype(r->at[0]);
    belay_shape wanted = weight;
    wanted.size[1] = x.size[1] / groups;
    bias = belay_shape1(weight.size[0]);
    return bl_op_takes_floats(r->context, name, given, 3) && bl_op_has_shape(r->context, name, given, 3, 1, &wanted) &&
           bl_op_has_dtype(r->context, name, given, 3, 1, dtype) &&
           (belay_tensor_is_nil(r->at[2]) ||
            (bl_op_is_here(r->context, "bias", r->at[2]) && bl_op_has_shape(r->context, name, given, 3, 2, &bias) &&
             bl_op_has_dtype(r->context, name, given, 3, 2, dtype)));
}

/* Sizes and windows; conv1d's axis is the second of two. */
static bool read_sizes(const request *r, const bl_given given[3], const belay_conv_options *o, conv *c)
{
    const bl_slides all = {r->context, r->function->name, given, 3};
    belay_shape x = belay_tensor_shape(r->at[0]), weight = belay_tensor_shape(r->at[1]);
    *c = (conv){.batch = x.size[0],
                .in = x.size[1],
                .out = weight.size[0],
                .groups = groups_of(o),
                .dtype = belay_tensor_dtype(r->at[0])};
    for (int k = 0; k < 2; k++) {
        int own = k - (2 - r->n_axes); /* which of the call's axes */
        c->size[k] = own < 0 ? 1 : x.size[2 + own];
        c->window[k] = own < 0 ? (bl_slide){1, 1, 0, 1}
                               : (bl_slide){.kernel = weight.size[2 + own],
                                            .stride = o->stride[own] != 0 ? o->stride[own] : 1,
                                            .padding = o->padding[own],
                                            .dilation = o->dilation[own] != 0 ? o->dilation[own] : 1};
        if (!bl_slide_positions(&all, 2 + own, c->size[k], &c->window[k], &c->positions[k]))
            return false;
    }
    return true;
}

/* How panels are cut: by elements of columns. */
static bool plan(const request *r, const bl_given given[3], conv *c)
{
    const int64_t taps[] = {c->in, c->window[0].kernel, c->window[1].kernel};
    int64_t all;
    if (!bl_checked_product(taps, 3, &c->taps) || !bl_checked_mul(c->positions[0], c->positions[1], &c->image) ||
        !bl_checked_mul(c->image, bl_max_i64(c->taps, 1), &all)) {
        bl_prove_refuse(r->context, BELAY_SIZE_OVERFLOW, r->function->name, given, 3,
                        "a kernel of [%" PRId64 ", %" PRId64 ", %" PRId64 "] at [%" PRId64 ", %" PRId64
                        "] positions: %s has more than 2^63 - 1 products an image",
                        c->in, c->window[0].kernel, c->window[1].kernel, c->positions[0], c->positions[1],
                        r->function->name);
        return false;
    }
    c->n_images = bl_max_i64(PANEL / all, 1);
    c->n_positions = all <= PANEL ? c->image : bl_max_i64(PANEL / bl_max_i64(c->taps, 1), 1);
    return true;
}

/* x or a weight with two axes that slide, and a result with as many as it had. */
static belay_tensor widened(const request *r, belay_tensor tensor)
{
    belay_shape s = belay_tensor_shape(tensor), wide = {4, {s.size[0], s.size[1], 1, s.size[2]}};
    return r->n_axes == 2 ? tensor : bl_op_reshape(r->context, tensor, &wide);
}
static belay_tensor narrowed(const request *r, belay_tensor y)
{
    belay_shape s = belay_tensor_shape(y), narrow = belay_shape3(s.size[0], s.size[1], s.size[3]);
    return r->n_axes == 2 || belay_tensor_is_nil(y) ? y : bl_op_reshape(r->context, y, &narrow);
}

static belay_tensor apply(const request *r, const conv *sizes)
{
    conv *c = bl_alloc(1, sizeof *c);
    if (c == NULL) {
        bl_context_raise(r->context, BELAY_MEM_EXHAUSTED, "no memory to apply %s", r->function->name);
        return (belay_tensor){0};
    }
    *c = *sizes;
    belay_tensor y;
    const belay_tensor in[] = {widened(r, r->at[0]), widened(r, r->at[1]), r->at[2]};
    belay_function_apply(r->context, r->function, c, in, 3, UINT64_C(1) << 2, &y, 1);
    return narrowed(r, y);
}

static belay_tensor run(request *r, const belay_conv_options *options)
{
    static const char *const role[] = {"x", "weight", "bias"};
    static const belay_conv_options none = {{0}, {0}, {0}, 0};
    const belay_conv_options *o = options != NULL ? options : &none;
    conv c;
    if (r->context == NULL || bl_slot_use(r->context, r->at[0]) == NULL ||
        !bl_op_is_here(r->context, "weight", r->at[1]) || !bl_op_autocast(r->context, BL_OP_matmul, r->at, 3))
        return (belay_tensor){0};
    const bl_given given[] = {{"x", r->at[0]}, {"weight", r->at[1]}, {"bias", r->at[2]}};
    if (!ranks_fit(r, given) || !groups_fit(r, given, groups_of(o)) || !operands_fit(r, given, groups_of(o)) ||
        !read_sizes(r, given, o, &c) || !plan(r, given, &c) ||
        !bl_op_meet(r->context, r->function->name, role, r->at, 3))
        return (belay_tensor){0};
    return apply(r, &c);
}

belay_tensor belay_conv1d(belay_tensor x, belay_tensor weight, belay_tensor bias, const belay_conv_options *options)
{
    const belay_tensor in[] = {x, weight};
    request r = {bl_op_context(in, 2), &conv1d_function, 1, {x, weight, bias}};
    BL_ENTER(r.context);
    return run(&r, options);
}

belay_tensor belay_conv2d(belay_tensor x, belay_tensor weight, belay_tensor bias, const belay_conv_options *options)
{
    const belay_tensor in[] = {x, weight};
    request r = {bl_op_context(in, 2), &conv2d_function, 2, {x, weight, bias}};
    BL_ENTER(r.context);
    return run(&r, options);
}
