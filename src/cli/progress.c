/* SPDX-License-Identifier: Apache-2.0 */
/* How a training run goes: a bar on a terminal, lines elsewhere. */
#include <belay/train.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

#define SECOND INT64_C(1000000000)

/* Lines on stdout are handed on at once, and a failure is remembered. */
static void flush(bl_cli *cli)
{
    if (!cli->json)
        (void)bl_cli_flush(cli);
}

/* Where lines go: stdout is the document's with --json. */
static FILE *lines(const bl_cli *cli) { return cli->json ? stderr : stdout; }

void bl_cli_bar_clear(bl_cli *cli)
{
    if (cli->bar_width > 0)
        fputs("\r\x1b[K", stderr);
    cli->bar_width = 0;
}

/* "1:02:03", "4:05" */
static int print_time(FILE *out, double seconds)
{
    if (!(seconds >= 0 && seconds < 3.6e8))
        return fprintf(out, "-");
    int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        return fprintf(out, "%d:%02d:%02d", (int)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
    return fprintf(out, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

static double batches_done(const belay_progress *p)
{
    return (double)p->epoch * (double)p->n_batches + (double)p->batch;
}

/* Seconds until the last epoch ends, by the batches that this process did. */
static double time_left(const bl_cli *cli, const belay_progress *p)
{
    double done = batches_done(p), all = (double)p->n_epochs * (double)p->n_batches;
    return done > cli->before ? p->seconds / (done - cli->before) * (all - done) : (double)NAN;
}

static int print_figures(const bl_cli *cli, FILE *out, const belay_progress *p)
{
    int n = fprintf(out, "epoch %lld/%lld  batch %lld/%lld", (long long)p->epoch + 1, (long long)p->n_epochs,
                    (long long)p->batch, (long long)p->n_batches);
    if (isfinite(p->loss) && isfinite(p->samples_per_second))
        n += fprintf(out, "  loss %.4f  %.0f samples/s", p->loss, p->samples_per_second);
    n += fprintf(out, "  faults %lld  left ", (long long)p->n_faults);
    return n + print_time(out, time_left(cli, p));
}

static void draw_bar(bl_cli *cli, const belay_progress *p)
{
    enum { CELLS = 20 };
    int full = p->n_batches > 0 ? (int)(p->batch * CELLS / p->n_batches) : 0;
    bl_cli_bar_clear(cli);
    fputc('[', stderr);
    for (int i = 0; i < CELLS; i++)
        fputc(i < full ? '=' : ' ', stderr);
    fputs("] ", stderr);
    cli->bar_width = CELLS + 3 + print_figures(cli, stderr, p);
    fflush(stderr);
}

/* A bar is drawn over itself, which a dumb terminal cannot. */
static bool has_bar(void)
{
    const char *term = getenv("TERM");
    return term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0 && isatty(STDERR_FILENO) == 1;
}

/* At once and then ten bars a second on a terminal, a line every ten seconds elsewhere. */
static void step(bl_cli *cli, const belay_progress *p)
{
    bool is_terminal = has_bar();
    int64_t now = bl_clock_now();
    if (cli->bar_drawn == 0)
        cli->bar_drawn = is_terminal ? now - SECOND : now;
    if (now - cli->bar_drawn < (is_terminal ? SECOND / 10 : 10 * SECOND))
        return;
    cli->bar_drawn = now;
    if (is_terminal) {
        draw_bar(cli, p);
        return;
    }
    print_figures(cli, lines(cli), p);
    fputc('\n', lines(cli));
    flush(cli);
}

static void epoch(bl_cli *cli, const belay_progress *p)
{
    FILE *out = lines(cli);
    bl_cli_bar_clear(cli);
    fprintf(out, "epoch %lld/%lld  loss %.4f  accuracy %.4f", (long long)p->epoch + 1, (long long)p->n_epochs,
            bl_text_real(p->loss), bl_text_real(p->accuracy));
    if (!isnan(p->valid_loss))
        fprintf(out, "  valid loss %.4f  accuracy %.4f", p->valid_loss, bl_text_real(p->valid_accuracy));
    fprintf(out, "  %.0f samples/s  faults %lld%s\n", bl_text_real(p->samples_per_second), (long long)p->n_faults,
            p->is_best ? "  best" : "");
    flush(cli);
}

/* Where a run that was to go on does so. */
static void resumed(const belay_progress *p, FILE *out)
{
    if (p->path == NULL)
        fprintf(out, "no checkpoint was written yet: the run starts over\n");
    else if (p->epoch < p->n_epochs)
        fprintf(out, "going on at epoch %lld/%lld, batch %lld/%lld\n", (long long)p->epoch + 1, (long long)p->n_epochs,
                (long long)p->batch, (long long)p->n_batches);
    else
        fprintf(out, "nothing left to do: %lld epochs are done, --epochs is %lld\n", (long long)p->epoch,
                (long long)p->n_epochs);
}

/* Before the first batch, which may take long. */
static void begun(bl_cli *cli, const belay_progress *p)
{
    FILE *out = lines(cli);
    cli->before = batches_done(p);
    if (cli->resumed)
        resumed(p, out);
    if (p->epoch >= p->n_epochs)
        return;
    fprintf(out, "%lld samples in %lld batch%s", (long long)p->n_samples, (long long)p->n_batches,
            p->n_batches == 1 ? "" : "es");
    if (p->n_valid_samples > 0)
        fprintf(out, ", %lld to validate", (long long)p->n_valid_samples);
    fprintf(out, ", %lld parameters\n", (long long)p->n_parameters);
    flush(cli);
    if (has_bar())
        draw_bar(cli, p);
}

void bl_cli_progress(void *state, const belay_progress *progress)
{
    bl_cli *cli = state;
    if (progress->kind == BELAY_PROGRESS_BEGUN)
        begun(cli, progress);
    else if (progress->kind == BELAY_PROGRESS_STEP)
        step(cli, progress);
    else if (progress->kind == BELAY_PROGRESS_EPOCH)
        epoch(cli, progress);
}
