/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of the gallery share: a little training into whose middle each of them puts its fault, and the proof
 * of what is promised.  `PROGRAM [cpu | sim:1 | sim]`: on the cpu, on a software device that is not the current one, and
 * on one whose streams run as a seed says.
 *
 * For each injection the training runs twice, with it and without, each time in a context of its own.  A line on stdout
 * says what came of it; the status is 0 when all of it is as the program promises.  Public headers only. */
#ifndef FAULTS_GALLERY_H
#define FAULTS_GALLERY_H

#include <belay/belay.h>

enum {
    TOKENS = 20,  /* rows of the model's table */
    CLASSES = 3,  /* labels are 0, 1, 2 */
    SAMPLES = 4,  /* of a batch */
    SEQUENCE = 6, /* ids of a sample */
    N_BATCHES = 5,
    BAD_BATCH = 2 /* where the injection stands */
};

/* What an injection works with. */
typedef struct gallery {
    belay_context *ctx;
    const char *device; /* where the model and its batches lie */
    bool is_sim;
    belay_module *model;
    belay_optimizer *adam;
    belay_loader *batches;
    int64_t tokens[N_BATCHES * SAMPLES][SEQUENCE], labels[N_BATCHES * SAMPLES];
    int64_t value;         /* the injection's own */
    bool is_wrong;         /* a value did not come out as it must */
    bool has_batch;        /* the injection took the batch */
    belay_code child_code; /* of the fault that a child met, */
    char child_json[2048]; /* and its facts */
} gallery;

typedef struct injection {
    const char *what;
    void (*run)(gallery *g); /* in a window of its own: the step behind it is Belay's to refuse */
    int64_t value;
    belay_code code;   /* of the fault; BELAY_OK: legal, and the result is right */
    const char *named; /* what the report must name: "op;site;both devices=lies on": a text after = stands in it */
    const char *named_on_sim; /* and this too */
    belay_memory_mode memory; /* 0: pool */
    bool traces_nonfinite;
    belay_code on_sim; /* the fault there, where it is another */
    bool is_legal_on_cpu, is_legal_on_sim;
    bool loses_device; /* on sim: nothing runs there any more, as on a GPU */
} injection;

/* The whole program. */
int gallery_main(int argc, char **argv, const char *kind, const injection *injections, int n);
#define GALLERY_MAIN(kind)                                                                                             \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        return gallery_main(argc, argv, kind, injections, (int)(sizeof injections / sizeof injections[0]));            \
    }

/* The row of g->tokens and g->labels that the next batch has at `row`. */
int64_t gallery_sample(int row);
/* The next batch, on the device. */
belay_batch gallery_batch(gallery *g);
/* Forks; the child runs `use` and ends.  What it was told comes back as the injection's fault. */
void gallery_in_child(gallery *g, void (*use)(gallery *g));
/* Notes it when a result is not what it must be. */
void gallery_expect(gallery *g, bool holds);

#endif
