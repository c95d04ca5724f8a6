/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: parameters, buffers, children and a forward written as arithmetic.
 *
 * A module owns its parameters and buffers, its children and their gradients; it dies with the root it hangs from, and
 * the root dies by belay_module_free or with its context.  Names are dotted from the root and the same as PyTorch's:
 * "embedding.weight", "lstm.weight_ih_l0", "fc.bias".
 *
 * Makers never return NULL: after a fault (conf.value for a required option that is 0, mem.exhausted) they return a nil
 * module, which absorbs: it has no parameters, and its forward returns nil.  A module with a part that could not be
 * made is nil as well, so that a model is never trained without one.  So is a module that was freed, and using it is the
 * fault life.stale: while its context is open and it is one of the last 4,096 that were freed. */
#ifndef BELAY_NN_H
#define BELAY_NN_H

#include <belay/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct belay_module belay_module;

/* ---- using a module -------------------------------------------------------------------------------------------------- */

/* The most modules below each other, and the most forwards inside of each other: size.overflow names the layer of a
 * forward that comes to call itself. */
#define BELAY_MAX_NESTING 256

/* Runs the module; faults inside of it name its layer path ("classifier.lstm"). */
BELAY_API belay_tensor belay_forward(belay_module *module, belay_tensor x);

/* Switches the module and all below it to training (as they are made) or to evaluation: dropout acts in training only.
 */
BELAY_API void belay_module_training_set(belay_module *module, bool training);
BELAY_API bool belay_module_training_get(const belay_module *module);

/* Moves the parameters and buffers of the module and all below it, with the gradients that they have, to a device
 * ("sim:1"); what lies there stays as it is.  Handles stay valid.  All or nothing: after a fault nothing was moved.
 * Makers put parameters on the current device, whatever becomes of it.
 *
 * Make the optimizer behind it: one that was made before refuses to step (place.device).  So does the backward of a
 * forward before it.  Refused at work, inside of the module's own forward (conf.order).  Other faults: as
 * belay_device_set, mem.exhausted, place.lost. */
BELAY_API BELAY_MUST_USE belay_code belay_module_to(belay_module *module, const char *device);

/* Frees a root and all that hangs from it; the handles of its parameters are stale from then on.  Refused are a child,
 * which dies with its parent, and the model of a belay_run, which goes with it (conf.value); and a tree with a module at
 * work: inside of its own forward, or of belay_train, belay_evaluate or belay_predict over it (conf.order). */
BELAY_API void belay_module_free(belay_module *module);

/* True for NULL, for what a maker returned after a fault, and when a part of the module is missing. */
BELAY_API bool belay_module_is_nil(const belay_module *module);
BELAY_API belay_context *belay_module_context(const belay_module *module); /* NULL for a nil one */

/* ---- walking --------------------------------------------------------------------------------------------------------- */

/* Parameters and buffers of the module and all below it, own ones first, then child by child in the order in which they
 * were registered: PyTorch's order.  Names are dotted from this module; they live until it is freed or becomes a child.
 * Number and name outside of the range: nil and "". */
BELAY_API int64_t belay_module_n_parameters(const belay_module *module);
BELAY_API belay_tensor belay_module_parameter(const belay_module *module, int64_t number);
BELAY_API const char *belay_module_parameter_name(const belay_module *module, int64_t number);
BELAY_API int64_t belay_module_n_buffers(const belay_module *module);
BELAY_API belay_tensor belay_module_buffer(const belay_module *module, int64_t number);
BELAY_API const char *belay_module_buffer_name(const belay_module *module, int64_t number);

/* A parameter or buffer by its dotted name; nil when there is none. */
BELAY_API belay_tensor belay_module_find(const belay_module *module, const char *name);

/* Children of this module itself; NULL outside of the range. */
BELAY_API int64_t belay_module_n_children(const belay_module *module);
BELAY_API belay_module *belay_module_child(const belay_module *module, int64_t number);
/* The name under which the module was registered, or its kind's name for a root ("classifier"). */
BELAY_API const char *belay_module_name(const belay_module *module);

/* Elements of all parameters together. */
BELAY_API int64_t belay_module_n_elements(const belay_module *module);

/* Drops the gradients of all parameters. */
BELAY_API void belay_module_grads_clear(belay_module *module);

/* ---- a module of one's own
 * ------------------------------------------------------------------------------------------------------------------
 * examples/custom_module.c is a whole one:
 *
 *   struct residual { belay_module *norm, *inner; belay_tensor scale; };
 *
 *   static belay_tensor residual_forward(belay_module *module, belay_tensor x)
 *   {
 *       const struct residual *r = belay_module_self(module);
 *       belay_tensor y = belay_forward(r->inner, belay_forward(r->norm, x));
 *       return belay_add(x, belay_mul(r->scale, y));
 *   }
 */

typedef struct belay_module_kind {
    const char *name; /* of its layer where it is a root; static text */
    int64_t n_bytes;  /* of the module's own struct */
    belay_tensor (*forward)(belay_module *module, belay_tensor x);
    void (*free)(void *self); /* frees what the struct holds besides parameters and children; NULL: nothing.  Calls
                                 nothing of Belay but belay_module_free, for roots of its own */
} belay_module_kind;

/* A module of that kind, without parameters.  `kind` must outlive it.  Its struct starts as zeros. */
BELAY_API belay_module *belay_module_new(belay_context *context, const belay_module_kind *kind);

/* The module's struct; for a nil module NULL. */
BELAY_API void *belay_module_self(const belay_module *module);

/* How a parameter starts.  Drawn by the context's seed and the parameter's number, so that the same program with the
 * same seed starts with the same weights. */
typedef enum belay_init_kind {
    BELAY_INIT_ZEROS = 0,
    BELAY_INIT_CONSTANT = 1, /* a */
    BELAY_INIT_UNIFORM = 2,  /* in [a, b) */
    BELAY_INIT_NORMAL = 3    /* mean a, deviation b */
} belay_init_kind;
typedef struct belay_init {
    belay_init_kind kind;
    double a, b;
} belay_init;

/* Makes a parameter, registers it, returns its handle.  A name has no dot and is the module's only one. */
BELAY_API belay_tensor belay_module_add_parameter(belay_module *module, const char *name, belay_dtype dtype,
                                                  belay_shape shape, belay_init init);
/* Takes over a tensor without gradient as a buffer: saved with the parameters, not trained.  Returns its handle. */
BELAY_API belay_tensor belay_module_add_buffer(belay_module *module, const char *name, belay_tensor tensor);
/* Takes over a root as a child; names of all below it change accordingly.  Returns the child. */
BELAY_API belay_module *belay_module_add_child(belay_module *module, const char *name, belay_module *child);

/* ---- modules
 * ------------------------------------------------------------------------------------------------------------------
 * dtype: a float dtype, 0 is f32. */

typedef struct belay_embedding_module_options {
    int64_t rows, width; /* required */
    bool has_padding;
    int64_t padding; /* this row starts as zeros and takes no gradient */
    belay_index_policy policy;
    bool cast_ids;
    belay_dtype dtype;
} belay_embedding_module_options;
/* ids [...] -> [..., width].  weight [rows, width] from N(0, 1). */
BELAY_API belay_module *belay_embedding_module(belay_context *context, const belay_embedding_module_options *options);

typedef struct belay_linear_module_options {
    int64_t in, out; /* required */
    bool no_bias;
    belay_dtype dtype;
} belay_linear_module_options;
/* [..., in] -> [..., out].  weight [out, in], bias [out] from U(-1/sqrt(in), 1/sqrt(in)). */
BELAY_API belay_module *belay_linear_module(belay_context *context, const belay_linear_module_options *options);

typedef struct belay_layer_norm_module_options {
    int64_t width; /* required */
    double eps;    /* 0: 1e-5; for none at all, as of belay_layer_norm */
    bool no_affine;
    belay_dtype dtype;
} belay_layer_norm_module_options;
/* [..., width] -> [..., width].  weight [width] of ones, bias [width] of zeros. */
BELAY_API belay_module *belay_layer_norm_module(belay_context *context, const belay_layer_norm_module_options *options);

typedef struct belay_rms_norm_module_options {
    int64_t width; /* required */
    double eps;    /* 0: as of belay_rms_norm */
    bool no_affine;
    belay_dtype dtype;
} belay_rms_norm_module_options;
/* [..., width] -> [..., width].  weight [width] of ones. */
BELAY_API belay_module *belay_rms_norm_module(belay_context *context, const belay_rms_norm_module_options *options);

typedef struct belay_batch_norm_module_options {
    int64_t channels; /* required */
    double eps;       /* 0: 1e-5; for none at all, as of belay_layer_norm */
    double momentum;  /* 0: 0.1 */
    bool no_momentum; /* a momentum of 0: running statistics stay; not with the one above or below */
    bool cumulative;  /* running statistics are the mean over all batches: PyTorch's momentum None */
    bool no_affine;
    bool no_tracking; /* no running statistics: those of the batch in evaluation, too */
    belay_dtype dtype;
} belay_batch_norm_module_options;
/* [batch, channels, ...] -> the same: PyTorch's BatchNorm1d, 2d and 3d.  weight [channels] of ones, bias [channels] of
 * zeros; buffers running_mean [channels] of zeros, running_var [channels] of ones, num_batches_tracked i64 without axes.
 * The buffers go on with an applied step of the optimizer that has weight or bias, and only then; while
 * recording is off, at once: see belay_batch_norm. */
BELAY_API belay_module *belay_batch_norm_module(belay_context *context, const belay_batch_norm_module_options *options);

/* Drops elements with chance p in [0, 1) in training. */
BELAY_API belay_module *belay_dropout_module(belay_context *context, double p);

/* A function of one tensor as a module: belay_map_module(context, belay_relu). */
BELAY_API belay_module *belay_map_module(belay_context *context, belay_tensor (*map)(belay_tensor x));

/* Children in order; belay_module_add_child names them, "0", "1", ... as PyTorch does. */
BELAY_API belay_module *belay_sequential_module(belay_context *context);

typedef struct belay_mlp_options {
    int64_t sizes[16];                   /* required: features in, of each hidden layer, out; a 0 ends */
    belay_tensor (*map)(belay_tensor x); /* between the layers; NULL: belay_relu */
    double dropout;                      /* after each map */
    belay_dtype dtype;
} belay_mlp_options;
/* Linear, map, (dropout,) Linear, ...: named as in nn.Sequential, "0.weight", "2.weight", ... */
BELAY_API belay_module *belay_mlp(belay_context *context, const belay_mlp_options *options);

/* ---- LSTM and GRU ------------------------------------------------------------------------------------------------ */

/* Of one layer in one direction.  Gates stand in PyTorch's order: i, f, g, o of an LSTM (4), r, z, n of a GRU (3).
 * Biases may be nil, both or one. */
typedef struct belay_recurrent_weights {
    belay_tensor ih;      /* [gates hidden, in]; above the first layer in = hidden, or 2 hidden in both directions */
    belay_tensor hh;      /* [gates hidden, hidden] */
    belay_tensor bias_ih; /* [gates hidden] */
    belay_tensor bias_hh; /* [gates hidden] */
} belay_recurrent_weights;
typedef belay_recurrent_weights belay_lstm_weights;
typedef belay_recurrent_weights belay_gru_weights;

typedef struct belay_recurrent_options {
    int layers;         /* 0: 1; the most are 30, or 15 in both directions */
    double dropout;     /* between layers, in [0, 1) */
    bool training;      /* dropout acts */
    bool bidirectional; /* each layer also runs from the last step to the first; both results stand side by side */
} belay_recurrent_options;
typedef belay_recurrent_options belay_lstm_options;
typedef belay_recurrent_options belay_gru_options;

typedef struct belay_lstm_result {
    belay_tensor output; /* [batch, time, directions hidden]: h of the last layer; a view, not contiguous */
    belay_tensor h_n;    /* [layers directions, batch, hidden] after the last step; in reverse that is the first one */
    belay_tensor c_n;    /* [layers directions, batch, hidden] */
} belay_lstm_result;

/* Runs over x [batch, time, in].  h0 and c0 [layers directions, batch, hidden] are the state before the first step, nil
 * for zeros.  `weights`: one for each layer; in both directions two, the reverse one second.  Hochreiter and Schmidhuber
 * (1997) with forget gates of Gers et al. (2000):
 *   i, f, o = sigmoid, g = tanh of W_ih x + b_ih + W_hh h + b_hh;  c = f c + i g;  h = o tanh c.
 * Both directions: Schuster and Paliwal (1997).  Gradients of outputs that are not used cost nothing.  Faults:
 * shape.rank, shape.contract, type.dtype, conf.value, conf.missing. */
BELAY_API belay_lstm_result belay_lstm(belay_tensor x, belay_tensor h0, belay_tensor c0,
                                       const belay_lstm_weights *weights, const belay_lstm_options *options);

typedef struct belay_gru_result {
    belay_tensor output; /* [batch, time, directions hidden]: h of the last layer; a view, not contiguous */
    belay_tensor h_n;    /* [layers directions, batch, hidden] after the last step */
} belay_gru_result;

/* The same for a GRU, Cho et al. (2014) in the form of cuDNN and PyTorch, whose r acts behind the product:
 *   r, z = sigmoid of W_ih x + b_ih + W_hh h + b_hh;  n = tanh(W_in x + b_in + r (W_hn h + b_hn));
 *   h = (1 - z) n + z h. */
BELAY_API belay_gru_result belay_gru(belay_tensor x, belay_tensor h0, const belay_gru_weights *weights,
                                     const belay_gru_options *options);

typedef struct belay_recurrent_module_options {
    int64_t in, hidden; /* required */
    int layers;         /* 0: 1 */
    double dropout;     /* between layers */
    bool no_bias;
    belay_dtype dtype;
    bool bidirectional;
} belay_recurrent_module_options;
typedef belay_recurrent_module_options belay_lstm_module_options;
typedef belay_recurrent_module_options belay_gru_module_options;
/* forward: [batch, time, in] -> [batch, time, directions hidden].  weight_ih_l{k}, weight_hh_l{k}, bias_ih_l{k},
 * bias_hh_l{k}, and the same with _reverse, from U(-1/sqrt(hidden), 1/sqrt(hidden)). */
BELAY_API belay_module *belay_lstm_module(belay_context *context, const belay_lstm_module_options *options);
BELAY_API belay_module *belay_gru_module(belay_context *context, const belay_gru_module_options *options);
/* The same with initial state (nil: zeros) and all results. */
BELAY_API belay_lstm_result belay_lstm_module_run(belay_module *lstm, belay_tensor x, belay_tensor h0, belay_tensor c0);
BELAY_API belay_gru_result belay_gru_module_run(belay_module *gru, belay_tensor x, belay_tensor h0);

/* ---- convolutions and pools ------------------------------------------------------------------------------------------ */

typedef struct belay_conv_module_options {
    int64_t in, out;                            /* required: channels */
    int64_t kernel[2];                          /* required; conv1d uses the first of each of these */
    int64_t stride[2], padding[2], dilation[2]; /* as belay_conv_options */
    int64_t groups;                             /* 0: 1; divides in and out */
    bool no_bias;
    belay_dtype dtype;
} belay_conv_module_options;
/* [batch, in, time] -> [batch, out, positions], and with rows and columns.  weight [out, in / groups, kernel ...] and
 * bias [out] from U(-1/sqrt(n), 1/sqrt(n)), n = in / groups times the kernel's taps. */
BELAY_API belay_module *belay_conv1d_module(belay_context *context, const belay_conv_module_options *options);
BELAY_API belay_module *belay_conv2d_module(belay_context *context, const belay_conv_module_options *options);

/* As belay_max_pool1d and the others; they have no parameters. */
BELAY_API belay_module *belay_max_pool1d_module(belay_context *context, const belay_pool_options *options);
BELAY_API belay_module *belay_max_pool2d_module(belay_context *context, const belay_pool_options *options);
BELAY_API belay_module *belay_avg_pool1d_module(belay_context *context, const belay_pool_options *options);
BELAY_API belay_module *belay_avg_pool2d_module(belay_context *context, const belay_pool_options *options);

/* ---- attention and GPT-2 --------------------------------------------------------------------------------------------- */

typedef struct belay_multihead_attention_module_options {
    int64_t embed, heads; /* required; heads divides embed */
    bool causal;          /* no position sees those behind it */
    bool no_bias;
    double dropout; /* of the probabilities, in training */
    belay_dtype dtype;
} belay_multihead_attention_module_options;
/* As nn.MultiheadAttention with batch_first: x [batch, time, embed] attends to itself -> [batch, time, embed].
 * in_proj_weight [3 embed, embed] from U(-sqrt(3 / (2 embed)), sqrt(3 / (2 embed))), in_proj_bias [3 embed] of zeros,
 * out_proj.weight [embed, embed] from U(-1/sqrt(embed), 1/sqrt(embed)), out_proj.bias [embed] of zeros.  The
 * probabilities are never all in memory. */
BELAY_API belay_module *belay_multihead_attention_module(belay_context *context,
                                                         const belay_multihead_attention_module_options *options);
/* The same with queries, keys and values of their own: [batch, queries, embed], [batch, keys, embed] twice. */
BELAY_API belay_tensor belay_multihead_attention_module_run(belay_module *attention, belay_tensor query,
                                                            belay_tensor key, belay_tensor value);

typedef struct belay_transformer_block_module_options {
    int64_t width, heads; /* required; heads divides width */
    int64_t hidden;       /* of the layers behind the attention; 0: 4 width */
    int64_t layers;       /* blocks of the model, by which c_proj starts smaller; 0: 1 */
    double dropout;       /* of the attention's probabilities and of what is added to x */
    double eps;           /* of the norms; 0: 1e-5 */
    belay_dtype dtype;
} belay_transformer_block_module_options;
/* A decoder block of GPT-2, [batch, time, width] -> the same: x + attn(ln_1(x)), then x + mlp(ln_2(x)), with a causal
 * attention and gelu_tanh.  ln_1.*, attn.c_attn.*, attn.c_proj.*, ln_2.*, mlp.c_fc.*, mlp.c_proj.*; the weights of c_*
 * are [in, out] as in Hugging Face's files, from N(0, 0.02), those of c_proj from N(0, 0.02 / sqrt(2 layers)); biases
 * are zeros. */
BELAY_API belay_module *belay_transformer_block_module(belay_context *context,
                                                       const belay_transformer_block_module_options *options);

typedef struct belay_gpt2_options {
    int64_t vocabulary; /* 0: 50257 */
    int64_t context;    /* most tokens in a row; 0: 1024 */
    int64_t layers;     /* 0: 12; the most are 4096 */
    int64_t heads;      /* 0: 12; divides width */
    int64_t width;      /* 0: 768 */
    double dropout;     /* of the embeddings, of attention's probabilities and of what blocks add; 0: none */
    belay_dtype dtype;
} belay_gpt2_options;
/* GPT-2, by default the one of 124M parameters: ids [batch, time] of any integer dtype -> logits [batch, time,
 * vocabulary].  The head is the token table.  transformer.wte.weight, transformer.wpe.weight, transformer.h.N.* (a block
 * each), transformer.ln_f.*; the tables from N(0, 0.02).  belay_gpt2_load reads Hugging Face's files. */
BELAY_API belay_module *belay_gpt2(belay_context *context, const belay_gpt2_options *options);

/* ---- text classifiers ------------------------------------------------------------------------------------------------ */

typedef enum belay_text_model {
    BELAY_TEXT_LSTM = 0, /* embedding, lstm, fc on h_n of the last layer, padding included */
    BELAY_TEXT_MEAN = 1  /* embedding, mean of the positions that are not padding, hidden, tanh, fc */
} belay_text_model;

typedef struct belay_text_classifier_options {
    belay_text_model model;
    int64_t n_tokens; /* required; id 0 is padding */
    int64_t classes;  /* required */
    int64_t embed;    /* 0: 128 */
    int64_t hidden;   /* 0: 256 */
    int layers;       /* LSTM; 0: 2; the most are 30 */
    double dropout;   /* LSTM: between layers; mean: after tanh, or before fc where there is no hidden layer */
    bool mean_all;    /* mean over all positions, padding included */
    bool no_hidden;   /* mean straight into fc */
    belay_index_policy policy;
    bool cast_ids;
    belay_dtype dtype;
} belay_text_classifier_options;

/* ids [batch, time] -> logits [batch, classes].  Parameters: embedding.weight, lstm.*_l{k} or hidden.*, fc.*. */
BELAY_API belay_module *belay_text_classifier(belay_context *context, const belay_text_classifier_options *options);

#ifdef __cplusplus
}
#endif
#endif
