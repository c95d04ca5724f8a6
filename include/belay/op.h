/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on tensors.  Each returns a new tensor in the innermost scope, is recorded for backward when an input wants a
 * gradient, and proves its arguments before anything runs: a call that is refused raises one fault and returns nil, and
 * an op given nil returns nil and says nothing more.  Faults of every op: shape.contract, shape.rank, shape.axis,
 * type.dtype, size.overflow, life.stale, life.foreign, mem.exhausted; and conf.value for an option that is a NaN, out of
 * its range, or finite but no number in f32 where that is what the op computes in.
 *
 * Element-wise ops without options are declared in <belay/op_rows.h>, generated from their rows; docs/ops.md lists all.
 */
#ifndef BELAY_OP_H
#define BELAY_OP_H

#include <belay/op_rows.h>
#include <belay/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- makers ---------------------------------------------------------------------------------------------------------- */

BELAY_API belay_tensor belay_full(belay_context *context, belay_dtype dtype, belay_shape shape, double value);
BELAY_API belay_tensor belay_zeros(belay_context *context, belay_dtype dtype, belay_shape shape);
BELAY_API belay_tensor belay_ones(belay_context *context, belay_dtype dtype, belay_shape shape);
/* start, start + step, ... : n values. */
BELAY_API belay_tensor belay_arange(belay_context *context, belay_dtype dtype, int64_t n, double start, double step);
/* Random floats keyed by the context's seed and position (Philox4x32-10). */
BELAY_API belay_tensor belay_uniform(belay_context *context, belay_dtype dtype, belay_shape shape, double low,
                                     double high);
BELAY_API belay_tensor belay_normal(belay_context *context, belay_dtype dtype, belay_shape shape, double mean,
                                    double deviation);

/* ---- element by element ---------------------------------------------------------------------------------------------- */

/* x * scale + shift. */
BELAY_API belay_tensor belay_affine(belay_tensor x, double scale, double shift);
/* x^exponent, element by element; belay_pow takes a tensor of exponents. */
BELAY_API belay_tensor belay_pow_number(belay_tensor x, double exponent);
/* min(max(x, low), high); a NaN stays a NaN; -INFINITY and INFINITY leave a side open. */
BELAY_API belay_tensor belay_clamp(belay_tensor x, double low, double high);
/* Inverted dropout with chance p in [0, 1] to drop, at 1 zeros; x itself when `training` is false. */
BELAY_API belay_tensor belay_dropout(belay_tensor x, double p, bool training);
/* Another dtype; floats to integers cut towards zero, out of range to the nearest end, NaN to 0. */
BELAY_API belay_tensor belay_cast(belay_tensor x, belay_dtype dtype);

/* ---- reductions ------------------------------------------------------------------------------------------------------ */

/* Axes to reduce: n of them, each from -rank to rank - 1 and named once; n = 0 means all.  Where an op goes along an axis
 * or over axes, a scalar is one element of an axis 0. */
typedef struct belay_axes {
    int n;
    int axis[BELAY_MAX_RANK];
    bool keep; /* leave a size of 1 in place of each reduced axis */
} belay_axes;

/* Of integers and bool in i64, which wraps. */
BELAY_API belay_tensor belay_sum(belay_tensor x, const belay_axes *axes);
/* Of floats; over no elements NaN. */
BELAY_API belay_tensor belay_mean(belay_tensor x, const belay_axes *axes);
/* Variance over axes: squared distances from the mean, divided by their number less `correction`: 1 makes the estimate
 * unbiased, as PyTorch's default, 0 does not.  NaN or Inf when nothing is left to divide by.  In two passes: a large mean
 * costs no digits.  Fault: conf.value (a correction below 0). */
BELAY_API belay_tensor belay_var(belay_tensor x, const belay_axes *axes, int64_t correction);

/* The largest along an axis, a NaN above everything; `indices` (may be NULL) gets where it first stands, as i64.  The
 * gradient goes to that element. */
BELAY_API belay_tensor belay_max(belay_tensor x, int axis, bool keep, belay_tensor *indices);
BELAY_API belay_tensor belay_argmax(belay_tensor x, int axis, bool keep);
/* The largest over axes (NULL: over all); the gradient is shared equally among equal maxima, and is NaN where the
 * largest is. */
BELAY_API belay_tensor belay_amax(belay_tensor x, const belay_axes *axes);

/* Running sums along an axis, from its first element to its last; of integers and bool in i64, which wraps. */
BELAY_API belay_tensor belay_cumsum(belay_tensor x, int axis);

/* ---- order ----------------------------------------------------------------------------------------------------------- */

/* Along an axis from the smallest to the largest, or the other way: a NaN is larger than everything, equal elements stay
 * as they stand.  `indices` (may be NULL) gets where each one was, as i64.  Gradients go back to there. */
BELAY_API belay_tensor belay_sort(belay_tensor x, int axis, bool descending, belay_tensor *indices);
BELAY_API belay_tensor belay_argsort(belay_tensor x, int axis, bool descending);
/* The k largest, or smallest, along an axis in that order; of equal ones those in front.  Fault: conf.value. */
BELAY_API belay_tensor belay_topk(belay_tensor x, int64_t k, int axis, bool smallest, belay_tensor *indices);

/* ---- rows ------------------------------------------------------------------------------------------------------------ */

/* Normalises over the last `n_axes` axes; weight and bias have the shape of those axes or are nil.  eps 0: 1e-5;
 * for none at all give one that is nothing beside a variance, as 1e-30.  Ba, Kiros, Hinton, "Layer Normalization" (2016). */
BELAY_API belay_tensor belay_layer_norm(belay_tensor x, int n_axes, belay_tensor weight, belay_tensor bias, double eps);

/* x over its root mean square over the last `n_axes` axes; weight has the shape of those axes or is nil.  eps 0: 2^-23,
 * for f64 2^-52, what PyTorch takes when it is given none.  Zhang and Sennrich, "Root Mean Square Layer Normalization"
 * (2019). */
BELAY_API belay_tensor belay_rms_norm(belay_tensor x, int n_axes, belay_tensor weight, double eps);

typedef struct belay_batch_norm_options {
    bool training;
    double momentum;  /* in [0, 1]; 0: 0.1 */
    bool no_momentum; /* a momentum of 0: running statistics stay, while n_tracked counts; not with the other two */
    bool cumulative;  /* running statistics are the mean over all batches: PyTorch's momentum None; needs n_tracked */
    double eps;       /* 0: 1e-5; for none at all, as of belay_layer_norm */
    belay_tensor n_tracked; /* i64 without axes: batches so far; or nil */
} belay_batch_norm_options;

/* Normalises each channel of x [batch, channels] or [batch, channels, ...].  running_mean, running_var [channels], both or
 * none; weight and bias [channels] or nil.
 *   training, or without running statistics: by mean and biased variance of the batch, of two values at least
 *   else: by the running ones, which take no gradient
 * In training running = (1 - momentum) running + momentum batch, with the unbiased variance, and n_tracked counts.  They
 * belong to the step: every batch moves them on, in order, from what the one before made of them, and the result waits as
 * the gradients of weight and bias do, for the step of the optimizer that has those (where none has them, or they want no
 * gradient: that has a parameter of the nearest module around; where none has: the next step of any; without any
 * optimizer it is written at once).  A step that is applied writes it.  An optimizer that is kept and not stepped any more
 * is passed over: after 16 steps of others they go with those, and the warning run.waiting says so, once.
 * After one that was refused, for a fault or an overflow, or a discard, their bits are those of before; until the step
 * they read as before.  What is written into them meanwhile is kept.  That differs from PyTorch, which keeps what a bad
 * batch did to them.  They may be views, without elements in common.
 * While recording is off (belay_recording_set) a batch belongs to no step: it moves them on at once, unless something was
 * wrong with it, a fault in the belay_forward around or a statistic that is not finite; then they stay.  To know, the host
 * waits for an asynchronous device.
 * Faults: conf.value, conf.missing, life.read_only; num.nonfinite when a statistic would be Inf or NaN, which refuses
 * the step and leaves that channel's as they were; under autocast an Inf or NaN in x is an overflow, as everywhere.
 * Ioffe and Szegedy, "Batch Normalization" (2015). */
BELAY_API belay_tensor belay_batch_norm(belay_tensor x, belay_tensor running_mean, belay_tensor running_var,
                                        belay_tensor weight, belay_tensor bias,
                                        const belay_batch_norm_options *options);

/* Probabilities along an axis, and their logarithms; no exponential overflows.  A NaN, or nothing but -Inf, makes NaN. */
BELAY_API belay_tensor belay_softmax(belay_tensor x, int axis);
BELAY_API belay_tensor belay_log_softmax(belay_tensor x, int axis);

/* ---- losses ---------------------------------------------------------------------------------------------------------- */

typedef enum belay_reduction { BELAY_MEAN = 0, BELAY_SUM = 1, BELAY_NONE = 2 } belay_reduction;

typedef struct belay_cross_entropy_options {
    belay_reduction reduction;
    bool has_ignore; /* rows whose label is `ignore` count for nothing; `ignore` need not be a class */
    int64_t ignore;
    belay_tensor weight;    /* [classes], or nil */
    double label_smoothing; /* in [0, 1] */
} belay_cross_entropy_options;

/* Cross-entropy of logits [classes], [batch, classes] or [batch, classes, ...] against labels of any integer dtype,
 * shaped as the logits without their classes.  BELAY_MEAN divides by the weights of the rows that count, as PyTorch
 * does (0 / 0 = NaN when none does).  Fault: index.label, which no index policy changes. */
BELAY_API belay_tensor belay_cross_entropy(belay_tensor logits, belay_tensor labels,
                                           const belay_cross_entropy_options *options);

typedef struct belay_nll_loss_options {
    belay_reduction reduction;
    bool has_ignore; /* as of belay_cross_entropy */
    int64_t ignore;
    belay_tensor weight; /* [classes], or nil */
} belay_nll_loss_options;

/* Negative log-likelihood: belay_cross_entropy for what are logarithms of probabilities already (belay_log_softmax).
 * Shapes, mean and faults are the same. */
BELAY_API belay_tensor belay_nll_loss(belay_tensor log_probabilities, belay_tensor labels,
                                      const belay_nll_loss_options *options);

typedef struct belay_bce_with_logits_options {
    belay_reduction reduction;
    belay_tensor weight;     /* of each element, or nil */
    belay_tensor pos_weight; /* of each positive target, or nil */
} belay_bce_with_logits_options;

/* Binary cross-entropy of logits against targets in [0, 1] of the same shape and dtype:
 *   weight (pos_weight t softplus(-x) + (1 - t) softplus(x))
 * so that no logit is too large.  weight and pos_weight broadcast to the logits and make them no larger.  BELAY_MEAN
 * divides by the number of elements, whatever their weights, as PyTorch does. */
BELAY_API belay_tensor belay_bce_with_logits(belay_tensor logits, belay_tensor target,
                                             const belay_bce_with_logits_options *options);

/* Squared differences of two tensors of the same shape, reduced. */
BELAY_API belay_tensor belay_mse(belay_tensor prediction, belay_tensor target, belay_reduction reduction);

/* ---- indices --------------------------------------------------------------------------------------------------------- */

/* What every op that selects by index takes; ids and indices have any integer dtype, and negative ones are out of
 * range.  A bad index: under `raise` the fault index.range; it reads as zeros and adds to nothing. */
typedef struct belay_index_options {
    belay_index_policy policy;
} belay_index_options;

typedef struct belay_embedding_options {
    bool has_padding;
    int64_t padding; /* row whose gradient is left out */
    belay_index_policy policy;
    bool cast_ids; /* takes float ids: checked, num.cast */
} belay_embedding_options;

/* Row ids[...] of weight [rows, width] for each id of any shape: [..., width].  Faults: index.range, num.cast. */
BELAY_API belay_tensor belay_embedding(belay_tensor weight, belay_tensor ids, const belay_embedding_options *options);

/* A row of `classes` zeros with a one where the id says: ids [...] to i64 [..., classes].  A bad id makes zeros, under
 * `clamp` the last class.  Faults: index.range, conf.value. */
BELAY_API belay_tensor belay_one_hot(belay_tensor ids, int64_t classes, const belay_index_options *options);

/* x without all but the entries ids [n] along an axis, in their order. */
BELAY_API belay_tensor belay_index_select(belay_tensor x, int axis, belay_tensor ids,
                                          const belay_index_options *options);
/* y[i][j][k] = x[i][index[i][j][k]][k] for axis 1 of 3; index is nowhere larger than x but along the axis. */
BELAY_API belay_tensor belay_gather(belay_tensor x, int axis, belay_tensor index, const belay_index_options *options);
/* x[indices[0], indices[1], ...]: n indices over the leading axes, broadcast together, then x's other axes. */
#define BELAY_MAX_INDICES 6
BELAY_API belay_tensor belay_index(belay_tensor x, const belay_tensor *indices, int n,
                                   const belay_index_options *options);

/* A copy of x to which src is added at index[i][j][k] in place of j, for axis 1 of 3; index is nowhere larger than src,
 * nor than x but along the axis.  Equal targets add up in the order of the index, always. */
BELAY_API belay_tensor belay_scatter_add(belay_tensor x, int axis, belay_tensor index, belay_tensor src,
                                         const belay_index_options *options);
/* A copy of x to which alpha * src is added at the entries ids [n] along an axis; of integers, which wrap, alpha is
 * whole. */
BELAY_API belay_tensor belay_index_add(belay_tensor x, int axis, belay_tensor ids, belay_tensor src, double alpha,
                                       const belay_index_options *options);

/* ---- products -------------------------------------------------------------------------------------------------------- */

/* x [..., in] times weight [out, in] transposed, plus bias [out] or nil: [..., out]. */
BELAY_API belay_tensor belay_linear(belay_tensor x, belay_tensor weight, belay_tensor bias);

/* Matrix product over the last two axes, leading axes broadcast; 1-D operands as in NumPy. */
BELAY_API belay_tensor belay_matmul(belay_tensor a, belay_tensor b);
/* a [batch, rows, inner] times b [batch, inner, columns]: [batch, rows, columns].  Broadcasts nothing. */
BELAY_API belay_tensor belay_bmm(belay_tensor a, belay_tensor b);

/* ---- attention ------------------------------------------------------------------------------------------------------- */

typedef struct belay_attention_options {
    bool causal;    /* row t of q sees the keys 0 to t, as PyTorch's is_causal */
    double scale;   /* 0: 1 / sqrt(width) */
    double dropout; /* chance in [0, 1) to drop a probability, as belay_dropout does: for training alone */
} belay_attention_options;

/* softmax(scale q k^T) v for each head: q [..., queries, width], k [..., keys, width], v [..., keys, out], with equal
 * leading axes ([batch, heads]): [..., queries, out].  Without keys: zeros.  No [queries, keys] matrix is kept, neither
 * forward nor backward, nor is what was dropped: it is drawn again.  Vaswani et al. (2017); by blocks as Dao et al.,
 * "FlashAttention" (2022).  Fault: conf.value. */
BELAY_API belay_tensor belay_attention(belay_tensor q, belay_tensor k, belay_tensor v,
                                       const belay_attention_options *options);

/* ---- convolutions and pools ------------------------------------------------------------------------------------------ */

/* Of each axis that the windows slide along; a convolution or pool over one axis uses the first number. */
typedef struct belay_conv_options {
    int64_t stride[2];   /* 0: 1 */
    int64_t padding[2];  /* zeros on each side */
    int64_t dilation[2]; /* between the taps; 0: 1 */
    int64_t groups;      /* that the channels are cut into, in and out: each sees its own; 0: 1 */
} belay_conv_options;

/* x [batch, in, time], weight [out, in / groups, kernel], bias [out] or nil -> [batch, out, positions], where positions =
 * (time + 2 padding - dilation (kernel - 1) - 1) / stride + 1, rounded down:
 *   y[b, o, p] = bias[o] + sum over c and k of weight[o, c, k] x[b, first + c, p stride - padding + k dilation],
 * where `first` is the first channel of o's group, the o / (out / groups)-th; as many groups as channels is depthwise.
 * As products over columns of at most 2^20 elements (or in times the kernel's, where that is more) at a time: Chellapilla,
 * Puri and Simard (2006).  Faults: shape.rank, shape.contract (also where no window fits), type.dtype, conf.value. */
BELAY_API belay_tensor belay_conv1d(belay_tensor x, belay_tensor weight, belay_tensor bias,
                                    const belay_conv_options *options);
/* The same over rows and columns: x [batch, in, rows, columns], weight [out, in / groups, kernel rows, kernel
 * columns]. */
BELAY_API belay_tensor belay_conv2d(belay_tensor x, belay_tensor weight, belay_tensor bias,
                                    const belay_conv_options *options);

typedef struct belay_pool_options {
    int64_t kernel[2];  /* required */
    int64_t stride[2];  /* 0: the kernel */
    int64_t padding[2]; /* at most half of the kernel */
    bool exclude_pad;   /* means: padding does not count */
} belay_pool_options;

/* The largest of each window over the last axis, or the last two, of x [..., time] or [..., rows, columns]; padding is
 * less than everything, a NaN more.  `indices` (may be NULL) gets where it first stands in its row or image, as i64.  The
 * gradient goes to that element; the indices are tested again on the way back.  Faults: shape.rank, shape.contract (no
 * window fits), conf.value, index.range. */
BELAY_API belay_tensor belay_max_pool1d(belay_tensor x, const belay_pool_options *options, belay_tensor *indices);
BELAY_API belay_tensor belay_max_pool2d(belay_tensor x, const belay_pool_options *options, belay_tensor *indices);

/* The mean of each window; padding counts as zeros unless it is excluded. */
BELAY_API belay_tensor belay_avg_pool1d(belay_tensor x, const belay_pool_options *options);
BELAY_API belay_tensor belay_avg_pool2d(belay_tensor x, const belay_pool_options *options);

/* ---- shapes ---------------------------------------------------------------------------------------------------------- */

/* The same elements in another shape; one size may be -1.  Of x itself when it is row-major, else of a copy: what
 * PyTorch's reshape does. */
BELAY_API belay_tensor belay_view(belay_tensor x, belay_shape shape);
BELAY_API belay_tensor belay_transpose(belay_tensor x, int a, int b);
/* Axis i of the result is axis axes[i] of x; n is x's rank. */
BELAY_API belay_tensor belay_permute(belay_tensor x, const int *axes, int n);
/* x itself when it is row-major already, else a copy that is. */
BELAY_API belay_tensor belay_contiguous(belay_tensor x);
/* Axes of size 1 repeated, and new axes in front, without a copy; -1 keeps an axis's size. */
BELAY_API belay_tensor belay_expand(belay_tensor x, belay_shape shape);

#define BELAY_END INT64_MAX /* a slice's stop: the end of the axis */

/* Elements start, start + step, ... before stop along an axis; negative start and stop count from the end, step is at
 * least 1.  A range outside of the axis is refused, not cut.  Fault: shape.axis. */
BELAY_API belay_tensor belay_slice(belay_tensor x, int axis, int64_t start, int64_t stop, int64_t step);
/* One index along an axis, which goes away; negative counts from the end. */
BELAY_API belay_tensor belay_select(belay_tensor x, int axis, int64_t index);
/* Slices of those sizes, which add up to the axis, into out[n]; all nil after a fault. */
BELAY_API void belay_split(belay_tensor x, int axis, const int64_t *sizes, int n, belay_tensor *out);
/* Joins n >= 1 tensors along an axis; their other sizes and dtypes are equal. */
BELAY_API belay_tensor belay_cat(const belay_tensor *in, int n, int axis);

#ifdef __cplusplus
}
#endif
#endif
