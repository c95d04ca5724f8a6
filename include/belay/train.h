/* SPDX-License-Identifier: Apache-2.0 */
/* Training: the whole loop, checkpoints, what a run's folder holds, evaluation and prediction.
 *
 *   model, optimizer, data  ->  belay_train  ->  RUN/best.safetensors, last.safetensors, metrics.csv, report.html, ...
 *   RUN                     ->  belay_run_open  ->  model, tokenizer, labels  ->  belay_evaluate, belay_predict
 *
 * A batch that faults never reaches the weights: the window's other batches are computed again and applied without it,
 * so that the run goes on as if that batch did not exist.  Failures are faults of the context, told by its log. */
#ifndef BELAY_TRAIN_H
#define BELAY_TRAIN_H

#include <belay/amp.h>
#include <belay/data.h>
#include <belay/dist.h>
#include <belay/nn.h>
#include <signal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- training --------------------------------------------------------------------------------------------------- */

/* What becomes of a micro-batch that faulted. */
typedef enum belay_on_fault {
    BELAY_ON_FAULT_SKIP = 0, /* left out */
    BELAY_ON_FAULT_REDO = 1, /* once more under launch blocking: clean, it counts and is noted as transient */
    BELAY_ON_FAULT_STOP = 2  /* the run ends with run.stopped; nothing of the window is applied */
} belay_on_fault;

/* A batch by its epoch and its place in it, both from 0. */
typedef struct belay_batch_place {
    int64_t epoch, position;
} belay_batch_place;

typedef enum belay_progress_kind {
    BELAY_PROGRESS_STEP,  /* an optimizer window has ended */
    BELAY_PROGRESS_EPOCH, /* an epoch has ended and was validated */
    BELAY_PROGRESS_SAVED, /* a checkpoint was written */
    BELAY_PROGRESS_BEGUN  /* all is open, no batch was computed by this process yet */
} belay_progress_kind;

/* How far a run is.  A figure that is not known is NaN. */
typedef struct belay_progress {
    belay_progress_kind kind;
    int64_t epoch, n_epochs;           /* the epoch in work, from 0 */
    int64_t batch, n_batches;          /* batches of it that are done */
    int64_t n_steps;                   /* steps applied so far */
    double loss, accuracy;             /* of the training batches of this epoch so far, discarded passes left out */
    double valid_loss, valid_accuracy; /* EPOCH, with validation data */
    double lr;
    double samples_per_second; /* of this epoch so far */
    double seconds;            /* since belay_train began */
    int64_t n_faults;          /* micro-batches that faulted so far */
    bool is_best;              /* EPOCH: better than all before */
    const char *path;          /* SAVED: which file; BEGUN: the checkpoint that the run goes on from, NULL: none */
    int64_t n_samples, n_valid_samples, n_parameters; /* BEGUN: of an epoch, of a validation, of the model */
} belay_progress;

typedef void (*belay_progress_function)(void *state, const belay_progress *progress);

/* Zero means what stands in brackets. */
typedef struct belay_train_options {
    belay_dataset *valid;          /* (none: the best epoch is that with the best training figures) */
    int64_t epochs;                /* (5) */
    int64_t batch;                 /* samples of a micro-batch, of one rank (64) */
    int64_t accumulate;            /* micro-batches of a step (1) */
    bool no_shuffle;               /* batches in the order of the data */
    bool drop_last;                /* leave out an epoch's last batch when it is not full */
    int64_t workers;               /* threads that fill batches ahead (0) */
    uint64_t seed;                 /* of the order (the context's seed) */
    double label_smoothing;        /* share of each target that is spread over all classes */
    belay_dtype autocast;          /* BELAY_BF16 or BELAY_F16: each forward and its loss run under it (f32: off) */
    belay_grad_scaler *scaler;     /* scales the losses, goes into the checkpoint (none) */
    int64_t patience;              /* stop after so many epochs without a better one (0: never) */
    belay_on_fault on_fault;       /* (SKIP) */
    int64_t max_faults;            /* end the run when more micro-batches than this fault (100); -1: when one does */
    const belay_batch_place *skip; /* [n_skip] batches that are left out; one that no epoch has is conf.value */
    int64_t n_skip;

    /* Of belay_ddp over the model (none: this process trains alone).  All ranks call belay_train with the same options and
     * the same data; each takes its part of every micro-batch, and all apply, skip, save and end the same.  Rank 0 writes
     * the folder, which all must see to resume. */
    belay_reducer *reducer;

    const char *out; /* the run's folder, made where needed (none: nothing is written) */
    /* A folder that holds a run: go on with it, bit for bit; replace it.  With `resume`, one without a checkpoint starts
     * over; one with best.safetensors alone is refused (file.open). */
    bool resume, overwrite;
    const char *settings;       /* JSON object for run.json: {"lr": {"value": 0.001, "set_by": "default"}, ...} */
    const char *description;    /* JSON object by which belay_run_open makes the model again; see below */
    belay_tokenizer *tokenizer; /* for the checkpoints' metadata (those of the training data) */
    belay_labels *labels;

    /* Nonzero asks the run to finish its step, save and end; a signal handler may set it to the signal's number. */
    const volatile sig_atomic_t *stop;
    belay_progress_function progress;
    void *progress_state;
} belay_train_options;

/* How a run went, also when it failed. */
typedef struct belay_train_result {
    belay_code code;      /* as returned */
    int status;           /* exit status: 0, that of the code's group, 128 + *stop after a stop that was asked for */
    int stopped_by;       /* value of *stop that ended the run, 0: none */
    bool ended_early;     /* by patience */
    int64_t n_epochs;     /* whole epochs done, those before a resume counted */
    int64_t n_steps;      /* steps applied, likewise; as are all below */
    int64_t n_faults;     /* micro-batches that faulted */
    int64_t n_skipped;    /* of them: left out */
    int64_t n_transient;  /* of them: clean when done again */
    int64_t n_overflowed; /* steps dropped because a gradient was not finite */
    int64_t n_corrected;  /* indices moved or zeroed by the index policy, of this process */
    int64_t best_epoch;   /* -1: none yet */
    double best_accuracy, best_loss;    /* of the best epoch; NaN: none yet */
    double last_accuracy, last_loss;    /* of the last epoch */
    double train_loss, train_accuracy;  /* of the last epoch's training batches */
    double samples_per_second, seconds; /* of this process, validation and saving counted in the seconds only */
} belay_train_result;

/* Trains `model`, whose forward takes tokens [batch, seq] and gives logits [batch, classes], with the mean cross
 * entropy of each micro-batch against its labels.  Each step applies the mean gradient of its window's good batches.
 * The optimizer must be one over the model's parameters.
 *
 * BELAY_OK: all epochs were done, or patience or *stop ended the run in order.  Else the run ended on the fault that is
 * returned and was told: run.stopped, run.max_faults, file.exists, file.mismatch, file.write, mem.exhausted, ...
 * With a nil model, optimizer or dataset: conf.order, and nothing is said.  `result` may be NULL. */
BELAY_API BELAY_MUST_USE belay_code belay_train(belay_module *model, belay_optimizer *optimizer, belay_dataset *data,
                                                const belay_train_options *options, belay_train_result *result);

/* ---- evaluation ------------------------------------------------------------------------------------------------- */

/* Figures over a dataset.  Batches that faulted are left out and counted.  Free with belay_evaluation_fini. */
typedef struct belay_evaluation {
    int64_t n_samples;         /* that the figures are over */
    int64_t n_classes;         /* width of the logits */
    int64_t n_faulted_batches; /* left out */
    double loss, accuracy;     /* mean over samples; NaN without samples */
    int64_t *confusion;        /* [n_classes, n_classes]: row = label, column = what was predicted */
} belay_evaluation;

/* One class of an evaluation; a share without samples below it is NaN. */
typedef struct belay_class_figures {
    int64_t n_samples, n_predicted, n_right;
    double precision, recall, f1;
} belay_class_figures;

/* Runs the model over `data` in eval mode, without recording, in batches of `batch` (0: 64).  Code: of the first thing
 * that made it impossible; batches that fault do not. */
BELAY_API BELAY_MUST_USE belay_code belay_evaluate(belay_module *model, belay_dataset *data, int64_t batch,
                                                   belay_evaluation *out);
BELAY_API belay_class_figures belay_evaluation_class(const belay_evaluation *evaluation, int64_t class_id);
BELAY_API void belay_evaluation_fini(belay_evaluation *evaluation);

/* ---- prediction ------------------------------------------------------------------------------------------------- */

typedef struct belay_prediction {
    int64_t class_id;   /* -1: none, see code */
    double probability; /* of that class */
    belay_code code;    /* BELAY_OK, or the fault of this sample, which was told */
} belay_prediction;

/* Predicts each row of ids [n, seq] by itself: a row that faults gets the code, the others their class.  Nothing is
 * recorded and no step is touched.  Code: BELAY_OK unless prediction was impossible altogether. */
BELAY_API BELAY_MUST_USE belay_code belay_predict(belay_module *model, const int64_t *ids, int64_t n, int64_t seq,
                                                  belay_prediction *out);

/* ---- checkpoints ------------------------------------------------------------------------------------------------ */

typedef struct belay_pair {
    const char *key, *value;
} belay_pair;

/* Writes the parameters and buffers of a module as safetensors under their dotted names, with metadata [n].  Atomic:
 * what stood there is whole until the new file is.  Codes: file.write, mem.exhausted. */
BELAY_API BELAY_MUST_USE belay_code belay_checkpoint_save(belay_module *model, const char *path,
                                                          const belay_pair *metadata, int64_t n_metadata);

/* Reads them back.  Names, shapes and dtypes are compared first: the first difference is file.mismatch and nothing has
 * changed.  Tensors whose names start with "belay." are passed over.  Codes: file.*, mem.exhausted. */
BELAY_API BELAY_MUST_USE belay_code belay_checkpoint_load(belay_module *model, const char *path);

/* Reads a file of Hugging Face's GPT-2 into a belay_gpt2 of the same sizes and dtype: every name, shape and dtype is
 * compared first, the first difference is file.mismatch and nothing has changed.  Names may lack "transformer.", masks
 * (attn.bias, attn.masked_bias) are passed over, and lm_head.weight may be there when it is the token table.
 * belay_checkpoint_save writes a file that Hugging Face reads.  Codes: file.*, mem.exhausted. */
BELAY_API BELAY_MUST_USE belay_code belay_gpt2_load(belay_module *model, const char *path);

/* ---- runs ------------------------------------------------------------------------------------------------------- */

/* A trained model with what it needs to read texts.  Belongs to its context.  Nil when the folder holds no checkpoint
 * yet or one of something else; the context then has the fault. */
typedef struct belay_run belay_run;

/* Opens RUN/best.safetensors, where there is none yet RUN/last.safetensors; `path` may also name a file itself.  The
 * model is made again by the checkpoint's description:
 *
 *   {"model": "lstm", "n_tokens": 30, "classes": 5, "seq": 20, "embed": 128, "hidden": 256, "layers": 2, "dropout":
 * 0.3}
 *   {"model": "mean", "n_tokens": 30, "classes": 5, "seq": 20, "embed": 128, "hidden": 256, "dropout": 0.3,
 *    "mean_all": false} */
BELAY_API belay_run *belay_run_open(belay_context *context, const char *path);
BELAY_API bool belay_run_is_nil(const belay_run *run);
BELAY_API const char *belay_run_path(const belay_run *run); /* of the checkpoint; NULL for nil */
BELAY_API belay_module *belay_run_model(const belay_run *run);
BELAY_API belay_tokenizer *belay_run_tokenizer(const belay_run *run); /* nil where the run had none */
BELAY_API belay_labels *belay_run_labels(const belay_run *run);
BELAY_API int64_t belay_run_seq(const belay_run *run);
BELAY_API int64_t belay_run_n_classes(const belay_run *run);

/* Fills `options` so that a dataset is read as the run's training data were: seq, tokenizer, labels. */
BELAY_API void belay_run_text_options(const belay_run *run, belay_text_options *options);

/* Predicts texts [n]; each NUL-ended UTF-8, else its code is data.text. */
BELAY_API BELAY_MUST_USE belay_code belay_run_predict(belay_run *run, const char *const *texts, int64_t n,
                                                      belay_prediction *out);
/* The label of a class ("3" where the run has no labels), until the next call; NULL for what is no class. */
BELAY_API const char *belay_run_label(belay_run *run, int64_t class_id);
BELAY_API void belay_run_close(belay_run *run);

#ifdef __cplusplus
}
#endif
#endif
