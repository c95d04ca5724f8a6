/* SPDX-License-Identifier: Apache-2.0 */
/* What a training run is inside: who does what stands in
 *
 *   train.c    options, epochs, validation, how it ends
 *   window.c   the step: forward, loss, backward, accumulate, step; what becomes of a batch that faulted
 *   ranks.c    what the ranks of a training tell each other, and what follows from it
 *   record.c   faults.jsonl
 *   folder.c   the run's folder: refused, begun, gone on with; best, last, metrics, run.json
 *
 * Functions here return a code; the error they fill has a code only when it was not yet told as a fault. */
#ifndef BL_TRAIN_TRAINER_H
#define BL_TRAIN_TRAINER_H

#include <belay/train.h>

#include "dist/reducer.h"
#include "file/atomic.h"
#include "file/json.h"
#include "report/metrics.h"
#include "train/measure.h"

/* What last.safetensors keeps of a run, X(kind, name).  A SAME is what a run that goes on must share with it. */
#define BL_TRAIN_STATE(X)                                                                                              \
    X(SAME, batch) /* of all ranks together */                                                                         \
    X(SAME, accumulate)                                                                                                \
    X(SAME, seed)                                                                                                      \
    X(SAME, shuffle)                                                                                                   \
    X(SAME, drop_last)                                                                                                 \
    X(SAME, samples)                                                                                                   \
    X(INT, epoch)    /* place of the next batch */                                                                     \
    X(INT, position) /* at the epoch's end: its number of batches */                                                   \
    X(INT, steps)                                                                                                      \
    X(INT, faults)                                                                                                     \
    X(INT, skipped)                                                                                                    \
    X(INT, transient)                                                                                                  \
    X(INT, overflowed)                                                                                                 \
    X(INT, best_epoch)                                                                                                 \
    X(INT, since_best) /* epochs */                                                                                    \
    X(REAL, best_accuracy)                                                                                             \
    X(REAL, best_loss)                                                                                                 \
    X(REAL, last_accuracy)                                                                                             \
    X(REAL, last_loss)                                                                                                 \
    X(REAL, train_accuracy)                                                                                            \
    X(REAL, train_loss)                                                                                                \
    X(REAL, epoch_loss) /* sums of the epoch in work */                                                                \
    X(INT, epoch_samples)                                                                                              \
    X(INT, epoch_right)                                                                                                \
    X(INT, metrics_bytes) /* sizes of the files that grow */                                                           \
    X(INT, faults_bytes)

typedef struct bl_train_state {
#define BL_TRAIN_STATE_SAME(name) int64_t name;
#define BL_TRAIN_STATE_INT(name)  int64_t name;
#define BL_TRAIN_STATE_REAL(name) double name;
#define X(kind, name)             BL_TRAIN_STATE_##kind(name)
    BL_TRAIN_STATE(X)
#undef X
#undef BL_TRAIN_STATE_SAME
#undef BL_TRAIN_STATE_INT
#undef BL_TRAIN_STATE_REAL
} bl_train_state;

/* A micro-batch of the window in work. */
typedef enum bl_train_fate {
    BL_FATE_GOOD,
    BL_FATE_REDONE, /* faulted, and was clean when it was done again */
    BL_FATE_OUT     /* skipped, or to be left out from the start */
} bl_train_fate;

enum { BL_TRAIN_MAX_TOLD = 8 };

/* Faults told since the last record was written, and what was seen of their batch. */
typedef struct bl_train_told {
    int n;
    int64_t n_lost; /* more than there is room for */
    bl_report_fault fault[BL_TRAIN_MAX_TOLD];
    json_t *batch; /* NULL: nothing */
} bl_train_told;

/* Of a training over several ranks. */
typedef struct bl_train_ranks {
    belay_group *group; /* NULL: this process is alone */
    int rank, size;
    bool has_given_up;      /* the others were told */
    bl_verdict verdict;     /* of the last pass */
    bl_train_fate *agreed;  /* [accumulate] what all ranks last made of each micro-batch */
    bool *again;            /* [accumulate] to be done once more after the pass */
    int64_t *mine, *theirs; /* [accumulate], [size][accumulate]: room for what is exchanged */
} bl_train_ranks;

typedef struct bl_train_folder {
    char *path; /* NULL: nothing is written */
    char *best, *last, *run, *metrics_path, *faults_path;
    bl_file_append *metrics, *faults;
    const char *tokenizer, *labels; /* JSON for the metadata, NULL: none */
    bool is_open;
    bool goes_on; /* `last` was loaded */
} bl_train_folder;

typedef struct bl_trainer {
    belay_context *context;
    belay_module *model;
    belay_optimizer *optimizer;
    belay_dataset *data;
    belay_train_options options; /* defaults filled in */
    belay_cross_entropy_options loss;
    belay_loader *batches, *valid; /* valid: NULL for none */
    bl_train_watch watch;
    bl_train_told *told;
    bl_train_folder folder;
    bl_train_ranks ranks;
    bl_train_room room;

    bl_train_state state;
    bl_train_fate *fate; /* [accumulate] of the window */
    int64_t n_window;    /* micro-batches of the window */
    struct {
        int64_t faults, skipped, transient;
    } window; /* counts that join the state when the window ends */

    int64_t n_batches;                /* of an epoch */
    int64_t began;                    /* clock */
    int64_t epoch_time, n_epoch_seen; /* ns in windows and samples of this epoch, by this process */
    int64_t all_time, n_all_seen;     /* of the epochs before */
    int64_t n_corrected_before;
    int stopped_by;
    bool ended_early;
    bool is_saved; /* `last` stands where the state stands */
    bl_error error;
} bl_trainer;

/* ---- window.c */

/* The next window of the epoch, which has at least one batch left.  Codes beside those of faults that end everything:
 * run.stopped, run.max_faults.  After a failure nothing of the window has happened. */
BL_MUST_USE belay_code bl_train_window(bl_trainer *t);

/* The codes of a training that more faults than allowed end, when that is so. */
BL_MUST_USE belay_code bl_train_check_faults(bl_trainer *t);

/* ---- ranks.c; all of these do nothing in a process that is alone */

/* From here on the others hear of it when this rank ends. */
BL_MUST_USE belay_code bl_train_ranks_join(bl_trainer *t, belay_reducer *reducer);
BL_MUST_USE belay_code bl_train_ranks_init(bl_trainer *t);
void bl_train_ranks_fini(bl_trainer *t);
/* Whether this rank writes the run's folder. */
static inline bool bl_train_writes(const bl_trainer *t) { return t->ranks.rank == 0; }

/* What the others are told that this one is at; returns what it was. */
static inline bl_phase bl_train_ranks_phase(const bl_trainer *t, bl_phase phase)
{
    return t->ranks.group != NULL ? bl_group_phase(t->ranks.group, phase) : BL_PHASE_OUTSIDE;
}
/* All ranks are here, each with how something ended on it: `code`, else comm.peer where it failed on another. */
BL_MUST_USE belay_code bl_train_ranks_meet(bl_trainer *t, belay_code code);
/* Bytes of rank 0 on all. */
BL_MUST_USE belay_code bl_train_ranks_take(bl_trainer *t, void *data, int64_t n_bytes, const char *what);
/* comm.mismatch where ranks train on other data or stand at another place. */
BL_MUST_USE belay_code bl_train_ranks_compare(bl_trainer *t);

/* After a pass over the window: figures become those of all ranks, *is_clean whether it was on all. */
BL_MUST_USE belay_code bl_train_ranks_agree(bl_trainer *t, bl_train_figures *figures, bool *is_clean);
/* After one that was not: what all ranks make of each micro-batch; counts follow from that. */
BL_MUST_USE belay_code bl_train_ranks_fates(bl_trainer *t);
/* After a window: whether any rank was asked to stop. */
BL_MUST_USE belay_code bl_train_ranks_stop(bl_trainer *t);
/* After a validation: figures of all ranks, the same bits on each. */
BL_MUST_USE belay_code bl_train_ranks_sum(bl_trainer *t, bl_train_figures *figures, int64_t *n_faulted);
/* This rank ends for what the others do not know yet. */
void bl_train_ranks_give_up(bl_trainer *t, belay_code code);
/* Whether this rank is the one that saves what a run that ended so has left. */
bool bl_train_ranks_saves(const bl_trainer *t, belay_code code);

/* ---- record.c */

/* Notes each fault that is told, until bl_train_record; for the trainer's watch, whose state is the
 * bl_train_told. */
void bl_train_told_add(void *state, const bl_report_fault *fault);
/* Before a batch goes: if something was told, notes shape, place and range of its inputs and labels, and where its
 * samples come from. */
void bl_train_look(bl_trainer *t, const belay_loader *loader, const belay_batch *batch);
/* Writes what was told since the last call, a line each, with what was done about it. */
BL_MUST_USE belay_code bl_train_record(bl_trainer *t, const char *policy);

/* A line about a micro-batch that another rank lost. */
BL_MUST_USE belay_code bl_train_record_of_rank(bl_trainer *t, int rank, belay_code code, int64_t position,
                                               const char *policy);

/* ---- folder.c */

/* Sets *has when the folder holds a file of that name; file.open when it may not be looked at. */
BL_MUST_USE belay_code bl_train_folder_look(const char *folder, const char *name, bool *has, bl_error *error);

/* file.exists, file.open (to go on, without what to go on from) or conf.conflict, when the folder may not be used so. */
BL_MUST_USE belay_code bl_train_folder_check(const char *path, bool resume, bool overwrite, bl_error *error);

/* Checks, makes and clears the folder; to go on: loads model, optimizer and state. */
BL_MUST_USE belay_code bl_train_folder_open(bl_trainer *t);
/* The end of an epoch: metrics first, `last` last, so that what was killed in between is done again. */
BL_MUST_USE belay_code bl_train_folder_epoch(bl_trainer *t, const bl_report_metrics *row, bool is_best);
BL_MUST_USE belay_code bl_train_folder_save_last(bl_trainer *t);
/* run.json (outcome NULL while the run is on) and report.html. */
BL_MUST_USE belay_code bl_train_folder_report(bl_trainer *t, const belay_train_result *outcome);
void bl_train_folder_close(bl_trainer *t);

#endif
