/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of training share: a data set that can be altered in one place, a small model, and runs of them whose
 * weights can be compared bit by bit. */
#ifndef BL_TESTS_TRAIN_SUPPORT_H
#define BL_TESTS_TRAIN_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <belay/belay.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/rng.h"
#include "support/words.h"

enum { SEQ = 6, CLASSES = 3, VOCABULARY = 20, BATCH = 8 };

/* ---- data --------------------------------------------------------------------------------------------------------- */

/* One value of one sample that is not what it should be. */
typedef struct plant {
    int64_t sample; /* -1: none */
    int64_t column; /* of the ids; -1: the label */
    int64_t value;
    uint64_t when; /* bit k: at get number k of that sample; 0: always */
    int n_gets;
    bool refuses; /* instead: get fails */
} plant;

typedef struct samples {
    uint64_t seed;
    plant plant;
    sig_atomic_t *stop; /* set at get number stop_at, counted from 1 */
    int stop_at, n_gets;
    int end_at; /* SIGKILL at that get; 0: never */
} samples;

/* Ids are random; the label is a function of the first id, so that there is something to learn. */
static inline belay_code get_sample(void *state, int64_t index, belay_sample *sample)
{
    samples *s = state;
    s->n_gets++;
    if (s->stop != NULL && s->n_gets == s->stop_at)
        *s->stop = SIGTERM;
    if (s->end_at > 0 && s->n_gets == s->end_at)
        raise(SIGKILL);
    bl_rng_key key = {.seed = s->seed, .epoch = 1};
    for (int64_t i = 0; i < SEQ; i++)
        sample->room[i] = (int64_t)bl_rng_below(&key, (uint64_t)(index * SEQ + i), VOCABULARY);
    sample->n_ids = SEQ;
    sample->label = sample->room[0] % CLASSES;
    sample->file = "samples.tsv";
    sample->line = index + 2;
    plant *p = &s->plant;
    if (index != p->sample || (p->when != 0 && (p->when >> p->n_gets++ & 1) == 0))
        return BELAY_OK;
    if (p->refuses) {
        sample->why = "the page is torn";
        return BELAY_DATA_ROW;
    }
    if (p->column >= 0)
        sample->room[p->column] = p->value;
    else
        sample->label = p->value;
    return BELAY_OK;
}

static inline belay_dataset *open_samples(belay_context *context, samples *s, int64_t n)
{
    return belay_dataset_callback(context, n, get_sample, s,
                                  &(belay_ids_options){.seq = SEQ, .n_tokens = VOCABULARY, .n_classes = CLASSES});
}

/* ---- runs --------------------------------------------------------------------------------------------------------- */

/* All that was told, in order. */
typedef struct told {
    char text[65536];
    int n;
    int n_of[1000]; /* by code */
} told;

static inline void hear(void *state, belay_code code, const char *text)
{
    told *t = state;
    size_t used = strlen(t->text);
    snprintf(t->text + used, sizeof t->text - used, "%s", text);
    t->n++;
    t->n_of[code]++;
}

/* A run: what differs between tests, and what came of it. */
typedef struct trial trial;
struct trial {
    samples samples, valid;
    int64_t n_samples, n_valid;
    int threads;
    belay_index_policy policy;
    bool is_mean; /* the small model without an LSTM */
    belay_train_options options;
    told *told;         /* NULL: nobody listens */
    bool is_ranked;     /* over a group */
    const char *device; /* of the ranks; NULL: cpu */
    const char *maker;  /* of the group; NULL: as the environment says */
    double timeout;     /* of the group */

    int rank, size;
    belay_code code;
    belay_train_result result;
    int closed; /* status of belay_close */
    float *weights;
    int64_t n_weights;
};

static inline trial new_trial(void)
{
    trial t = {.n_samples = 70,
               .n_valid = 20,
               .threads = 1,
               .options = {.epochs = 2, .batch = BATCH, .accumulate = 3, .no_shuffle = true}};
    t.samples = (samples){.seed = 11, .plant = {.sample = -1}};
    t.valid = (samples){.seed = 12, .plant = {.sample = -1}};
    return t;
}

static inline belay_module *small_model(belay_context *context, bool is_mean)
{
    return belay_text_classifier(context,
                                 &(belay_text_classifier_options){.model = is_mean ? BELAY_TEXT_MEAN : BELAY_TEXT_LSTM,
                                                                  .n_tokens = VOCABULARY,
                                                                  .classes = CLASSES,
                                                                  .embed = 5,
                                                                  .hidden = 7,
                                                                  .layers = 2,
                                                                  .dropout = 0.25});
}

static inline const char *small_description(bool is_mean)
{
    return is_mean ? "{\"model\":\"mean\",\"n_tokens\":20,\"classes\":3,\"seq\":6,\"embed\":5,\"hidden\":7,"
                     "\"dropout\":0.25,\"mean_all\":false}"
                   : "{\"model\":\"lstm\",\"n_tokens\":20,\"classes\":3,\"seq\":6,\"embed\":5,\"hidden\":7,"
                     "\"layers\":2,\"dropout\":0.25}";
}

/* All parameters, one after the other. */
static inline float *read_weights(const belay_module *model, int64_t *n)
{
    float *weights = calloc((size_t)belay_module_n_elements(model) + 1, sizeof *weights), *at = weights;
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++) {
        belay_tensor parameter = belay_module_parameter(model, i);
        int64_t n_elements = belay_tensor_n_elements(parameter);
        if (belay_tensor_read(parameter, at, n_elements * 4) != BELAY_OK)
            abort();
        at += n_elements;
    }
    *n = at - weights;
    return weights;
}

/* Where reports say that the run was called. */
static int run_trial_line;

/* To the device that the group has made the current one. */
static inline bool move_here(belay_context *context, belay_module *model)
{
    return belay_module_to(model, belay_device_get(context)) == BELAY_OK;
}

static inline void join_ranks(trial *t, belay_context *context, belay_module *model, belay_train_options *options)
{
    belay_group *group = belay_group_open(context, &(belay_group_options){.maker = t->maker, .timeout = t->timeout});
    if (belay_group_bind(group, t->device != NULL ? t->device : "cpu") != BELAY_OK || !move_here(context, model))
        abort();
    t->rank = belay_group_rank(group);
    t->size = belay_group_size(group);
    options->reducer = belay_ddp(model, group, &(belay_ddp_options){.batch = options->batch});
}

static inline void run_trial(trial *t)
{
    belay_context *context = belay_open(&(belay_options){.seed = 7,
                                                         .threads = t->threads,
                                                         .index_policy = t->policy,
                                                         .log = t->told != NULL ? hear : NULL,
                                                         .log_state = t->told,
                                                         .no_journal = true});
    belay_module *model = small_model(context, t->is_mean);
    belay_train_options options = t->options;
    if (t->is_ranked)
        join_ranks(t, context, model, &options);
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 0.02, .clip = 1});
    belay_dataset *data = open_samples(context, &t->samples, t->n_samples);
    if (t->n_valid > 0)
        options.valid = open_samples(context, &t->valid, t->n_valid);
    options.description = small_description(t->is_mean);
    run_trial_line = __LINE__ + 1;
    t->code = belay_train(model, adam, data, &options, &t->result);
    t->weights = belay_module_is_nil(model) ? NULL : read_weights(model, &t->n_weights);
    t->closed = belay_close(context);
}

static inline void end_trial(trial *t)
{
    free(t->weights);
    t->weights = NULL;
}

static inline void assert_same_weights(const trial *a, const trial *b)
{
    assert_int_equal(a->n_weights, b->n_weights);
    assert_memory_equal(a->weights, b->weights, (size_t)a->n_weights * sizeof *a->weights);
}

static inline bool have_same_weights(const trial *a, const trial *b)
{
    return a->n_weights == b->n_weights && memcmp(a->weights, b->weights, (size_t)a->n_weights * sizeof(float)) == 0;
}

/* ---- folders ------------------------------------------------------------------------------------------------------ */

/* A fresh name in TMPDIR, else where a sync costs nothing; nothing is there yet. */
static inline const char *make_folder(char path[512])
{
    const char *tmp = getenv("TMPDIR");
    if (tmp == NULL || tmp[0] == '\0')
        tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, 480, "%s/belay-train-XXXXXX", tmp);
    if (mkdtemp(path) == NULL)
        abort();
    strcat(path, "/run");
    return path;
}

/* The run's folder and the one above it, one level of files. */
static inline void empty_folder(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char name[1024];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        unlink(name);
    }
    if (folder != NULL)
        closedir(folder);
    rmdir(path);
}

static inline void remove_folder(const char *path)
{
    char above[512];
    empty_folder(path);
    snprintf(above, sizeof above, "%s", path);
    *strrchr(above, '/') = '\0';
    rmdir(above);
}

/* A file of the folder, NUL-ended; NULL when it is not there. */
static inline char *read_file_in(const char *folder, const char *name, int64_t *n_bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    long n = ftell(file);
    rewind(file);
    char *bytes = calloc((size_t)n + 1, 1);
    if (fread(bytes, 1, (size_t)n, file) != (size_t)n)
        abort();
    fclose(file);
    if (n_bytes != NULL)
        *n_bytes = n;
    return bytes;
}

static inline bool is_there(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

#endif
