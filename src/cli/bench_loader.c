/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_loader.h"

#include <belay/data.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"

enum { SAMPLES = 50000, LONGEST = 15, EPOCHS = 5 };

typedef struct words {
    char text[SAMPLES][LONGEST + 1];
    const char *texts[SAMPLES], *labels[SAMPLES];
} words;

/* Words of 3 to 15 letters, five labels. */
static void draw_words(words *w)
{
    static const char *const labels[] = {"a", "b", "c", "d", "e"};
    bl_rng_key key = {1, 0, 0, 4};
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint64_t n = 3 + bl_rng_below(&key, i * 32, LONGEST - 2);
        for (uint64_t c = 0; c < n; c++)
            w->text[i][c] = (char)('a' + bl_rng_below(&key, i * 32 + 1 + c, 26));
        w->texts[i] = w->text[i];
        w->labels[i] = labels[i % 5];
    }
}

static double epoch_seconds(belay_loader *loader, int64_t *n)
{
    belay_batch batch;
    int64_t start = bl_clock_now();
    for (*n = 0; belay_loader_next(loader, &batch);)
        *n += batch.n_samples;
    return (double)(bl_clock_now() - start) * 1e-9;
}

belay_code bl_bench_loader_run(bl_bench_loader *out, bl_error *error)
{
    words *w = bl_alloc(1, sizeof *w);
    if (w == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for %d words", SAMPLES);
    draw_words(w);
    belay_context *context = belay_open(&(belay_options){.seed = 1, .threads = 1, .no_journal = true});
    belay_text_options text = {.seq = 20, .tokens = BELAY_TOKENS_CHAR};
    belay_dataset *dataset = belay_dataset_texts(context, w->texts, w->labels, SAMPLES, &text);
    belay_loader *loader = belay_loader_new(dataset, &(belay_loader_options){.shuffle = true, .workers = 2});
    int64_t n = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        double seconds = epoch_seconds(loader, &n), rate = (double)n / seconds;
        out->samples_per_second = rate > out->samples_per_second ? rate : out->samples_per_second;
    }
    bl_free(w);
    belay_fault fault;
    belay_code code = BELAY_OK;
    if (belay_fault_get(context, 0, &fault))
        code = bl_error_set(error, fault.code, "the loader did not run: %s", fault.text);
    else if (n != SAMPLES)
        code = bl_error_set(error, BELAY_BUG_INVARIANT, "the loader gave %lld of %d samples", (long long)n, SAMPLES);
    belay_close(context);
    return code;
}
